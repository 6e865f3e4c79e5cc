//! Throughput of everything that is not a product, at the shapes of common models, beside a copy of as many bytes.
//!
//! `cargo run --release -p rushlight-engine --example bandwidth [-- FILTER]`, with `RUSHLIGHT_ISA` to choose an instruction
//! set. Bytes are those of the operands and the result, each once. The best of many short repetitions counts, so that
//! other work on the machine disturbs little.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rushlight_engine::{
    Activation, Attention, Binary, Copy, Engine, Fold, Instruction, Isa, MAX_DIMS, Mean, Normalise, Operand, Pool2d,
    Resize, ResizeMode, Source, Strides, Unary, attention, attention_scratch, copy, elementwise, gather, normalise,
    pool2d, reduce, resize, softmax,
};

/// Time spent on each case.
const BUDGET: Duration = Duration::from_millis(60);

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let isa = match std::env::var("RUSHLIGHT_ISA") {
        Ok(name) => Isa::from_name(&name).unwrap_or_else(|| panic!("RUSHLIGHT_ISA: no instruction set `{name}`")),
        Err(_) => Isa::detect(),
    };
    let engines = [1, 2].map(|threads| Engine::with_isa(isa, threads).expect("the instruction set is there"));
    let bench = Bench { filter, engines };
    println!("{isa}: GB/s with 1 and 2 threads, of a copy of as many bytes with 1, and microseconds with 1");
    bench.elementwise_programs();
    bench.copies();
    bench.rows();
    bench.windows();
    println!("{isa}: GFLOP/s with 1 and 2 threads, and microseconds with 1");
    bench.attentions();
}

struct Bench {
    filter: String,
    engines: [Engine; 2],
}

impl Bench {
    /// Seconds with one and two threads, if the name contains the filter.
    fn time(&self, name: &str, mut run: impl FnMut(&Engine)) -> Option<[f64; 2]> {
        name.contains(&self.filter).then(|| self.engines.each_ref().map(|engine| best(|| run(engine))))
    }

    /// A row for something that reads and writes so many floats.
    fn memory(&self, name: &str, floats: usize, run: impl FnMut(&Engine)) {
        let Some([one, two]) = self.time(name, run) else { return };
        let (from, mut to) = (numbers(floats / 2), vec![0.0; floats / 2]);
        let copied = best(|| black_box(&mut to).copy_from_slice(black_box(&from)));
        let rate = |seconds: f64| 4.0 * floats as f64 / seconds / 1e9;
        println!("{name:<44}{:8.1}{:8.1}{:8.1}{:10.1}", rate(one), rate(two), rate(copied), one * 1e6);
    }

    fn elementwise_programs(&self) {
        let tensor = |index| Operand::Tensor(index);
        let add = Instruction::Binary { to: 0, function: Binary::Add, a: tensor(0), b: tensor(1) };
        let mul = Instruction::Binary { to: 0, function: Binary::Mul, a: tensor(0), b: tensor(1) };
        let activate = |activation, x| Instruction::Activate { to: 0, activation, x };
        let unary = |function| Instruction::Unary { to: 0, function, x: tensor(0) };
        let register = Operand::Register(0);
        let cases: &[(&str, &[usize], &[&[usize]], &[Instruction])] = &[
            ("add ResNet 56x56x256", &[56 * 56 * 256], &[&[1], &[1]], &[add]),
            ("add MobileNet 14x14x96", &[14 * 14 * 96], &[&[1], &[1]], &[add]),
            (
                "add, relu ResNet 28x28x512",
                &[28 * 28 * 512],
                &[&[1], &[1]],
                &[add, activate(Activation::RELU, register)],
            ),
            ("add a row 112x112x16", &[112 * 112, 16], &[&[16, 1], &[0, 1]], &[add]),
            ("scale channels 14x14x672", &[14 * 14, 672], &[&[672, 1], &[0, 1]], &[mul]),
            ("scale channels 4 of 28x28x24", &[4, 784, 24], &[&[784 * 24, 24, 1], &[24, 0, 1]], &[mul]),
            ("hardswish 112x112x16", &[112 * 112 * 16], &[&[1]], &[activate(Activation::HardSwish, tensor(0))]),
            ("gelu ViT 197x3072", &[197 * 3072], &[&[1]], &[activate(Activation::GeluErf, tensor(0))]),
            ("silu 197x3072", &[197 * 3072], &[&[1]], &[activate(Activation::Silu, tensor(0))]),
            ("exp 197x3072", &[197 * 3072], &[&[1]], &[unary(Unary::Exp)]),
            ("log 197x3072", &[197 * 3072], &[&[1]], &[unary(Unary::Log)]),
            ("sin 197x3072", &[197 * 3072], &[&[1]], &[unary(Unary::Sin)]),
            ("add Swin mask 64x3x49x49", &[64, 3, 2401], &[&[7203, 2401, 1], &[2401, 0, 1]], &[add]),
        ];
        for (name, dims, strides, program) in cases {
            let elements: usize = dims.iter().product();
            let reach =
                |strides: &[usize]| dims.iter().zip(strides).map(|(n, stride)| (n - 1) * stride).sum::<usize>() + 1;
            let data: Vec<Vec<f32>> = strides.iter().map(|strides| numbers(reach(strides))).collect();
            let operands: Vec<Source> = strides
                .iter()
                .zip(&data)
                .map(|(strides, data)| {
                    let mut all = [0; MAX_DIMS];
                    all[..strides.len()].copy_from_slice(strides);
                    Source { data, strides: all }
                })
                .collect();
            let mut y = vec![0.0; elements];
            let floats = elements + data.iter().map(Vec::len).sum::<usize>();
            self.memory(name, floats, |engine| {
                elementwise(engine, program, dims, &operands, &mut y).expect("sizes agree");
            });
        }
    }

