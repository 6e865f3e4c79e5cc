//! Windows that slide over up to three spatial dimensions: their parameters, how many there are, and the part of each
//! that lies inside of the input.

use core::ops::Range;

use rushlight_runtime::{Detail, Error, IntList, KernelContext, Result, Tensor};

use crate::support::runs::{Accumulator, Load};
use crate::support::shape::Dims;

/// Sizes of the last three dimensions; absent ones count as one element.
pub(crate) type Space = [usize; 3];

/// Reads the int list at `argument` as one value for each of the last `dims` dimensions, or one value for all.
///
/// Values are at least `min`; dimensions beyond `dims` get `absent`. An empty list gives `None`.
pub(crate) fn space(
    cx: &KernelContext<'_>,
    argument: usize,
    what: &'static str,
    dims: usize,
    min: usize,
    absent: usize,
) -> Result<Option<Space>> {
    let list = cx.ints(argument)?;
    if list.is_empty() {
        return Ok(None);
    }
    if list.len() != 1 && list.len() != dims {
        return Err(Error::from(Detail::Count { what, expected: dims, got: list.len() }).arg(argument));
    }
    let mut result = [absent; 3];
    for (dim, slot) in result.iter_mut().skip(3 - dims.min(3)).enumerate() {
        *slot = value(&list, dim, what, min).map_err(|e| e.arg(argument))?;
    }
    Ok(Some(result))
}

fn value(list: &IntList<'_>, dim: usize, what: &'static str, min: usize) -> Result<usize> {
    let got = list.get(if list.len() == 1 { 0 } else { dim }).unwrap_or(0);
    // Sums of a few such values cannot overflow then.
    match usize::try_from(got) {
        Ok(v) if v >= min && v <= usize::MAX >> 4 => Ok(v),
        _ => Err(Detail::Value { what, expected: if min == 0 { "at least 0" } else { "at least 1" }, got }.into()),
    }
}

/// As [`space`], for a list that may not be empty.
pub(crate) fn required_space(
    cx: &KernelContext<'_>,
    argument: usize,
    what: &'static str,
    dims: usize,
    min: usize,
    absent: usize,
) -> Result<Space> {
    match space(cx, argument, what, dims, min, absent)? {
        Some(space) => Ok(space),
        None => Err(Error::from(Detail::Count { what, expected: dims, got: 0 }).arg(argument)),
    }
}

/// Strides of the planes of a tensor: batches, channels, and up to three spatial dimensions.
#[derive(Clone, Copy)]
pub(crate) struct Planes {
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) space: Space,
    pub(crate) batch_stride: usize,
    pub(crate) channel_stride: usize,
    pub(crate) strides: Space,
}

impl Planes {
    /// The last `dims` dimensions are spatial, the one before is the channel, the first of `dims + 2` is the batch.
    pub(crate) fn new(sizes: &[usize], strides: &[usize], dims: usize) -> Self {
        let at = |from: &[usize], back: usize, absent: usize| {
            from.len().checked_sub(back).and_then(|i| from.get(i)).copied().unwrap_or(absent)
        };
        let spatial = |from: &[usize], absent: usize| {
            let mut space = [absent; 3];
            for back in 1..=dims.min(3) {
                space[3 - back] = at(from, back, absent);
            }
            space
        };
        Self {
            batch: at(sizes, dims + 2, 1),
            channels: at(sizes, dims + 1, 1),
            space: spatial(sizes, 1),
            batch_stride: at(strides, dims + 2, 0),
            channel_stride: at(strides, dims + 1, 0),
            strides: spatial(strides, 0),
        }
    }

    pub(crate) fn of(tensor: &Tensor<'_>, dims: usize) -> Self {
        Self::new(tensor.sizes(), tensor.strides(), dims)
    }

    /// Offset of the first element of a plane.
    pub(crate) fn plane(&self, batch: usize, channel: usize) -> usize {
        batch * self.batch_stride + channel * self.channel_stride
    }

