//! Views: how a tensor shows the elements of another, and how a write to it goes back.

use std::sync::Arc;

use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::{Operands, permutation};
use rushlight_graph::{Arg, Builder, Expr, Graph, Node, Schema, TensorType, ValueId, bind};

use super::layout::StridedLayout;

/// The mapping of a view's elements to those of the tensor that it is a view of.
#[derive(Clone, Debug)]
pub(super) enum View {
    /// The same elements in the same shape.
    Same,
    /// The same elements in the same order in another shape.
    Reshape,
    Permute(Vec<usize>),
    /// Of the parent's shape, with dimensions in front and sizes of 1 repeated.
    Expand,
    Select {
        dim: usize,
        index: Expr,
    },
    Slice {
        dim: usize,
        start: Expr,
        end: Expr,
        step: i64,
    },
    Diagonal {
        offset: Arg,
        dims: [Arg; 2],
    },
    /// A view of the storage, whose base is the parent.
    Strided {
        size: Arg,
        stride: Arg,
        offset: Expr,
    },
    /// Another function of the elements, and the operator that undoes it, if there is one.
    Other {
        schema: Arc<Schema>,
        args: Vec<Arg>,
        inverse: Option<&'static str>,
    },
}

/// The result of a call whose schema says that it returns views.
#[derive(Debug)]
pub(super) enum Views {
    /// Each result shows a part of the argument.
    Of(Vec<(View, Option<StridedLayout>)>),
    /// A view of the whole storage that the argument is in.
    OfStorage { size: Arg, stride: Arg, offset: Option<Expr> },
    /// The results are copies after all.
    Copies,
}

/// Operators that may return their argument although their schemas do not say so.
pub(super) fn returns_its_argument(node: &Node) -> bool {
    let Some(schema) = node.op.schema() else { return false };
    match schema.base_name() {
        aten::DROPOUT | aten::ALPHA_DROPOUT | aten::FEATURE_DROPOUT | aten::FEATURE_ALPHA_DROPOUT => {
            node.arg("train") == Some(&Arg::Bool(false)) || matches!(node.arg("p"), Some(Arg::Float(0.0)))
        }
        aten::TYPE_AS | aten::ATLEAST_1D | aten::ATLEAST_2D | aten::ATLEAST_3D => {
            schema.params.first().is_some_and(|param| param.kind == rushlight_graph::Kind::Tensor)
        }
        _ => false,
    }
}

