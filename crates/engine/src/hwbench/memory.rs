//! Memory-bound kernels.

use super::{Bench, Case, Variant, test_values};
use crate::{
    Activation, AveragePool, Binary, Copy, Error, Instruction, MAX_DIMS, Normalization, Operand, Pool2d, PoolKind,
    Reduction, Resize, ResizeMode, Source, Table, Unary, copy, elementwise, gather, normalize, pool2d, reduce, resize,
    softmax,
};

/// Times all cases.
pub(super) fn time(bench: &mut Bench<'_>) -> Result<(), Error> {
    time_rows(bench)?;
    time_elementwise(bench)?;
    time_copies(bench)?;
    time_windows(bench)
}

/// Softmax, norms and means of rows.
fn time_rows(bench: &mut Bench<'_>) -> Result<(), Error> {
    for (typical, model, rows, columns) in [
        (true, "ViT-B", 12 * 197, 197),
        (false, "Swin-T", 64 * 3 * 49, 49),
        (false, "classes", 1, 1000),
        (false, "words", 1, 128_256),
    ] {
        let floats = rows * columns;
        let shape = format!("{rows}x{columns} {model}");
        bench.time(&case("softmax", shape, typical, 5 * floats, 2 * floats), || {
            let (x, mut y) = (test_values(floats), vec![0.0; floats]);
            vec![Variant::only(move |engine| softmax(engine, rows, columns, false, &x, &mut y))]
        })?;
    }
    for (typical, kernel, model, rows, columns) in [
        (true, "layer norm", "ViT-B", 197, 768),
        (false, "layer norm", "Swin-T", 3136, 96),
        (false, "RMS norm", "tokens", 64, 2048),
    ] {
        let floats = rows * columns;
        let shape = format!("{rows}x{columns} {model}");
        bench.time(&case(kernel, shape, typical, 7 * floats, 2 * floats), || {
            let (x, mut y) = (test_values(floats), vec![0.0; floats]);
            let (weight, bias) = (test_values(columns), test_values(columns));
            let norm = Normalization { rows, columns, eps: 1e-5, centered: kernel == "layer norm" };
            vec![Variant::only(move |engine| normalize(engine, &norm, &x, Some(&weight), Some(&bias), &mut y))]
        })?;
    }
    for (what, outer, reduced, inner) in [("pixels", 1, 49, 960), ("pixels", 1, 3136, 72), ("columns", 4096, 256, 1)] {
        let read = outer * reduced * inner;
        let shape = format!("{outer}x{reduced}x{inner} {what}");
        bench.time(&case("mean", shape, false, read, read + outer * inner), || {
            let (x, mut y) = (test_values(read), vec![0.0; outer * inner]);
            vec![Variant::only(move |engine| reduce(engine, Reduction::Mean, outer, reduced, inner, &x, &mut y))]
        })?;
    }
    Ok(())
}

/// Elementwise programs.
fn time_elementwise(bench: &mut Bench<'_>) -> Result<(), Error> {
    let tensor = |index| Operand::Tensor(index);
    let add = Instruction::Binary { to: 0, function: Binary::Add, a: tensor(0), b: tensor(1) };
    let mul = Instruction::Binary { to: 0, function: Binary::Mul, a: tensor(0), b: tensor(1) };
    let activate = |activation, x| Instruction::Activate { to: 0, activation, x };
    let unary = |function| Instruction::Unary { to: 0, function, x: tensor(0) };
    let relu = activate(Activation::RELU, Operand::Register(0));
    let cases: &[(&str, &str, &[usize], &[&[usize]], &[Instruction])] = &[
        ("exp", "ViT-B mlp", &[197 * 3072], &[&[1]], &[unary(Unary::Exp)]),
        ("log", "ViT-B mlp", &[197 * 3072], &[&[1]], &[unary(Unary::Log)]),
        ("sin", "ViT-B mlp", &[197 * 3072], &[&[1]], &[unary(Unary::Sin)]),
        ("gelu", "ViT-B mlp", &[197 * 3072], &[&[1]], &[activate(Activation::GeluErf, tensor(0))]),
        ("silu", "ViT-B mlp", &[197 * 3072], &[&[1]], &[activate(Activation::Silu, tensor(0))]),
        ("hardswish", "MobileNetV3", &[112 * 112 * 16], &[&[1]], &[activate(Activation::HardSwish, tensor(0))]),
        ("add", "ResNet50", &[56 * 56 * 256], &[&[1], &[1]], &[add]),
        ("add", "MobileNetV2", &[14 * 14 * 96], &[&[1], &[1]], &[add]),
        ("add, relu", "ResNet50", &[28 * 28 * 512], &[&[1], &[1]], &[add, relu]),
        ("add", "a row", &[112 * 112, 16], &[&[16, 1], &[0, 1]], &[add]),
        ("add", "Swin-T mask", &[64, 3, 2401], &[&[7203, 2401, 1], &[2401, 0, 1]], &[add]),
        ("mul", "channels", &[14 * 14, 672], &[&[672, 1], &[0, 1]], &[mul]),
        ("mul", "channels of 4", &[4, 784, 24], &[&[784 * 24, 24, 1], &[24, 0, 1]], &[mul]),
    ];
    for &(kernel, model, dims, strides, program) in cases {
        let elements: usize = dims.iter().product();
        let floats = elements + strides.iter().map(|strides| reach(dims, strides)).sum::<usize>();
        let shape = format!("{} {model}", by(dims));
        bench.time(
            &case("elementwise", format!("{kernel} {shape}"), kernel == "exp", elements * program.len(), floats),
            || {
                let (dims, program) = (dims.to_vec(), program.to_vec());
                let data: Vec<(Vec<f32>, [usize; MAX_DIMS])> = strides
                    .iter()
                    .map(|strides| {
                        let mut all = [0; MAX_DIMS];
                        all[..strides.len()].copy_from_slice(strides);
                        (test_values(reach(&dims, strides)), all)
                    })
                    .collect();
                let mut y = vec![0.0; elements];
                vec![Variant::only(move |engine| {
                    let operands: Vec<Source> = data
                        .iter()
                        .map(|(data, strides)| Source { data: data.as_slice().into(), strides: *strides })
                        .collect();
                    elementwise(engine, &program, &dims, &operands, &mut y)
                })]
            },
        )?;
    }
    Ok(())
}

