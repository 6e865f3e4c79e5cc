//! Matmuls of all kinds, which become `mm`, `bmm` and `addmm`.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, transformers};
use crate::{Arg, Builder, Expr, Graph, TensorType, Type, ValueId};

use super::promotion::category;
use super::views::{self, expand, permute, squeeze, transpose_last, unsqueeze};
use super::{Definition, Lowered, Operands, broadcast, by_lowering, composite, kernel, result};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::MM, matrix_product, complex_product),
    kernel(aten::BMM, batched_product),
    kernel(aten::ADDMM, added_product),
    composite(aten::MM_DTYPE, by_lowering, in_dtype),
    composite(aten::BMM_DTYPE, by_lowering, in_dtype),
    composite(aten::ADDMM_DTYPE, by_lowering, in_dtype),
    composite(aten::BADDBMM_DTYPE, by_lowering, in_dtype),
    composite(aten::_INT_MM, by_lowering, int_product),
    composite(aten::_GROUPED_MM, by_lowering, grouped_product),
    kernel(transformers::GROUPED_MM_FALLBACK, grouped_type),
    composite(aten::LINEAR, linear_type, linear),
    composite(aten::MATMUL, matmul_type, as_matmul),
    composite(aten::LINALG_MATMUL, matmul_type, as_matmul),
    composite(aten::MV, matmul_type, as_matmul),
    composite(aten::DOT, matmul_type, as_matmul),
    composite(aten::VDOT, matmul_type, as_matmul),
    composite(aten::BADDBMM, by_lowering, baddbmm),
    composite(aten::ADDBMM, by_lowering, addbmm),
    composite(aten::ADDMV, by_lowering, addmv),
    composite(aten::ADDR, by_lowering, addr),
    composite(aten::OUTER, by_lowering, outer),
    composite(aten::GER, by_lowering, outer),
    composite(aten::INNER, by_lowering, inner),
    composite(aten::LINALG_VECDOT, by_lowering, vecdot),
    composite(aten::CHAIN_MATMUL, by_lowering, chain),
    composite(aten::LINALG_MULTI_DOT, by_lowering, chain),
    composite(aten::MATRIX_POWER, by_lowering, matrix_power),
    composite(aten::LINALG_MATRIX_POWER, by_lowering, matrix_power),
    composite(aten::KRON, by_lowering, kron),
    composite(aten::LINALG_CROSS, by_lowering, cross),
    composite(aten::CROSS, by_lowering, cross),
];

/// Infers the type of a grouped GEMM: groups of the rows of `[M, K]`, each with a matrix of `[G, K, N]`.
fn grouped_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (rows, matrices) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let ([m, _], [_, _, n]) = (rows.shape.as_slice(), matrices.shape.as_slice()) else {
        return Err(operands.wrong(1, "a matrix for each group of the rows of a matrix"));
    };
    Ok(result(rows.dtype, vec![m.clone(), n.clone()]))
}

/// Lowers `_grouped_mm`: groups of rows, whose ends `offs` holds, or a batched GEMM without `offs`.
fn grouped_product(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (rows, matrices, ends) = (operands.value(0)?, operands.value(1)?, operands.optional(2)?);
    let dtype = b.tensor(rows)?.dtype;
    let converts = operands.dtype(4)?.is_some_and(|wanted| wanted != dtype);
    if operands.optional(3)?.is_some() || converts {
        return Err(Error::unsupported("a grouped matrix product with a bias or of another dtype"));
    }
    let (name, args) = match (b.tensor(rows)?.rank(), b.tensor(matrices)?.rank(), ends) {
        (2, 3, Some(ends)) => (transformers::GROUPED_MM_FALLBACK, vec![rows.into(), matrices.into(), ends.into()]),
        (3, 3, None) => (aten::BMM, vec![rows.into(), matrices.into()]),
        _ => return Err(Error::unsupported("a grouped matrix product with groups of columns")),
    };
    b.one(name, args).map(|product| Some(vec![product]))
}