impl View {
    /// Reads a call of a view operator; `of` is the layout of its first argument.
    pub fn read(node: &Node, graph: &Graph, of: Option<&StridedLayout>) -> Result<Views, Error> {
        let Some(schema) = node.op.schema() else { return Ok(Views::Copies) };
        let operands = Operands::new(schema, &node.args);
        let from = operands.tensor(0, graph)?;
        let results = node.results.iter().map(|value| graph.tensor(*value)).collect::<Result<Vec<_>, _>>()?;
        let name = schema.base_name();
        // The copy variant of a view reads the same elements as the view.
        let name = name.strip_suffix("_copy").unwrap_or(name);
        if let Some(dim) = split_dim(name, &operands, from.rank())? {
            return Ok(Views::Of(parts(name, dim, &results, of)));
        }
        let to = *results.first().ok_or_else(|| Error::invalid(format!("`{}` gives no result", schema.name)))?;
        let one = |view, layout| Ok(Views::Of(vec![(view, layout)]));
        let viewed = of.and_then(|of| of.viewed(&from.shape, &to.shape));
        if let Some(dims) = permutation(&operands, graph)? {
            let layout = of.and_then(|of| of.permuted(&dims));
            return one(Self::Permute(dims), layout);
        }
        match name {
            aten::VIEW if schema.position("dtype").is_some() => one(Self::other(node, Some(aten::VIEW_DTYPE)), None),
            aten::VIEW
            | aten::VIEW_AS
            | aten::_RESHAPE_ALIAS
            | aten::SQUEEZE
            | aten::UNSQUEEZE
            | aten::packet::UNFLATTEN
            | aten::ATLEAST_1D
            | aten::ATLEAST_2D
            | aten::ATLEAST_3D => one(Self::Reshape, viewed),
            // Where the strides are not known, a view is the more likely.
            aten::RESHAPE | aten::RESHAPE_AS | aten::packet::FLATTEN | aten::RAVEL => match of {
                Some(_) if viewed.is_none() => Ok(Views::Copies),
                _ => one(Self::Reshape, viewed),
            },
            aten::ALIAS
            | aten::DETACH
            | aten::LIFT_FRESH
            | aten::DROPOUT
            | aten::ALPHA_DROPOUT
            | aten::FEATURE_DROPOUT
            | aten::FEATURE_ALPHA_DROPOUT => one(Self::Same, of.cloned()),
            aten::CONJ | aten::RESOLVE_CONJ | aten::RESOLVE_NEG | aten::POSITIVE | aten::REAL
                if !from.dtype.is_complex() =>
            {
                one(Self::Same, of.cloned())
            }
            aten::RESOLVE_CONJ | aten::RESOLVE_NEG => Ok(Views::Copies),
            aten::CONTIGUOUS => match of {
                Some(of) if !of.is_contiguous(&from.shape) => Ok(Views::Copies),
                _ => one(Self::Same, of.cloned()),
            },
            aten::packet::TO | aten::TYPE_AS => {
                let copies = from.dtype != to.dtype || node.arg("copy") == Some(&Arg::Bool(true));
                if copies { Ok(Views::Copies) } else { one(Self::Same, of.cloned()) }
            }
            aten::EXPAND | aten::EXPAND_AS | aten::BROADCAST_TO => {
                one(Self::Expand, of.and_then(|of| of.expanded(&from.shape, &to.shape)))
            }
            aten::packet::SELECT => {
                let dim = operands.dim(1, from.rank())?;
                let index = from_front(operands.expr(2)?, from.shape.get(dim));
                let layout = of.and_then(|of| of.sliced(dim, &index, 1)?.without(dim));
                one(Self::Select { dim, index }, layout)
            }
            aten::packet::SLICE => {
                let dim = operands.dim(1, from.rank())?;
                let size = from.shape.get(dim).cloned().unwrap_or(Expr::Int(1));
                let bound = |index: usize, default: Expr| {
                    if operands.has(index) { operands.expr(index) } else { Ok(default) }
                };
                let start = within(bound(2, Expr::Int(0))?, &size);
                let end = within(bound(3, size.clone())?, &size);
                let step = operands.int(4)?;
                let layout = of.and_then(|of| of.sliced(dim, &start, step));
                one(Self::Slice { dim, start, end, step }, layout)
            }
            // The other overload starts at a tensor.
            aten::NARROW if schema.name == aten::NARROW => {
                let dim = operands.dim(1, from.rank())?;
                let start = from_front(operands.expr(2)?, from.shape.get(dim));
                let end = start.add(operands.expr(3)?);
                let layout = of.and_then(|of| of.sliced(dim, &start, 1));
                one(Self::Slice { dim, start, end, step: 1 }, layout)
            }
            aten::DIAGONAL | aten::LINALG_DIAGONAL => {
                let dims = [operands.arg(2).clone(), operands.arg(3).clone()];
                one(Self::Diagonal { offset: operands.arg(1).clone(), dims }, None)
            }
            aten::AS_STRIDED => Ok(Views::OfStorage {
                size: operands.arg(1).clone(),
                stride: operands.arg(2).clone(),
                offset: if operands.has(3) { Some(operands.expr(3)?) } else { None },
            }),
            aten::VIEW_AS_REAL => one(Self::other(node, Some(aten::VIEW_AS_COMPLEX)), None),
            aten::VIEW_AS_COMPLEX => one(Self::other(node, Some(aten::VIEW_AS_REAL)), None),
            aten::CONJ | aten::_CONJ => one(Self::other(node, Some(aten::_CONJ)), None),
            aten::_NEG_VIEW => one(Self::other(node, Some(aten::_NEG_VIEW)), None),
            _ => one(Self::other(node, None), None),
        }
    }

    fn other(node: &Node, inverse: Option<&'static str>) -> Self {
        match node.op.schema() {
            Some(schema) => Self::Other { schema: schema.clone(), args: node.args.clone(), inverse },
            None => Self::Same,
        }
    }

