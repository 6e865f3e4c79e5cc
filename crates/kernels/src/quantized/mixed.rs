//! Matrix products of floats with 8-bit weights. Sums are f32.

use half::{bf16, f16};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use super::params::{check_dtype, contiguous};
use crate::support::number::Number;

/// `quantized_decomposed::mixed_mm.out(Tensor input, Tensor weight, Tensor weight_scales,
/// Tensor? weight_zero_points, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `input [M, K] @ (weight [K, N] * scales [K, 1])`. Zero points are not supported.
pub const MIXED_MM_OUT: Op = Op::new("quantized_decomposed::mixed_mm.out", 5, mixed_mm);

/// `quantized_decomposed::mixed_linear.out(Tensor input, Tensor weight, Tensor weight_scales,
/// Tensor? weight_zero_points, ScalarType? dtype=None, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `input [M, K] @ (weight [N, K] * scales)^T` with scales `[N]`, or `[N, G]` for groups of `ceil(K / G)` columns.
/// Zero points are not supported.
pub const MIXED_LINEAR_OUT: Op = Op::new("quantized_decomposed::mixed_linear.out", 6, mixed_linear);

pub const OPS: &[Op] = &[MIXED_MM_OUT, MIXED_LINEAR_OUT];

/// Columns of the result that are computed together.
const TILE: usize = 64;

fn mixed_mm(cx: &KernelContext<'_>) -> Result<()> {
    let (input, weight, scales) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let mut out = cx.out(4)?;
    let ([m, k], [k2, n]) = (matrix(&input, 0)?, matrix(&weight, 1)?);
    check_operands(cx, &input, &weight, &scales)?;
    expect_size(0, k, k2).map_err(|e| e.arg(1))?;
    let &[count] = scales.sizes() else {
        return Err(Error::from(Detail::Rank { expected: "1", got: scales.rank() }).arg(2));
    };
    expect_size(0, k, count).map_err(|e| e.arg(2))?;
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(4));
    }
    resize_contiguous(&mut out, [m, n]).map_err(|e| e.arg(4))?;
    let weight = weight.as_slice::<i8>()?;
    dispatch_types!("f32, f16 or bf16", input.dtype(), T => {
        let (input, scales, out) = (input.as_slice::<T>()?, scales.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        for (i, row) in out.chunks_exact_mut(n.max(1)).enumerate() {
            multiply_row(&input[i * k..(i + 1) * k], weight, scales, row);
        }
        Ok(())
    }, [Float = f32, Half = f16, BFloat16 = bf16])
}

/// `out[j] = sum over k of input[k] * scales[k] * weight[k][j]`.
fn multiply_row<T: Number>(input: &[T], weight: &[i8], scales: &[T], out: &mut [T]) {
    let n = out.len();
    for (tile, out) in out.chunks_mut(TILE).enumerate() {
        let mut sums = [0.0f32; TILE];
        for ((x, scale), row) in input.iter().zip(scales).zip(weight.chunks_exact(n)) {
            let factor = x.to_f32() * scale.to_f32();
            let row = &row[tile * TILE..tile * TILE + out.len()];
            for (sum, &w) in sums.iter_mut().zip(row) {
                *sum += factor * f32::from(w);
            }
        }
        for (x, &sum) in out.iter_mut().zip(&sums) {
            *x = T::from_f32(sum);
        }
    }
}

