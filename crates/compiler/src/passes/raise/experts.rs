//! Mixtures of experts that look up a matrix for each row.

use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::{aten, rushlight};
use rushlight_graph::ops::{MAX_EXPERTS, wrap_dim};
use rushlight_graph::{Action, Arg, Builder, Def, Expr, Graph, Model, NodeId, TensorType, ValueId};

use crate::passes::dce::EliminateDeadCode;

/// Finds `bmm` of rows with the matrices that an index selects of a constant `[experts, a, b]`, where the index is a choice of
/// `topk` and the matrices may be reshaped and permuted on their way, as by `einsum`. Puts `rushlight::experts_linear` in their
/// place, whose weights are rows of the same constant, so that nobody copies the matrix of each row.
#[derive(Clone, Copy, Debug)]
pub struct RaiseExperts {
    /// Experts whose outputs are no multiple of this many stay as they are.
    pub multiple: i64,
}

impl Default for RaiseExperts {
    fn default() -> Self {
        Self { multiple: 1 }
    }
}

impl Pass for RaiseExperts {
    fn name(&self) -> &'static str {
        "raise-experts"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let changed = model.rewrite(|builder, node| {
            let found = Match::of(builder.graph, node).filter(|found| {
                let [_, _, outputs] = layer(found.sizes, found.summed);
                outputs.checked_rem(self.multiple) == Some(0)
            });
            match found {
                Some(experts) => Ok(Action::Replace(vec![experts.build(builder, node)?])),
                None => Ok(Action::Keep),
            }
        })?;
        if changed { EliminateDeadCode.run(model) } else { Ok(()) }
    }
}

/// Maximum number of views one after the other.
const MAX_VIEWS: usize = 16;

/// A dimension of the matrices of all rows, which one of a view is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    /// A dimension of the index.
    Index(usize),
    /// The first or the second dimension of a matrix.
    Matrix(usize),
}

/// The matrices that an index selects, in some view.
#[derive(Debug)]
struct Matrices<'g> {
    /// The constant `[experts, a, b]`.
    weight: ValueId,
    /// The sizes of it.
    sizes: [i64; 3],
    index: ValueId,
    index_shape: &'g [Expr],
    /// For each dimension of the view those that it is made of; ones of one element are left out.
    dims: Vec<Vec<Axis>>,
}

/// A GEMM of rows with the matrices of their experts.
#[derive(Debug)]
struct Match {
    /// Rows, of `inputs` columns.
    rows: ValueId,
    /// The sizes of the index over which the rows go.
    row_shape: Vec<Expr>,
    /// Those over which each row is repeated.
    repeats: Vec<Expr>,
    weight: ValueId,
    sizes: [i64; 3],
    index: ValueId,
    /// The dimension of a matrix that the GEMM sums over.
    summed: usize,
}

impl Match {
    /// The GEMM that a `bmm` is.
    fn of(graph: &Graph, node: NodeId) -> Option<Self> {
        let bmm = graph.nodes.get(node).filter(|node| node.op.name() == aten::BMM)?;
        let (left, right) = (bmm.arg("self")?.as_value()?, bmm.arg("mat2")?.as_value()?);
        Self::of_operands(graph, left, right, 1).or_else(|| Self::of_operands(graph, right, left, 2))
    }

