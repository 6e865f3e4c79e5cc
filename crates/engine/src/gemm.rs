//! Matrix products: with packed weights, and between two matrices that both come at run time.
#![allow(unsafe_code)]

mod batched;
mod few_rows;

pub use batched::{Matmul, matmul, matmul_scratch};

use core::mem::MaybeUninit;

use crate::error::{Error, at_least, size, span};
use crate::numbers::{Number, Writable};
use crate::product::{Place, Pointers, Product, Rows, check_bf16};
use crate::tail::Steps;
use crate::{Engine, Numbers, NumbersMut, Tail, Weights};

use few_rows::FewRows;

pub use few_rows::FEW_ROWS;

/// `c = tail(a b)` with `a` of `m` rows and `k` columns, `b` of `k` rows and `n` columns. Rows of `a` and `c` begin
/// `a_stride` and `c_stride` floats apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a_stride: usize,
    pub c_stride: usize,
}

impl Gemm {
    /// Dense rows.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Self { m, n, k, a_stride: k, c_stride: n }
    }
}

/// Computes `c = tail(a b)` with `b` packed by [`pack::matrix_f32`](crate::pack::matrix_f32). With `k` 0, products are 0.
///
/// # Errors
/// When a slice is too short or rows of the output would overlap.
pub fn gemm<'w>(
    engine: &Engine,
    gemm: &Gemm,
    a: impl Into<Numbers<'w>>,
    packed: impl Into<Weights<'w>>,
    c: impl Into<NumbersMut<'w>>,
    tail: &Tail,
) -> Result<(), Error> {
    let (a, packed, mut c) = (a.into(), packed.into(), c.into());
    let &Gemm { m, n, k, a_stride, c_stride } = gemm;
    at_least("a", a.len(), span("a stride", m, k, a_stride)?)?;
    at_least("c", c.len(), span("c stride", m, n, c_stride)?)?;
    let columns = n.checked_next_multiple_of(crate::pack::PANEL).ok_or(Error::Size { what: "n" })?;
    let rows = crate::pack::rows(k);
    packed.check(size("packed weights", &[rows, columns])?, Some(rows))?;
    tail.check_any(engine, m, n)?;
    check_bf16(engine, [1, k], a, packed, &c, tail)?;
    // SAFETY: the sizes were checked above.
    unsafe { run(engine, gemm, a, packed, c.place(), tail) };
    Ok(())
}

/// Like [`gemm`](fn@gemm) without checks.
///
/// # Safety
/// The slices, those of `tail` among them, have the sizes and types that the shape needs.
pub(crate) unsafe fn run(engine: &Engine, gemm: &Gemm, a: Numbers<'_>, packed: Weights<'_>, c: Writable, tail: &Tail) {
    let &Gemm { m, n, k, a_stride, c_stride } = gemm;
    let (stride, depth) = (a_stride, k);
    if m == 0 || n == 0 {
        return;
    }
    let steps = tail.steps();
    match a {
        Numbers::F32(a) if m < FEW_ROWS && !c.is_bf16() && !steps.residual.is_bf16() => {
            let (a, c) = (Matrix { data: a, stride, depth }, c.as_floats());
            // SAFETY: the caller vouches for the sizes.
            unsafe { FewRows { gemm, a, packed, c, steps }.run(engine) };
        }
        Numbers::F32(a) => {
            let rows = Matrix { data: a, stride, depth };
            // SAFETY: the caller vouches for the sizes.
            unsafe { product(&rows, [m, n], packed, c, c_stride, steps).run(engine) };
        }
        Numbers::Bf16(a) => {
            let rows = Matrix { data: a, stride, depth };
            // SAFETY: the caller vouches for the sizes and the types.
            unsafe { product(&rows, [m, n], packed, c, c_stride, steps).run(engine) };
        }
    }
}

fn product<'a, R: Rows>(
    rows: &'a R,
    [m, n]: [usize; 2],
    packed: Weights<'a>,
    out: Writable,
    out_stride: usize,
    steps: Steps,
) -> Product<'a, R> {
    let (lines, groups, place) = (1, 1, Place::DENSE);
    Product { rows, lines, rows_per_line: m, groups, columns: n, packed, out, out_stride, place, steps }
}

/// Rows of a matrix in memory. The length was checked.
pub(crate) struct Matrix<'a, T = f32> {
    pub(crate) data: &'a [T],
    pub(crate) stride: usize,
    pub(crate) depth: usize,
}

impl<T: Number> Rows for Matrix<'_, T> {
    const IS_BF16: bool = T::IS_BF16;

    fn taps(&self) -> usize {
        1
    }

    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    fn point(&self, _: usize, first: usize, count: usize, _: (usize, usize), offset: usize, to: &mut Pointers) {
        let start = self.data.as_ptr().wrapping_add(first * self.stride + offset);
        for (row, pointer) in to.pointers.iter_mut().take(count).enumerate() {
            *pointer = MaybeUninit::new(start.wrapping_add(row * self.stride).cast());
        }
    }
}
