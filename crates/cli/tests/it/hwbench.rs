//! `rushlight hwbench`, and the machine's limits in the profile: the figures exist and have the right names and order.
//! Their sizes depend on the machine and are not checked.

use std::process::Output;

use rushlight_engine::Isa;
use serde_json::Value as Json;

use crate::command;

fn rushlight(arguments: &[&str]) -> Output {
    let mut command = command::rushlight();
    command.env_remove("RUSHLIGHT_ISA").args(arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command writes UTF-8")
}

fn json(arguments: &[&str]) -> Json {
    let output = rushlight(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the command writes JSON")
}

fn array(json: &Json) -> &[Json] {
    json.as_array().expect("an array")
}

/// Asserts that a figure is a positive number.
fn assert_positive(json: &Json) {
    assert!(json.as_f64().is_some_and(|figure| figure > 0.0), "{json}");
}

#[test]
fn limits_and_kernels_are_measured() {
    let json = json(&["hwbench", "MobileNetV3", "--threads", "2", "--json"]);
    assert_positive(&json["machine"]["processors"]);
    assert_eq!(json["chosen_isa"], Isa::detect().name());
    let isas: Vec<&str> = Isa::available().map(Isa::name).collect();

    let limits = array(&json["limits"]);
    let order = [1, 2].iter().flat_map(|threads| isas.iter().map(move |isa| (*threads, *isa)));
    let found = limits.iter().map(|limits| (limits["threads"].as_i64(), limits["isa"].as_str()));
    assert!(found.eq(order.map(|(threads, isa)| (Some(threads), Some(isa)))), "{limits:#?}");
    for limits in limits {
        assert_positive(&limits["flops_per_s"]);
        assert_positive(&limits["bytes_per_s"]);
    }
    for reads in array(&json["reads"]) {
        assert_positive(&reads["memory_bytes_per_s"]);
        let sets = array(&reads["working_sets"]);
        assert!(sets.is_sorted_by_key(|set| set["bytes"].as_u64()));
        sets.iter().for_each(|set| assert_positive(&set["bytes_per_s"]));
    }

    let kernels = array(&json["kernels"]);
    assert_eq!(kernels.iter().map(|kernel| kernel["isa"].as_str().unwrap_or_default()).collect::<Vec<_>>(), isas);
    for kernel in kernels {
        assert_eq!((&kernel["kernel"], &kernel["threads"]), (&"depthwise".into(), &2.into()));
        assert_eq!(kernel["chosen"].as_bool(), Some(kernel["isa"] == Isa::detect().name()));
        for figure in ["ns", "flops_per_s", "bytes_per_s", "limit_share"] {
            assert_positive(&kernel[figure]);
        }
    }
}

#[test]
fn a_pipe_gets_a_plain_table() {
    let output = rushlight(&["hwbench", "small", "--threads", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(!stdout.contains('\x1b'), "{stdout}");
    assert!(!stdout.contains("2 threads"), "{stdout}");
    let names = ["processor ", "read from memory", "32x64x64 small", "of limit", "the fastest for "];
    for name in names.into_iter().chain(Isa::available().map(Isa::name)) {
        assert!(stdout.contains(name), "{name}: {stdout}");
    }
}

#[test]
fn what_nothing_is_named_after_is_an_error() {
    let output = rushlight(&["hwbench", "no such kernel", "--threads", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no such kernel"), "{}", text(&output.stderr));
    assert_eq!(rushlight(&["hwbench", "--threads", "many"]).status.code(), Some(2));
}

#[test]
fn steps_are_shown_beside_the_limits() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m/digits.pte");
    let run = ["run", model, "--lower", "cpu", "--threads", "1", "--profile"];
    let profile = &json(&[&run[..], &["--json"]].concat())["profile"];
    let [limits] = array(&profile["limits"]) else { panic!("one backend: {profile:#}") };
    assert_eq!(limits["device"], format!("{}, threads: 1", Isa::detect()));
    assert_positive(&limits["flops_per_s"]);
    assert_positive(&limits["bytes_per_s"]);
    let steps = array(&profile["steps"]);
    assert!(!steps.is_empty(), "{profile:#}");
    for step in steps {
        assert_positive(&step["limit_share"]);
        assert!(step["limit"] == "compute" || step["limit"] == "memory", "{step}");
    }

    let output = rushlight(&run);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    for name in ["of limit", "limits: ", "GB/s from memory"] {
        assert!(stdout.contains(name), "{name}: {stdout}");
    }
    assert!(stdout.contains(" % compute") || stdout.contains(" % memory"), "{stdout}");
}

#[test]
fn completions_know_the_command() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = rushlight(&["completions", shell]);
        assert!(text(&output.stdout).contains("hwbench"), "{shell}");
    }
}
