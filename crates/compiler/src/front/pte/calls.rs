//! Calls of operators and delegates.

use std::sync::Arc;

use rushlight_format::ScalarType;
use rushlight_format::pte::{ShapeDynamism, ValueModel};

use rushlight_graph::Error;
use rushlight_graph::operators::{aten, executorch_prim};
use rushlight_graph::ops::{self, Operands};
use rushlight_graph::{Arg, Builder, Expr, Kind, Layout, MemoryFormat, Model, Op, Schema, TensorType, Type};

use super::accesses::{is_prim, split_opaque};
use super::method::Method;
use super::scope::Place;
use super::sources::static_type;
use super::twins::{functional_form, opaque_name, written_params};

impl Method<'_, '_> {
    /// A call of a runtime operator.
    pub(super) fn call(&mut self, name: &str, args: &[u32]) -> Result<(), Error> {
        match name {
            executorch_prim::ET_VIEW_DEFAULT => self.view(args),
            executorch_prim::ET_COPY_INDEX_TENSOR => Err(Error::unsupported("a row of a stack outside of a loop")),
            _ if is_prim(name) => self.prim(name, args),
            _ => match self.model.schemas.get(name) {
                Some(schema) => self.call_known(&schema, args),
                None => self.opaque(name, args),
            },
        }
    }

    /// A call of an operator that writes its results to some of its arguments.
    fn call_known(&mut self, written: &Schema, args: &[u32]) -> Result<(), Error> {
        let name = &written.name;
        if args.len() < written.params.len() {
            return Err(Error::invalid(format!("`{name}` has too few arguments"))
                .expected(written.params.len())
                .got(args.len()));
        }
        if !ops::written_caches(written).is_empty() {
            return self.update_caches(written, args);
        }
        let functional = if written.flags.in_place { written.twin.as_deref() } else { functional_form(name) };
        let functional = functional.ok_or_else(|| Error::unsupported(format!("`{name}` has no functional form")))?;
        let schema = self.model.schemas.expect(functional)?;
        let mut outs = Vec::new();
        for index in written_params(written) {
            let arg = args.get(index).copied().unwrap_or_default();
            match self.plan.values.get(arg as usize) {
                Some(ValueModel::TensorList(items)) => outs.extend(items),
                _ => outs.push(arg),
            }
        }
        let dtype = outs.first().map(|out| self.tensor_model(*out)).transpose()?.map(|tensor| tensor.scalar_type);
        let mut bound = Vec::with_capacity(schema.params.len());
        for param in &schema.params {
            let given = written.position(&param.name).and_then(|at| args.get(at));
            bound.push(match (given, &param.kind) {
                (Some(given), kind) => self.argument(kind, *given)?,
                // The dtype is the output's.
                (None, Kind::DType) => dtype.map_or(Arg::None, Arg::DType),
                (None, Kind::Optional(inner)) if **inner == Kind::DType => dtype.map_or(Arg::None, Arg::DType),
                (None, Kind::Bool) => Arg::Bool(false),
                (None, Kind::Optional(_)) => Arg::None,
                _ => return Err(Error::unsupported(format!("`{name}` does not say what `{}` is", param.name))),
            });
        }
        // Tensors in graphs are contiguous; another order of dimensions concerns memory only.
        for (param, arg) in schema.params.iter().zip(&mut bound) {
            if param.name == "dim_order" || matches!(arg, Arg::MemoryFormat(_)) {
                *arg = Arg::None;
            }
        }
        self.results_of(schema, bound, &outs)
    }

    /// A call of an operator that writes to caches among its arguments.
    fn update_caches(&mut self, written: &Schema, args: &[u32]) -> Result<(), Error> {
        let Some((out, params)) = written.params.split_last() else { return Ok(()) };
        let mut bound = Vec::with_capacity(written.params.len());
        for (param, arg) in params.iter().zip(args) {
            bound.push(self.argument(&param.kind, *arg)?);
        }
        let Model { constants, schemas, .. } = &mut *self.model;
        let mut builder = Builder::new(&mut self.graph, constants, schemas, self.block, self.origin);
        let Some(update) = ops::update_caches(&mut builder, &Operands::new(written, &bound))? else { return Ok(()) };
        for (index, content) in update.caches {
            let cache = args.get(index).copied().unwrap_or_default();
            if self.place(cache)?.is_none() {
                return Err(Error::invalid(format!("`{}` writes to a constant", written.name)));
            }
            self.write(cache, content);
        }
        if let (Some(result), Some(arg)) = (update.result, written.position(&out.name).and_then(|at| args.get(at))) {
            self.write(*arg, result);
        }
        Ok(())
    }

