//! The precision in reports, compared with the payload's steps.
//!
//! Each node of a part gets its own name, by which its steps are found. The expected precision follows from their
//! tensors: quantized bytes, integer weights, or floats.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rushlight_compiler::front::pt2::ImportOptions;
use rushlight_compiler::front::pte::lift;
use rushlight_compiler::partition::{Backend, Canonical, Claims, Compiled, Part};
use rushlight_compiler::{CompileOptions, compile, import_pt2};
use rushlight_cpu_compile::{Cpu, Precision};
use rushlight_cpu_payload::{CPU_BACKEND, CpuProgram, Size, Step, Tensor, TensorId};
use rushlight_format::ScalarType;
use rushlight_graph::operators::quantized_decomposed;
use rushlight_graph::{Action, Arg, Builder, Bytes, Def, Error, Model, Node, NodeId, Origin, State, ValueId};
use rushlight_testing::cases::{self, Case};
use rushlight_testing::program::{self, Placement};

/// A step and the tensors of its program.
struct Found<'p> {
    program: &'p CpuProgram,
    step: &'p Step,
}

impl<'p> Found<'p> {
    fn tensor(&self, id: TensorId) -> &'p Tensor {
        &self.program.tensors[id as usize]
    }

    fn inputs(&self) -> Vec<&'p Tensor> {
        let mut inputs = Vec::new();
        self.step.for_each_input(&mut |id| inputs.push(self.tensor(id)));
        inputs
    }

    /// True if the step multiplies by a matrix or a kernel.
    fn is_gemm(&self) -> bool {
        matches!(self.step, Step::Matmul(_) | Step::Convolution(_))
    }

    /// True if the step reads quantized bytes. Only the left side of a GEMM counts.
    fn reads_bytes(&self) -> bool {
        let count = if self.is_gemm() { 1 } else { usize::MAX };
        self.inputs().iter().take(count).any(|tensor| tensor.affine.is_some())
    }

    /// The right side of a GEMM, or the weights of a convolution.
    fn weights(&self) -> &'p Tensor {
        self.inputs()[1]
    }

    /// The bits of each weight, rounded down, including its share of the scales; `None` if the weights are floats.
    fn bits_of_weights(&self) -> Option<u64> {
        let (weights, count) = match self.step {
            Step::Matmul(step) => {
                let y = self.tensor(step.y);
                (self.weights(), fixed(self.tensor(step.a).dims.last()?)? * fixed(y.dims.last()?)?.next_multiple_of(16))
            }
            Step::Convolution(_) => (self.weights(), 0),
            Step::Gather(step) => {
                let columns = fixed(self.tensor(step.y).dims.last()?)?;
                // Only the number of bytes of a table of integers is known.
                let rows = self.tensor(step.table);
                return is_of_integers(rows).then_some(columns);
            }
            _ => return None,
        };
        let bytes = weights.dims.iter().map(fixed).product::<Option<u64>>()?;
        is_of_integers(weights).then(|| (8 * bytes).checked_div(count).unwrap_or(8))
    }
}

fn fixed(size: &Size) -> Option<u64> {
    match size {
        Size::Fixed(size) => Some(*size),
        Size::Computed(_) => None,
    }
}

/// True for packed integer weights: bytes without a scale of their own.
fn is_of_integers(tensor: &Tensor) -> bool {
    tensor.affine.is_none() && matches!(tensor.dtype, ScalarType::Char | ScalarType::Byte)
}

