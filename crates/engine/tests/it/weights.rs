//! Weights narrower than f32: results are those of the dequantized f32 weights, bit for bit. If bf16 dot products are
//! used, both sides are rounded to bf16 first.

use super::*;
use rushlight_engine::pack::{Bits, GroupNumbers, Offsets, QuantizedGroups, QuantizedMatrix, ScaleFormat, UNIT_ROWS};
use rushlight_engine::{
    Activation, Conv2d, ConvTranspose2d, Epilogue, Error, FloatSlice, Gemm, Half, Isa, QuantizedWeights, Residual,
    Table, Weights, conv_transpose2d, conv2d, gather, gemm, gemm_scratch, gemm_with_scratch, narrow, pack, widen,
};

const HALVES: [Half; 2] = [Half::F16, Half::Bf16];

/// Rounds floats to a 16-bit format and back.
fn rounded(half: Half, floats: &[f32]) -> Vec<f32> {
    let engine = Engine::new(1);
    let (mut narrowed, mut widened) = (vec![0; floats.len()], vec![0.0; floats.len()]);
    narrow(&engine, half, floats, &mut narrowed).unwrap();
    widen(&engine, half, &narrowed, &mut widened).unwrap();
    widened
}

/// Runs a GEMM with both kinds of weights on every engine. `are_pairs`: the blocks of K consist of bf16 pairs, or there
/// is one block.
fn check(
    input: &[f32],
    packed: &[f32],
    outputs: usize,
    are_pairs: bool,
    run: impl Fn(&Engine, &[f32], Weights<'_>, &mut [f32]),
) {
    let run = |engine: &Engine, input: &[f32], weights: Weights<'_>| {
        let mut out = vec![f32::NAN; outputs];
        run(engine, input, weights, &mut out);
        assert!(!out.iter().any(|x| x.is_nan()), "{engine:?}");
        out
    };
    let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for half in HALVES {
        let mut narrowed = vec![0; packed.len()];
        pack::narrow(half, packed, &mut narrowed);
        let widened = rounded(half, packed);
        let mut before = Vec::new();
        for engine in engines() {
            let got = run(&engine, input, Weights::Half(half, &narrowed));
            assert!(engine.threads() == 1 || bits(&before) == bits(&got), "{engine:?} {half:?} {outputs}");
            if half == Half::Bf16 && are_pairs && engine.rounds_to_bf16() {
                let input = rounded(half, input);
                let expected = run(&engine, &input, Weights::F32(&widened));
                let absolute = |numbers: &[f32]| numbers.iter().map(|x| x.abs()).collect::<Vec<_>>();
                let scale = run(&engine, &absolute(&input), Weights::F32(&absolute(&widened)));
                for ((got, expected), scale) in got.iter().zip(&expected).zip(&scale) {
                    assert!((got - expected).abs() <= 1e-6 * scale, "{engine:?} {got} {expected} {scale}");
                }
                let exact = run(&engine, input.as_slice(), Weights::F32(packed));
                assert_ne!(bits(&got), bits(&exact));
            } else {
                let expected = run(&engine, input, Weights::F32(&widened));
                assert_eq!(bits(&got), bits(&expected), "{engine:?} {half:?} {outputs}");
            }
            before = got;
        }
    }
}

#[test]
fn gemm_with_16_bit_weights() {
    let mut rng = Rng(31);
    for [m, n, k] in [
        [1, 33, 700],
        [2, 16, 7],
        [3, 40, 385],
        [1, 40, 31],
        [4, 17, 1],
        [7, 1, 33],
        [97, 65, 769],
        [97, 65, 770],
        [300, 96, 40],
        [5, 7, 2],
        [31, 33, 384],
        [200, 48, 386],
    ] {
        let (a, b) = (rng.vector(m * k), rng.vector(k * n));
        let packed = pack::matrix_f32(k, n, |k, column| b[k * n + column]);
        check(&a, &packed, m * n, m > 3 && (k % 2 == 0 || k < 300), |engine, a, weights, c| {
            gemm(engine, &Gemm::new(m, n, k), a, weights, c, &Epilogue::default()).unwrap();
        });
    }
}

