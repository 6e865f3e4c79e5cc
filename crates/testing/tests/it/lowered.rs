//! Every operator case that the CPU backend supports, lowered when its program is loaded.
//!
//! `RUSHLIGHT_OP=aten::add.out` runs one operator; `aten::add*` runs all with this prefix.

use rushlight_graph::operators::aten;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rushlight_testing::cases::{self, Case};
use rushlight_testing::program::Placement;
use rushlight_testing::runner::{self, FILTER, Lowered};
use rushlight_testing::views;

#[derive(Default)]
struct Tally {
    passed: usize,
    left: BTreeMap<String, usize>,
    failed: Vec<String>,
}

/// Runs all cases, and fails if results differ or fewer than `least` cases ran.
fn check(least: usize, run: impl Fn(&Case, usize) -> Lowered + Sync) {
    let filter = std::env::var(FILTER).ok();
    let mut all: Vec<Case> = Vec::new();
    for family in cases::families().expect("families of cases") {
        let cases = cases::read(&family).unwrap_or_else(|error| panic!("{family}: {error}"));
        all.extend(cases.into_iter().filter(|case| filter.as_deref().is_none_or(|f| runner::passes(f, &case.op))));
    }
    let (tally, next) = (Mutex::new(Tally::default()), AtomicUsize::new(0));
    let work = || {
        while let Some((number, case)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            all.get(number).map(|case| (number, case))
        } {
            let outcome = run(case, number);
            let mut tally = tally.lock().expect("no test thread panics");
            match outcome {
                Lowered::Passed => tally.passed += 1,
                Lowered::Left(reason) => *tally.left.entry(reason).or_default() += 1,
                Lowered::Differs(what) => tally.failed.push(format!("{} {}: {what}", case.op, case.name)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    let Tally { passed, left, failed } = tally.into_inner().expect("no test thread panics");
    println!("{passed} of {} cases run on the CPU backend; the others are left:", all.len());
    for (reason, count) in &left {
        println!("{count:>6}  {reason}");
    }
    assert!(failed.is_empty(), "{} cases differ:\n{}", failed.len(), failed.join("\n"));
    assert!(filter.is_some() || passed >= least, "only {passed} cases ran on the CPU backend");
}

#[test]
fn operators_that_are_lowered_give_the_expected_results() {
    let placements = [Placement::Planned, Placement::Unplanned, Placement::DynamicOutputs];
    check(900, |case, number| runner::run_lowered(case, placements[number % 3]));
}

/// Inputs with a storage offset, and with strides that are not dense.
#[test]
fn operators_give_the_expected_results_for_views() {
    let run = |case: &Case, dim| {
        // A resize stores its factors in f32 and then inverts them. PyTorch inverts them in f64: 1.7 results in another
        // index.
        if case.op == aten::UPSAMPLE_BILINEAR2D_VEC_OUT && case.name.starts_with("scale") {
            return Lowered::Left("its factors are rounded before they are inverted".to_owned());
        }
        views::run_on_views(case, dim)
    };
    check(900, |case, _| run(case, 0));
    check(900, |case, _| run(case, -1));
}