    fn copies(&self) {
        let cases: &[(&str, &[usize], &[usize], &[usize])] = &[
            ("rows 197x768 of 197x2304", &[197, 768], &[2304, 1], &[768, 1]),
            ("NCHW to NHWC 3x224x224", &[224 * 224, 3], &[1, 224 * 224], &[3, 1]),
            ("NCHW to NHWC 64x56x56", &[3136, 64], &[1, 3136], &[64, 1]),
            ("NHWC to NCHW 7x7x960", &[960, 49], &[1, 960], &[49, 1]),
            ("transpose 768x768", &[768, 768], &[1, 768], &[768, 1]),
            ("heads ViT 197x12x64", &[12, 197, 64], &[64, 768, 1], &[197 * 64, 64, 1]),
            (
                "windows Swin 56x56x96 by 7",
                &[8, 8, 7, 7 * 96],
                &[7 * 56 * 96, 7 * 96, 56 * 96, 1],
                &[8 * 49 * 96, 49 * 96, 7 * 96, 1],
            ),
        ];
        for (name, sizes, x_strides, y_strides) in cases {
            let what = Copy { sizes, x_offset: 0, x_strides, y_offset: 0, y_strides };
            let reach = sizes.iter().zip(*x_strides).map(|(n, stride)| (n - 1) * stride).sum::<usize>() + 1;
            let elements: usize = sizes.iter().product();
            let (x, mut y) = (numbers(reach), vec![0.0; elements]);
            self.memory(name, 2 * elements, |engine| copy(engine, &what, &x, &mut y).expect("sizes agree"));
        }
        let (table, mut y) = (numbers(30_000 * 768), vec![0.0; 512 * 768]);
        let indices: Vec<i64> = (0..512).map(|i| i * 7919 % 30_000).collect();
        self.memory("gather 512 of 30000x768", 2 * 512 * 768, |engine| {
            gather(engine, 768, &table, &indices[..], &mut y).expect("sizes agree");
        });
    }

    fn rows(&self) {
        let shapes = [("ViT", 12 * 197, 197), ("Swin", 64 * 3 * 49, 49), ("classes", 1, 1000), ("words", 1, 128_256)];
        for (name, rows, columns) in shapes {
            let (x, mut y) = (numbers(rows * columns), vec![0.0; rows * columns]);
            self.memory(&format!("softmax {name} {rows}x{columns}"), 2 * rows * columns, |engine| {
                softmax(engine, rows, columns, false, &x, &mut y).expect("sizes agree");
            });
        }
        for (name, rows, columns, centred) in
            [("layer norm ViT", 197, 768, true), ("layer norm Swin", 3136, 96, true), ("RMS norm", 64, 2048, false)]
        {
            let (x, mut y) = (numbers(rows * columns), vec![0.0; rows * columns]);
            let (weight, bias) = (numbers(columns), numbers(columns));
            let norm = Normalise { rows, columns, eps: 1e-5, centred };
            self.memory(&format!("{name} {rows}x{columns}"), 2 * rows * columns, |engine| {
                normalise(engine, &norm, &x, Some(&weight), Some(&bias), &mut y).expect("sizes agree");
            });
        }
        for (name, outer, reduced, inner) in [
            ("mean of pixels 7x7x960", 1, 49, 960),
            ("mean of pixels 56x56x72", 1, 3136, 72),
            ("mean of rows 4096x256", 4096, 256, 1),
        ] {
            let (x, mut y) = (numbers(outer * reduced * inner), vec![0.0; outer * inner]);
            self.memory(name, x.len() + y.len(), |engine| {
                reduce(engine, Fold::Mean, outer, reduced, inner, &x, &mut y).expect("sizes agree");
            });
        }
    }

