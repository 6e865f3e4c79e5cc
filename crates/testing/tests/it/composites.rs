//! Every case of operators that the compiler lowers to simpler ones. It is compiled with the inputs' sizes known, then
//! with sizes that are only known at run time.
//!
//! `RUSHLIGHT_OP=aten::conv2d` runs the operators with this prefix, `RUSHLIGHT_FAILURES=50` lists up to 50 failures.

use rushlight_testing::composites::{Sizes, run};

fn settle(family: &str, sizes: Sizes) {
    let filter = std::env::var("RUSHLIGHT_OP").unwrap_or_default();
    let limit = std::env::var("RUSHLIGHT_FAILURES").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let outcome = run(family, sizes, &filter).unwrap_or_else(|error| panic!("{error}"));
    let mut text = String::new();
    for (op, failures) in &outcome.failed {
        text += &format!("{op}: {} cases\n", failures.len());
        for failure in failures.iter().take(limit) {
            text += &format!("    {}\n", failure.replace('\n', " | "));
        }
    }
    println!("{} cases pass, {} are left out", outcome.passed, outcome.left_out);
    assert!(text.is_empty(), "{} cases pass; not these:\n{text}", outcome.passed);
    assert!(outcome.passed > 0 || !filter.is_empty());
}

#[test]
fn structure_with_known_sizes() {
    settle("composites_structure", Sizes::Static);
}

#[test]
fn structure_with_symbolic_sizes() {
    settle("composites_structure", Sizes::Symbolic);
}

#[test]
fn mathematics_with_known_sizes() {
    settle("composites_math", Sizes::Static);
}

#[test]
fn mathematics_with_symbolic_sizes() {
    settle("composites_math", Sizes::Symbolic);
}

#[test]
fn beyond_core_with_known_sizes() {
    settle("composites_extra", Sizes::Static);
}

#[test]
fn beyond_core_with_symbolic_sizes() {
    settle("composites_extra", Sizes::Symbolic);
}

#[test]
fn structure_with_sizes_that_may_be_none() {
    settle("composites_structure", Sizes::PossiblyEmpty);
}

#[test]
fn mathematics_with_sizes_that_may_be_none() {
    settle("composites_math", Sizes::PossiblyEmpty);
}

#[test]
fn beyond_core_with_sizes_that_may_be_none() {
    settle("composites_extra", Sizes::PossiblyEmpty);
}

#[test]
fn structure_with_numbers_of_the_run() {
    settle("composites_structure", Sizes::StaticWithNumbers);
}

#[test]
fn mathematics_with_numbers_of_the_run() {
    settle("composites_math", Sizes::StaticWithNumbers);
}
