//! Pytrees of inputs and outputs in the encoding of ExecuTorch's programs: a letter for the kind of container, its number of
//! children, the number of leaves of each, and the children. A leaf is `$`; `(x, {})` is `T2#1#0($,D0())`.

use rushlight_graph::Error;

use super::super::ExportedProgram;
use super::super::schema::{TreeKey, TreeSpec};

/// Returns the encoded tree specs of the inputs and of the outputs; empty where the export has none.
pub(super) fn encodings(program: &ExportedProgram<'_>) -> Result<(String, String), Error> {
    let encoding = |spec: Option<Result<TreeSpec, super::super::Error>>| -> Result<String, Error> {
        let mut text = String::new();
        if let Some(spec) = spec {
            encode(&mut text, &spec?);
        }
        Ok(text)
    };
    Ok((encoding(program.in_spec())?, encoding(program.out_spec())?))
}

/// Appends the encoding of a tree spec.
fn encode(text: &mut String, spec: &TreeSpec) {
    let kind = match spec {
        TreeSpec::Leaf => {
            text.push('$');
            return;
        }
        TreeSpec::Tuple(_) => "T".to_owned(),
        TreeSpec::List(_) => "L".to_owned(),
        TreeSpec::Dict(_) => "D".to_owned(),
        TreeSpec::NamedTuple { .. } => "N".to_owned(),
        TreeSpec::Other { kind, .. } => format!("C({kind})"),
    };
    let children: Vec<&TreeSpec> = spec.children().collect();
    text.push_str(&format!("{kind}{}", children.len()));
    for child in &children {
        text.push_str(&format!("#{}", child.num_leaves()));
    }
    text.push('(');
    for (index, child) in children.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        if let TreeSpec::Dict(entries) = spec
            && let Some((key, _)) = entries.get(index)
        {
            match key {
                TreeKey::String(key) => text.push_str(&format!("'{key}':")),
                TreeKey::Int(key) => text.push_str(&format!("{key}:")),
                TreeKey::Other(key) => text.push_str(&format!("{key}:")),
            }
        }
        encode(text, child);
    }
    text.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_as_executorch_does() {
        let args = TreeSpec::Tuple(vec![TreeSpec::Tuple(vec![TreeSpec::Leaf]), TreeSpec::Dict(vec![])]);
        let mut text = String::new();
        encode(&mut text, &args);
        assert_eq!(text, "T2#1#0(T1#1($),D0())");
        let nested = TreeSpec::Dict(vec![
            (TreeKey::String("a".into()), TreeSpec::List(vec![TreeSpec::Leaf, TreeSpec::Leaf])),
            (TreeKey::Int(3), TreeSpec::Leaf),
        ]);
        text.clear();
        encode(&mut text, &nested);
        assert_eq!(text, "D2#2#1('a':L2#1#1($,$),3:$)");
    }
}
