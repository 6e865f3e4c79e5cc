//! Weights of 16 bits: products with them are those with the same numbers as floats, bit for bit, or with both sides rounded
//! to bf16 where pairs of them are multiplied.

use super::*;
use crate::arch::{Job, Simd};
use crate::{Conv2d, ConvTranspose2d, Gemm, Half, Tail, Weights, conv_transpose2d, conv2d, gemm, narrow, pack, widen};

const HALVES: [Half; 2] = [Half::F16, Half::Bf16];

/// The floats that numbers of 16 bits are.
fn rounded(half: Half, floats: &[f32]) -> Vec<f32> {
    let engine = Engine::new(1);
    let (mut narrowed, mut widened) = (vec![0; floats.len()], vec![0.0; floats.len()]);
    narrow(&engine, half, floats, &mut narrowed).unwrap();
    widen(&engine, half, &narrowed, &mut widened).unwrap();
    widened
}

/// Whether an engine multiplies pairs of bf16.
struct HasDots;

impl Job for HasDots {
    type Out = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        S::MAY_DOT && s.dots().is_some()
    }
}

/// Runs a product with both kinds of weights on every engine. `are_pairs` is whether K comes in pairs of bf16: its blocks have
/// even numbers, or there is one block.
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
        pack::halves(half, packed, &mut narrowed);
        let widened = rounded(half, packed);
        let mut before = Vec::new();
        for engine in engines() {
            let got = run(&engine, input, Weights::Half(half, &narrowed));
            assert!(engine.threads() == 1 || bits(&before) == bits(&got), "{engine:?} {half:?} {outputs}");
            if half == Half::Bf16 && are_pairs && engine.level.run(HasDots) {
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
fn matrices() {
    let mut numbers = Numbers(31);
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
        let (a, b) = (numbers.vector(m * k), numbers.vector(k * n));
        let packed = pack::matrix_f32(k, n, |k, column| b[k * n + column]);
        check(&a, &packed, m * n, m > 3 && (k % 2 == 0 || k < 300), |engine, a, weights, c| {
            gemm(engine, &Gemm::new(m, n, k), a, weights, c, &Tail::default()).unwrap();
        });
    }
}

#[test]
fn convolutions() {
    let mut numbers = Numbers(32);
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
        let input = numbers.vector(2 * 9 * 11 * in_c);
        let packed = numbers.vector(pack::conv2d_f32_len(&conv).unwrap());
        check(&input, &packed, 2 * conv.out_h() * conv.out_w() * out_c, are_pairs, |engine, input, weights, out| {
            conv2d(engine, &conv, input, weights, out, &Tail::default()).unwrap();
        });
    }
}

#[test]
fn transposed_convolutions() {
    let mut numbers = Numbers(33);
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
    let input = numbers.vector(5 * 4 * in_c);
    let packed = numbers.vector(pack::conv_transpose2d_f32_len(&conv).unwrap());
    check(&input, &packed, conv.out_h() * conv.out_w() * out_c, true, |engine, input, weights, out| {
        conv_transpose2d(engine, &conv, input, weights, out, &Tail::default()).unwrap();
    });
}