    /// Adds the call, and stores its results.
    fn results_of(&mut self, schema: Arc<Schema>, mut args: Vec<Arg>, outs: &[u32]) -> Result<(), Error> {
        self.unify_sizes(&schema, &args)?;
        self.refresh(&mut args);
        let inferred = ops::infer(&Operands::new(&schema, &args), &self.graph);
        let planned = outs.iter().map(|out| self.tensor_model(*out)).collect::<Result<Vec<_>, _>>()?;
        let types = match inferred {
            Ok(types) if types.len() == planned.len() => types,
            Ok(types) => {
                return Err(Error::invalid(format!("`{}` is given memory for other results", schema.name))
                    .expected(types.len())
                    .got(planned.len()));
            }
            // The program says it, as far as it depends on data.
            Err(_) => {
                let rank = self.rank_of_first(&args);
                planned.iter().map(|tensor| Type::Tensor(self.planned_type(&schema.name, tensor, rank))).collect()
            }
        };
        for (ty, tensor) in types.iter().zip(&planned) {
            let Type::Tensor(ty) = ty else { continue };
            if tensor.shape_dynamism == ShapeDynamism::Static {
                self.equal_shapes(&schema.name, &ty.shape, &static_type(tensor).shape)?;
            } else if ty.rank() != tensor.sizes.len() {
                return Err(disagrees(&schema.name, ty.rank(), tensor.sizes.len(), "dimensions"));
            }
        }
        let mut types = types;
        narrow(&schema, &args, &mut types);
        for ty in &mut types {
            self.resolve_type(ty);
        }
        self.refresh(&mut args);
        let values = self.push_results(Op::Call(schema), args, types);
        for ((value, out), tensor) in values.into_iter().zip(outs).zip(planned) {
            // Sizes that were found equal to the planned ones have replaced their symbols.
            let dtype = self.graph.tensor(value)?.dtype;
            let value = if dtype == tensor.scalar_type { value } else { self.cast(value, tensor.scalar_type)? };
            self.write(*out, value);
        }
        Ok(())
    }

    fn rank_of_first(&self, args: &[Arg]) -> Option<usize> {
        let value = args.first()?.as_value()?;
        Some(self.graph.tensor(value).ok()?.rank())
    }

    /// The type of a result that depends on data.
    fn planned_type(
        &mut self,
        name: &str,
        tensor: &rushlight_format::pte::TensorModel,
        rank: Option<usize>,
    ) -> TensorType {
        let mut ty = self.tensor_type(tensor, "u");
        // `nonzero` gives `[count, rank]`.
        if let (aten::NONZERO, [_, columns], Some(rank)) = (name, ty.shape.as_mut_slice(), rank) {
            *columns = Expr::Int(rank as i64);
        }
        ty
    }

