//! Calls of delegates that become the operators in their payload.

use std::sync::Arc;

use rushlight_format::ScalarType;
use rushlight_format::pte::{ShapeDynamism, TensorModel, ValueModel};
use rustc_hash::FxHashSet;

use crate::front::payload::{Axes, Importer, NamedData, Site};
use rushlight_graph::operators::aten;
use rushlight_graph::ops::{self, Operands};
use rushlight_graph::{Arg, Bytes, Constant, Delegate, Error, Op, Origin, Schema, TensorType, ValueId, bind};

use super::method::Method;
use super::sources::static_type;

impl Method<'_, '_> {
    /// Replaces the call of a delegate by the nodes of its payload. `given` are the arguments that it reads, `outs` those
    /// that it writes.
    ///
    /// # Errors
    /// The error of the translation. No node is added then, and the call can stay.
    pub(super) fn inline(
        &mut self,
        importer: Importer,
        delegate: &Delegate,
        args: &[u32],
        given: &[Arg],
        outs: &[u32],
    ) -> Result<(), Error> {
        let (before, origin) = (self.graph.blocks[self.block].nodes.len(), self.origin);
        let results = self.translated(importer, delegate, args, given, outs);
        self.origin = origin;
        match results {
            Ok(results) => results.into_iter().try_for_each(|(out, result)| match result {
                Arg::Value(value) => {
                    self.write(out, value);
                    Ok(())
                }
                number => self.set_number(out, number),
            }),
            Err(error) => {
                self.graph.blocks[self.block].nodes.truncate(before);
                Err(error)
            }
        }
    }

    /// The tensors and integers that the payload writes, with their values.
    fn translated(
        &mut self,
        importer: Importer,
        delegate: &Delegate,
        args: &[u32],
        given: &[Arg],
        outs: &[u32],
    ) -> Result<Vec<(u32, Arg)>, Error> {
        let mut inputs = given.to_vec();
        if importer.axes == Axes::Memory {
            for (arg, input) in args.iter().zip(&mut inputs) {
                let Some(value) = input.as_value() else { continue };
                let order: Vec<i64> = self.tensor_model(*arg)?.dim_order.iter().map(|dim| i64::from(*dim)).collect();
                *input = self.ordered(value, &order)?.into();
            }
        }
        let declared = |out: &u32| match self.plan.values.get(*out as usize) {
            Some(ValueModel::Int(_)) => Ok(None),
            _ => self.tensor_model(*out).map(Some),
        };
        let outputs = outs.iter().map(declared).collect::<Result<_, _>>()?;
        let around = self.graph.origins.get(self.origin).cloned().unwrap_or_default();
        let mut site = Inlining { method: self, inputs, outputs, around };
        let written = (importer.inline)(&mut site, delegate)?;
        let planned: FxHashSet<u32> = outs.iter().copied().collect();
        let mut results = Vec::with_capacity(written.len());
        for (position, result) in written {
            let out = args.get(position as usize).filter(|arg| planned.contains(arg));
            let out = *out.ok_or_else(|| Error::invalid(format!("the delegate writes its argument {position}")))?;
            let is_number = matches!(self.plan.values.get(out as usize), Some(ValueModel::Int(_)));
            let result = match result {
                Arg::Value(value) if !is_number => self.as_planned(value, out, importer)?.into(),
                Arg::Int(_) if is_number => result,
                _ => {
                    return Err(Error::invalid(format!("the delegate writes another kind to its argument {position}")));
                }
            };
            results.push((out, result));
        }
        let written: FxHashSet<u32> = results.iter().map(|(out, _)| *out).collect();
        match outs.iter().find(|out| !written.contains(out)) {
            None => Ok(results),
            Some(out) => Err(Error::invalid(format!("the delegate does not write value {out}"))),
        }
    }

