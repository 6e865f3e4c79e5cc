//! Whole models that `tools/models/generate.py` exported as `.pt2`, compiled, run, and compared with eager PyTorch.
//!
//! Ignored by default, because the models are generated: `cargo xtask test models` generates and compiles them. The
//! folder is `target/models`, or the one in RUSHLIGHT_MODELS; RUSHLIGHT_ONLY lists the names to run, separated by
//! commas.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rushlight::{Code, Compiler, Lower, Module, Quantization, Scheme, Value};
use rushlight_compiler::ConstantResult;
use rushlight_compiler::emit::ExternalWeights;
use rushlight_compiler::memory::{lower_bound, recover};
use rushlight_format::pte::Program;
use rushlight_graph::{Constant, Literal, TensorType};
use rushlight_testing::page::put_head;
use rushlight_testing::recorded::{self, Recording};

fn recordings() -> Vec<Recording> {
    let mut recordings = recorded::wanted("RUSHLIGHT_MODELS", "models");
    recordings.retain(|recording| !recording.exported().is_empty());
    recordings
}

/// The beginning of `docs/models.md`, which a run with UPDATE_DOCS writes.
const PAGE: &str = "\
# Models

`tools/models/generate.py` exports these models with random weights. A test compiles and runs them, and compares the results
with eager PyTorch. Each model is compiled twice: straight from `torch.export.export`, and after `run_decompositions()`.
Planned bytes are those of the decomposed form. The next column is the plan of ExecuTorch's own compiler (portable, with
inputs and outputs planned by both or by neither). The last column is a lower bound for Rushlight's plan. It is the maximum sum of
the bytes in use at a time, in the order of the instructions.

`UPDATE_DOCS=1 cargo test -p rushlight-testing --test it compile -- --ignored` writes this page, after
`cargo xtask test models-whole`.

| model | exported | decomposed | planned bytes | ExecuTorch plans | in use at most |
|---|---|---|--:|--:|--:|
";

/// Models whose methods share their buffers.
const SHARED_STATE: &[&str] = &["shared_state"];

/// Models that are compiled again with their weights in one `.ptd` file. The wheel's bindings accept no more than one.
const EXTERNAL_WEIGHTS: &[&str] = &["external_one", "external_two", "llama_hf", "mobilenet_v3_small", "tied_weights"];

/// A model whose compiled program agreed with PyTorch.
struct Agreed {
    calls: usize,
    seconds: f64,
    planned: u64,
    /// The peak of the bytes in use, summed over all methods.
    in_use: u64,
}

/// Compiles one of the two forms and makes the recorded calls. With RUSHLIGHT_SAVE, the program is saved beside the
/// recorded calls in a folder there, for other runtimes to run.
fn compile_and_run(
    recording: &Recording,
    form: usize,
    label: &str,
    external: bool,
    backend: Option<&str>,
) -> Result<Agreed, String> {
    let share_state = SHARED_STATE.contains(&recording.name.as_str());
    let mut compiler = Compiler::new().share_state(share_state);
    if let Some(backend) = backend {
        compiler = compiler.backend(backend);
    }
    for (method, files) in recording.exported() {
        compiler = compiler.method(method, &files[form]);
    }
    for (method, value) in recording.constant_methods()? {
        compiler = compiler.constant(method, constant(value)?);
    }
    if let Some(planning) = recording.planning_by_executorch()? {
        let emit = &mut compiler.options().emit;
        (emit.plan_inputs, emit.plan_outputs) = (planning.inputs, planning.outputs);
    }
    if external {
        compiler = compiler.external_weights(ExternalWeights::all());
    }
    let start = Instant::now();
    let compiled = compiler.compile().map_err(|e| e.to_string())?;
    let file = compiled.to_bytes().map_err(|e| e.to_string())?;
    let data = compiled.external_data().map_err(|e| e.to_string())?;
    let report = &compiled.compiled().report;
    if report.entries.iter().any(|entry| entry.is_returned) {
        return Err(format!("nodes were claimed and not compiled:\n{report}"));
    }
    let seconds = start.elapsed().as_secs_f64();
    // Other runtimes have the portable operators only.
    if let (Some(root), None) = (std::env::var_os("RUSHLIGHT_SAVE"), backend) {
        save(recording, &Path::new(&root).join(format!("{}-{label}", recording.name)), &file, &data)
            .map_err(|e| e.to_string())?;
    }
    let mut builder = Module::builder().lower(Lower::Off);
    for (_, bytes) in &data {
        builder = builder.external_data_bytes(bytes).map_err(|e| format!("load: {e}"))?;
    }
    let mut module = builder.load_bytes(&file).map_err(|e| format!("load: {e}"))?;
    let calls = recording.run(&mut module).map_err(|e| format!("run: {e}"))?;
    if backend.is_some() {
        let scratch = Scratch::new(&format!("{}-{label}", recording.name));
        let path = scratch.0.join("model.pte");
        compiled.save(&path).map_err(|e| e.to_string())?;
        let mut module = Module::builder().lower(Lower::Off).load(&path);
        let module = module.as_mut().map_err(|e| format!("load from a file: {e}"))?;
        recording.run(module).map_err(|e| format!("run from a file: {e}"))?;
    }
    let planned = compiled.compiled().program.methods.iter().flat_map(|plan| &plan.buffer_sizes).sum();
    Ok(Agreed { calls, seconds, planned, in_use: in_use(&file)? })
}

