//! Runs cases through one-operator programs and collects the outcomes by operator.

use std::collections::BTreeMap;

use rushlight::Module;
use rushlight_format::ScalarType;
use rushlight_kernels::ALL;
use rushlight_runtime::{
    Code, HeapBlock, Input, LoadOptions, Memory, Method, Output, OutputBuffer, Outputs, Program, Registry, TensorView,
};

use crate::cases::{self, Arg, BadCase, Case, Check, TensorData};
use crate::program::{self, METHOD, OneOperator, Placement};
use crate::tolerance::{self, Tolerance};
use crate::{compare, skips};

/// The outcome of an operator's cases.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Cases that ran and agreed.
    pub passed: usize,
    /// Names of the failed cases, each with the difference.
    pub failed: Vec<String>,
    /// Cases that were left out, by reason.
    pub skipped: BTreeMap<&'static str, usize>,
    /// True if no operator set has the operator.
    pub missing: bool,
    /// Element types of the cases' tensors, in the order of their codes.
    pub dtypes: BTreeMap<u8, &'static str>,
    /// The operator set that has the operator.
    pub set: Option<&'static str>,
}

/// The reason why a case did not pass.
#[derive(Debug)]
enum Failure {
    Missing,
    Differs(String),
}

/// Environment variable with the operator to run; a trailing `*` matches any suffix.
pub const FILTER: &str = "RUSHLIGHT_OP";

/// Runs all cases of a family that the filter selects.
pub fn run_family(family: &str) -> Result<BTreeMap<String, Tally>, BadCase> {
    let filter = std::env::var(FILTER).ok();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for (number, case) in cases::read(family)?.iter().enumerate() {
        if filter.as_deref().is_none_or(|f| passes(f, &case.op)) {
            let tally =
                tallies.entry(case.op.clone()).or_insert_with(|| Tally { set: provider(&case.op), ..Tally::default() });
            tally.dtypes.extend(dtypes(case));
            tally.add(case, number);
        }
    }
    Ok(tallies)
}

impl Tally {
    fn add(&mut self, case: &Case, number: usize) {
        if let Some(skip) = skips::find(&case.op, &case.name) {
            *self.skipped.entry(skip.reason).or_default() += 1;
            return;
        }
        for placement in placements(number) {
            match run(case, placement) {
                Ok(()) => {}
                Err(Failure::Missing) => {
                    self.missing = true;
                    return;
                }
                Err(Failure::Differs(what)) => {
                    self.failed.push(format!("{} ({placement:?}): {what}", case.name));
                    return;
                }
            }
        }
        self.passed += 1;
    }
}

/// Every case runs with planned memory, and in one more placement.
fn placements(number: usize) -> [Placement; 2] {
    let other = [Placement::DynamicOutputs, Placement::Unplanned, Placement::Constants][number % 3];
    [Placement::Planned, other]
}

/// True if the [`FILTER`] selects an operator.
pub fn passes(filter: &str, op: &str) -> bool {
    filter.strip_suffix('*').map_or(op == filter, |start| op.starts_with(start))
}

fn provider(op: &str) -> Option<&'static str> {
    ALL.iter().find(|set| set.iter().any(|o| o.name == op)).map(|set| set.name)
}

fn dtypes(case: &Case) -> impl Iterator<Item = (u8, &'static str)> {
    let mut all = Vec::new();
    for arg in case.args.iter().chain(&case.expect) {
        match arg {
            Arg::Tensor(t) | Arg::InOut(t, _) => all.push(t.dtype),
            Arg::TensorList(items) => all.extend(items.iter().map(|t| t.dtype)),
            Arg::OptionalTensorList(items) => all.extend(items.iter().flatten().map(|t| t.dtype)),
            _ => {}
        }
    }
    all.into_iter().map(|t| (t.code(), t.name()))
}