    /// The view of `parent`, of type `ty`.
    pub fn replay(&self, b: &mut Builder<'_>, parent: ValueId, ty: &TensorType) -> Result<ValueId, Error> {
        let of = Arg::Value(parent);
        match self {
            Self::Same => Ok(parent),
            Self::Reshape => reshaped(b, parent, ty),
            Self::Expand => call(b, aten::EXPAND, vec![of, ty.shape.clone().into()], ty),
            Self::Permute(dims) => call(b, aten::PERMUTE, vec![of, dims_arg(dims.iter().copied())], ty),
            Self::Select { dim, index } => call(b, aten::SELECT_INT, vec![of, int(*dim), index.clone().into()], ty),
            Self::Slice { dim, start, end, step } => {
                let args = vec![of, int(*dim), start.clone().into(), end.clone().into(), Arg::from(*step)];
                call(b, aten::SLICE_TENSOR, args, ty)
            }
            Self::Diagonal { offset, dims: [a, c] } => {
                call(b, aten::DIAGONAL, vec![of, offset.clone(), a.clone(), c.clone()], ty)
            }
            Self::Strided { size, stride, offset } => {
                call(b, aten::AS_STRIDED, vec![of, size.clone(), stride.clone(), offset.clone().into()], ty)
            }
            Self::Other { schema, args, .. } => {
                let mut args = args.clone();
                if let Some(first) = args.first_mut() {
                    *first = of;
                }
                push(b, schema.clone(), args, ty)
            }
        }
    }

    /// The content of the parent after `content` was written to the view. `parent` is its content before.
    pub fn write_back(
        &self,
        b: &mut Builder<'_>,
        parent: ValueId,
        ty: &TensorType,
        content: ValueId,
    ) -> Result<ValueId, Error> {
        let (of, src) = (Arg::Value(parent), Arg::Value(content));
        match self {
            Self::Same => Ok(content),
            Self::Reshape => reshaped(b, content, ty),
            Self::Permute(dims) => {
                let mut inverse = vec![0; dims.len()];
                for (to, from) in dims.iter().enumerate() {
                    if let Some(slot) = inverse.get_mut(*from) {
                        *slot = to;
                    }
                }
                call(b, aten::PERMUTE, vec![src, dims_arg(inverse)], ty)
            }
            Self::Expand => unexpanded(b, content, ty),
            Self::Select { dim, index } => {
                call(b, aten::SELECT_SCATTER, vec![of, src, int(*dim), index.clone().into()], ty)
            }
            Self::Slice { dim, start, end, step } => {
                let args = vec![of, src, int(*dim), start.clone().into(), end.clone().into(), Arg::from(*step)];
                call(b, aten::SLICE_SCATTER, args, ty)
            }
            Self::Diagonal { offset, dims: [a, c] } => {
                call(b, aten::DIAGONAL_SCATTER, vec![of, src, offset.clone(), a.clone(), c.clone()], ty)
            }
            Self::Strided { size, stride, offset } => {
                let args = vec![of, src, size.clone(), stride.clone(), offset.clone().into()];
                call(b, aten::AS_STRIDED_SCATTER, args, ty)
            }
            Self::Other { inverse: Some(aten::VIEW_DTYPE), .. } => {
                call(b, aten::VIEW_DTYPE, vec![src, ty.dtype.into()], ty)
            }
            Self::Other { inverse: Some(inverse), .. } => call(b, inverse, vec![src], ty),
            Self::Other { schema, inverse: None, .. } => {
                Err(Error::unsupported(format!("a write to a view that `{}` gives", schema.name))
                    .help("write to a copy (`.clone()`), or write the tensor that it is a view of"))
            }
        }
    }
}

/// Calls an operator whose result's type is known.
pub(super) fn call(b: &mut Builder<'_>, name: &str, args: Vec<Arg>, ty: &TensorType) -> Result<ValueId, Error> {
    let schema = b.schemas().expect(name)?;
    let args = bind(&schema, args, &[])?;
    push(b, schema, args, ty)
}

fn push(b: &mut Builder<'_>, schema: Arc<Schema>, args: Vec<Arg>, ty: &TensorType) -> Result<ValueId, Error> {
    let ty = TensorType::new(ty.dtype, ty.shape.clone());
    let results = b.push(rushlight_graph::Op::Call(schema), args, vec![rushlight_graph::Type::Tensor(ty)]);
    results.first().copied().ok_or_else(|| Error::invalid("a call without a result"))
}

