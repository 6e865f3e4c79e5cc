//! Schemas of operators: PyTorch's own schema text, one table for binding arguments, verification, emission and
//! documentation.
//!
//! A line of `schemas.txt` is a schema as PyTorch prints it, then, after tabs, the operator's out variant, its flags and
//! its functional or copying variant. Lines are sorted by name and parsed when they are asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, RwLock};

use crate::{Error, once};

/// Namespaces whose operators come with the runtime, or not at all.
const BUILT_IN: [&str; 7] =
    ["aten", "prims", "prim", "executorch_prim", "dim_order_ops", "quantized_decomposed", "torchao"];

/// An operator's signature.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Namespace, name and overload: `aten::add.Tensor`; without a dot for the default overload, `aten::relu`.
    pub name: String,
    pub params: Vec<Param>,
    pub returns: Vec<Kind>,
    /// The operator that writes its results into tensors that it is given, if there is one.
    pub out_variant: Option<String>,
    /// The functional variant of an in-place operator, or the copying variant of a view.
    pub twin: Option<String>,
    pub flags: Flags,
}

/// A parameter of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub name: String,
    pub kind: Kind,
    pub default: Option<Default>,
    /// True if the operator writes to it.
    pub writes: bool,
    /// True if a result is a view of it.
    pub aliased: bool,
}

/// The kind of a parameter or result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Tensor,
    Int,
    Float,
    Bool,
    Str,
    /// A number of any kind.
    Scalar,
    DType,
    Layout,
    Device,
    MemoryFormat,
    Generator,
    Optional(Box<Kind>),
    /// A list; with a length, a single value stands for that many.
    List(Box<Kind>, Option<u32>),
    /// Something that exported programs do not hold.
    Other(String),
}

/// Default value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Default {
    None,
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    Ints(Vec<i64>),
    Bools(Vec<bool>),
    /// `contiguous_format`.
    Contiguous,
}

/// Properties of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags {
    /// One of PyTorch's core ATen operators.
    pub core: bool,
    /// Results share memory with an argument.
    pub view: bool,
    /// Writes to an argument.
    pub in_place: bool,
    /// PyTorch defines it by other operators.
    pub composite: bool,
    /// Results differ from call to call.
    pub random: bool,
}

impl Schema {
    /// The namespace and name without the overload: `aten::add`.
    pub fn base_name(&self) -> &str {
        self.name.split_once('.').map_or(&self.name, |(name, _)| name)
    }

    /// True if the operator is of a namespace whose operators come with the runtime, or not at all. Others are registered by users.
    pub fn is_built_in(&self) -> bool {
        BUILT_IN.contains(&self.name.split("::").next().unwrap_or_default())
    }

    /// Position of a parameter.
    pub fn position(&self, param: &str) -> Option<usize> {
        self.params.iter().position(|known| known.name == param)
    }

    /// A schema for an operator without a table entry. Its parameters have the names of the program.
    pub fn opaque(name: &str, params: Vec<(String, Kind)>, returns: Vec<Kind>) -> Self {
        let param = |(name, kind)| Param { name, kind, default: None, writes: false, aliased: false };
        let (params, name) = (params.into_iter().map(param).collect(), name.to_owned());
        Self { name, params, returns, out_variant: None, twin: None, flags: Flags::default() }.with_out_variant()
    }

    /// The schema with the name that ExecuTorch gives out variants, `name.out` or `name.overload_out`, if it has none.
    #[must_use]
    pub fn with_out_variant(mut self) -> Self {
        self.out_variant.get_or_insert_with(|| match self.name.split_once('.') {
            Some((base, overload)) => format!("{base}.{overload}_out"),
            None => format!("{}.out", self.name),
        });
        self
    }