/// Bytes aligned to 4.
struct AlignedBytes {
    storage: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// Bytes; each four of them are a NaN.
    fn new(len: usize) -> Self {
        let storage = vec![0xff; len + 3];
        let start = storage.as_ptr().align_offset(4);
        Self { storage, start, len }
    }

    fn get(&self) -> &[u8] {
        &self.storage[self.start..][..self.len]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..][..self.len]
    }
}

/// A quantized matrix `[k, n]` with the parameters of each group; those of a column are contiguous.
struct Quantized {
    matrix: QuantizedMatrix,
    integers: Vec<i8>,
    scales: Numbers,
    zeros: Vec<i8>,
    minima: Numbers,
}

/// A scale or minimum for each group, or its factors and the units that they multiply.
#[derive(Default)]
struct Numbers {
    each: Vec<f32>,
    factors: Vec<i8>,
}

impl Numbers {
    /// Random parameters of both signs for a matrix of `count` groups, of which `unit_groups` share a unit.
    fn new(rng: &mut Rng, format: ScaleFormat, count: usize, unit_groups: usize, scale: f32) -> Self {
        let half = |x: &f32| rounded(Half::F16, &[x * scale])[0];
        let floats = |rng: &mut Rng, count: usize| rng.vector(count).iter().map(half).collect();
        match format {
            ScaleFormat::F32 => {
                Self { each: rng.vector(count).iter().map(|x| x * scale).collect(), factors: Vec::new() }
            }
            ScaleFormat::F16 => Self { each: floats(rng, count), factors: Vec::new() },
            ScaleFormat::Products => Self {
                each: floats(rng, count / unit_groups),
                factors: rng.vector(count).iter().map(|x| (x * 127.9) as i8).collect(),
            },
        }
    }

    fn get(&self, at: usize) -> f32 {
        match self.factors.get(at) {
            Some(factor) => self.each[at / (self.factors.len() / self.each.len())] * f32::from(*factor),
            None => self.each[at],
        }
    }

    fn packed(&self) -> GroupNumbers<'_> {
        match self.factors.as_slice() {
            [] => GroupNumbers::Each(&self.each),
            factors => GroupNumbers::Products { units: &self.each, factors },
        }
    }
}

impl Quantized {
    fn new(rng: &mut Rng, matrix: QuantizedMatrix) -> Self {
        let QuantizedMatrix { k, n, bits, offsets, scales, group } = matrix;
        let (most, scale) = match bits {
            Bits::Four => (7.9, 0.1),
            Bits::Six => (31.9, 0.02),
            Bits::Eight => (127.0, 0.01),
        };
        let count = n * k.div_ceil(group.min(k).max(1));
        let integer = |x: &f32| (x * most).floor() as i8;
        let (is_unsigned, has_zeros) = (offsets == Offsets::Minima, offsets == Offsets::ZeroPoints);
        let integers = rng.vector(k * n);
        let integers = integers.iter().map(|x| if is_unsigned { integer(&x.abs()) } else { integer(x) }).collect();
        let zeros = rng.vector(if has_zeros { count } else { 0 }).iter().map(integer).collect();
        let minima = if is_unsigned { count } else { 0 };
        let unit_groups = (UNIT_ROWS / group.min(UNIT_ROWS)).max(1);
        let mut numbers = |count: usize| Numbers::new(rng, scales, count, unit_groups, scale);
        Self { matrix, integers, scales: numbers(count), zeros, minima: numbers(minima) }
    }

    /// Packs the matrix.
    fn packed(&self) -> AlignedBytes {
        let mut packed = AlignedBytes::new(pack::quantized_len(&self.matrix).unwrap());
        let Self { matrix, integers, scales, zeros, minima } = self;
        let groups = QuantizedGroups { scales: scales.packed(), zeros, minima: minima.packed() };
        pack::quantized(packed.get_mut(), matrix, integers, &groups);
        packed
    }

