//! Copying a caller's tensor of any strides into the dim order that the program expects.

use crate::error::Result;
use crate::io::TensorView;
use crate::tensor::{MAX_RANK, TensorState};

/// True if strides (row-major where `None`) reach the same elements in the same order as `expected`. Dimensions of
/// size 1 may have any stride.
pub(crate) fn is_dense(sizes: &[usize], strides: Option<&[usize]>, expected: &[usize]) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let row_major = row_major(sizes);
    let strides = strides.unwrap_or_else(|| row_major.get(..sizes.len()).unwrap_or_default());
    sizes.iter().zip(strides.iter().zip(expected)).all(|(&size, (stride, expected))| size == 1 || stride == expected)
}

/// True if strides (row-major where `None`) are those of a dense tensor with this dim order.
pub(crate) fn has_dim_order(sizes: &[usize], strides: Option<&[usize]>, dim_order: &[u8]) -> bool {
    let mut expected = [1; MAX_RANK];
    dense_strides(sizes, dim_order.iter().map(|&dim| dim as usize), &mut expected);
    is_dense(sizes, strides, &expected)
}

fn row_major(sizes: &[usize]) -> [usize; MAX_RANK] {
    let mut strides = [1; MAX_RANK];
    dense_strides(sizes, 0..sizes.len(), &mut strides);
    strides
}

/// Fills `strides` with those of a dense tensor whose dimensions lie in memory in the order `dim_order`, outermost first.
pub fn dense_strides(sizes: &[usize], dim_order: impl DoubleEndedIterator<Item = usize>, strides: &mut [usize]) {
    let mut stride = 1usize;
    for dim in dim_order.rev() {
        if let (Some(slot), Some(&size)) = (strides.get_mut(dim), sizes.get(dim)) {
            *slot = stride;
            stride = stride.saturating_mul(size);
        }
    }
}

/// Copies the view, whose type and sizes are the tensor's, into the tensor's memory.
pub(crate) fn copy<'m>(state: &'m TensorState<'m>, view: &TensorView<'_>) -> Result<()> {
    let dense = is_dense(view.sizes, view.strides, state.strides());
    let mut tensor = state.tensor_mut()?;
    let to = tensor.bytes_mut();
    match view.data.get(..to.len()) {
        Some(from) if dense => to.copy_from_slice(from),
        _ => copy_ordered(view, state.dim_order.iter().map(|&dim| dim as usize), to),
    }
    Ok(())
}

/// Copies the view into `to`, with its dimensions in the order `dim_order` from the outermost to the innermost.
pub(crate) fn copy_ordered(view: &TensorView<'_>, dim_order: impl ExactSizeIterator<Item = usize>, to: &mut [u8]) {
    let row_major = row_major(view.sizes);
    let strides = view.strides.unwrap_or(&row_major);
    // Sizes and strides of the view in the order of the copy, outermost first.
    let (mut sizes, mut steps) = ([1usize; MAX_RANK], [0usize; MAX_RANK]);
    let rank = dim_order.len();
    for ((dim, size), step) in dim_order.zip(&mut sizes).zip(&mut steps) {
        *size = view.sizes.get(dim).copied().unwrap_or(1);
        *step = strides.get(dim).copied().unwrap_or(0);
    }
    let (sizes, steps) = (sizes.get(..rank).unwrap_or_default(), steps.get(..rank).unwrap_or_default());
    let width = view.dtype.size();
    let (inner, outer) = sizes.split_last().map_or((1, sizes), |(&inner, outer)| (inner, outer));
    let (inner_step, outer_steps) = steps.split_last().map_or((0, steps), |(&step, outer)| (step, outer));
    let mut index = [0usize; MAX_RANK];
    for row in to.chunks_exact_mut((inner * width).max(1)) {
        let offset: usize = index.iter().zip(outer_steps).map(|(i, step)| i * step).sum();
        for (i, element) in row.chunks_exact_mut(width).enumerate() {
            let at = (offset + i * inner_step) * width;
            if let Some(from) = view.data.get(at..at + width) {
                element.copy_from_slice(from);
            }
        }
        for (i, &size) in index.iter_mut().take(outer.len()).zip(outer).rev() {
            *i += 1;
            if *i < size {
                break;
            }
            *i = 0;
        }
    }
}