/// Runs one case. The error is the difference, or `missing` if no operator set has the operator.
pub fn run_case(case: &Case, placement: Placement) -> Result<(), String> {
    run(case, placement).map_err(|failure| match failure {
        Failure::Missing => "missing".to_owned(),
        Failure::Differs(what) => what,
    })
}

/// The outcome of a case that was lowered at load.
#[derive(Debug)]
pub enum Lowered {
    /// It ran on the CPU backend and agreed.
    Passed,
    /// It stays on the reference operators, for this reason.
    Left(String),
    /// It ran and differed, or failed.
    Differs(String),
}

/// Runs a case on the CPU backend, if the backend supports its operator.
pub fn run_lowered(case: &Case, placement: Placement) -> Lowered {
    let differs = |what: &str, error: &dyn std::fmt::Display| Lowered::Differs(format!("{what}: {error}"));
    let written = match program::write(case, placement) {
        Ok(written) => written,
        Err(error) => return differs("writing the program", &error),
    };
    let builder = Module::builder().lower("cpu").threads(1);
    let mut module = match builder.load_bytes(&written.bytes) {
        Ok(module) => module,
        Err(error) => return differs("loading", &error),
    };
    if let Err(reason) = module.report() {
        return Lowered::Left(reason.message().to_owned());
    }
    let result = match module.method(METHOD) {
        Ok(method) => execute(case, &written, method, tolerance::lowered),
        Err(error) => return differs("loading the method", &error),
    };
    match (module.report(), result) {
        (Err(reason), _) => differs("loading what was lowered", reason),
        (Ok(_), Err(what)) => Lowered::Differs(what),
        (Ok(report), Ok(())) if report.entries.iter().any(|entry| entry.is_returned) => {
            Lowered::Differs(format!("a node was claimed and not compiled:\n{report}"))
        }
        (Ok(_), Ok(())) => Lowered::Passed,
    }
}

/// The tolerance of a result, by operator and type of the result.
pub(crate) type Tolerances = fn(&str, ScalarType) -> Tolerance;

fn run(case: &Case, placement: Placement) -> Result<(), Failure> {
    let failed = |what: &str, e: &dyn std::fmt::Display| Failure::Differs(format!("{what}: {e}"));
    let written = program::write(case, placement).map_err(|e| failed("writing the program", &e))?;
    let mut file = HeapBlock::new(written.bytes.len()).map_err(|e| failed("allocating", &e))?;
    file.bytes_mut()[..written.bytes.len()].copy_from_slice(&written.bytes);
    let program = Program::parse(file.bytes_mut()).map_err(|e| failed("parsing the program", &e))?;
    let options = LoadOptions::new(Registry::new(ALL));
    let mut method = match Method::load(&program, METHOD, Memory::heap(), &options) {
        Ok(method) => method,
        Err(e) if e.code == Code::OperatorMissing => return Err(Failure::Missing),
        Err(e) => return Err(failed("loading", &e)),
    };
    execute(case, &written, &mut method, tolerance::of).map_err(Failure::Differs)
}

pub(crate) fn execute(
    case: &Case,
    written: &OneOperator<'_>,
    method: &mut Method<'_>,
    tolerances: Tolerances,
) -> Result<(), String> {
    let strides: Vec<Vec<usize>> = written.inputs.iter().map(|t| program::strides(&t.sizes, &t.dim_order)).collect();
    // Inputs that are read in place must be aligned.
    let mut aligned = Vec::new();
    for t in &written.inputs {
        let mut block = HeapBlock::new(t.bytes.len()).map_err(|e| e.to_string())?;
        block.bytes_mut()[..t.bytes.len()].copy_from_slice(&t.bytes);
        aligned.push(block);
    }
    let mut inputs = Vec::new();
    for ((t, strides), block) in written.inputs.iter().zip(&strides).zip(&mut aligned) {
        let data = &block.bytes_mut()[..t.bytes.len()];
        let view = TensorView::strided(t.dtype, &t.sizes, strides, data);
        inputs.push(Input::Tensor(view.map_err(|e| format!("input: {e}"))?));
    }
    let mut blocks = Vec::new();
    for &(_, bytes) in &written.unplanned {
        blocks.push(HeapBlock::new(bytes).map_err(|e| e.to_string())?);
    }
    let buffers = blocks.iter_mut().zip(&written.unplanned);
    let mut buffers: Vec<OutputBuffer<'_>> =
        buffers.map(|(block, &(index, bytes))| OutputBuffer { index, data: &mut block.bytes_mut()[..bytes] }).collect();
    let outputs = method.start(&inputs, &mut buffers).and_then(rushlight_runtime::Execution::finish);
    check(case, &outputs.map_err(|e| format!("executing: {e}"))?, tolerances)
}