    /// The two summands of a weight: its scaled integer and its minimum.
    fn terms(&self, k: usize, column: usize) -> [f32; 2] {
        let QuantizedMatrix { k: rows, offsets, group, .. } = self.matrix;
        let at = column * rows.div_ceil(group.min(rows)) + k / group;
        let (integer, scale) = (f32::from(self.integers[column * rows + k]), self.scales.get(at));
        match offsets {
            Offsets::None => [integer * scale, 0.0],
            Offsets::ZeroPoints => [(integer - f32::from(self.zeros[at])) * scale, 0.0],
            Offsets::Minima => [integer * scale, self.minima.get(at)],
        }
    }

    fn number(&self, k: usize, column: usize) -> f32 {
        self.terms(k, column).iter().sum()
    }

    /// Sum of the absolute terms; rounding errors are relative to it.
    fn magnitude(&self, k: usize, column: usize) -> f32 {
        self.terms(k, column).iter().map(|term| term.abs()).sum()
    }
}

/// Half a step of the 16-bit integers that each element of a row is rounded to. There is a scale for each 256 elements.
fn half_steps(row: &[f32]) -> Vec<f32> {
    let part = |part: &[f32]| vec![part.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 65534.0; part.len()];
    row.chunks(256).flat_map(part).collect()
}

/// True if the engine rounds rows to 16 bits for quantized weights.
fn rounds_rows(engine: &Engine) -> bool {
    !matches!(engine.isa(), Isa::Scalar | Isa::Neon | Isa::NeonDot | Isa::NeonI8mm)
}

