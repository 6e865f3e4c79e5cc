//! Direct convolution of any kind: one to three dimensions, groups, strides, dilation, transposed, any dim order.
//!
//! For each band of output rows, the input rows that it reads are copied to temporary memory with their padding, in
//! accumulators, and with the columns of each stride phase next to each other. Every tap of the kernel is then a plain
//! offset into that copy, listed once in a table, and a row of outputs is a sum over one flat list of taps: no edges
//! and no strides are left in the inner loop. A transposed convolution is one such sum for each column phase of its
//! output.

use rushlight_runtime::{Error, KernelContext, Result, Tensor, TensorMut};

use super::window::{Planes, Space};
use crate::support::runs::{Accumulator, Load, native, runs};

/// A convolution whose arguments fit together.
#[derive(Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) batch: usize,
    pub(crate) groups: usize,
    /// Channels of one group.
    pub(crate) in_channels: usize,
    pub(crate) out_channels: usize,
    pub(crate) input: Space,
    pub(crate) output: Space,
    pub(crate) kernel: Space,
    pub(crate) stride: Space,
    pub(crate) padding: Space,
    pub(crate) dilation: Space,
    /// The weight is `[in, out / groups, ...]` and the input is spread by `stride`; else `[out, in / groups, ...]`.
    pub(crate) transposed: bool,
}

/// Output columns of the register tile, and output channels of it.
const LANES: usize = 8;
const CHANNELS: usize = 4;
/// Taps whose weights are copied to the stack at once where they do not lie in a row.
const BLOCK: usize = 64;
/// Bytes of staged input up to which more output rows share one copy.
const BUDGET: usize = 16 << 10;

/// The extent of the staged input.
struct Stage {
    /// Output rows that share it.
    band: usize,
    /// Input rows of one channel and depth tap.
    rows: usize,
    /// Distance in input rows between staged rows.
    row_step: usize,
    /// Elements of one stride phase of a row.
    phase: usize,
    phases: usize,
    /// Zeros before the first input column (transposed only).
    left: usize,
    /// Outputs of one row and phase, rounded up to whole tiles.
    width: usize,
    len: usize,
    /// Elements of memory to ask for: what this or any smaller shape takes.
    bound: usize,
    taps: usize,
}

impl Stage {
    fn new<A>(g: &Geometry) -> Result<Self> {
        Self::checked(g, BUDGET / size_of::<A>())
            .ok_or_else(|| Error::invalid("the convolution needs more temporary memory than can be addressed"))
    }

    fn checked(g: &Geometry, budget: usize) -> Option<Self> {
        let [depth_taps, row_taps, _] = g.kernel;
        let stride = g.stride[2];
        let reach = g.kernel[2].saturating_sub(1).checked_mul(g.dilation[2])?;
        let taps = g.kernel.iter().try_fold(g.in_channels, |n, &k| n.checked_mul(k))?;
        let columns = if g.transposed { g.output[2].div_ceil(stride) } else { g.output[2] };
        let width = columns.checked_next_multiple_of(LANES)?;
        let (phases, phase, left) = if g.transposed {
            let left = reach.saturating_sub(g.padding[2]).div_ceil(stride);
            (1, width.checked_add(left)?.checked_add((stride - 1).checked_add(g.padding[2])? / stride)?, left)
        } else {
            (stride.min(reach.checked_add(1)?), width.checked_add(reach / stride)?, 0)
        };
        // A row more in length for each row step, so that no product below overflows unnoticed.
        let line = phases.checked_mul(phase)?.checked_mul(g.in_channels)?.checked_mul(depth_taps)?;
        let single = line.checked_mul(row_taps)?;
        let mut stage = Self {
            band: 1,
            rows: row_taps,
            row_step: g.dilation[1],
            phase,
            phases,
            left,
            width,
            len: single,
            bound: single,
            taps,
        };
        let reach = row_taps.saturating_sub(1).checked_mul(g.dilation[1])?.checked_add(1)?;
        let needed = |band: usize| (band - 1).checked_mul(g.stride[1])?.checked_add(reach)?.checked_mul(line);
        if !g.transposed && g.output[1] > 1 && line > 0 {
            let room = (budget / line).checked_sub(reach).map_or(1, |rows| rows / g.stride[1] + 1);
            let all = needed(g.output[1]).filter(|&len| len <= budget);
            stage.band = room.min(g.output[1]);
            if stage.band > 1 {
                stage.rows = (stage.band - 1) * g.stride[1] + reach;
                stage.row_step = 1;
                stage.len = needed(stage.band)?;
            }
            stage.bound = all.unwrap_or(budget.max(single)).max(stage.len);
        }
        u32::try_from(stage.len).ok()?;
        Some(stage)
    }
}