    /// Unifies sizes that an operator requires to be equal: one that is a symbol becomes the other.
    pub(super) fn unify_sizes(&mut self, schema: &Schema, args: &[Arg]) -> Result<(), Error> {
        let shape = |method: &Self, index: usize| -> Vec<Expr> {
            let value = args.get(index).and_then(Arg::as_value);
            value.and_then(|value| method.graph.tensor(value).ok()).map_or_else(Vec::new, |ty| ty.shape.clone())
        };
        let from_end =
            |shape: &[Expr], back: usize| shape.len().checked_sub(back).and_then(|at| shape.get(at).cloned());
        let mut pairs: Vec<(Option<Expr>, Option<Expr>)> = Vec::new();
        match schema.base_name() {
            aten::MM | aten::BMM => {
                let (a, b) = (shape(self, 0), shape(self, 1));
                pairs.push((from_end(&a, 1), from_end(&b, 2)));
                if schema.base_name() == aten::BMM {
                    pairs.push((a.first().cloned(), b.first().cloned()));
                }
            }
            aten::ADDMM => pairs.push((from_end(&shape(self, 1), 1), from_end(&shape(self, 2), 2))),
            aten::LINEAR => pairs.push((from_end(&shape(self, 0), 1), from_end(&shape(self, 1), 1))),
            aten::NATIVE_LAYER_NORM | aten::LAYER_NORM => {
                if let (Some(Arg::List(sizes)), shape) = (args.get(1), shape(self, 0)) {
                    for (back, size) in sizes.iter().rev().enumerate() {
                        let size = if let Arg::Int(size) = size { Some(size.clone()) } else { None };
                        pairs.push((from_end(&shape, back + 1), size));
                    }
                }
            }
            aten::CONVOLUTION => {
                let (input, weight) = (shape(self, 0), shape(self, 1));
                let is_transposed = args.get(6) == Some(&Arg::Bool(true));
                let groups = if let Some(Arg::Int(groups)) = args.get(8) { groups.clone() } else { Expr::Int(1) };
                let channels =
                    if is_transposed { weight.first().cloned() } else { weight.get(1).map(|size| size.mul(groups)) };
                pairs.push((input.get(1).cloned(), channels));
            }
            aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING => {
                pairs.push((shape(self, 0).get(1).cloned(), shape(self, 3).first().cloned()));
            }
            aten::CAT => {
                let Some(Arg::List(items)) = args.first() else { return Ok(()) };
                let shapes: Vec<Vec<Expr>> = items
                    .iter()
                    .filter_map(|item| Some(self.graph.tensor(item.as_value()?).ok()?.shape.clone()))
                    .filter(|shape| !(shape.len() == 1 && shape.first().is_some_and(|size| size.is(0))))
                    .collect();
                let Some(Arg::Int(Expr::Int(dim))) = args.get(1) else { return Ok(()) };
                if let Some((first, rest)) = shapes.split_first() {
                    let dim = if *dim < 0 { *dim + first.len() as i64 } else { *dim };
                    for shape in rest {
                        let others = first.iter().zip(shape).enumerate().filter(|(at, _)| *at as i64 != dim);
                        for (_, (a, b)) in others {
                            pairs.push((Some(a.clone()), Some(b.clone())));
                        }
                    }
                }
            }
            _ => {}
        }
        for pair in pairs {
            if let (Some(a), Some(b)) = pair {
                self.equal(&a, &b)?;
            }
        }
        Ok(())
    }

    /// Substitutes resolved symbols in arguments that are not in the graph yet.
    pub(super) fn refresh(&self, args: &mut [Arg]) {
        for arg in args {
            self.resolve(arg);
        }
    }

    pub(super) fn equal_shapes(&mut self, name: &str, inferred: &[Expr], planned: &[Expr]) -> Result<(), Error> {
        if inferred.len() != planned.len() {
            return Err(disagrees(name, inferred.len(), planned.len(), "dimensions"));
        }
        for (inferred, planned) in inferred.iter().zip(planned) {
            match (inferred.as_int(), planned.as_int()) {
                (Some(a), Some(b)) if a != b => return Err(disagrees(name, a, b, "elements")),
                _ => self.equal(inferred, planned)?,
            }
        }
        Ok(())
    }

    /// A tensor with its elements in the memory of another.
    fn view(&mut self, args: &[u32]) -> Result<(), Error> {
        let [of, sizes, view, ..] = args else { return Err(Error::invalid("a view without arguments")) };
        let base = self.read(*of)?;
        let size = self.argument(&Kind::List(Box::new(Kind::Int), None), *sizes)?;
        let value = self.one(aten::VIEW_COPY, vec![base.into(), size])?;
        let tensor = self.tensor_model(*view)?;
        if self.graph.tensor(value)?.dtype != tensor.scalar_type {
            return Err(Error::unsupported("a view in another dtype"));
        }
        match self.place(*of)? {
            Some(place) => {
                self.scope.handles.insert(*view, place);
                if let Some(content) = self.scope.get(place) {
                    self.scope.views.insert((content.value, *view), value);
                }
            }
            None => {
                self.scope.handles.insert(*view, Place::Own(*view));
                self.write(*view, value);
            }
        }
        Ok(())
    }