/// Compares the reported precision of a node with its steps. Returns the number of steps.
fn check(op: &str, precision: &str, steps: &[Found<'_>]) -> Result<usize, String> {
    // Conversions of inputs and outputs have the names of values, not of nodes.
    let steps = steps.iter().filter(|found| !matches!(found.step, Step::Convert(_)));
    let steps: Vec<_> = steps.collect();
    let gemm = steps.iter().find(|found| found.is_gemm());
    let fail = |what: &str| Err(format!("{op} is said to be in `{precision}`: {what}"));
    if let Some(gemm) = gemm {
        let bits = gemm.bits_of_weights();
        let is_float = bits.is_none() && !gemm.reads_bytes();
        // The weights include scales, and zero points or minima.
        let named = [4, 6].into_iter().find(|bits| precision.contains(&format!("weights of {bits} bits")));
        let is_of_bits = bits.is_some_and(|bits| named.map_or(bits >= 8, |named| (named..8).contains(&bits)));
        return match precision {
            _ if precision.starts_with("int8") && !(gemm.reads_bytes() && is_of_bits) => fail("no int8 GEMM"),
            _ if precision.starts_with("f32, weights of") && (gemm.reads_bytes() || !is_of_bits) => {
                fail("no GEMM of floats by integers")
            }
            "f32, of the exact sums of the GEMM before it" => fail("a GEMM"),
            _ if precision.starts_with("f32, weights made floats") || precision.starts_with("f32:") => {
                if is_float {
                    Ok(1)
                } else {
                    fail("not computed in floats")
                }
            }
            "weights of bf16" if gemm.weights().dtype != ScalarType::BFloat16 => fail("weights of another type"),
            "" if !is_float || gemm.weights().dtype == ScalarType::BFloat16 => fail("not computed in f32"),
            _ => Ok(1),
        };
    }
    for found in &steps {
        let inputs = found.inputs();
        let all_bytes = inputs.iter().all(|tensor| tensor.affine.is_some());
        let is_alone = match found.step {
            // The other instructions of the step may read other tensors.
            Step::Elementwise(step) => step.instructions.len() == 1,
            _ => true,
        };
        match (found.step, precision) {
            (Step::Gather(_), _) if precision.starts_with("f32, rows of") && found.bits_of_weights().is_none() => {
                return fail("a table of floats");
            }
            (Step::Gather(_), "" | "f32, rows made floats") if found.bits_of_weights().is_some() => {
                return fail("a table of integers");
            }
            (Step::Gather(_), _) => {}
            (_, "int8") if !found.reads_bytes() || (is_alone && !all_bytes) => return fail("it reads floats"),
            (Step::Elementwise(_), _) if precision.starts_with("f32") && is_alone && all_bytes => {
                return fail("it reads bytes alone");
            }
            (Step::Elementwise(_), "") if is_alone && found.reads_bytes() => return fail("it reads bytes"),
            (Step::Elementwise(_), _) => {}
            (_, _) if precision != "int8" && found.reads_bytes() => return fail("it reads bytes"),
            _ => {}
        }
    }
    Ok(steps.len())
}

#[derive(Debug, Default)]
struct Tally {
    /// Number of nodes with steps, by the reported precision before its colon.
    nodes: BTreeMap<String, usize>,
    failures: Vec<String>,
}

/// The CPU backend, with a check of the reported precision of each node of a part against the compiled steps.
#[derive(Debug)]
struct Checked {
    cpu: Cpu,
    /// The operators and precisions of all nodes of all parts.
    said: Arc<Mutex<Vec<(String, Option<String>)>>>,
    tally: Arc<Mutex<Tally>>,
}

impl Backend for Checked {
    fn name(&self) -> &str {
        self.cpu.name()
    }

    fn owns_state(&self, state: &State) -> bool {
        self.cpu.owns_state(state)
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        self.cpu.claim(canonical, claims)
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        let mut part = part.clone();
        let graph = &mut part.model.methods[Part::METHOD];
        let nodes = graph.blocks[graph.body].nodes.clone();
        for node in &nodes {
            let name = format!("{node:?}");
            graph.nodes[*node].origin = graph.origins.push(Origin { node: name, ..Origin::default() });
        }
        let Compiled::Delegate(payload) = self.cpu.compile(&part)? else { panic!("the CPU backend gives payloads") };
        let program = CpuProgram::parse(&payload.data).unwrap();
        let graph = &part.model.methods[Part::METHOD];
        let mut tally = self.tally.lock().unwrap();
        for node in nodes {
            let op = graph.nodes[node].op.name();
            let precision =
                payload.precisions.iter().find(|(of, _)| *of == node).map(|(_, precision)| precision.clone());
            self.said.lock().unwrap().push((op.to_owned(), precision.clone()));
            // Conversions between integers and floats have no precision.
            if op.contains("quantize") || op.contains("choose_qparams") {
                continue;
            }
            let name = format!("{node:?}");
            let steps = program.steps.iter().zip(&program.names).filter(|(_, of)| **of == name);
            let steps: Vec<_> = steps.map(|(step, _)| Found { program: &program, step }).collect();
            let precision = precision.as_deref().unwrap_or_default();
            match check(op, precision, &steps) {
                Ok(0) => {}
                Ok(_) => {
                    let kind = precision.split_once(':').map_or(precision, |(kind, _)| kind);
                    *tally.nodes.entry(kind.to_owned()).or_default() += 1;
                }
                Err(what) => tally.failures.push(what),
            }
        }
        Ok(payload.into())
    }
}

/// Compiles a model, and compares the precision of each claimed node with its steps and with the report. A model that
/// no backend can compile is skipped.
fn check_model(name: &str, model: Model, cpu: Cpu, tally: &Mutex<Tally>) {
    let (said, own) = (Arc::default(), Arc::default());
    let checked = Checked { cpu, said: Arc::clone(&said), tally: Arc::clone(&own) };
    let options = CompileOptions { backends: vec![Box::new(checked)], ..CompileOptions::default() };
    let Ok(compiled) = compile(model, &options) else { return };
    let mut own = std::mem::take(&mut *own.lock().unwrap());
    let claimed = || compiled.report.entries.iter().filter(|entry| entry.claimant() == CPU_BACKEND);
    let mut said = said.lock().unwrap().clone();
    for entry in compiled.report.entries.iter().filter(|entry| entry.is_returned) {
        own.failures.push(format!("{} is claimed, and not compiled: {:?}", entry.op, entry.reasons()));
    }
    for entry in claimed() {
        match said.iter().position(|one| *one == (entry.op.clone(), entry.precision.clone())) {
            Some(at) => {
                said.swap_remove(at);
            }
            None if entry.precision.is_none() => {}
            None => own.failures.push(format!("the report says of `{}`: {:?}", entry.node, entry.precision)),
        }
    }
    // A copy of a node has a precision in each part, but no entry in the report.
    let is_lost = |(op, precision): &(String, Option<String>)| {
        precision.is_some()
            && !compiled.report.entries.iter().any(|entry| entry.op == *op && entry.claimant() != CPU_BACKEND)
    };
    own.failures.extend(said.iter().filter(|one| is_lost(one)).map(|lost| format!("the report does not say {lost:?}")));
    let mut tally = tally.lock().unwrap();
    for (kind, count) in own.nodes {
        *tally.nodes.entry(kind).or_default() += count;
    }
    tally.failures.extend(own.failures.into_iter().map(|what| format!("{name}: {what}")));
}

/// Fails with all failures, or if a precision in `expected` did not occur.
fn finish(tally: Mutex<Tally>, expected: &[&str]) {
    let Tally { nodes, failures } = tally.into_inner().unwrap();
    println!("{nodes:#?}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    for kind in expected {
        assert!(nodes.contains_key(*kind), "no node in `{kind}`: {nodes:?}");
    }
}

#[test]
fn reports_name_the_precision_of_exported_programs() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let tally = Mutex::default();
    for folder in ["pt2", "1.5.1", "1.5.1-xnnpack"] {
        for file in std::fs::read_dir(corpus.join(folder)).unwrap() {
            let path = file.unwrap().path();
            let bytes = || Bytes::from(std::fs::read(&path).unwrap());
            let model = match path.extension().and_then(|extension| extension.to_str()) {
                Some("pt2") => import_pt2(&[("forward", bytes())], ImportOptions::default()).ok(),
                Some("pte") => lift(&bytes(), &[]).ok(),
                _ => None,
            };
            // Some have unsupported versions, or sizes without bounds, which no backend can compile.
            if let Some(model) = model {
                let bf16 = Cpu { precision: Precision::Bf16, ..Cpu::default() };
                check_model(&path.display().to_string(), model.clone(), Cpu::default(), &tally);
                check_model(&path.display().to_string(), model, bf16, &tally);
            }
        }
    }
    finish(tally, &["int8, weights of 8 bits", "int8 rows, weights of 4 bits", "weights of bf16", ""]);
}