/// Temporary bytes that [`convolve`] takes for tensors up to this size.
pub(crate) fn temp_bytes<A: Accumulator>(g: &Geometry) -> Result<usize> {
    let stage = Stage::new::<A>(g)?;
    let sums = stage.width.checked_mul(CHANNELS);
    sums.and_then(|n| n.checked_add(stage.bound)?.checked_mul(size_of::<A>()))
        .and_then(|bytes| stage.taps.checked_mul(2 * size_of::<u32>())?.checked_add(bytes)?.checked_add(64))
        .ok_or_else(|| Error::invalid("the convolution needs more temporary memory than can be addressed"))
}

/// The taps of one output coordinate: kernel positions `kernel + t * kernel_step` on input positions
/// `input + t * input_step`, which may lie outside of the input.
#[derive(Clone, Copy)]
struct Taps {
    count: usize,
    kernel: usize,
    kernel_step: usize,
    input: isize,
    input_step: isize,
}

impl Taps {
    fn new(g: &Geometry, dim: usize, output: usize) -> Self {
        let (kernel, stride, dilation) = (g.kernel[dim], g.stride[dim], g.dilation[dim]);
        let padding = g.padding[dim] as isize;
        if !g.transposed {
            let input = (output * stride) as isize - padding;
            return Self { count: kernel, kernel: 0, kernel_step: 1, input, input_step: dilation as isize };
        }
        // output = input * stride - padding + kernel * dilation, solved for input.
        let common = greatest_common_divisor(stride, dilation);
        let step = stride / common;
        let spread = |k: usize| (output as isize) + padding - (k * dilation) as isize;
        let first = (0..kernel.min(step)).find(|&k| spread(k) % stride as isize == 0);
        match first {
            None => Self { count: 0, kernel: 0, kernel_step: 1, input: 0, input_step: 0 },
            Some(k) => Self {
                count: (kernel - k).div_ceil(step),
                kernel: k,
                kernel_step: step,
                input: spread(k) / stride as isize,
                input_step: -((dilation / common) as isize),
            },
        }
    }

    fn kernel(&self, t: usize) -> usize {
        self.kernel + t * self.kernel_step
    }

    fn input(&self, t: usize) -> isize {
        self.input + t as isize * self.input_step
    }
}

fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// The weight of a convolution as its strides; `input` and `output` step over channels within a group.
#[derive(Clone, Copy)]
struct Weight<'a, A> {
    tensor: Tensor<'a>,
    native: Option<&'a [A]>,
    load: Load<A>,
    group: usize,
    output: usize,
    input: usize,
    space: Space,
    /// The taps of one output channel lie in a row, in the order of the table.
    flat: bool,
}

impl<'a, A: Accumulator> Weight<'a, A> {
    fn new(tensor: Tensor<'a>, g: &Geometry, dims: usize) -> Result<Self> {
        let planes = Planes::of(&tensor, dims);
        let (first, second) = (planes.batch_stride, planes.channel_stride);
        let (group, output, input) =
            if g.transposed { (g.in_channels * first, second, first) } else { (g.out_channels * first, first, second) };
        let space = planes.strides;
        let mut expected = 1;
        let mut flat = !g.transposed;
        for dim in (0..3).rev() {
            flat &= g.kernel[dim] == 1 || space[dim] == expected;
            expected *= g.kernel[dim];
        }
        flat &= g.in_channels == 1 || input == expected;
        Ok(Self {
            tensor,
            native: native(&tensor),
            load: runs::<A>(tensor.dtype())?.load,
            group,
            output,
            input,
            space,
            flat,
        })
    }
}