#[test]
fn gemm_with_quantized_weights() {
    let mut rng = Rng(41);
    for [m, n, k] in [
        [1, 33, 64],
        [2, 16, 96],
        [3, 40, 31],
        [1, 17, 1],
        [4, 50, 320],
        [7, 1, 33],
        [97, 65, 769],
        [31, 33, 384],
        [3, 33, 512],
        [5, 17, 768],
    ] {
        for (bits, offsets, scales, group) in [
            (Bits::Four, Offsets::None, ScaleFormat::F32, 32),
            (Bits::Four, Offsets::ZeroPoints, ScaleFormat::F32, 32),
            (Bits::Eight, Offsets::None, ScaleFormat::F32, usize::MAX),
            (Bits::Eight, Offsets::ZeroPoints, ScaleFormat::F32, 64),
            (Bits::Four, Offsets::ZeroPoints, ScaleFormat::F32, usize::MAX),
            (Bits::Four, Offsets::None, ScaleFormat::F16, 32),
            (Bits::Four, Offsets::Minima, ScaleFormat::F16, 32),
            (Bits::Four, Offsets::Minima, ScaleFormat::Products, 32),
            (Bits::Six, Offsets::None, ScaleFormat::Products, 16),
            (Bits::Six, Offsets::ZeroPoints, ScaleFormat::F16, 32),
            (Bits::Six, Offsets::Minima, ScaleFormat::F32, 32),
            (Bits::Eight, Offsets::None, ScaleFormat::F16, 32),
            (Bits::Eight, Offsets::Minima, ScaleFormat::Products, 128),
            // Groups that the blocks of K split.
            (Bits::Four, Offsets::ZeroPoints, ScaleFormat::F32, 18),
            (Bits::Four, Offsets::Minima, ScaleFormat::F32, 48),
            (Bits::Six, Offsets::ZeroPoints, ScaleFormat::F32, 20),
            (Bits::Eight, Offsets::Minima, ScaleFormat::F16, 600),
        ] {
            let matrix = QuantizedMatrix { k, n, bits, offsets, scales, group };
            if pack::quantized_len(&matrix).is_none() {
                assert!(bits == Bits::Six || scales == ScaleFormat::Products);
                continue;
            }
            let quantized = Quantized::new(&mut rng, matrix);
            let (packed, a) = (quantized.packed(), rng.vector(m * k));
            let floats = pack::matrix_f32(k, n, |k, column| quantized.number(k, column));
            let magnitudes = pack::matrix_f32(k, n, |k, column| quantized.magnitude(k, column));
            let absolute = pack::matrix_f32(k, n, |k, column| quantized.number(k, column).abs());
            let bytes = packed.get();
            let integers = QuantizedWeights::new(bytes, &quantized.matrix).expect("a packed matrix");
            assert_eq!(integers.columns(), n);
            let mut before = Vec::new();
            for engine in engines() {
                let run = |weights: Weights<'_>, a: &[f32]| {
                    let mut c = vec![f32::NAN; m * n];
                    gemm(&engine, &Gemm::new(m, n, k), a, weights, &mut c, &Epilogue::default()).unwrap();
                    c
                };
                let (got, expected) = (run(Weights::Quantized(integers), &a), run(Weights::F32(&floats), &a));
                let scale = run(Weights::F32(&magnitudes), &a.iter().map(|x| x.abs()).collect::<Vec<_>>());
                // The error of the sum if all elements of a row are off by half a step of their 16-bit integers.
                let steps: Vec<f32> = a.chunks(k).flat_map(half_steps).collect();
                let rounding = run(Weights::F32(&absolute), &steps);
                let is_rounded = rounds_rows(&engine);
                for (((got, expected), scale), rounding) in got.iter().zip(&expected).zip(&scale).zip(&rounding) {
                    // A GEMV scales sums of integers; a GEMM in floats multiplies by the same f32 weights.
                    let most = match (is_rounded, m < 4) {
                        (true, _) => 2e-6 * scale + rounding,
                        (false, true) => 2e-6 * scale,
                        (false, false) => 0.0,
                    };
                    assert!(
                        (got - expected).abs() <= most,
                        "{engine:?} {quantized:?} {got} {expected}",
                        quantized = quantized.matrix
                    );
                }
                assert!(engine.threads() == 1 || before == got, "{engine:?}");
                before = got;
            }
            for engine in engines() {
                let indices: Vec<i64> = (0..2 * n).map(|_| rng.below(n) as i64).collect();
                let mut rows = vec![f32::NAN; indices.len() * k];
                gather(&engine, k, Table::Quantized(integers), &indices[..], &mut rows).unwrap();
                let expected = indices.iter().flat_map(|&column| (0..k).map(move |k| (k, column as usize)));
                assert!(expected.map(|(k, column)| quantized.number(k, column)).eq(rows), "{engine:?}");
                let beyond = gather(&engine, k, Table::Quantized(integers), &[n as i64][..], &mut vec![0.0; k]);
                assert!(matches!(beyond, Err(Error::Index { size, .. }) if size == n));
            }
            let matrix = quantized.matrix;
            let is_refused = |bytes: &[u8], matrix| QuantizedWeights::new(bytes, &matrix).is_none();
            assert!(is_refused(&bytes[..bytes.len() - 4], matrix) && is_refused(&bytes[1..], matrix));
            assert!(is_refused(bytes, QuantizedMatrix { k: k + 2, ..matrix }) || k == 1);
            assert!(is_refused(bytes, QuantizedMatrix { n: n + 1, ..matrix }));
            for other in [Offsets::None, Offsets::ZeroPoints, Offsets::Minima] {
                assert!(is_refused(bytes, QuantizedMatrix { offsets: other, ..matrix }) || other == offsets);
            }
            for other in [ScaleFormat::F32, ScaleFormat::F16, ScaleFormat::Products] {
                assert!(is_refused(bytes, QuantizedMatrix { scales: other, ..matrix }) || other == scales);
            }
            for other in [Bits::Four, Bits::Six, Bits::Eight] {
                assert!(is_refused(bytes, QuantizedMatrix { bits: other, ..matrix }) || other == bits);
            }
            assert!(is_refused(bytes, QuantizedMatrix { group: 2, ..matrix }) || k <= 2);
        }
    }
}

