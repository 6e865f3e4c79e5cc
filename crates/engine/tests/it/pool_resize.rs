//! Pooling and resizing.

use super::*;
use rushlight_engine::{AveragePool, Error, Pool2d, PoolKind, Resize, ResizeMode, pool2d, resize};

fn exact_pool(pool: &Pool2d, x: &[f32]) -> Vec<f64> {
    let &Pool2d { batch, in_h, in_w, channels, out_h, out_w, kernel, stride, padding, dilation, kind } = pool;
    let mut y = Vec::new();
    for index in 0..batch * out_h * out_w * channels {
        let (pixel, channel) = (index / channels, index % channels);
        let (image, out_y, out_x) = (pixel / out_w / out_h, pixel / out_w % out_h, pixel % out_w);
        let (mut inside, mut counted) = (Vec::new(), 0);
        for tap in 0..kernel[0] * kernel[1] {
            let at_y = out_y * stride[0] + tap / kernel[1] * dilation[0];
            let at_x = out_x * stride[1] + tap % kernel[1] * dilation[1];
            let is_padded = at_y < padding[0][0] + in_h + padding[0][1] && at_x < padding[1][0] + in_w + padding[1][1];
            counted += usize::from(is_padded);
            let (in_y, in_x) = (at_y.wrapping_sub(padding[0][0]), at_x.wrapping_sub(padding[1][0]));
            if in_y < in_h && in_x < in_w {
                inside.push(f64::from(x[((image * in_h + in_y) * in_w + in_x) * channels + channel]));
            }
        }
        y.push(match kind {
            PoolKind::Max => {
                inside.iter().fold(f64::NEG_INFINITY, |max, &x| if max.is_nan() || max > x { max } else { x })
            }
            PoolKind::Average(mean) => {
                let count = if mean.count_include_pad { counted } else { inside.len() };
                inside.iter().sum::<f64>()
                    / mean.divisor_override.map_or(count, |divisor| divisor as usize).max(1) as f64
            }
        });
    }
    y
}

#[test]
fn pooling_agrees_with_f64() {
    let mut rng = Rng(10);
    for round in 0..150 {
        let kernel = [1 + rng.below(4), 1 + rng.below(4)];
        let means = [
            PoolKind::Max,
            PoolKind::Average(AveragePool { count_include_pad: true, divisor_override: None }),
            PoolKind::Average(AveragePool { count_include_pad: false, divisor_override: None }),
            PoolKind::Average(AveragePool { count_include_pad: true, divisor_override: Some(7) }),
        ];
        let pool = Pool2d {
            batch: 1 + rng.below(2),
            in_h: 1 + rng.below(12),
            in_w: 1 + rng.below(12),
            channels: rng.one_of(&[1, 3, 15, 16, 17, 33, 64, 100]),
            out_h: rng.below(9),
            out_w: 1 + rng.below(9),
            kernel,
            stride: [1 + rng.below(3), 1 + rng.below(3)],
            padding: [[rng.below(3), rng.below(3)], [rng.below(3), rng.below(3)]],
            dilation: [rng.one_of(&[1, 1, 2]), rng.one_of(&[1, 1, 3])],
            kind: rng.one_of(&means),
        };
        let mut x = rng.vector(pool.batch * pool.in_h * pool.in_w * pool.channels);
        if round % 5 == 0 {
            x[0] = f32::NAN;
        }
        let bound = |expected: f64| if pool.kind == PoolKind::Max { 0.0 } else { 2e-6 * expected.abs().max(1.0) };
        assert_agrees(&pool, &exact_pool(&pool, &x), bound, |engine| {
            let mut y = vec![0.5; pool.batch * pool.out_h * pool.out_w * pool.channels];
            pool2d(engine, &pool, &x, &mut y).unwrap();
            y
        });
    }
}

