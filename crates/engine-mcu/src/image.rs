//! Shapes of images, and windows over them.

use core::ops::Range;

/// The shape of a channels-last image, or of a batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    pub batch: usize,
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl Image {
    /// The number of elements, if it fits.
    pub(crate) fn len(&self) -> Option<usize> {
        self.batch.checked_mul(self.height)?.checked_mul(self.width)?.checked_mul(self.channels)
    }

    /// True if `data` is a batch of such images.
    pub(crate) fn is_shape_of(&self, data: &[i8]) -> bool {
        self.len() == Some(data.len())
    }

    /// The number of elements of one image.
    pub(crate) fn size(&self) -> usize {
        self.height * self.width * self.channels
    }
}

/// A window along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of taps.
    pub kernel: usize,
    pub stride: usize,
    /// Padding before the first element.
    pub padding: usize,
    /// Distance between taps.
    pub dilation: usize,
}

impl Axis {
    /// True if no position of a window overflows, over `input` elements and with `output` positions.
    pub(crate) fn is_valid(&self, input: usize, output: usize) -> bool {
        let end = || {
            let last = output.saturating_sub(1).checked_mul(self.stride)?;
            let reach = self.kernel.checked_mul(self.dilation)?;
            last.checked_add(reach)?.checked_add(self.padding)?.checked_add(input)
        };
        self.kernel > 0 && self.stride > 0 && self.dilation > 0 && end().is_some_and(|end| isize::try_from(end).is_ok())
    }

    /// The taps inside of `size` elements at output position `at`, and the element under the first of them.
    pub(crate) fn taps(&self, at: usize, size: usize) -> (Range<usize>, usize) {
        let start = at * self.stride;
        // The number of taps in the padding, and up to the end of the image, at a dilation of 1.
        let missing = self.padding.saturating_sub(start);
        let rest = (size + self.padding).saturating_sub(start);
        let (first, end) = if self.dilation == 1 {
            (missing, rest)
        } else {
            (missing.div_ceil(self.dilation), rest.div_ceil(self.dilation))
        };
        let end = end.min(self.kernel);
        let first = first.min(end);
        (first..end, (start + first * self.dilation).saturating_sub(self.padding))
    }
}

/// A window over rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub rows: Axis,
    pub columns: Axis,
}

impl Window {
    pub(crate) fn is_valid(&self, input: &Image, output: &Image) -> bool {
        self.rows.is_valid(input.height, output.height) && self.columns.is_valid(input.width, output.width)
    }

    /// Calls `compute` with the patch and the channels of each output position. The shapes are valid.
    pub(crate) fn for_each_patch(
        &self,
        (input, x): (&Image, &[i8]),
        (output, out): (&Image, &mut [i8]),
        mut compute: impl FnMut(&Patch<'_>, &mut [i8]),
    ) {
        if out.is_empty() {
            return;
        }
        for (row, out) in out.chunks_exact_mut(output.width * output.channels).enumerate() {
            let (image, y) = (row / output.height, row % output.height);
            let x = &x[image * input.size()..(image + 1) * input.size()];
            let (rows, top) = self.rows.taps(y, input.height);
            for (column, out) in out.chunks_exact_mut(output.channels).enumerate() {
                let (columns, left) = self.columns.taps(column, input.width);
                compute(&Patch { x, rows: rows.clone(), top, columns, left }, out);
            }
        }
    }

    /// The number of taps, if it fits.
    pub(crate) fn taps(&self) -> Option<usize> {
        self.rows.kernel.checked_mul(self.columns.kernel)
    }
}

/// The part of a window that lies inside of the image.
pub(crate) struct Patch<'a> {
    /// One image.
    pub x: &'a [i8],
    pub rows: Range<usize>,
    /// The row under the first tap.
    pub top: usize,
    pub columns: Range<usize>,
    /// The column under the first tap.
    pub left: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_equal_their_definition() {
        for code in 0..6 * 4 * 5 * 3 * 7 {
            let axis = Axis {
                kernel: 1 + code % 6,
                stride: 1 + code / 6 % 4,
                padding: code / 24 % 5,
                dilation: 1 + code / 120 % 3,
            };
            let size = 1 + code / 360 % 7;
            for at in 0..8 {
                let inside = |&k: &usize| {
                    let position = at * axis.stride + k * axis.dilation;
                    position >= axis.padding && position < size + axis.padding
                };
                let mut expected = (0..axis.kernel).filter(inside);
                let (taps, first) = axis.taps(at, size);
                assert_eq!(taps.len(), expected.clone().count(), "{axis:?} {size} {at}");
                if let Some(k) = expected.next() {
                    assert_eq!((taps.start, first), (k, at * axis.stride + k * axis.dilation - axis.padding));
                }
            }
        }
    }
}
