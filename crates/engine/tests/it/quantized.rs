//! Int8 kernels against integer sums, bit-identical on every instruction set.

use super::pool_resize::{random_resize, sources};
use super::{Rng, engines, transposed};
use rushlight_engine::{
    Activation, Affine, AveragePool, Binary, Conv2d, Conv3d, ConvTranspose2d, Copy, Data, DynamicQuantization, Engine,
    Error, Gemm, GroupwiseEpilogue, Instruction, MAX_DIMS, Operand, Pool2d, PoolKind, QuantEpilogue, QuantOut,
    QuantResidual, ResizeMode, RowQparams, SoftmaxTable, Source, ZeroPointRule, avg_pool2d_u8, choose_qparams,
    conv_transpose2d_u8, conv2d_u8, conv3d_u8, copy, depthwise2d_u8, elementwise, gemm_u8, gemm_u8_groupwise, lookup,
    max_pool2d_u8, mean_u8, pack, pool2d, quantize_rows, resize_u8, softmax_u8,
};

/// An epilogue that owns its operands.
#[derive(Debug)]
struct OwnedQuantEpilogue {
    offsets: Vec<i32>,
    scales: Vec<f32>,
    /// Scale and zero point of all rows, if they are dynamically quantized.
    rows: Option<[f32; 2]>,
    bias: Option<Vec<f32>>,
    inner: Option<(Activation, Affine)>,
    residual: Option<(Vec<u8>, usize, Affine)>,
    activation: Activation,
    /// f32 output if `None`.
    to: Option<Affine>,
}

/// Activations without exponentials.
const EXACT: &[Activation] = &[
    Activation::None,
    Activation::RELU,
    Activation::RELU6,
    Activation::LeakyRelu { slope: 0.1 },
    Activation::HardSwish,
    Activation::HardSigmoid,
];

fn affine(rng: &mut Rng) -> Affine {
    let min = rng.one_of(&[0, 1, 17]);
    let max = rng.one_of(&[255, 254, 127]);
    let zero_point = min + rng.below(usize::from(max - min)) as u8;
    Affine { scale: 0.001 + rng.below(1000) as f32 * 1e-4, zero_point, min, max }
}

fn bytes(rng: &mut Rng, n: usize) -> Vec<u8> {
    (0..n).map(|_| rng.next() as u8).collect()
}

impl OwnedQuantEpilogue {
    fn random(rng: &mut Rng, rows: usize, columns: usize) -> Self {
        let stride = columns + rng.below(3);
        Self {
            offsets: (0..columns).map(|_| rng.below(100_000) as i32 - 50_000).collect(),
            scales: (0..columns).map(|_| 1e-5 + rng.below(1000) as f32 * 1e-7).collect(),
            rows: (rng.below(4) == 0).then(|| [0.5 + rng.below(100) as f32 / 64.0, rng.below(256) as f32]),
            bias: (rng.below(4) == 0).then(|| rng.vector(columns)),
            inner: (rng.below(3) == 0).then(|| (rng.one_of(EXACT), affine(rng))),
            residual: (rng.below(3) == 0).then(|| (bytes(rng, rows * stride), stride, affine(rng))),
            activation: rng.one_of(EXACT),
            to: (rng.below(4) != 0).then(|| affine(rng)),
        }
    }

    fn epilogue(&self) -> QuantEpilogue<'_> {
        let residual = self.residual.as_ref();
        QuantEpilogue {
            offsets: &self.offsets,
            scales: &self.scales,
            rows: self.rows.as_ref().map(|[scale, zero]| RowQparams {
                scales: core::slice::from_ref(scale),
                zero_points: core::slice::from_ref(zero),
            }),
            bias: self.bias.as_deref(),
            inner: self.inner,
            residual: residual.map(|(data, stride, affine)| QuantResidual { data, stride: *stride, affine: *affine }),
            activation: self.activation,
        }
    }

    /// Initial accumulator of a column.
    fn start(&self, column: usize) -> i32 {
        self.rows.map_or(1, |[_, zero]| -(zero as i32)) * self.offsets[column]
    }

    /// Applies the epilogue to an accumulator; u8 results are returned as f64. `exact` skips the rounding of f32.
    fn apply(&self, row: usize, column: usize, sum: i32) -> f64 {
        let row_scale = self.rows.map_or(1.0, |[scale, _]| f64::from(scale));
        let mut v = f64::from(sum) * f64::from(self.scales[column]) * row_scale;
        v += self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
        if let Some((activation, affine)) = self.inner {
            let quantized = quantize(super::activation(activation, v), affine);
            v = (quantized - f64::from(affine.zero_point)) * f64::from(affine.scale);
        }
        if let Some((data, stride, affine)) = &self.residual {
            v += (f64::from(data[row * stride + column]) - f64::from(affine.zero_point)) * f64::from(affine.scale);
        }
        v = super::activation(self.activation, v);
        self.to.map_or(v, |affine| quantize(v, affine))
    }
}

fn quantize(v: f64, affine: Affine) -> f64 {
    let quantized = (v / f64::from(affine.scale)).round_ties_even() + f64::from(affine.zero_point);
    quantized.clamp(f64::from(affine.min), f64::from(affine.max))
}

/// Runs a kernel on every engine and asserts bit-identical results that match the reference up to rounding: one step,
/// and one more with an inner quantization.
fn assert_same(
    what: &dyn std::fmt::Debug,
    epilogue: &OwnedQuantEpilogue,
    len: usize,
    expected: impl Fn(usize) -> f64,
    run: impl Fn(&Engine, QuantOut),
) {
    let mut first: Option<Vec<f32>> = None;
    for engine in engines() {
        let got: Vec<f32> = match epilogue.to {
            None => {
                let mut floats = vec![7.0; len];
                run(&engine, QuantOut::Floats(&mut floats));
                floats
            }
            Some(affine) => {
                let mut bytes = vec![7; len];
                run(&engine, QuantOut::Bytes(&mut bytes, affine));
                bytes.into_iter().map(f32::from).collect()
            }
        };
        let Some(first) = &first else {
            let inner = epilogue.inner.map_or(0.0, |(_, affine)| f64::from(affine.scale));
            let mut beyond = 0;
            for (i, got) in got.iter().enumerate() {
                let expected = expected(i);
                let error = (f64::from(*got) - expected).abs();
                let near = match epilogue.to {
                    None => 1e-5 * expected.abs().max(1.0),
                    Some(_) => 0.0,
                };
                if error > near {
                    // A tie, or nearly one, that was rounded the other way.
                    beyond += 1;
                    let step = epilogue.to.map_or(inner, |affine| 1.0 + inner / f64::from(affine.scale));
                    assert!(
                        error <= near + step * 1.2 + 1e-6,
                        "{what:?} {epilogue:?}, element {i}: {got}, not {expected}"
                    );
                }
            }
            assert!(beyond <= 2 + len / 50, "{what:?} {epilogue:?}: {beyond} of {len} are off");
            first = Some(got);
            continue;
        };
        let same = first.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{engine:?} {what:?} {epilogue:?} differs from portable code");
    }
}

