//! Decompositions of matrices, and their uses: determinants, inverses, solutions.
//!
//! Kernels take batches of real matrices in `f32` and `f64`.

use std::cmp::Ordering;

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, TensorType, Type, ValueId};

use super::creation::filled;
use super::fft::complex_dtype;
use super::inference::{one, same, tensor};
use super::matmul::matmul;
use super::slices::slice;
use super::views::transpose_last;
use super::{Definition, Lowered, Operands, broadcast, by_lowering, composite, done, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::LINALG_LU_FACTOR_EX, lu_factor_type),
    composite(aten::LINALG_LU_FACTOR, by_lowering, lu_factor),
    composite(aten::_LU_WITH_INFO, by_lowering, |b, o| super::forward(b, o, aten::LINALG_LU_FACTOR_EX)),
    kernel(aten::LU_UNPACK, lu_unpack_type),
    composite(aten::LINALG_LU, by_lowering, lu),
    kernel(aten::LINALG_LU_SOLVE, |o, g| solution_type(o, g, 0, 2)),
    composite(aten::LU_SOLVE, by_lowering, lu_solve),
    kernel(aten::LINALG_INV_EX, with_info),
    composite(aten::LINALG_INV, same, |b, o| checked(b, o, aten::LINALG_INV_EX)),
    composite(aten::INVERSE, same, |b, o| checked(b, o, aten::LINALG_INV_EX)),
    kernel(aten::_LINALG_DET, |o, g| determinant_type(o, g, 1)),
    composite(aten::LINALG_DET, by_lowering, |b, o| first_of(b, o, aten::_LINALG_DET, 1)),
    composite(aten::DET, by_lowering, |b, o| first_of(b, o, aten::_LINALG_DET, 1)),
    kernel(aten::_LINALG_SLOGDET, |o, g| determinant_type(o, g, 2)),
    composite(aten::LINALG_SLOGDET, by_lowering, |b, o| first_of(b, o, aten::_LINALG_SLOGDET, 2)),
    composite(aten::SLOGDET, by_lowering, |b, o| first_of(b, o, aten::_LINALG_SLOGDET, 2)),
    composite(aten::LOGDET, by_lowering, logdet),
    kernel(aten::_LINALG_SOLVE_EX, solve_type),
    composite(aten::LINALG_SOLVE_EX, by_lowering, solve_ex),
    composite(aten::LINALG_SOLVE, by_lowering, solve),
    kernel(aten::LINALG_SOLVE_TRIANGULAR, |o, g| solution_type(o, g, 0, 1)),
    composite(aten::TRIANGULAR_SOLVE, by_lowering, triangular_solve),
    kernel(aten::LINALG_CHOLESKY_EX, with_info),
    composite(aten::LINALG_CHOLESKY, same, cholesky),
    composite(aten::CHOLESKY_SOLVE, by_lowering, cholesky_solve),
    composite(aten::CHOLESKY_INVERSE, same, cholesky_inverse),
    kernel(aten::GEQRF, geqrf_type),
    kernel(aten::LINALG_HOUSEHOLDER_PRODUCT, |o, g| matrices(o, 0, g).and(same(o, g))),
    composite(aten::ORGQR, same, |b, o| super::forward(b, o, aten::LINALG_HOUSEHOLDER_PRODUCT)),
    composite(aten::ORMQR, by_lowering, ormqr),
    composite(aten::LINALG_QR, by_lowering, qr),
    kernel(aten::_LINALG_SVD, svd_type),
    composite(aten::LINALG_SVD, by_lowering, |b, o| svd(b, o.value(0)?, o.bool(1)?).map(Some)),
    composite(aten::LINALG_SVDVALS, by_lowering, |b, o| singular_values(b, o.value(0)?).and_then(done)),
    composite(aten::SVD, by_lowering, old_svd),
    kernel(aten::_LINALG_EIGH, eigh_type),
    composite(aten::LINALG_EIGH, by_lowering, |b, o| eigh(b, o, true).map(Some)),
    composite(aten::LINALG_EIGVALSH, by_lowering, |b, o| Ok(Some(eigh(b, o, false)?.into_iter().take(1).collect()))),
    kernel(aten::LINALG_EIG, eig_type),
    composite(aten::LINALG_EIGVALS, by_lowering, |b, o| first_of(b, o, aten::LINALG_EIG, 1)),
    composite(aten::_LINALG_EIGVALS, by_lowering, |b, o| first_of(b, o, aten::LINALG_EIG, 1)),
    kernel(aten::LINALG_MATRIX_EXP, |o, g| square(o, 0, g).and(same(o, g))),
    composite(aten::MATRIX_EXP, same, |b, o| super::forward(b, o, aten::LINALG_MATRIX_EXP)),
];