#[test]
fn quantized_weights_are_for_gemm_only() {
    let mut rng = Rng(42);
    let matrix = QuantizedMatrix {
        k: 18,
        n: 16,
        bits: Bits::Eight,
        offsets: Offsets::None,
        scales: ScaleFormat::F32,
        group: 18,
    };
    let packed = Quantized::new(&mut rng, matrix).packed();
    let integers = QuantizedWeights::new(packed.get(), &matrix).unwrap();
    let engine = Engine::new(1);
    let conv = Conv2d { kernel: [3, 3], ..Conv2d::new([1, 5, 5, 2], 16, [3, 3]) };
    let mut out = vec![0.0; 9 * 16];
    let weights = Weights::Quantized(integers);
    assert!(conv2d(&engine, &conv, &[0.0; 50], weights, &mut out, &Epilogue::default()).is_err());
    assert!(gemm(&engine, &Gemm::new(1, 16, 17), &[0.0; 17], weights, &mut out, &Epilogue::default()).is_ok());
    assert!(gemm(&engine, &Gemm::new(1, 16, 20), &[0.0; 20], weights, &mut out, &Epilogue::default()).is_err());
    assert!(gemm(&engine, &Gemm::new(1, 16, 16), &[0.0; 16], weights, &mut out, &Epilogue::default()).is_err());
}

#[test]
fn convolutions_with_16_bit_weights() {
    let mut rng = Rng(32);
    for (in_c, out_c, groups, kernel, are_pairs) in [
        (64, 33, 1, [3, 3], true),
        (500, 17, 1, [2, 3], true),
        (387, 17, 1, [2, 2], false),
        (40, 48, 2, [1, 1], true),
        (3, 24, 1, [5, 5], true),
        (3, 16, 1, [4, 5], true),
        (9, 16, 1, [4, 1], true),
    ] {
        let conv = Conv2d { groups, padding: [[1, 0]; 2], ..Conv2d::new([2, 9, 11, in_c], out_c, kernel) };
        let input = rng.vector(2 * 9 * 11 * in_c);
        let packed = rng.vector(pack::conv2d_f32_len(&conv).unwrap());
        check(&input, &packed, 2 * conv.out_h() * conv.out_w() * out_c, are_pairs, |engine, input, weights, out| {
            conv2d(engine, &conv, input, weights, out, &Epilogue::default()).unwrap();
        });
    }
}

#[test]
fn transposed_convolutions_with_16_bit_weights() {
    let mut rng = Rng(33);
    let (in_c, out_c) = (20, 18);
    let conv = ConvTranspose2d {
        batch: 1,
        in_h: 5,
        in_w: 4,
        in_c,
        out_c,
        kernel: [3, 4],
        stride: [2, 3],
        padding: [[1, 1], [0, 1]],
        output_padding: [1, 0],
        dilation: [1, 1],
        groups: 2,
        in_stride: in_c,
        out_stride: out_c,
    };
    let input = rng.vector(5 * 4 * in_c);
    let packed = rng.vector(pack::conv_transpose2d_f32_len(&conv).unwrap());
    check(&input, &packed, conv.out_h() * conv.out_w() * out_c, true, |engine, input, weights, out| {
        conv_transpose2d(engine, &conv, input, weights, out, &Epilogue::default()).unwrap();
    });
}

/// A matrix of 4 bits in groups of 32, `[k, n]`.
fn of_four_bits(rng: &mut Rng, k: usize, n: usize) -> Quantized {
    let (bits, offsets, scales) = (Bits::Four, Offsets::None, ScaleFormat::F16);
    Quantized::new(rng, QuantizedMatrix { k, n, bits, offsets, scales, group: 32 })
}

#[test]
fn a_row_has_the_same_product_alone_and_among_others() {
    use {Bits::*, Offsets::*};
    let mut rng = Rng(43);
    for (m, k, bits, offsets, group) in [
        (71, 800, Four, None, 32),
        (113, 832, Four, None, 32),
        (250, 2336, Four, Minima, 32),
        (400, 32, Four, ZeroPoints, 32),
        (16, 576, Four, ZeroPoints, 64),
        (35, 832, Four, Minima, 128),
        (40, 320, Six, Minima, 32),
        (33, 1088, Six, ZeroPoints, 256),
        (50, 832, Eight, None, 1024),
    ] {
        let n = 82;
        let matrix = QuantizedMatrix { k, n, bits, offsets, scales: ScaleFormat::F16, group };
        assert_rows_are_independent(m, &Quantized::new(&mut rng, matrix), &mut rng);
    }
}

