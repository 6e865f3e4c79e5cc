//! Quantized exports, compiled for microcontrollers, against ExecuTorch's own compilation of the same exports: the same bits.

use std::path::{Path, PathBuf};

use rushlight::{BackendSpec, Compiler, Lower, Module};
use rushlight_testing::recorded::Recording;

/// The archives of `tests/corpus/1.5.1-cortex-m`, and the cores for which ExecuTorch compiled each.
const EXPORTS: [(&str, &[&str]); 5] = [
    ("dense", &["m4", "m55"]),
    ("cnn", &["m4", "m55"]),
    ("attention", &["m4", "m55"]),
    ("elementwise", &["m4"]),
    ("shapes", &["m4"]),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/1.5.1-cortex-m")
}

/// Compiles an archive for a core and a runtime.
fn compile(name: &str, core: &str, runtime: &str) -> (Vec<u8>, Vec<String>) {
    let backend =
        BackendSpec::new("cortex-m").unwrap().option("cpu", core).unwrap().option("runtime", runtime).unwrap();
    let program =
        Compiler::new().method("forward", folder().join(format!("{name}.pt2"))).backend(backend).compile().unwrap();
    let entries = program.compiled().report.entries.iter().filter(|entry| entry.claimant() == "portable");
    let portable = entries.map(|entry| entry.op.clone()).collect();
    (program.to_bytes().unwrap(), portable)
}

#[test]
fn outputs_are_those_of_executorchs_compilation() {
    for (name, cores) in EXPORTS {
        for core in cores {
            let recording = Recording::open(&folder().join(format!("{name}_{core}.json"))).unwrap();
            for runtime in ["rushlight", "executorch"] {
                let (bytes, _) = compile(name, core, runtime);
                let mut module = Module::builder().lower(Lower::Off).load_bytes(&bytes).unwrap();
                let calls = recording.run(&mut module).unwrap_or_else(|failure| panic!("{name}, {core}: {failure}"));
                assert_eq!(calls, 2);
            }
        }
    }
}

#[test]
fn every_node_of_a_quantized_model_is_claimed() {
    for (name, _) in EXPORTS {
        let (_, portable) = compile(name, "m4", "rushlight");
        // The example adds 1 to a product without a scale of its own.
        let expected: &[&str] = if name == "elementwise" { &["aten::add.Tensor"] } else { &[] };
        assert_eq!(portable, expected, "{name}");
    }
}

#[test]
fn programs_have_no_constant_that_nothing_reads() {
    for (name, cores) in EXPORTS {
        let (bytes, _) = compile(name, "m4", "rushlight");
        let theirs = std::fs::metadata(folder().join(format!("{name}_{}.pte", cores[0]))).unwrap().len();
        assert!((bytes.len() as u64) < theirs + 64, "{name}: {} bytes, ExecuTorch's {theirs}", bytes.len());
    }
}