#[test]
#[ignore = "needs the generated models"]
fn reports_name_the_precision_of_models() {
    let tally = Mutex::default();
    let recordings = rushlight_testing::recorded::wanted("RUSHLIGHT_MODELS", "models");
    for recording in recordings.iter().filter(|recording| recording.unsupported().is_none()) {
        for (method, files) in recording.exported() {
            for file in files {
                let bytes = Bytes::from(std::fs::read(&file).unwrap());
                let model = import_pt2(&[(method, bytes)], ImportOptions::default());
                check_model(&file.display().to_string(), model.unwrap(), Cpu::default(), &tally);
            }
        }
    }
    let rows = ["int8 rows, weights of 8 bits", "int8 rows, weights of 4 bits"];
    let of_all = [&rows[..], &["int8", "int8, weights of 8 bits", "f32"]].concat();
    // A selection of the models may have no quantized one.
    finish(tally, if rushlight_testing::recorded::only().is_some() { &[""] } else { &of_all });
}

/// Quantizes and dequantizes the float inputs of a node, and its results if `with_results`.
fn quantized(builder: &mut Builder<'_>, node: NodeId, with_results: bool) -> Result<Action, Error> {
    let Node { op, args, results, .. } = builder.graph.nodes[node].clone();
    let is_float = |builder: &Builder<'_>, value: ValueId| {
        builder.graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Float)
    };
    let mut inputs = Vec::new();
    args.iter().for_each(|arg| arg.for_each_value(&mut |value| inputs.push(value)));
    inputs.retain(|value| matches!(builder.graph.values[*value].def, Def::Param(_)) && is_float(builder, *value));
    if inputs.is_empty() {
        return Ok(Action::Keep);
    }
    let mut numbers: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for input in inputs {
        if let Entry::Vacant(place) = numbers.entry(input) {
            place.insert(quantize_and_dequantize(builder, input)?);
        }
    }
    let args = args.into_iter().map(|arg| with_values(arg, &numbers)).collect();
    let types = results.iter().map(|result| builder.graph.values[*result].ty.clone()).collect();
    let mut computed = builder.push(op, args, types);
    for result in computed.iter_mut().filter(|_| with_results) {
        if is_float(builder, *result) {
            *result = quantize_and_dequantize(builder, *result)?;
        }
    }
    Ok(Action::Replace(computed))
}