/// Smallest weights of tests: two products of -128 and -128 do not fit in an i16, so that kernels may avoid them.
const LOWEST: [i8; 2] = [-128, -127];

fn weights(rng: &mut Rng, n: usize, lowest: i8) -> Vec<i8> {
    (0..n).map(|_| (rng.next() as i8).max(lowest)).collect()
}

#[test]
fn gemm_u8_matches_reference() {
    let mut rng = Rng(3);
    let shapes = [(1, 1, 1), (1, 40, 7), (3, 16, 64), (29, 33, 30), (61, 70, 129), (200, 17, 4), (2, 5, 2000)];
    for ((m, n, k), lowest) in shapes.into_iter().flat_map(|shape| LOWEST.map(|lowest| (shape, lowest))) {
        let stride = k + rng.below(3);
        let (a, b) = (bytes(&mut rng, m * stride), weights(&mut rng, k * n, lowest));
        let epilogue = OwnedQuantEpilogue::random(&mut rng, m, n);
        let mut packed = vec![9; pack::matrix_i8_len(k, n).unwrap()];
        pack::matrix_i8_into(&mut packed, k, n, &transposed(&b, k, n));
        let gemm = Gemm { a_stride: stride, ..Gemm::new(m, n, k) };
        let expected = |i: usize| {
            let (row, column) = (i / n, i % n);
            let products = (0..k).map(|k| i32::from(a[row * stride + k]) * i32::from(b[k * n + column]));
            epilogue.apply(row, column, epilogue.start(column) + products.sum::<i32>())
        };
        let a = &a[..(m - 1) * stride + k];
        assert_same(&gemm, &epilogue, m * n, expected, |engine, out| {
            gemm_u8(engine, &gemm, a, &packed, out, &epilogue.epilogue()).unwrap();
        });
    }
}

/// The epilogue of a hard-swish after a convolution, which instruction sets may look up.
#[test]
fn gemm_u8_with_hard_swish_matches_reference() {
    let mut rng = Rng(29);
    for (m, n, k) in [(1, 16, 8), (9, 24, 40), (13, 33, 100)] {
        let (a, b) = (bytes(&mut rng, m * k), weights(&mut rng, k * n, -127));
        let epilogue = OwnedQuantEpilogue {
            scales: (0..n).map(|_| 1e-4 + rng.below(1000) as f32 * 1e-7).collect(),
            rows: None,
            bias: None,
            inner: Some((Activation::None, affine(&mut rng))),
            residual: None,
            activation: Activation::HardSwish,
            to: Some(affine(&mut rng)),
            ..OwnedQuantEpilogue::random(&mut rng, m, n)
        };
        let mut packed = vec![9; pack::matrix_i8_len(k, n).unwrap()];
        pack::matrix_i8_into(&mut packed, k, n, &transposed(&b, k, n));
        let gemm = Gemm::new(m, n, k);
        let expected = |i: usize| {
            let (row, column) = (i / n, i % n);
            let products = (0..k).map(|at| i32::from(a[row * k + at]) * i32::from(b[at * n + column]));
            epilogue.apply(row, column, epilogue.start(column) + products.sum::<i32>())
        };
        assert_same(&gemm, &epilogue, m * n, expected, |engine, out| {
            gemm_u8(engine, &gemm, &a, &packed, out, &epilogue.epilogue()).unwrap();
        });
    }
}

/// Accumulates a window; `get(o, i, [d, h, w])` are the weights.
fn window(conv: &Conv3d, zero: u8, input: &[u8], at: usize, get: impl Fn(usize, usize, [usize; 3]) -> i8) -> i32 {
    let (pixel, o) = (at / conv.out_c, at % conv.out_c);
    let ([_, kernel_h, kernel_w], [out_d, out_h, out_w]) = (conv.kernel, conv.out_size());
    let [image, d, h, w] =
        [pixel / out_w / out_h / out_d, pixel / out_w / out_h % out_d, pixel / out_w % out_h, pixel % out_w];
    let (inputs, outputs) = (conv.in_c / conv.groups, conv.out_c / conv.groups);
    let mut sum = 0;
    for tap in 0..conv.kernel.iter().product() {
        let tap = [tap / kernel_w / kernel_h, tap / kernel_w % kernel_h, tap % kernel_w];
        let from: [usize; 3] = core::array::from_fn(|axis| {
            let at = [d, h, w][axis] * conv.stride[axis] + tap[axis] * conv.dilation[axis];
            at.wrapping_sub(conv.padding[axis][0])
        });
        let is_inside = from.iter().zip(conv.in_size).all(|(at, size)| *at < size);
        for i in 0..inputs {
            let byte = if is_inside {
                let [in_d, in_h, in_w] = conv.in_size;
                let pixel = ((image * in_d + from[0]) * in_h + from[1]) * in_w + from[2];
                input[pixel * conv.in_stride + o / outputs * inputs + i]
            } else {
                zero
            };
            sum += i32::from(byte) * i32::from(get(o, i, tap));
        }
    }
    sum
}

