//! Tensors made of numbers.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, dim_order_ops};
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::inference::one;
use super::number::check_computed;
use super::promotion::category;
use super::{Definition, Lowered, Operands, composite, done, kernel, known_number};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::FULL, |o, g| sized(o, g, 0, scalar_dtype(o.arg(1), g))),
    kernel(aten::ZEROS, |o, g| sized(o, g, 0, ScalarType::Float)),
    kernel(aten::ONES, |o, g| sized(o, g, 0, ScalarType::Float)),
    composite(aten::_EFFICIENTZEROTENSOR, |o, g| sized(o, g, 0, ScalarType::Float), |b, o| full(b, o, 0, 0)),
    kernel(aten::EMPTY_MEMORY_FORMAT, |o, g| sized(o, g, 0, ScalarType::Float)),
    kernel(dim_order_ops::_EMPTY_DIM_ORDER, |o, g| sized(o, g, 0, ScalarType::Float)),
    composite(aten::EMPTY_STRIDED, |o, g| sized(o, g, 0, ScalarType::Float), |b, o| full(b, o, 0, 0)),
    composite(aten::EMPTY_PERMUTED, |o, g| sized(o, g, 0, ScalarType::Float), |b, o| full(b, o, 0, 0)),
    kernel(aten::FULL_LIKE, like),
    composite(aten::ZEROS_LIKE, like, |b, o| full_like(b, o, 0)),
    composite(aten::ONES_LIKE, like, |b, o| full_like(b, o, 1)),
    composite(aten::EMPTY_LIKE, like, |b, o| full_like(b, o, 0)),
    composite(aten::ZERO, like, |b, o| full_like(b, o, 0)),
    composite(aten::NEW_FULL, |o, g| sized_as(o, g, 1), new_full),
    composite(aten::NEW_ZEROS, |o, g| sized_as(o, g, 1), |b, o| full(b, o, 1, 0)),
    composite(aten::NEW_ONES, |o, g| sized_as(o, g, 1), |b, o| full(b, o, 1, 1)),
    composite(aten::NEW_EMPTY, |o, g| sized_as(o, g, 1), |b, o| full(b, o, 1, 0)),
    composite(aten::NEW_EMPTY_STRIDED, |o, g| sized_as(o, g, 1), |b, o| full(b, o, 1, 0)),
    kernel(aten::FILL_SCALAR, like),
    kernel(aten::FILL_TENSOR, like),
    kernel(aten::SCALAR_TENSOR, scalar_tensor),
    kernel(aten::ARANGE, |o, g| range(o, g, None, o.arg(0), None)),
    composite(aten::ARANGE_START, |o, g| range(o, g, Some(o.arg(0)), o.arg(1), None), arange_start),
    kernel(aten::ARANGE_START_STEP, |o, g| range(o, g, Some(o.arg(0)), o.arg(1), Some(o.arg(2)))),
    composite(aten::_DIM_ARANGE, dim_arange_type, dim_arange),
    composite(aten::LINSPACE, linspace_type, linspace),
    composite(aten::LINSPACE_TENSOR_TENSOR, linspace_type, linspace_of_tensors),
    composite(aten::LINSPACE_TENSOR_SCALAR, linspace_type, linspace_of_tensors),
    composite(aten::LINSPACE_SCALAR_TENSOR, linspace_type, linspace_of_tensors),
    composite(aten::LOGSPACE, linspace_type, logspace),
    composite(aten::LOGSPACE_TENSOR_TENSOR, linspace_type, logspace_of_tensors),
    composite(aten::LOGSPACE_TENSOR_SCALAR, linspace_type, logspace_of_tensors),
    composite(aten::LOGSPACE_SCALAR_TENSOR, linspace_type, logspace_of_tensors),
    composite(aten::EYE, |o, g| eye_type(o, g, 0), |b, o| eye(b, o, 0)),
    composite(aten::EYE_M, |o, g| eye_type(o, g, 1), |b, o| eye(b, o, 1)),
    composite(aten::TRIL_INDICES, triangle_type, triangle),
    composite(aten::TRIU_INDICES, triangle_type, triangle),
];