fn mixed_linear(cx: &KernelContext<'_>) -> Result<()> {
    let (input, weight, scales) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let mut out = cx.out(5)?;
    let ([m, k], [n, k2]) = (matrix(&input, 0)?, matrix(&weight, 1)?);
    check_operands(cx, &input, &weight, &scales)?;
    expect_size(1, k, k2).map_err(|e| e.arg(1))?;
    let (rows, groups) = match *scales.sizes() {
        [rows] => (rows, 1),
        [rows, groups] => (rows, groups),
        _ => return Err(Error::from(Detail::Rank { expected: "1 or 2", got: scales.rank() }).arg(2)),
    };
    expect_size(0, n, rows).map_err(|e| e.arg(2))?;
    if groups == 0 && k > 0 {
        return Err(Error::invalid("there must be at least one group of columns").arg(2));
    }
    let group_size = k.div_ceil(groups.max(1)).max(1);
    if k.div_ceil(group_size) != groups && k > 0 {
        let (expected, got) = (k.div_ceil(group_size), groups);
        return Err(Error::from(Detail::Size { dim: 1, expected, got }).arg(2));
    }
    check_dtype(cx, 4, out.dtype())?;
    resize_contiguous(&mut out, [m, n]).map_err(|e| e.arg(5))?;
    let weight = weight.as_slice::<i8>()?;
    dispatch_types!("f32, f16 or bf16", input.dtype(), T => {
        let (input, scales) = (input.as_slice::<T>()?, scales.as_slice::<T>()?);
        dispatch!(FLOATHBF16, out.dtype(), U => {
            for (i, row) in out.as_mut_slice::<U>()?.chunks_exact_mut(n.max(1)).enumerate() {
                let input = &input[i * k..(i + 1) * k];
                for (tile, out) in row.chunks_mut(TILE).enumerate() {
                    let mut sums = [0.0; TILE];
                    let first = tile * TILE;
                    let weight = &weight[first * k..(first + out.len()) * k];
                    let scales = &scales[first * groups..(first + out.len()) * groups];
                    dot_rows(input, weight, scales, group_size, &mut sums[..out.len()]);
                    for (x, &sum) in out.iter_mut().zip(&sums) {
                        *x = U::from_f32(sum);
                    }
                }
            }
            Ok(())
        }).map_err(|e: Error| e.arg(5))
    }, [Float = f32, Half = f16, BFloat16 = bf16])
}

/// Adds the products of `input` with each row of `weight`, group by group, to `sums`.
fn dot_rows<T: Number>(input: &[T], weight: &[i8], scales: &[T], group_size: usize, sums: &mut [f32]) {
    const CHUNK: usize = 256;
    let groups = input.len().div_ceil(group_size);
    let mut values = [0.0f32; CHUNK];
    for (group, columns) in input.chunks(group_size).enumerate() {
        for (chunk, columns) in columns.chunks(CHUNK).enumerate() {
            let values = &mut values[..columns.len()];
            for (value, x) in values.iter_mut().zip(columns) {
                *value = x.to_f32();
            }
            let first = group * group_size + chunk * CHUNK;
            let rows = weight.chunks_exact(input.len()).zip(scales.chunks_exact(groups));
            for (sum, (row, scales)) in sums.iter_mut().zip(rows) {
                *sum += dot(values, &row[first..first + values.len()]) * scales[group].to_f32();
            }
        }
    }
}

fn dot(values: &[f32], weights: &[i8]) -> f32 {
    const LANES: usize = 8;
    let mut sums = [0.0f32; LANES];
    let ((values, last_values), (weights, last_weights)) = (values.as_chunks::<LANES>(), weights.as_chunks::<LANES>());
    for (value, weight) in values.iter().zip(weights) {
        for lane in 0..LANES {
            sums[lane] += value[lane] * f32::from(weight[lane]);
        }
    }
    let tail: f32 = last_values.iter().zip(last_weights).map(|(&x, &w)| x * f32::from(w)).sum();
    sums.iter().sum::<f32>() + tail
}

fn check_operands(cx: &KernelContext<'_>, input: &Tensor<'_>, weight: &Tensor<'_>, scales: &Tensor<'_>) -> Result<()> {
    if weight.dtype() != ScalarType::Char {
        return Err(Error::from(Detail::Dtype { expected: "i8", got: weight.dtype() }).arg(1));
    }
    if scales.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: scales.dtype() }).arg(2));
    }
    if !cx.is_none(3) {
        return Err(Error::invalid("zero points are not supported").arg(3));
    }
    for (index, tensor) in [input, weight, scales].into_iter().enumerate() {
        contiguous(tensor).map_err(|e| e.arg(index))?;
    }
    Ok(())
}

fn matrix(tensor: &Tensor<'_>, index: usize) -> Result<[usize; 2]> {
    match *tensor.sizes() {
        [rows, columns] => Ok([rows, columns]),
        _ => Err(Error::from(Detail::Rank { expected: "2", got: tensor.rank() }).arg(index)),
    }
}

fn expect_size(dim: usize, expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Detail::Size { dim, expected, got }.into()) }
}

fn resize_contiguous(out: &mut TensorMut<'_>, sizes: [usize; 2]) -> Result<()> {
    out.resize(&sizes)?;
    contiguous(&out.as_tensor())
}
