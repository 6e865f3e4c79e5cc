//! GEMM and depthwise convolution with bf16 activations, against f64 loops over the rounded values.

use super::*;
use rushlight_engine::{
    Conv2d, Error, FloatSlice, FloatSliceMut, Gemm, Half, Weights, conv2d, depthwise2d, gemm, gemm_supports_bf16_input,
    gemm_supports_bf16_output, gemm_supports_bf16_residual, pack,
};

/// Relative error bound of bf16 rounding, for values above 1.
const LAST_PLACE: f64 = 1.0 / 256.0;

/// Values that bf16 represents exactly.
fn rounded(rng: &mut Rng, n: usize) -> Vec<f32> {
    rng.vector(n).into_iter().map(|x| from_bf16(to_bf16(x))).collect()
}

fn bf16_bits(floats: &[f32]) -> Vec<u16> {
    floats.iter().copied().map(to_bf16).collect()
}

/// Rounds packed weights to bf16.
fn packed_bf16(packed: &[f32]) -> Vec<u16> {
    let mut to = vec![0; packed.len()];
    pack::narrow(Half::Bf16, packed, &mut to);
    to
}

/// Which operands are bf16.
#[derive(Debug, Clone, Copy)]
struct Sides {
    input: bool,
    out: bool,
    residual: bool,
}

impl Sides {
    fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|bits| Self { input: bits & 1 != 0, out: bits & 2 != 0, residual: bits & 4 != 0 })
    }

    /// Returns true if a GEMM with these taps and depth supports the combination.
    fn are_supported(self, taps: usize, depth: usize, has_residual: bool) -> bool {
        (!self.input || gemm_supports_bf16_input(taps, depth))
            && (!self.out || gemm_supports_bf16_output(taps, depth, self.input))
            && (!self.residual || !has_residual || gemm_supports_bf16_residual(taps, depth))
    }
}

/// A GEMM, run with all supported combinations on all engines with bf16, and rejected with the others.
struct Case<'a> {
    what: &'a dyn std::fmt::Debug,
    input: Vec<f32>,
    weights: Vec<u16>,
    epilogue: OwnedEpilogue,
    /// Rows and columns of the output, and the elements between rows.
    rows: usize,
    columns: usize,
    stride: usize,
    taps: usize,
    depth: usize,
    expected: Vec<f64>,
}

impl Case<'_> {
    fn check(
        &self,
        engines: &[Engine],
        run: impl Fn(&Engine, FloatSlice<'_>, Weights<'_>, FloatSliceMut<'_>, &Epilogue<'_>) -> Result<(), Error>,
    ) {
        let Self { what, input, weights, epilogue, rows, columns, stride, taps, depth, expected } = self;
        let (half_input, residual) = (bf16_bits(input), epilogue.residual.as_ref().map(|(data, _)| bf16_bits(data)));
        for sides in Sides::all() {
            let mut single: Option<Vec<f32>> = None;
            for engine in engines {
                let side = if sides.input { FloatSlice::Bf16(&half_input) } else { FloatSlice::F32(input) };
                let mut with = epilogue.epilogue();
                if let (Some(own), Some(data), true) = (&mut with.residual, &residual, sides.residual) {
                    own.data = FloatSlice::Bf16(data);
                }
                let (mut floats, mut out) = (vec![f32::NAN; rows * stride], vec![to_bf16(f32::NAN); rows * stride]);
                let y = if sides.out { FloatSliceMut::Bf16(&mut out) } else { FloatSliceMut::F32(&mut floats) };
                let done = run(engine, side, Weights::Half(Half::Bf16, weights), y, &with);
                let any = sides.input || sides.out || sides.residual && residual.is_some();
                if any && !engine.supports_bf16() {
                    assert_eq!(done, Err(Error::Unavailable(Isa::Avx512Bf16)), "{engine:?} {what:?}");
                    continue;
                }
                if !sides.are_supported(*taps, *depth, residual.is_some()) {
                    assert!(matches!(done, Err(Error::Type { .. })), "{engine:?} {what:?} {sides:?}");
                    continue;
                }
                done.unwrap();
                let all: Vec<f32> = if sides.out { out.into_iter().map(from_bf16).collect() } else { floats };
                let lines = all.chunks_exact((*stride).max(1));
                let got: Vec<f32> = lines.clone().flat_map(|row| &row[..*columns]).copied().collect();
                let bound = rounding(taps * depth) + if sides.out { LAST_PLACE } else { 0.0 };
                assert_close(&got, expected, bound, &(engine, what, sides, epilogue.activation));
                assert!(lines.flat_map(|row| &row[*columns..]).all(|x| x.is_nan()), "{what:?} wrote between rows");
                if engine.supports_bf16() {
                    let is_same = single.as_ref().is_none_or(|single| single == &got);
                    assert!(is_same, "{what:?} {sides:?} depends on the number of threads");
                    single = Some(got);
                }
            }
        }
    }
}

