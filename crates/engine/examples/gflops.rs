//! GFLOP/s of products and convolutions at the shapes of common models.
//!
//! `cargo run --release -p rushlight-engine --example gflops [-- FILTER]`, with `RUSHLIGHT_ISA` to choose an instruction
//! set. Rates of Winograd's algorithm count the multiplications that it saves; a star marks its choice. The best of many short repetitions counts, so that other work on the machine disturbs little.

use std::time::{Duration, Instant};

use rushlight_engine::{
    Activation, Conv2d, Engine, Gemm, Isa, Tail, Winograd, conv2d, conv2d_winograd, conv2d_winograd_scratch,
    depthwise2d, gemm, pack,
};

/// Time spent on each case.
const BUDGET: Duration = Duration::from_millis(150);

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let isa = match std::env::var("RUSHLIGHT_ISA") {
        Ok(name) => Isa::from_name(&name).unwrap_or_else(|| panic!("RUSHLIGHT_ISA: no instruction set `{name}`")),
        Err(_) => Isa::detect(),
    };
    let engines = [1, 2].map(|threads| Engine::with_isa(isa, threads).expect("the instruction set is there"));
    println!("{isa}: GFLOP/s with 1 and 2 threads, and ms with 1");
    for (name, [m, n, k]) in GEMMS {
        row(&filter, &format!("gemm {m}x{n}x{k} {name}"), &engines, 2 * m * n * k, product(*m, *n, *k));
    }
    for (name, conv) in convolutions() {
        let flops = 2 * conv.out_h() * conv.out_w() * conv.out_c * conv.in_c * conv.kernel[0] * conv.kernel[1];
        row(&filter, &format!("conv {name}"), &engines, flops, convolution(conv));
        for form in [Winograd::F2, Winograd::F4].into_iter().filter(|_| Winograd::supports(&conv)) {
            let chosen = if Winograd::choose(&conv) == Some(form) { "*" } else { "" };
            row(&filter, &format!("conv {name} {form:?}{chosen}"), &engines, flops, winograd(form, conv));
        }
    }
    for &(name, size, channels, kernel, stride) in DEPTHWISE {
        let conv = Conv2d {
            stride: [stride; 2],
            padding: [[kernel / 2; 2]; 2],
            groups: channels,
            ..Conv2d::new([1, size, size, channels], channels, [kernel; 2])
        };
        let flops = 2 * conv.out_h() * conv.out_w() * channels * kernel * kernel;
        let name = format!("depthwise {kernel}x{kernel}/{stride} {channels} {size} {name}");
        row(&filter, &name, &engines, flops, depthwise(conv));
    }
}

/// Size, channels, kernel and stride.
const DEPTHWISE: &[(&str, usize, usize, usize, usize)] = &[
    ("MobileNetV2", 112, 32, 3, 1),
    ("MobileNetV2", 112, 96, 3, 2),
    ("MobileNetV2", 56, 144, 3, 1),
    ("MobileNetV2", 28, 192, 3, 1),
    ("MobileNetV2", 28, 192, 3, 2),
    ("MobileNetV2", 14, 384, 3, 1),
    ("MobileNetV2", 14, 576, 3, 2),
    ("MobileNetV2", 7, 960, 3, 1),
    ("MobileNetV3", 28, 120, 5, 1),
    ("MobileNetV3", 56, 72, 5, 2),
    ("MobileNetV3", 7, 960, 5, 1),
    ("ConvNeXt", 56, 96, 7, 1),
];

/// m (pixels or tokens), n (outputs), k.
const GEMMS: &[(&str, [usize; 3])] = &[
    ("square", [1024, 1024, 1024]),
    ("square", [256, 256, 256]),
    ("ViT-B qkv", [197, 2304, 768]),
    ("ViT-B project", [197, 768, 768]),
    ("ViT-B mlp", [197, 3072, 768]),
    ("ViT-B mlp", [197, 768, 3072]),
    ("ResNet50 56", [3136, 64, 256]),
    ("ResNet50 56", [3136, 256, 64]),
    ("ResNet50 28", [784, 512, 128]),
    ("ResNet50 28", [784, 128, 512]),
    ("ResNet50 14", [196, 1024, 256]),
    ("ResNet50 14", [196, 256, 1024]),
    ("ResNet50 7", [49, 2048, 512]),
    ("ResNet50 7", [49, 512, 2048]),
    ("MobileNetV2 112", [12544, 16, 32]),
    ("MobileNetV2 112", [12544, 96, 16]),
    ("MobileNetV2 56", [3136, 24, 96]),
    ("MobileNetV2 56", [3136, 144, 24]),
    ("MobileNetV2 28", [784, 32, 192]),
    ("MobileNetV2 14", [196, 384, 64]),
    ("MobileNetV2 14", [196, 96, 576]),
    ("MobileNetV2 7", [49, 960, 160]),
    ("MobileNetV2 7", [49, 1280, 320]),
    ("classifier", [1, 1000, 2048]),
    ("token", [1, 4096, 4096]),
    ("tokens", [4, 4096, 1024]),
    ("tokens", [16, 4096, 1024]),
];