    /// A call of an operator that no table knows.
    fn opaque(&mut self, name: &str, args: &[u32]) -> Result<(), Error> {
        let (given, outs) = split_opaque(self.plan, args);
        if outs.is_empty() {
            return Err(Error::unsupported(format!("operator `{name}` is not known, and its results cannot be told")));
        }
        let mut params = Vec::with_capacity(given.len());
        let mut bound = Vec::with_capacity(given.len());
        for (index, arg) in given.iter().enumerate() {
            let kind = match self.plan.values.get(*arg as usize) {
                Some(ValueModel::Tensor(_)) => Kind::Tensor,
                Some(ValueModel::Int(_)) => Kind::Int,
                Some(ValueModel::Bool(_)) => Kind::Bool,
                Some(ValueModel::Double(_)) => Kind::Float,
                Some(ValueModel::String(_)) => Kind::Str,
                Some(ValueModel::IntList(_)) => Kind::List(Box::new(Kind::Int), None),
                Some(ValueModel::DoubleList(_)) => Kind::List(Box::new(Kind::Float), None),
                Some(ValueModel::BoolList(_)) => Kind::List(Box::new(Kind::Bool), None),
                Some(ValueModel::TensorList(_)) => Kind::List(Box::new(Kind::Tensor), None),
                Some(ValueModel::OptionalTensorList(_)) => {
                    Kind::List(Box::new(Kind::Optional(Box::new(Kind::Tensor))), None)
                }
                Some(ValueModel::None) | None => Kind::Optional(Box::new(Kind::Tensor)),
            };
            bound.push(self.argument(&kind, *arg)?);
            params.push((format!("arg{index}"), kind));
        }
        let schema = Schema::opaque(&opaque_name(name), params, vec![Kind::Tensor; outs.len()]);
        let schema = Schema { out_variant: Some(name.to_owned()), ..schema };
        self.store_planned(Op::Call(Arc::new(schema)), bound, outs)
    }

    /// A call of a delegate.
    pub(super) fn delegate(&mut self, index: u32, args: &[u32], at: usize) -> Result<(), Error> {
        let outs = self.accesses.get(at).map(|access| access.writes.clone()).unwrap_or_default();
        let given = args.get(..args.len().saturating_sub(outs.len())).unwrap_or_default();
        let mut bound = Vec::with_capacity(given.len());
        for arg in given {
            let is_tensor = matches!(self.plan.values.get(*arg as usize), Some(ValueModel::Tensor(_)));
            bound.push(if is_tensor { self.read(*arg)?.into() } else { self.number(*arg)? });
        }
        let id = match self.delegates.get(&index) {
            Some(known) => *known,
            None => {
                let delegate = self.sources.delegate(&self.plan.name, index);
                let mut delegate = delegate.ok_or_else(|| Error::invalid("a delegate without its payload"))?;
                if let Some(importer) = self.sources.inlining(&delegate) {
                    match self.inline(importer, &delegate, args, &bound, &outs) {
                        Ok(()) => return Ok(()),
                        Err(error) => delegate.refusal = Some(error),
                    }
                }
                let id = self.model.delegates.push(delegate);
                self.delegates.insert(index, id);
                id
            }
        };
        if outs.iter().any(|out| matches!(self.plan.values.get(*out as usize), Some(ValueModel::Int(_)))) {
            let error = Error::unsupported("a delegate that gives an integer must be translated to operators");
            return Err(match &self.model.delegates[id].refusal {
                Some(refusal) => error.got(format!("no translation: {refusal}")),
                None => error,
            });
        }
        self.store_planned(Op::Delegate(id), bound, &outs)
    }

    /// Adds a node whose results have the planned types, and stores them.
    fn store_planned(&mut self, op: Op, args: Vec<Arg>, outs: &[u32]) -> Result<(), Error> {
        let mut types = Vec::with_capacity(outs.len());
        for out in outs {
            let tensor = self.tensor_model(*out)?;
            types.push(Type::Tensor(self.tensor_type(tensor, "u")));
        }
        let values = self.push_results(op, args, types);
        values.into_iter().zip(outs).for_each(|(value, out)| self.write(*out, value));
        Ok(())
    }

