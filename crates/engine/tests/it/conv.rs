use super::*;
use rushlight_engine::{
    Conv2d, Conv3d, ConvTranspose2d, Winograd, WinogradWeights, conv_transpose2d, conv2d, conv2d_winograd,
    conv2d_winograd_scratch, conv3d, depthwise2d, pack,
};

/// Reference convolution in f64; weights are OIHW.
pub(super) fn reference(conv: &Conv2d, input: &[f32], weights: &[f32], epilogue: &OwnedEpilogue) -> Vec<f64> {
    let (group_in, group_out) = (conv.in_c / conv.groups, conv.out_c / conv.groups);
    let (out_h, out_w) = (conv.out_h(), conv.out_w());
    let mut out = Vec::new();
    for pixel in 0..conv.batch * out_h * out_w {
        let (image, y, x) = (pixel / out_w / out_h, pixel / out_w % out_h, pixel % out_w);
        for o in 0..conv.out_c {
            let mut sum = 0.0;
            for kh in 0..conv.kernel[0] {
                for kw in 0..conv.kernel[1] {
                    let in_y = (y * conv.stride[0] + kh * conv.dilation[0]).wrapping_sub(conv.padding[0][0]);
                    let in_x = (x * conv.stride[1] + kw * conv.dilation[1]).wrapping_sub(conv.padding[1][0]);
                    if in_y >= conv.in_h || in_x >= conv.in_w {
                        continue;
                    }
                    for i in 0..group_in {
                        let at = ((image * conv.in_h + in_y) * conv.in_w + in_x) * conv.in_stride;
                        let a = input[at + o / group_out * group_in + i];
                        let w = weights[((o * group_in + i) * conv.kernel[0] + kh) * conv.kernel[1] + kw];
                        sum += f64::from(a) * f64::from(w);
                    }
                }
            }
            out.push(epilogue.apply(pixel, o, sum));
        }
    }
    out
}

/// A convolution whose window fits at least once.
pub(super) fn random(rng: &mut Rng) -> Conv2d {
    loop {
        let groups = rng.one_of(&[1, 1, 1, 2, 3]);
        let in_c = groups * rng.one_of(&[1, 2, 3, 5, 15, 16, 17, 33]);
        let out_c = groups * rng.one_of(&[1, 7, 15, 16, 17, 31, 33]);
        let kernel = [rng.one_of(&[1, 2, 3, 3, 5, 7]), rng.one_of(&[1, 2, 3, 3, 5, 7])];
        let size = [1 + rng.below(2), 1 + rng.below(14), 1 + rng.below(14), in_c];
        let mut conv = Conv2d::new(size, out_c, kernel);
        conv.groups = groups;
        conv.stride = [1 + rng.below(3), 1 + rng.below(3)];
        conv.dilation = [rng.one_of(&[1, 1, 2, 3]), rng.one_of(&[1, 1, 2, 3])];
        conv.padding = [[rng.below(4), rng.below(4)], [rng.below(4), rng.below(4)]];
        conv.in_stride += rng.below(3);
        conv.out_stride += rng.below(3);
        if conv.out_h() > 0 && conv.out_w() > 0 {
            return conv;
        }
    }
}

