//! The origin of nodes: module and lines of the model's Python source.

use std::sync::Arc;

use rushlight_graph::{NodeMetadata, Origin, OriginId, SourceFrame};

use super::super::schema::{Metadata, Node, RawText};
use super::{Importer, owned};

impl<'a> Importer<'_, '_, 'a> {
    /// The origin of a node.
    pub(super) fn origin(&mut self, node: &Node<'a>) -> OriginId {
        let stack = node.metadata.stack_trace.map(|text| owned(&text.decode()));
        let name = node.name.as_ref().map(owned).unwrap_or_default();
        let key = (name, stack);
        let metadata = self.options.metadata.then(|| Arc::new(read(&node.metadata)));
        // Nodes of different blocks may have one name.
        if let Some(known) = self.origins.get(&key).filter(|known| self.graph.origins[**known].metadata == metadata) {
            return *known;
        }
        let frames: Arc<[SourceFrame]> = key.1.as_deref().map(frames).unwrap_or_default().into();
        let module = node.metadata.nn_module_stack.map(|text| module_path(&text.decode())).unwrap_or_default();
        let id = self.graph.origins.push(Origin { node: key.0.clone(), module, frames, metadata });
        self.origins.insert(key, id);
        id
    }
}

/// The metadata without the stack trace, which becomes frames.
fn read(metadata: &Metadata<'_>) -> NodeMetadata {
    let text = |text: Option<RawText<'_>>| text.map(|text| owned(&text.decode())).unwrap_or_default();
    NodeMetadata {
        nn_module_stack: text(metadata.nn_module_stack),
        source_fn_stack: text(metadata.source_fn_stack),
        torch_fn: text(metadata.torch_fn),
        custom: text(metadata.custom),
        from_node: text(metadata.from_node),
    }
}

/// The path of the innermost module: the entries are `key,path,class`, separated by `;`.
fn module_path(stack: &str) -> String {
    stack.rsplit(';').find_map(|entry| entry.split(',').nth(1)).unwrap_or_default().to_owned()
}

/// The lines of a Python stack trace: `File "…", line 3, in forward`, with the code on the next line. Code that Python
/// made up has no file.
fn frames(stack: &str) -> Vec<SourceFrame> {
    let mut frames: Vec<SourceFrame> = Vec::new();
    let mut is_made_up = false;
    for line in stack.lines() {
        let line = line.trim();
        if let Some(frame) = line.strip_prefix("File \"").and_then(frame) {
            is_made_up = frame.file.starts_with('<');
            if !is_made_up {
                frames.push(frame);
            }
        } else if let (false, Some(last)) = (is_made_up, frames.last_mut())
            && last.code.is_empty()
        {
            line.clone_into(&mut last.code);
        }
    }
    frames
}

fn frame(rest: &str) -> Option<SourceFrame> {
    let (file, rest) = rest.split_once("\", line ")?;
    let (line, function) = rest.split_once(", in ")?;
    Some(SourceFrame { file: file.into(), line: line.parse().ok()?, function: function.into(), code: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_traces_become_frames() {
        let text = "  File \"/a/model.py\", line 12, in forward\n    return self.net(x)\n  File \"<eval_with_key>.3\", line 4, in forward\n    y = x\n File \"/a/net.py\", line 7, in go";
        let frames = frames(text);
        assert_eq!(frames.len(), 2);
        assert_eq!(
            (frames[0].file.as_str(), frames[0].line, frames[0].code.as_str()),
            ("/a/model.py", 12, "return self.net(x)")
        );
        assert_eq!((frames[1].function.as_str(), frames[1].code.as_str()), ("go", ""));
        assert!(super::frames("nonsense\nFile \"x").is_empty());
    }

    #[test]
    fn metadata_is_decoded() {
        let text =
            r#"{"custom": "{\"bits\": 8}", "torch_fn": "relu_1;builtin.relu", "source_fn_stack": "relu,torch.relu"}"#;
        let metadata: Metadata<'_> = serde_json::from_str(text).unwrap();
        let expected = NodeMetadata {
            custom: r#"{"bits": 8}"#.into(),
            torch_fn: "relu_1;builtin.relu".into(),
            source_fn_stack: "relu,torch.relu".into(),
            ..NodeMetadata::default()
        };
        assert_eq!(read(&metadata), expected);
    }

    #[test]
    fn the_innermost_module_is_named() {
        assert_eq!(module_path("L__self__,,m.Net;L__self__a,a.b,torch.nn.Linear"), "a.b");
        assert_eq!(module_path(""), "");
    }
}
