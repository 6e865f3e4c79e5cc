use super::{Rng, engines};
use rushlight_engine::{FiniteRange, finite_range};

#[test]
fn non_finite_elements_are_ignored() {
    let mut rng = Rng(37);
    for n in [0, 1, 15, 16, 17, 31, 32, 33, 64, 100, 1000] {
        for wild in
            [&[][..], &[f32::NAN], &[f32::INFINITY, f32::NAN], &[f32::NEG_INFINITY], &[-f32::NAN, f32::INFINITY]]
        {
            let mut x = rng.vector(n);
            if n > 40 {
                let at = rng.below(n);
                x[at] = -0.0;
            }
            for wild in wild.iter().take(n) {
                let at = rng.below(n);
                x[at] = *wild;
            }
            let finite: Vec<f32> = x.iter().copied().filter(|x| x.is_finite()).collect();
            let expected = FiniteRange {
                min: finite.iter().copied().fold(f32::INFINITY, f32::min),
                max: finite.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                count: finite.len(),
            };
            for engine in engines() {
                assert_eq!(finite_range(&engine, &x), expected, "{engine:?} {n} {wild:?}");
            }
        }
    }
}