    /// Reads a line of the table, or a schema as PyTorch prints it.
    pub fn parse(line: &str) -> Result<Self, Error> {
        let mut columns =
            line.split('\t').map(|column| Some(column.trim()).filter(|text| *text != "-" && !text.is_empty()));
        let text = columns.next().flatten().unwrap_or_default();
        let malformed = |what: &str| Error::invalid(format!("malformed operator schema: {what}")).got(text);
        let (name, rest) = text.split_once('(').ok_or_else(|| malformed("no argument list"))?;
        let (params, returns) = rest.rsplit_once("->").ok_or_else(|| malformed("no result"))?;
        let params = params.trim_end().strip_suffix(')').ok_or_else(|| malformed("unclosed argument list"))?;
        let mut schema = Self {
            name: name.trim().into(),
            params: Vec::new(),
            returns: Vec::new(),
            out_variant: columns.next().flatten().map(ToOwned::to_owned),
            twin: None,
            flags: Flags::default(),
        };
        for param in split_top(params).into_iter().filter(|param| *param != "*") {
            schema.params.push(parse_param(param).ok_or_else(|| malformed(param))?);
        }
        let returns = returns.trim();
        let returns = returns.strip_prefix('(').and_then(|list| list.strip_suffix(')')).unwrap_or(returns);
        for result in split_top(returns) {
            // Results may be named.
            let (kind, _) = parse_kind(result).ok_or_else(|| malformed(result))?;
            schema.returns.push(kind);
        }
        for flag in columns.next().flatten().unwrap_or_default().split(',') {
            match flag {
                "core" => schema.flags.core = true,
                "view" => schema.flags.view = true,
                "inplace" => schema.flags.in_place = true,
                "composite" => schema.flags.composite = true,
                "random" => schema.flags.random = true,
                _ => {}
            }
        }
        schema.twin = columns.next().flatten().map(ToOwned::to_owned);
        Ok(schema)
    }
}