/// A convolution of images as one of volumes of depth 1.
fn volume(conv: &Conv2d) -> Conv3d {
    Conv3d {
        batch: conv.batch,
        in_size: [1, conv.in_h, conv.in_w],
        in_c: conv.in_c,
        out_c: conv.out_c,
        kernel: [1, conv.kernel[0], conv.kernel[1]],
        stride: [1, conv.stride[0], conv.stride[1]],
        padding: [[0; 2], conv.padding[0], conv.padding[1]],
        dilation: [1, conv.dilation[0], conv.dilation[1]],
        groups: conv.groups,
        in_stride: conv.in_stride,
        out_stride: conv.out_stride,
    }
}

#[test]
fn conv2d_u8_matches_reference() {
    let mut rng = Rng(5);
    let basic = |in_size, out_c, kernel| Conv2d::new(in_size, out_c, kernel);
    let cases = [
        Conv2d { stride: [2, 2], padding: [[3, 3], [3, 3]], ..basic([1, 23, 31, 3], 20, [7, 7]) },
        Conv2d { stride: [2, 2], padding: [[0, 1], [0, 1]], ..basic([2, 12, 9, 3], 16, [3, 3]) },
        Conv2d { padding: [[1, 1], [1, 1]], ..basic([1, 9, 10, 8], 33, [3, 3]) },
        Conv2d { padding: [[1, 2], [0, 1]], dilation: [2, 1], ..basic([2, 7, 8, 5], 18, [3, 2]) },
        Conv2d { groups: 3, padding: [[1, 1], [1, 1]], ..basic([1, 6, 5, 12], 9, [3, 3]) },
        Conv2d { groups: 2, ..basic([1, 6, 5, 14], 4, [2, 2]) },
        Conv2d { stride: [2, 2], ..basic([1, 9, 9, 16], 24, [1, 1]) },
        Conv2d { in_stride: 19, ..basic([1, 9, 9, 17], 24, [1, 1]) },
        basic([1, 1, 3, 1], 2, [1, 3]),
    ];
    for (conv, lowest) in cases.into_iter().flat_map(|conv| LOWEST.map(|lowest| (conv, lowest))) {
        let pixels = conv.batch * conv.in_h * conv.in_w;
        let input = bytes(&mut rng, (pixels - 1) * conv.in_stride + conv.in_c);
        let (inputs, [kernel_h, kernel_w]) = (conv.in_c / conv.groups, conv.kernel);
        let w = weights(&mut rng, conv.out_c * inputs * kernel_h * kernel_w, lowest);
        let get = |o: usize, i: usize, h: usize, x: usize| w[((o * inputs + i) * kernel_h + h) * kernel_w + x];
        let rows = conv.batch * conv.out_h() * conv.out_w();
        let epilogue = OwnedQuantEpilogue::random(&mut rng, rows, conv.out_c);
        let mut packed = vec![9; pack::conv2d_i8_len(&conv).unwrap()];
        pack::conv2d_i8_into(&mut packed, &conv, get);
        let zero = rng.next() as u8;
        let expected = |i: usize| {
            let column = i % conv.out_c;
            let sum = window(&volume(&conv), zero, &input, i, |o, i, [_, h, w]| get(o, i, h, w));
            epilogue.apply(i / conv.out_c, column, epilogue.start(column) + sum)
        };
        assert_same(&conv, &epilogue, rows * conv.out_c, expected, |engine, out| {
            conv2d_u8(engine, &conv, zero, &input, &packed, out, &epilogue.epilogue()).unwrap();
        });
    }
}

#[test]
fn conv3d_u8_matches_reference() {
    let mut rng = Rng(19);
    let basic = |batch, in_size, [in_c, out_c]: [usize; 2], kernel| Conv3d {
        batch,
        in_size,
        in_c,
        out_c,
        kernel,
        stride: [1; 3],
        padding: [[0; 2]; 3],
        dilation: [1; 3],
        groups: 1,
        in_stride: in_c,
        out_stride: out_c,
    };
    let cases = [
        // The stem of a video network: few channels, whose kernel rows are taps.
        Conv3d { stride: [1, 2, 2], padding: [[1; 2], [3; 2], [3; 2]], ..basic(1, [4, 11, 13], [3, 20], [3, 7, 7]) },
        Conv3d { padding: [[1; 2]; 3], ..basic(2, [3, 5, 6], [8, 33], [3, 3, 3]) },
        Conv3d { padding: [[0; 2], [1; 2], [1; 2]], ..basic(1, [4, 6, 5], [16, 17], [1, 3, 3]) },
        Conv3d { stride: [2, 1, 1], padding: [[1; 2], [0; 2], [0; 2]], ..basic(1, [7, 3, 4], [12, 16], [3, 1, 1]) },
        Conv3d { stride: [2, 4, 4], ..basic(1, [4, 8, 8], [3, 18], [2, 4, 4]) },
        Conv3d { dilation: [2, 1, 2], padding: [[2, 1], [0, 1], [2; 2]], ..basic(1, [5, 4, 7], [5, 9], [2, 2, 3]) },
        Conv3d { groups: 3, padding: [[1; 2]; 3], ..basic(1, [3, 4, 5], [12, 9], [2, 3, 3]) },
        // Depthwise.
        Conv3d { groups: 18, padding: [[1; 2]; 3], ..basic(1, [3, 5, 4], [18, 18], [3, 3, 3]) },
        Conv3d { in_stride: 23, ..basic(2, [2, 3, 3], [17, 24], [1, 1, 1]) },
    ];
    for (conv, lowest) in cases.into_iter().flat_map(|conv| LOWEST.map(|lowest| (conv, lowest))) {
        let pixels = conv.batch * conv.in_size.iter().product::<usize>();
        let input = bytes(&mut rng, (pixels - 1) * conv.in_stride + conv.in_c);
        let (inputs, [kernel_d, kernel_h, kernel_w]) = (conv.in_c / conv.groups, conv.kernel);
        let w = weights(&mut rng, conv.out_c * inputs * kernel_d * kernel_h * kernel_w, lowest);
        let get = |o: usize, i: usize, [d, h, x]: [usize; 3]| {
            w[(((o * inputs + i) * kernel_d + d) * kernel_h + h) * kernel_w + x]
        };
        let rows = conv.batch * conv.out_size().iter().product::<usize>();
        let epilogue = OwnedQuantEpilogue::random(&mut rng, rows, conv.out_c);
        let mut packed = vec![9; pack::conv3d_i8_len(&conv).unwrap()];
        pack::conv3d_i8_into(&mut packed, &conv, get);
        let zero = rng.next() as u8;
        let expected = |i: usize| {
            let column = i % conv.out_c;
            let sum = window(&conv, zero, &input, i, get);
            epilogue.apply(i / conv.out_c, column, epilogue.start(column) + sum)
        };
        assert_same(&conv, &epilogue, rows * conv.out_c, expected, |engine, out| {
            conv3d_u8(engine, &conv, zero, &input, &packed, out, &epilogue.epilogue()).unwrap();
        });
    }
}

