//! Weights of 16 bits: products with them are those with the same numbers as floats, bit for bit.

use super::*;
use crate::{Conv2d, ConvTranspose2d, Gemm, Half, Tail, Weights, conv_transpose2d, conv2d, gemm, narrow, pack, widen};

const HALVES: [Half; 2] = [Half::F16, Half::Bf16];

/// Weights of 16 bits, and the floats that they are.
fn rounded(half: Half, packed: &[f32]) -> (Vec<u16>, Vec<f32>) {
    let engine = Engine::new(1);
    let (mut narrowed, mut widened) = (vec![0; packed.len()], vec![0.0; packed.len()]);
    narrow(&engine, half, packed, &mut narrowed).unwrap();
    widen(&engine, half, &narrowed, &mut widened).unwrap();
    (narrowed, widened)
}

/// Runs a product with both kinds of weights on every engine.
fn check(packed: &[f32], outputs: usize, mut run: impl FnMut(&Engine, Weights<'_>, &mut [f32])) {
    for half in HALVES {
        let (narrowed, widened) = rounded(half, packed);
        for engine in engines() {
            let (mut got, mut expected) = (vec![f32::NAN; outputs], vec![f32::NAN; outputs]);
            run(&engine, Weights::Half(half, &narrowed), &mut got);
            run(&engine, Weights::F32(&widened), &mut expected);
            let same = got.iter().zip(&expected).all(|(got, expected)| got.to_bits() == expected.to_bits());
            assert!(same && !got.iter().any(|x| x.is_nan()), "{engine:?} {half:?} {outputs}");
        }
    }
}

#[test]
fn matrices() {
    let mut numbers = Numbers(31);
    for [m, n, k] in [[1, 33, 700], [2, 16, 7], [3, 40, 385], [4, 17, 1], [7, 1, 33], [97, 65, 769], [300, 96, 40]] {
        let (a, b) = (numbers.vector(m * k), numbers.vector(k * n));
        let packed = pack::matrix_f32(k, n, |k, column| b[k * n + column]);
        check(&packed, m * n, |engine, weights, c| {
            gemm(engine, &Gemm::new(m, n, k), &a, weights, c, &Tail::default()).unwrap();
        });
    }
}

#[test]
fn convolutions() {
    let mut numbers = Numbers(32);
    for (in_c, out_c, groups, kernel) in
        [(64, 33, 1, [3, 3]), (500, 17, 1, [2, 3]), (40, 48, 2, [1, 1]), (3, 24, 1, [5, 5])]
    {
        let conv = Conv2d { groups, padding: [[1, 0]; 2], ..Conv2d::new([2, 9, 11, in_c], out_c, kernel) };
        let input = numbers.vector(2 * 9 * 11 * in_c);
        let packed = numbers.vector(pack::conv2d_f32_len(&conv).unwrap());
        check(&packed, 2 * conv.out_h() * conv.out_w() * out_c, |engine, weights, out| {
            conv2d(engine, &conv, &input, weights, out, &Tail::default()).unwrap();
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
    check(&packed, conv.out_h() * conv.out_w() * out_c, |engine, weights, out| {
        conv_transpose2d(engine, &conv, &input, weights, out, &Tail::default()).unwrap();
    });
}
