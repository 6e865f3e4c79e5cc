//! Runs kernels between marks, for a plugin of QEMU that counts their instructions.
//!
//! `kernel_counts` runs each kernel twice: the second time between two writes to standard error, the first of which is its name.
//! `kernel_counts NAME COUNT` runs one kernel without marks, for a profile. `cargo xtask test aarch64` compares the counts with
//! `xtask/kernel_counts.txt`. The shapes are those of layers of MobileNetV2 and V3, ResNet18, ViT and Llama, some with fewer rows.

use std::io::Write;

use rushlight_engine::pack::{self, Bits, GroupNumbers, GroupwiseMatrix, Offsets, QuantizedGroups, QuantizedMatrix};
use rushlight_engine::{
    Activation, Affine, Attention, AttentionInputs, Conv2d, Data, Engine, Epilogue, Gemm, GroupwiseEpilogue, Half,
    Instruction, MAX_DIMS, Normalization, Operand, QuantEpilogue, QuantOut, QuantResidual, QuantizedWeights,
    RowQparams, Source, Strides, Unary, Weights, attention, attention_scratch, conv2d, conv2d_u8, depthwise2d,
    depthwise2d_u8, elementwise, gemm, gemm_u8, gemm_u8_groupwise, normalize, softmax,
};

/// A kernel with its operands.
type Kernel = Box<dyn FnMut(&Engine)>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let engine = Engine::new(1);
    if let [name, count] = arguments.as_slice() {
        let (_, mut kernel) = kernels().find(|(known, _)| known == name).expect("the name of a kernel");
        (0..count.parse().expect("a number")).for_each(|_: u32| kernel(&engine));
        return;
    }
    for (name, mut kernel) in kernels() {
        kernel(&engine);
        mark(&name);
        kernel(&engine);
        mark("\n");
    }
}

/// Writes without a buffer.
fn mark(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).expect("standard error is open");
}

fn kernels() -> impl Iterator<Item = (String, Kernel)> {
    let f32_gemm = [(49, 160, 96), (49, 16, 576), (197, 64, 768)].map(|shape| of_shape("gemm f32", shape, gemm_f32));
    let halves = [("gemm f16", Half::F16), ("gemm bf16", Half::Bf16)]
        .into_iter()
        .flat_map(|(name, half)| [1, 32].map(|m| of_shape(name, (m, 64, 512), move |s| gemm_half(s, half))));
    let int8 = [(784, 16, 96), (196, 64, 384), (49, 16, 960), (12, 64, 24)].into_iter().flat_map(|shape| {
        EPILOGUES.map(|(name, of)| of_shape(&format!("gemm int8 {name}"), shape, move |s| gemm_int8(s, of)))
    });
    let depthwise = [([28, 28, 48], 3, 1), ([14, 14, 96], 3, 1), ([7, 7, 96], 3, 1), ([28, 28, 48], 3, 2)]
        .into_iter()
        .chain([([14, 14, 72], 5, 1), ([7, 7, 96], 5, 1), ([14, 14, 120], 5, 2)])
        .flat_map(|conv| {
            [of_conv("depthwise f32", conv, depthwise_f32), of_conv("depthwise int8", conv, depthwise_int8)]
        });
    let convolutions = [("conv f32", true), ("conv int8", false)].into_iter().flat_map(|(name, is_f32)| {
        [([32, 32, 3], 32, 2), ([14, 14, 64], 16, 1), ([7, 7, 512], 16, 1)].map(|(input @ [h, w, c], out, stride)| {
            let conv = Conv2d { stride: [stride; 2], padding: [[1; 2]; 2], ..Conv2d::new([1, h, w, c], out, [3, 3]) };
            (format!("{name} {input:?} to {out}, 3, {stride}"), if is_f32 { conv_f32(conv) } else { conv_int8(conv) })
        })
    });
    let groups = [1, 32].into_iter().flat_map(|m| {
        [true, false].map(|is_four_bits| {
            let name = if is_four_bits { "groups of 4 bits" } else { "groups of 8 bits" };
            of_shape(name, (m, 64, 512), move |shape| gemm_groups(shape, is_four_bits))
        })
    });
    let quantized = [1, 32].into_iter().flat_map(|m| {
        [Bits::Four, Bits::Six, Bits::Eight]
            .map(|bits| of_shape(&format!("weights of {bits:?} bits"), (m, 64, 512), move |s| gemm_quantized(s, bits)))
    });
    let others = [
        ("softmax f32 [64, 197]".to_owned(), softmax_f32(64, 197)),
        ("layer norm f32 [49, 768]".to_owned(), layer_norm(49, 768)),
        ("gelu f32 [10000]".to_owned(), gelu(10_000)),
        ("sigmoid f32 [10000]".to_owned(), unary(10_000, Unary::Sigmoid)),
        ("attention f32 [2, 64, 64]".to_owned(), attention_f32(2, 64, 64)),
    ];
    let gemms = f32_gemm.into_iter().chain(halves).chain(int8).chain(groups).chain(quantized);
    gemms.chain(depthwise).chain(convolutions).chain(others)
}