    fn windows(&self) {
        let max = Pool2d {
            batch: 1,
            in_h: 112,
            in_w: 112,
            channels: 64,
            out_h: 56,
            out_w: 56,
            kernel: [3; 2],
            stride: [2; 2],
            padding: [[1; 2]; 2],
            dilation: [1; 2],
            mean: None,
        };
        let counted = Mean { count_padding: true, divisor: None };
        let mean = Pool2d { in_h: 35, in_w: 35, channels: 288, out_h: 35, out_w: 35, stride: [1; 2], ..max };
        let cases =
            [("max pool 3x3/2 112x112x64", max), ("mean pool 3x3 35x35x288", Pool2d { mean: Some(counted), ..mean })];
        for (name, pool) in cases {
            let x = numbers(pool.in_h * pool.in_w * pool.channels);
            let mut y = vec![0.0; pool.out_h * pool.out_w * pool.channels];
            self.memory(name, x.len() + y.len(), |engine| pool2d(engine, &pool, &x, &mut y).expect("sizes agree"));
        }
        for (name, channels, mode) in [
            ("bilinear 33x33x256 to 65x65", 256, ResizeMode::Bilinear),
            ("bilinear 33x33x21 to 65x65", 21, ResizeMode::Bilinear),
            ("nearest 33x33x256 to 65x65", 256, ResizeMode::Nearest),
        ] {
            let what = Resize {
                batch: 1,
                in_h: 33,
                in_w: 33,
                channels,
                out_h: 65,
                out_w: 65,
                mode,
                align_corners: false,
                scales: [None; 2],
            };
            let (x, mut y) = (numbers(33 * 33 * channels), vec![0.0; 65 * 65 * channels]);
            self.memory(name, x.len() + y.len(), |engine| resize(engine, &what, &x, &mut y).expect("sizes agree"));
        }
    }

    fn attentions(&self) {
        for (name, batch, heads, rows, keys, depth, causal) in [
            ("ViT-B 12 heads 197x197x64", 1, 12, 197, 197, 64, false),
            ("Swin-T 64 windows 3 heads 49x49x32", 64, 3, 49, 49, 32, false),
            ("Swin-T 1 window 24 heads 49x49x32", 1, 24, 49, 49, 32, false),
            ("causal 8 heads 1024x1024x64", 1, 8, 1024, 1024, 64, true),
            ("decode 8 heads 1x1024x64", 1, 8, 1, 1024, 64, false),
        ] {
            let strides = |rows: usize| Strides { batch: rows * heads * depth, head: depth, row: heads * depth };
            let masked = name.contains("Swin");
            let a = Attention {
                batch,
                heads,
                groups: heads,
                rows,
                keys,
                depth,
                value_depth: depth,
                scale: 0.125,
                causal,
                q: strides(rows),
                k: strides(keys),
                v: strides(keys),
                y: strides(rows),
                mask: masked.then_some(Strides { batch: 0, head: rows * keys, row: keys }),
            };
            let len = |rows: usize| batch * rows * heads * depth;
            let (q, k, v, mut y) = (numbers(len(rows)), numbers(len(keys)), numbers(len(keys)), vec![0.0; len(rows)]);
            let mask = masked.then(|| numbers(heads * rows * keys));
            let most = self.engines.iter().map(|engine| attention_scratch(engine, &a)).max();
            let mut scratch = vec![0.0; most.unwrap_or(0)];
            let seconds = self.time(name, |engine| {
                attention(engine, &a, &q, &k, &v, mask.as_deref(), &mut y, &mut scratch).expect("sizes agree");
            });
            let Some([one, two]) = seconds else { continue };
            let flops = (4 * batch * heads * rows * keys * depth) as f64 * if causal { 0.5 } else { 1.0 };
            println!("{name:<44}{:8.1}{:8.1}{:18.1}", flops / one / 1e9, flops / two / 1e9, one * 1e6);
        }
    }
}

/// Seconds of the shortest of repetitions.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < BUDGET {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    best.as_secs_f64()
}

/// Numbers that are neither zero nor denormal.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 1009) as f32 / 1009.0 + 0.001).collect()
}
