//! Batched matmul of two matrices computed at run time: the right one is packed into scratch memory first.

use super::Matrix;
use crate::arch::LANES;
use crate::element::{ElementPtr, ElementPtrMut};
use crate::epilogue::Residual;
use crate::error::{Error, at_least, size};
use crate::igemm::{Igemm, OutputLayout};
use crate::{Engine, Epilogue};

/// A batch of matmuls `c = epilogue(scale * a b)` with `a` `[m, k]` and `b` `[k, n]`, or `[n, k]` if transposed.
///
/// The batch has two dimensions, such as images and heads. All strides are in elements. A batch stride of 0 broadcasts
/// a matrix, except for `c`, whose matrices may interleave but not overlap. The residual has its own row stride and
/// batch strides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Matmul {
    pub batch: [usize; 2],
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub scale: f32,
    pub b_is_transposed: bool,
    /// Strides between rows as stored (before any transposition).
    pub a_stride: usize,
    pub b_stride: usize,
    pub c_stride: usize,
    pub a_batch: [usize; 2],
    pub b_batch: [usize; 2],
    pub c_batch: [usize; 2],
    pub residual_batch: [usize; 2],
}

impl Matmul {
    /// `batch` matmuls of dense, contiguous matrices.
    pub const fn new(batch: usize, m: usize, n: usize, k: usize, b_is_transposed: bool) -> Self {
        Self {
            batch: [1, batch],
            m,
            n,
            k,
            scale: 1.0,
            b_is_transposed,
            a_stride: k,
            b_stride: if b_is_transposed { k } else { n },
            c_stride: n,
            a_batch: [0, m.saturating_mul(k)],
            b_batch: [0, k.saturating_mul(n)],
            c_batch: [0, m.saturating_mul(n)],
            residual_batch: [0, m.saturating_mul(n)],
        }
    }

    fn offset(strides: [usize; 2], index: [usize; 2]) -> usize {
        strides[0] * index[0] + strides[1] * index[1]
    }

    /// Checks that `got` elements hold a matrix of the given rows, columns and stride for each index of the batch.
    fn check(&self, what: &'static str, rows: [usize; 3], batch: [usize; 2], got: usize) -> Result<(), Error> {
        let [rows, columns, stride] = rows;
        if rows == 0 || columns == 0 || self.batch.contains(&0) {
            return Ok(());
        }
        let mut expected = crate::error::span(what, rows, columns, stride)?;
        for axis in 0..2 {
            let skip = size(what, &[self.batch[axis] - 1, batch[axis]])?;
            expected = expected.checked_add(skip).ok_or(Error::Size { what })?;
        }
        at_least(what, got, expected)
    }

    /// Checks that no two elements of `c` share an address: sorted by stride, each dimension must step over the extent
    /// of the smaller ones.
    fn check_disjoint(&self) -> Result<(), Error> {
        let mut dimensions =
            [(self.c_stride, self.m), (self.c_batch[0], self.batch[0]), (self.c_batch[1], self.batch[1])];
        dimensions.sort_unstable();
        let mut reach = self.n;
        for (stride, count) in dimensions {
            if count > 1 {
                at_least("c batch stride", stride, reach)?;
                reach += stride * (count - 1); // `check` found that this fits.
            }
        }
        Ok(())
    }

    fn packed_len(&self) -> Option<usize> {
        crate::pack::matrix_f32_len(self.k, self.n)
    }

    /// Packs columns `panel * 16..` of `b`, which starts with the matrix.
    fn pack_panel(&self, b: &[f32], panel: usize, packed: &mut [f32]) {
        let column = panel * LANES;
        let columns = (self.n - column).min(LANES);
        for (k, lanes) in packed.chunks_exact_mut(LANES).take(self.k).enumerate() {
            if self.b_is_transposed {
                for (lane, value) in lanes.iter_mut().take(columns).enumerate() {
                    *value = b[(column + lane) * self.b_stride + k] * self.scale;
                }
            } else {
                let row = &b[k * self.b_stride + column..][..columns];
                for (value, &from) in lanes.iter_mut().zip(row) {
                    *value = from * self.scale;
                }
            }
            lanes[columns..].fill(0.0);
        }
    }
}

