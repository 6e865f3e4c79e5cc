//! Transposed convolution, phase by phase.
//!
//! Output pixels whose positions are congruent modulo the stride form a phase. All pixels of a phase see the same
//! kernel taps, and neighbouring ones see neighbouring input pixels, so that each phase is an ordinary convolution with
//! stride 1 and a subset of the kernel. Nothing is multiplied by inserted zeros.
#![allow(unsafe_code)]

use alloc::vec::Vec;

use super::shape::{check_channels, check_positions};
use super::window::ConvWindow;
use crate::element::ElementPtrMut;
use crate::error::{Error, at_least, positive, size, span};
use crate::igemm::{Igemm, OutputLayout};
use crate::{Engine, Epilogue, FloatSlice, Gemm, Weights};

/// Shape of a transposed convolution from `[batch, in_h, in_w, in_c]` to `[batch, out_h, out_w, out_c]`: the gradient,
/// with respect to its input, of the convolution with the same kernel, stride, padding and dilation. Pixels begin
/// `in_stride` and `out_stride` elements apart.
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
    /// Padding of that convolution, before and after; cropped from the output here.
    pub padding: [[usize; 2]; 2],
    /// Pixels added after the end.
    pub output_padding: [usize; 2],
    pub dilation: [usize; 2],
    pub groups: usize,
    pub in_stride: usize,
    pub out_stride: usize,
}

impl ConvTranspose2d {
    /// Height of the output; 0 if padding crops everything.
    pub fn out_h(&self) -> usize {
        self.out_size(0)
    }

    /// Width of the output; 0 if padding crops everything.
    pub fn out_w(&self) -> usize {
        self.out_size(1)
    }

    fn out_size(&self, axis: usize) -> usize {
        let Some(last) = [self.in_h, self.in_w][axis].checked_sub(1) else { return 0 };
        let reach = self.kernel[axis].saturating_sub(1).saturating_mul(self.dilation[axis]);
        let full = last.saturating_mul(self.stride[axis]).saturating_add(reach).saturating_add(1);
        let [before, after] = self.padding[axis];
        full.saturating_add(self.output_padding[axis]).saturating_sub(before.saturating_add(after))
    }

    /// The phases of an axis.
    fn axis(&self, axis: usize) -> Axis {
        Axis::new(self.kernel[axis], self.stride[axis], self.dilation[axis], self.padding[axis][0])
    }

    /// All phases of the output, height before width, including those without taps. Their number is the product of the
    /// strides.
    pub(crate) fn phase_pairs(&self) -> impl Iterator<Item = [Phase; 2]> + use<> {
        let [vertical, horizontal] = [self.axis(0), self.axis(1)];
        let (rows, columns) = (vertical.stride, horizontal.stride);
        (0..rows).flat_map(move |h| (0..columns).map(move |w| [vertical.phase(h), horizontal.phase(w)]))
    }

    /// The phases of each axis with taps, in order: at most one per tap of the kernel.
    pub(crate) fn phases_with_taps(&self) -> [Vec<Phase>; 2] {
        [0, 1].map(|axis| self.axis(axis).with_taps())
    }

    /// Sums `len(taps)` over all phases with taps; `None` if the sum overflows `usize`.
    pub(crate) fn sum_of_phases(&self, len: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        let [vertical, horizontal] = [self.axis(0).taps(), self.axis(1).taps()];
        let pairs = vertical.into_iter().flat_map(|h| horizontal.map(|w| (h, w)));
        pairs.filter(|(h, w)| h.0 > 0 && h.1 > 0 && w.0 > 0 && w.1 > 0).try_fold(0usize, |sum, (h, w)| {
            let all = len(h.1.checked_mul(w.1)?)?.checked_mul(h.0)?.checked_mul(w.0)?;
            sum.checked_add(all)
        })
    }

    /// Returns the GEMM of a phase.
    pub(crate) fn phase_gemm<'a, T>(&self, [phase_h, phase_w]: [Phase; 2], input: &'a [T]) -> PhaseGemm<'a, T> {
        let (out_h, out_w) = (self.out_h(), self.out_w());
        let out_rows = phase_h.positions(out_h, self.stride[0]);
        let window = ConvWindow {
            input,
            in_size: [1, self.in_h, self.in_w],
            out_size: [1, out_rows, phase_w.positions(out_w, self.stride[1])],
            kernel: [1, phase_h.taps, phase_w.taps],
            stride: [1; 3],
            dilation: [1, phase_h.dilation, phase_w.dilation],
            shift: [0, phase_h.shift, phase_w.shift],
            pixel: self.in_stride,
            channels: self.in_c / self.groups,
        };
        let layout = OutputLayout {
            first: phase_h.first * out_w + phase_w.first,
            step: self.stride[1],
            outer_stride: self.stride[0] * out_w,
            outer_per_image: out_rows.max(1),
            image_stride: out_h * out_w,
        };
        PhaseGemm { window, layout }
    }

    /// Checks all sizes, and that slices of `input` and `out` elements hold the images. Returns the number of output
    /// pixels.
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