    /// A result of the payload, with the type that the program declares for it.
    fn as_planned(&mut self, value: ValueId, out: u32, importer: Importer) -> Result<ValueId, Error> {
        let tensor = self.tensor_model(out)?;
        let mut value = self.cast_if_other(value, tensor.scalar_type)?;
        let ty = self.graph.tensor(value)?;
        // A payload has one dimension where the program has none.
        if tensor.sizes.is_empty() && ty.numel().is(1) {
            value = Method::one(self, aten::VIEW_COPY, vec![value.into(), Arg::List(Vec::new())])?;
        } else if importer.axes == Axes::Memory && ty.rank() == tensor.dim_order.len() {
            value = self.ordered(value, &inverse(&tensor.dim_order))?;
        }
        let (shape, planned) = (self.graph.tensor(value)?.shape.clone(), static_type(tensor).shape);
        let is_static = tensor.shape_dynamism == ShapeDynamism::Static;
        let fits = |(a, b): (&rushlight_graph::Expr, &rushlight_graph::Expr)| {
            a.as_int().zip(b.as_int()).is_none_or(|(a, b)| if is_static { a == b } else { a <= b })
        };
        if shape.len() != planned.len() || !shape.iter().zip(&planned).all(fits) {
            return Err(Error::invalid("the delegate gives a result of another size than the program plans")
                .expected(format!("{:?}", tensor.sizes))
                .got(format!("{shape:?}")));
        }
        if is_static {
            self.equal_shapes(importer.backend, &shape, &planned)?;
        }
        Ok(value)
    }

    fn cast_if_other(&mut self, value: ValueId, dtype: ScalarType) -> Result<ValueId, Error> {
        if self.graph.tensor(value)?.dtype == dtype { Ok(value) } else { self.cast(value, dtype) }
    }

    /// A tensor with its dimensions in another order.
    fn ordered(&mut self, value: ValueId, order: &[i64]) -> Result<ValueId, Error> {
        if order.is_sorted() {
            return Ok(value);
        }
        Method::one(self, aten::PERMUTE_COPY, vec![value.into(), Arg::from(order)])
    }
}

/// Returns the permutation that takes dimensions from a dim order to the order of the program.
fn inverse(dim_order: &[u8]) -> Vec<i64> {
    let mut inverse = vec![0; dim_order.len()];
    for (at, dim) in dim_order.iter().enumerate() {
        if let Some(slot) = inverse.get_mut(usize::from(*dim)) {
            *slot = at as i64;
        }
    }
    inverse
}

/// The place of a call whose payload is translated.
struct Inlining<'i, 'a, 'f> {
    method: &'i mut Method<'a, 'f>,
    inputs: Vec<Arg>,
    outputs: Vec<Option<&'a TensorModel>>,
    /// The origin of the call.
    around: Origin,
}

impl NamedData for Inlining<'_, '_, '_> {
    fn named(&self, key: &str) -> Option<Bytes> {
        let data = self.method.sources.named(key)?;
        self.method.sources.inlined.borrow_mut().insert(key.to_owned());
        Some(data)
    }
}

impl Site for Inlining<'_, '_, '_> {
    fn inputs(&self) -> &[Arg] {
        &self.inputs
    }

    fn outputs(&self) -> &[Option<&TensorModel>] {
        &self.outputs
    }

    fn begin(&mut self, node: &str) {
        let node = format!("{}, {node}", self.around.node);
        self.method.origin = self.method.graph.origins.push(Origin { node, ..self.around.clone() });
    }

    fn tensor(&self, value: ValueId) -> Result<&TensorType, Error> {
        self.method.graph.tensor(value)
    }

    fn schema(&self, name: &str) -> Result<Arc<Schema>, Error> {
        self.method.model.schemas.expect(name)
    }

    fn constant(&mut self, constant: Constant) -> ValueId {
        let id = self.method.model.constants.push(constant);
        self.method.graph.constant(id, &self.method.model.constants)
    }

    fn call(&mut self, name: &str, args: Vec<Arg>, named: &[(&str, Arg)]) -> Result<Vec<ValueId>, Error> {
        self.method.spend(1)?;
        let schema = self.method.model.schemas.expect(name)?;
        let mut args = bind(&schema, args, named)?;
        self.method.unify_sizes(&schema, &args)?;
        self.method.refresh(&mut args);
        let types = ops::infer(&Operands::new(&schema, &args), &self.method.graph)?;
        Ok(self.method.push_results(Op::Call(schema), args, types))
    }
}
