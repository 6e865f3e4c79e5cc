//! Narrow weights: results are those of the dequantized f32 weights, bit for bit, or with both sides rounded to bf16
//! where bf16 dot products are used.

use super::*;
use rushlight_engine::pack::QuantizedMatrix;
use rushlight_engine::{
    Conv2d, ConvTranspose2d, Epilogue, Error, Gemm, Half, QuantizedWeights, Table, Weights, conv_transpose2d, conv2d,
    gather, gemm, narrow, pack, widen,
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
    /// Bytes of which each four are a NaN.
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

/// A quantized matrix `[k, n]` with the scale and zero point of each group.
struct Quantized {
    matrix: QuantizedMatrix,
    integers: Vec<i8>,
    scales: Vec<f32>,
    zeros: Vec<i8>,
}

impl Quantized {
    fn new(rng: &mut Rng, matrix: QuantizedMatrix) -> Self {
        let QuantizedMatrix { k, n, is_four_bits, has_zeros, group } = matrix;
        let most = if is_four_bits { 7.9 } else { 127.0 };
        let groups = k.div_ceil(group.min(k).max(1));
        let integers = rng.vector(k * n).iter().map(|x| (x * most).floor() as i8).collect();
        let scales = rng.vector(groups * n).iter().map(|x| 0.01 + x.abs() / most).collect();
        let zeros = rng.vector(groups * n).iter().map(|x| if has_zeros { (x * most) as i8 } else { 0 }).collect();
        Self { matrix, integers, scales, zeros }
    }

    fn of(&self, group: usize, column: usize) -> (f32, i8) {
        let at = group * self.matrix.n + column;
        (self.scales[at], self.zeros[at])
    }

    /// Packs the matrix.
    fn packed(&self) -> AlignedBytes {
        let mut packed = AlignedBytes::new(pack::quantized_len(&self.matrix).unwrap());
        let QuantizedMatrix { k, n, has_zeros, .. } = self.matrix;
        let groups = self.scales.len() / n.max(1);
        let zeros = if has_zeros { transposed(&self.zeros, groups, n) } else { Vec::new() };
        let (integers, scales) = (transposed(&self.integers, k, n), transposed(&self.scales, groups, n));
        pack::quantized(packed.get_mut(), &self.matrix, &integers, &scales, &zeros);
        packed
    }

    fn number(&self, k: usize, column: usize) -> f32 {
        let (scale, zero) = self.of(k / self.matrix.group, column);
        (f32::from(self.integers[k * self.matrix.n + column]) - f32::from(zero)) * scale
    }

    /// Dequantizes and packs the matrix as f32.
    fn floats(&self) -> Vec<f32> {
        pack::matrix_f32(self.matrix.k, self.matrix.n, |k, column| self.number(k, column))
    }
}

#[test]
fn gemm_with_quantized_weights() {
    let mut rng = Rng(41);
    for [m, n, k] in
        [[1, 33, 64], [2, 16, 96], [3, 40, 31], [1, 17, 1], [4, 50, 320], [7, 1, 33], [97, 65, 769], [31, 33, 384]]
    {
        for (is_four_bits, has_zeros, group) in [
            (true, false, 32),
            (true, true, 32),
            (false, false, usize::MAX),
            (false, true, 64),
            (true, true, usize::MAX),
        ] {
            let quantized = Quantized::new(&mut rng, QuantizedMatrix { k, n, is_four_bits, has_zeros, group });
            let (packed, floats, a) = (quantized.packed(), quantized.floats(), rng.vector(m * k));
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
                let absolute = |numbers: &[f32]| numbers.iter().map(|x| x.abs()).collect::<Vec<_>>();
                let scale = run(Weights::F32(&absolute(&floats)), &absolute(&a));
                for ((got, expected), scale) in got.iter().zip(&expected).zip(&scale) {
                    // GEMV scales sums of integers; GEMM multiplies by the same f32 weights.
                    let most = if m < 4 { 2e-6 * scale } else { 0.0 };
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
            assert!(is_refused(bytes, QuantizedMatrix { has_zeros: !has_zeros, ..matrix }));
            assert!(is_refused(bytes, QuantizedMatrix { is_four_bits: !is_four_bits, ..matrix }));
            assert!(is_refused(bytes, QuantizedMatrix { group: 2, ..matrix }) || k <= 2);
        }
    }
}

#[test]
fn quantized_weights_are_for_gemm_only() {
    let mut rng = Rng(42);
    let matrix = QuantizedMatrix { k: 18, n: 16, is_four_bits: false, has_zeros: false, group: 18 };
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
