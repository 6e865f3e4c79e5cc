//! `quantization_errors` beside a scalar reference, which accumulates in 16 sums as a vector does.

use super::{Rng, engines};
use rushlight_engine::quantization_errors;

#[test]
fn errors_are_the_same_on_all_instruction_sets() {
    let mut rng = Rng(41);
    for n in [0, 1, 15, 16, 17, 100, 1000] {
        for (range, scale) in [([-8.0, 7.0], 0.11), ([-127.0, 127.0], 0.007), ([-127.0, 127.0], 1.0 / 256.0)] {
            let (x, weights) = (rng.vector(n), rng.vector(n));
            for weights in [None, Some(&*weights)] {
                let expected = [scale, 0.7 * scale].map(|scale| {
                    let mut sums = [0.0f32; 16];
                    for (at, x) in x.iter().enumerate() {
                        let integer = (x * (1.0f32 / scale)).clamp(range[0], range[1]).round_ties_even();
                        let error = integer * scale - x;
                        sums[at % 16] += error * error * weights.map_or(1.0, |weights| weights[at]);
                    }
                    sums.iter().sum::<f32>()
                });
                for engine in engines() {
                    let got = quantization_errors(&engine, [scale, 0.7 * scale], range, &x, weights);
                    assert_eq!(got, expected, "{engine:?} {n} {range:?} {}", weights.is_some());
                }
            }
        }
    }
}