    /// Matches a GEMM of rows, whose dimension `single` has one element, with matrices, which are summed over it.
    fn of_operands(graph: &Graph, rows: ValueId, matrices: ValueId, single: usize) -> Option<Self> {
        if !graph.tensor(rows).ok()?.shape.get(single)?.is(1) {
            return None;
        }
        let Matrices { weight, sizes, index, index_shape, dims } = Matrices::of(graph, matrices, MAX_VIEWS)?;
        let [batch, ..] = dims.as_slice() else { return None };
        let [Axis::Matrix(summed)] = dims.get(single)?[..] else { return None };
        let (Axis::Matrix(output), repeated) = dims.get(3 - single)?.split_last()? else { return None };
        let in_order = batch.iter().chain(repeated);
        let all = (0..index_shape.len()).filter(|dim| !index_shape[*dim].is(1)).map(Axis::Index);
        if *output == summed || !in_order.copied().eq(all) {
            return None;
        }
        let sizes_of = |axes: &[Axis]| {
            let size = |axis: &Axis| match axis {
                Axis::Index(dim) => index_shape.get(*dim).cloned(),
                Axis::Matrix(_) => None,
            };
            axes.iter().map(size).collect::<Option<Vec<_>>>()
        };
        Some(Self { rows, row_shape: sizes_of(batch)?, repeats: sizes_of(repeated)?, weight, sizes, index, summed })
    }

    /// Adds the GEMM, and returns the value that replaces the result of the `bmm`.
    fn build(&self, b: &mut Builder<'_>, node: NodeId) -> Result<ValueId, Error> {
        let [_, inputs, _] = layer(self.sizes, self.summed);
        let result = b.graph.nodes[node].result().ok_or_else(|| Error::invalid("a bmm without a result"))?;
        let shape = b.tensor(result)?.shape;
        let (count, times) = (Expr::product(&self.row_shape), Expr::product(&self.repeats));
        let all = count.mul(times.clone());
        let mut rows = self.rows;
        if !self.repeats.is_empty() {
            rows = b.one(aten::VIEW_COPY, vec![rows.into(), vec![count.clone(), 1.into(), inputs.into()].into()])?;
            rows = b.one(aten::EXPAND_COPY, vec![rows.into(), vec![count, times, inputs.into()].into()])?;
        }
        let rows = b.one(aten::VIEW_COPY, vec![rows.into(), vec![all.clone(), inputs.into()].into()])?;
        let index = b.one(aten::VIEW_COPY, vec![self.index.into(), vec![all].into()])?;
        let rows = linear(b, rows, (self.weight, self.sizes), index, self.summed)?;
        b.one(aten::VIEW_COPY, vec![rows.into(), shape.into()])
    }
}

impl<'g> Matrices<'g> {
    /// Recognizes the matrices behind a value, through fewer than `views` views.
    fn of(graph: &'g Graph, value: ValueId, views: usize) -> Option<Self> {
        let views = views.checked_sub(1)?;
        let node = graph.producer(value)?;
        let before = node.arg("self")?.as_value()?;
        let shape = &graph.tensor(value).ok()?.shape;
        match node.op.name() {
            aten::INDEX_TENSOR => {
                let Arg::List(indices) = node.arg("indices")? else { return None };
                let [Arg::Value(index)] = indices[..] else { return None };
                let sizes = graph.constant_of(before).and_then(|_| matrix_sizes(graph.tensor(before).ok()?))?;
                let index_shape = graph.tensor(index).ok()?.shape.as_slice();
                if !is_choice(graph, index, sizes[0]) {
                    return None;
                }
                let of_index = (0..index_shape.len()).map(|dim| kept(Axis::Index(dim), &index_shape[dim]));
                let dims = of_index.chain([vec![Axis::Matrix(0)], vec![Axis::Matrix(1)]]).collect();
                Some(Self { weight: before, sizes, index, index_shape, dims })
            }
            aten::PERMUTE_COPY => {
                let Arg::List(order) = node.arg("dims")? else { return None };
                let mut matrices = Self::of(graph, before, views)?;
                let dim = |arg: &Arg| match arg {
                    Arg::Int(dim) => matrices.dims.get(wrap_dim(dim.as_int()?, order.len())?).cloned(),
                    _ => None,
                };
                matrices.dims = order.iter().map(dim).collect::<Option<_>>()?;
                Some(matrices)
            }
            name if is_view(name) => Self::of(graph, before, views)?.viewed(shape),
            _ => None,
        }
    }