/// `torch.matmul`: a matmul of the last two dimensions, broadcast over the others.
pub(crate) fn matmul(b: &mut Builder<'_>, left: ValueId, right: ValueId) -> Result<ValueId, Error> {
    let (x, y) = (b.tensor(left)?, b.tensor(right)?);
    let shape = matmul_shape(&x, &y)?;
    let (x_rank, y_rank) = (x.rank(), y.rank());
    // A vector is a matrix of one row on the left, of one column on the right.
    let left = if x_rank == 1 { unsqueeze(b, left, 0)? } else { left };
    let right = if y_rank == 1 { unsqueeze(b, right, 1)? } else { right };
    if x_rank <= 2 && y_rank <= 2 {
        let product = product(b, left, right)?;
        return b.view(product, shape);
    }
    if y_rank <= 2 {
        // The rows of all matrices on the left are rows of one.
        let (rows, inner) = rows_and_columns(&x)?;
        let flat = b.view(left, vec![rows, inner])?;
        let product = product(b, flat, right)?;
        return b.view(product, shape);
    }
    let (x, y) = (b.tensor(left)?, b.tensor(right)?);
    let (x_batch, y_batch) = (leading(&x, 2), leading(&y, 2));
    let batch = broadcast([x_batch, y_batch])?;
    let count = Expr::product(&batch);
    let mut stack = |value: ValueId, ty: &TensorType| {
        let matrix = ty.shape.get(ty.rank().saturating_sub(2)..).unwrap_or_default();
        let whole = expand(b, value, [batch.as_slice(), matrix].concat())?;
        b.view(whole, [std::slice::from_ref(&count), matrix].concat())
    };
    let (left, right) = (stack(left, &x)?, stack(right, &y)?);
    let product = b.one(aten::BMM, vec![left.into(), right.into()])?;
    b.view(product, shape)
}

/// A matmul of two matrices. Kernels multiply complex ones only in batches.
pub(crate) fn product(b: &mut Builder<'_>, left: ValueId, right: ValueId) -> Result<ValueId, Error> {
    if !b.tensor(left)?.dtype.is_complex() {
        return b.one(aten::MM, vec![left.into(), right.into()]);
    }
    let (left, right) = (unsqueeze(b, left, 0)?, unsqueeze(b, right, 0)?);
    let stack = b.one(aten::BMM, vec![left.into(), right.into()])?;
    squeeze(b, stack, 0)
}

/// `input @ weight.T + bias`, with the rows of all leading dimensions in one GEMM.
pub(crate) fn linear_of(
    b: &mut Builder<'_>,
    input: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
) -> Result<ValueId, Error> {
    let (x, w) = (b.tensor(input)?, b.tensor(weight)?);
    if w.rank() != 2 {
        let product = matmul(b, input, weight)?;
        return match bias {
            Some(bias) => b.one(aten::ADD_TENSOR, vec![product.into(), bias.into()]),
            None => Ok(product),
        };
    }
    let (rows, inner) = rows_and_columns(&x)?;
    let columns = w.shape.first().cloned().unwrap_or(Expr::Int(1));
    let shape = [leading(&x, 1), &[columns]].concat();
    let flat = b.view(input, vec![rows, inner])?;
    let transposed = views::transpose(b, weight, 0, 1)?;
    let product = match bias {
        Some(bias) if x.dtype.is_complex() => {
            let product = product(b, flat, transposed)?;
            b.one(aten::ADD_TENSOR, vec![product.into(), bias.into()])?
        }
        Some(bias) => b.one(aten::ADDMM, vec![bias.into(), flat.into(), transposed.into()])?,
        None => product(b, flat, transposed)?,
    };
    b.view(product, shape)
}

/// A tensor times a number; nothing to do for 1.
pub(crate) fn scaled(b: &mut Builder<'_>, value: ValueId, by: &Arg) -> Result<ValueId, Error> {
    if is_one(by) { Ok(value) } else { b.one(aten::MUL_SCALAR, vec![value.into(), by.clone()]) }
}

fn is_one(arg: &Arg) -> bool {
    matches!(arg, Arg::Int(expr) if expr.is(1)) || *arg == Arg::Float(1.0)
}

fn is_zero(arg: &Arg) -> bool {
    matches!(arg, Arg::Int(expr) if expr.is(0)) || *arg == Arg::Float(0.0) || *arg == Arg::Bool(false)
}

/// The dimensions before the last `count`.
fn leading(ty: &TensorType, count: usize) -> &[Expr] {
    ty.shape.get(..ty.rank().saturating_sub(count)).unwrap_or_default()
}

/// A tensor seen as one matrix whose columns are the last dimension.
fn rows_and_columns(ty: &TensorType) -> Result<(Expr, Expr), Error> {
    let columns =
        ty.shape.last().cloned().ok_or_else(|| Error::type_error("a product with a tensor without dimensions"))?;
    Ok((Expr::product(leading(ty, 1)), columns))
}

fn complex_product(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if !operands.tensor(0, b.graph)?.dtype.is_complex() {
        return Ok(None);
    }
    Ok(Some(vec![product(b, operands.value(0)?, operands.value(1)?)?]))
}

