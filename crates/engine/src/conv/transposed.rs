//! Transposed convolution, a phase at a time.
//!
//! Output pixels whose positions have the same remainder by the stride, a phase, all see the same taps of the kernel, and
//! neighbours among them see neighbouring input pixels. So each phase is an ordinary convolution with stride 1 and a part
//! of the kernel, and no product with an inserted zero is ever computed.
#![allow(unsafe_code)]

use super::shape::{check_channels, check_positions};
use super::window::Window;
use crate::error::{Error, at_least, positive, size, span};
use crate::numbers::Writable;
use crate::product::{Place, Product};
use crate::{Engine, Tail, Weights};

/// The shape of a transposed convolution from a feature map `[batch, in_h, in_w, in_c]` to
/// `[batch, out_h, out_w, out_c]`: the gradient of the convolution of these kernel, stride, padding and dilation by its
/// input. Pixels begin `in_stride` and `out_stride` floats apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvTranspose2d {
    pub batch: usize,
    pub in_h: usize,
    pub in_w: usize,
    pub in_c: usize,
    pub out_c: usize,
    /// Height and width, as in all pairs here.
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// What the convolution pads before and after, and this cuts off.
    pub padding: [[usize; 2]; 2],
    /// Pixels that are added after the end.
    pub output_padding: [usize; 2],
    pub dilation: [usize; 2],
    pub groups: usize,
    pub in_stride: usize,
    pub out_stride: usize,
}

impl ConvTranspose2d {
    /// Height of the output; 0 where padding leaves nothing.
    pub fn out_h(&self) -> usize {
        self.out_size(0)
    }

    /// Width of the output; 0 where padding leaves nothing.
    pub fn out_w(&self) -> usize {
        self.out_size(1)
    }

    fn out_size(&self, axis: usize) -> usize {
        let Some(last) = [self.in_h, self.in_w][axis].checked_sub(1) else { return 0 };
        let reach = self.kernel[axis].saturating_sub(1).saturating_mul(self.dilation[axis]);
        let full = last.saturating_mul(self.stride[axis]).saturating_add(reach).saturating_add(1);
        full.saturating_add(self.output_padding[axis]).saturating_sub(self.padding[axis].iter().sum())
    }

    /// The phases of an axis.
    fn phases(&self, axis: usize) -> impl Iterator<Item = Phase> + use<> {
        let (kernel, stride, dilation) = (self.kernel[axis], self.stride[axis].max(1), self.dilation[axis]);
        let padding = self.padding[axis][0];
        (0..stride).map(move |first| Phase::new(first, kernel, stride, dilation, padding))
    }

    /// The phases of the output, height before width, in the order in which their weights are packed.
    pub(crate) fn phase_pairs(&self) -> impl Iterator<Item = [Phase; 2]> + use<> {
        let conv = *self;
        conv.phases(0).flat_map(move |phase_h| conv.phases(1).map(move |phase_w| [phase_h, phase_w]))
    }

    /// The rows of a phase.
    pub(crate) fn rows_of<'a, T>(&self, [phase_h, phase_w]: [Phase; 2], input: &'a [T]) -> PhaseRows<'a, T> {
        let (out_h, out_w) = (self.out_h(), self.out_w());
        let lines = phase_h.positions(out_h, self.stride[0]);
        let window = Window {
            input,
            in_size: [1, self.in_h, self.in_w],
            out_size: [1, lines, phase_w.positions(out_w, self.stride[1])],
            kernel: [1, phase_h.taps, phase_w.taps],
            stride: [1; 3],
            dilation: [1, phase_h.dilation, phase_w.dilation],
            shift: [0, phase_h.shift, phase_w.shift],
            pixel: self.in_stride,
            channels: self.in_c / self.groups,
        };
        let place = Place {
            first: phase_h.first * out_w + phase_w.first,
            step: self.stride[1],
            line: self.stride[0] * out_w,
            lines_per_image: lines.max(1),
            image: out_h * out_w,
        };
        PhaseRows { window, place }
    }

    /// That every size makes sense and that slices of so many elements hold the feature maps. Returns the pixels of the
    /// output.
    pub(crate) fn check(&self, input: usize, out: usize) -> Result<usize, Error> {
        check_channels(self.groups, self.in_c, self.out_c)?;
        for axis in 0..2 {
            positive("kernel", self.kernel[axis])?;
            positive("stride", self.stride[axis])?;
            positive("dilation", self.dilation[axis])?;
            let [before, after] = self.padding[axis];
            let full = [self.in_h, self.in_w][axis].checked_mul(self.stride[axis]);
            let reach = self.kernel[axis].checked_mul(self.dilation[axis]);
            check_positions(&[full, reach, Some(before), Some(after), Some(self.output_padding[axis])])?;
        }
        let in_pixels = size("input", &[self.batch, self.in_h, self.in_w])?;
        let out_pixels = size("output", &[self.batch, self.out_h(), self.out_w()])?;
        at_least("input", input, span("input stride", in_pixels, self.in_c, self.in_stride)?)?;
        at_least("output", out, span("output stride", out_pixels, self.out_c, self.out_stride)?)?;
        Ok(out_pixels)
    }
}