/// Computes the convolution. `dims` is the number of spatial dimensions of the tensors.
pub(crate) fn convolve<A: Accumulator>(
    cx: &KernelContext<'_>,
    g: &Geometry,
    dims: usize,
    input: Tensor<'_>,
    weight: Tensor<'_>,
    bias: Option<Tensor<'_>>,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let stage = Stage::new::<A>(g)?;
    let mut memory = Scratch {
        stage: cx.temp::<A>(stage.len)?,
        sums: cx.temp::<A>(CHANNELS * stage.width)?,
        offsets: cx.temp::<u32>(stage.taps)?,
        places: cx.temp::<u32>(stage.taps)?,
        taps: 0,
    };
    let source =
        ConvolutionInput { planes: Planes::of(&input, dims), load: runs::<A>(input.dtype())?.load, tensor: input };
    let weight = Weight::<A>::new(weight, g, dims)?;
    let bias = match bias {
        Some(tensor) => Some(Bias { tensor, load: runs::<A>(tensor.dtype())?.load }),
        None => None,
    };
    let planes = Planes::new(out.sizes(), out.strides(), dims);
    let mut target = ConvolutionOutput { planes, store: runs::<A>(out.dtype())?.store, out };
    let mut pieces = Pieces { weight: &weight, bias, buffer: [[A::ZERO; BLOCK]; CHANNELS], held: None };
    if !g.transposed {
        // The same taps serve every output.
        let taps = (Taps::new(g, 0, 0), Taps::new(g, 1, 0), 0);
        memory.taps = list_taps(g, &stage, taps, &weight, memory.offsets, memory.places);
    }
    for n in 0..g.batch {
        for group in 0..g.groups {
            for z in 0..g.output[0] {
                for y in (0..g.output[1]).step_by(stage.band) {
                    let band = stage.band.min(g.output[1] - y);
                    let place = Band { n, group, z, y, rows: band };
                    let rows = fill(g, &stage, &source, place, memory.stage)?;
                    convolve_band(g, &stage, place, rows, &mut pieces, &mut memory, &mut target)?;
                }
            }
        }
    }
    Ok(())
}

struct Scratch<'a, A> {
    stage: &'a mut [A],
    sums: &'a mut [A],
    offsets: &'a mut [u32],
    places: &'a mut [u32],
    /// Number of listed offsets and places.
    taps: usize,
}

struct ConvolutionInput<'a, A> {
    tensor: Tensor<'a>,
    planes: Planes,
    load: Load<A>,
}

struct ConvolutionOutput<'o, 't, A> {
    out: &'o mut TensorMut<'t>,
    planes: Planes,
    store: crate::support::runs::Store<A>,
}

/// Output rows that are computed together.
#[derive(Clone, Copy)]
struct Band {
    n: usize,
    group: usize,
    z: usize,
    y: usize,
    rows: usize,
}

/// Copies the input rows that a band reads. Returns the taps of its depth and of its first row.
fn fill<A: Accumulator>(
    g: &Geometry,
    stage: &Stage,
    source: &ConvolutionInput<'_, A>,
    at: Band,
    target: &mut [A],
) -> Result<(Taps, Taps)> {
    let (depths, rows) = (Taps::new(g, 0, at.z), Taps::new(g, 1, at.y));
    let step = if g.transposed { rows.input_step } else { stage.row_step as isize };
    let count = if g.transposed { rows.count } else { stage.rows };
    let mut lines = target.chunks_exact_mut((stage.phase * stage.phases).max(1));
    for channel in 0..g.in_channels {
        let plane = source.planes.plane(at.n, at.group * g.in_channels + channel);
        for depth in 0..depths.count {
            let z = inside(depths.input(depth), g.input[0]);
            for row in 0..count {
                let y = inside(rows.input + row as isize * step, g.input[1]);
                let Some(line) = lines.next() else { return Ok((depths, rows)) };
                match z.zip(y) {
                    Some((z, y)) => fill_line(g, stage, source, plane + source.planes.row(z, y), line)?,
                    None => line.fill(A::ZERO),
                }
            }
        }
    }
    Ok((depths, rows))
}

