//! Compute-bound kernels: GEMM, convolution and attention.

use super::{Bench, Case, Variant, test_values};
use crate::{
    Activation, Attention, AttentionInputs, Conv2d, Epilogue, Error, Gemm, Half, Strides, Weights, Winograd,
    WinogradWeights, attention, attention_scratch, conv2d, conv2d_winograd, conv2d_winograd_scratch, depthwise2d, gemm,
    pack,
};

const RELU: Epilogue = Epilogue { bias: None, residual: None, residual_first: false, activation: Activation::RELU };

/// Times all cases.
pub(super) fn time(bench: &mut Bench<'_>) -> Result<(), Error> {
    for half in [None, Some(Half::Bf16)] {
        for &(typical, model, sizes) in GEMMS {
            time_gemm(bench, half, typical, model, sizes)?;
        }
    }
    for &(typical, model, size, channels, kernel, stride) in CONVOLUTIONS {
        time_convolution(bench, typical, model, &dense(size, channels, kernel, stride))?;
    }
    for &(typical, model, size, channels, kernel, stride) in DEPTHWISE {
        let conv = Conv2d { groups: channels, ..dense(size, [channels; 2], kernel, stride) };
        time_depthwise(bench, typical, model, conv)?;
    }
    for &(model, batch, heads, rows, keys, depth, causal) in ATTENTIONS {
        time_attention(bench, model, [batch, heads, rows, keys, depth], causal)?;
    }
    Ok(())
}

/// GEMMs: true if typical, model, and [m, n, k], where m are pixels or tokens and n outputs.
const GEMMS: &[(bool, &str, [usize; 3])] = &[
    (true, "classifier", [1, 1000, 2048]),
    (false, "token", [1, 4096, 4096]),
    (false, "4 tokens", [4, 4096, 1024]),
    (false, "16 tokens", [16, 4096, 1024]),
    (true, "small", [32, 64, 64]),
    (false, "square", [256, 256, 256]),
    (true, "large", [512, 512, 512]),
    (false, "larger", [1024, 1024, 1024]),
    (true, "ViT-B project", [197, 768, 768]),
    (false, "ViT-B qkv", [197, 2304, 768]),
    (false, "ViT-B mlp", [197, 3072, 768]),
    (false, "ViT-B mlp", [197, 768, 3072]),
];

/// Convolutions: true if typical, model, image size, input and output channels, kernel and stride.
const CONVOLUTIONS: &[(bool, &str, usize, [usize; 2], usize, usize)] = &[
    (true, "ResNet50", 14, [1024, 256], 1, 1),
    (false, "ResNet50", 56, [256, 64], 1, 1),
    (false, "ResNet50", 56, [64, 256], 1, 1),
    (false, "ResNet50", 28, [128, 512], 1, 1),
    (false, "ResNet50", 28, [512, 128], 1, 1),
    (false, "ResNet50", 14, [256, 1024], 1, 1),
    (false, "ResNet50", 7, [512, 2048], 1, 1),
    (false, "ResNet50", 7, [2048, 512], 1, 1),
    (false, "ResNet50", 56, [256, 512], 1, 2),
    (false, "MobileNetV2", 112, [32, 16], 1, 1),
    (false, "MobileNetV2", 112, [16, 96], 1, 1),
    (false, "MobileNetV2", 56, [96, 24], 1, 1),
    (false, "MobileNetV2", 56, [24, 144], 1, 1),
    (false, "MobileNetV2", 28, [192, 32], 1, 1),
    (true, "MobileNetV2", 14, [64, 384], 1, 1),
    (false, "MobileNetV2", 14, [576, 96], 1, 1),
    (false, "MobileNetV2", 7, [160, 960], 1, 1),
    (false, "MobileNetV2", 7, [320, 1280], 1, 1),
    (true, "ResNet", 56, [64, 64], 3, 1),
    (false, "ResNet", 28, [128, 128], 3, 1),
    (true, "ResNet", 14, [256, 256], 3, 1),
    (false, "ResNet", 7, [512, 512], 3, 1),
    (false, "few channels", 56, [16, 16], 3, 1),
    (false, "ResNet", 56, [128, 128], 3, 2),
    (false, "ResNet, first", 224, [3, 64], 7, 2),
    (false, "MobileNetV2, first", 224, [3, 32], 3, 2),
    (false, "MobileNetV3, first", 224, [3, 16], 3, 2),
    (false, "ViT-B, first", 224, [3, 768], 16, 16),
];

