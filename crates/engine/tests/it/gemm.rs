use super::*;
use rushlight_engine::{Error, Gemm, Matmul, gemm, matmul, matmul_scratch, pack};

fn reference(g: &Gemm, a: &[f32], b: &[f32], epilogue: &OwnedEpilogue) -> Vec<f64> {
    let mut c = Vec::with_capacity(g.m * g.n);
    for m in 0..g.m {
        for n in 0..g.n {
            let sum = (0..g.k).map(|k| f64::from(a[m * g.a_stride + k]) * f64::from(b[k * g.n + n])).sum();
            c.push(epilogue.apply(m, n, sum));
        }
    }
    c
}

#[test]
fn agrees_with_f64() {
    let mut rng = Rng(1);
    let engines: Vec<Engine> = engines().collect();
    let mut shapes: Vec<[usize; 3]> = Vec::new();
    for m in [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 31, 33] {
        for n in [1, 15, 16, 17, 31, 33, 64] {
            shapes.push([m, n, rng.one_of(&[0, 1, 2, 7, 16, 33])]);
        }
    }
    shapes.extend([
        [1, 100, 700],
        [2, 33, 400],
        [3, 16, 1000],
        [97, 65, 385],
        [30, 40, 769],
        [300, 20, 512],
        [201, 130, 64],
    ]);
    for [m, n, k] in shapes {
        let g = Gemm { m, n, k, a_stride: k + rng.below(3), c_stride: n + rng.below(3) };
        let (a, b) = (rng.vector(m * g.a_stride), rng.vector(k * n));
        let packed = pack::matrix_f32(k, n, |k, n| b[k * g.n + n]);
        let epilogue = OwnedEpilogue::random(&mut rng, m, n);
        let expected = reference(&g, &a, &b, &epilogue);
        let mut single: Option<(Isa, Vec<f32>)> = None;
        for engine in &engines {
            let mut c = vec![f32::NAN; m * g.c_stride];
            gemm(engine, &g, &a, &packed, &mut c, &epilogue.epilogue()).unwrap();
            let rows = c.chunks_exact(g.c_stride);
            let got: Vec<f32> = rows.clone().flat_map(|row| &row[..n]).copied().collect();
            assert_close(&got, &expected, rounding(k), &(engine, g, epilogue.activation));
            assert!(rows.flat_map(|row| &row[n..]).all(|x| x.is_nan()), "{engine:?} {g:?} wrote between rows");
            match &single {
                Some((isa, single)) if *isa == engine.isa() && engine.threads() > 1 => {
                    assert!(single.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits()), "{engine:?} {g:?}");
                }
                _ => single = Some((engine.isa(), got)),
            }
        }
    }
}

#[test]
fn nan_and_infinity_pass_through() {
    for engine in engines() {
        let packed = pack::matrix_f32(1, 3, |_, n| [f32::NAN, f32::INFINITY, 1.0][n]);
        let mut c = [0.0; 3];
        gemm(&engine, &Gemm::new(1, 3, 1), &[1.0], &packed, &mut c, &Epilogue::default()).unwrap();
        assert!(c[0].is_nan() && c[1] == f32::INFINITY && c[2] == 1.0, "{engine:?}: {c:?}");
        for &activation in ACTIVATIONS {
            let epilogue = Epilogue { activation, ..Epilogue::default() };
            gemm(&engine, &Gemm::new(1, 3, 1), &[1.0], &packed, &mut c, &epilogue).unwrap();
            assert!(c[0].is_nan() && !c[1].is_nan(), "{engine:?} {activation:?}: {c:?}");
        }
    }
}