/// A batch of matrices.
pub(crate) struct Matrices {
    pub(crate) dtype: ScalarType,
    pub(crate) batch: Vec<Expr>,
    pub(crate) rows: Expr,
    pub(crate) columns: Expr,
}

impl Matrices {
    /// The minimum of the row count and the column count.
    pub(crate) fn short(&self) -> Expr {
        if self.rows == self.columns { self.rows.clone() } else { self.rows.at_most(self.columns.clone()) }
    }

    fn with(&self, each: &[&Expr]) -> Vec<Expr> {
        self.batch.iter().chain(each.iter().copied()).cloned().collect()
    }

    fn tensor(&self, each: &[&Expr]) -> Type {
        tensor(self.dtype, self.with(each))
    }

    fn integers(&self, each: &[&Expr]) -> Type {
        tensor(ScalarType::Int, self.with(each))
    }
}

/// The matrices of an argument, which kernels take in `f32` and `f64`.
pub(crate) fn matrices(operands: &Operands<'_>, index: usize, graph: &Graph) -> Result<Matrices, Error> {
    let input = operands.tensor(index, graph)?;
    if !matches!(input.dtype, ScalarType::Float | ScalarType::Double) {
        return Err(Error::unsupported(format!("`{}` of this dtype", operands.schema.name))
            .expected("f32 or f64")
            .got(input.dtype.name())
            .help("convert it first, as with `x.to(torch.float32)`; complex matrices have no kernels"));
    }
    let [batch @ .., rows, columns] = input.shape.as_slice() else {
        return Err(operands.wrong(index, "a tensor of at least 2 dimensions"));
    };
    let (rows, columns) = (rows.clone(), columns.clone());
    Ok(Matrices { dtype: input.dtype, batch: batch.to_vec(), rows, columns })
}

/// The square matrices of an argument.
fn square(operands: &Operands<'_>, index: usize, graph: &Graph) -> Result<Matrices, Error> {
    let matrices = matrices(operands, index, graph)?;
    if matrices.rows.is_static() && matrices.columns.is_static() && matrices.rows != matrices.columns {
        return Err(operands.wrong(index, "square matrices"));
    }
    Ok(matrices)
}

fn lu_factor_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let a = matrices(operands, 0, graph)?;
    Ok(vec![a.tensor(&[&a.rows, &a.columns]), a.integers(&[&a.short()]), a.integers(&[])])
}

fn lu_unpack_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let a = matrices(operands, 0, graph)?;
    let nothing = || tensor(a.dtype, vec![Expr::Int(0)]);
    let (data, pivots) = (operands.bool(2)?, operands.bool(3)?);
    Ok(vec![
        if pivots { a.tensor(&[&a.rows, &a.rows]) } else { nothing() },
        if data { a.tensor(&[&a.rows, &a.short()]) } else { nothing() },
        if data { a.tensor(&[&a.short(), &a.columns]) } else { nothing() },
    ])
}

/// The type of a solution: the right-hand side, with its batch broadcast with that of the matrices.
fn solution_type(operands: &Operands<'_>, graph: &Graph, left: usize, right: usize) -> Result<Vec<Type>, Error> {
    let (a, b) = (square(operands, left, graph)?, matrices(operands, right, graph)?);
    let mut shape = broadcast([a.batch.as_slice(), b.batch.as_slice()])?;
    shape.extend([b.rows, b.columns]);
    one(a.dtype, shape)
}