fn quantize_and_dequantize(builder: &mut Builder<'_>, value: ValueId) -> Result<ValueId, Error> {
    let mut value = value;
    for name in [quantized_decomposed::QUANTIZE_PER_TENSOR, quantized_decomposed::DEQUANTIZE_PER_TENSOR] {
        let (scale, zero_point, range) = (0.05, -3, [-128, 127]);
        let mut args = vec![value.into(), Arg::from(scale), Arg::from(zero_point)];
        args.extend(range.map(Arg::from));
        args.push(Arg::DType(ScalarType::Char));
        if name.ends_with("::dequantize_per_tensor") {
            args.push(Arg::None);
        }
        value = builder.one(name, args)?;
    }
    Ok(value)
}

fn with_values(arg: Arg, of: &BTreeMap<ValueId, ValueId>) -> Arg {
    match arg {
        Arg::Value(value) => Arg::Value(of.get(&value).copied().unwrap_or(value)),
        Arg::List(items) => Arg::List(items.into_iter().map(|item| with_values(item, of)).collect()),
        other => other,
    }
}

/// Every operator case, with its inputs quantized, and with its results quantized too.
#[test]
fn reports_name_the_precision_of_quantized_operators() {
    let mut all: Vec<Case> = Vec::new();
    for family in cases::families().unwrap() {
        all.extend(cases::read(&family).unwrap());
    }
    let (tally, next) = (Mutex::default(), AtomicUsize::new(0));
    let work = || {
        while let Some(case) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Ok(written) = program::write(case, Placement::Planned) else { continue };
            let Ok(model) = lift(&written.bytes.into(), &[]) else { continue };
            for with_results in [false, true] {
                let mut model: Model = model.clone();
                let is_changed = model.rewrite(|builder, node| quantized(builder, node, with_results)).unwrap();
                if is_changed {
                    check_model(&format!("{} {}", case.op, case.name), model, Cpu::default(), &tally);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    finish(tally, &["int8", "f32", ""]);
}
