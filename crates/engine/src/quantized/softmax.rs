//! Softmax of quantized rows.

use alloc::boxed::Box;

use crate::Engine;
use crate::arch::{Kernel, LANES, Simd};
use crate::error::{Error, at_least, size};

use super::epilogue::{Affine, U8Quantizer};

/// Minimum bytes of a task.
const MIN_TASK_BYTES: usize = 8 << 10;

/// Table of exponentials, indexed by the difference of a byte from the maximum of its row.
#[derive(Debug, Clone)]
pub struct SoftmaxTable(Box<[f32; 256]>);

impl SoftmaxTable {
    /// Computes the table for an input quantization, in portable code: the same on every machine.
    pub fn new(from: Affine) -> Self {
        Self(Box::new(core::array::from_fn(|below| libm::expf(-(below as f32) * from.scale))))
    }
}

/// Computes `y = exp(x) / sum(exp(x))` of each row, with the table for the quantization of `x`.
///
/// # Errors
/// When a slice is too short.
pub fn softmax_u8(
    engine: &Engine,
    rows: usize,
    columns: usize,
    table: &SoftmaxTable,
    x: &[u8],
    y: &mut [u8],
    to: Affine,
) -> Result<(), Error> {
    let elements = size("x", &[rows, columns])?;
    at_least("x", x.len(), elements)?;
    at_least("y", y.len(), elements)?;
    if elements == 0 {
        return Ok(());
    }
    engine.parallel_rows(columns, MIN_TASK_BYTES, &x[..elements], &mut y[..elements], |x, y| {
        engine.dispatch.run(SoftmaxU8Rows { columns, table: &table.0, x, y, to: U8Quantizer::of(to) });
    });
    Ok(())
}

struct SoftmaxU8Rows<'a> {
    columns: usize,
    table: &'a [f32; 256],
    x: &'a [u8],
    y: &'a mut [u8],
    to: U8Quantizer,
}

impl Kernel for SoftmaxU8Rows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { columns, table, x, y, to } = self;
        for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
            // Auto-vectorized.
            let max = x.iter().fold(0, |max: u8, x| max.max(*x));
            let mut sums = [s.splat(0.0); 2];
            for (i, x) in x.chunks(LANES).enumerate() {
                sums[i % 2] = s.add(sums[i % 2], exponentials(s, table, max, x));
            }
            let inverse_sum = s.splat(1.0 / s.reduce_add(s.add(sums[0], sums[1])));
            for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                let quantized = to.round(s, s.mul(exponentials(s, table, max, x), inverse_sum));
                // SAFETY: `y` has `len` bytes.
                unsafe { s.store_as_u8(y.as_mut_ptr(), y.len(), quantized) };
            }
        }
    }
}

/// Looks up to 16 bytes up in the table; the other lanes are zero.
#[inline(always)]
fn exponentials<S: Simd>(s: S, table: &[f32; 256], max: u8, x: &[u8]) -> S::V {
    let mut lanes = [0.0; LANES];
    lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane = table[usize::from(max - x)]);
    s.load_slice(&lanes)
}