/// The position of the parameter `dtype`.
fn dtype_at(operands: &Operands<'_>) -> usize {
    operands.schema.position("dtype").unwrap_or(usize::MAX)
}

/// The dtype that PyTorch gives to a tensor of this number.
fn scalar_dtype(arg: &Arg, graph: &Graph) -> ScalarType {
    match arg {
        Arg::Bool(_) => ScalarType::Bool,
        Arg::Int(_) => ScalarType::Long,
        Arg::Complex(..) => ScalarType::ComplexFloat,
        Arg::Value(value) => match graph.ty(*value) {
            Type::Int(_) => ScalarType::Long,
            Type::Bool => ScalarType::Bool,
            Type::Tensor(tensor) => tensor.dtype,
            Type::Float => ScalarType::Float,
        },
        _ => ScalarType::Float,
    }
}

/// The size in parameter `size`, the dtype in the parameter of that name.
fn sized(operands: &Operands<'_>, _: &Graph, size: usize, dtype: ScalarType) -> Result<Vec<Type>, Error> {
    one(operands.dtype_or(dtype_at(operands), dtype)?, operands.exprs(size)?)
}

/// As [`sized`], with the dtype of the first argument unless one is given.
fn sized_as(operands: &Operands<'_>, graph: &Graph, size: usize) -> Result<Vec<Type>, Error> {
    sized(operands, graph, size, operands.tensor(0, graph)?.dtype)
}

/// The shape of the first argument, and its dtype unless one is given.
fn like(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(operands.dtype_or(dtype_at(operands), input.dtype)?, input.shape.clone())
}

/// The dtype and shape of the only result.
pub(crate) fn inferred(b: &Builder<'_>, operands: &Operands<'_>) -> Result<(ScalarType, Vec<Expr>), Error> {
    let types = super::infer(operands, b.graph)?;
    let tensor = types.first().and_then(Type::as_tensor);
    tensor.map(|tensor| (tensor.dtype, tensor.shape.clone())).ok_or_else(|| operands.wrong(0, "one result"))
}

fn full(b: &mut Builder<'_>, operands: &Operands<'_>, size: usize, value: i64) -> Lowered {
    let (dtype, _) = inferred(b, operands)?;
    filled(b, operands.arg(size).clone(), Arg::from(value), dtype).and_then(done)
}

/// A tensor of one number.
pub(crate) fn filled(b: &mut Builder<'_>, size: Arg, value: Arg, dtype: ScalarType) -> Result<ValueId, Error> {
    b.one_with(aten::FULL, vec![size, value], &[("dtype", dtype.into())])
}

fn full_like(b: &mut Builder<'_>, operands: &Operands<'_>, value: i64) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    filled(b, shape.into(), Arg::from(value), dtype).and_then(done)
}

fn new_full(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, _) = inferred(b, operands)?;
    filled(b, operands.arg(1).clone(), operands.arg(2).clone(), dtype).and_then(done)
}

fn scalar_tensor(operands: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.dtype_or(1, ScalarType::Float)?, Vec::new())
}