/// A folder that is removed when the value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rushlight-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The peak of the bytes in use, summed over all methods of a program.
fn in_use(file: &[u8]) -> Result<u64, String> {
    let program = Program::parse(file).map_err(|e| e.to_string())?;
    Ok(program.methods().flat_map(|plan| lower_bound(&recover(&plan).buffers).into_values()).sum())
}

fn constant(value: Value) -> Result<ConstantResult, String> {
    Ok(ConstantResult::Literal(match value {
        Value::Int(v) => Literal::Int(v),
        Value::Double(v) => Literal::Float(v),
        Value::Bool(v) => Literal::Bool(v),
        Value::None => Literal::None,
        Value::String(v) => Literal::Str(v),
        Value::Tensor(tensor) => {
            let sizes: Vec<i64> = tensor.shape().iter().map(|size| *size as i64).collect();
            let ty = TensorType::of(tensor.dtype(), &sizes);
            let constant = Constant::dense("constant", ty, tensor.bytes().to_vec()).map_err(|e| e.to_string())?;
            return Ok(ConstantResult::Tensor(constant));
        }
    }))
}

fn save(recording: &Recording, folder: &Path, file: &[u8], data: &[(String, Vec<u8>)]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(recording.folder())?.flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().ends_with(".npz") || name == "cases.json" {
            std::fs::copy(entry.path(), folder.join(name))?;
        }
    }
    let cases = std::fs::read_to_string(folder.join("cases.json"))?;
    let mut cases: serde_json::Value = serde_json::from_str(&cases)?;
    cases["program"] = "model.pte".into();
    cases["data"] = data.iter().map(|(name, _)| name.as_str()).collect();
    for (name, bytes) in data {
        std::fs::write(folder.join(name), bytes)?;
    }
    std::fs::write(folder.join("cases.json"), cases.to_string())?;
    std::fs::write(folder.join("model.pte"), file)
}