    /// The same in another shape, if each of its dimensions is made of whole ones.
    fn viewed(mut self, shape: &[Expr]) -> Option<Self> {
        let axes: Vec<Axis> = self.dims.concat();
        let mut left = axes.into_iter();
        let mut dims = Vec::with_capacity(shape.len());
        for size in shape {
            let (mut own, mut product) = (Vec::new(), Expr::Int(1));
            while product != *size {
                let axis = left.next()?;
                product = product.mul(self.size(axis)?);
                own.push(axis);
            }
            dims.push(own);
        }
        self.dims = dims;
        left.next().is_none().then_some(self)
    }

    fn size(&self, axis: Axis) -> Option<Expr> {
        match axis {
            Axis::Index(dim) => self.index_shape.get(dim).cloned(),
            Axis::Matrix(dim) => self.sizes.get(dim + 1).map(|size| Expr::Int(*size)),
        }
    }
}

/// The numbers of experts, inputs and outputs of matrices that are summed over in a dimension.
fn layer([experts, first, second]: [i64; 3], summed: usize) -> [i64; 3] {
    if summed == 0 { [experts, first, second] } else { [experts, second, first] }
}

/// Adds the linear layer of rows with the matrices that an index selects of a weight with these sizes.
pub(super) fn linear(
    b: &mut Builder<'_>,
    rows: ValueId,
    (mut weight, sizes): (ValueId, [i64; 3]),
    index: ValueId,
    summed: usize,
) -> Result<ValueId, Error> {
    let [experts, inputs, outputs] = layer(sizes, summed);
    if summed == 0 {
        weight = b.one(aten::PERMUTE_COPY, vec![weight.into(), [0, 2, 1].into()])?;
    }
    let weight = b.one(aten::VIEW_COPY, vec![weight.into(), [experts * outputs, inputs].into()])?;
    let args = vec![rows.into(), weight.into(), index.into(), experts.into()];
    b.one(rushlight::EXPERTS_LINEAR, args)
}

/// An axis, unless it has one element.
fn kept(axis: Axis, size: &Expr) -> Vec<Axis> {
    if size.is(1) { Vec::new() } else { vec![axis] }
}

/// The sizes of the floats of experts, each with a matrix of more than one row and column.
pub(super) fn matrix_sizes(ty: &TensorType) -> Option<[i64; 3]> {
    let sizes = <[i64; 3]>::try_from(ty.shape.iter().map(Expr::as_int).collect::<Option<Vec<_>>>()?).ok()?;
    let [experts, first, second] = sizes;
    let fits = ty.dtype == ScalarType::Float && (1..=MAX_EXPERTS).contains(&experts) && first > 1 && second > 1;
    fits.then_some(sizes)
}

/// True for views of the positions that `topk` finds in rows of at most `count` elements: an index from 0 on that is in range.
pub(super) fn is_choice(graph: &Graph, mut index: ValueId, count: i64) -> bool {
    for _ in 0..MAX_VIEWS {
        let Def::Result(id, result) = graph.values[index].def else { return false };
        let Some(node) = graph.nodes.get(id) else { return false };
        let Some(before) = node.arg("self").and_then(Arg::as_value) else { return false };
        if node.op.name() == aten::TOPK {
            let dim = match node.arg("dim") {
                Some(Arg::Int(dim)) => dim.as_int().unwrap_or(-1),
                _ => -1,
            };
            let Ok(ty) = graph.tensor(before) else { return false };
            let size = wrap_dim(dim, ty.rank()).and_then(|dim| ty.shape.get(dim)?.as_int());
            return result == 1 && size.is_some_and(|size| size <= count);
        }
        if !is_view(node.op.name()) {
            return false;
        }
        index = before;
    }
    false
}

/// True for operators that show the elements of their input in the same order.
pub(super) fn is_view(name: &str) -> bool {
    matches!(
        name,
        aten::VIEW_COPY
            | aten::UNSQUEEZE_COPY
            | aten::SQUEEZE_COPY
            | aten::SQUEEZE_COPY_DIM
            | aten::SQUEEZE_COPY_DIMS
            | aten::CLONE
    )
}