/// `ceil((end - start) / step)` elements; integers unless a bound is floating.
fn range(
    operands: &Operands<'_>,
    graph: &Graph,
    start: Option<&Arg>,
    end: &Arg,
    step: Option<&Arg>,
) -> Result<Vec<Type>, Error> {
    let (zero, unit) = (Arg::from(0), Arg::from(1));
    let (start, step) = (start.unwrap_or(&zero), step.unwrap_or(&unit));
    let is_integer = |arg: &&Arg| category(scalar_dtype(arg, graph)) < 2;
    let natural = if [start, end, step].iter().all(is_integer) { ScalarType::Long } else { ScalarType::Float };
    let dtype = operands.dtype_or(dtype_at(operands), natural)?;
    let count = match (start, end, step) {
        (Arg::Int(start), Arg::Int(end), Arg::Int(step)) => integers(start, end, step),
        _ => {
            let count = |start: f64, end: f64, step: f64| ((end - start) / step).ceil().max(0.0) as i64;
            match (known_number(start), known_number(end), known_number(step)) {
                (Some(start), Some(end), Some(step)) if step != 0.0 => Some(Expr::Int(count(start, end, step))),
                // Sizes that depend on inputs, and a step that is a fraction.
                (_, _, Some(step)) if step != 0.0 => whole(start).zip(whole(end)).and_then(|(start, end)| {
                    let distance = if step > 0.0 { end.sub(start) } else { start.sub(end) };
                    let of = |distance: i64| Some(count(0.0, distance as f64, step.abs()));
                    distance.fitted(&graph.symbols, true, of)
                }),
                _ => None,
            }
        }
    };
    if let (None, Some(types)) = (&count, operands.known_types(graph)) {
        return Ok(types);
    }
    let count = count.ok_or_else(|| {
        operands.wrong(0, "bounds whose distance is known when the program is compiled, and a step that is not 0")
    })?;
    one(dtype, vec![count])
}

/// A number as an expression, if it is an integer.
fn whole(arg: &Arg) -> Option<Expr> {
    match arg {
        Arg::Int(expr) => Some(expr.clone()),
        _ => known_number(arg)
            .filter(|value| value.fract() == 0.0 && value.abs() < 1e15)
            .map(|value| Expr::Int(value as i64)),
    }
}

fn integers(start: &Expr, end: &Expr, step: &Expr) -> Option<Expr> {
    let distance = end.sub(start.clone());
    let count = match step.as_int()? {
        0 => return None,
        step if step > 0 => distance.ceil_div(step),
        step => distance.mul(-1).ceil_div(step.saturating_neg()),
    };
    // Sizes are not negative; those of inputs are known not to be.
    Some(if count.is_static() { count.at_least(0) } else { count })
}

fn arange_start(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, _) = inferred(b, operands)?;
    let args = vec![operands.arg(0).clone(), operands.arg(1).clone(), Arg::from(1)];
    b.one_with(aten::ARANGE_START_STEP, args, &[("dtype", dtype.into())]).and_then(done)
}

fn dim_arange_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let size = input.shape.get(operands.dim(1, input.rank())?).cloned().unwrap_or(Expr::Int(1));
    one(ScalarType::Long, vec![size])
}

fn dim_arange(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (_, shape) = inferred(b, operands)?;
    let size = shape.first().cloned().unwrap_or(Expr::Int(1));
    indices(b, size, ScalarType::Long).and_then(done)
}

/// The numbers from 0 below a size.
pub(crate) fn indices(b: &mut Builder<'_>, size: Expr, dtype: ScalarType) -> Result<ValueId, Error> {
    let args = vec![Arg::from(0), Arg::Int(size), Arg::from(1)];
    b.one_with(aten::ARANGE_START_STEP, args, &[("dtype", dtype.into())])
}

fn linspace_type(operands: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.dtype_or(dtype_at(operands), ScalarType::Float)?, vec![operands.expr(2)?])
}

fn linspace(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, _) = inferred(b, operands)?;
    if !is_known(operands) {
        let wide = spaced_at_run_time(b, operands, dtype)?;
        return b.cast(wide, dtype).and_then(done);
    }
    let spaced = spaced(operands, dtype)?;
    constant(b, &spaced, dtype).and_then(done)
}

/// True if the ends and the count of evenly spaced numbers are known.
fn is_known(operands: &Operands<'_>) -> bool {
    (0..3).all(|index| known_number(operands.arg(index)).is_some())
}