fn inside(position: isize, size: usize) -> Option<usize> {
    usize::try_from(position).ok().filter(|&p| p < size)
}

/// Copies one input row, its columns sorted by stride phase.
fn fill_line<A: Accumulator>(
    g: &Geometry,
    stage: &Stage,
    source: &ConvolutionInput<'_, A>,
    start: usize,
    line: &mut [A],
) -> Result<()> {
    let (left, step) = if g.transposed { (stage.left, 1) } else { (g.padding[2], g.stride[2]) };
    for (phase, line) in line.chunks_exact_mut(stage.phase.max(1)).enumerate() {
        let first = left.saturating_sub(phase).div_ceil(step).min(line.len());
        let end = (g.input[2] + left).saturating_sub(phase).div_ceil(step).clamp(first, line.len());
        let (before, rest) = line.split_at_mut(first);
        let (middle, after) = rest.split_at_mut(end - first);
        before.fill(A::ZERO);
        after.fill(A::ZERO);
        if !middle.is_empty() {
            let column = first * step + phase - left;
            let stride = source.planes.strides[2];
            (source.load)(&source.tensor, start + column * stride, step * stride, middle)?;
        }
    }
    Ok(())
}

fn convolve_band<A: Accumulator>(
    g: &Geometry,
    stage: &Stage,
    at: Band,
    (depths, rows): (Taps, Taps),
    pieces: &mut Pieces<'_, A>,
    memory: &mut Scratch<'_, A>,
    target: &mut ConvolutionOutput<'_, '_, A>,
) -> Result<()> {
    let column_step = if g.transposed { g.stride[2] } else { 1 };
    for x in 0..column_step.min(g.output[2]) {
        let columns = (g.output[2] - x).div_ceil(column_step);
        if g.transposed {
            let taps = (depths, rows, x);
            memory.taps = list_taps(g, stage, taps, pieces.weight, memory.offsets, memory.places);
            pieces.held = None;
        }
        let taps = memory.taps;
        let offsets = memory.offsets.get(..taps).unwrap_or_default();
        let places = memory.places.get(..taps).unwrap_or_default();
        for first in (0..g.out_channels).step_by(CHANNELS) {
            let channels = CHANNELS.min(g.out_channels - first);
            let channel = at.group * g.out_channels + first;
            let start = pieces.bias(channel, channels)?;
            for row in 0..at.rows {
                let skip = row * g.stride[1] * stage.phase * stage.phases;
                let staged = memory.stage.get(if g.transposed { 0 } else { skip }..).unwrap_or_default();
                let width = columns.next_multiple_of(LANES);
                let sums = memory.sums.get_mut(..channels * width).unwrap_or_default();
                for (sums, start) in sums.chunks_exact_mut(width).zip(start) {
                    sums.fill(start);
                }
                let block = if pieces.direct() { taps.max(1) } else { BLOCK };
                for (index, offsets) in offsets.chunks(block).enumerate() {
                    let tap = index * block;
                    let places = places.get(tap..).and_then(|places| places.get(..offsets.len())).unwrap_or_default();
                    let weights = pieces.get((at.group, first, tap), channels, places)?;
                    if channels == 1 {
                        row_of_one(sums, weights[0], offsets, staged);
                    } else {
                        row_of_four(sums, width, weights, offsets, staged);
                    }
                }
                let planes = &target.planes;
                let start = planes.plane(at.n, channel) + planes.row(at.z, at.y + row) + x * planes.strides[2];
                let step = column_step * planes.strides[2];
                for (c, sums) in sums.chunks_exact(width).enumerate() {
                    let values = sums.get(..columns).unwrap_or_default();
                    (target.store)(target.out, start + c * planes.channel_stride, step, values)?;
                }
            }
        }
    }
    Ok(())
}