/// The matmul, without `.dtype`, of the tensors in the result's dtype.
fn in_dtype(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let schema = operands.schema;
    let at = schema.position("out_dtype").ok_or_else(|| operands.wrong(0, "an operator with a result dtype"))?;
    let dtype = operands.dtype(at)?.ok_or_else(|| operands.wrong(at, "a dtype"))?;
    let tensors = (0..at).map(|index| b.cast(operands.value(index)?, dtype).map(Arg::Value));
    let mut args = tensors.collect::<Result<Vec<_>, _>>()?;
    args.extend(operands.args.get(at + 1..).unwrap_or_default().iter().cloned());
    b.call(schema.base_name(), args).map(Some)
}

/// An int8 matmul, accumulated in 32 bits.
fn int_product(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let left = b.cast(operands.value(0)?, ScalarType::Int)?;
    let right = b.cast(operands.value(1)?, ScalarType::Int)?;
    Ok(Some(vec![product(b, left, right)?]))
}

/// Checks that two sizes can be equal.
fn check_inner(operation: &str, left: &Expr, right: &Expr) -> Result<(), Error> {
    if left.is_static() && right.is_static() && left != right {
        let text = |size: &Expr| size.as_int().unwrap_or_default();
        return Err(Error::type_error(format!("inner sizes of `{operation}` differ"))
            .expected(text(left))
            .got(text(right)));
    }
    Ok(())
}

fn matrix_product(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    product_type(operands, 0, graph)
}

fn added_product(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    product_type(operands, 1, graph)
}

/// `[m, k] x [k, n]` of the arguments from `first` on.
fn product_type(operands: &Operands<'_>, first: usize, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (x, y) = (operands.tensor(first, graph)?, operands.tensor(first + 1, graph)?);
    let ([m, k], [k2, n]) = (x.shape.as_slice(), y.shape.as_slice()) else {
        return Err(operands.wrong(first, "two matrices"));
    };
    check_inner(&operands.schema.name, k, k2)?;
    check_dtypes(operands, first, x, y)?;
    Ok(result(x.dtype, vec![m.clone(), n.clone()]))
}

fn batched_product(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (x, y) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let ([count, m, k], [count2, k2, n]) = (x.shape.as_slice(), y.shape.as_slice()) else {
        return Err(operands.wrong(0, "two stacks of matrices"));
    };
    check_inner(&operands.schema.name, k, k2)?;
    check_inner(&operands.schema.name, count, count2)?;
    check_dtypes(operands, 0, x, y)?;
    Ok(result(x.dtype, vec![count.clone(), m.clone(), n.clone()]))
}

fn check_dtypes(operands: &Operands<'_>, first: usize, x: &TensorType, y: &TensorType) -> Result<(), Error> {
    if x.dtype != y.dtype {
        return Err(operands.wrong(first + 1, &format!("a tensor of {}, not {}", x.dtype.name(), y.dtype.name())));
    }
    Ok(())
}

fn matmul_shape(x: &TensorType, y: &TensorType) -> Result<Vec<Expr>, Error> {
    let columns = |ty: &TensorType| ty.shape.last().cloned();
    let rows = |ty: &TensorType| if ty.rank() == 1 { columns(ty) } else { ty.shape.iter().rev().nth(1).cloned() };
    let (Some(k), Some(k2)) = (columns(x), rows(y)) else {
        return Err(Error::type_error("`matmul` of a tensor without dimensions"));
    };
    check_inner(aten::MATMUL, &k, &k2)?;
    let mut shape = broadcast([leading(x, 2), leading(y, 2)])?;
    if x.rank() > 1 {
        shape.extend(rows(x));
    }
    if y.rank() > 1 {
        shape.extend(columns(y));
    }
    Ok(shape)
}

fn matmul_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (x, y) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    check_dtypes(operands, 0, x, y)?;
    Ok(result(x.dtype, matmul_shape(x, y)?))
}

fn as_matmul(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if operands.schema.name == aten::VDOT && operands.tensor(0, b.graph)?.dtype.is_complex() {
        return Err(Error::unsupported("`aten::vdot` of complex numbers"));
    }
    Ok(Some(vec![matmul(b, operands.value(0)?, operands.value(1)?)?]))
}

fn linear_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (x, w) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let (_, inner) = rows_and_columns(x)?;
    check_dtypes(operands, 0, x, w)?;
    let (columns, expected) = match w.shape.as_slice() {
        [columns, inner] => (Some(columns.clone()), inner),
        [inner] => (None, inner),
        _ => return Err(operands.wrong(1, "a matrix")),
    };
    check_inner(aten::LINEAR, expected, &inner)?;
    Ok(result(x.dtype, leading(x, 1).iter().cloned().chain(columns).collect()))
}