    /// Offset of element 0 of row (z, y) within its plane.
    pub(crate) fn row(&self, z: usize, y: usize) -> usize {
        z * self.strides[0] + y * self.strides[1]
    }
}

/// The windows along one dimension.
#[derive(Clone, Copy)]
pub(crate) struct WindowDim {
    pub(crate) size: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) dilation: usize,
}

impl WindowDim {
    /// Number of windows that fit, rounded up in ceil mode if the last one starts inside of the input or its left padding.
    /// Fails if none fits or the sizes overflow.
    pub(crate) fn count(&self, ceil: bool) -> Result<usize> {
        let fitting = || {
            let span = self.dilation.checked_mul(self.kernel.checked_sub(1)?)?.checked_add(1)?;
            let padded = self.padding.checked_mul(2)?.checked_add(self.size)?;
            let room = padded.checked_add(if ceil { self.stride - 1 } else { 0 })?.checked_sub(span)?;
            let mut count = room / self.stride + 1;
            if ceil && (count - 1).checked_mul(self.stride)? >= self.size + self.padding {
                count -= 1;
            }
            Some(count).filter(|&n| n > 0 && padded <= usize::MAX >> 2)
        };
        fitting().ok_or_else(|| Error::invalid("the window is larger than the padded input"))
    }

    /// The taps of window `index` that lie inside of the input.
    pub(crate) fn taps(&self, index: usize) -> Range<usize> {
        let start = index * self.stride;
        let first = self.padding.saturating_sub(start).div_ceil(self.dilation);
        let end = (self.size + self.padding).saturating_sub(start).div_ceil(self.dilation).min(self.kernel);
        first.min(end)..end
    }

    /// The input position of tap `tap` of window `index`, which is inside of the input.
    pub(crate) fn position(&self, index: usize, tap: usize) -> usize {
        (index * self.stride + tap * self.dilation).saturating_sub(self.padding)
    }

    /// The windows among `0..count` whose tap `tap` lies inside of the input.
    pub(crate) fn windows(&self, tap: usize, count: usize) -> Range<usize> {
        let offset = tap * self.dilation;
        let first = self.padding.saturating_sub(offset).div_ceil(self.stride);
        let end = (self.size + self.padding).saturating_sub(offset).div_ceil(self.stride).min(count);
        first.min(end)..end
    }

    /// The first tap from `tap` on that lies inside of the input for any of these windows.
    fn next_tap(&self, tap: usize, windows: Range<usize>) -> Option<usize> {
        windows.map(|index| self.taps(index)).filter(|taps| taps.end > tap).map(|taps| taps.start.max(tap)).min()
    }
}

/// Columns that [`sweep`] handles at once.
pub(crate) const CHUNK: usize = 64;

/// Parameters of the windows of a pooling operator, from its arguments.
pub(crate) struct Pool {
    pub(crate) windows: [WindowDim; 3],
    /// Windows along each dimension.
    pub(crate) output: Space,
    pub(crate) dims: usize,
}