/// The left side of a phase's GEMM, and the positions of its output.
pub(crate) struct PhaseGemm<'a, T> {
    pub(crate) window: ConvWindow<'a, T>,
    pub(crate) layout: OutputLayout,
}

/// A phase along one axis: output positions `first + t * stride`, input positions `t + shift + tap * dilation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Phase {
    first: usize,
    /// Kernel taps of this phase: `first_tap + i * tap_step` for i below `taps`.
    pub(crate) first_tap: usize,
    pub(crate) tap_step: usize,
    pub(crate) taps: usize,
    shift: isize,
    dilation: isize,
}

impl Phase {
    /// Number of the `out` output positions that belong to this phase.
    fn positions(&self, out: usize, stride: usize) -> usize {
        out.saturating_sub(self.first).div_ceil(stride)
    }
}

/// The phases along one axis, each computed without enumerating the others.
///
/// Input position i contributes to output position o through tap k if `i * stride + k * dilation = o + padding`. The
/// taps of a phase are those with `k * dilation = first + padding` modulo the stride: one of every
/// `stride / gcd(stride, dilation)` neighbours, or none.
#[derive(Debug, Clone, Copy)]
struct Axis {
    kernel: usize,
    stride: usize,
    dilation: usize,
    padding: usize,
    /// Greatest common divisor of stride and dilation.
    divisor: usize,
    /// The inverse of `dilation / divisor` modulo [`step`](Self::step).
    inverse: usize,
}

impl Axis {
    fn new(kernel: usize, stride: usize, dilation: usize, padding: usize) -> Self {
        let stride = stride.max(1);
        let (divisor, inverse) = gcd_and_inverse(dilation, stride);
        Self { kernel, stride, dilation, padding, divisor, inverse }
    }

    /// Distance between the taps of a phase.
    fn step(&self) -> usize {
        self.stride / self.divisor
    }

    /// Returns the phase of output position `first`, which is below the stride.
    fn phase(&self, first: usize) -> Phase {
        // Sizes were accepted by `ConvTranspose2d::check`, or are those of weights: sums of them fit.
        let (target, step) = (first + self.padding, self.step());
        let tap = mul_mod(target / self.divisor, self.inverse, step);
        if !target.is_multiple_of(self.divisor) || tap >= self.kernel {
            return Phase { first, first_tap: 0, tap_step: 1, taps: 0, shift: 0, dilation: 0 };
        }
        Phase {
            first,
            first_tap: tap,
            tap_step: step,
            taps: (self.kernel - tap).div_ceil(step),
            shift: (target as isize - (tap * self.dilation) as isize) / self.stride as isize,
            dilation: -((self.dilation / self.divisor) as isize),
        }
    }

    /// Returns true if there may be phases without taps.
    fn has_empty(&self) -> bool {
        self.kernel.min(self.step()) < self.stride
    }

    /// Returns the phases with taps, in order.
    fn with_taps(&self) -> Vec<Phase> {
        // Each of the first taps is the first tap of one phase.
        let firsts = (0..self.kernel.min(self.step())).map(|tap| {
            let before = self.padding % self.stride;
            (mul_mod(tap, self.dilation, self.stride) + self.stride - before) % self.stride
        });
        let mut firsts: Vec<_> = firsts.collect();
        firsts.sort_unstable();
        firsts.into_iter().map(|first| self.phase(first)).collect()
    }

    /// The two tap counts that occur, each with the number of phases that have it: `(phases, taps)`.
    fn taps(&self) -> [(usize, usize); 2] {
        let step = self.step();
        let (each, more) = (self.kernel / step, self.kernel % step);
        [(more, each + 1), (step - more, each)]
    }
}

/// `a * b` modulo `modulus`, which is not 0.
fn mul_mod(a: usize, b: usize, modulus: usize) -> usize {
    // Nearly always far below 2^64.
    match (a % modulus).checked_mul(b % modulus) {
        Some(product) => product % modulus,
        None => ((a % modulus) as u128 * (b % modulus) as u128 % modulus as u128) as usize,
    }
}

/// Greatest common divisor of `a` and `modulus` (not 0), and `x` with `a * x` congruent to it modulo `modulus`, by the
/// extended Euclidean algorithm.
fn gcd_and_inverse(a: usize, modulus: usize) -> (usize, usize) {
    let (mut old, mut new) = ((a % modulus, 1i128), (modulus, 0i128));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient as i128 * new.1));
    }
    let (divisor, factor) = old;
    (divisor, factor.rem_euclid((modulus / divisor) as i128) as usize)
}

/// Computes `out = epilogue(conv_transpose2d(input))` with weights packed by
/// [`pack::conv_transpose2d_f32`](crate::pack::conv_transpose2d_f32).
///
/// # Errors
/// If a slice is too short, or a size is zero or too large.
pub fn conv_transpose2d<'w>(
    engine: &Engine,
    conv: &ConvTranspose2d,
    input: &[f32],
    packed: impl Into<Weights<'w>>,
    out: &mut [f32],
    epilogue: &Epilogue,
) -> Result<(), Error> {
    conv_transpose2d_impl(engine, conv, input, packed.into(), out, epilogue)
}