/// Returns the scratch memory that [`matmul`] needs, in floats; `None` if that overflows `usize`.
pub fn matmul_scratch(engine: &Engine, matmul: &Matmul) -> Option<usize> {
    matmul.packed_len()?.checked_mul(engine.threads())
}

/// Computes a batch of matmuls.
///
/// # Errors
/// When a slice is too short or matrices of the output would overlap.
pub fn matmul(
    engine: &Engine,
    matmul: &Matmul,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    epilogue: &Epilogue,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let &Matmul { batch, m, n, k, .. } = matmul;
    let b_rows = if matmul.b_is_transposed { [n, k] } else { [k, n] };
    matmul.check("a", [m, k, matmul.a_stride], matmul.a_batch, a.len())?;
    matmul.check("b", [b_rows[0], b_rows[1], matmul.b_stride], matmul.b_batch, b.len())?;
    matmul.check("c", [m, n, matmul.c_stride], matmul.c_batch, c.len())?;
    if let Some(Residual { data, stride }) = epilogue.residual {
        matmul.check("residual", [m, n, stride], matmul.residual_batch, data.len())?;
    }
    Epilogue { residual: None, ..*epilogue }.check(m, n)?;
    let matmuls = size("batch", &batch)?;
    if matmuls == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    matmul.check_disjoint()?;
    let needed = matmul_scratch(engine, matmul).ok_or(Error::Size { what: "scratch" })?;
    at_least("scratch", scratch.len(), needed)?;

    let c = DisjointPtr(c.as_mut_ptr());
    let run = |index: usize, packed: &[f32], here: bool| {
        let index = [index / batch[1], index % batch[1]];
        let mut args = epilogue.args();
        if epilogue.residual.is_some() {
            let residual = args.residual.as_f32().wrapping_add(Matmul::offset(matmul.residual_batch, index));
            args.residual = ElementPtr::f32(residual);
        }
        let data = &a[Matmul::offset(matmul.a_batch, index).min(a.len())..];
        let rows = Matrix { data, stride: matmul.a_stride, depth: k };
        let igemm = Igemm {
            lhs: &rows,
            m_outer: 1,
            m_inner: m,
            groups: 1,
            columns: n,
            packed: packed.into(),
            out: ElementPtrMut::f32(c.at(Matmul::offset(matmul.c_batch, index))),
            out_stride: matmul.c_stride,
            layout: OutputLayout::DENSE,
            epilogue: args,
        };
        if here {
            // SAFETY: the sizes were checked above, and matrices of the output do not overlap.
            unsafe { igemm.run_here(engine.dispatch) };
        } else {
            // SAFETY: likewise.
            unsafe { igemm.run(engine) };
        }
    };
    let b_of = |index: usize| &b[Matmul::offset(matmul.b_batch, [index / batch[1], index % batch[1]]).min(b.len())..];

    let one = needed / engine.threads();
    let panel = crate::pack::padded_rows(k) * LANES;
    let slots = DisjointPtr(scratch.as_mut_ptr());
    if matmuls >= 2 * engine.threads() {
        engine.pool.run_with_slot(matmuls, |slot, index| {
            // SAFETY: the scratch memory has `one` floats for each slot, and no two tasks have a slot at the same time.
            let packed = unsafe { core::slice::from_raw_parts_mut(slots.at(slot * one), one) };
            for (i, packed) in packed.chunks_exact_mut(panel.max(1)).enumerate() {
                matmul.pack_panel(b_of(index), i, packed);
            }
            run(index, packed, true);
        });
        return Ok(());
    }
    for index in 0..matmuls {
        engine.pool.run(n.div_ceil(LANES), |i| {
            // SAFETY: the panels are disjoint parts of the scratch memory.
            let packed = unsafe { core::slice::from_raw_parts_mut(slots.at(i * panel), panel) };
            matmul.pack_panel(b_of(index), i, packed);
        });
        run(index, &scratch[..one], false);
    }
    Ok(())
}

/// A pointer through which tasks access disjoint parts.
#[derive(Clone, Copy)]
struct DisjointPtr(*mut f32);

// SAFETY: only pointers are made from it; each use says why the parts are disjoint.
unsafe impl Sync for DisjointPtr {}

impl DisjointPtr {
    fn at(&self, offset: usize) -> *mut f32 {
        self.0.wrapping_add(offset)
    }
}
