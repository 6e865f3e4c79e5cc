//! Softmax of rows of bytes.

use alloc::boxed::Box;

use crate::Engine;
use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least, size};

use super::tail::{Affine, Levels};

/// Bytes for which a task is worth handing over.
const LEAST: usize = 8 << 10;

/// What the exponentials of bytes are: the difference of a byte from the greatest of its row is one of 256.
#[derive(Debug, Clone)]
pub struct SoftmaxTable(Box<[f32; 256]>);

impl SoftmaxTable {
    /// Of bytes that stand for something, the same on every machine.
    pub fn new(from: Affine) -> Self {
        Self(Box::new(core::array::from_fn(|below| libm::expf(-(below as f32) * from.scale))))
    }
}

/// `y = exp(x) / sum(exp(x))` of each row, with the table of what the bytes of `x` stand for.
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
    engine.for_rows(columns, LEAST, &x[..elements], &mut y[..elements], |x, y| {
        engine.level.run(Rows { columns, table: &table.0, x, y, to: Levels::of(to) });
    });
    Ok(())
}

struct Rows<'a> {
    columns: usize,
    table: &'a [f32; 256],
    x: &'a [u8],
    y: &'a mut [u8],
    to: Levels,
}

impl Job for Rows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { columns, table, x, y, to } = self;
        for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
            // Compilers make vectors of it.
            let greatest = x.iter().fold(0, |greatest: u8, x| greatest.max(*x));
            let mut sums = [s.splat(0.0); 2];
            for (i, x) in x.chunks(LANES).enumerate() {
                sums[i % 2] = s.add(sums[i % 2], exponentials(s, table, greatest, x));
            }
            let share = s.splat(1.0 / s.sum(s.add(sums[0], sums[1])));
            for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                let level = to.round(s, s.mul(exponentials(s, table, greatest, x), share));
                // SAFETY: there are as many bytes as numbers.
                unsafe { s.store_bytes(y.as_mut_ptr(), y.len(), level) };
            }
        }
    }
}

/// What up to 16 bytes are in the table, and zeros.
#[inline(always)]
fn exponentials<S: Simd>(s: S, table: &[f32; 256], greatest: u8, x: &[u8]) -> S::V {
    let mut lanes = [0.0; LANES];
    lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane = table[usize::from(greatest - x)]);
    s.read(&lanes)
}