/// Runs a convolution on every engine, compares with f64 (`slack` scales the error bound), and between thread counts
/// bit for bit.
fn check(
    conv: &Conv2d,
    rng: &mut Rng,
    engines: &[Engine],
    slack: f64,
    run: impl Fn(&Engine, &[f32], &[f32], &mut [f32], &Epilogue),
) {
    let (group_in, pixels) = (conv.in_c / conv.groups, conv.batch * conv.out_h() * conv.out_w());
    let input = rng.vector(conv.batch * conv.in_h * conv.in_w * conv.in_stride);
    let taps = conv.kernel[0] * conv.kernel[1];
    let weights = rng.vector(conv.out_c * group_in * taps);
    let epilogue = OwnedEpilogue::random(rng, pixels, conv.out_c);
    let expected = reference(conv, &input, &weights, &epilogue);
    let mut single: Option<(Isa, Vec<f32>)> = None;
    for engine in engines {
        let mut out = vec![f32::NAN; pixels * conv.out_stride];
        run(engine, &input, &weights, &mut out, &epilogue.epilogue());
        let rows = out.chunks_exact(conv.out_stride);
        let got: Vec<f32> = rows.clone().flat_map(|row| &row[..conv.out_c]).copied().collect();
        assert_close(&got, &expected, slack * rounding(taps * group_in), &(engine, conv, epilogue.activation));
        assert!(
            rows.flat_map(|row| &row[conv.out_c..]).all(|x| x.is_nan()),
            "{engine:?} {conv:?} wrote between pixels"
        );
        match &single {
            Some((isa, single)) if *isa == engine.isa() && engine.threads() > 1 => {
                assert!(single.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits()), "{engine:?} {conv:?}");
            }
            _ => single = Some((engine.isa(), got)),
        }
    }
}

/// Convolutions over images with enough rows for several blocks.
pub(super) fn first_layers() -> [Conv2d; 9] {
    let layer = |size, out_c, kernel: usize, stride, padding| Conv2d {
        stride: [stride; 2],
        padding: [[padding; 2]; 2],
        ..Conv2d::new(size, out_c, [kernel; 2])
    };
    [
        layer([1, 40, 41, 3], 32, 3, 2, 1),
        layer([2, 31, 29, 3], 24, 7, 2, 3),
        layer([1, 9, 700, 3], 17, 7, 2, 3),
        // Output rows shorter than a tile, and one that consists of padding only.
        layer([1, 120, 8, 3], 16, 5, 1, 2),
        layer([1, 130, 1, 1], 33, 3, 1, 1),
        // Patches larger than the copy buffer, and some with unread pixels in between.
        layer([1, 64, 160, 3], 40, 16, 16, 0),
        layer([1, 64, 66, 3], 20, 4, 4, 0),
        layer([1, 90, 95, 3], 20, 3, 5, 0),
        // Empty: the window does not fit.
        layer([1, 2, 2, 3], 20, 3, 5, 0),
    ]
}

#[test]
fn conv2d_agrees_with_f64() {
    let mut rng = Rng(2);
    let engines: Vec<Engine> = engines().collect();
    let mut shapes: Vec<Conv2d> = (0..150).map(|_| random(&mut rng)).collect();
    // K blocked by taps, and within a tap.
    let mut by_taps = Conv2d::new([1, 9, 11, 64], 33, [3, 3]);
    by_taps.padding = [[1, 1]; 2];
    let mut within = Conv2d::new([1, 5, 4, 500], 17, [2, 3]);
    within.padding = [[0, 1], [1, 1]];
    shapes.extend([by_taps, within, Conv2d::new([1, 20, 20, 33], 40, [1, 1])]);
    shapes.extend(first_layers());
    for conv in &shapes {
        check(conv, &mut rng, &engines, 1.0, |engine, input, weights, out, epilogue| {
            let group_in = conv.in_c / conv.groups;
            let packed = pack::conv2d_f32(conv, |o, i, h, w| {
                weights[((o * group_in + i) * conv.kernel[0] + h) * conv.kernel[1] + w]
            });
            conv2d(engine, conv, input, &packed, out, epilogue).unwrap();
        });
    }
}

