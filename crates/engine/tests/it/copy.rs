use super::*;
use rushlight_engine::{Copy, Error, Indices, Table, copy, fill, gather};

fn reference(copy: &Copy, x: &[f32], y: &mut [f32]) {
    for i in 0..copy.sizes.iter().product() {
        let (mut rest, mut from, mut to) = (i, copy.x_offset, copy.y_offset);
        for (d, size) in copy.sizes.iter().enumerate().rev() {
            from += rest % size * copy.x_strides[d];
            to += rest % size * copy.y_strides[d];
            rest /= size;
        }
        y[to] = x[from];
    }
}

/// Strides of a tensor whose dimensions are stored in random order, with some gaps.
fn strides(rng: &mut Rng, sizes: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i + 1));
    }
    let mut strides = vec![0; sizes.len()];
    let mut next = if rng.below(6) == 0 { 2 } else { 1 };
    for dim in order {
        strides[dim] = next;
        next = next * sizes[dim] + if rng.below(4) == 0 { 3 } else { 0 };
    }
    strides
}

#[test]
fn copies_every_element() {
    let mut rng = Rng(5);
    let mut shapes: Vec<Vec<usize>> = vec![vec![], vec![100_000], vec![200, 300], vec![3, 5000], vec![64, 7, 33]];
    for _ in 0..150 {
        shapes.push((0..=rng.below(5)).map(|_| rng.one_of(&[1, 2, 3, 7, 8, 9, 16, 17, 33])).collect());
    }
    shapes.push(vec![4, 0, 3]);
    for sizes in shapes.iter().flat_map(|sizes| [sizes; 4]) {
        let mut x_strides = strides(&mut rng, sizes);
        if rng.below(4) == 0 {
            x_strides.iter_mut().for_each(|stride| *stride *= rng.below(2));
        }
        let y_strides = strides(&mut rng, sizes);
        let what = Copy { sizes, x_offset: rng.below(3), x_strides: &x_strides, y_offset: 2, y_strides: &y_strides };
        let end = |strides: &[usize]| sizes.iter().zip(strides).map(|(n, s)| n.saturating_sub(1) * s).sum::<usize>();
        let x = rng.vector(what.x_offset + end(&x_strides) + 1);
        let blank = rng.vector(what.y_offset + end(&y_strides) + 5);
        let mut expected = blank.clone();
        reference(&what, &x, &mut expected);
        for engine in engines() {
            let mut y = blank.clone();
            copy(&engine, &what, &x, &mut y).unwrap();
            assert!(y == expected, "{engine:?} {what:?}");
        }
    }
}

#[test]
fn the_last_index_wins() {
    let what = Copy { sizes: &[4], x_offset: 0, x_strides: &[1], y_offset: 0, y_strides: &[0] };
    for engine in engines() {
        let mut y = [0.0];
        copy(&engine, &what, &[1.0, 2.0, 3.0, 4.0], &mut y).unwrap();
        assert_eq!(y, [4.0]);
    }
}

#[test]
fn copies_refuse_short_slices() {
    let engine = Engine::new(1);
    let what = Copy { sizes: &[2, 3], x_offset: 1, x_strides: &[3, 1], y_offset: 0, y_strides: &[1, 2] };
    let mismatch = |what, expected, got| Err(Error::Mismatch { what, expected, got });
    assert_eq!(copy(&engine, &what, &[0.0; 7], &mut [0.0; 6]), Ok(()));
    assert_eq!(copy(&engine, &what, &[0.0; 6], &mut [0.0; 6]), mismatch("x", 7, 6));
    assert_eq!(copy(&engine, &what, &[0.0; 7], &mut [0.0; 5]), mismatch("y", 6, 5));
    let short = Copy { y_strides: &[1], ..what };
    assert_eq!(copy(&engine, &short, &[0.0; 7], &mut [0.0; 6]), mismatch("strides", 2, 1));
    let huge = Copy { x_strides: &[usize::MAX, 1], ..what };
    assert_eq!(copy(&engine, &huge, &[0.0; 7], &mut [0.0; 6]), Err(Error::Size { what: "x strides" }));
}

#[test]
fn fills_all() {
    for engine in engines() {
        let mut y = vec![0.0; 100_001];
        fill(&engine, &mut y, 1.5).unwrap();
        assert!(y.iter().all(|y| *y == 1.5));
    }
}

#[test]
fn gathers_rows() {
    let mut rng = Rng(6);
    for columns in [1, 3, 16, 100] {
        let table = rng.vector(50 * columns);
        let indices: Vec<i64> = (0..700).map(|_| rng.below(50) as i64).collect();
        let expected: Vec<f32> =
            indices.iter().flat_map(|&i| &table[i as usize * columns..][..columns]).copied().collect();
        let narrow: Vec<i32> = indices.iter().map(|&i| i as i32).collect();
        for engine in engines() {
            for indices in [Indices::from(&indices[..]), Indices::from(&narrow[..])] {
                let mut y = vec![0.0; 700 * columns];
                gather(&engine, columns, Table::Floats(&table), indices, &mut y).unwrap();
                assert!(y == expected, "{engine:?} {columns}");
            }
        }
    }
    let engine = Engine::new(1);
    let mut y = [0.0; 2];
    let index = |index| Err(Error::Index { what: "index", index, size: 2 });
    assert_eq!(gather(&engine, 2, Table::Floats(&[0.0; 4]), &[2i64][..], &mut y), index(2));
    assert_eq!(gather(&engine, 2, Table::Floats(&[0.0; 4]), &[-1i32][..], &mut y), index(-1));
    let short = Err(Error::Mismatch { what: "y", expected: 4, got: 2 });
    assert_eq!(gather(&engine, 2, Table::Floats(&[0.0; 4]), &[0i64, 1][..], &mut y), short);
}
