//! The shape of a GEMM, and its left side.

use core::mem::MaybeUninit;

use crate::element::Element;
use crate::igemm::{IndirectionBuffer, LhsRows};

/// Shape of `c = epilogue(a b)` with `a` `[m, k]`, `b` `[k, n]`; rows of `a` and `c` begin `a_stride` and `c_stride`
/// elements apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a_stride: usize,
    pub c_stride: usize,
}

impl Gemm {
    /// A GEMM of dense matrices.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Self { m, n, k, a_stride: k, c_stride: n }
    }
}

/// A row-major matrix as the left side of a GEMM. Its length was checked.
pub(crate) struct Matrix<'a, T = f32> {
    pub(crate) data: &'a [T],
    pub(crate) stride: usize,
    pub(crate) depth: usize,
}

impl<T: Element> LhsRows for Matrix<'_, T> {
    const IS_BF16: bool = T::IS_BF16;

    fn taps(&self) -> usize {
        1
    }

    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    fn fill_pointers(
        &self,
        _: usize,
        first: usize,
        count: usize,
        _: (usize, usize),
        offset: usize,
        to: &mut IndirectionBuffer,
    ) {
        let start = self.data.as_ptr().wrapping_add(first * self.stride + offset);
        for (row, pointer) in to.pointers.iter_mut().take(count).enumerate() {
            *pointer = MaybeUninit::new(start.wrapping_add(row * self.stride).cast());
        }
    }
}