#[test]
fn depthwise2d_u8_matches_reference() {
    let mut rng = Rng(7);
    let basic = |[height, width, channels]: [usize; 3], kernel| Conv2d {
        groups: channels,
        ..Conv2d::new([2, height, width, channels], channels, kernel)
    };
    let cases = [
        Conv2d { padding: [[1, 1], [1, 1]], ..basic([9, 31, 24], [3, 3]) },
        Conv2d { padding: [[0, 1], [0, 1]], stride: [2, 2], ..basic([8, 20, 33], [3, 3]) },
        Conv2d { padding: [[1, 1], [1, 1]], stride: [2, 2], ..basic([9, 19, 40], [3, 3]) },
        Conv2d { padding: [[2, 2], [2, 2]], ..basic([7, 15, 16], [5, 5]) },
        Conv2d { padding: [[2, 2], [2, 2]], ..basic([7, 7, 27], [5, 5]) },
        Conv2d { padding: [[2, 2], [2, 2]], stride: [2, 2], ..basic([14, 14, 5], [5, 5]) },
        Conv2d { padding: [[2, 2], [2, 2]], stride: [2, 2], ..basic([13, 14, 36], [5, 5]) },
        Conv2d { padding: [[1, 2], [2, 1]], ..basic([9, 16, 28], [5, 5]) },
        Conv2d { padding: [[2, 1], [1, 1]], dilation: [2, 1], ..basic([8, 6, 20], [3, 3]) },
        // More channels than are arranged at a time.
        Conv2d { padding: [[1, 1], [1, 1]], ..basic([4, 4, 1044], [3, 3]) },
        Conv2d { padding: [[3, 3], [0, 6]], dilation: [2, 3], ..basic([11, 12, 17], [4, 2]) },
        Conv2d { padding: [[4, 4], [4, 4]], ..basic([6, 7, 3], [9, 9]) },
    ];
    for (conv, lowest) in cases.into_iter().flat_map(|conv| LOWEST.map(|lowest| (conv, lowest))) {
        let input = bytes(&mut rng, conv.batch * conv.in_h * conv.in_w * conv.in_c);
        let [kernel_h, kernel_w] = conv.kernel;
        let w = weights(&mut rng, conv.in_c * kernel_h * kernel_w, lowest);
        let get = |c: usize, h: usize, x: usize| w[(c * kernel_h + h) * kernel_w + x];
        let rows = conv.batch * conv.out_h() * conv.out_w();
        let epilogue = OwnedQuantEpilogue::random(&mut rng, rows, conv.out_c);
        let mut packed = vec![9; pack::depthwise2d_i8_len(&conv).unwrap()];
        pack::depthwise2d_i8_into(&mut packed, &conv, get);
        let zero = rng.next() as u8;
        let expected = |i: usize| {
            let column = i % conv.out_c;
            let sum = window(&volume(&conv), zero, &input, i, |o, _, [_, h, w]| get(o, h, w));
            epilogue.apply(i / conv.out_c, column, epilogue.start(column) + sum)
        };
        assert_same(&conv, &epilogue, rows * conv.out_c, expected, |engine, out| {
            depthwise2d_u8(engine, &conv, zero, &input, &packed, out, &epilogue.epilogue()).unwrap();
        });
    }
}

#[test]
fn conv_transpose2d_u8_matches_reference() {
    let mut rng = Rng(31);
    for round in 0..60 {
        let groups = rng.one_of(&[1, 1, 2, 3]);
        let out_c = groups * rng.one_of(&[1, 15, 16, 34]);
        let conv = ConvTranspose2d {
            batch: 1 + rng.below(2),
            in_h: 1 + rng.below(7),
            in_w: 1 + rng.below(20),
            in_c: groups * rng.one_of(&[1, 3, 8, 17]),
            out_c,
            kernel: [0; 2].map(|_| 1 + rng.below(5)),
            stride: [0; 2].map(|_| 1 + rng.below(3)),
            padding: [[0; 2]; 2].map(|_| [rng.below(3), rng.below(3)]),
            output_padding: [0; 2].map(|_| rng.below(2)),
            dilation: [0; 2].map(|_| 1 + rng.below(3)),
            groups,
            in_stride: groups * 17,
            out_stride: out_c,
        };
        let (out_h, out_w) = (conv.out_h(), conv.out_w());
        let pixels = conv.batch * out_h * out_w;
        let (inputs, outputs, [kernel_h, kernel_w]) = (conv.in_c / groups, conv.out_c / groups, conv.kernel);
        let input = bytes(&mut rng, conv.batch * conv.in_h * conv.in_w * conv.in_stride);
        let w = weights(&mut rng, conv.in_c * outputs * kernel_h * kernel_w, i8::MIN);
        let get = |i: usize, o: usize, h: usize, x: usize| w[((i * outputs + o) * kernel_h + h) * kernel_w + x];
        let zero = rng.next() as u8;
        // Scatters each input pixel over the output.
        let mut sums = vec![0; pixels * conv.out_c];
        for pixel in 0..conv.batch * conv.in_h * conv.in_w {
            let (image, in_y, in_x) = (pixel / conv.in_w / conv.in_h, pixel / conv.in_w % conv.in_h, pixel % conv.in_w);
            for (h, tap_w) in (0..kernel_h).flat_map(|h| (0..kernel_w).map(move |w| (h, w))) {
                let y = (in_y * conv.stride[0] + h * conv.dilation[0]).wrapping_sub(conv.padding[0][0]);
                let x = (in_x * conv.stride[1] + tap_w * conv.dilation[1]).wrapping_sub(conv.padding[1][0]);
                if y >= out_h || x >= out_w {
                    continue;
                }
                for (o, i) in (0..conv.out_c).flat_map(|o| (0..inputs).map(move |i| (o, o / outputs * inputs + i))) {
                    let number = i32::from(input[pixel * conv.in_stride + i]) - i32::from(zero);
                    let product = number * i32::from(get(i, o % outputs, h, tap_w));
                    sums[((image * out_h + y) * out_w + x) * conv.out_c + o] += product;
                }
            }
        }
        let mut epilogue = OwnedQuantEpilogue::random(&mut rng, pixels, conv.out_c);
        let biases = if epilogue.rows.is_some() { vec![0; conv.out_c] } else { epilogue.offsets.clone() };
        let of_phases = pack::conv_transpose2d_i8_sums(&conv, get);
        // With dynamic zero points, `offsets` are plain sums.
        let by = if epilogue.rows.is_some() { -1 } else { i32::from(zero) };
        epilogue.rows = epilogue.rows.map(|[scale, _]| [scale, f32::from(zero)]);
        let offset = |(i, sum): (usize, &i64)| biases[i % conv.out_c] - (*sum as i32) * by;
        epilogue.offsets = of_phases.iter().enumerate().map(offset).collect();
        assert_eq!(epilogue.offsets.len(), conv.stride[0] * conv.stride[1] * conv.out_c);
        let mut packed = vec![9; pack::conv_transpose2d_i8_len(&conv).unwrap()];
        pack::conv_transpose2d_i8_into(&mut packed, &conv, get);
        let expected = |i: usize| {
            let column = i % conv.out_c;
            epilogue.apply(i / conv.out_c, column, biases[column] + sums[i])
        };
        assert_same(&(round, conv), &epilogue, pixels * conv.out_c, expected, |engine, out| {
            conv_transpose2d_u8(engine, &conv, zero, &input, &packed, out, &epilogue.epilogue()).unwrap();
        });
    }
}