/// Lists each tap's offset in the staged input and its place in the weight. Returns how many there are.
fn list_taps<A: Accumulator>(
    g: &Geometry,
    stage: &Stage,
    (depths, rows, x): (Taps, Taps, usize),
    weight: &Weight<'_, A>,
    offsets: &mut [u32],
    places: &mut [u32],
) -> usize {
    let columns = Taps::new(g, 2, x);
    let line = stage.phase * stage.phases;
    let staged_rows = if g.transposed { rows.count } else { stage.rows };
    // In a dense band the rows of neighbouring taps are `dilation` apart, else each tap has its own row.
    let tap_step = if g.transposed || stage.row_step != 1 { 1 } else { g.dilation[1] };
    let mut slots = offsets.iter_mut().zip(places);
    let mut count = 0;
    for channel in 0..g.in_channels {
        for depth in 0..depths.count {
            for row in 0..rows.count {
                let base = ((channel * depths.count + depth) * staged_rows + row * tap_step) * line;
                let place = channel * weight.input
                    + depths.kernel(depth) * weight.space[0]
                    + rows.kernel(row) * weight.space[1];
                for column in 0..columns.count {
                    let offset = if g.transposed {
                        (columns.input(column) + stage.left as isize) as usize
                    } else {
                        let column = column * g.dilation[2];
                        column % g.stride[2] * stage.phase + column / g.stride[2]
                    };
                    let Some((slot, weight_slot)) = slots.next() else { return count };
                    *slot = (base + offset) as u32;
                    *weight_slot = (place + columns.kernel(column) * weight.space[2]) as u32;
                    count += 1;
                }
            }
        }
    }
    count
}

/// The bias of a convolution, one element for each output channel.
struct Bias<'a, A> {
    tensor: Tensor<'a>,
    load: Load<A>,
}

/// Hands out the bias and the weights of up to four output channels; weights that are stored in a row, in place.
struct Pieces<'a, A> {
    weight: &'a Weight<'a, A>,
    bias: Option<Bias<'a, A>>,
    buffer: [[A; BLOCK]; CHANNELS],
    /// Group, channel and tap that the buffer holds.
    held: Option<(usize, usize, usize)>,
}

impl<A: Accumulator> Pieces<'_, A> {
    fn direct(&self) -> bool {
        self.weight.flat && self.weight.native.is_some()
    }

    /// Returns the bias of `channels` output channels from `channel` on; zeros without one.
    fn bias(&self, channel: usize, channels: usize) -> Result<[A; CHANNELS]> {
        let mut values = [A::ZERO; CHANNELS];
        if let Some(Bias { tensor, load }) = &self.bias {
            let step = tensor.strides().first().copied().unwrap_or(0);
            load(tensor, channel * step, step, &mut values[..channels])?;
        }
        Ok(values)
    }

    /// The weights from a group's channel and a tap on, for the taps at these places.
    fn get(
        &mut self,
        (group, first, tap): (usize, usize, usize),
        channels: usize,
        places: &[u32],
    ) -> Result<[&[A]; CHANNELS]> {
        let weight = self.weight;
        // Channels beyond the last repeat it; their sums are not used.
        let start = |c: usize| group * weight.group + (first + c.min(channels - 1)) * weight.output;
        if weight.flat
            && let Some(data) = weight.native
        {
            let row = |c: usize| data.get(start(c) + tap..).and_then(|row| row.get(..places.len())).unwrap_or_default();
            return Ok([row(0), row(1), row(2), row(3)]);
        }
        let count = places.len().min(BLOCK);
        if self.held != Some((group, first, tap)) {
            for (c, buffer) in self.buffer.iter_mut().enumerate().take(channels) {
                let start = start(c);
                if weight.flat {
                    (weight.load)(&weight.tensor, start + tap, 1, &mut buffer[..count])?;
                } else if let Some(data) = weight.native {
                    for (value, &place) in buffer.iter_mut().zip(places) {
                        *value = data.get(start + place as usize).copied().unwrap_or_default();
                    }
                } else {
                    for (value, &place) in buffer.chunks_mut(1).zip(places) {
                        (weight.load)(&weight.tensor, start + place as usize, 1, value)?;
                    }
                }
            }
            self.held = Some((group, first, tap));
        }
        let [b0, b1, b2, b3] = &self.buffer;
        Ok([&b0[..count], &b1[..count], &b2[..count], &b3[..count]])
    }
}