/// As [`spaced`], of ends or a count that are known only when the program runs.
fn spaced_at_run_time(b: &mut Builder<'_>, operands: &Operands<'_>, dtype: ScalarType) -> Result<ValueId, Error> {
    let wide = if dtype == ScalarType::Double { ScalarType::Double } else { ScalarType::Float };
    let (start, end, steps) = (operands.number(0)?, operands.number(1)?, operands.expr(2)?);
    let width = b.number_difference(&end, &start)?;
    // A single number is the start, for any step.
    let gaps = steps.sub(1).at_least(1);
    let step = b.number_quotient(&width, &Arg::Int(gaps))?;
    let index = indices(b, steps.clone(), wide)?;
    let rising = b.mul(index, step.clone())?;
    let rising = b.add(rising, start)?;
    let left = b.sub(Arg::Int(steps.sub(1)), index)?;
    let falling = b.mul(left, step)?;
    let falling = b.sub(end, falling)?;
    let near = b.compare(aten::packet::LT, index, Arg::Int(steps.floor_div(2).at_least(1)))?;
    b.select(near, rising, falling)
}

fn logspace(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, _) = inferred(b, operands)?;
    if !is_known(operands) || known_number(operands.arg(3)).is_none() {
        let exponents = spaced_at_run_time(b, operands, dtype)?;
        let base = operands.number(3)?;
        let powers = b.one(aten::POW_SCALAR, vec![base, exponents.into()])?;
        return b.cast(powers, dtype).and_then(done);
    }
    let base = operands.float(3)?;
    let exponents = spaced(operands, dtype)?;
    let powers: Vec<f64> = exponents.into_iter().map(|exponent| base.powf(exponent)).collect();
    constant(b, &powers, dtype).and_then(done)
}

fn linspace_of_tensors(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, _) = inferred(b, operands)?;
    let value = between(b, operands, dtype)?;
    b.cast(value, dtype).and_then(done)
}

fn logspace_of_tensors(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, _) = inferred(b, operands)?;
    let exponents = between(b, operands, dtype)?;
    let value = b.one(aten::POW_SCALAR, vec![Arg::Float(operands.float(3)?), exponents.into()])?;
    b.cast(value, dtype).and_then(done)
}

/// Evenly spaced numbers between two ends, at least one of which is a tensor.
fn between(b: &mut Builder<'_>, operands: &Operands<'_>, dtype: ScalarType) -> Result<ValueId, Error> {
    let steps = operands.int(2)?.max(0);
    check_computed(&operands.schema.name, steps)?;
    let wide = if dtype == ScalarType::Double { dtype } else { ScalarType::Float };
    let mut end = |index: usize| {
        let value = b.as_tensor(operands.arg(index), wide)?;
        let value = b.cast(value, wide)?;
        b.view(value, Vec::new())
    };
    let (start, end) = (end(0)?, end(1)?);
    evenly(b, start, end, steps, wide)
}

/// Evenly spaced numbers between two tensors without dimensions, each from the nearer end.
pub(crate) fn evenly(
    b: &mut Builder<'_>,
    start: ValueId,
    end: ValueId,
    steps: i64,
    dtype: ScalarType,
) -> Result<ValueId, Error> {
    let indices: Vec<f64> = (0..steps).map(|index| index as f64).collect();
    let rests: Vec<f64> = (0..steps).map(|index| (steps - 1 - index) as f64).collect();
    let halves: Vec<f64> = (0..steps).map(|index| f64::from(u8::from(index < steps / 2 || steps == 1))).collect();
    let (indices, rests) = (constant(b, &indices, dtype)?, constant(b, &rests, dtype)?);
    let first = constant(b, &halves, ScalarType::Bool)?;
    let distance = b.sub(end, start)?;
    let step = b.div(distance, Arg::Float((steps - 1).max(1) as f64))?;
    let (up, down) = (b.mul(indices, step)?, b.mul(rests, step)?);
    let (low, high) = (b.add(up, start)?, b.one(aten::SUB_TENSOR, vec![end.into(), down.into()])?);
    b.select(first, low, high)
}

