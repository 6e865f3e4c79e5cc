//! Pseudo-inverses, ranks, condition numbers and tensor equations, from singular values and inverses.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, ValueId};

use super::creation::indices;
use super::decompositions::{Matrices, matrices, singular_values, svd};
use super::matmul::matmul;
use super::reduction::maximum_or;
use super::views::{permute, transpose_last, unsqueeze};
use super::{Definition, Lowered, Operands, by_lowering, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::LINALG_PINV, by_lowering, |b, o| pinv(b, o, Bounds::relative(o, 1))),
    composite(aten::LINALG_PINV_RCOND_TENSOR, by_lowering, |b, o| pinv(b, o, Bounds::relative(o, 1))),
    composite(aten::LINALG_PINV_ATOL_RTOL_FLOAT, by_lowering, |b, o| pinv(b, o, Bounds::both(o))),
    composite(aten::LINALG_PINV_ATOL_RTOL_TENSOR, by_lowering, |b, o| pinv(b, o, Bounds::both(o))),
    composite(aten::PINVERSE, by_lowering, |b, o| pinv(b, o, Bounds::relative(o, 1))),
    composite(aten::LINALG_MATRIX_RANK, by_lowering, |b, o| rank(b, o, Bounds::absolute(o, 1))),
    composite(aten::LINALG_MATRIX_RANK_TOL_TENSOR, by_lowering, |b, o| rank(b, o, Bounds::absolute(o, 1))),
    composite(aten::LINALG_MATRIX_RANK_ATOL_RTOL_FLOAT, by_lowering, |b, o| rank(b, o, Bounds::both(o))),
    composite(aten::LINALG_MATRIX_RANK_ATOL_RTOL_TENSOR, by_lowering, |b, o| rank(b, o, Bounds::both(o))),
    composite(aten::LINALG_COND, by_lowering, condition),
    composite(aten::LINALG_COND_P_STR, by_lowering, condition),
    composite(aten::LINALG_TENSORINV, by_lowering, tensorinv),
    composite(aten::LINALG_TENSORSOLVE, by_lowering, tensorsolve),
    composite(aten::LINALG_VANDER, by_lowering, linalg_vander),
    composite(aten::VANDER, by_lowering, vander),
];

/// Tolerances up to which singular values count as zero: numbers, or tensors with a value for each matrix.
#[derive(Clone, Copy)]
struct Bounds<'a> {
    absolute: &'a Arg,
    relative: &'a Arg,
    /// The position of the parameter `hermitian`.
    hermitian: usize,
}

impl<'a> Bounds<'a> {
    fn relative(operands: &Operands<'a>, index: usize) -> Self {
        Self { absolute: &Arg::None, relative: operands.arg(index), hermitian: index + 1 }
    }

    fn absolute(operands: &Operands<'a>, index: usize) -> Self {
        Self { absolute: operands.arg(index), relative: &Arg::Float(0.0), hermitian: index + 1 }
    }

    fn both(operands: &Operands<'a>) -> Self {
        Self { absolute: operands.arg(1), relative: operands.arg(2), hermitian: 3 }
    }

    /// `max(absolute, relative * largest)`, for each matrix. Without a relative bound it is the machine precision times the longer
    /// side, or 0 where the absolute one is given.
    fn limit(&self, b: &mut Builder<'_>, a: &Matrices, largest: ValueId) -> Result<ValueId, Error> {
        let number = |b: &mut Builder<'_>, arg: &Arg| {
            let value = b.as_tensor(arg, a.dtype)?;
            let value = b.cast(value, a.dtype)?;
            // A value for each matrix broadcasts over its row of singular values.
            let rank = b.tensor(value)?.rank();
            if rank > 0 { unsqueeze(b, value, rank) } else { Ok(value) }
        };
        let relative = if self.relative.is_none() {
            let epsilon = if a.dtype == ScalarType::Double { f64::EPSILON } else { f64::from(f32::EPSILON) };
            let side = if a.rows == a.columns { a.rows.clone() } else { a.rows.at_least(a.columns.clone()) };
            let scaled = b.mul(largest, epsilon)?;
            let natural = b.mul(scaled, Arg::Int(side))?;
            if self.absolute.is_none() {
                return Ok(natural);
            }
            let absolute = number(b, self.absolute)?;
            let given = b.compare(aten::packet::GT, absolute, 0)?;
            b.select(given, 0.0, natural)?
        } else {
            let relative = number(b, self.relative)?;
            b.mul(largest, relative)?
        };
        if self.absolute.is_none() {
            return Ok(relative);
        }
        let absolute = number(b, self.absolute)?;
        b.one(aten::MAXIMUM, vec![absolute.into(), relative.into()])
    }
}

