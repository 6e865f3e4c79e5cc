//! Every operator case, through a real program. One test a family; failures are listed by operator.
//!
//! `RUSHLIGHT_OP=aten::add.out` runs one operator (`aten::add*` all that start so), `RUSHLIGHT_FAILURES=50` lists so
//! many failures of each, and `UPDATE_DOCS=1` rewrites `docs/operators.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use rushlight_testing::runner::{FILTER, Tally, run_family};
use rushlight_testing::{cases, page};

type Report = BTreeMap<String, Tally>;

/// The operators that are missing and the cases that differ, as a test shows them.
struct Unsettled(String);

impl std::fmt::Debug for Unsettled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn settle(report: &Report) -> Result<(), Unsettled> {
    let limit = std::env::var("RUSHLIGHT_FAILURES").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let mut text = String::new();
    for (op, tally) in report {
        if tally.missing {
            text += &format!("{op}: missing\n");
        } else if !tally.failed.is_empty() {
            text += &format!("{op}: {} of {} cases\n", tally.failed.len(), tally.failed.len() + tally.passed);
            for failure in tally.failed.iter().take(limit) {
                text += &format!("    {failure}\n");
            }
        }
    }
    let passed: usize = report.values().map(|t| t.passed).sum();
    if text.is_empty() { Ok(()) } else { Err(Unsettled(format!("{passed} cases pass; not these:\n{text}"))) }
}

macro_rules! families {
    ($($family:ident)*) => {
        fn report(family: &str) -> &'static Report {
            match family {
                $(stringify!($family) => {
                    static REPORT: OnceLock<Report> = OnceLock::new();
                    REPORT.get_or_init(|| run_family(family).unwrap_or_else(|e| panic!("{e}")))
                })*
                other => panic!("no test for the family {other}"),
            }
        }

        const FAMILIES: &[&str] = &[$(stringify!($family)),*];

        $(#[test]
        fn $family() -> Result<(), Unsettled> {
            settle(report(stringify!($family)))
        })*
    };
}

families! {
    activation aten_extra comparison convolutions copies core_extra cortex_m counting creation elementwise_binary elementwise_unary experts
    indexing joins linalg llama matmuls norms prim quantized reductions special views
}

#[test]
fn every_family_has_a_test() {
    assert_eq!(cases::families().unwrap(), FAMILIES);
}

#[test]
fn the_operators_page_is_up_to_date() {
    if std::env::var_os(FILTER).is_some() {
        return;
    }
    let all: Report = FAMILIES.iter().flat_map(|family| report(family).clone()).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators.md");
    let text = page::render(&all, &cases::manifest().unwrap().skipped);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap();
    } else {
        let current = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(current == text, "docs/operators.md is not up to date: run with UPDATE_DOCS=1");
    }
}
