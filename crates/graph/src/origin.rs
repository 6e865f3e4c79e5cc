//! The origin of nodes: modules and lines of the model's source.

use std::sync::Arc;

/// The origin of a node in the model's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The node of the exported program.
    pub node: String,
    /// The path of the module that was called, such as `encoder.layers.0.self_attn`.
    pub module: String,
    /// The Python stack, outermost call first.
    pub frames: Arc<[SourceFrame]>,
    /// PyTorch's metadata of the node, if the import was asked to read it. The text form of a graph leaves it out.
    pub metadata: Option<Arc<NodeMetadata>>,
}

/// The metadata of an exported node, as `torch.export.save` writes it. A text is empty where the node has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeMetadata {
    /// The modules around the node, outermost first: `key,path,class`, separated by `;`.
    pub nn_module_stack: String,
    /// The functions and modules that the node was traced from, outermost first: `name,target`, separated by `;`.
    pub source_fn_stack: String,
    /// The function of PyTorch that made the node: `name;kind.function`.
    pub torch_fn: String,
    /// JSON that the author of the model attached, or a quantizer.
    pub custom: String,
    /// JSON with the passes that made the node, and the nodes that they made it from.
    pub from_node: String,
}

/// A line of Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceFrame {
    pub file: String,
    pub line: u32,
    pub function: String,
    pub code: String,
}

impl Origin {
    /// The innermost frame of the model's own code: lines of PyTorch's modules are the same for every layer. Where there
    /// is no other, one of these.
    pub fn frame(&self) -> Option<&SourceFrame> {
        self.frames.iter().rev().find(|frame| !frame.is_torch()).or(self.frames.last())
    }

    /// `file:line in function: code` of [`frame`](Self::frame).
    pub fn line(&self) -> Option<String> {
        let frame = self.frame()?;
        Some(format!("{}:{} in {}: {}", frame.file, frame.line, frame.function, frame.code))
    }
}

impl SourceFrame {
    /// Reads `file:line in function: code`, as [`Origin::line`] writes it; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (place, rest) = text.split_once(" in ")?;
        let (file, line) = place.rsplit_once(':')?;
        let (function, code) = rest.split_once(": ")?;
        let line = line.parse().ok()?;
        Some(Self { file: file.to_owned(), line, function: function.to_owned(), code: code.to_owned() })
    }

    /// True if the file is one of an installed PyTorch, or of its modules wherever it is.
    fn is_torch(&self) -> bool {
        let path: Vec<&str> = self.file.split(['/', '\\']).collect();
        path.windows(2).any(|pair| matches!(pair, ["site-packages" | "dist-packages", "torch"] | ["torch", "nn"]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_models_own_where_there_are_any() {
        let frame = |file: &str, line| SourceFrame { file: file.into(), line, ..SourceFrame::default() };
        let torch = [frame("/usr/lib/torch/nn/modules/linear.py", 2), frame("C:\\site-packages\\torch\\_ops.py", 3)];
        let origin = |frames: &[SourceFrame]| Origin { frames: frames.into(), ..Origin::default() };
        assert_eq!(origin(&torch).frame(), torch.last());
        let mut frames = vec![frame("main.py", 9), frame("/home/me/torch/model.py", 1)];
        frames.extend(torch);
        assert_eq!(origin(&frames).frame().map(|frame| frame.line), Some(1));
        assert_eq!(origin(&[]).line(), None);
    }
}