#[test]
fn pooling_refuses_impossible_sizes() {
    let pool = Pool2d {
        batch: 1,
        in_h: 2,
        in_w: 2,
        channels: 1,
        out_h: 1,
        out_w: 1,
        kernel: [2, 2],
        stride: [1, 1],
        padding: [[0; 2]; 2],
        dilation: [1, 1],
        kind: PoolKind::Max,
    };
    let run = |pool: Pool2d| pool2d(&Engine::new(1), &pool, &[1.0; 4], &mut [0.0]);
    assert_eq!(run(pool), Ok(()));
    assert_eq!(run(Pool2d { stride: [0, 1], ..pool }), Err(Error::Size { what: "stride" }));
    assert_eq!(run(Pool2d { padding: [[usize::MAX, 1], [0, 0]], ..pool }), Err(Error::Size { what: "padding" }));
    assert_eq!(run(Pool2d { in_h: 3, ..pool }), Err(Error::Mismatch { what: "x", expected: 6, got: 4 }));
    assert_eq!(run(Pool2d { out_h: 2, ..pool }), Err(Error::Mismatch { what: "y", expected: 2, got: 1 }));
}

/// Source positions and weights along an axis as in PyTorch, in f64 except for the rounding of the position.
pub(super) fn sources(resize: &Resize, axis: usize, position: usize) -> [(usize, f64); 2] {
    let (input, output) = [(resize.in_h, resize.out_h), (resize.in_w, resize.out_w)][axis];
    let scale = resize.scales[axis].map_or(input as f64 / output as f64, |scale| 1.0 / f64::from(scale));
    let last = input - 1;
    if resize.mode == ResizeMode::Nearest {
        // PyTorch checks these sizes first and ignores the factor.
        let source = match output {
            _ if output == input => position,
            _ if output == 2 * input => position / 2,
            _ => (position as f32 * scale as f32) as usize,
        };
        return [(source.min(last), 1.0), (0, 0.0)];
    }
    let source = if input == output {
        position as f64
    } else if resize.align_corners {
        position as f64 * if output > 1 { last as f64 / (output - 1) as f64 } else { 0.0 }
    } else {
        (scale * (position as f64 + 0.5) - 0.5).max(0.0)
    };
    let first = (source as usize).min(last);
    let weight = (source - first as f64).clamp(0.0, 1.0);
    [(first, 1.0 - weight), ((first + 1).min(last), weight)]
}

/// A random resize.
pub(super) fn random_resize(rng: &mut Rng) -> Resize {
    Resize {
        batch: 1 + rng.below(2),
        in_h: 1 + rng.below(9),
        in_w: 1 + rng.below(9),
        channels: rng.one_of(&[1, 3, 16, 17, 40]),
        out_h: 1 + rng.below(20),
        out_w: 1 + rng.below(20),
        mode: rng.one_of(&[ResizeMode::Nearest, ResizeMode::Bilinear]),
        align_corners: rng.below(2) == 0,
        scales: [rng.one_of(&[None, Some(2.0), Some(1.7)]), rng.one_of(&[None, Some(0.6)])],
    }
}

#[test]
fn resizing_agrees_with_f64() {
    let mut rng = Rng(11);
    for _ in 0..100 {
        let what = random_resize(&mut rng);
        let x = rng.vector(what.batch * what.in_h * what.in_w * what.channels);
        let mut expected = Vec::new();
        for pixel in 0..what.batch * what.out_h * what.out_w {
            let (image, y) = (pixel / what.out_w / what.out_h, pixel / what.out_w % what.out_h);
            for channel in 0..what.channels {
                let mut sum = 0.0;
                for (in_y, wy) in sources(&what, 0, y) {
                    for (in_x, wx) in sources(&what, 1, pixel % what.out_w) {
                        let at = ((image * what.in_h + in_y) * what.in_w + in_x) * what.channels + channel;
                        sum += wy * wx * f64::from(x[at]);
                    }
                }
                expected.push(sum);
            }
        }
        // Positions up to 20 are rounded to f32, and so are the weights computed from them.
        let bound = |_| if what.mode == ResizeMode::Nearest { 0.0 } else { 1e-5 };
        assert_agrees(&what, &expected, bound, |engine| {
            let mut y = vec![0.5; expected.len()];
            resize(engine, &what, &x, &mut y).unwrap();
            y
        });
    }
}

#[test]
fn resizing_refuses_an_empty_input() {
    let what = Resize {
        batch: 1,
        in_h: 0,
        in_w: 2,
        channels: 1,
        out_h: 1,
        out_w: 1,
        mode: ResizeMode::Nearest,
        align_corners: false,
        scales: [None; 2],
    };
    assert_eq!(resize(&Engine::new(1), &what, &[], &mut [0.0]), Err(Error::Size { what: "input height" }));
}