/// The pieces between commas that are in no bracket.
fn split_top(text: &str) -> Vec<&str> {
    let (mut pieces, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                pieces.push(text.get(start..at).unwrap_or_default().trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(text.get(start..).unwrap_or_default().trim());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// A type with its alias annotation, `Tensor(a!)[]?`, and what follows it.
fn parse_kind(text: &str) -> Option<(Kind, &str)> {
    let text = text.trim();
    let word = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(text.len());
    let (name, mut rest) = text.split_at_checked(word)?;
    let mut kind = match name {
        "Tensor" => Kind::Tensor,
        "int" | "SymInt" => Kind::Int,
        "float" | "SymFloat" => Kind::Float,
        "bool" | "SymBool" => Kind::Bool,
        "str" => Kind::Str,
        "Scalar" | "number" => Kind::Scalar,
        "ScalarType" => Kind::DType,
        "Layout" => Kind::Layout,
        "Device" => Kind::Device,
        "MemoryFormat" => Kind::MemoryFormat,
        "Generator" => Kind::Generator,
        "" => return None,
        other => Kind::Other(other.into()),
    };
    loop {
        if let Some(after) = rest.strip_prefix('?') {
            kind = Kind::Optional(Box::new(kind));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (length, after) = after.split_once(']')?;
            kind = Kind::List(Box::new(kind), length.parse().ok());
            rest = after;
        } else if let Some(after) = rest.strip_prefix('(') {
            rest = after.split_once(')')?.1;
        } else {
            return Some((kind, rest.trim()));
        }
    }
}

fn parse_param(text: &str) -> Option<Param> {
    let (kind, rest) = parse_kind(text)?;
    let (name, default) = match rest.split_once('=') {
        Some((name, default)) => (name, Some(parse_default(default.trim(), &kind)?)),
        None => (rest, None),
    };
    let annotation = text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(annotation, _)| annotation);
    let is_alias = text.starts_with("Tensor(");
    Some(Param {
        name: name.trim().into(),
        kind,
        default,
        writes: is_alias && annotation.is_some_and(|annotation| annotation.contains('!')),
        aliased: is_alias,
    })
}

fn parse_default(text: &str, kind: &Kind) -> Option<Default> {
    let is = |wanted: &Kind| match kind {
        Kind::Optional(inner) => **inner == *wanted,
        kind => kind == wanted,
    };
    Some(match text {
        "None" => Default::None,
        "True" => Default::Bool(true),
        "False" => Default::Bool(false),
        "contiguous_format" => Default::Contiguous,
        // c10's MemoryFormat 0 is contiguous, Layout 0 strided.
        _ if is(&Kind::MemoryFormat) => Default::Contiguous,
        "Mean" => Default::Int(1),
        _ if text.starts_with('[') => {
            let items =
                text.trim_start_matches('[').trim_end_matches(']').split(',').map(str::trim).filter(|t| !t.is_empty());
            let items: Vec<&str> = items.collect();
            if items.iter().any(|item| matches!(*item, "True" | "False")) {
                Default::Bools(items.iter().map(|item| *item == "True").collect())
            } else {
                Default::Ints(items.iter().map(|item| item.parse().ok()).collect::<Option<_>>()?)
            }
        }
        _ if text.starts_with(['"', '\'']) => Default::Str(text.trim_matches(['"', '\'']).into()),
        _ => match text.parse() {
            Ok(int) if is(&Kind::Float) => Default::Float(int as f64),
            Ok(int) => Default::Int(int),
            Err(_) => Default::Float(text.parse().ok()?),
        },
    })
}

/// The operators that a compilation knows: PyTorch's operators, which all compilations of a process share, and added ones.
#[derive(Default)]
pub struct Schemas {
    added: RwLock<HashMap<String, Arc<Schema>>>,
}

/// ExecuTorch's operators on numbers, which PyTorch does not know.
const PRIMS: &[&str] = &[
    "executorch_prim::add.Scalar(Scalar a, Scalar b) -> Scalar",
    "executorch_prim::sub.Scalar(Scalar a, Scalar b) -> Scalar",
    "executorch_prim::mul.Scalar(Scalar a, Scalar b) -> Scalar",
    "executorch_prim::floordiv.Scalar(Scalar a, Scalar b) -> Scalar",
    "executorch_prim::truediv.Scalar(Scalar a, Scalar b) -> Scalar",
    "executorch_prim::mod.Scalar(Scalar a, Scalar b) -> Scalar",
    "executorch_prim::neg.Scalar(Scalar a) -> Scalar",
    "executorch_prim::sym_max.Scalar(Scalar a, Scalar b) -> Scalar",
    "executorch_prim::sym_min.Scalar(Scalar a, Scalar b) -> Scalar",
    "executorch_prim::sym_float.Scalar(Scalar a) -> float",
    "executorch_prim::sym_int.Scalar(Scalar a) -> int",
    "executorch_prim::ceil.Scalar(Scalar a) -> int",
    "executorch_prim::round.Scalar(Scalar a) -> int",
    "executorch_prim::trunc.Scalar(Scalar a) -> int",
    "executorch_prim::eq.Scalar(Scalar a, Scalar b) -> bool",
    "executorch_prim::gt.Scalar(Scalar a, Scalar b) -> bool",
    "executorch_prim::lt.Scalar(Scalar a, Scalar b) -> bool",
    "executorch_prim::ge.Scalar(Scalar a, Scalar b) -> bool",
    "executorch_prim::le.Scalar(Scalar a, Scalar b) -> bool",
    "executorch_prim::sym_not.Scalar(bool a) -> bool",
    "executorch_prim::sym_ite.Scalar(bool b, Scalar t, Scalar f) -> Scalar",
];

/// Rushlight's own operators.
const OWN: &[&str] = &[
    "rushlight::quantize_rows(Tensor rows, ScalarType factor) -> (Tensor, Tensor, Tensor)",
    "rushlight::quantize_int4_rows(Tensor rows, SymInt group) -> (Tensor, Tensor, Tensor)",
    "rushlight::experts_linear(Tensor input, Tensor weight, Tensor experts, SymInt count) -> Tensor",
    "rushlight::experts_mm(Tensor input, Tensor mat2, Tensor experts, SymInt count) -> Tensor",
    "rushlight::dequantize_int4_rows(Tensor packed, Tensor scales, Tensor zero_points) -> Tensor",
];

/// PyTorch's operators, sorted by name.
const TABLE: &str = include_str!("schemas.txt");

impl Schemas {
    /// The operators of PyTorch.
    pub fn new() -> Self {
        <Self as std::default::Default>::default()
    }

    /// Adds an operator, or replaces the one of its name.
    pub fn add(&self, schema: Schema) -> Arc<Schema> {
        let schema = Arc::new(schema);
        if let Ok(mut added) = self.added.write() {
            added.insert(schema.name.clone(), schema.clone());
        }
        schema
    }

    /// The operator of this full name.
    pub fn get(&self, name: &str) -> Option<Arc<Schema>> {
        self.added.read().ok().and_then(|added| added.get(name).cloned()).or_else(|| built_in(name))
    }

    /// As [`get`](Self::get), with an error that names the operator.
    pub fn expect(&self, name: &str) -> Result<Arc<Schema>, Error> {
        self.get(name).ok_or_else(|| Error::unsupported(format!("operator `{name}` is not known")))
    }

    /// Every line of the built-in table.
    pub fn table() -> impl Iterator<Item = Result<Schema, Error>> {
        TABLE.lines().filter(|line| !line.starts_with('#')).map(Schema::parse)
    }
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schemas").finish_non_exhaustive()
    }
}

/// A line of a table, and its schema, which is parsed at the first request.
struct Line {
    name: &'static str,
    text: &'static str,
    schema: OnceLock<Option<Arc<Schema>>>,
}

/// Finds an operator in the tables. Its line is parsed at the first request.
fn built_in(name: &str) -> Option<Arc<Schema>> {
    static LINES: OnceLock<Vec<Line>> = OnceLock::new();
    let lines = once(&LINES, || {
        let all = TABLE.lines().filter(|line| !line.starts_with('#')).chain(PRIMS.iter().chain(OWN).copied());
        let name = |text: &'static str| text.split('(').next().unwrap_or_default();
        let mut lines: Vec<Line> = all.map(|text| Line { name: name(text), text, schema: OnceLock::new() }).collect();
        lines.sort_by_key(|line| line.name);
        lines
    });
    let line = lines.get(lines.binary_search_by_key(&name, |line| line.name).ok()?)?;
    once(&line.schema, || Schema::parse(line.text).ok().map(Arc::new)).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_schema() {
        let line = "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], str padding=\"same\", \
                    float eps=1e-05, *, bool[3] mask=[True, False, True]) -> (Tensor out, Tensor[])\taten::conv2d.out\tcore,view\taten::twin";
        let schema = Schema::parse(line).unwrap();
        assert_eq!(schema.name, "aten::conv2d");
        assert_eq!(schema.params.len(), 7);
        assert_eq!(schema.params[2].kind, Kind::Optional(Box::new(Kind::Tensor)));
        assert_eq!(schema.params[2].default, Some(Default::None));
        assert_eq!(schema.params[3].kind, Kind::List(Box::new(Kind::Int), Some(2)));
        assert_eq!(schema.params[3].default, Some(Default::Ints(vec![1, 1])));
        assert_eq!(schema.params[4].default, Some(Default::Str("same".into())));
        assert_eq!(schema.params[5].default, Some(Default::Float(1e-5)));
        assert_eq!(schema.params[6].default, Some(Default::Bools(vec![true, false, true])));
        assert_eq!(schema.returns, [Kind::Tensor, Kind::List(Box::new(Kind::Tensor), None)]);
        assert_eq!(schema.out_variant.as_deref(), Some("aten::conv2d.out"));
        assert!(schema.flags.core && schema.flags.view && !schema.flags.in_place);
        assert_eq!(schema.twin.as_deref(), Some("aten::twin"));
    }

    #[test]
    fn reads_alias_annotations() {
        let schema =
            Schema::parse("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)").unwrap();
        assert!(schema.params[0].writes && schema.params[0].aliased);
        assert!(!schema.params[1].writes && !schema.params[1].aliased);
        assert_eq!(schema.base_name(), "aten::add_");
        let schema =
            Schema::parse("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, SymInt dim=0) -> Tensor(a)[]")
                .unwrap();
        assert!(schema.params[0].aliased && !schema.params[0].writes);
        assert_eq!(schema.returns, [Kind::List(Box::new(Kind::Tensor), None)]);
    }

    #[test]
    fn malformed_schemas_are_errors() {
        for text in ["", "aten::x", "aten::x(Tensor", "aten::x(Tensor self)", "aten::x(Tensor self=?) -> Tensor"] {
            assert!(Schema::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_every_line_is_found() {
        let schemas = Schemas::new();
        let mut previous = String::new();
        for schema in Schemas::table() {
            let schema = schema.unwrap();
            assert!(previous < schema.name, "{previous} is before {}", schema.name);
            assert_eq!(schemas.get(&schema.name).as_deref(), Some(&schema));
            previous.clone_from(&schema.name);
        }
        assert!(schemas.get("aten::no_such_operator").is_none());
        assert!(schemas.get("aten::add.Tensor").is_some());
    }
}