fn linear(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    Ok(Some(vec![linear_of(b, operands.value(0)?, operands.value(1)?, operands.optional(2)?)?]))
}

/// `beta * self + alpha * product`.
fn added(b: &mut Builder<'_>, operands: &Operands<'_>, product: ValueId) -> Lowered {
    let addend = operands.value(0)?;
    let dtype = b.tensor(product)?.dtype;
    let whole = |arg: &Arg| match arg {
        Arg::Float(value) if !dtype.is_floating() && !dtype.is_complex() => Arg::from(*value as i64),
        arg => arg.clone(),
    };
    let (beta, alpha) = (&whole(operands.arg(3)), &whole(operands.arg(4)));
    let is_computed = |arg: &Arg| arg.as_value().is_some() || matches!(arg, Arg::Int(expr) if !expr.is_static());
    if category(dtype) < 2
        && let Some(at) = [3, 4].into_iter().find(|at| is_computed(operands.arg(*at)))
    {
        return Err(operands.wrong(at, "for integers, a number that is known when the program is compiled"));
    }
    let product = scaled(b, product, alpha)?;
    // With a factor of zero, the addend's infinities and NaNs do not count.
    if is_zero(beta) {
        return Ok(Some(vec![b.cast(product, dtype)?]));
    }
    let addend = if is_computed(beta) {
        let factor = b.as_tensor(beta, ScalarType::Double)?;
        let counts = b.compare(aten::packet::NE, factor, 0)?;
        b.select(counts, addend, 0)?
    } else {
        addend
    };
    let sum = b.one_with(aten::ADD_TENSOR, vec![product.into(), addend.into()], &[("alpha", beta.clone())])?;
    let dtype = super::promotion::wider(dtype, b.tensor(addend)?.dtype);
    Ok(Some(vec![b.cast(sum, dtype)?]))
}

fn baddbmm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let product = b.one(aten::BMM, vec![operands.value(1)?.into(), operands.value(2)?.into()])?;
    added(b, operands, product)
}

/// A sum of matmuls is one matmul with a longer inner dimension.
fn addbmm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y) = (operands.tensor(1, b.graph)?.clone(), operands.tensor(2, b.graph)?.clone());
    let ([count, m, k], [_, _, n]) = (x.shape.as_slice(), y.shape.as_slice()) else {
        return Err(operands.wrong(1, "two stacks of matrices"));
    };
    let inner = count.mul(k.clone());
    let left = permute(b, operands.value(1)?, &[1, 0, 2])?;
    let left = b.view(left, vec![m.clone(), inner.clone()])?;
    let right = b.view(operands.value(2)?, vec![inner, n.clone()])?;
    let args = vec![operands.value(0)?.into(), left.into(), right.into()];
    let named = [("beta", operands.arg(3).clone()), ("alpha", operands.arg(4).clone())];
    b.one_with(aten::ADDMM, args, &named).map(|sum| Some(vec![sum]))
}

fn addmv(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let product = matmul(b, operands.value(1)?, operands.value(2)?)?;
    added(b, operands, product)
}

fn addr(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let product = outer_of(b, operands.value(1)?, operands.value(2)?)?;
    added(b, operands, product)
}

fn outer_of(b: &mut Builder<'_>, left: ValueId, right: ValueId) -> Result<ValueId, Error> {
    let column = unsqueeze(b, left, 1)?;
    let row = unsqueeze(b, right, 0)?;
    b.one(aten::MUL_TENSOR, vec![column.into(), row.into()])
}

fn outer(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    Ok(Some(vec![outer_of(b, operands.value(0)?, operands.value(1)?)?]))
}

/// The inner product over the last dimensions of both.
fn inner(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (left, right) = (operands.value(0)?, operands.value(1)?);
    let (x, y) = (b.tensor(left)?, b.tensor(right)?);
    if x.rank() == 0 || y.rank() == 0 {
        return b.call(aten::MUL_TENSOR, vec![left.into(), right.into()]).map(Some);
    }
    let ((x_rows, k), (y_rows, k2)) = (rows_and_columns(&x)?, rows_and_columns(&y)?);
    let left = b.view(left, vec![x_rows, k])?;
    let right = b.view(right, vec![y_rows, k2])?;
    let right = transpose_last(b, right)?;
    let product = product(b, left, right)?;
    Ok(Some(vec![b.view(product, [leading(&x, 1), leading(&y, 1)].concat())?]))
}

