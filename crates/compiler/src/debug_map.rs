//! What the instructions of a program come from, kept in the program for the tools that look at it.

use rushlight_format::Program;

use crate::emit::MethodMap;

/// The key of the map among a program's named data. Runtimes ignore it.
pub const DEBUG_MAP_KEY: &str = "rushlight.debug_map";

/// The maps as they are stored: JSON. Names of files lose their folders, which are the exporting machine's.
pub fn to_bytes(maps: &[MethodMap]) -> Vec<u8> {
    let mut maps = maps.to_vec();
    for origin in maps.iter_mut().flat_map(|map| &mut map.instructions).flatten() {
        let nodes = origin.nodes.iter_mut().map(|node| &mut node.source);
        for source in nodes.chain([&mut origin.source]).flatten() {
            *source = without_folder(source).to_owned();
        }
    }
    serde_json::to_vec(&maps).unwrap_or_default()
}

/// A line of source, `file:line in function: code`, without the folder of its file.
pub fn without_folder(source: &str) -> &str {
    let path_end = source.find(".py:").unwrap_or(0);
    let folder = source.get(..path_end).and_then(|path| path.rfind(['/', '\\'])).map_or(0, |at| at + 1);
    source.get(folder..).unwrap_or(source)
}

/// The maps of a program, by method; nothing if it has none that can be read.
pub fn of_program(program: &Program<'_>) -> Vec<MethodMap> {
    program
        .named_data()
        .find(|(key, _)| *key == DEBUG_MAP_KEY)
        .map(|(_, data)| data)
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::InstructionOrigin;

    #[test]
    fn maps_are_read_back_without_folders() {
        let origin = InstructionOrigin {
            op: "aten::relu".into(),
            node: "relu_1".into(),
            module: "net.0".into(),
            source: Some("/home/me/net.py:7 in forward: return a / b".into()),
            results: vec!["relu_1".into()],
            nodes: Vec::new(),
        };
        let map = MethodMap { method: "forward".into(), instructions: vec![None, Some(origin.clone())] };
        let read: Vec<MethodMap> = serde_json::from_slice(&to_bytes(&[map])).unwrap();
        let source = Some("net.py:7 in forward: return a / b".into());
        assert_eq!(read[0].instructions, [None, Some(InstructionOrigin { source, ..origin })]);
    }
}