/// Copies and gathers.
fn time_copies(bench: &mut Bench<'_>) -> Result<(), Error> {
    let cases: &[(&str, &'static [usize], &'static [usize], &'static [usize])] = &[
        ("rows of ViT-B qkv", &[197, 768], &[2304, 1], &[768, 1]),
        ("NCHW to NHWC, image", &[224 * 224, 3], &[1, 224 * 224], &[3, 1]),
        ("NCHW to NHWC", &[3136, 64], &[1, 3136], &[64, 1]),
        ("NHWC to NCHW", &[960, 49], &[1, 960], &[49, 1]),
        ("transpose", &[768, 768], &[1, 768], &[768, 1]),
        ("ViT-B heads", &[12, 197, 64], &[64, 768, 1], &[197 * 64, 64, 1]),
        ("Swin-T windows", &[8, 8, 7, 7 * 96], &[7 * 56 * 96, 7 * 96, 56 * 96, 1], &[8 * 49 * 96, 49 * 96, 7 * 96, 1]),
    ];
    for &(what, sizes, x_strides, y_strides) in cases {
        let elements: usize = sizes.iter().product();
        bench.time(&case("copy", format!("{} {what}", by(sizes)), false, 0, 2 * elements), || {
            let (x, mut y) = (test_values(reach(sizes, x_strides)), vec![0.0; elements]);
            let what = Copy { sizes, x_offset: 0, x_strides, y_offset: 0, y_strides };
            vec![Variant::only(move |engine| copy(engine, &what, &x, &mut y))]
        })?;
    }
    let (words, taken, columns) = (30_000, 512, 768);
    let shape = format!("{taken} of {words}x{columns}");
    bench.time(&case("gather", shape, false, 0, 2 * taken * columns), || {
        let (table, mut y) = (test_values(words * columns), vec![0.0; taken * columns]);
        let indices: Vec<i64> = (0..taken).map(|i| (i * 7919 % words) as i64).collect();
        vec![Variant::only(move |engine| gather(engine, columns, Table::Floats(&table), &indices[..], &mut y))]
    })
}

/// Pooling and resizing.
fn time_windows(bench: &mut Bench<'_>) -> Result<(), Error> {
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
        kind: PoolKind::Max,
    };
    let counted = PoolKind::Average(AveragePool { count_include_pad: true, divisor_override: None });
    let mean = Pool2d { in_h: 35, in_w: 35, channels: 288, out_h: 35, out_w: 35, stride: [1; 2], kind: counted, ..max };
    for (shape, pool) in [("max 3x3/2 64 112x112 ResNet", max), ("mean 3x3 288 35x35 Inception", mean)] {
        let (read, written) = (pool.in_h * pool.in_w * pool.channels, pool.out_h * pool.out_w * pool.channels);
        bench.time(&case("pool", shape.to_owned(), false, 9 * written, read + written), || {
            let (x, mut y) = (test_values(read), vec![0.0; written]);
            vec![Variant::only(move |engine| pool2d(engine, &pool, &x, &mut y))]
        })?;
    }
    for (name, flops, channels, mode) in [
        ("bilinear", 6, 256, ResizeMode::Bilinear),
        ("bilinear", 6, 21, ResizeMode::Bilinear),
        ("nearest", 0, 256, ResizeMode::Nearest),
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
        let (read, written) = (33 * 33 * channels, 65 * 65 * channels);
        let shape = format!("{name} 33x33 to 65x65 {channels} DeepLabV3");
        bench.time(&case("resize", shape, false, flops * written, read + written), || {
            let (x, mut y) = (test_values(read), vec![0.0; written]);
            vec![Variant::only(move |engine| resize(engine, &what, &x, &mut y))]
        })?;
    }
    Ok(())
}

/// Describes a case that moves `floats` floats.
fn case(kernel: &'static str, shape: String, typical: bool, flops: usize, floats: usize) -> Case {
    Case { kernel, shape, typical, flops: flops as f64, bytes: 4.0 * floats as f64 }
}

/// Floats from the first to the last element.
fn reach(sizes: &[usize], strides: &[usize]) -> usize {
    sizes.iter().zip(strides).map(|(size, stride)| (size - 1) * stride).sum::<usize>() + 1
}

/// Formats sizes as `2x3`.
fn by(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