/// Asserts that the result of a row does not depend on the number of rows.
fn assert_rows_are_independent(m: usize, quantized: &Quantized, rng: &mut Rng) {
    let QuantizedMatrix { k, n, .. } = quantized.matrix;
    // The strides leave gaps between rows.
    let [a_stride, c_stride, stride] = [k + 3, n + 2, n + 1];
    let packed = quantized.packed();
    let weights = QuantizedWeights::new(packed.get(), &quantized.matrix).unwrap();
    let (a, bias, residual) = (rng.vector(m * a_stride), rng.vector(n), rng.vector(m * stride));
    let floats = pack::matrix_f32(k, n, |k, column| quantized.number(k, column));
    for engine in engines().filter(rounds_rows) {
        let scratch = &mut vec![f32::NAN; gemm_scratch(&engine, &quantized.matrix)][..];
        for residual_first in [true, false] {
            let run = |m: usize, weights: Weights<'_>, scratch: &mut [f32]| {
                let data = FloatSlice::F32(&residual[..(m - 1) * stride + n]);
                let epilogue = Epilogue {
                    bias: Some(&bias),
                    activation: Activation::Silu,
                    residual: Some(Residual { data, stride }),
                    residual_first,
                };
                let mut c = vec![-7.0; m * c_stride];
                let shape = Gemm { m, n, k, a_stride, c_stride };
                gemm_with_scratch(&engine, &shape, &a[..], weights, &mut c, &epilogue, scratch).unwrap();
                c
            };
            let weights = Weights::Quantized(weights);
            let all = run(m, weights, scratch);
            for count in [1, 2, 3, 4, 8, 9, 11, 12, 13] {
                let same = run(count, weights, scratch) == all[..count * c_stride];
                assert!(same, "{engine:?}, {:?}, {count} rows", quantized.matrix);
            }
            assert!(run(m, weights, &mut []) == all, "{engine:?}, {:?}, without scratch memory", quantized.matrix);
            let near = |(got, expected): (&f32, &f32)| (got - expected).abs() < 1e-3;
            assert!(
                all.iter().zip(&run(m, Weights::F32(&floats), scratch)).all(near),
                "{engine:?}, {:?}",
                quantized.matrix
            );
        }
    }
}

#[test]
fn quantized_products_are_not_finite_where_rows_are_not_and_large_and_small_rows_keep_their_precision() {
    let mut rng = Rng(44);
    let [n, k] = [20, 96];
    let quantized = of_four_bits(&mut rng, k, n);
    let packed = quantized.packed();
    let weights = QuantizedWeights::new(packed.get(), &quantized.matrix).unwrap();
    let a = rng.vector(k);
    for engine in engines() {
        let run = |m: usize, a: &[f32]| {
            let (a, shape, weights) = (a.repeat(m), Gemm::new(m, n, k), Weights::Quantized(weights));
            let mut scratch = vec![f32::NAN; gemm_scratch(&engine, &quantized.matrix)];
            let mut c = vec![0.0; m * n];
            gemm_with_scratch(&engine, &shape, &a, weights, &mut c, &Epilogue::default(), &mut scratch).unwrap();
            c
        };
        for m in [1, 5, 20] {
            for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut a = a.clone();
                a[37] = x;
                assert!(run(m, &a).iter().all(|y| !y.is_finite()), "{engine:?}, {x}");
            }
            for scale in [1e30, 1e-30] {
                let scaled: Vec<f32> = a.iter().map(|x| x * scale).collect();
                let (got, expected) = (run(m, &scaled), run(m, &a));
                let most = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                let is_near = |(got, expected): (&f32, &f32)| (got / scale - expected).abs() < 1e-4 * most;
                assert!(got.iter().zip(&expected).all(is_near), "{engine:?}, {scale}");
            }
            assert!(run(m, &vec![0.0; k]).iter().all(|y| *y == 0.0));
        }
    }
}