impl Pool {
    /// Reads kernel size, stride and padding from argument 1 (or `first`) on, then the dilation if `dilated`.
    pub(crate) fn read(
        cx: &KernelContext<'_>,
        sizes: &[usize],
        dims: usize,
        first: usize,
        dilated: bool,
        ceil: bool,
    ) -> Result<Self> {
        if sizes.len() != dims + 1 && sizes.len() != dims + 2 {
            let expected = ["2 or 3", "3 or 4", "4 or 5"].get(dims.wrapping_sub(1)).copied().unwrap_or("another");
            return Err(Error::from(Detail::Rank { expected, got: sizes.len() }));
        }
        if let Some(dim) = (sizes.len() - dims..sizes.len()).find(|&dim| sizes[dim] == 0) {
            return Err(Detail::Size { dim, expected: 1, got: 0 }.into());
        }
        let kernel = required_space(cx, first, "kernel_size", dims, 1, 1)?;
        let stride = space(cx, first + 1, "stride", dims, 1, 1)?.unwrap_or(kernel);
        let padding = required_space(cx, first + 2, "padding", dims, 0, 0)?;
        let dilation = if dilated { required_space(cx, first + 3, "dilation", dims, 1, 1)? } else { [1; 3] };
        let planes = Planes::new(sizes, sizes, dims);
        let mut windows = [WindowDim { size: 1, kernel: 1, stride: 1, padding: 0, dilation: 1 }; 3];
        let mut output = [1; 3];
        for dim in 0..3 {
            let (size, kernel, padding) = (planes.space[dim], kernel[dim], padding[dim]);
            if padding > kernel / 2 {
                let expected = "at most half of the kernel size";
                return Err(
                    Error::from(Detail::Value { what: "padding", expected, got: padding as i64 }).arg(first + 2)
                );
            }
            windows[dim] = WindowDim { size, kernel, stride: stride[dim], padding, dilation: dilation[dim] };
            output[dim] = windows[dim].count(ceil)?;
        }
        Ok(Self { windows, output, dims })
    }

    /// The sizes of the output for an input with these sizes.
    pub(crate) fn output_sizes(&self, input: &[usize]) -> Result<Dims> {
        let mut sizes = Dims::from_slice(input)?;
        let leading = sizes.len().saturating_sub(self.dims);
        for (size, &output) in sizes[leading..].iter_mut().zip(&self.output[3 - self.dims..]) {
            *size = output;
        }
        Ok(sizes)
    }
}

/// Visits the input elements of the windows at row (z, y) and `columns` (at most [`CHUNK`]), tap by tap.
///
/// `visit` gets, for one tap: the columns that it lies inside of the input for, counted from the start of `columns`;
/// the logical index within the plane of the first of the elements; and the elements.
pub(crate) fn sweep<A: Accumulator>(
    windows: &[WindowDim; 3],
    source: (&Tensor<'_>, Load<A>),
    from: &Planes,
    plane: usize,
    (z, y): (usize, usize),
    columns: Range<usize>,
    mut visit: impl FnMut(Range<usize>, usize, &[A]),
) -> Result<()> {
    let [depth, row, column] = windows;
    let mut buffer = [A::ZERO; CHUNK];
    for z_tap in depth.taps(z) {
        let z = depth.position(z, z_tap);
        for y_tap in row.taps(y) {
            let y = row.position(y, y_tap);
            let mut tap = 0;
            while tap < column.kernel {
                let inside = column.windows(tap, columns.end);
                let inside = inside.start.max(columns.start)..inside.end;
                if inside.is_empty() {
                    match column.next_tap(tap + 1, columns.clone()) {
                        Some(next) => tap = next,
                        None => break,
                    }
                    continue;
                }
                let x = column.position(inside.start, tap);
                let values = &mut buffer[..inside.len().min(CHUNK)];
                let start = plane + from.row(z, y) + x * from.strides[2];
                (source.1)(source.0, start, column.stride * from.strides[2], values)?;
                let index = (z * from.space[1] + y) * from.space[2] + x;
                visit(inside.start - columns.start..inside.end - columns.start, index, values);
                tap += 1;
            }
        }
    }
    Ok(())
}

/// Fails unless the sizes are the expected ones.
pub(crate) fn expect_sizes(sizes: &[usize], expected: &[usize]) -> Result<()> {
    if sizes.len() != expected.len() {
        return Err(Detail::Count { what: "dimensions", expected: expected.len(), got: sizes.len() }.into());
    }
    match sizes.iter().zip(expected).enumerate().find(|(_, (got, expected))| got != expected) {
        Some((dim, (&got, &expected))) => Err(Detail::Size { dim, expected, got }.into()),
        None => Ok(()),
    }
}
