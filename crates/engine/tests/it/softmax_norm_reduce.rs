//! Softmax, normalization and reductions.

use super::*;
use rushlight_engine::{Error, Normalization, Reduction, normalize, reduce, softmax};

const SHAPES: &[[usize; 2]] =
    &[[1, 1], [3, 2], [5, 15], [4, 16], [7, 17], [33, 31], [9, 49], [5, 64], [12, 197], [3, 1000], [2, 5000], [70, 96]];

fn exact_softmax(x: &[f32], log: bool) -> Vec<f64> {
    let max = x.iter().fold(f64::NEG_INFINITY, |max, &x| max.max(f64::from(x)));
    let sum: f64 = x.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    let of = |x: f64| if log { x - max - sum.ln() } else { (x - max).exp() / sum };
    x.iter().map(|&x| of(f64::from(x))).collect()
}

#[test]
fn softmax_agrees_with_f64() {
    let mut rng = Rng(7);
    for &[rows, columns] in SHAPES {
        let mut x: Vec<f32> = rng.vector(rows * columns).iter().map(|x| x * 20.0).collect();
        if columns > 1 {
            x[columns - 1] = f32::NEG_INFINITY;
        }
        for log in [false, true] {
            let expected: Vec<f64> = x.chunks(columns).flat_map(|x| exact_softmax(x, log)).collect();
            let bound = |expected: f64| if log { 1e-6 * expected.abs().max(1.0) } else { 3e-6 * expected + 1e-37 };
            assert_agrees(&("softmax", rows, columns, log), &expected, bound, |engine| {
                let mut y = vec![0.0; x.len()];
                softmax(engine, rows, columns, log, &x, &mut y).unwrap();
                y
            });
        }
    }
}

#[test]
fn softmax_without_finite_maximum_is_nan() {
    for engine in engines() {
        for bad in [[f32::NEG_INFINITY; 3], [1.0, f32::INFINITY, 0.0], [f32::NAN, 1.0, f32::NEG_INFINITY]] {
            for log in [false, true] {
                let mut y = [0.0; 3];
                softmax(&engine, 1, 3, log, &bad, &mut y).unwrap();
                assert!(y.iter().all(|y| y.is_nan()), "{engine:?} {bad:?}: {y:?}");
            }
        }
    }
    let short = Err(Error::Mismatch { what: "y", expected: 6, got: 5 });
    assert_eq!(softmax(&Engine::new(1), 2, 3, false, &[0.0; 6], &mut [0.0; 5]), short);
}

#[test]
fn norms_agree_with_f64() {
    let mut rng = Rng(8);
    for &[rows, columns] in SHAPES {
        // Far from zero, where the variance loses most digits.
        let x: Vec<f32> = rng.vector(rows * columns).iter().map(|x| x + 3.0).collect();
        let (weight, bias) = (rng.vector(columns), rng.vector(columns));
        for choice in 0..8 {
            let centered = choice & 1 > 0;
            let (weight, bias) = ((choice & 2 > 0).then_some(&weight), (choice & 4 > 0).then_some(&bias));
            let norm = Normalization { rows, columns, eps: 1e-5, centered };
            let expected: Vec<f64> = x
                .chunks(columns)
                .flat_map(|x| {
                    let n = columns as f64;
                    let mean = if centered { x.iter().map(|&x| f64::from(x)).sum::<f64>() / n } else { 0.0 };
                    let square = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
                    let scale = 1.0 / (square + f64::from(norm.eps)).sqrt();
                    x.iter().enumerate().map(move |(i, &x)| {
                        let scaled = (f64::from(x) - mean) * scale * weight.map_or(1.0, |w| f64::from(w[i]));
                        scaled + bias.map_or(0.0, |bias| f64::from(bias[i]))
                    })
                })
                .collect();
            // A mean near 3 in f32 is off by 1e-7; with one or two columns the division magnifies that by up to 1 /
            // sqrt(eps).
            let bound = |expected: f64| if columns < 3 { 1e-4 } else { 3e-6 * expected.abs().max(1.0) };
            assert_agrees(&(norm, choice), &expected, bound, |engine| {
                let mut y = vec![0.0; x.len()];
                let (weight, bias) = (weight.map(Vec::as_slice), bias.map(Vec::as_slice));
                normalize(engine, &norm, &x, weight, bias, &mut y).unwrap();
                y
            });
        }
    }
    let norm = Normalization { rows: 2, columns: 3, eps: 0.0, centered: true };
    let short = Err(Error::Mismatch { what: "weight", expected: 3, got: 2 });
    assert_eq!(normalize(&Engine::new(1), &norm, &[0.0; 6], Some(&[0.0; 2]), None, &mut [0.0; 6]), short);
}

#[test]
fn reductions_agree_with_f64() {
    let mut rng = Rng(9);
    let shapes = [[1, 1, 1], [3, 5, 1], [2, 1000, 1], [1, 100_000, 1], [7, 49, 1], [2, 49, 65], [1, 3000, 17]];
    let more = [[3, 300, 2], [2, 9, 200], [4, 0, 3], [4, 0, 1], [0, 3, 4], [1, 196, 576]];
    for [outer, reduced, inner] in shapes.into_iter().chain(more) {
        let x = rng.vector(outer * reduced * inner);
        for fold in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min] {
            let mut expected = Vec::new();
            for o in 0..outer {
                for i in 0..inner {
                    let all = (0..reduced).map(|r| f64::from(x[(o * reduced + r) * inner + i]));
                    expected.push(match fold {
                        Reduction::Sum => all.sum(),
                        Reduction::Mean => all.sum::<f64>() / reduced as f64,
                        Reduction::Max => all.fold(f64::NEG_INFINITY, f64::max),
                        Reduction::Min => all.fold(f64::INFINITY, f64::min),
                    });
                }
            }
            // Partial sums grow with the square root of their number of terms, and each result passes through about 40
            // of them, rounded by 6e-8 each time.
            let bound = |_| match fold {
                Reduction::Sum => 1e-6 * (reduced as f64).sqrt(),
                Reduction::Mean => 4e-7,
                Reduction::Max | Reduction::Min => 0.0,
            };
            assert_agrees(&(fold, outer, reduced, inner), &expected, bound, |engine| {
                let mut y = vec![0.5; outer * inner];
                reduce(engine, fold, outer, reduced, inner, &x, &mut y).unwrap();
                y
            });
        }
    }
}

#[test]
fn max_and_min_propagate_nan() {
    for engine in engines() {
        for inner in [1, 20] {
            for at in [0, 3, 69] {
                let mut x = vec![1.0; 70 * inner];
                x[at * inner] = f32::NAN;
                for fold in [Reduction::Max, Reduction::Min] {
                    let mut y = vec![0.0; inner];
                    reduce(&engine, fold, 1, 70, inner, &x, &mut y).unwrap();
                    assert!(y[0].is_nan() && y[1..].iter().all(|y| *y == 1.0), "{engine:?} {fold:?} {at}");
                }
            }
        }
    }
    let short = Err(Error::Mismatch { what: "x", expected: 24, got: 23 });
    assert_eq!(reduce(&Engine::new(1), Reduction::Sum, 2, 3, 4, &[0.0; 23], &mut [0.0; 8]), short);
}