fn convolutions() -> Vec<(&'static str, Conv2d)> {
    let conv = |size: usize, in_c, out_c, kernel: usize, stride| {
        let padding = kernel / 2;
        Conv2d {
            stride: [stride; 2],
            padding: [[padding; 2]; 2],
            ..Conv2d::new([1, size, size, in_c], out_c, [kernel; 2])
        }
    };
    vec![
        ("first 7x7/2 3->64 224", conv(224, 3, 64, 7, 2)),
        ("first 3x3/2 3->32 224", conv(224, 3, 32, 3, 2)),
        ("first 3x3/2 3->16 224", conv(224, 3, 16, 3, 2)),
        ("3x3 64 56", conv(56, 64, 64, 3, 1)),
        ("3x3 128 28", conv(28, 128, 128, 3, 1)),
        ("3x3 256 14", conv(14, 256, 256, 3, 1)),
        ("3x3 512 7", conv(7, 512, 512, 3, 1)),
        ("3x3/2 128->128 56", conv(56, 128, 128, 3, 2)),
        ("1x1/2 256->512 56", conv(56, 256, 512, 1, 2)),
        ("patch 16x16/16 3->768 224", Conv2d { padding: [[0; 2]; 2], ..conv(224, 3, 768, 16, 16) }),
    ]
}

/// Prints one row, if its name contains the filter.
fn row(filter: &str, name: &str, engines: &[Engine; 2], flops: usize, mut run: impl FnMut(&Engine)) {
    if !name.contains(filter) {
        return;
    }
    let best = engines.each_ref().map(|engine| best(|| run(engine)).as_secs_f64());
    let [one, two] = best.map(|seconds| flops as f64 / seconds / 1e9);
    println!("{name:<36}{one:8.1}{two:8.1}{:10.4}", best[0] * 1e3);
}

/// The shortest of repetitions.
fn best(mut run: impl FnMut()) -> Duration {
    run();
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < BUDGET {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    best
}

/// Numbers that are neither zero nor denormal.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.5).collect()
}

const RELU: Tail = Tail { bias: None, residual: None, residual_first: false, activation: Activation::RELU };

fn product(m: usize, n: usize, k: usize) -> impl FnMut(&Engine) {
    let (a, b, mut c) = (numbers(m * k), numbers(k * n), vec![0.0; m * n]);
    let packed = pack::matrix_f32(k, n, |k, j| b[k * n + j]);
    move |engine| gemm(engine, &Gemm::new(m, n, k), &a, &packed, &mut c, &RELU).expect("sizes agree")
}

fn convolution(conv: Conv2d) -> impl FnMut(&Engine) {
    let input = numbers(conv.in_h * conv.in_w * conv.in_c);
    let packed = pack::conv2d_f32(&conv, |o, i, h, w| (o * 31 + i * 17 + h * 5 + w) as f32 % 7.0 - 3.0);
    let mut out = vec![0.0; conv.out_h() * conv.out_w() * conv.out_c];
    move |engine| conv2d(engine, &conv, &input, &packed, &mut out, &RELU).expect("sizes agree")
}

fn depthwise(conv: Conv2d) -> impl FnMut(&Engine) {
    let input = numbers(conv.in_h * conv.in_w * conv.in_c);
    let weights = numbers(conv.in_c * conv.kernel[0] * conv.kernel[1]);
    let mut out = vec![0.0; conv.out_h() * conv.out_w() * conv.out_c];
    move |engine| depthwise2d(engine, &conv, &input, &weights, &mut out, &RELU).expect("sizes agree")
}

fn winograd(form: Winograd, conv: Conv2d) -> impl FnMut(&Engine) {
    let input = numbers(conv.in_h * conv.in_w * conv.in_c);
    let packed = pack::winograd_f32(form, &conv, |o, i, h, w| (o * 31 + i * 17 + h * 5 + w) as f32 % 7.0 - 3.0);
    let mut out = vec![0.0; conv.out_h() * conv.out_w() * conv.out_c];
    let mut scratch = Vec::new();
    move |engine| {
        scratch.resize(conv2d_winograd_scratch(engine, form, &conv).expect("sizes fit"), 0.0);
        conv2d_winograd(engine, form, &conv, &input, &packed, &mut out, &RELU, &mut scratch).expect("sizes agree");
    }
}
