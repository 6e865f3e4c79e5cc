//! The JSON of an exported program, as `torch._export.serde` writes it: schema version 8, which torch has had since 2.6.
//!
//! Types have the names of the schema. Minor versions only add fields: unknown fields are ignored, and absent ones have
//! their defaults. A value of an unknown kind is kept by its tag, and is an error only where it is used. Names are
//! borrowed from the document.

mod bare_floats;
mod graph;
mod signature;
mod tensor;
mod text;
mod treespec;
mod union;

use indexmap::IndexMap;
use serde::Deserialize;

pub(crate) use bare_floats::quoted;
pub use graph::*;
pub use signature::*;
pub use tensor::*;
pub use text::{RawText, Text};
pub use treespec::{TreeKey, TreeSpec};

use super::error::{Error, ErrorKind};

/// Major version of the supported schema. Version 0.0 is a development state of it, and is read, too.
const MAJOR: i64 = 8;

/// A program: one graph, the roles of its inputs and outputs, and its calling convention.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ExportedProgram<'a> {
    #[serde(borrow)]
    pub graph_module: GraphModule<'a>,
    /// By namespace: `aten` has 10.
    #[serde(default)]
    pub opset_version: IndexMap<Text<'a>, i64>,
    /// By symbol.
    #[serde(default)]
    pub range_constraints: IndexMap<Text<'a>, RangeConstraint>,
    pub schema_version: SchemaVersion,
    /// `TRAINING` straight from `torch.export.export`, `ATEN` after `run_decompositions`.
    #[serde(default)]
    pub verifiers: Vec<Text<'a>>,
    #[serde(default)]
    pub torch_version: Text<'a>,
    #[serde(default)]
    pub guards_code: Vec<Text<'a>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GraphModule<'a> {
    #[serde(borrow)]
    pub graph: Graph<'a>,
    pub signature: GraphSignature<'a>,
    #[serde(default)]
    pub module_call_graph: Vec<ModuleCallEntry<'a>>,
    /// Fields of named tuples, by the name under which their type is registered.
    #[serde(default)]
    pub treespec_namedtuple_fields: IndexMap<Text<'a>, NamedTupleDef<'a>>,
}

/// Range of a symbol, both bounds included; `None` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct RangeConstraint {
    #[serde(default)]
    pub min_val: Option<i64>,
    #[serde(default)]
    pub max_val: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct SchemaVersion {
    pub major: i64,
    pub minor: i64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ModuleCallEntry<'a> {
    /// Path of the module; the first entry, with an empty path, is the program itself.
    #[serde(borrow)]
    pub fqn: Text<'a>,
    #[serde(default)]
    pub signature: Option<ModuleCallSignature<'a>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ModuleCallSignature<'a> {
    #[serde(borrow, default)]
    pub inputs: Vec<Argument<'a>>,
    #[serde(default)]
    pub outputs: Vec<Argument<'a>>,
    /// A [`TreeSpec`] of (positional arguments, keyword arguments), as JSON.
    pub in_spec: Text<'a>,
    /// A [`TreeSpec`] as JSON.
    pub out_spec: Text<'a>,
    #[serde(default)]
    pub forward_arg_names: Option<Vec<Text<'a>>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct NamedTupleDef<'a> {
    #[serde(borrow)]
    pub field_names: Vec<Text<'a>>,
}

impl<'a> ExportedProgram<'a> {
    /// Reads a program from `text`. `entry` names it in errors.
    pub fn parse(text: &'a str, entry: &str) -> Result<Self, Error> {
        let program = serde_json::from_str::<Self>(text);
        // The version is checked first: a document of another version may break any other rule.
        if let Ok(header) = program.as_ref().map(Header::of).or_else(|_| serde_json::from_str::<Header<'_>>(text)) {
            header.check(entry)?;
        }
        program.map_err(|error| Error::json(entry, text, &error))
    }

    /// The calling convention of the whole program.
    pub fn signature(&self) -> Option<&ModuleCallSignature<'a>> {
        let entries = &self.graph_module.module_call_graph;
        entries.iter().find(|entry| entry.fqn.is_empty()).and_then(|entry| entry.signature.as_ref())
    }

    /// The structure of the inputs: a tuple of positional arguments and a dictionary of keyword arguments. `None` if the
    /// program does not say.
    pub fn in_spec(&self) -> Option<Result<TreeSpec, Error>> {
        self.signature().map(|signature| self.tree(&signature.in_spec))
    }

    /// The structure of the outputs.
    pub fn out_spec(&self) -> Option<Result<TreeSpec, Error>> {
        self.signature().map(|signature| self.tree(&signature.out_spec))
    }

    fn tree(&self, text: &str) -> Result<TreeSpec, Error> {
        TreeSpec::parse(text, &self.graph_module.treespec_namedtuple_fields)
    }
}

/// The fields that every version of the schema has.
#[derive(Deserialize)]
struct Header<'a> {
    schema_version: SchemaVersion,
    #[serde(borrow, default)]
    torch_version: Text<'a>,
}

