//! `--memory-limit` and `--time-limit`, for files from strangers.

use crate::command::{CORPUS, EXAMPLE, at, fails, folder, succeeds};

#[test]
fn limits_hold_wherever_a_program_is_loaded_or_run() {
    let folder = folder("limits");
    let (model, program) = (format!("{EXAMPLE}/digits.pt2"), at(&folder, "digits.pte"));
    succeeds(&["compile", &model, "-o", &program]);
    let runs: [&[&str]; 5] = [
        &["run", &program, "--lower", "off"],
        &["run", &program, "--lower", "cpu"],
        &["run", &program, "--json"],
        &["bench", &program, "-n", "1"],
        &["compare", &model, &program],
    ];
    for run in runs {
        fails(&[run, &["--memory-limit", "100"]].concat(), 8, &["MemoryAllocationFailed"]);
        fails(&[run, &["--time-limit", "1ns"]].concat(), 8, &["the time limit of"]);
        succeeds(&[run, &["--memory-limit", "1GB", "--time-limit", "10min"]].concat());
    }
    for load in [["validate", &program], ["size", &program]] {
        fails(&[&load[..], &["--memory-limit", "100"]].concat(), 8, &["MemoryAllocationFailed"]);
        succeeds(&[&load[..], &["--memory-limit", "64MiB"]].concat());
    }
}

#[test]
fn limits_have_units() {
    let program = format!("{CORPUS}/1.5.1/add.pte");
    for limit in ["65536", "100kB", "64KiB", "1mb", "2 GB", "1TiB"] {
        succeeds(&["run", &program, "--memory-limit", limit]);
    }
    for limit in ["0", "-1", "", "1.5GB", "10 apples", "MB", "99999999999999999999", "99999999999TB"] {
        fails(&["run", &program, &format!("--memory-limit={limit}")], 2, &["64MiB"]);
    }
    for limit in ["10", "0.5", "2s", "500ms", "2 min", "1h", "100000us"] {
        succeeds(&["run", &program, "--time-limit", limit]);
    }
    for limit in ["0", "0ms", "-1", "", "nan", "inf", "1e300s", "soon", "3 weeks"] {
        fails(&["run", &program, &format!("--time-limit={limit}")], 2, &["500ms"]);
    }
}
