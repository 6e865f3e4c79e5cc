use super::*;
use rushlight_engine::{Error, gather_elements};

#[test]
fn each_row_gives_its_own_elements() {
    let mut rng = Rng(19);
    for [rows, columns, k] in [[1, 1, 1], [3, 8, 2], [2, 5, 9], [0, 3, 2], [2, 3, 0]] {
        let x: Vec<f32> = (0..rows * columns).map(|_| rng.below(1000) as f32).collect();
        let index: Vec<f32> = (0..rows * k).map(|_| rng.below(columns) as f32).collect();
        let mut y = vec![f32::NAN; rows * k];
        gather_elements([rows, columns, k], &x, &index, &mut y).unwrap();
        for row in 0..rows {
            for at in 0..k {
                assert_eq!(y[row * k + at], x[row * columns + index[row * k + at] as usize]);
            }
        }
    }
}

#[test]
fn indices_outside_of_a_row_are_errors() {
    let x = [1.0, 2.0, 3.0, 4.0];
    for (index, reported) in [(-1.0, -1), (2.0, 2), (f32::NAN, 0), (1e30, i64::MAX)] {
        let mut y = [9.0; 2];
        let result = gather_elements([2, 2, 1], &x, &[0.0, index], &mut y);
        assert_eq!(result, Err(Error::Index { what: "index", index: reported, size: 2 }));
        assert_eq!(y, [9.0; 2], "nothing is written");
    }
    let short = gather_elements([2, 2, 1], &x, &[0.0], &mut [0.0; 2]);
    assert_eq!(short, Err(Error::Mismatch { what: "index", expected: 2, got: 1 }));
}
