use super::*;
use rushlight_engine::{Error, top_k};

#[test]
fn the_largest_elements_come_first() {
    let mut rng = Rng(18);
    for [rows, columns, k] in [[1, 1, 1], [3, 8, 2], [2, 5, 5], [4, 128, 8], [0, 3, 2], [2, 3, 0]] {
        // Of few numbers, so that some are equal.
        let x: Vec<f32> = (0..rows * columns).map(|_| rng.below(6) as f32 - 2.0).collect();
        let (mut values, mut indices) = (vec![f32::NAN; rows * k], vec![f32::NAN; rows * k]);
        top_k([rows, columns, k], &x, &mut values, &mut indices).unwrap();
        for row in 0..rows {
            let row_of_x = &x[row * columns..][..columns];
            let mut expected: Vec<usize> = (0..columns).collect();
            expected.sort_by(|a, b| row_of_x[*b].total_cmp(&row_of_x[*a]));
            for at in 0..k {
                assert_eq!(indices[row * k + at], expected[at] as f32, "{x:?}");
                assert_eq!(values[row * k + at], row_of_x[expected[at]]);
            }
        }
    }
}

#[test]
fn nan_is_the_largest_and_short_slices_are_errors() {
    let (mut values, mut indices) = ([0.0; 2], [0.0; 2]);
    top_k([1, 3, 2], &[1.0, f32::NAN, f32::INFINITY], &mut values, &mut indices).unwrap();
    assert!(values[0].is_nan());
    assert_eq!((values[1], indices), (f32::INFINITY, [1.0, 2.0]));
    let short = top_k([1, 3, 2], &[0.0; 2], &mut values, &mut indices);
    assert_eq!(short, Err(Error::Mismatch { what: "x", expected: 3, got: 2 }));
    let more = top_k([1, 1, 2], &[0.0; 2], &mut values, &mut indices);
    assert_eq!(more, Err(Error::Mismatch { what: "columns", expected: 2, got: 1 }));
}