    /// The argument for a parameter of this kind.
    pub(super) fn argument(&mut self, kind: &Kind, index: u32) -> Result<Arg, Error> {
        let plan = self.plan;
        let value = plan.values.get(index as usize).unwrap_or(&ValueModel::None);
        if let (ValueModel::None, false) = (value, *kind == Kind::Tensor) {
            return Ok(Arg::None);
        }
        match (kind, value) {
            (Kind::Optional(inner), _) => self.argument(inner, index),
            (Kind::List(item, _), value) => self.list(item, value, index),
            (_, ValueModel::Tensor(_)) => self.read(index).map(Arg::Value),
            (Kind::DType, _) => {
                let code = self.code(index)?;
                let dtype = u8::try_from(code).ok().and_then(ScalarType::from_code);
                dtype.map(Arg::DType).ok_or_else(|| Error::invalid("an unknown dtype").got(code))
            }
            (Kind::Layout, _) => match self.code(index)? {
                0 => Ok(Arg::Layout(Layout::Strided)),
                code => Err(Error::unsupported("a sparse tensor").got(code)),
            },
            (Kind::MemoryFormat, _) => Ok(Arg::MemoryFormat(match self.code(index)? {
                0 => MemoryFormat::Contiguous,
                1 => MemoryFormat::Preserve,
                2 => MemoryFormat::ChannelsLast,
                3 => MemoryFormat::ChannelsLast3d,
                code => return Err(Error::invalid("an unknown memory format").got(code)),
            })),
            (Kind::Device | Kind::Generator, _) => Ok(Arg::None),
            (Kind::Bool, ValueModel::Int(_)) => Ok(Arg::Bool(self.code(index)? != 0)),
            _ => self.number(index),
        }
    }

    fn code(&mut self, index: u32) -> Result<i64, Error> {
        self.int(index)?.as_int().ok_or_else(|| Error::invalid(format!("value {index} is not known")))
    }

    fn list(&mut self, item: &Kind, value: &ValueModel, index: u32) -> Result<Arg, Error> {
        let items: Vec<Arg> = match value {
            ValueModel::IntList(items) => items.iter().map(|item| self.number(*item)).collect::<Result<_, _>>()?,
            ValueModel::DoubleList(items) => items.iter().map(|item| Arg::Float(*item)).collect(),
            ValueModel::BoolList(items) => items.iter().map(|item| Arg::Bool(*item)).collect(),
            ValueModel::TensorList(items) => {
                self.spend(items.len() as u64)?;
                items.iter().map(|item| self.read(*item).map(Arg::Value)).collect::<Result<_, _>>()?
            }
            ValueModel::OptionalTensorList(items) => {
                self.spend(items.len() as u64)?;
                let mut read = |item: &Option<u32>| item.map_or(Ok(Arg::None), |item| self.read(item).map(Arg::Value));
                items.iter().map(&mut read).collect::<Result<_, _>>()?
            }
            // A scalar is a list of one element.
            _ => vec![self.argument(item, index)?],
        };
        Ok(Arg::List(items))
    }
}

/// Gives the slice that `narrow` is exported as, `start..start + length` with a size of an input as its length, that length:
/// `narrow` fails where a slice would be clamped. Slices of fixed length may be clamped.
fn narrow(schema: &Schema, args: &[Arg], types: &mut [Type]) {
    let (
        aten::SLICE_COPY_TENSOR,
        [_, Arg::Int(dim), Arg::Int(start), Arg::Int(end), Arg::Int(step)],
        [Type::Tensor(ty)],
    ) = (schema.name.as_str(), args, types)
    else {
        return;
    };
    let length = end.sub(start.clone());
    let rank = ty.shape.len() as i64;
    let dim = dim.as_int().map(|dim| if dim < 0 { dim + rank } else { dim });
    let slot = dim.and_then(|dim| ty.shape.get_mut(usize::try_from(dim).ok()?));
    if let (Some(slot), Expr::Symbol(_), Expr::Symbol(_), true) = (slot, start, &length, step.is(1)) {
        *slot = length;
    }
}

fn disagrees(name: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display, of: &str) -> Error {
    Error::invalid(format!("`{name}` gives a result of another size than the program plans"))
        .expected(format!("{expected} {of}"))
        .got(format!("{got} {of}"))
}
