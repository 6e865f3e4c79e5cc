//! Linear layers of experts: operators of Rushlight's own. Without a backend that computes them, they are lowered to
//! PyTorch's.

use crate::Error;
use crate::operators::{aten, rushlight};
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::inference::one;
use super::{Definition, Lowered, Operands, composite, done};

/// Maximum number of experts of a mixture. Without a backend that computes them, each expert takes a few nodes.
pub const MAX_EXPERTS: i64 = 1 << 12;

pub(crate) const OPS: &[Definition] =
    &[composite(rushlight::EXPERTS_LINEAR, linear_type, linear), composite(rushlight::EXPERTS_MM, mm_type, mm)];

/// The type of `experts_linear`: a column for each weight row of one expert.
fn linear_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    rows_of(operands, graph, 0)
}

fn mm_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    rows_of(operands, graph, 1)
}

fn rows_of(operands: &Operands<'_>, graph: &Graph, dim: usize) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let [rows, _] = input.shape.as_slice() else { return Err(operands.wrong(0, "a matrix")) };
    one(input.dtype, vec![rows.clone(), width(operands, graph, dim)?.into()])
}

/// Number of columns of one expert's output. `dim` is the dimension of the weights that holds the outputs of all
/// experts.
fn width(operands: &Operands<'_>, graph: &Graph, dim: usize) -> Result<i64, Error> {
    let all = operands.tensor(1, graph)?.shape.get(dim).and_then(Expr::as_int);
    let count = operands.expr(3)?.as_int().filter(|count| (1..=MAX_EXPERTS).contains(count));
    let is_even = |(all, count): &(i64, i64)| all >= count && all % count == 0;
    let width = all.zip(count).filter(is_even).map(|(all, count)| all / count);
    width.ok_or_else(|| operands.wrong(1, "as many outputs for each expert"))
}

/// The GEMM with the transposed weights.
fn linear(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut args = operands.args.to_vec();
    let weight = b.one(aten::PERMUTE_COPY, vec![operands.value(1)?.into(), [1, 0].into()])?;
    if let Some(arg) = args.get_mut(1) {
        *arg = weight.into();
    }
    b.one(rushlight::EXPERTS_MM, args).and_then(done)
}

/// Computes all rows with each expert, and selects for each row the result of its own expert.
fn mm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (input, mat2, experts) = (operands.value(0)?, operands.value(1)?, operands.value(2)?);
    let width = width(operands, b.graph, 1)?;
    let count = operands.expr(3)?.as_int().unwrap_or(1);
    let mut all: Option<ValueId> = None;
    for expert in 0..count {
        let (from, to) = (expert * width, (expert + 1) * width);
        let args = vec![mat2.into(), 1.into(), from.into(), to.into()];
        let weights = b.one(aten::SLICE_COPY_TENSOR, args)?;
        let rows = b.one(aten::MM, vec![input.into(), weights.into()])?;
        all = Some(match all {
            None => rows,
            Some(others) => {
                let is_own = b.one(aten::EQ_SCALAR, vec![experts.into(), Arg::from(expert)])?;
                let is_own = b.one(aten::UNSQUEEZE_COPY, vec![is_own.into(), 1.into()])?;
                b.one(aten::WHERE_SELF, vec![is_own.into(), rows.into(), others.into()])?
            }
        });
    }
    all.ok_or_else(|| operands.wrong(3, "at least one expert")).and_then(done)
}
