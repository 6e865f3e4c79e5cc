//! Inference of operators without a rule of their own: their lowering is inferred.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use rushlight_format::ScalarType;

use crate::Error;
use crate::once::once;
use crate::{Arena, Builder, Expr, Graph, Origin, Schemas, TensorType, Type, ValueId};

use super::{Operands, definition};

/// The types of an operator with one result, a tensor.
pub(crate) fn result(dtype: ScalarType, shape: Vec<Expr>) -> Vec<Type> {
    vec![Type::Tensor(TensorType::new(dtype, shape))]
}

/// Infers the types of a composite operator from its lowering, in a graph of its own, which is thrown
/// away. For rare operators, whose rule would only repeat their lowering; it must not look at constants.
pub(crate) fn by_lowering(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    static SCHEMAS: OnceLock<Arc<Schemas>> = OnceLock::new();
    let name = &operands.schema.name;
    let unknown = || Error::unsupported(format!("the compiler does not know what `{name}` gives"));
    let lower = definition(name).and_then(|definition| definition.lower).ok_or_else(unknown)?;
    let mut scratch = Graph::new();
    scratch.symbols = graph.symbols.clone();
    let mut inputs: HashMap<ValueId, ValueId> = HashMap::new();
    let mut args = operands.args.to_vec();
    for arg in &mut args {
        arg.map_values(&mut |value| {
            *inputs.entry(value).or_insert_with(|| scratch.input("x", graph.ty(value).clone()))
        });
    }
    let (block, origin) = (scratch.body, scratch.origins.push(Origin::default()));
    let mut constants = Arena::new();
    let schemas = once(&SCHEMAS, Arc::default);
    let mut builder = Builder::new(&mut scratch, &mut constants, schemas, block, origin);
    let results = lower(&mut builder, &Operands::new(operands.schema, &args))?.ok_or_else(unknown)?;
    Ok(results.into_iter().map(|value| scratch.ty(value).clone()).collect())
}