type Shape = (usize, usize, usize);

fn of_shape(name: &str, shape: Shape, kernel: impl FnOnce(Shape) -> Kernel) -> (String, Kernel) {
    let (m, n, k) = shape;
    (format!("{name} {m} x {n} x {k}"), kernel(shape))
}

fn of_conv(
    name: &str,
    (input, size, stride): ([usize; 3], usize, usize),
    kernel: fn(Conv2d) -> Kernel,
) -> (String, Kernel) {
    let [h, w, c] = input;
    let (stride_of, padding) = ([stride; 2], [[size / 2; 2]; 2]);
    let conv = Conv2d { stride: stride_of, padding, groups: c, ..Conv2d::new([1, h, w, c], c, [size; 2]) };
    (format!("{name} {input:?}, {size}, {stride}"), kernel(conv))
}

/// Numbers in -1..1.
fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at * 37 % 251) as f32 / 126.0 - 1.0).collect()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 37 % 251) as u8).collect()
}

/// Weights, none of which is -128.
fn weights(count: usize) -> Vec<i8> {
    (0..count).map(|at| ((at * 37 % 251) as i32 - 125) as i8).collect()
}

fn clamped<'a>(bias: &'a [f32]) -> Epilogue<'a> {
    Epilogue { bias: Some(bias), activation: Activation::RELU6, ..Epilogue::default() }
}

fn gemm_f32((m, n, k): Shape) -> Kernel {
    let packed = pack::matrix_f32(k, n, |row, column| (row * n + column) as f32);
    let (a, bias, mut c) = (floats(m * k), floats(n), vec![0.0; m * n]);
    Box::new(move |engine| gemm(engine, &Gemm::new(m, n, k), &a, &packed, &mut c, &clamped(&bias)).expect("a GEMM"))
}

fn gemm_half((m, n, k): Shape, half: Half) -> Kernel {
    let packed = pack::matrix_f32(k, n, |row, column| (row * n + column) as f32);
    let mut narrow = vec![0; packed.len()];
    pack::narrow(half, &packed, &mut narrow);
    let (a, bias, mut c) = (floats(m * k), floats(n), vec![0.0; m * n]);
    Box::new(move |engine| {
        let weights = Weights::Half(half, &narrow);
        gemm(engine, &Gemm::new(m, n, k), &a, weights, &mut c, &clamped(&bias)).expect("a GEMM");
    })
}

/// The steps after an int8 GEMM.
#[derive(Clone, Copy)]
enum After {
    Clamp,
    Residual,
    HardSwish,
    /// f32 output.
    Floats,
}

const EPILOGUES: [(&str, After); 4] = [
    ("requantized", After::Clamp),
    ("+ residual", After::Residual),
    ("hard-swish", After::HardSwish),
    ("to f32", After::Floats),
];

const AFFINE: Affine = Affine { scale: 0.05, zero_point: 120, min: 0, max: 255 };