#[test]
fn elementwise_u8_matches_reference() {
    let mut rng = Rng(11);
    for (rows, columns) in [(1, 5), (7, 40), (33, 16), (3, 700), (1, 5000)] {
        let (a, b) = (bytes(&mut rng, rows * columns), bytes(&mut rng, columns));
        let [from_a, from_b, to] = [(); 3].map(|()| affine(&mut rng));
        let widen = |bytes: &[u8], affine: Affine| -> Vec<f32> {
            bytes.iter().map(|byte| (f32::from(*byte) - f32::from(affine.zero_point)) * affine.scale).collect()
        };
        let (wide_a, wide_b) = (widen(&a, from_a), widen(&b, from_b));
        let program = [
            Instruction::Binary { to: 1, function: Binary::Mul, a: Operand::Tensor(0), b: Operand::Tensor(1) },
            Instruction::Activate { to: 2, activation: Activation::HardSwish, x: Operand::Register(1) },
            Instruction::Binary { to: 0, function: Binary::Add, a: Operand::Register(2), b: Operand::Tensor(0) },
        ];
        let dims = [rows, columns];
        let mut strides = [[0; MAX_DIMS]; 2];
        strides[0][..2].copy_from_slice(&[columns, 1]);
        strides[1][1] = 1;
        fn sources<'d>([a, b]: [Data<'d>; 2], [of_a, of_b]: [[usize; MAX_DIMS]; 2]) -> [Source<'d>; 2] {
            [Source { data: a, strides: of_a }, Source { data: b, strides: of_b }]
        }
        for engine in engines() {
            let (mut expected, mut floats, mut got) =
                (vec![0.0; rows * columns], vec![7.0; rows * columns], vec![7; rows * columns]);
            let of_bytes = [Data::Bytes(&a, from_a), Data::Bytes(&b, from_b)];
            let of_floats = [Data::from(&*wide_a), Data::from(&*wide_b)];
            elementwise(&engine, &program, &dims, &sources(of_floats, strides), &mut expected).unwrap();
            elementwise(&engine, &program, &dims, &sources(of_bytes, strides), &mut floats).unwrap();
            assert_eq!(floats, expected, "{engine:?}");
            elementwise(&engine, &program, &dims, &sources(of_bytes, strides), QuantOut::Bytes(&mut got, to)).unwrap();
            for (got, x) in got.iter().zip(&expected) {
                let quantized = (x * (1.0 / to.scale)).round_ties_even() + f32::from(to.zero_point);
                assert_eq!(f32::from(*got), quantized.clamp(f32::from(to.min), f32::from(to.max)), "{engine:?}");
            }
        }
    }
}

#[test]
fn max_pool_u8_and_mean_u8_match_reference() {
    let mut rng = Rng(13);
    let pool = Pool2d {
        batch: 2,
        in_h: 9,
        in_w: 8,
        channels: 37,
        out_h: 5,
        out_w: 4,
        kernel: [3, 3],
        stride: [2, 2],
        padding: [[1, 1], [1, 1]],
        dilation: [1, 1],
        kind: PoolKind::Max,
    };
    let x = bytes(&mut rng, 2 * 9 * 8 * 37);
    let wide: Vec<f32> = x.iter().map(|x| f32::from(*x)).collect();
    let (from, to) = (affine(&mut rng), affine(&mut rng));
    for engine in engines() {
        let (mut greatest, mut expected) = (vec![7; 2 * 5 * 4 * 37], vec![0.0; 2 * 5 * 4 * 37]);
        max_pool2d_u8(&engine, &pool, &x, &mut greatest).unwrap();
        pool2d(&engine, &pool, &wide, &mut expected).unwrap();
        assert_eq!(greatest.iter().map(|x| f32::from(*x)).collect::<Vec<_>>(), expected, "{engine:?}");

        let (mut floats, mut means) = (vec![0.0; 2 * 37], vec![0; 2 * 37]);
        mean_u8(&engine, [2, 72, 37], &x, from, (&mut floats).into()).unwrap();
        mean_u8(&engine, [2, 72, 37], &x, from, QuantOut::Bytes(&mut means, to)).unwrap();
        for (i, (mean, byte)) in floats.iter().zip(&means).enumerate() {
            let sum: f64 = (0..72).map(|at| f64::from(x[(i / 37 * 72 + at) * 37 + i % 37])).sum();
            let expected = (sum / 72.0 - f64::from(from.zero_point)) * f64::from(from.scale);
            assert!((f64::from(*mean) - expected).abs() < 1e-5 * expected.abs().max(1.0), "{engine:?}");
            let quantized = (mean * (1.0 / to.scale)).round_ties_even() + f32::from(to.zero_point);
            assert_eq!(f32::from(*byte), quantized.clamp(f32::from(to.min), f32::from(to.max)), "{engine:?}");
        }
    }
}