/// The matrices again, and an integer for each.
fn with_info(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let a = square(operands, 0, graph)?;
    Ok(vec![a.tensor(&[&a.rows, &a.columns]), a.integers(&[])])
}

/// `count` numbers for each matrix, and its LU factors.
fn determinant_type(operands: &Operands<'_>, graph: &Graph, count: usize) -> Result<Vec<Type>, Error> {
    let a = square(operands, 0, graph)?;
    let mut types = vec![a.tensor(&[]); count];
    types.extend([a.tensor(&[&a.rows, &a.columns]), a.integers(&[&a.rows])]);
    Ok(types)
}

/// True if the right side is a batch of vectors, by PyTorch's rule.
fn is_vector(a: &TensorType, b: &TensorType) -> bool {
    b.rank() == 1 || (b.rank() + 1 == a.rank() && a.shape.get(..b.rank()) == Some(b.shape.as_slice()))
}

fn solve_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let a = square(operands, 0, graph)?;
    let (matrix, right) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let own = if is_vector(matrix, right) { 1 } else { 2 };
    let (batch, each) = right
        .shape
        .split_at_checked(right.rank().saturating_sub(own))
        .filter(|(_, each)| each.len() == own)
        .ok_or_else(|| operands.wrong(1, "vectors or matrices"))?;
    let mut shape = broadcast([a.batch.as_slice(), batch])?;
    shape.extend_from_slice(each);
    let factors = [a.tensor(&[&a.rows, &a.columns]), a.integers(&[&a.rows]), a.integers(&[])];
    Ok([vec![tensor(a.dtype, shape)], factors.to_vec()].concat())
}

fn geqrf_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let a = matrices(operands, 0, graph)?;
    Ok(vec![a.tensor(&[&a.rows, &a.columns]), a.tensor(&[&a.short()])])
}

fn svd_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let a = matrices(operands, 0, graph)?;
    let (full, vectors, short) = (operands.bool(1)?, operands.bool(2)?, a.short());
    let nothing = || tensor(a.dtype, vec![Expr::Int(0)]);
    Ok(vec![
        if vectors { a.tensor(&[&a.rows, if full { &a.rows } else { &short }]) } else { nothing() },
        a.tensor(&[&short]),
        if vectors { a.tensor(&[if full { &a.columns } else { &short }, &a.columns]) } else { nothing() },
    ])
}

fn eigh_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let a = square(operands, 0, graph)?;
    let vectors = operands.bool(2)?;
    let nothing = || tensor(a.dtype, vec![Expr::Int(0)]);
    Ok(vec![a.tensor(&[&a.rows]), if vectors { a.tensor(&[&a.rows, &a.columns]) } else { nothing() }])
}

fn eig_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let a = square(operands, 0, graph)?;
    let dtype = complex_dtype(a.dtype);
    Ok(vec![tensor(dtype, a.with(&[&a.rows])), tensor(dtype, a.with(&[&a.rows, &a.columns]))])
}

/// The first result of an operator, called with `check_errors=True`.
fn checked(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    let args = vec![operands.arg(0).clone(), Arg::from(true)];
    Ok(Some(b.call(name, args)?.into_iter().take(1).collect()))
}

/// The first `count` results of an operator that takes the first argument.
fn first_of(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str, count: usize) -> Lowered {
    Ok(Some(b.call(name, vec![operands.arg(0).clone()])?.into_iter().take(count).collect()))
}

fn lu_factor(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let args = vec![operands.arg(0).clone(), operands.arg(1).clone(), Arg::from(true)];
    Ok(Some(b.call(aten::LINALG_LU_FACTOR_EX, args)?.into_iter().take(2).collect()))
}