fn gemm_int8((m, n, k): Shape, after: After) -> Kernel {
    let mut packed = vec![0; pack::matrix_i8_len(k, n).expect("a size")];
    pack::matrix_i8_into(&mut packed, k, n, &weights(k * n));
    let (a, residual, offsets, scales) = (bytes(m * k), bytes(m * n), vec![5; n], vec![1e-4; n]);
    let (mut c, mut floats) = (vec![0; m * n], vec![0.0; m * n]);
    Box::new(move |engine| {
        let plain = epilogue(&offsets, &scales);
        let inner = Some((Activation::None, AFFINE));
        let (epilogue, out) = match after {
            After::Clamp => (plain, QuantOut::Bytes(&mut c, AFFINE)),
            After::Residual => {
                let residual = Some(QuantResidual { data: &residual, stride: n, affine: AFFINE });
                (QuantEpilogue { inner, residual, ..plain }, QuantOut::Bytes(&mut c, AFFINE))
            }
            After::HardSwish => {
                (QuantEpilogue { inner, activation: Activation::HardSwish, ..plain }, QuantOut::Bytes(&mut c, AFFINE))
            }
            After::Floats => (plain, QuantOut::Floats(&mut floats)),
        };
        gemm_u8(engine, &Gemm::new(m, n, k), &a, &packed, out, &epilogue).expect("a GEMM");
    })
}

fn epilogue<'a>(offsets: &'a [i32], scales: &'a [f32]) -> QuantEpilogue<'a> {
    let activation = Activation::None;
    QuantEpilogue { offsets, scales, rows: None, bias: None, inner: None, residual: None, activation }
}

fn depthwise_f32(conv: Conv2d) -> Kernel {
    let packed = pack::depthwise2d_f32(conv.in_c, conv.kernel, |c, h, w| (c + h + w) as f32);
    let (input, bias) = (floats(conv.in_h * conv.in_w * conv.in_c), floats(conv.in_c));
    let mut out = vec![0.0; conv.out_h() * conv.out_w() * conv.in_c];
    Box::new(move |engine| {
        depthwise2d(engine, &conv, &input, &packed, &mut out, &clamped(&bias)).expect("a convolution");
    })
}

fn depthwise_int8(conv: Conv2d) -> Kernel {
    let mut packed = vec![0; pack::depthwise2d_i8_len(&conv).expect("a size")];
    let all = weights(conv.in_c * conv.kernel[0] * conv.kernel[1]);
    pack::depthwise2d_i8_into(&mut packed, &conv, |c, h, w| all[(c * conv.kernel[0] + h) * conv.kernel[1] + w]);
    let (input, offsets, scales) =
        (bytes(conv.in_h * conv.in_w * conv.in_c), vec![5; conv.in_c], vec![1e-4; conv.in_c]);
    let mut out = vec![0; conv.out_h() * conv.out_w() * conv.in_c];
    Box::new(move |engine| {
        let out = QuantOut::Bytes(&mut out, AFFINE);
        depthwise2d_u8(engine, &conv, 7, &input, &packed, out, &epilogue(&offsets, &scales)).expect("a convolution");
    })
}

fn conv_f32(conv: Conv2d) -> Kernel {
    let packed = pack::conv2d_f32(&conv, |o, i, h, w| (o + i + h + w) as f32);
    let (input, bias) = (floats(conv.in_h * conv.in_w * conv.in_c), floats(conv.out_c));
    let mut out = vec![0.0; conv.out_h() * conv.out_w() * conv.out_c];
    Box::new(move |engine| conv2d(engine, &conv, &input, &packed, &mut out, &clamped(&bias)).expect("a convolution"))
}

fn conv_int8(conv: Conv2d) -> Kernel {
    let mut packed = vec![0; pack::conv2d_i8_len(&conv).expect("a size")];
    pack::conv2d_i8_into(&mut packed, &conv, |o, i, h, w| ((o + i * 37 + h + w) % 251) as u8 as i8 | 1);
    let (input, offsets) = (bytes(conv.in_h * conv.in_w * conv.in_c), vec![5; conv.out_c]);
    let (scales, mut out) = (vec![1e-4; conv.out_c], vec![0; conv.out_h() * conv.out_w() * conv.out_c]);
    Box::new(move |engine| {
        let out = QuantOut::Bytes(&mut out, AFFINE);
        conv2d_u8(engine, &conv, 7, &input, &packed, out, &epilogue(&offsets, &scales)).expect("a convolution");
    })
}

