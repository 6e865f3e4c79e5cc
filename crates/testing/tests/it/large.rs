//! Reductions and sorts of more elements than the recorded cases have, against sums and sorts in `f64`.

use rushlight_format::ScalarType;
use rushlight_graph::operators::aten;
use rushlight_testing::cases::{Arg, Case, Check, TensorData};
use rushlight_testing::program::Placement;
use rushlight_testing::runner::run_case;

fn tensor<T: Copy, const N: usize>(
    dtype: ScalarType,
    sizes: &[usize],
    elements: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> TensorData {
    let dim_order = (0..sizes.len()).map(|dim| dim as u8).collect();
    TensorData { dtype, sizes: sizes.to_vec(), dim_order, bytes: elements.iter().flat_map(|&x| bytes(x)).collect() }
}

fn floats(sizes: &[usize], elements: &[f32]) -> TensorData {
    tensor(ScalarType::Float, sizes, elements, f32::to_le_bytes)
}

fn longs(sizes: &[usize], elements: &[i64]) -> TensorData {
    tensor(ScalarType::Long, sizes, elements, i64::to_le_bytes)
}

/// The same numbers in every run, from `low` on, `width` wide, in steps of 2^-20 of the width.
fn numbers(count: usize, low: f32, width: f32) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + width * (state >> 44) as f32 / 1_048_576.0
    };
    (0..count).map(|_| next()).collect()
}

fn check(op: &str, mut args: Vec<Arg>, expect: Vec<TensorData>, rtol: f64) {
    args.extend((0..expect.len()).map(Arg::Out));
    let case = Case {
        op: op.to_owned(),
        name: "large".to_owned(),
        args,
        expect: expect.into_iter().map(Arg::Tensor).collect(),
        check: Check::Values,
        magnitude: None,
        tolerance: Some((rtol, 0.0)),
        unspecified: Vec::new(),
    };
    if let Err(what) = run_case(&case, Placement::Planned) {
        panic!("{op}: {what}");
    }
}

fn sum(elements: impl Iterator<Item = f32>) -> f64 {
    elements.map(f64::from).sum()
}

const ROWS: usize = 1_000_000;

#[test]
fn the_sum_of_a_million_floats_is_accurate() {
    let x = numbers(ROWS, 0.0, 1.0);
    let expect = floats(&[], &[sum(x.iter().copied()) as f32]);
    let args = vec![Arg::Tensor(floats(&[ROWS], &x)), Arg::IntList(vec![0]), Arg::Bool(false), Arg::None];
    check(aten::SUM_INTLIST_OUT, args, vec![expect], 5e-7);
}

#[test]
fn sums_of_a_million_rows_are_accurate() {
    for columns in [1, 3] {
        let x = numbers(ROWS * columns, 0.0, 1.0);
        let sums: Vec<f32> =
            (0..columns).map(|column| sum(x.iter().copied().skip(column).step_by(columns)) as f32).collect();
        let args = vec![Arg::Tensor(floats(&[ROWS, columns], &x)), Arg::IntList(vec![0]), Arg::Bool(false), Arg::None];
        check(aten::SUM_INTLIST_OUT, args, vec![floats(&[columns], &sums)], 5e-6);
    }
}

#[test]
fn the_variance_about_a_large_mean_is_accurate() {
    let x = numbers(100_000, 1000.0, 1.0);
    let mean = sum(x.iter().copied()) / x.len() as f64;
    let squares: f64 = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum();
    let var = (squares / (x.len() - 1) as f64) as f32;
    for sizes in [vec![100_000], vec![400, 250]] {
        let args = vec![Arg::Tensor(floats(&sizes, &x)), Arg::None, Arg::None, Arg::Bool(false)];
        let expect = vec![floats(&[], &[var]), floats(&[], &[mean as f32])];
        check(aten::VAR_MEAN_CORRECTION_OUT, args, expect, 1e-5);
    }
}

#[test]
fn equal_elements_keep_their_order() {
    // Few distinct values, so that there are many ties.
    let x: Vec<f32> = numbers(50_000, -8.0, 16.0).into_iter().map(f32::trunc).collect();
    for descending in [false, true] {
        let mut order: Vec<usize> = (0..x.len()).collect();
        order.sort_by(|&a, &b| {
            let ordering = x[a].partial_cmp(&x[b]).unwrap_or(std::cmp::Ordering::Equal);
            let ordering = if descending { ordering.reverse() } else { ordering };
            ordering.then(a.cmp(&b))
        });
        let values: Vec<f32> = order.iter().map(|&i| x[i]).collect();
        let positions: Vec<i64> = order.iter().map(|&i| i as i64).collect();
        let expect = || vec![floats(&[x.len()], &values), longs(&[x.len()], &positions)];
        let input = || Arg::Tensor(floats(&[x.len()], &x));
        check(aten::SORT_VALUES, vec![input(), Arg::Int(0), Arg::Bool(descending)], expect(), 0.0);
        let args = vec![input(), Arg::Bool(true), Arg::Int(0), Arg::Bool(descending)];
        check(aten::SORT_VALUES_STABLE, args, expect(), 0.0);
        for k in [10, 40, 30_000] {
            let expect = vec![floats(&[k], &values[..k]), longs(&[k], &positions[..k])];
            let args = vec![input(), Arg::Int(k as i64), Arg::Int(-1), Arg::Bool(descending), Arg::Bool(true)];
            check(aten::TOPK_VALUES, args, expect, 0.0);
        }
    }
}