fn rounded_epilogue(rng: &mut Rng, rows: usize, columns: usize) -> OwnedEpilogue {
    let mut epilogue = OwnedEpilogue::random(rng, rows, columns);
    if let Some((data, _)) = &mut epilogue.residual {
        *data = rounded(rng, data.len());
    }
    epilogue
}

#[test]
fn gemms_agree_with_f64() {
    let mut rng = Rng(51);
    let engines: Vec<Engine> = engines().collect();
    let mut shapes: Vec<[usize; 3]> = vec![[97, 65, 386], [30, 40, 770], [201, 130, 64], [60, 33, 2050], [40, 20, 401]];
    for m in [1, 2, 3, 4, 13, 14, 15, 29] {
        for n in [1, 15, 16, 17, 31, 33, 64] {
            shapes.push([m, n, rng.one_of(&[0, 1, 2, 7, 16, 34])]);
        }
    }
    for [m, n, k] in shapes {
        let g = Gemm { m, n, k, a_stride: k + rng.below(3), c_stride: n + rng.below(3) };
        let (input, b) = (rounded(&mut rng, m * g.a_stride), rounded(&mut rng, k * n));
        let epilogue = rounded_epilogue(&mut rng, m, n);
        let mut expected = Vec::with_capacity(m * n);
        for row in 0..m {
            for column in 0..n {
                let products = (0..k).map(|k| f64::from(input[row * g.a_stride + k]) * f64::from(b[k * n + column]));
                expected.push(epilogue.apply(row, column, products.sum()));
            }
        }
        let weights = packed_bf16(&pack::matrix_f32(k, n, |k, column| b[k * n + column]));
        let (columns, stride) = (n, g.c_stride);
        let case = Case { what: &g, input, weights, epilogue, rows: m, columns, stride, taps: 1, depth: k, expected };
        case.check(&engines, |engine, a, b, c, epilogue| gemm(engine, &g, a, b, c, epilogue));
    }
}

#[test]
fn convolutions_agree_with_f64() {
    let mut rng = Rng(52);
    let engines: Vec<Engine> = engines().collect();
    let mut shapes: Vec<Conv2d> = (0..60).map(|_| conv::random(&mut rng)).collect();
    // More of K than one block of the f32 path.
    let mut many = Conv2d::new([1, 9, 11, 64], 33, [3, 3]);
    many.padding = [[1, 1]; 2];
    shapes.extend([many, Conv2d::new([1, 20, 20, 34], 40, [1, 1])]);
    shapes.extend(conv::first_layers());
    for conv in &shapes {
        let (group_in, rows) = (conv.in_c / conv.groups, conv.batch * conv.out_h() * conv.out_w());
        let input = rounded(&mut rng, conv.batch * conv.in_h * conv.in_w * conv.in_stride);
        let taps = conv.kernel[0] * conv.kernel[1];
        let own = rounded(&mut rng, conv.out_c * group_in * taps);
        let epilogue = rounded_epilogue(&mut rng, rows, conv.out_c);
        let expected = conv::reference(conv, &input, &own, &epilogue);
        let packed =
            pack::conv2d_f32(conv, |o, i, h, w| own[((o * group_in + i) * conv.kernel[0] + h) * conv.kernel[1] + w]);
        let (weights, columns, stride) = (packed_bf16(&packed), conv.out_c, conv.out_stride);
        let case =
            Case { what: conv, input, weights, epilogue, rows, columns, stride, taps, depth: group_in, expected };
        case.check(&engines, |engine, x, w, y, epilogue| conv2d(engine, conv, x, w, y, epilogue));
    }
}