fn vecdot(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if operands.tensor(0, b.graph)?.dtype.is_complex() {
        return Err(Error::unsupported("`aten::linalg_vecdot` of complex numbers"));
    }
    let product = b.one(aten::MUL_TENSOR, vec![operands.value(0)?.into(), operands.value(1)?.into()])?;
    let dtype = b.tensor(product)?.dtype;
    let dims = Arg::List(vec![operands.arg(2).clone()]);
    b.one_with(aten::SUM_DIM_INTLIST, vec![product.into(), dims], &[("dtype", dtype.into())]).map(|sum| Some(vec![sum]))
}

/// Products from left to right.
fn chain(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let matrices = operands.values(0)?;
    let Some((first, rest)) = matrices.split_first() else { return Err(operands.wrong(0, "at least one matrix")) };
    let product = rest.iter().try_fold(*first, |product, next| matmul(b, product, *next))?;
    Ok(Some(vec![product]))
}

/// Repeated squaring. Negative powers need an inverse, which no kernel computes.
fn matrix_power(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let power = operands.int(1)?;
    if power == 0 {
        return identity_matrices(b, operands.value(0)?).map(|value| Some(vec![value]));
    }
    let mut square = operands.value(0)?;
    if power < 0 {
        square = b.one(aten::LINALG_INV, vec![square.into()])?;
    }
    let (mut rest, mut product) = (power.unsigned_abs(), None);
    loop {
        if rest & 1 == 1 {
            product = Some(match product {
                Some(product) => matmul(b, product, square)?,
                None => square,
            });
        }
        rest >>= 1;
        if rest == 0 {
            return Ok(product.map(|product| vec![product]));
        }
        square = matmul(b, square, square)?;
    }
}

/// Ones on the diagonal of each matrix, and zeros elsewhere.
pub(crate) fn identity_matrices(b: &mut Builder<'_>, like: ValueId) -> Result<ValueId, Error> {
    let ty = b.tensor(like)?;
    let diagonal = ty.shape.get(..ty.rank().saturating_sub(1)).unwrap_or_default().to_vec();
    let ones = b.one_with(aten::FULL, vec![diagonal.into(), 1.into()], &[("dtype", ty.dtype.into())])?;
    b.one(aten::DIAG_EMBED, vec![ones.into()])
}

/// Every element of one times the whole other.
fn kron(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (left, right) = (operands.value(0)?, operands.value(1)?);
    let (x, y) = (b.tensor(left)?, b.tensor(right)?);
    let rank = x.rank().max(y.rank());
    let padded = |ty: &TensorType| [vec![Expr::Int(1); rank - ty.rank()], ty.shape.clone()].concat();
    let (x, y) = (padded(&x), padded(&y));
    let outer_shape = x.iter().flat_map(|size| [size.clone(), Expr::Int(1)]).collect();
    let inner_shape = y.iter().flat_map(|size| [Expr::Int(1), size.clone()]).collect();
    let left = b.view(left, outer_shape)?;
    let right = b.view(right, inner_shape)?;
    let product = b.one(aten::MUL_TENSOR, vec![left.into(), right.into()])?;
    Ok(Some(vec![b.view(product, x.iter().zip(&y).map(|(x, y)| x.mul(y.clone())).collect())?]))
}

/// The cross product along a dimension of three elements.
fn cross(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (left, right) = (operands.value(0)?, operands.value(1)?);
    let shape = broadcast([b.tensor(left)?.shape.as_slice(), b.tensor(right)?.shape.as_slice()])?;
    let dim = if operands.has(2) {
        operands.dim(2, shape.len())?
    } else {
        let three = shape.iter().position(|size| size.is(3));
        three.ok_or_else(|| operands.wrong(0, "a dimension of size 3 that depends on no input"))?
    };
    let (left, right) = (expand(b, left, shape.clone())?, expand(b, right, shape)?);
    let mut rolled = |value: ValueId, by: i64| b.one(aten::ROLL, vec![value.into(), [by].into(), [dim as i64].into()]);
    let (left_next, right_after) = (rolled(left, -1)?, rolled(right, -2)?);
    let (left_after, right_next) = (rolled(left, -2)?, rolled(right, -1)?);
    let plus = b.one(aten::MUL_TENSOR, vec![left_next.into(), right_after.into()])?;
    let minus = b.one(aten::MUL_TENSOR, vec![left_after.into(), right_next.into()])?;
    b.call(aten::SUB_TENSOR, vec![plus.into(), minus.into()]).map(Some)
}