#[test]
fn avg_pool_u8_matches_reference() {
    let mut rng = Rng(19);
    for (channels, count_include_pad, divisor) in
        [(37, false, None), (16, true, None), (5, true, Some(7)), (100, false, None)]
    {
        let pool = Pool2d {
            batch: 2,
            in_h: 9,
            in_w: 8,
            channels,
            out_h: 5,
            out_w: 5,
            kernel: [3, 2],
            stride: [2, 2],
            padding: [[1, 1], [1, 0]],
            dilation: [1, 1],
            kind: PoolKind::Average(AveragePool { count_include_pad, divisor_override: divisor }),
        };
        let x = bytes(&mut rng, 2 * 9 * 8 * channels);
        let (from, to) = (affine(&mut rng), affine(&mut rng));
        let wide: Vec<f32> = x.iter().map(|x| (f32::from(*x) - f32::from(from.zero_point)) * from.scale).collect();
        for engine in engines() {
            let len = 2 * 5 * 5 * channels;
            let (mut floats, mut means, mut expected) = (vec![0.0; len], vec![0; len], vec![0.0; len]);
            pool2d(&engine, &pool, &wide, &mut expected).unwrap();
            avg_pool2d_u8(&engine, &pool, &x, from, (&mut floats).into()).unwrap();
            avg_pool2d_u8(&engine, &pool, &x, from, QuantOut::Bytes(&mut means, to)).unwrap();
            for ((mean, byte), expected) in floats.iter().zip(&means).zip(&expected) {
                assert!((mean - expected).abs() <= 1e-5 * 255.0 * from.scale, "{engine:?}: {mean}, not {expected}");
                let quantized = (mean * (1.0 / to.scale)).round_ties_even() + f32::from(to.zero_point);
                assert_eq!(f32::from(*byte), quantized.clamp(f32::from(to.min), f32::from(to.max)), "{engine:?}");
            }
        }
        let engine = Engine::new(1);
        assert!(max_pool2d_u8(&engine, &pool, &x, &mut vec![0; 2 * 5 * 5 * channels]).is_err());
        assert!(
            avg_pool2d_u8(
                &engine,
                &Pool2d { kind: PoolKind::Max, ..pool },
                &x,
                from,
                (&mut vec![0.0; 50 * channels]).into()
            )
            .is_err()
        );
    }
}

#[test]
fn copy_and_lookup_u8_match_reference() {
    let mut rng = Rng(17);
    let x = bytes(&mut rng, 3 * 40 * 50);
    let table: [u8; 256] = core::array::from_fn(|i| (i * 7 + 3) as u8);
    for engine in engines() {
        let mut y = vec![0; x.len()];
        // Planar to interleaved, with few and many planes.
        for (planes, pixels) in [(3, 2000), (40, 150)] {
            let transpose = Copy {
                sizes: &[pixels, planes],
                x_offset: 0,
                x_strides: &[1, pixels],
                y_offset: 0,
                y_strides: &[planes, 1],
            };
            copy(&engine, &transpose, &x, &mut y).unwrap();
            let expected = |i: usize| x[i % planes * pixels + i / planes];
            assert!((0..x.len()).all(|i| y[i] == expected(i)), "{engine:?}");
        }
        lookup(&engine, &table, &x, &mut y).unwrap();
        assert!(x.iter().zip(&y).all(|(x, y)| table[usize::from(*x)] == *y), "{engine:?}");
    }
}