#[test]
fn depthwise_convolutions_agree_with_f64() {
    let mut rng = Rng(53);
    for kernel in [[3, 3], [5, 5], [7, 7], [1, 3], [3, 2]] {
        for stride in [[1, 1], [2, 2], [3, 1]] {
            for channels in [1, 15, 16, 17, 40, 96] {
                let size = [1 + rng.below(2), 1 + rng.below(15), 1 + rng.below(19), channels];
                let mut conv = Conv2d::new(size, channels, kernel);
                (conv.groups, conv.stride) = (channels, stride);
                conv.padding = [[kernel[0] / 2; 2], [kernel[1] / 2; 2]];
                conv.in_stride += rng.below(3);
                conv.out_stride += rng.below(3);
                check_depthwise(&conv, &mut rng);
            }
        }
    }
}

fn check_depthwise(conv: &Conv2d, rng: &mut Rng) {
    let pixels = conv.batch * conv.out_h() * conv.out_w();
    let input = rounded(rng, conv.batch * conv.in_h * conv.in_w * conv.in_stride);
    let weights = rng.vector(conv.out_c * conv.kernel[0] * conv.kernel[1]);
    let activation = rng.one_of(&[Activation::None, Activation::RELU6, Activation::HardSwish, Activation::Silu]);
    let bias = Some(rng.vector(conv.out_c));
    let epilogue = OwnedEpilogue { bias, residual: None, residual_first: false, activation };
    let expected = conv::reference(conv, &input, &weights, &epilogue);
    let [kernel_h, kernel_w] = conv.kernel;
    let packed = pack::depthwise2d_f32(conv.in_c, conv.kernel, |c, h, w| weights[(c * kernel_h + h) * kernel_w + w]);
    let bits = bf16_bits(&input);
    let mut single: Option<Vec<f32>> = None;
    for engine in engines() {
        let mut out = vec![to_bf16(f32::NAN); pixels * conv.out_stride];
        let done = depthwise2d(
            &engine,
            conv,
            FloatSlice::Bf16(&bits),
            &packed,
            FloatSliceMut::Bf16(&mut out),
            &epilogue.epilogue(),
        );
        if pixels > 0 && (!engine.supports_bf16() || !activation.is_fusable()) {
            assert!(done.is_err(), "{engine:?} {conv:?}");
            continue;
        }
        done.unwrap();
        let all: Vec<f32> = out.into_iter().map(from_bf16).collect();
        let lines = all.chunks_exact(conv.out_stride);
        let got: Vec<f32> = lines.clone().flat_map(|row| &row[..conv.out_c]).copied().collect();
        let bound = LAST_PLACE + rounding(conv.kernel[0] * conv.kernel[1]);
        assert_close(&got, &expected, bound, &(&engine, conv, activation));
        assert!(lines.flat_map(|row| &row[conv.out_c..]).all(|x| x.is_nan()), "{conv:?} wrote between pixels");
        assert!(single.as_ref().is_none_or(|single| single == &got), "{conv:?} depends on the number of threads");
        single = Some(got);
        let mut out = vec![0; pixels * conv.out_stride];
        let one_side = depthwise2d(&engine, conv, &input, &packed, FloatSliceMut::Bf16(&mut out), &epilogue.epilogue());
        assert!(one_side.is_err(), "{engine:?} {conv:?}");
    }
}
