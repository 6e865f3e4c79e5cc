//! The JSON of an exported program, as `torch._export.serde` writes it: schema version 8, which torch has had since 2.6.
//!
//! Types have the names of the schema. Unknown fields are ignored and absent ones have their defaults, since minor
//! versions only add; values of an unknown kind are kept as such and matter only to programs that use them. Names are
//! borrowed from the document.

mod graph;
mod signature;
mod tensor;
mod text;
mod treespec;
mod union;

use indexmap::IndexMap;
use serde::Deserialize;

pub use graph::*;
pub use signature::*;
pub use tensor::*;
pub use text::{RawText, Text};
pub use treespec::{TreeKey, TreeSpec};

use super::error::{Error, ErrorKind};

/// The version of the schema that is read. Version 0.0 stands for a development state of it.
const MAJOR: i64 = 8;

/// A program: one graph, what its inputs and outputs mean, and how it is called.
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

/// What a symbol may be, both bounds included; nothing is unbounded.
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
        // Of another version little else can be expected to be as it should.
        if let Ok(header) = program.as_ref().map(Header::of).or_else(|_| serde_json::from_str::<Header<'_>>(text)) {
            header.check(entry)?;
        }
        program.map_err(|error| Error::json(entry, text, &error))
    }

    /// How the program as a whole is called.
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

/// The part of a program that every version has had.
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