#[test]
fn gemm_u8_with_per_row_scales_matches_reference() {
    let mut rng = Rng(19);
    let shapes = [
        (1, 40, 64),
        (3, 16, 32),
        (29, 33, 96),
        (17, 70, 160),
        (7, 5, 128),
        // Several tiles and blocks of AMX, without and with zero points.
        (270, 17, 64),
        (20, 16, 1088),
        (48, 20, 1152),
    ];
    for ((m, n, k), is_four_bits) in shapes.into_iter().flat_map(|shape| [(shape, true), (shape, false)]) {
        let x: Vec<f32> = rng.vector(m * k).iter().enumerate().map(|(i, x)| x * (1.0 + (i / k) as f32)).collect();
        let (levels, min) = if is_four_bits { (16, -8) } else { (256, -128) };
        let integer = |at: usize| (min + at as i32 % levels) as i8;
        let integers: Vec<i8> = (0..k * n).map(|_| integer(rng.below(256))).collect();
        let (scales, bias) = (rng.vector(k / pack::GROUP_SIZE * n), rng.vector(n));
        // Representable in f16.
        let group_scale = |group: usize, column: usize| {
            (8.0 + (scales[group * n + column].abs() * 100.0).floor()) / (64 * levels) as f32
        };
        let column_scale = |column: usize| group_scale(0, column);
        let has_zeros = m % 3 != 0;
        let group_zero = |group: usize, column: usize| if has_zeros { integer(group + 11 * column) } else { 0 };
        let has_half_scales = n % 2 == 0 && k > pack::GROUP_SIZE;
        let matrix = pack::GroupwiseMatrix { k, n, is_four_bits, has_zeros, has_half_scales };
        let mut groups = vec![9; matrix.len().unwrap()];
        let of_columns = transposed(&integers, k, n);
        let each = || (0..n).flat_map(|column| (0..k / pack::GROUP_SIZE).map(move |group| (group, column)));
        let packed_scales: Vec<f32> = each().map(|(group, column)| group_scale(group, column)).collect();
        let zeros: Vec<i8> =
            each().filter(|_| matrix.has_zeros).map(|(group, column)| group_zero(group, column)).collect();
        pack::groupwise_into(&mut groups, &matrix, &of_columns, &packed_scales, &zeros);
        let less_zero = |row: usize, column: usize| {
            f64::from(integers[row * n + column]) - f64::from(group_zero(row / pack::GROUP_SIZE, column))
        };
        let mut columns = vec![9; pack::matrix_i8_len(k, n).unwrap()];
        pack::matrix_i8_into(&mut columns, k, n, &of_columns);
        let column_sum = |column: usize| (0..k).map(|row| i32::from(integers[row * n + column])).sum::<i32>();
        let offsets: Vec<i32> = (0..n).map(column_sum).collect();
        let column_scales: Vec<f32> = (0..n).map(column_scale).collect();
        let group_sum = |column: usize| {
            let term = |row: usize| f64::from(group_scale(row / pack::GROUP_SIZE, column)) * less_zero(row, column);
            (0..k).map(term).sum::<f64>() as f32
        };
        let sums: Vec<f32> = (0..n).map(group_sum).collect();
        let shape = DynamicQuantization {
            rows: m,
            columns: k,
            rule: if k > 40 { ZeroPointRule::Inverse { half: None } } else { ZeroPointRule::MinError },
            per_tensor: m == 17,
            range: [0, 255],
        };
        let mut first: Option<(Vec<u8>, Vec<f32>, Vec<f32>)> = None;
        for engine in engines() {
            let count = if shape.per_tensor { 1 } else { m };
            let (mut chosen, mut bytes) = (vec![0.0; 3 * count], vec![0; m * k]);
            choose_qparams(&engine, &shape, &x, &mut chosen).unwrap();
            quantize_rows(&engine, &shape, &x, &chosen, &mut bytes).unwrap();
            let number = |row: usize, k_: usize| {
                let own = row % count;
                (f64::from(bytes[row * k + k_]) - f64::from(chosen[count + own])) * f64::from(chosen[own])
            };
            for (i, &x) in x.iter().enumerate() {
                let error = (number(i / k, i % k) - f64::from(x)).abs();
                assert!(error <= f64::from(chosen[i / k % count]) * 0.51, "{engine:?}: {x} is off by {error}");
            }
            let rows = RowQparams { scales: &chosen[..count], zero_points: &chosen[count..2 * count] };
            let (mut by_groups, mut by_columns) = (vec![0.0; m * n], vec![0.0; m * n]);
            let epilogue = GroupwiseEpilogue { rows, sums: &sums, bias: Some(&bias), activation: Activation::RELU };
            gemm_u8_groupwise(&engine, m, &bytes, (matrix, &groups), &mut by_groups, &epilogue).unwrap();
            let epilogue = QuantEpilogue {
                offsets: &offsets,
                scales: &column_scales,
                rows: Some(rows),
                bias: Some(&bias),
                inner: None,
                residual: None,
                activation: Activation::None,
            };
            gemm_u8(&engine, &Gemm::new(m, n, k), &bytes, &columns, (&mut by_columns).into(), &epilogue).unwrap();
            for i in 0..m * n {
                let (row, column) = (i / n, i % n);
                let product = |weight: &dyn Fn(usize) -> f64| {
                    (0..k).map(|at| number(row, at) * weight(at)).sum::<f64>() + f64::from(bias[column])
                };
                // The zero point of the row is subtracted from the byte sums in f32.
                let parts = |weight: &dyn Fn(usize) -> f64| {
                    let zero = f64::from(chosen[count + row % count]);
                    let part = |at: usize| (f64::from(bytes[row * k + at]) + zero) * weight(at).abs();
                    (0..k).map(part).sum::<f64>() * f64::from(chosen[row % count])
                };
                let in_group =
                    |at: usize| f64::from(group_scale(at / pack::GROUP_SIZE, column)) * less_zero(at, column);
                let in_column = |at: usize| f64::from(column_scale(column)) * f64::from(integers[at * n + column]);
                for (got, expected, parts) in [
                    (by_groups[i], product(&in_group).max(0.0), parts(&in_group)),
                    (by_columns[i], product(&in_column), parts(&in_column)),
                ] {
                    let error = (f64::from(got) - expected).abs();
                    let bound = f64::from(f32::EPSILON) * (parts + expected.abs());
                    assert!(error <= bound, "{engine:?} {matrix:?} {m}: {got} is not {expected}");
                }
            }
            let got = (bytes, by_groups, by_columns);
            let same = first.as_ref().is_none_or(|first| *first == got);
            assert!(same, "{engine:?} {matrix:?} {m} differs from portable code");
            first = Some(got);
        }
    }
}

/// Asserts that bytes are the nearest to the exact values, and the same on every engine.
fn assert_nearest(what: &dyn std::fmt::Debug, to: Affine, expected: &[f64], run: impl Fn(&Engine, &mut [u8])) {
    let mut first: Option<Vec<u8>> = None;
    for engine in engines() {
        let mut got = vec![7; expected.len()];
        run(&engine, &mut got);
        for (i, (got, exact)) in got.iter().zip(expected).enumerate() {
            let quantized = exact / f64::from(to.scale) + f64::from(to.zero_point);
            let error = (f64::from(*got) - quantized.clamp(f64::from(to.min), f64::from(to.max))).abs();
            assert!(error <= 0.501, "{engine:?} {what:?} {to:?}, element {i}: {got}, not {quantized}");
        }
        assert!(first.as_ref().is_none_or(|first| *first == got), "{engine:?} {what:?} differs from portable code");
        first = Some(got);
    }
}