#[test]
fn depthwise2d_agrees_with_f64() {
    let mut rng = Rng(3);
    let engines: Vec<Engine> = engines().collect();
    let mut shapes: Vec<Conv2d> = (0..100)
        .map(|_| {
            let conv = random(&mut rng);
            let channels = rng.one_of(&[1, 3, 15, 16, 17, 24, 33, 70, 200]);
            let stride = channels + rng.below(3);
            Conv2d { in_c: channels, out_c: channels, groups: channels, in_stride: stride, out_stride: stride, ..conv }
        })
        .collect();
    for (kernel, stride) in [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (7, 2)] {
        for size in [1, 7, 14, 15, 16, 17] {
            let channels = rng.one_of(&[16, 24, 32, 40]);
            shapes.push(Conv2d {
                stride: [stride; 2],
                padding: [[kernel / 2; 2]; 2],
                groups: channels,
                ..Conv2d::new([1, size, size, channels], channels, [kernel; 2])
            });
        }
    }
    for conv in &shapes {
        check(conv, &mut rng, &engines, 1.0, |engine, input, weights, out, epilogue| {
            let [kernel_h, kernel_w] = conv.kernel;
            let packed =
                pack::depthwise2d_f32(conv.in_c, conv.kernel, |c, h, w| weights[(c * kernel_h + h) * kernel_w + w]);
            depthwise2d(engine, conv, input, &packed, out, epilogue).unwrap();
        });
    }
}

#[test]
fn conv3d_agrees_with_f64() {
    let mut rng = Rng(4);
    for _ in 0..30 {
        let groups = rng.one_of(&[1, 1, 2]);
        let conv = Conv3d {
            batch: 1 + rng.below(2),
            in_size: [0; 3].map(|_| 1 + rng.below(6)),
            in_c: groups * rng.one_of(&[1, 3, 17]),
            out_c: groups * rng.one_of(&[1, 15, 18]),
            kernel: [0; 3].map(|_| 1 + rng.below(3)),
            stride: [0; 3].map(|_| 1 + rng.below(2)),
            padding: [[0; 2]; 3].map(|_| [rng.below(3), rng.below(3)]),
            dilation: [0; 3].map(|_| 1 + rng.below(2)),
            groups,
            in_stride: groups * 17,
            out_stride: groups * 18,
        };
        let [out_d, out_h, out_w] = conv.out_size();
        let pixels = conv.batch * out_d * out_h * out_w;
        let (group_in, group_out) = (conv.in_c / groups, conv.out_c / groups);
        let [in_d, in_h, in_w] = conv.in_size;
        let [kernel_d, kernel_h, kernel_w] = conv.kernel;
        let taps = kernel_d * kernel_h * kernel_w;
        let input = rng.vector(conv.batch * in_d * in_h * in_w * conv.in_stride);
        let weights = rng.vector(conv.out_c * group_in * taps);
        let weight = |o: usize, i: usize, [d, h, w]: [usize; 3]| {
            weights[(((o * group_in + i) * kernel_d + d) * kernel_h + h) * kernel_w + w]
        };
        let mut expected = Vec::new();
        for pixel in 0..pixels {
            let place = [pixel / out_w / out_h % out_d, pixel / out_w % out_h, pixel % out_w];
            let image = pixel / (out_w * out_h * out_d).max(1);
            for o in 0..conv.out_c {
                let mut sum = 0.0;
                for tap in 0..taps {
                    let tap = [tap / kernel_w / kernel_h, tap / kernel_w % kernel_h, tap % kernel_w];
                    let at: [usize; 3] = core::array::from_fn(|axis| {
                        (place[axis] * conv.stride[axis] + tap[axis] * conv.dilation[axis])
                            .wrapping_sub(conv.padding[axis][0])
                    });
                    if at.iter().zip(conv.in_size).any(|(&at, size)| at >= size) {
                        continue;
                    }
                    let at = (((image * in_d + at[0]) * in_h + at[1]) * in_w + at[2]) * conv.in_stride;
                    for i in 0..group_in {
                        sum += f64::from(input[at + o / group_out * group_in + i]) * f64::from(weight(o, i, tap));
                    }
                }
                expected.push(sum);
            }
        }
        let packed = pack::conv3d_f32(&conv, weight);
        for engine in engines() {
            let mut out = vec![0.0; pixels * conv.out_stride];
            conv3d(&engine, &conv, &input, &packed, &mut out, &Epilogue::default()).unwrap();
            let got: Vec<f32> = out.chunks(conv.out_stride).flat_map(|row| &row[..conv.out_c]).copied().collect();
            assert_close(&got, &expected, rounding(taps * group_in), &(&engine, conv));
        }
    }
}