/// The rows of the product that a phase is, and where their results lie.
pub(crate) struct PhaseRows<'a, T> {
    pub(crate) window: Window<'a, T>,
    pub(crate) place: Place,
}

/// One phase along one axis: output positions `first + t * stride`, input positions `t + shift + tap * dilation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Phase {
    first: usize,
    /// The kernel's taps that this phase sees: `first_tap + i * tap_step` for i below `taps`.
    pub(crate) first_tap: usize,
    pub(crate) tap_step: usize,
    pub(crate) taps: usize,
    shift: isize,
    dilation: isize,
}

impl Phase {
    /// Sizes are those that [`ConvTranspose2d::check`] accepts, or at least positive.
    fn new(first: usize, kernel: usize, stride: usize, dilation: usize, padding: usize) -> Self {
        // An input position i reaches the output position o by tap k where i * stride + k * dilation = o + padding.
        let target = first + padding;
        let reaches = |tap: usize| tap * dilation % stride == target % stride;
        // Tap by tap, the remainders repeat after at most `stride` taps.
        let Some(first_tap) = (0..kernel.min(stride)).find(|&tap| reaches(tap)) else {
            return Self { first, first_tap: 0, tap_step: 1, taps: 0, shift: 0, dilation: 0 };
        };
        let tap_step = (1..=stride).find(|step| (step * dilation).is_multiple_of(stride)).unwrap_or(stride);
        Self {
            first,
            first_tap,
            tap_step,
            taps: (kernel - first_tap).div_ceil(tap_step),
            shift: (target as isize - (first_tap * dilation) as isize) / stride as isize,
            dilation: -((tap_step * dilation / stride) as isize),
        }
    }

    /// How many of `out` positions are of this phase.
    fn positions(&self, out: usize, stride: usize) -> usize {
        out.saturating_sub(self.first).div_ceil(stride)
    }
}

/// Computes `out = tail(transposed convolution of input)` with weights packed by
/// [`pack::conv_transpose2d_f32`](crate::pack::conv_transpose2d_f32).
///
/// # Errors
/// When a slice is too short, or a size is zero or too large.
pub fn conv_transpose2d<'w>(
    engine: &Engine,
    conv: &ConvTranspose2d,
    input: &[f32],
    packed: impl Into<Weights<'w>>,
    out: &mut [f32],
    tail: &Tail,
) -> Result<(), Error> {
    let mut packed = packed.into();
    let pixels = conv.check(input.len(), out.len())?;
    let weights = crate::pack::conv_transpose2d_f32_len(conv).ok_or(Error::Size { what: "packed weights" })?;
    packed.check(weights, None)?;
    tail.check(pixels, conv.out_c)?;
    for phase in conv.phase_pairs() {
        let PhaseRows { window, place } = conv.rows_of(phase, input);
        let columns = conv.out_c / conv.groups;
        let len = crate::pack::matrix_f32_len(window.taps() * window.channels, columns).unwrap_or(0) * conv.groups;
        let (own, rest) = packed.split_at(len);
        packed = rest;
        let [_, lines, rows_per_line] = window.out_size;
        let product = Product {
            rows: &window,
            lines: conv.batch * lines,
            rows_per_line,
            groups: conv.groups,
            columns,
            packed: own,
            out: Writable::floats(out.as_mut_ptr()),
            out_stride: conv.out_stride,
            place,
            steps: tail.steps(),
        };
        // SAFETY: the sizes were checked above, and the phase's positions are within the output.
        unsafe { product.run(engine) };
    }
    Ok(())
}
