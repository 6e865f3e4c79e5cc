//! Definitions of operators: inference of their result types, and lowering to simpler operators.
//!
//! An operator family a file. A [`Definition`] says how to infer and, for operators that kernels do not have, how to
//! lower: in terms of operators that are closer to the kernels' set, which may themselves be lowered again. The
//! functional operators of `rushlight_kernels` are where lowering ends.

mod activation;
mod assertion;
mod attention;
mod binary;
mod builder;
mod by_lowering;
mod comparison;
mod complex;
mod compose;
mod conversion;
mod convolution;
mod counting;
mod creation;
mod decompositions;
mod define;
mod distance;
mod dynamic_rows;
mod einsum;
mod experts;
mod fft;
mod gradient;
mod indexing;
mod inference;
mod int4_rows;
mod joins;
mod llama;
mod loss;
mod margin_loss;
mod matmul;
mod norm;
mod normalisation;
mod number;
mod operands;
mod padding;
mod pointwise;
mod polynomials;
mod pooling;
mod promotion;
mod quantile;
mod quantized;
mod random;
mod recurrent;
mod reduction;
mod resizing;
mod sampling;
mod scan;
mod scattering;
mod series;
mod slices;
mod slopes;
mod solvers;
mod sorting;
mod special;
mod spectrum;
mod torchao;
mod unary;
mod views;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::Error;
use crate::once::once;
use crate::{Expr, Graph, MAX_NODES, Type};

pub use builder::{Builder, bind};
pub(crate) use by_lowering::{by_lowering, result};
pub(crate) use compose::{Lowered, compute_dtype, done, forward, identity, known_number};
pub use define::{Definition, Infer, Lower, MAX_RANK};
pub(crate) use define::{composite, kernel};
pub use experts::MAX_EXPERTS;
pub use llama::{CacheUpdate, update_caches, written_caches};
pub use number::number_bytes;
pub use operands::Operands;
pub use operands::wrap_dim;
pub use promotion::{broadcast, promote};
pub use slices::from_start;
pub use views::permutation;

const FAMILIES: &[&[Definition]] = &[
    activation::OPS,
    assertion::OPS,
    attention::OPS,
    binary::OPS,
    comparison::OPS,
    complex::OPS,
    conversion::OPS,
    convolution::OPS,
    counting::OPS,
    creation::OPS,
    decompositions::OPS,
    distance::OPS,
    dynamic_rows::OPS,
    einsum::OPS,
    experts::OPS,
    fft::OPS,
    gradient::OPS,
    indexing::OPS,
    int4_rows::OPS,
    joins::OPS,
    llama::OPS,
    loss::OPS,
    margin_loss::OPS,
    matmul::OPS,
    norm::OPS,
    normalisation::OPS,
    padding::OPS,
    pointwise::OPS,
    polynomials::OPS,
    pooling::OPS,
    quantile::OPS,
    quantized::OPS,
    random::OPS,
    recurrent::OPS,
    reduction::OPS,
    resizing::OPS,
    sampling::OPS,
    scan::OPS,
    scattering::OPS,
    series::OPS,
    slices::OPS,
    slopes::OPS,
    solvers::OPS,
    sorting::OPS,
    special::OPS,
    spectrum::OPS,
    torchao::OPS,
    unary::OPS,
    views::OPS,
];

/// The definition of an operator.
pub fn definition(name: &str) -> Option<&'static Definition> {
    static TABLE: OnceLock<HashMap<&str, &Definition>> = OnceLock::new();
    let build =
        || FAMILIES.iter().flat_map(|family| family.iter()).map(|definition| (definition.name, definition)).collect();
    once(&TABLE, build).get(name).copied()
}

/// All definitions.
pub fn definitions() -> impl Iterator<Item = &'static Definition> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The types of a call's results.
pub fn infer(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let name = &operands.schema.name;
    let definition = definition(name)
        .ok_or_else(|| Error::unsupported(format!("the compiler does not know what `{name}` gives")))?;
    let types = (definition.infer)(operands, graph)?;
    types.iter().try_for_each(|ty| check_size(ty, name))?;
    Ok(types)
}

/// Refuses a result whose rank or size expressions are larger than any model needs.
fn check_size(ty: &Type, name: &str) -> Result<(), Error> {
    let shape = match ty {
        Type::Tensor(tensor) => tensor.shape.as_slice(),
        Type::Int(expr) => std::slice::from_ref(expr),
        _ => return Ok(()),
    };
    if shape.len() > MAX_RANK {
        return Err(Error::unsupported(format!("`{name}` gives a tensor of too many dimensions"))
            .expected(format!("at most {MAX_RANK}"))
            .got(shape.len().to_string()));
    }
    if let Some(nodes) = shape.iter().map(Expr::nodes).find(|nodes| *nodes > MAX_NODES) {
        return Err(Error::unsupported(format!("`{name}` gives a size that is too long an expression"))
            .expected(format!("at most {MAX_NODES} terms and factors"))
            .got(nodes.to_string())
            .help("export the model with fewer dynamic dimensions"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schemas;

    #[test]
    fn every_definition_has_a_schema_and_stands_once() {
        let schemas = Schemas::new();
        let mut seen = std::collections::HashSet::new();
        for definition in definitions() {
            assert!(schemas.get(definition.name).is_some(), "{} has no schema", definition.name);
            assert!(seen.insert(definition.name), "{} stands twice", definition.name);
        }
    }
}
