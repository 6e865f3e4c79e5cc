//! Compiles quantized exports for microcontrollers. The programs have the bits of ExecuTorch's own compilation of the same exports.

use std::path::{Path, PathBuf};

use rushlight::{BackendSpec, Compiler, Lower, Module};
use rushlight_testing::recorded::Recording;

/// The archives of `tests/corpus/1.5.1-cortex-m`, with the cores that ExecuTorch compiled each for.
const EXPORTS: [(&str, &[&str]); 6] = [
    ("dense", &["m4", "m55"]),
    ("cnn", &["m4", "m55"]),
    ("denoiser", &["m4", "m55"]),
    ("attention", &["m4", "m55"]),
    ("elementwise", &["m4"]),
    ("shapes", &["m4"]),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/1.5.1-cortex-m")
}

/// Compiles an archive for a core and a runtime. Returns the program, and the operators that no backend claims.
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
fn outputs_equal_those_of_executorchs_compilation() {
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
fn quantized_nodes_are_claimed() {
    for (name, _) in EXPORTS {
        let (_, portable) = compile(name, "m4", "rushlight");
        // The example adds 1 to a product that has no scale.
        let expected: &[&str] = if name == "elementwise" { &["aten::add.Tensor"] } else { &[] };
        assert_eq!(portable, expected, "{name}");
    }
}

/// ExecuTorch's `int8_io_m4` is the network of `cnn` after `QuantizeInputs` and `QuantizeOutputs`.
#[test]
fn inputs_and_outputs_may_be_integers() {
    let recording = Recording::open(&folder().join("int8_io_m4.json")).unwrap();
    let backend = BackendSpec::new("cortex-m").unwrap().option("io", "int8").unwrap();
    let program = Compiler::new().method("forward", folder().join("cnn.pt2")).backend(backend).compile().unwrap();
    let mut module = Module::builder().lower(Lower::Off).load_bytes(&program.to_bytes().unwrap()).unwrap();
    assert_eq!(recording.run(&mut module), Ok(2));
    for name in ["input0_scale", "input0_zp", "output0_scale", "output0_zp"] {
        assert_eq!(module.run(&format!("forward_{name}"), &[]).unwrap().len(), 1, "{name}");
    }
}

#[test]
fn a_program_is_smaller_than_executorchs() {
    let (bytes, _) = compile("cnn", "m4", "rushlight");
    let theirs = std::fs::metadata(folder().join("cnn_m4.pte")).unwrap().len();
    assert!(bytes.len() as u64 * 4 < theirs * 3, "{} bytes, ExecuTorch's {theirs}", bytes.len());
}