/// Depthwise convolutions: true if typical, model, image size, channels, kernel and stride.
const DEPTHWISE: &[(bool, &str, usize, usize, usize, usize)] = &[
    (false, "MobileNetV2", 112, 32, 3, 1),
    (false, "MobileNetV2", 112, 96, 3, 2),
    (true, "MobileNetV2", 56, 144, 3, 1),
    (false, "MobileNetV2", 28, 192, 3, 1),
    (false, "MobileNetV2", 28, 192, 3, 2),
    (false, "MobileNetV2", 14, 384, 3, 1),
    (false, "MobileNetV2", 14, 576, 3, 2),
    (false, "MobileNetV2", 7, 960, 3, 1),
    (true, "MobileNetV3", 28, 120, 5, 1),
    (false, "MobileNetV3", 56, 72, 5, 2),
    (false, "MobileNetV3", 7, 960, 5, 1),
    (false, "ConvNeXt", 56, 96, 7, 1),
];

/// Attention: model, batch, heads, rows, keys, depth, and true if causal.
const ATTENTIONS: &[(&str, usize, usize, usize, usize, usize, bool)] = &[
    ("ViT-B", 1, 12, 197, 197, 64, false),
    ("Swin-T, 64 windows", 64, 3, 49, 49, 32, false),
    ("Swin-T, 1 window", 1, 24, 49, 49, 32, false),
    ("causal", 1, 8, 1024, 1024, 64, true),
    ("token", 1, 8, 1, 1024, 64, false),
];

/// Times a GEMM with f32 weights, or with weights of a 16-bit format.
fn time_gemm(
    bench: &mut Bench<'_>,
    half: Option<Half>,
    typical: bool,
    model: &str,
    [m, n, k]: [usize; 3],
) -> Result<(), Error> {
    let (kernel, width) = match half {
        None => ("gemm", 4.0),
        Some(Half::F16) => ("gemm f16", 2.0),
        Some(Half::Bf16) => ("gemm bf16", 2.0),
    };
    let shape = format!("{m}x{n}x{k} {model}");
    let bytes = 4.0 * (m * k + m * n) as f64 + width * (k * n) as f64;
    bench.time(&Case { kernel, shape, typical, flops: (2 * m * n * k) as f64, bytes }, || {
        let (a, b, mut c) = (test_values(m * k), test_values(k * n), vec![0.0; m * n]);
        let packed = pack::matrix_f32(k, n, |k, j| b[k * n + j]);
        let narrow = half.map(|half| {
            let mut narrow = vec![0; packed.len()];
            pack::narrow(half, &packed, &mut narrow);
            (half, narrow)
        });
        vec![Variant::only(move |engine| {
            let weights = narrow.as_ref().map_or((&packed).into(), |(half, narrow)| Weights::Half(*half, narrow));
            gemm(engine, &Gemm::new(m, n, k), &a, weights, &mut c, &RELU)
        })]
    })
}

/// A convolution of a square image, with padding that keeps its size up to the stride. Patch embeddings are not padded.
fn dense(size: usize, [in_c, out_c]: [usize; 2], kernel: usize, stride: usize) -> Conv2d {
    let padding = if kernel == stride { 0 } else { kernel / 2 };
    Conv2d { stride: [stride; 2], padding: [[padding; 2]; 2], ..Conv2d::new([1, size, size, in_c], out_c, [kernel; 2]) }
}

/// Describes a convolution.
fn case(kernel: &'static str, typical: bool, model: &str, conv: &Conv2d) -> Case {
    let [size, _] = conv.kernel;
    let stride = if conv.stride == [1; 2] { String::new() } else { format!("/{}", conv.stride[0]) };
    let channels = if conv.groups == 1 { format!("{}->{}", conv.in_c, conv.out_c) } else { conv.in_c.to_string() };
    let shape = format!("{size}x{size}{stride} {channels} {}x{} {model}", conv.in_h, conv.in_w);
    let outputs = conv.out_h() * conv.out_w() * conv.out_c;
    let each = conv.in_c / conv.groups * size * size;
    let floats = conv.in_h * conv.in_w * conv.in_c + conv.out_c * each + outputs;
    Case { kernel, shape, typical, flops: (2 * outputs * each) as f64, bytes: 4.0 * floats as f64 }
}