/// Adds all taps to the sums of up to four output channels, `width` sums each.
fn row_of_four<A: Accumulator>(sums: &mut [A], width: usize, weights: [&[A]; CHANNELS], offsets: &[u32], staged: &[A]) {
    for x in (0..width).step_by(LANES) {
        let mut tile = [[A::ZERO; LANES]; CHANNELS];
        for (tile, sums) in tile.iter_mut().zip(sums.chunks_exact(width)) {
            if let Some(sums) = sums.get(x..).and_then(|sums| sums.first_chunk()) {
                *tile = *sums;
            }
        }
        add_taps_of_four(&mut tile, weights, offsets, staged.get(x..).unwrap_or_default());
        for (tile, sums) in tile.iter().zip(sums.chunks_exact_mut(width)) {
            if let Some(sums) = sums.get_mut(x..).and_then(|sums| sums.first_chunk_mut()) {
                *sums = *tile;
            }
        }
    }
}

#[inline(always)]
fn add_taps_of_four<A: Accumulator>(
    tile: &mut [[A; LANES]; CHANNELS],
    weights: [&[A]; CHANNELS],
    offsets: &[u32],
    staged: &[A],
) {
    let mut acc = *tile;
    let [w0, w1, w2, w3] = weights;
    for ((((&offset, &w0), &w1), &w2), &w3) in offsets.iter().zip(w0).zip(w1).zip(w2).zip(w3) {
        let Some(values) = staged.get(offset as usize..).and_then(|staged| staged.first_chunk::<LANES>()) else {
            return;
        };
        for l in 0..LANES {
            acc[0][l] = acc[0][l].add(w0.mul(values[l]));
            acc[1][l] = acc[1][l].add(w1.mul(values[l]));
            acc[2][l] = acc[2][l].add(w2.mul(values[l]));
            acc[3][l] = acc[3][l].add(w3.mul(values[l]));
        }
    }
    *tile = acc;
}

/// Adds all taps to the sums of one output channel.
fn row_of_one<A: Accumulator>(sums: &mut [A], weights: &[A], offsets: &[u32], staged: &[A]) {
    let (pairs, rest) = sums.as_chunks_mut::<{ 2 * LANES }>();
    let done = pairs.len() * 2 * LANES;
    for (i, tile) in pairs.iter_mut().enumerate() {
        add_taps_of_one(tile, weights, offsets, staged.get(i * 2 * LANES..).unwrap_or_default());
    }
    if let Some(tile) = rest.first_chunk_mut::<LANES>() {
        add_taps_of_one(tile, weights, offsets, staged.get(done..).unwrap_or_default());
    }
}

#[inline(always)]
fn add_taps_of_one<A: Accumulator, const N: usize>(tile: &mut [A; N], weights: &[A], offsets: &[u32], staged: &[A]) {
    let mut acc = *tile;
    for (&offset, &weight) in offsets.iter().zip(weights) {
        let Some(values) = staged.get(offset as usize..).and_then(|staged| staged.first_chunk::<N>()) else {
            return;
        };
        for l in 0..N {
            acc[l] = acc[l].add(weight.mul(values[l]));
        }
    }
    *tile = acc;
}