/// The maximum of magnitudes along the last dimension, which stays; 0 of none.
fn largest(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let last = b.tensor(x)?.rank().saturating_sub(1);
    maximum_or(b, x, &[last], 0.0)
}

/// `V S⁻¹ U'`, or `Q L⁻¹ Q'` of a symmetric matrix, without the values that count as zero.
fn pinv(b: &mut Builder<'_>, operands: &Operands<'_>, bounds: Bounds<'_>) -> Lowered {
    let a = matrices(operands, 0, b.graph)?;
    let hermitian = operands.schema.params.len() > bounds.hermitian && operands.bool(bounds.hermitian)?;
    let (values, left, right) = if hermitian {
        let results = b.call(aten::_LINALG_EIGH, vec![operands.arg(0).clone()])?;
        let &[values, vectors] = results.as_slice() else { return Ok(None) };
        (values, vectors, transpose_last(b, vectors)?)
    } else {
        let results = svd(b, operands.value(0)?, false)?;
        let &[u, values, vh] = results.as_slice() else { return Ok(None) };
        (values, transpose_last(b, vh)?, transpose_last(b, u)?)
    };
    let sizes = b.unary(aten::ABS, values)?;
    let most = largest(b, sizes)?;
    let limit = bounds.limit(b, &a, most)?;
    let counts = b.one(aten::GT_TENSOR, vec![sizes.into(), limit.into()])?;
    let reciprocal = b.unary(aten::RECIPROCAL, values)?;
    let inverse = b.select(counts, reciprocal, 0.0)?;
    let row = unsqueeze(b, inverse, a.batch.len())?;
    let scaled = b.mul(left, row)?;
    matmul(b, scaled, right).and_then(done)
}

/// The number of singular values that do not count as zero.
fn rank(b: &mut Builder<'_>, operands: &Operands<'_>, bounds: Bounds<'_>) -> Lowered {
    let a = matrices(operands, 0, b.graph)?;
    let values = if operands.bool(bounds.hermitian)? {
        let args = vec![operands.arg(0).clone(), Arg::from("L"), Arg::from(false)];
        let values = b.call(aten::_LINALG_EIGH, args)?.first().copied().ok_or_else(|| operands.wrong(0, "matrices"))?;
        b.unary(aten::ABS, values)?
    } else {
        singular_values(b, operands.value(0)?)?
    };
    let most = largest(b, values)?;
    let limit = bounds.limit(b, &a, most)?;
    let counts = b.one(aten::GT_TENSOR, vec![values.into(), limit.into()])?;
    b.one(aten::SUM_DIM_INTLIST, vec![counts.into(), Arg::from([-1]), Arg::from(false)]).and_then(done)
}