/// Allocates the input and output of a convolution.
fn images(conv: &Conv2d) -> (Vec<f32>, Vec<f32>) {
    (test_values(conv.in_h * conv.in_w * conv.in_c), vec![0.0; conv.out_h() * conv.out_w() * conv.out_c])
}

fn weight(o: usize, i: usize, h: usize, w: usize) -> f32 {
    (o * 31 + i * 17 + h * 5 + w) as f32 % 7.0 - 3.0
}

fn time_convolution(bench: &mut Bench<'_>, typical: bool, model: &str, conv: &Conv2d) -> Result<(), Error> {
    let conv = *conv;
    bench.time(&case("convolution", typical, model, &conv), || {
        let (input, mut out) = images(&conv);
        let packed = pack::conv2d_f32(&conv, weight);
        let direct = move |engine: &_| conv2d(engine, &conv, &input, &packed, &mut out, &RELU);
        if !Winograd::supports(&conv) {
            return vec![Variant::only(direct)];
        }
        let choice = Winograd::choose(&conv);
        let mut variants = vec![Variant { name: "direct", chosen: choice.is_none(), run: Box::new(direct) }];
        for (name, form) in [("Winograd 2x2", Winograd::F2), ("Winograd 4x4", Winograd::F4)] {
            let (input, mut out) = images(&conv);
            let packed = pack::winograd_f32(form, &conv, weight);
            let mut scratch = Vec::new();
            let run = move |engine: &_| {
                let floats = conv2d_winograd_scratch(engine, form, &conv).ok_or(Error::Size { what: "scratch" })?;
                scratch.resize(floats, 0.0);
                let weights = WinogradWeights { form, packed: &packed };
                conv2d_winograd(engine, &conv, &input, weights, &mut out, &RELU, &mut scratch)
            };
            variants.push(Variant { name, chosen: choice == Some(form), run: Box::new(run) });
        }
        variants
    })
}

fn time_depthwise(bench: &mut Bench<'_>, typical: bool, model: &str, conv: Conv2d) -> Result<(), Error> {
    bench.time(&case("depthwise", typical, model, &conv), || {
        let (input, mut out) = images(&conv);
        let weights = test_values(conv.in_c * conv.kernel[0] * conv.kernel[1]);
        vec![Variant::only(move |engine| depthwise2d(engine, &conv, &input, &weights, &mut out, &RELU))]
    })
}

fn time_attention(
    bench: &mut Bench<'_>,
    model: &str,
    [batch, heads, rows, keys, depth]: [usize; 5],
    causal: bool,
) -> Result<(), Error> {
    let len = move |rows: usize| batch * rows * heads * depth;
    let part = if causal { 0.5 } else { 1.0 };
    let case = Case {
        kernel: "attention",
        shape: format!("{batch}x{heads}x{rows}x{keys}x{depth} {model}"),
        typical: false,
        flops: (4 * batch * heads * rows * keys * depth) as f64 * part,
        bytes: 4.0 * (2 * len(rows) + 2 * len(keys)) as f64,
    };
    let masked = model.starts_with("Swin");
    bench.time(&case, || {
        let strides = |rows: usize| Strides { batch: rows * heads * depth, head: depth, row: heads * depth };
        let a = Attention {
            batch,
            heads,
            kv_heads: heads,
            rows,
            keys,
            depth,
            value_depth: depth,
            scale: 0.125,
            causal: causal.then_some(0),
            q: strides(rows),
            k: strides(keys),
            v: strides(keys),
            y: strides(rows),
            mask: masked.then_some(Strides { batch: 0, head: rows * keys, row: keys }),
        };
        let (q, k, v, mut y) =
            (test_values(len(rows)), test_values(len(keys)), test_values(len(keys)), vec![0.0; len(rows)]);
        let mask = masked.then(|| test_values(heads * rows * keys));
        let mut scratch = Vec::new();
        vec![Variant::only(move |engine| {
            scratch.resize(attention_scratch(engine, &a), 0.0);
            let inputs = AttentionInputs { q: (&q).into(), k: (&k).into(), v: (&v).into(), mask: mask.as_deref() };
            attention(engine, &a, inputs, &mut y, &mut scratch)
        })]
    })
}