/// Computes evenly spaced numbers from argument 0 to argument 1, whose count is argument 2, from the nearer end and in the
/// precision that PyTorch uses.
fn spaced(operands: &Operands<'_>, dtype: ScalarType) -> Result<Vec<f64>, Error> {
    let (start, end, steps) = (operands.float(0)?, operands.float(1)?, operands.int(2)?.max(0));
    check_computed(&operands.schema.name, steps)?;
    let round = |value: f64| if dtype == ScalarType::Double { value } else { f64::from(value as f32) };
    let step = if steps > 1 { round((end - start) / (steps - 1) as f64) } else { 0.0 };
    let at = |index: i64| {
        if index < steps / 2 || steps == 1 {
            start + step * index as f64
        } else {
            end - step * (steps - 1 - index) as f64
        }
    };
    Ok((0..steps).map(|index| round(at(index))).collect())
}

/// A tensor of one dimension with these numbers.
pub(crate) fn constant(b: &mut Builder<'_>, values: &[f64], dtype: ScalarType) -> Result<ValueId, Error> {
    let mut bytes = Vec::with_capacity(values.len() * dtype.size());
    for value in values {
        bytes.extend(super::number_bytes(*value, dtype)?);
    }
    let ty = crate::TensorType::of(dtype, &[values.len() as i64]);
    Ok(b.constant(crate::Constant::dense("constant", ty, bytes)?))
}

/// Rows in parameter 0, columns in parameter `columns`.
fn eye_type(operands: &Operands<'_>, _: &Graph, columns: usize) -> Result<Vec<Type>, Error> {
    let dtype = operands.dtype_or(dtype_at(operands), ScalarType::Float)?;
    one(dtype, vec![operands.expr(0)?, operands.expr(columns)?])
}

/// Ones where the row's number is the column's.
fn eye(b: &mut Builder<'_>, operands: &Operands<'_>, columns: usize) -> Lowered {
    let (dtype, _) = inferred(b, operands)?;
    let (rows, columns) = (operands.expr(0)?, operands.expr(columns)?);
    let (row, column) = (indices(b, rows.clone(), ScalarType::Long)?, indices(b, columns, ScalarType::Long)?);
    let row = b.view(row, vec![rows, Expr::Int(1)])?;
    let diagonal = b.compare(aten::packet::EQ, row, column)?;
    b.cast(diagonal, dtype).and_then(done)
}

/// The places of a triangle, row by row.
fn triangle_places(operands: &Operands<'_>) -> Result<Vec<(i64, i64)>, Error> {
    let (rows, columns, offset) = (operands.int(0)?, operands.int(1)?, operands.int(2)?);
    let lower = operands.schema.name == aten::TRIL_INDICES;
    let (rows, columns) = (if columns > 0 { rows.max(0) } else { 0 }, columns.max(0));
    let place = |row: i64| {
        let boundary = row.saturating_add(offset);
        let (from, to) = if lower { (0, boundary.saturating_add(1).min(columns)) } else { (boundary.max(0), columns) };
        (from..to).map(move |column| (row, column))
    };
    check_computed(&operands.schema.name, rows.saturating_mul(columns))?;
    Ok((0..rows).flat_map(place).collect())
}

fn triangle_type(operands: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    let count = triangle_places(operands)?.len() as i64;
    one(operands.dtype_or(dtype_at(operands), ScalarType::Long)?, vec![Expr::Int(2), Expr::Int(count)])
}

fn triangle(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let places = triangle_places(operands)?;
    let rows = places.iter().map(|(row, _)| *row as f64);
    let values: Vec<f64> = rows.chain(places.iter().map(|(_, column)| *column as f64)).collect();
    let flat = constant(b, &values, dtype)?;
    b.view(flat, shape).and_then(done)
}
