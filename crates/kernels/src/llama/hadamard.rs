//! The fast Walsh-Hadamard transform of rows.

use half::{bf16, f16};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType};

use crate::support::number::{Arithmetic, Number};

/// `llama::fast_hadamard_transform.out(Tensor mat, *, Tensor(a!) out) -> Tensor(a!)`
///
/// Transforms each row of the last dimension, of 2^k or 28 * 2^k elements, f32, f64, f16 or bf16. Each part of 2^k is
/// divided by the square root of 2^k; rows of 28 parts are then multiplied by a Hadamard matrix of order 28 as it is.
/// 16-bit floats are computed as f32.
pub const FAST_HADAMARD_TRANSFORM_OUT: Op =
    Op::new("llama::fast_hadamard_transform.out", 2, fast_hadamard_transform).temp(temp_bytes);

pub const OPS: &[Op] = &[FAST_HADAMARD_TRANSFORM_OUT];

fn fast_hadamard_transform(cx: &KernelContext<'_>) -> Result<()> {
    let mat = cx.tensor(0)?;
    let mut out = cx.out(1)?;
    out.resize(mat.sizes()).map_err(|e| e.arg(1))?;
    if out.dtype() != mat.dtype() {
        return Err(Error::from(Detail::Dtype { expected: mat.dtype().name(), got: out.dtype() }).arg(1));
    }
    for (contiguous, index) in [(mat.is_contiguous(), 0), (out.is_contiguous(), 1)] {
        if !contiguous {
            return Err(Error::invalid("the tensor must be contiguous").arg(index));
        }
    }
    let Some(&length) = mat.sizes().last().filter(|_| mat.numel() > 0) else {
        return Ok(());
    };
    let part = if length.is_multiple_of(ORDER) { length / ORDER } else { length };
    if !part.is_power_of_two() {
        let expected = "a power of two, or 28 times a power of two";
        return Err(Error::from(Detail::Value { what: "last size", expected, got: length as i64 }).arg(0));
    }
    match mat.dtype() {
        ScalarType::Float => transform_rows(mat.as_slice::<f32>()?, out.as_mut_slice()?, length, part),
        ScalarType::Double => transform_rows(mat.as_slice::<f64>()?, out.as_mut_slice()?, length, part),
        dtype => {
            let rows = cx.temp::<f32>(length.saturating_mul(2))?;
            dispatch_types!("f32, f64, f16 or bf16", dtype, T => {
                transform_rows_as_f32::<T>(mat.as_slice()?, out.as_mut_slice()?, rows, part);
                Ok(())
            }, [Half = f16, BFloat16 = bf16])
            .map_err(|e: Error| e.arg(0))?;
        }
    }
    Ok(())
}

/// A row as f32 and its transform for the 16-bit floats.
fn temp_bytes(cx: &KernelContext<'_>) -> Result<usize> {
    let mat = cx.tensor(0)?;
    let length = mat.sizes().last().copied().unwrap_or(0);
    Ok(if mat.dtype().size() == 2 && mat.numel() > 0 { length * 8 + 16 } else { 0 })
}

fn transform_rows<T: Arithmetic>(mat: &[T], out: &mut [T], length: usize, part: usize) {
    for (mat, out) in mat.chunks_exact(length).zip(out.chunks_exact_mut(length)) {
        transform(mat, out, part);
    }
}

fn transform_rows_as_f32<T: Number>(mat: &[T], out: &mut [T], rows: &mut [f32], part: usize) {
    let length = rows.len() / 2;
    let (row, transformed) = rows.split_at_mut(length);
    for (mat, out) in mat.chunks_exact(length).zip(out.chunks_exact_mut(length)) {
        for (x, value) in row.iter_mut().zip(mat) {
            *x = value.to_f32();
        }
        transform(row, transformed, part);
        for (value, &x) in out.iter_mut().zip(&*transformed) {
            *value = T::from_f32(x);
        }
    }
}

/// Transforms a row in parts of 2^k elements, and then by the matrix of order 28 if there are 28 parts.
fn transform<T: Arithmetic>(row: &[T], out: &mut [T], part: usize) {
    for (row, out) in row.chunks_exact(part).zip(out.chunks_exact_mut(part)) {
        transform_part(row, out);
    }
    if part != out.len() {
        multiply_order_28(out, part);
    }
}

/// Transforms 2^k elements and divides them by the square root of 2^k.
fn transform_part<T: Arithmetic>(row: &[T], out: &mut [T]) {
    let factor = T::from_f64(1.0 / libm::sqrt(row.len() as f64));
    let mut step = 1;
    if row.len() >= 16 {
        step = 16;
        for (row, out) in row.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<16>().0) {
            transform_16(row, out, factor);
        }
    } else {
        for (out, x) in out.iter_mut().zip(row) {
            *out = x.mul(factor);
        }
    }
    // Three levels at a time, as long as there are three; there are vectors where there were sixteen elements.
    while step >= LANES && step * 8 <= out.len() {
        for block in out.chunks_exact_mut(step * 8) {
            transform_eighths(block);
        }
        step *= 8;
    }
    while step < out.len() {
        for block in out.chunks_exact_mut(step * 2) {
            let (a, b) = block.split_at_mut(step);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (a.add(*b), a.sub(*b));
            }
        }
        step *= 2;
    }
}

/// Elements that are transformed at once.
const LANES: usize = 4;