fn lu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let factors = b.call(aten::LINALG_LU_FACTOR_EX, vec![operands.arg(0).clone(), operands.arg(1).clone()])?;
    let args = factors.into_iter().take(2).map(Arg::from).collect();
    b.call(aten::LU_UNPACK, args).map(Some)
}

/// `lu_solve(B, LU, pivots)`.
fn lu_solve(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let args = vec![operands.arg(1).clone(), operands.arg(2).clone(), operands.arg(0).clone()];
    b.one(aten::LINALG_LU_SOLVE, args).and_then(done)
}

/// The logarithm of the determinant; NaN where that is negative.
fn logdet(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let results = b.call(aten::_LINALG_SLOGDET, vec![operands.arg(0).clone()])?;
    let [sign, log, ..] = results.as_slice() else { return Ok(None) };
    let negative = b.compare(aten::packet::EQ, *sign, -1)?;
    b.select(negative, f64::NAN, *log).and_then(done)
}

fn solve_ex(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let results = b.call(aten::_LINALG_SOLVE_EX, operands.args.to_vec())?;
    Ok(Some(results.iter().take(1).chain(results.last()).copied().collect()))
}

fn solve(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let args = vec![operands.arg(0).clone(), operands.arg(1).clone(), operands.arg(2).clone(), Arg::from(true)];
    Ok(Some(b.call(aten::_LINALG_SOLVE_EX, args)?.into_iter().take(1).collect()))
}

/// `triangular_solve(B, A, upper, transpose, unitriangular)`, which returns the matrix too.
fn triangular_solve(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (right, matrix) = (operands.value(0)?, operands.value(1)?);
    let (upper, transposed) = (operands.bool(2)?, operands.bool(3)?);
    let turned = if transposed { transpose_last(b, matrix)? } else { matrix };
    let args = vec![turned.into(), right.into(), Arg::from(upper != transposed)];
    let unit = [("unitriangular", operands.arg(4).clone())];
    let solution = b.one_with(aten::LINALG_SOLVE_TRIANGULAR, args, &unit)?;
    let batch = b.tensor(solution)?.shape;
    let (batch, own) = (batch.get(..batch.len().saturating_sub(2)).unwrap_or_default(), b.tensor(matrix)?.shape);
    let own = own.get(own.len().saturating_sub(2)..).unwrap_or_default();
    let shape = [batch, own].concat();
    let coefficient = super::views::expand(b, matrix, shape)?;
    Ok(Some(vec![solution, coefficient]))
}

fn cholesky(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let args = vec![operands.arg(0).clone(), operands.arg(1).clone(), Arg::from(true)];
    Ok(Some(b.call(aten::LINALG_CHOLESKY_EX, args)?.into_iter().take(1).collect()))
}

/// `cholesky_solve(B, L, upper)`.
fn cholesky_solve(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    by_factor(b, operands.value(1)?, operands.value(0)?, operands.bool(2)?).and_then(done)
}

/// Solves with the matrix `L L'`, or `L' L` where the factor is an upper one.
fn by_factor(b: &mut Builder<'_>, factor: ValueId, right: ValueId, upper: bool) -> Result<ValueId, Error> {
    let turned = transpose_last(b, factor)?;
    let (first, second) = if upper { (turned, factor) } else { (factor, turned) };
    let half = b.one(aten::LINALG_SOLVE_TRIANGULAR, vec![first.into(), right.into(), Arg::from(false)])?;
    b.one(aten::LINALG_SOLVE_TRIANGULAR, vec![second.into(), half.into(), Arg::from(true)])
}

fn cholesky_inverse(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let factor = operands.value(0)?;
    let unit = super::matmul::identity_matrices(b, factor)?;
    by_factor(b, factor, unit, operands.bool(1)?).and_then(done)
}