#[test]
fn conv_transpose2d_agrees_with_f64() {
    let mut rng = Rng(5);
    for _ in 0..80 {
        let groups = rng.one_of(&[1, 1, 2]);
        let conv = ConvTranspose2d {
            batch: 1 + rng.below(2),
            in_h: 1 + rng.below(7),
            in_w: 1 + rng.below(9),
            in_c: groups * rng.one_of(&[1, 3, 17]),
            out_c: groups * rng.one_of(&[1, 15, 18]),
            kernel: [0; 2].map(|_| 1 + rng.below(5)),
            stride: [0; 2].map(|_| 1 + rng.below(4)),
            padding: [[0; 2]; 2].map(|_| [rng.below(3), rng.below(3)]),
            output_padding: [0; 2].map(|_| rng.below(3)),
            dilation: [0; 2].map(|_| 1 + rng.below(3)),
            groups,
            in_stride: groups * 17,
            out_stride: groups * 18 + 1,
        };
        let (out_h, out_w) = (conv.out_h(), conv.out_w());
        let pixels = conv.batch * out_h * out_w;
        let (group_in, group_out) = (conv.in_c / groups, conv.out_c / groups);
        let [kernel_h, kernel_w] = conv.kernel;
        let input = rng.vector(conv.batch * conv.in_h * conv.in_w * conv.in_stride);
        let weights = rng.vector(conv.in_c * group_out * kernel_h * kernel_w);
        let weight =
            |i: usize, o: usize, h: usize, w: usize| weights[((i * group_out + o) * kernel_h + h) * kernel_w + w];
        // Scatters each input pixel over the output.
        let mut expected = vec![0.0; pixels * conv.out_c];
        for pixel in 0..conv.batch * conv.in_h * conv.in_w {
            let (image, in_y, in_x) = (pixel / conv.in_w / conv.in_h, pixel / conv.in_w % conv.in_h, pixel % conv.in_w);
            for tap in 0..kernel_h * kernel_w {
                let (h, w) = (tap / kernel_w, tap % kernel_w);
                let y = (in_y * conv.stride[0] + h * conv.dilation[0]).wrapping_sub(conv.padding[0][0]);
                let x = (in_x * conv.stride[1] + w * conv.dilation[1]).wrapping_sub(conv.padding[1][0]);
                if y >= out_h || x >= out_w {
                    continue;
                }
                for o in 0..conv.out_c {
                    let group = o / group_out;
                    for i in group * group_in..(group + 1) * group_in {
                        let product =
                            f64::from(input[pixel * conv.in_stride + i]) * f64::from(weight(i, o % group_out, h, w));
                        expected[((image * out_h + y) * out_w + x) * conv.out_c + o] += product;
                    }
                }
            }
        }
        let epilogue = OwnedEpilogue::random(&mut rng, pixels, conv.out_c);
        for (i, value) in expected.iter_mut().enumerate() {
            *value = epilogue.apply(i / conv.out_c, i % conv.out_c, *value);
        }
        let packed = pack::conv_transpose2d_f32(&conv, weight);
        for engine in engines() {
            let mut out = vec![f32::NAN; pixels * conv.out_stride];
            conv_transpose2d(&engine, &conv, &input, &packed, &mut out, &epilogue.epilogue()).unwrap();
            let got: Vec<f32> = out.chunks(conv.out_stride).flat_map(|row| &row[..conv.out_c]).copied().collect();
            assert_close(&got, &expected, rounding(group_in * kernel_h * kernel_w), &(&engine, conv));
        }
    }
}

