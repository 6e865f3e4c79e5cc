//! Schemas as lines of the table.

use std::fmt::{Display, Formatter, Result};

use crate::schema::{Default, Flags};
use crate::{Kind, Param, Schema};

/// Writes a schema so that [`Schema::parse`] reads it back.
pub(super) struct Line<'s>(pub &'s Schema);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Schema { name, params, returns, out_variant, twin, flags } = self.0;
        write!(f, "{name}(")?;
        for (index, param) in params.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            write_param(param, f)?;
        }
        f.write_str(") -> (")?;
        for (index, result) in returns.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            write_kind(result, "", f)?;
        }
        f.write_str(")")?;
        let Flags { core, view, in_place, composite, random } = *flags;
        let names =
            [(core, "core"), (view, "view"), (in_place, "inplace"), (composite, "composite"), (random, "random")];
        let names: Vec<&str> = names.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
        let flags = if names.is_empty() { "-".to_owned() } else { names.join(",") };
        write!(f, "\t{}\t{flags}\t{}", out_variant.as_deref().unwrap_or("-"), twin.as_deref().unwrap_or("-"))
    }
}

fn write_param(param: &Param, f: &mut Formatter<'_>) -> Result {
    let Param { name, kind, default, writes, aliased } = param;
    let alias = match (writes, aliased) {
        (true, _) => "(a!)",
        (false, true) => "(a)",
        (false, false) => "",
    };
    write_kind(kind, alias, f)?;
    write!(f, " {name}")?;
    match default {
        None => Ok(()),
        Some(Default::None) => f.write_str("=None"),
        Some(Default::Bool(value)) => f.write_str(if *value { "=True" } else { "=False" }),
        Some(Default::Int(value)) => write!(f, "={value}"),
        Some(Default::Float(value)) => write!(f, "={value:?}"),
        Some(Default::Str(text)) => write!(f, "=\"{text}\""),
        Some(Default::Contiguous) => f.write_str("=contiguous_format"),
        Some(Default::Ints(items)) => write!(f, "={items:?}"),
        Some(Default::Bools(items)) => {
            let items: Vec<&str> = items.iter().map(|item| if *item { "True" } else { "False" }).collect();
            write!(f, "=[{}]", items.join(", "))
        }
    }
}

fn write_kind(kind: &Kind, alias: &str, f: &mut Formatter<'_>) -> Result {
    let name = match kind {
        Kind::Tensor => "Tensor",
        Kind::Int => "int",
        Kind::Float => "float",
        Kind::Bool => "bool",
        Kind::Str => "str",
        Kind::Scalar => "Scalar",
        Kind::DType => "ScalarType",
        Kind::Layout => "Layout",
        Kind::Device => "Device",
        Kind::MemoryFormat => "MemoryFormat",
        Kind::Generator => "Generator",
        Kind::Other(name) => name,
        Kind::Optional(inner) => {
            write_kind(inner, alias, f)?;
            return f.write_str("?");
        }
        Kind::List(inner, length) => {
            write_kind(inner, alias, f)?;
            return match length {
                Some(length) => write!(f, "[{length}]"),
                None => f.write_str("[]"),
            };
        }
    };
    write!(f, "{name}{alias}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schemas;

    #[test]
    fn every_schema_reads_back() {
        for schema in Schemas::table() {
            let schema = schema.unwrap();
            let line = Line(&schema).to_string();
            assert_eq!(Schema::parse(&line).unwrap(), schema, "{line}");
        }
    }
}