/// The content of a tensor of type `ty` after `source` was copied into it: converted and broadcast.
pub(super) fn copied(b: &mut Builder<'_>, source: ValueId, ty: &TensorType) -> Result<ValueId, Error> {
    let mut value = source;
    let from = b.tensor(value)?;
    if from.dtype != ty.dtype {
        value = converted(b, value, ty.dtype)?;
    }
    if from.shape != ty.shape {
        value = call(b, aten::EXPAND, vec![value.into(), ty.shape.clone().into()], ty)?;
    }
    Ok(value)
}

/// The tensor in another dtype.
pub(super) fn converted(b: &mut Builder<'_>, value: ValueId, dtype: ScalarType) -> Result<ValueId, Error> {
    let ty = TensorType { dtype, ..b.tensor(value)? };
    call(b, aten::_TO_COPY, vec![value.into(), dtype.into()], &ty)
}

fn reshaped(b: &mut Builder<'_>, value: ValueId, ty: &TensorType) -> Result<ValueId, Error> {
    call(b, aten::VIEW, vec![value.into(), ty.shape.clone().into()], ty)
}

/// One of the elements that each element of an expanded tensor became. PyTorch refuses to write different ones.
fn unexpanded(b: &mut Builder<'_>, value: ValueId, ty: &TensorType) -> Result<ValueId, Error> {
    let mut value = value;
    let mut now = b.tensor(value)?;
    let new = now.rank().saturating_sub(ty.rank());
    for dim in 0..now.rank() {
        let before = dim.checked_sub(new).and_then(|dim| ty.shape.get(dim)).cloned().unwrap_or(Expr::Int(1));
        if let Some(size) = now.shape.get_mut(dim)
            && *size != before
        {
            *size = Expr::Int(1);
            value = call(b, aten::SLICE_TENSOR, vec![value.into(), int(dim), Arg::from(0), Arg::from(1)], &now)?;
        }
    }
    if now.shape == ty.shape { Ok(value) } else { reshaped(b, value, ty) }
}

/// The dimension that an operator with several results divides; `None` for others.
fn split_dim(name: &str, operands: &Operands<'_>, rank: usize) -> Result<Option<usize>, Error> {
    Ok(Some(match name {
        aten::packet::HSPLIT => usize::from(rank > 1),
        aten::packet::VSPLIT => 0,
        aten::packet::DSPLIT => 2,
        aten::packet::UNBIND => operands.dim(1, rank)?,
        aten::packet::SPLIT | aten::SPLIT_WITH_SIZES | aten::CHUNK | aten::packet::TENSOR_SPLIT => {
            operands.dim(2, rank)?
        }
        _ => return Ok(None),
    }))
}

/// The parts of a division along a dimension.
fn parts(
    name: &str,
    dim: usize,
    results: &[&TensorType],
    of: Option<&StridedLayout>,
) -> Vec<(View, Option<StridedLayout>)> {
    let mut start = Expr::Int(0);
    let part = |ty: &&TensorType| {
        let begin = start.clone();
        let layout = of.and_then(|of| of.sliced(dim, &begin, 1));
        if name == aten::packet::UNBIND {
            start = start.add(1);
            return (View::Select { dim, index: begin }, layout.and_then(|layout| layout.without(dim)));
        }
        start = start.add(ty.shape.get(dim).cloned().unwrap_or(Expr::Int(1)));
        (View::Slice { dim, start: begin, end: start.clone(), step: 1 }, layout)
    };
    results.iter().map(part).collect()
}

/// An index counted from the front.
fn from_front(index: Expr, size: Option<&Expr>) -> Expr {
    match (index.as_int(), size) {
        (Some(known), Some(size)) if known < 0 => size.add(known),
        _ => index,
    }
}

/// A bound of a slice, counted from the front and no further than the end, as far as that is known.
fn within(bound: Expr, size: &Expr) -> Expr {
    let bound = from_front(bound, Some(size));
    match (bound.as_int(), size.as_int()) {
        (Some(bound), Some(size)) => Expr::Int(bound.clamp(0, size.max(0))),
        (Some(i64::MAX), None) => size.clone(),
        _ => bound,
    }
}

fn int(dim: usize) -> Arg {
    Arg::from(dim as i64)
}

fn dims_arg(dims: impl IntoIterator<Item = usize>) -> Arg {
    Arg::List(dims.into_iter().map(int).collect())
}
