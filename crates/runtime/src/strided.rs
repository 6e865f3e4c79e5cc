//! Copies of a caller's tensor, of any strides, into the dim order that the program expects.

use crate::tensor::MAX_RANK;

/// True if strides (row-major if `None`) reach the same elements in the same order as `expected`. Dimensions of size 1
/// may have any stride.
#[cfg_attr(target_os = "none", inline(never))]
pub(crate) fn is_dense(sizes: &[usize], strides: Option<&[usize]>, expected: &[usize]) -> bool {
    let mut is_dense = true;
    for (dim, (&size, &expected)) in sizes.iter().zip(expected).enumerate() {
        if size == 0 {
            return true;
        }
        is_dense &= size == 1 || stride(sizes, strides, dim) == expected;
    }
    is_dense
}

/// True if strides (row-major if `None`) are those of a dense tensor with this dim order.
pub(crate) fn has_dim_order(sizes: &[usize], strides: Option<&[usize]>, dim_order: &[u8]) -> bool {
    let mut expected = [1; MAX_RANK];
    dense_strides(sizes, dim_order.iter().map(|&dim| dim as usize), &mut expected);
    is_dense(sizes, strides, &expected)
}

/// The stride of a dimension; without strides, that of a dense row-major tensor.
#[inline]
fn stride(sizes: &[usize], strides: Option<&[usize]>, dim: usize) -> usize {
    match strides {
        Some(strides) => strides.get(dim).copied().unwrap_or(1),
        // If another size is 0, the product is unchecked and unused.
        None => sizes.iter().skip(dim + 1).fold(1, |product, size| product.wrapping_mul(*size)),
    }
}

/// Fills `strides` with those of a dense tensor in the dim order `dim_order`, outermost first.
pub fn dense_strides(sizes: &[usize], dim_order: impl DoubleEndedIterator<Item = usize>, strides: &mut [usize]) {
    let mut stride = 1usize;
    for dim in dim_order.rev() {
        if let (Some(slot), Some(&size)) = (strides.get_mut(dim), sizes.get(dim)) {
            *slot = stride;
            stride = stride.saturating_mul(size);
        }
    }
}

/// The order of a row-major tensor's dimensions.
pub(crate) const ROW_MAJOR: [u8; MAX_RANK] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Copies bytes between slices of the same length.
///
/// On x86-64, C libraries copy more than 4 KiB by `rep movsb`. AMD processors execute it at a tenth of the usual speed
/// if the destination begins less than a cache line after the source, modulo the size of a page. In this case the bytes
/// are copied in pieces.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_bytes(to: &mut [u8], from: &[u8]) {
    // A call would take longer than the copy of a single number.
    if cfg!(not(target_os = "none"))
        && let (Ok(to), Ok(from)) = (<&mut [u8; 4]>::try_from(&mut *to), <&[u8; 4]>::try_from(from))
    {
        *to = *from;
        return;
    }
    const PIECE: usize = 1 << 11;
    const PAGE: usize = 1 << 12;
    let ahead = || to.as_ptr().addr().wrapping_sub(from.as_ptr().addr()) % PAGE;
    let is_slow = cfg!(target_arch = "x86_64") && to.len() > PIECE && (1..64).contains(&ahead());
    if is_slow && to.len() == from.len() {
        to.chunks_mut(PIECE).zip(from.chunks(PIECE)).for_each(|(to, from)| to.copy_from_slice(from));
    } else {
        to.copy_from_slice(from);
    }
}

/// One dimension of a copy.
#[derive(Clone, Copy)]
struct Dimension {
    size: usize,
    /// Bytes between neighbours.
    step: usize,
    index: usize,
}

/// Elements of `width` bytes, with their sizes and strides (row-major if `None`).
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) width: usize,
    pub(crate) sizes: &'a [usize],
    pub(crate) strides: Option<&'a [usize]>,
}

/// Copies the elements into `to`, with their dimensions in the order `dim_order` from the outermost to the innermost.
pub(crate) fn copy_ordered(from: Strided<'_>, dim_order: &[u8], to: &mut [u8]) {
    let Strided { data, width, sizes, strides } = from;
    // Innermost first.
    let mut dims = [Dimension { size: 1, step: 0, index: 0 }; MAX_RANK];
    for (slot, &dim) in dims.iter_mut().zip(dim_order.iter().rev()) {
        slot.size = sizes.get(dim as usize).copied().unwrap_or(1);
        slot.step = stride(sizes, strides, dim as usize).wrapping_mul(width);
    }
    let [inner, outer @ ..] = &mut dims;
    let mut start = 0usize;
    for row in to.chunks_exact_mut((inner.size * width).max(1)) {
        let mut at = start;
        for element in row.chunks_exact_mut(width) {
            if let Some(from) = data.get(at..).and_then(|data| data.get(..width)) {
                element.copy_from_slice(from);
            }
            at = at.wrapping_add(inner.step);
        }
        for dim in outer.iter_mut() {
            dim.index += 1;
            start = start.wrapping_add(dim.step);
            if dim.index < dim.size {
                break;
            }
            start = start.wrapping_sub(dim.step.wrapping_mul(dim.size));
            dim.index = 0;
        }
    }
}