#[test]
fn resize_u8_matches_reference() {
    let mut rng = Rng(23);
    for _ in 0..60 {
        let what = random_resize(&mut rng);
        let from = affine(&mut rng);
        let to = if what.mode == ResizeMode::Nearest { Affine { min: 0, max: 255, ..from } } else { affine(&mut rng) };
        let x = bytes(&mut rng, what.batch * what.in_h * what.in_w * what.channels);
        let number = |at: usize| (f64::from(x[at]) - f64::from(from.zero_point)) * f64::from(from.scale);
        let exact = |i: usize| {
            let (pixel, channel) = (i / what.channels, i % what.channels);
            let (image, y, out_x) =
                (pixel / what.out_w / what.out_h, pixel / what.out_w % what.out_h, pixel % what.out_w);
            let mut sum = 0.0;
            for (in_y, wy) in sources(&what, 0, y) {
                for (in_x, wx) in sources(&what, 1, out_x) {
                    let pixel = (image * what.in_h + in_y) * what.in_w + in_x;
                    sum += wy * wx * number(pixel * what.channels + channel);
                }
            }
            sum
        };
        let elements = what.batch * what.out_h * what.out_w * what.channels;
        let expected: Vec<f64> = (0..elements).map(exact).collect();
        assert_nearest(&what, to, &expected, |engine, y| resize_u8(engine, &what, &x, from, y, to).unwrap());
    }
}

#[test]
fn softmax_u8_matches_reference() {
    let mut rng = Rng(29);
    for (rows, columns) in [(1, 1), (5, 3), (7, 16), (33, 17), (40, 21), (3, 700), (1, 20_000)] {
        let from = affine(&mut rng);
        let to = Affine { scale: rng.one_of(&[1.0 / 256.0, 0.01, 1e-4]), ..affine(&mut rng) };
        let x = bytes(&mut rng, rows * columns);
        let expected: Vec<f64> = x
            .chunks(columns)
            .flat_map(|row| {
                let greatest = row.iter().copied().max().unwrap_or_default();
                let exponential = move |x: &u8| ((f64::from(*x) - f64::from(greatest)) * f64::from(from.scale)).exp();
                let sum: f64 = row.iter().map(exponential).sum();
                row.iter().map(move |x| exponential(x) / sum)
            })
            .collect();
        let table = SoftmaxTable::new(from);
        assert_nearest(&(rows, columns, from), to, &expected, |engine, y| {
            softmax_u8(engine, rows, columns, &table, &x, y, to).unwrap();
        });
    }
}

#[test]
fn convolutions_refuse_per_row_scales() {
    let conv = Conv2d::new([1, 2, 2, 4], 1, [1, 1]);
    let epilogue = QuantEpilogue {
        offsets: &[0],
        scales: &[1.0],
        rows: Some(RowQparams { scales: &[1.0; 4], zero_points: &[0.0; 4] }),
        bias: None,
        inner: None,
        residual: None,
        activation: Activation::None,
    };
    let mut out = vec![0.0; 4];
    let error = conv2d_u8(&Engine::new(1), &conv, 0, &[0; 16], &[0; 64], (&mut out).into(), &epilogue);
    assert_eq!(error, Err(Error::Mismatch { what: "scales of a convolution's input", expected: 1, got: 4 }));
}

fn scaled_by_one(offsets: &[i32]) -> QuantEpilogue<'_> {
    let (scales, activation) = (&[1.0; 16], Activation::None);
    QuantEpilogue { offsets, scales, rows: None, bias: None, inner: None, residual: None, activation }
}

/// Sums of the largest and smallest products, which instruction sets add in narrower integers.
#[test]
fn sums_of_extreme_products_are_exact() {
    let (m, n, k) = (13, 16, 48);
    for (byte, weight) in [0, 255].into_iter().flat_map(|byte| [-128, -127, 127].map(|weight| (byte, weight))) {
        // An offset that brings the sums into the range of the results.
        let expect = |count: i32| (vec![1000 - i32::from(byte) * i32::from(weight) * count; 16], 1000.0);
        let mut packed = vec![0; pack::matrix_i8_len(k, n).unwrap()];
        pack::matrix_i8_into(&mut packed, k, n, &vec![weight; k * n]);
        let conv = Conv2d { groups: n, ..Conv2d::new([1, 7, 9, n], n, [3, 3]) };
        let mut taps = vec![0; pack::depthwise2d_i8_len(&conv).unwrap()];
        pack::depthwise2d_i8_into(&mut taps, &conv, |_, _, _| weight);
        for engine in engines() {
            let (offsets, expected) = expect(k as i32);
            let mut c = vec![0.0; m * n];
            let a = vec![byte; m * k];
            gemm_u8(&engine, &Gemm::new(m, n, k), &a, &packed, QuantOut::Floats(&mut c), &scaled_by_one(&offsets))
                .unwrap();
            assert_eq!(c, vec![expected; m * n], "{engine:?}: {byte} x {weight}");
            let (offsets, expected) = expect(9);
            let mut y = vec![0.0; 5 * 7 * n];
            let x = vec![byte; 7 * 9 * n];
            depthwise2d_u8(&engine, &conv, 0, &x, &taps, QuantOut::Floats(&mut y), &scaled_by_one(&offsets)).unwrap();
            assert_eq!(y, vec![expected; 5 * 7 * n], "{engine:?}: {byte} x {weight}");
        }
    }
}

/// The largest bytes times the smallest integers, whose sums are the largest that an i16 of `Simd::dot_u8i4` has to hold.
#[test]
fn groups_of_extreme_products_do_not_saturate() {
    let (m, k, n) = (5, 2 * pack::GROUP_SIZE, 19);
    let bytes = vec![255; m * k];
    let epilogue = GroupwiseEpilogue {
        rows: RowQparams { scales: &[1.0; 5], zero_points: &[0.0; 5] },
        sums: &[0.0; 19],
        bias: None,
        activation: Activation::None,
    };
    for integer in [-8, 7] {
        let matrix = pack::GroupwiseMatrix { k, n, is_four_bits: true, has_zeros: false, has_half_scales: false };
        let mut packed = vec![0; matrix.len().unwrap()];
        pack::groupwise_into(&mut packed, &matrix, &vec![integer; k * n], &vec![1.0; k / pack::GROUP_SIZE * n], &[]);
        for engine in engines() {
            let mut c = vec![f32::NAN; m * n];
            gemm_u8_groupwise(&engine, m, &bytes, (matrix, &packed), &mut c, &epilogue).unwrap();
            let expected = 255.0 * f32::from(integer) * k as f32;
            assert!(c.iter().all(|x| *x == expected), "{engine:?}: expected {expected}, got {c:?}");
        }
    }
}