/// The complete orthogonal matrix of the Householder reflections below the diagonal of `a`.
fn complete(b: &mut Builder<'_>, a: ValueId, factors: ValueId) -> Result<ValueId, Error> {
    let ty = b.tensor(a)?;
    let [.., rows, columns] = ty.shape.as_slice() else { return Ok(a) };
    let (Some(height), Some(width)) = (rows.as_int(), columns.as_int()) else {
        return Err(Error::unsupported("all columns of an orthogonal matrix of a size that depends on an input"));
    };
    let dim = ty.rank() - 1;
    let vectors = match width.cmp(&height) {
        Ordering::Greater => slice(b, a, dim, 0, height)?,
        Ordering::Less => b.one(aten::CONSTANT_PAD_ND, vec![a.into(), [0, height - width].into()])?,
        Ordering::Equal => a,
    };
    b.one(aten::LINALG_HOUSEHOLDER_PRODUCT, vec![vectors.into(), factors.into()])
}

/// Multiplies a matrix by the orthogonal matrix of Householder reflections.
fn ormqr(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    matrices(operands, 0, b.graph)?;
    let q = complete(b, operands.value(0)?, operands.value(1)?)?;
    let q = if operands.bool(4)? { transpose_last(b, q)? } else { q };
    let other = operands.value(2)?;
    if operands.bool(3)? { matmul(b, q, other) } else { matmul(b, other, q) }.and_then(done)
}

fn qr(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let a = matrices(operands, 0, b.graph)?;
    let mode = operands.str(1)?.unwrap_or("reduced");
    let results = b.call(aten::GEQRF, vec![operands.arg(0).clone()])?;
    let &[packed, factors] = results.as_slice() else { return Ok(None) };
    let (rank, short) = (a.batch.len() + 2, a.short());
    let (q, r) = match mode {
        "complete" => (complete(b, packed, factors)?, packed),
        "reduced" => {
            let vectors = slice(b, packed, rank - 1, 0, short.clone())?;
            let q = b.one(aten::LINALG_HOUSEHOLDER_PRODUCT, vec![vectors.into(), factors.into()])?;
            (q, slice(b, packed, rank - 2, 0, short)?)
        }
        "r" => {
            let nothing = filled(b, Arg::from([0]), Arg::from(0), a.dtype)?;
            (nothing, slice(b, packed, rank - 2, 0, short)?)
        }
        _ => return Err(operands.wrong(1, "\"reduced\", \"complete\" or \"r\"")),
    };
    Ok(Some(vec![q, b.unary(aten::TRIU, r)?]))
}

/// Left vectors, values and right vectors.
pub(crate) fn svd(b: &mut Builder<'_>, a: ValueId, full: bool) -> Result<Vec<ValueId>, Error> {
    b.call(aten::_LINALG_SVD, vec![a.into(), Arg::from(full), Arg::from(true)])
}

/// The singular values of matrices, the largest first.
pub(crate) fn singular_values(b: &mut Builder<'_>, a: ValueId) -> Result<ValueId, Error> {
    let results = b.call(aten::_LINALG_SVD, vec![a.into(), Arg::from(false), Arg::from(false)])?;
    results.get(1).copied().ok_or_else(|| Error::unsupported("singular values"))
}

/// `svd(A, some, compute_uv)`, whose last result is not transposed.
fn old_svd(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let a = matrices(operands, 0, b.graph)?;
    if operands.bool(2)? {
        let results = svd(b, operands.value(0)?, !operands.bool(1)?)?;
        let &[u, s, vh] = results.as_slice() else { return Ok(None) };
        return Ok(Some(vec![u, s, transpose_last(b, vh)?]));
    }
    let values = singular_values(b, operands.value(0)?)?;
    let mut zeros = |size: &Expr| filled(b, a.with(&[size, size]).into(), Arg::from(0), a.dtype);
    Ok(Some(vec![zeros(&a.rows)?, values, zeros(&a.columns)?]))
}

/// Eigenvalues, and eigenvectors if `vectors`.
fn eigh(b: &mut Builder<'_>, operands: &Operands<'_>, vectors: bool) -> Result<Vec<ValueId>, Error> {
    let args = vec![operands.arg(0).clone(), operands.arg(1).clone(), Arg::from(vectors)];
    b.call(aten::_LINALG_EIGH, args)
}
