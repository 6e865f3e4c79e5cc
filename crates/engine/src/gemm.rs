//! Matrix products: with packed weights, and between two matrices that both come at run time.
#![allow(unsafe_code)]

mod batched;
mod few_rows;

pub use batched::{Matmul, matmul, matmul_scratch};

use core::mem::MaybeUninit;

use crate::error::{Error, at_least, size, span};
use crate::product::{Place, Pointers, Product, Rows};
use crate::{Engine, Tail, Weights};

use few_rows::{FewRows, TOO_MANY};

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
    a: &[f32],
    packed: impl Into<Weights<'w>>,
    c: &mut [f32],
    tail: &Tail,
) -> Result<(), Error> {
    let packed = packed.into();
    let &Gemm { m, n, k, a_stride, c_stride } = gemm;
    at_least("a", a.len(), span("a stride", m, k, a_stride)?)?;
    at_least("c", c.len(), span("c stride", m, n, c_stride)?)?;
    let columns = n.checked_next_multiple_of(crate::pack::PANEL).ok_or(Error::Size { what: "n" })?;
    let rows = crate::pack::rows(k);
    packed.check(size("packed weights", &[rows, columns])?, Some(rows))?;
    tail.check(m, n)?;
    // SAFETY: the sizes were checked above.
    unsafe { run(engine, gemm, a, packed, c, tail) };
    Ok(())
}

/// Like [`gemm`](fn@gemm) without checks.
///
/// # Safety
/// The slices, those of `tail` among them, have the sizes that the shape needs.
pub(crate) unsafe fn run(engine: &Engine, gemm: &Gemm, a: &[f32], packed: Weights<'_>, c: &mut [f32], tail: &Tail) {
    let &Gemm { m, n, k, a_stride, c_stride } = gemm;
    let rows = Matrix { data: a, stride: a_stride, depth: k };
    if m == 0 || n == 0 {
        return;
    }
    if m < TOO_MANY {
        // SAFETY: the caller vouches for the sizes.
        unsafe { FewRows { gemm, a: rows, packed, c: c.as_mut_ptr(), steps: tail.steps() }.run(engine) };
        return;
    }
    let product = Product {
        rows: &rows,
        lines: 1,
        rows_per_line: m,
        groups: 1,
        columns: n,
        packed,
        out: c.as_mut_ptr(),
        out_stride: c_stride,
        place: Place::DENSE,
        steps: tail.steps(),
    };
    // SAFETY: the caller vouches for the sizes.
    unsafe { product.run(engine) };
}

/// Rows of a matrix in memory. The length was checked.
pub(crate) struct Matrix<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) depth: usize,
}

impl Rows for Matrix<'_> {
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
            *pointer = MaybeUninit::new(start.wrapping_add(row * self.stride));
        }
    }
}