fn gemm_groups((m, n, k): Shape, is_four_bits: bool) -> Kernel {
    let matrix = GroupwiseMatrix { k, n, is_four_bits, has_zeros: false, has_half_scales: true };
    let integers: Vec<i8> = weights(k * n).into_iter().map(|x| if is_four_bits { x / 16 } else { x }).collect();
    let mut packed = vec![0; matrix.len().expect("a size")];
    pack::groupwise_into(&mut packed, &matrix, &integers, &vec![0.01; k / pack::GROUP_SIZE * n], &[]);
    let (a, sums, mut c) = (bytes(m * k), vec![0.5; n], vec![0.0; m * n]);
    let (scales, zero_points) = (vec![0.01; m], vec![120.0; m]);
    Box::new(move |engine| {
        let rows = RowQparams { scales: &scales, zero_points: &zero_points };
        let epilogue = GroupwiseEpilogue { rows, sums: &sums, bias: None, activation: Activation::None };
        gemm_u8_groupwise(engine, m, &a, (matrix, &packed), &mut c, &epilogue).expect("a GEMM");
    })
}

fn gemm_quantized((m, n, k): Shape, bits: Bits) -> Kernel {
    let scales = pack::ScaleFormat::F16;
    let matrix = QuantizedMatrix { k, n, bits, offsets: Offsets::None, scales, group: 32 };
    let integers: Vec<i8> = weights(k * n).into_iter().map(|x| x / 16).collect();
    let mut packed = vec![0; pack::quantized_len(&matrix).expect("a size")];
    let numbers = vec![0.01; k / 32 * n];
    let groups = QuantizedGroups { scales: GroupNumbers::Each(&numbers), zeros: &[], minima: GroupNumbers::Each(&[]) };
    pack::quantized(&mut packed, &matrix, &integers, &groups);
    let (a, bias, mut c) = (floats(m * k), floats(n), vec![0.0; m * n]);
    Box::new(move |engine| {
        let weights = Weights::Quantized(QuantizedWeights::new(&packed, &matrix).expect("packed weights"));
        gemm(engine, &Gemm::new(m, n, k), &a, weights, &mut c, &clamped(&bias)).expect("a GEMM");
    })
}

fn softmax_f32(rows: usize, columns: usize) -> Kernel {
    let (x, mut y) = (floats(rows * columns), vec![0.0; rows * columns]);
    Box::new(move |engine| softmax(engine, rows, columns, false, &x, &mut y).expect("a softmax"))
}

fn layer_norm(rows: usize, columns: usize) -> Kernel {
    let (x, weight, mut y) = (floats(rows * columns), floats(columns), vec![0.0; rows * columns]);
    let shape = Normalization { rows, columns, eps: 1e-6, centered: true };
    Box::new(move |engine| normalize(engine, &shape, &x, Some(&weight), Some(&weight), &mut y).expect("a layer norm"))
}

fn gelu(count: usize) -> Kernel {
    let program = [Instruction::Activate { to: 0, activation: Activation::GeluErf, x: Operand::Tensor(0) }];
    chain(count, program)
}

fn unary(count: usize, function: Unary) -> Kernel {
    chain(count, [Instruction::Unary { to: 0, function, x: Operand::Tensor(0) }])
}

fn chain(count: usize, program: [Instruction; 1]) -> Kernel {
    let (x, mut y) = (floats(count), vec![0.0; count]);
    let mut strides = [0; MAX_DIMS];
    strides[0] = 1;
    Box::new(move |engine| {
        let source = Source { data: Data::Floats(&x), strides };
        elementwise(engine, &program, &[count], &[source], &mut y).expect("a chain");
    })
}

fn attention_f32(heads: usize, rows: usize, depth: usize) -> Kernel {
    let strides = Strides { batch: heads * rows * depth, head: rows * depth, row: depth };
    let [q, k, v, y] = [strides; 4];
    let (value_depth, keys, kv_heads, scale) = (depth, rows, heads, 0.125);
    let shape = Attention {
        batch: 1,
        heads,
        kv_heads,
        rows,
        keys,
        depth,
        value_depth,
        scale,
        causal: None,
        q,
        k,
        v,
        y,
        mask: None,
    };
    let (x, mut out) = (floats(heads * rows * depth), vec![0.0; heads * rows * depth]);
    let mut scratch = vec![0.0; attention_scratch(&Engine::new(1), &shape)];
    Box::new(move |engine| {
        let inputs = AttentionInputs::new(&x, &x, &x);
        attention(engine, &shape, inputs, &mut out, &mut scratch).expect("attention");
    })
}