fn conv_transpose2d_impl(
    engine: &Engine,
    conv: &ConvTranspose2d,
    input: &[f32],
    mut packed: Weights<'_>,
    out: &mut [f32],
    epilogue: &Epilogue,
) -> Result<(), Error> {
    let pixels = conv.check(input.len(), out.len())?;
    let weights = super::pack::conv_transpose2d_f32_len(conv).ok_or(Error::Size { what: "packed weights" })?;
    packed.check(weights, None)?;
    epilogue.check(pixels, conv.out_c)?;
    if pixels == 0 || conv.out_c == 0 {
        return Ok(());
    }
    let (out_h, out_w) = (conv.out_h(), conv.out_w());
    let [vertical, horizontal] = [conv.axis(0), conv.axis(1)];
    let [rows, columns] = [vertical.stride.min(out_h), horizontal.stride.min(out_w)];
    if conv.in_c == 0 || vertical.has_empty() || horizontal.has_empty() {
        // Pixels without taps get the epilogue of zero; the phases with taps overwrite the others.
        let gemm = Gemm { m: pixels, n: conv.out_c, k: 0, a_stride: 0, c_stride: conv.out_stride };
        // SAFETY: the sizes were checked above.
        unsafe {
            crate::gemm::run(
                engine,
                &gemm,
                FloatSlice::F32(&[]),
                Weights::F32(&[]),
                ElementPtrMut::f32(out.as_mut_ptr()),
                epilogue,
                &mut [],
            );
        }
    }
    if conv.in_c == 0 {
        return Ok(());
    }
    let channels = conv.in_c / conv.groups;
    let len =
        |taps: usize| crate::pack::matrix_f32_len(taps * channels, conv.out_c / conv.groups).unwrap_or(0) * conv.groups;
    for phase_h in (0..rows).map(|first| vertical.phase(first)).filter(|phase| phase.taps > 0) {
        let all: usize = horizontal.taps().map(|(phases, taps)| phases * len(phase_h.taps * taps)).iter().sum();
        let (mut of_row, rest) = packed.split_at(all);
        packed = rest;
        for phase_w in (0..columns).map(|first| horizontal.phase(first)).filter(|phase| phase.taps > 0) {
            let (own, rest) = of_row.split_at(len(phase_h.taps * phase_w.taps));
            of_row = rest;
            let PhaseGemm { window, layout } = conv.phase_gemm([phase_h, phase_w], input);
            let [_, out_rows, m_inner] = window.out_size;
            let igemm = Igemm {
                lhs: &window,
                m_outer: conv.batch * out_rows,
                m_inner,
                groups: conv.groups,
                columns: conv.out_c / conv.groups,
                packed: own,
                out: ElementPtrMut::f32(out.as_mut_ptr()),
                out_stride: conv.out_stride,
                layout,
                epilogue: epilogue.args(),
            };
            // SAFETY: the sizes were checked above, and the phase's positions are within the output.
            unsafe { igemm.run(engine) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the taps of a phase by trying each.
    fn taps(axis: &Axis, first: usize) -> Vec<usize> {
        let target = (first + axis.padding) % axis.stride;
        (0..axis.kernel).filter(|tap| tap * axis.dilation % axis.stride == target).collect()
    }

    #[test]
    fn phases_have_the_taps_that_reach_them() {
        let sizes = [1usize, 2, 3, 4, 5, 6, 7, 12];
        for (kernel, stride) in sizes.into_iter().flat_map(|kernel| sizes.map(|stride| (kernel, stride))) {
            for (dilation, padding) in (1..=13).flat_map(|dilation| (0..5).map(move |padding| (dilation, padding))) {
                let axis = Axis::new(kernel, stride, dilation, padding);
                let mut with_taps = Vec::new();
                for first in 0..stride {
                    let (phase, expected) = (axis.phase(first), taps(&axis, first));
                    let got: Vec<_> = (0..phase.taps).map(|i| phase.first_tap + i * phase.tap_step).collect();
                    assert_eq!(got, expected, "{axis:?}, phase {first}");
                    if phase.taps > 0 {
                        with_taps.push(phase);
                    }
                }
                assert_eq!(axis.with_taps(), with_taps, "{axis:?}");
                assert!(axis.has_empty() || with_taps.len() == stride, "{axis:?}");
                let counted: usize = axis.taps().iter().map(|(phases, taps)| phases * taps).sum();
                assert_eq!(counted, kernel, "{axis:?}");
            }
        }
    }

    #[test]
    fn one_phase_of_many_is_found_without_the_others() {
        let stride = i32::MAX as usize;
        let axis = Axis::new(3, stride, 7, 5);
        assert_eq!(axis.with_taps().iter().map(|phase| phase.first).collect::<Vec<_>>(), [2, 9, stride - 5]);
        assert_eq!(axis.phase(1 << 30).taps, 0);
    }
}
