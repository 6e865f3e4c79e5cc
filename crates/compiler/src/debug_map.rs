//! What the instructions of a program come from, kept in the program for the tools that look at it.
//!
//! The map is JSON: each string once, and rows of indices into them, as lines of source and modules repeat for many nodes.

use indexmap::IndexSet;
use rushlight_format::Program;
use serde::{Deserialize, Serialize};

/// The key of the map among a program's named data. Runtimes ignore it.
pub const DEBUG_MAP_KEY: &str = "rushlight.debug_map";

/// The origin of each instruction of a method.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MethodMap {
    pub method: String,
    /// `None` for an instruction without an origin of its own.
    pub instructions: Vec<Option<InstructionOrigin>>,
}

/// The node that an instruction comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstructionOrigin {
    /// Full name of the operator in the graph.
    pub op: String,
    /// The node of the exported program.
    pub node: String,
    /// The module that it was called in.
    pub module: String,
    /// `file:line in function: code`, if known.
    pub source: Option<String>,
    /// Names of the results in the graph.
    pub results: Vec<String>,
    /// For the call of a delegate: the nodes that its backend compiled.
    pub nodes: Vec<InstructionOrigin>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    strings: Vec<String>,
    /// Method and instructions.
    methods: Vec<(usize, Vec<Option<Row>>)>,
}

/// Operator, node, module, source, results and nodes of an [`InstructionOrigin`].
#[derive(Serialize, Deserialize)]
struct Row(usize, usize, usize, Option<usize>, Vec<usize>, Vec<Row>);

/// The maps as they are stored. Names of files lose their folders, which are the exporting machine's.
pub fn to_bytes(maps: &[MethodMap]) -> Vec<u8> {
    let mut strings = IndexSet::new();
    let methods = maps.iter().map(|map| {
        let rows = map.instructions.iter().map(|origin| Some(row(&mut strings, origin.as_ref()?))).collect();
        (strings.insert_full(map.method.as_str()).0, rows)
    });
    let methods = methods.collect();
    let strings = strings.into_iter().map(ToOwned::to_owned).collect();
    serde_json::to_vec(&Stored { strings, methods }).unwrap_or_default()
}

fn row<'a>(strings: &mut IndexSet<&'a str>, origin: &'a InstructionOrigin) -> Row {
    let mut index = |text: &'a str| strings.insert_full(text).0;
    let (op, node, module) = (index(&origin.op), index(&origin.node), index(&origin.module));
    let source = origin.source.as_deref().map(|source| index(without_folder(source)));
    let results = origin.results.iter().map(|name| index(name)).collect();
    Row(op, node, module, source, results, origin.nodes.iter().map(|node| row(strings, node)).collect())
}

/// The maps of a program, by method; nothing if it has none that can be read.
pub fn of_program(program: &Program<'_>) -> Vec<MethodMap> {
    let found = program.named_data().find(|(key, _)| *key == DEBUG_MAP_KEY);
    found.and_then(|(_, bytes)| from_bytes(bytes)).unwrap_or_default()
}

fn from_bytes(bytes: &[u8]) -> Option<Vec<MethodMap>> {
    let Stored { strings, methods } = serde_json::from_slice(bytes).ok()?;
    let mut strings = Strings { strings, left: bytes.len().saturating_mul(MAX_GROWTH) };
    let methods = methods.into_iter().map(|(method, rows)| {
        let rows = rows.into_iter().map(|row| row.map_or(Some(None), |row| strings.origin(row).map(Some)));
        Some(MethodMap { instructions: rows.collect::<Option<_>>()?, method: strings.get(method)? })
    });
    methods.collect()
}

/// Maximum ratio of the decoded strings' bytes to those of the map: a row of ten bytes has strings of a few hundred.
const MAX_GROWTH: usize = 64;

struct Strings {
    strings: Vec<String>,
    /// Bytes that may still be repeated.
    left: usize,
}

impl Strings {
    fn get(&mut self, index: usize) -> Option<String> {
        let text = self.strings.get(index)?;
        self.left = self.left.checked_sub(text.len())?;
        Some(text.clone())
    }

    fn origin(&mut self, Row(op, node, module, source, results, nodes): Row) -> Option<InstructionOrigin> {
        Some(InstructionOrigin {
            op: self.get(op)?,
            node: self.get(node)?,
            module: self.get(module)?,
            source: source.map_or(Some(None), |source| self.get(source).map(Some))?,
            results: results.into_iter().map(|name| self.get(name)).collect::<Option<_>>()?,
            nodes: nodes.into_iter().map(|node| self.origin(node)).collect::<Option<_>>()?,
        })
    }
}

/// A line of source, `file:line in function: code`, without the folder of its file.
pub fn without_folder(source: &str) -> &str {
    let path_end = source.find(".py:").unwrap_or(0);
    let folder = source.get(..path_end).and_then(|path| path.rfind(['/', '\\'])).map_or(0, |at| at + 1);
    source.get(folder..).unwrap_or(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_back_without_folders() {
        let inner = InstructionOrigin { op: "aten::add".into(), node: "add".into(), ..InstructionOrigin::default() };
        let origin = InstructionOrigin {
            op: "aten::relu".into(),
            node: "relu_1".into(),
            module: "net.0".into(),
            source: Some("/home/me/net.py:7 in forward: return a / b".into()),
            results: vec!["relu_1".into()],
            nodes: vec![inner],
        };
        let map = MethodMap { method: "forward".into(), instructions: vec![None, Some(origin.clone())] };
        let bytes = to_bytes(&[map]);
        let read = from_bytes(&bytes).unwrap();
        let source = Some("net.py:7 in forward: return a / b".into());
        assert_eq!(read[0].instructions, [None, Some(InstructionOrigin { source, ..origin })]);
        assert_eq!(String::from_utf8(bytes).unwrap().matches("relu_1").count(), 1);
    }

    #[test]
    fn maps_with_strings_that_are_missing_are_not_read() {
        assert_eq!(from_bytes(br#"{"strings":["forward"],"methods":[[0,[[0,0,1,null,[],[]]]]]}"#), None);
        assert_eq!(from_bytes(br#"[{"method":"forward","instructions":[]}]"#), None);
    }

    #[test]
    fn strings_are_not_repeated_without_end() {
        let results = vec!["0"; 10_000].join(",");
        let bytes =
            format!(r#"{{"strings":["{}"],"methods":[[0,[[0,0,0,null,[{results}],[]]]]]}}"#, "x".repeat(20_000));
        assert_eq!(from_bytes(bytes.as_bytes()), None);
    }
}