/// The condition number: the maximum over the minimum singular value, or the norm times the inverse's norm.
fn condition(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let a = matrices(operands, 0, b.graph)?;
    let p = match operands.arg(1) {
        Arg::None => Some(2.0),
        Arg::Str(_) => None,
        _ => Some(operands.float(1)?),
    };
    if let Some(p) = p.filter(|p| p.abs() == 2.0) {
        let (mut values, short) = (singular_values(b, x)?, a.short());
        let is_possibly_empty = short.range(&b.graph.symbols).0.is_none_or(|min| min < 1);
        if is_possibly_empty {
            values = b.one(aten::CONSTANT_PAD_ND, vec![values.into(), [0, 1].into(), Arg::Float(1.0)])?;
        }
        let dim = a.batch.len() as i64;
        let mut at = |index: Arg| b.one(aten::SELECT_COPY_INT, vec![values.into(), Arg::from(dim), index]);
        let (first, last) = (at(Arg::from(0))?, at(Arg::Int(short.sub(1).at_least(0)))?);
        let ratio = if p > 0.0 { b.div(first, last) } else { b.div(last, first) }?;
        // PyTorch gives 0 for matrices without elements.
        return if is_possibly_empty { b.mul(ratio, Arg::Int(short.at_most(1))) } else { Ok(ratio) }.and_then(done);
    }
    let inverse = b.call(aten::LINALG_INV_EX, vec![x.into()])?;
    let inverse = inverse.first().copied().ok_or_else(|| operands.wrong(0, "matrices"))?;
    let name = if p.is_some() { aten::LINALG_MATRIX_NORM } else { aten::LINALG_MATRIX_NORM_STR_ORD };
    let mut norm = |x: ValueId| b.one(name, vec![x.into(), operands.arg(1).clone()]);
    let (own, other) = (norm(x)?, norm(inverse)?);
    b.mul(own, other).and_then(done)
}

/// The inverse of a tensor whose first `ind` dimensions are rows.
fn tensorinv(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let ty = operands.tensor(0, b.graph)?.clone();
    let count = usize::try_from(operands.int(1)?).ok().filter(|count| (1..=ty.rank()).contains(count));
    let (rows, columns) = count
        .and_then(|count| ty.shape.split_at_checked(count))
        .ok_or_else(|| operands.wrong(1, "a number of the tensor's dimensions"))?;
    let flat = b.view(operands.value(0)?, vec![Expr::product(rows), Expr::product(columns)])?;
    let inverse = b.one(aten::LINALG_INV, vec![flat.into()])?;
    b.view(inverse, [columns, rows].concat()).and_then(done)
}

/// Solves with a tensor whose last dimensions are columns.
fn tensorsolve(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (mut matrix, right) = (operands.value(0)?, operands.value(1)?);
    let rank = b.tensor(matrix)?.rank();
    if operands.has(2) {
        let moved = operands.dims_or_all(2, rank)?;
        let order: Vec<usize> = (0..rank).filter(|dim| !moved.contains(dim)).chain(moved.iter().copied()).collect();
        matrix = permute(b, matrix, &order)?;
    }
    let (shape, right_ty) = (b.tensor(matrix)?.shape, b.tensor(right)?);
    let columns = shape.get(right_ty.rank()..).ok_or_else(|| operands.wrong(1, "a tensor of fewer dimensions"))?;
    let size = right_ty.numel();
    let flat = b.view(matrix, vec![size.clone(), Expr::product(columns)])?;
    let right = b.view(right, vec![size])?;
    let solution = b.one(aten::LINALG_SOLVE, vec![flat.into(), right.into()])?;
    b.view(solution, columns.to_vec()).and_then(done)
}

/// The Vandermonde matrix with increasing powers, from 0.
fn linalg_vander(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let size = b.tensor(operands.value(0)?)?.shape.last().cloned().unwrap_or(Expr::Int(1));
    let count = if operands.has(1) { operands.expr(1)? } else { size };
    powers(b, operands.value(0)?, count, true).and_then(done)
}

fn vander(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let size = b.tensor(operands.value(0)?)?.numel();
    let count = if operands.has(1) { operands.expr(1)? } else { size };
    powers(b, operands.value(0)?, count, operands.bool(2)?).and_then(done)
}

fn powers(b: &mut Builder<'_>, x: ValueId, count: Expr, increasing: bool) -> Result<ValueId, Error> {
    let dtype = b.tensor(x)?.dtype;
    let dtype = if dtype.is_floating() || dtype.is_complex() { dtype } else { ScalarType::Long };
    let x = b.cast(x, dtype)?;
    let x = if b.tensor(x)?.rank() == 0 { unsqueeze(b, x, 0)? } else { x };
    let rank = b.tensor(x)?.rank();
    let column = unsqueeze(b, x, rank)?;
    let exponents = indices(b, count, ScalarType::Long)?;
    let powers = b.one(aten::POW_TENSOR_TENSOR, vec![column.into(), exponents.into()])?;
    if increasing { Ok(powers) } else { b.one(aten::FLIP, vec![powers.into(), Arg::from([-1])]) }
}