#[test]
fn winograd_agrees_with_f64() {
    let mut rng = Rng(7);
    let engines: Vec<Engine> = engines().collect();
    for round in 0..60 {
        let mut conv = random(&mut rng);
        let channels = [16, 17, 31, 33, 48, 64];
        (conv.in_c, conv.out_c) = (rng.one_of(&channels), rng.one_of(&channels));
        (conv.in_stride, conv.out_stride) = (conv.in_c + rng.below(2), conv.out_c + rng.below(2));
        (conv.kernel, conv.stride, conv.dilation, conv.groups) = ([3; 2], [1; 2], [1; 2], 1);
        if conv.out_h() == 0 || conv.out_w() == 0 {
            continue;
        }
        let form = [Winograd::F2, Winograd::F4][round % 2];
        let slack = if form == Winograd::F2 { 1.5 } else { 4.0 };
        check(&conv, &mut rng, &engines, slack, |engine, input, weights, out, epilogue| {
            let packed = pack::winograd_f32(form, &conv, |o, i, h, w| weights[((o * conv.in_c + i) * 3 + h) * 3 + w]);
            let mut scratch = vec![f32::NAN; conv2d_winograd_scratch(engine, form, &conv).unwrap()];
            let weights = WinogradWeights { form, packed: &packed };
            conv2d_winograd(engine, &conv, input, weights, out, epilogue, &mut scratch).unwrap();
        });
    }
}

/// Maximum error of a network of 3x3 convolutions with ReLU, relative to the largest output.
fn error_of_a_network(layers: usize, channels: usize, form: Option<Winograd>) -> f64 {
    let mut rng = Rng(8);
    let conv = Conv2d { padding: [[1; 2]; 2], ..Conv2d::new([1, 12, 12, channels], channels, [3, 3]) };
    let (engine, relu) = (Engine::new(1), Epilogue { activation: Activation::RELU, ..Epilogue::default() });
    // Keeps the scale of activations from layer to layer.
    let scale = (6.0 / (9.0 * channels as f32)).sqrt();
    let mut got = rng.vector(12 * 12 * channels);
    let mut exact: Vec<f64> = got.iter().copied().map(f64::from).collect();
    for _ in 0..layers {
        let weights: Vec<f32> = rng.vector(channels * channels * 9).iter().map(|w| w * scale).collect();
        let get = |o: usize, i: usize, h: usize, w: usize| weights[((o * channels + i) * 3 + h) * 3 + w];
        let mut out = vec![0.0; got.len()];
        match form {
            None => conv2d(&engine, &conv, &got, &pack::conv2d_f32(&conv, get), &mut out, &relu).unwrap(),
            Some(form) => {
                let packed = pack::winograd_f32(form, &conv, get);
                let mut scratch = vec![0.0; conv2d_winograd_scratch(&engine, form, &conv).unwrap()];
                let weights = WinogradWeights { form, packed: &packed };
                conv2d_winograd(&engine, &conv, &got, weights, &mut out, &relu, &mut scratch).unwrap();
            }
        }
        got = out;
        let mut next = vec![0.0f64; exact.len()];
        for (pixel, sums) in next.chunks_mut(channels).enumerate() {
            for tap in 0..9 {
                let (y, x) = ((pixel / 12 + tap / 3).wrapping_sub(1), (pixel % 12 + tap % 3).wrapping_sub(1));
                if y < 12 && x < 12 {
                    let from = &exact[(y * 12 + x) * channels..][..channels];
                    for (o, sum) in sums.iter_mut().enumerate() {
                        *sum += from
                            .iter()
                            .enumerate()
                            .map(|(i, a)| a * f64::from(get(o, i, tap / 3, tap % 3)))
                            .sum::<f64>();
                    }
                }
            }
            sums.iter_mut().for_each(|sum| *sum = sum.max(0.0));
        }
        exact = next;
    }
    let greatest = exact.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let error = got.iter().zip(&exact).map(|(&got, exact)| (f64::from(got) - exact).abs()).fold(0.0, f64::max);
    error / greatest
}

#[test]
fn winograd_stays_precise_through_a_deep_network() {
    let (layers, channels) = (16, 64);
    let direct = error_of_a_network(layers, channels, None);
    for (form, bound) in [(Winograd::F2, 3e-6), (Winograd::F4, 1e-5)] {
        let error = error_of_a_network(layers, channels, Some(form));
        println!("{form:?}: {error:.1e}, direct: {direct:.1e}");
        assert!(error < bound, "{form:?}: {error:e}, direct: {direct:e}");
    }
}