impl<'a> Header<'a> {
    fn of(program: &ExportedProgram<'a>) -> Self {
        Self { schema_version: program.schema_version, torch_version: program.torch_version.clone() }
    }

    fn check(&self, entry: &str) -> Result<(), Error> {
        let SchemaVersion { major, minor } = self.schema_version;
        if major == MAJOR || (major, minor) == (0, 0) {
            return Ok(());
        }
        let torch = if self.torch_version.is_empty() { "2.4 or earlier" } else { &self.torch_version };
        Err(Error::new(entry, ErrorKind::SchemaVersion { major, minor, torch: torch.to_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = r#"{"schema_version": {"major": 8, "minor": 99}, "graph_module": {"graph": {"#;
    const END: &str = r#"}, "signature": {"input_specs": [], "output_specs": []}}}"#;

    fn parse(graph: &str) -> Result<String, Error> {
        let text = format!("{START}{graph}{END}");
        ExportedProgram::parse(&text, "models/model.json")
            .map(|program| format!("{:?}", program.graph_module.graph.nodes))
    }

    fn node(argument: &str) -> Result<String, Error> {
        parse(&format!(
            r#""inputs": [], "outputs": [], "nodes": [{{"target": "f", "inputs": [{{"name": "a", "arg": {argument}}}]}}]"#
        ))
    }

    #[test]
    fn absent_fields_have_defaults_and_unknown_ones_are_ignored() {
        let nodes = parse(r#""later": [{}], "inputs": [], "nodes": [], "outputs": []"#);
        assert_eq!(nodes, Ok("[]".to_owned()));
        let error = parse(r#""inputs": [], "nodes": []"#).err();
        assert!(error.is_some_and(|error| error.to_string().contains("missing field `outputs`")));
    }

    #[test]
    fn arguments_of_a_later_schema_are_kept_by_their_tag() {
        let nodes = node(r#"{"as_polynomial": {"degree": [1, 2]}}"#);
        assert!(nodes.as_ref().is_ok_and(|nodes| nodes.contains(r#"Unknown { tag: "as_polynomial" }"#)), "{nodes:?}");
        for argument in ["{}", r#"{"as_int": 1, "as_float": 2.0}"#, "3", r#"{"as_int": 9223372036854775808}"#] {
            let error = node(argument).err();
            assert!(
                matches!(error, Some(Error { kind: ErrorKind::Json { .. }, offset: Some(150..), .. })),
                "{error:?}"
            );
        }
    }

    #[test]
    fn floats_that_json_cannot_have_are_strings() {
        let nodes = node(r#"{"as_floats": ["NaN", "-Infinity", 1, -2, 0.1, 1e300]}"#);
        assert!(nodes.as_ref().is_ok_and(|nodes| nodes.contains("[NaN, -inf, 1.0, -2.0, 0.1, 1e300]")), "{nodes:?}");
        let error = node(r#"{"as_float": "nan"}"#).err();
        assert!(error.is_some_and(|error| error.to_string().contains("expected a number, \"Infinity\"")));
    }

    #[test]
    fn escapes_and_depth() {
        let nodes = node(r#"{"as_string": "a\"\u00e9\ud83d\ude00"}"#);
        assert!(nodes.as_ref().is_ok_and(|nodes| nodes.contains(r#""a\"é😀""#)), "{nodes:?}");
        let deep = format!("{}1{}", r#"{"as_string_to_argument": {"a": "#.repeat(10_000), "}}".repeat(10_000));
        assert!(node(&deep).is_err_and(|error| error.to_string().contains("recursion limit")));
    }

    #[test]
    fn other_versions_are_refused_even_if_nothing_else_is_known() {
        let text = r#"{"schema_version": {"major": 9, "minor": 1}, "torch_version": "3.0", "program": {}}"#;
        let kind = ExportedProgram::parse(text, "").map_err(|error| error.kind).err();
        assert_eq!(kind, Some(ErrorKind::SchemaVersion { major: 9, minor: 1, torch: "3.0".to_owned() }));
        let text = format!("{START}{END}").replace(r#""major": 8, "minor": 99"#, r#""major": 0, "minor": 0"#);
        let error = ExportedProgram::parse(&text, "").err();
        assert!(error.is_some_and(|error| error.to_string().contains("missing field `inputs`")));
    }
}
