//! From the operators that programs call to their functional forms.

use std::collections::HashMap;
use std::sync::OnceLock;

use rushlight_graph::once;
use rushlight_graph::{Kind, Schema, Schemas};

/// The functional operator whose results an out variant writes.
pub(super) fn functional_form(out_variant: &str) -> Option<&'static str> {
    static TABLE: OnceLock<HashMap<String, String>> = OnceLock::new();
    let table = once(&TABLE, || {
        let mut table: HashMap<String, String> = HashMap::new();
        for schema in Schemas::table().flatten() {
            // An in-place operator may name the same out variant as its functional twin.
            if let (Some(out), false) = (&schema.out_variant, schema.flags.in_place) {
                table.entry(out.clone()).or_insert_with(|| schema.name.clone());
            }
        }
        table
    });
    table.get(out_variant).map(String::as_str)
}

/// Positions of the parameters that hold the results.
pub(super) fn written_params(schema: &Schema) -> Vec<usize> {
    let is_tensor = |kind: &Kind| match kind {
        Kind::Tensor => true,
        Kind::List(item, _) => **item == Kind::Tensor,
        _ => false,
    };
    let params = schema.params.iter().enumerate();
    params.filter(|(_, param)| param.writes && is_tensor(&param.kind)).map(|(index, _)| index).collect()
}

/// Name of an out variant without its suffix.
pub(super) fn opaque_name(full: &str) -> String {
    match full.split_once('.') {
        Some((base, "out" | "default" | "")) => base.to_owned(),
        Some((base, overload)) => match overload.strip_suffix("_out") {
            Some(rest) => format!("{base}.{rest}"),
            None => full.to_owned(),
        },
        None => full.to_owned(),
    }
}
