//! The debug map: the origin of each instruction, stored in the program for profilers and other tools.
//!
//! The map is JSON. A table has each string once, and the origins are rows of indices into it: many nodes share a module
//! or a line of source.

use indexmap::IndexSet;
use rushlight_format::Program;

use crate::json::Json;

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

/// Encodes the maps. File names are stored without their folders, which exist on the exporting machine only.
pub fn to_bytes(maps: &[MethodMap]) -> Vec<u8> {
    let mut strings = IndexSet::new();
    let methods = maps.iter().map(|map| {
        let rows = map.instructions.iter().map(|origin| origin.as_ref().map_or(Json::Null, |o| row(&mut strings, o)));
        let rows = Json::Array(rows.collect());
        Json::Array(vec![index(&mut strings, &map.method), rows])
    });
    let methods = Json::Array(methods.collect());
    let strings = Json::Array(strings.into_iter().map(|text| Json::String(text.into())).collect());
    Json::Object(vec![("strings".into(), strings), ("methods".into(), methods)]).to_string().into_bytes()
}

/// The row of an [`InstructionOrigin`]: operator, node, module, source, results and nodes.
fn row<'a>(strings: &mut IndexSet<&'a str>, origin: &'a InstructionOrigin) -> Json {
    let [op, node, module] = [&origin.op, &origin.node, &origin.module].map(|text| index(strings, text));
    let source = origin.source.as_deref().map_or(Json::Null, |source| index(strings, without_folder(source)));
    let results = origin.results.iter().map(|name| index(strings, name)).collect();
    let nodes = origin.nodes.iter().map(|node| row(strings, node)).collect();
    Json::Array(vec![op, node, module, source, Json::Array(results), Json::Array(nodes)])
}

/// The index of a string, which is added if it is new.
fn index<'a>(strings: &mut IndexSet<&'a str>, text: &'a str) -> Json {
    Json::Number(strings.insert_full(text).0)
}

/// The maps of a program, by method; empty if it has none that can be read.
pub fn of_program(program: &Program<'_>) -> Vec<MethodMap> {
    let found = program.named_data().find(|(key, _)| *key == DEBUG_MAP_KEY);
    found.and_then(|(_, bytes)| from_bytes(bytes)).unwrap_or_default()
}

fn from_bytes(bytes: &[u8]) -> Option<Vec<MethodMap>> {
    let Json::Object(entries) = Json::parse(bytes)? else { return None };
    let [(_, strings), (_, methods)] = <[_; 2]>::try_from(entries)
        .ok()
        .filter(|[strings, methods]| strings.0 == "strings" && methods.0 == "methods")?;
    let strings = strings.into_array()?.into_iter().map(Json::into_string).collect::<Option<_>>()?;
    let mut strings = Strings { strings, left: bytes.len().saturating_mul(MAX_GROWTH) };
    let methods = methods.into_array()?.into_iter().map(|method| {
        let [name, rows] = method.into_tuple()?;
        let rows = rows.into_array()?.into_iter().map(|row| match row {
            Json::Null => Some(None),
            row => strings.origin(row).map(Some),
        });
        Some(MethodMap { instructions: rows.collect::<Option<_>>()?, method: strings.get(&name)? })
    });
    methods.collect()
}

/// Maximum ratio of the decoded strings' bytes to those of the map. Typical rows have ten bytes, and their strings a few
/// hundred.
const MAX_GROWTH: usize = 64;

/// The string table of a map that is decoded.
struct Strings {
    strings: Vec<String>,
    /// Bytes of strings that may still be decoded.
    left: usize,
}

impl Strings {
    fn get(&mut self, index: &Json) -> Option<String> {
        let text = self.strings.get(index.as_number()?)?;
        self.left = self.left.checked_sub(text.len())?;
        Some(text.clone())
    }

    fn origin(&mut self, row: Json) -> Option<InstructionOrigin> {
        let [op, node, module, source, results, nodes] = row.into_tuple()?;
        Some(InstructionOrigin {
            op: self.get(&op)?,
            node: self.get(&node)?,
            module: self.get(&module)?,
            source: if source == Json::Null { None } else { Some(self.get(&source)?) },
            results: results.into_array()?.iter().map(|name| self.get(name)).collect::<Option<_>>()?,
            nodes: nodes.into_array()?.into_iter().map(|node| self.origin(node)).collect::<Option<_>>()?,
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
    use rushlight_graph::operators::aten;

    #[test]
    fn maps_are_read_back_without_folders() {
        let inner =
            InstructionOrigin { op: aten::packet::ADD.into(), node: "add".into(), ..InstructionOrigin::default() };
        let origin = InstructionOrigin {
            op: aten::RELU.into(),
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