#[test]
#[ignore = "needs the generated models"]
fn compiled_models_give_the_recorded_results() {
    let recordings = recordings();
    let mut failures = Vec::new();
    let mut page = String::from(PAGE);
    let (mut ours, mut theirs) = (0, 0);
    for recording in &recordings {
        let mut cells = Vec::new();
        let mut plans = String::from("| |");
        for (form, label) in ["exported", "decomposed"].iter().enumerate() {
            let result = compile_and_run(recording, form, label, false, None);
            match (result, recording.unsupported()) {
                (Ok(Agreed { calls, seconds, planned, in_use }), None) => {
                    cells.push(format!("{calls} calls agree"));
                    let executorch = recording.planned_by_executorch();
                    let executorch: Option<u64> =
                        executorch.map(|methods| methods.iter().map(|(_, bytes)| bytes).sum());
                    let beside =
                        executorch.map_or_else(String::new, |bytes| format!(", plans {planned} of {bytes} bytes"));
                    println!("{} {label}: {calls} calls agree, {:.1} ms{beside}", recording.name, seconds * 1e3);
                    let beside = executorch.map_or_else(String::new, |bytes| bytes.to_string());
                    plans = format!("{planned} | {beside} | {in_use}");
                    if let Some(bytes) = executorch {
                        if planned > bytes {
                            failures.push(format!("{} {label}: plans {planned} of {bytes} bytes", recording.name));
                        }
                        ours += planned;
                        theirs += bytes;
                    }
                }
                (Err(error), Some(operator)) if error.contains(operator) => {
                    cells.push(format!("refused: no kernel for `{operator}`"));
                    println!("{} {label}: refused, as it must be", recording.name);
                }
                (Err(failure), _) => {
                    failures.push(format!("{} {label}: {}", recording.name, failure.replace('\n', " | ")));
                }
                (Ok(_), Some(operator)) => {
                    failures.push(format!("{} {label}: compiled, despite `{operator}`", recording.name));
                }
            }
        }
        page += &format!("| {} | {} | {plans} |\n", recording.name, cells.join(" | "));
    }
    let total = recordings.len() * 2;
    page += &format!("\nPlanned in total: {ours} bytes, where ExecuTorch's compiler plans {theirs}.\n");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let programs = recordings.iter().filter(|recording| recording.has_program()).count();
        assert!(programs >= 190, "docs/models.md needs ExecuTorch's programs of all models, {programs} are there");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
        put_head(&path, &page).unwrap();
    }
    println!("{} of {total} compile and agree, or are refused as they must be", total - failures.len());
    println!("planned {ours} bytes where ExecuTorch's compiler plans {theirs}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
#[ignore = "needs the generated models"]
fn weights_outside_of_the_program_give_the_recorded_results() {
    for recording in recordings().iter().filter(|recording| EXTERNAL_WEIGHTS.contains(&recording.name.as_str())) {
        let result = compile_and_run(recording, 1, "external", true, None);
        let agreed = result.unwrap_or_else(|error| panic!("{}: {error}", recording.name));
        println!("{}: {} calls agree", recording.name, agreed.calls);
    }
}

#[test]
#[ignore = "needs the generated models"]
fn models_for_the_cpu_back_end_give_the_recorded_results() {
    let mut failures = Vec::new();
    let (mut programs, mut calls) = (0, 0);
    for recording in recordings().iter().filter(|recording| recording.unsupported().is_none()) {
        for (form, label) in ["exported-cpu", "decomposed-cpu"].iter().enumerate() {
            match compile_and_run(recording, form, label, false, Some("cpu")) {
                Ok(agreed) => {
                    programs += 1;
                    calls += agreed.calls;
                }
                Err(failure) => match recording.differs_on_cpu(&failure) {
                    Some(reason) => println!("{} {label}: differs, {reason}", recording.name),
                    None => failures.push(format!("{} {label}: {}", recording.name, failure.replace('\n', " | "))),
                },
            }
        }
    }
    println!("{programs} programs, {calls} calls");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// The outcome of quantizing a model.
enum Quantized {
    Calls(usize),
    /// The scheme applies to nothing in it, or the compiler lacks a feature.
    Refused(String),
}

/// Quantizes one of the two forms without PyTorch, for the CPU backend, with the recorded inputs as the calibration.
/// Makes the recorded calls: results must have the recorded types and shapes, and no NaN.
fn quantize_and_run(recording: &Recording, form: usize, scheme: Scheme) -> Result<Quantized, String> {
    let share_state = SHARED_STATE.contains(&recording.name.as_str());
    let mut quantization = Quantization::new(scheme);
    for (method, inputs) in recording.inputs()? {
        quantization = quantization.calibrate(method, vec![inputs]);
    }
    let mut compiler = Compiler::new().share_state(share_state).quantize(quantization);
    compiler = compiler.backend("cpu");
    for (method, files) in recording.exported() {
        compiler = compiler.method(method, &files[form]);
    }
    for (method, value) in recording.constant_methods()? {
        compiler = compiler.constant(method, constant(value)?);
    }
    let compiled = match compiler.compile() {
        Err(error) if error.code() == Code::NotSupported => return Ok(Quantized::Refused(error.message().to_owned())),
        compiled => compiled.map_err(|e| e.to_string())?,
    };
    let file = compiled.to_bytes().map_err(|e| e.to_string())?;
    let mut module = Module::builder().lower(Lower::Off).load_bytes(&file);
    let module = module.as_mut().map_err(|e| format!("load: {e}"))?;
    recording.run_with(module, Some(f64::INFINITY)).map(Quantized::Calls).map_err(|e| format!("run: {e}"))
}

/// Models that cannot compute the recorded results in integers: name, part of the failure, and the reason.
const KNOWN_QUANTIZED: &[(&str, &str, &str)] =
    &[("cross_attention ", "NaN", "a query whose keys are all padding gives NaN, which integers do not have")];

#[test]
#[ignore = "needs the generated models"]
fn models_are_quantized_in_every_scheme() {
    let (mut failures, mut refused) = (Vec::new(), Vec::new());
    let (mut programs, mut calls) = (0, 0);
    for recording in recordings().iter().filter(|recording| recording.unsupported().is_none()) {
        for scheme in Scheme::ALL {
            let mut is_refused = Vec::new();
            for (form, label) in ["exported", "decomposed"].iter().enumerate() {
                let name = format!("{} {label} {}", recording.name, scheme.name);
                match quantize_and_run(recording, form, scheme) {
                    Ok(Quantized::Calls(count)) => {
                        (programs, calls) = (programs + 1, calls + count);
                        is_refused.push(false);
                    }
                    Ok(Quantized::Refused(reason)) => {
                        refused.push(format!("{name}: {reason}"));
                        is_refused.push(true);
                    }
                    Err(failure) => failures.push(format!("{name}: {}", failure.replace('\n', " | "))),
                }
            }
            // Both forms have the same layers.
            if let [one, other] = is_refused[..]
                && one != other
            {
                failures.push(format!("{} {}: only one form has layers", recording.name, scheme.name));
            }
        }
    }
    println!("{programs} quantized programs, {calls} calls; refused:\n{}", refused.join("\n"));
    failures.retain(|failure| {
        let known =
            KNOWN_QUANTIZED.iter().find(|(model, what, _)| failure.starts_with(model) && failure.contains(what));
        known.inspect(|(_, _, reason)| println!("known, {reason}: {failure}")).is_none()
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