fn limit(case: &Case, dtype: ScalarType, tolerances: Tolerances) -> compare::Limit {
    let magnitude = case.magnitude.unwrap_or(0.0);
    match case.tolerance {
        Some((rel, abs)) => compare::Limit { tolerance: Tolerance::Close { rel, abs }, epsilon: 1.0, magnitude },
        None => compare::Limit {
            tolerance: tolerances(&case.op, dtype),
            epsilon: precision(case).max(tolerance::epsilon(dtype)),
            magnitude,
        },
    }
}

/// The precision of the widest floating-point tensor among the inputs; that of float32 without one.
fn precision(case: &Case) -> f64 {
    let (mut finest, mut any) = (None, false);
    for arg in &case.args {
        let one = |t: &TensorData| t.dtype;
        let found: Vec<_> = match arg {
            Arg::Tensor(t) | Arg::InOut(t, _) => vec![one(t)],
            Arg::TensorList(items) => items.iter().map(one).collect(),
            Arg::OptionalTensorList(items) => items.iter().flatten().map(one).collect(),
            _ => continue,
        };
        any |= !found.is_empty();
        for dtype in found.into_iter().filter(|&t| program::rounds(t)) {
            let epsilon = tolerance::epsilon(dtype);
            finest = Some(finest.map_or(epsilon, |f: f64| f.min(epsilon)));
        }
    }
    match finest {
        Some(epsilon) => epsilon,
        None if any => f64::from(f32::EPSILON),
        None => 0.0,
    }
}

fn check(case: &Case, outputs: &Outputs<'_, '_>, tolerances: Tolerances) -> Result<(), String> {
    let mut tensors = Vec::new();
    for (i, expected) in case.expect.iter().enumerate() {
        let got = outputs.get(i).map_err(|e| format!("output {i}: {e}"))?;
        if case.unspecified.contains(&i) {
            continue;
        }
        match (got, expected) {
            (Output::Tensor(t), Arg::Tensor(e)) => {
                let got = TensorData {
                    dtype: t.dtype(),
                    sizes: t.sizes().to_vec(),
                    dim_order: t.dim_order().to_vec(),
                    bytes: t.bytes().to_vec(),
                };
                if got.sizes != e.sizes {
                    return Err(format!("output {i}: got sizes {:?}, expected {:?}", got.sizes, e.sizes));
                }
                if case.check == Check::Values {
                    let limit = limit(case, e.dtype, tolerances);
                    compare::values(&got, e, limit).map_err(|what| format!("output {i} ({}): {what}", e.dtype))?;
                }
                tensors.push(got);
            }
            (Output::Int(g), Arg::Int(e)) if g == *e => {}
            (Output::Bool(g), Arg::Bool(e)) if g == *e => {}
            (Output::Double(g), Arg::Double(e)) if g == *e || g.is_nan() && e.is_nan() => {}
            (got, expected) => return Err(format!("output {i}: got {got:?}, expected {expected:?}")),
        }
    }
    let input = case.args.iter().find_map(|arg| if let Arg::Tensor(t) = arg { Some(t) } else { None });
    compare::statistics(&tensors, input, case.check)
}