#[test]
fn refuses_short_slices() {
    let engine = Engine::new(1);
    let packed = pack::matrix_f32(4, 17, |_, _| 1.0);
    let (a, mut c) = ([1.0; 8], [0.0; 34]);
    let g = Gemm::new(2, 17, 4);
    assert_eq!(gemm(&engine, &g, &a, &packed, &mut c, &Epilogue::default()), Ok(()));
    assert_eq!(c, [4.0; 34]);
    let mismatch = |what, expected, got| Err(Error::Mismatch { what, expected, got });
    assert_eq!(gemm(&engine, &g, &a[1..], &packed, &mut c, &Epilogue::default()), mismatch("a", 8, 7));
    assert_eq!(gemm(&engine, &g, &a, &packed[1..], &mut c, &Epilogue::default()), mismatch("packed weights", 128, 127));
    assert_eq!(gemm(&engine, &g, &a, &packed, &mut c[1..], &Epilogue::default()), mismatch("c", 34, 33));
    let overlapping = Gemm { c_stride: 16, ..g };
    assert_eq!(gemm(&engine, &overlapping, &a, &packed, &mut c, &Epilogue::default()), mismatch("c stride", 17, 16));
    let bias = Epilogue { bias: Some(&[0.0; 16]), ..Epilogue::default() };
    assert_eq!(gemm(&engine, &g, &a, &packed, &mut c, &bias), mismatch("bias", 17, 16));
    let huge = Gemm { a_stride: usize::MAX, ..g };
    assert!(gemm(&engine, &huge, &a, &packed, &mut c, &Epilogue::default()).is_err());
    let huge = Gemm { k: usize::MAX / 2, ..g };
    assert!(gemm(&engine, &huge, &a, &packed, &mut c, &Epilogue::default()).is_err());
}

#[test]
fn batches_agree_with_f64() {
    let mut rng = Rng(6);
    let engines: Vec<Engine> = engines().collect();
    for round in 0..60 {
        let batch = [1 + rng.below(3), 1 + rng.below(4)];
        let [m, n, k] = [0; 3].map(|_| rng.one_of(&[1, 3, 7, 16, 17, 33]));
        // As in attention: rows of all heads interleaved, then images.
        let b_is_transposed = round % 2 == 0;
        let (b_rows, b_columns) = if b_is_transposed { (n, k) } else { (k, n) };
        let heads = batch[1];
        let mut shape = Matmul {
            batch,
            scale: 0.5,
            a_stride: heads * k,
            b_stride: heads * b_columns,
            c_stride: heads * n,
            a_batch: [m * heads * k, k],
            b_batch: [b_rows * heads * b_columns, b_columns],
            c_batch: [m * heads * n, n],
            residual_batch: [0, m * n],
            ..Matmul::new(1, m, n, k, b_is_transposed)
        };
        if rng.below(3) == 0 {
            shape.b_batch = [0, 0];
        }
        let a = rng.vector(batch[0] * m * heads * k);
        let b = rng.vector(batch[0] * b_rows * heads * b_columns);
        let mut epilogue = OwnedEpilogue::random(&mut rng, heads * m, n);
        if let Some((_, stride)) = &mut epilogue.residual {
            *stride = n;
        }
        let mut expected = vec![0.0; batch[0] * m * heads * n];
        for (x, y) in (0..batch[0]).flat_map(|x| (0..heads).map(move |y| (x, y))) {
            for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
                let a = &a[x * shape.a_batch[0] + y * shape.a_batch[1] + row * shape.a_stride..];
                let b = &b[x * shape.b_batch[0] + y * shape.b_batch[1]..];
                let b_of = |i: usize| {
                    if b_is_transposed { b[column * shape.b_stride + i] } else { b[i * shape.b_stride + column] }
                };
                let sum: f64 = (0..k).map(|i| f64::from(a[i]) * f64::from(b_of(i)) * 0.5).sum();
                let at = x * shape.c_batch[0] + y * shape.c_batch[1] + row * shape.c_stride + column;
                expected[at] = epilogue.apply(y * m + row, column, sum);
            }
        }
        for engine in &engines {
            let mut c = vec![f32::NAN; expected.len()];
            let mut scratch = vec![f32::NAN; matmul_scratch(engine, &shape).unwrap()];
            matmul(engine, &shape, &a, &b, &mut c, &epilogue.epilogue(), &mut scratch).unwrap();
            assert_close(&c, &expected, rounding(k), &(engine, shape));
        }
        let overlapping = Matmul { c_batch: [shape.c_batch[0], n - 1], ..shape };
        if heads > 1 {
            let mut c = vec![0.0; expected.len()];
            let mut scratch = vec![0.0; matmul_scratch(&engines[0], &shape).unwrap()];
            assert!(matmul(&engines[0], &overlapping, &a, &b, &mut c, &epilogue.epilogue(), &mut scratch).is_err());
        }
    }
}