/// Three levels across the eighths of a block.
#[inline(always)]
fn transform_eighths<T: Arithmetic>(block: &mut [T]) {
    let (vectors, _) = block.as_chunks_mut::<LANES>();
    let (low, high) = vectors.split_at_mut(vectors.len() / 2);
    let ([a, b, c, d], [e, f, g, h]) = (quarters(low), quarters(high));
    for (((((((a, b), c), d), e), f), g), h) in a.iter_mut().zip(b).zip(c).zip(d).zip(e).zip(f).zip(g).zip(h) {
        let mut vectors = [*a, *b, *c, *d, *e, *f, *g, *h];
        for lane in 0..LANES {
            let column = transform_8(vectors.map(|vector| vector[lane]));
            for (vector, x) in vectors.iter_mut().zip(column) {
                vector[lane] = x;
            }
        }
        [*a, *b, *c, *d, *e, *f, *g, *h] = vectors;
    }
}

fn quarters<T>(all: &mut [T]) -> [&mut [T]; 4] {
    let (low, high) = all.split_at_mut(all.len() / 2);
    let ((a, b), (c, d)) = (low.split_at_mut(low.len() / 2), high.split_at_mut(high.len() / 2));
    [a, b, c, d]
}

/// The first four levels of scaled elements, over rows of four as over vectors.
#[inline(always)]
fn transform_16<T: Arithmetic>(block: &[T; 16], out: &mut [T; 16], factor: T) {
    let mut rows: [[T; 4]; 4] = core::array::from_fn(|i| core::array::from_fn(|j| block[4 * i + j].mul(factor)));
    for _ in 0..2 {
        for lane in 0..4 {
            let column = transform_4(rows.map(|row| row[lane]));
            for (row, x) in rows.iter_mut().zip(column) {
                row[lane] = x;
            }
        }
        rows = core::array::from_fn(|i| rows.map(|row| row[i]));
    }
    out.copy_from_slice(rows.as_flattened());
}

#[inline(always)]
fn transform_8<T: Arithmetic>([a, b, c, d, e, f, g, h]: [T; 8]) -> [T; 8] {
    let (low, high) = (transform_4([a, b, c, d]), transform_4([e, f, g, h]));
    core::array::from_fn(|i| if i < 4 { low[i].add(high[i]) } else { low[i - 4].sub(high[i - 4]) })
}

#[inline(always)]
fn transform_4<T: Arithmetic>([a, b, c, d]: [T; 4]) -> [T; 4] {
    let (s, t, u, v) = (a.add(b), a.sub(b), c.add(d), c.sub(d));
    [s.add(u), t.add(v), s.sub(u), t.sub(v)]
}

/// The order of [`SIGNS`].
const ORDER: usize = 28;

/// A Hadamard matrix of order 28: bit j of row i is set where the entry is -1. ExecuTorch multiplies by the same one.
const SIGNS: [u32; ORDER] = [
    0xcd69e7e, 0x9ad7c7d, 0x37ab8fb, 0x6d571f7, 0xd8ae3ef, 0xb3587df, 0x66b4f3f, 0xb467f43, 0x6acbe87, 0xd593d8e,
    0xab27b9c, 0x564f7b8, 0xac9aff0, 0x5b31fe1, 0x87fb325, 0x0ff66ca, 0x1decd95, 0x39ddb2a, 0x71bf654, 0xe17eca9,
    0xc2fd9d2, 0xfcf1299, 0xfbe2532, 0xf7c4ae4, 0xef8d549, 0xdf1ea13, 0xbe3d4a6, 0x7e7a94c,
];

/// Multiplies the 28 parts of a row, taken as a matrix with `part` columns, by the matrix of order 28.
fn multiply_order_28<T: Arithmetic>(row: &mut [T], part: usize) {
    const WIDTH: usize = 8;
    for first in (0..part).step_by(WIDTH) {
        let width = WIDTH.min(part - first);
        let mut column = [[T::ZERO; WIDTH]; ORDER];
        for (values, part) in column.iter_mut().zip(row.chunks_exact(part)) {
            values[..width].copy_from_slice(&part[first..first + width]);
        }
        for (signs, part) in SIGNS.iter().zip(row.chunks_exact_mut(part)) {
            let mut sums = [T::ZERO; WIDTH];
            for (j, values) in column.iter().enumerate() {
                let minus = signs >> j & 1 != 0;
                for (sum, &x) in sums.iter_mut().zip(values) {
                    *sum = if minus { sum.sub(x) } else { sum.add(x) };
                }
            }
            part[first..first + width].copy_from_slice(&sums[..width]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_of_order_28_is_orthogonal() {
        for (i, a) in SIGNS.iter().enumerate() {
            for b in &SIGNS[..i] {
                assert_eq!((a ^ b).count_ones(), 14);
            }
        }
    }

    #[test]
    fn twice_is_the_identity() {
        for length in [1usize, 2, 4, 8, 32, 64] {
            let input: [f64; 64] = core::array::from_fn(|i| (i * i % 7) as f64);
            let (mut once, mut twice) = ([0.0; 64], [0.0; 64]);
            transform_part(&input[..length], &mut once[..length]);
            transform_part(&once[..length], &mut twice[..length]);
            let row = &twice[..length];
            for (i, &x) in row.iter().enumerate() {
                assert!((x - (i * i % 7) as f64).abs() < 1e-9);
            }
        }
    }
}
