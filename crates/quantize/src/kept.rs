//! Patterns of the modules that stay in floats, checked against the modules of a model.

use std::collections::BTreeSet;

use rushlight_compiler::pattern::{is_within, near};
use rushlight_compiler::quantization::{Layer, Recurrent};
use rushlight_graph::Model;
use rushlight_graph::{Error, ErrorKind};

/// The modules of a model, as a front end imported it.
pub(super) fn modules(model: &Model) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for graph in model.methods.values() {
        for (_, node) in graph.nodes.iter() {
            let origin = &graph.origins[node.origin];
            modules.insert(if origin.module.is_empty() { origin.node.clone() } else { origin.module.clone() });
        }
    }
    modules
}

/// Checks that each pattern of modules to keep in floats matches one of these. Returns a warning for each that only matches modules
/// without layers, which the model has by now.
///
/// # Errors
/// `Output` for a pattern that no name fits, with the names that are nearest to it.
pub(super) fn check(
    modules: &BTreeSet<String>,
    model: &Model,
    recurrent: &Recurrent,
    patterns: &[String],
) -> Result<Vec<String>, Error> {
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let layers = model.methods.iter().flat_map(|(method, graph)| {
        Layer::all(model, method, graph, recurrent)
            .into_iter()
            .chain(Layer::embeddings(model, graph))
            .map(|layer| layer.name)
    });
    let layers: BTreeSet<String> = layers.collect();
    let mut warnings = Vec::new();
    for pattern in patterns {
        if layers.iter().any(|name| is_within(pattern, name)) {
            continue;
        }
        if modules.iter().any(|name| is_within(pattern, name)) {
            warnings.push(format!(
                "`{pattern}` is to be kept, and names no convolution, linear layer or embedding: it stays as it is anyway"
            ));
            continue;
        }
        let names = near(pattern, layers.iter().chain(modules).map(String::as_str));
        let error = Error::new(ErrorKind::Output, format!("no module is called `{pattern}`, which is to be kept"));
        return Err(error
            .expected(if names.is_empty() {
                "the name of a module".to_owned()
            } else {
                format!("a name such as {}", names.join(", "))
            })
            .got(format!("`{pattern}`"))
            .help("names are paths of modules, as `named_modules()` has them; `*` stands for any text"));
    }
    Ok(warnings)
}
