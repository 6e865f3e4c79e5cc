//! Compares two programs of one model, and finds where their results start to differ.
//!
//! Both run with a tracer that keeps the results of every instruction. Their debug maps name the result of the exported
//! program that each of these is. Results of the same name are compared, in the order in which the reference computes
//! them.

use std::collections::HashMap;
use std::fmt;

use rushlight::runtime::{Event, EventTracer, Interrupt, Stop, Tensor as TensorRef, TensorView};
use rushlight::{Compiler, Error, Input, Lower, MethodMeta, Module, ModuleBuilder, Progress, Tensor, Value};
use rushlight_compiler::debug_map;
use rushlight_compiler::emit::{InstructionOrigin, MethodMap};

use crate::numbers::doubles;

/// An exported program, compiled so that each of its nodes is run. It is the reference of a comparison.
#[derive(Debug)]
pub struct Reference {
    module: Module,
    maps: Vec<MethodMap>,
    progress: Progress,
}

/// The reason why nothing can be compared.
#[derive(Debug)]
pub enum Incomparable {
    Failed(Error),
    /// The compiled program does not tell the origins of this method's instructions.
    NoDebugMap {
        method: String,
    },
}

/// The results of the exported program that the instructions of a call wrote, in order.
#[derive(Debug, Default)]
pub struct Trace {
    results: Vec<TracedResult>,
    by_name: HashMap<String, usize>,
}

/// A result of a node.
#[derive(Debug)]
struct TracedResult {
    name: String,
    origin: InstructionOrigin,
    value: Tensor,
}

/// The difference between a result of the candidate and that of the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the result in the exported program.
    pub result: String,
    /// The node of the exported program, and the operator that computes the result in the reference.
    pub node: String,
    pub op: String,
    pub module: String,
    /// The line of Python, if known.
    pub source: Option<String>,
    pub difference: Difference,
    /// Number of results between the previous row and this one that only the reference has. A difference in this row
    /// may begin in any of them.
    pub unseen: usize,
}

/// The difference between an output of the candidate and that of the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputRow {
    /// The name in the exported function, or `output 0` if it has none.
    pub name: String,
    pub difference: Difference,
}

/// The difference between a tensor and its expected value.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The largest absolute difference; infinite if only one of the two numbers is finite.
    pub max_abs: f64,
    /// The largest absolute value of the reference.
    pub scale: f64,
    /// Ten times the decimal logarithm of the reference's energy over the difference's, in dB.
    pub snr_db: f64,
    /// Both shapes, if they differ; nothing else is compared then.
    pub shapes: Option<(Vec<usize>, Vec<usize>)>,
}

/// The comparison of the results that both programs have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The rows, in the order in which the reference computes the results.
    pub rows: Vec<Row>,
    /// The outputs of the method, in order.
    pub outputs: Vec<OutputRow>,
    /// The names of the results that only the reference has, in order: the candidate folded, fused or delegated them.
    pub only_in_reference: Vec<String>,
}

impl Reference {
    /// Compiles the methods of `compiler`, and loads them with the options of `builder`. `progress` follows the runs of
    /// [`compare`](Self::compare); its unit is one instruction.
    ///
    /// # Errors
    /// The compiler's, and those of loading.
    pub fn new(compiler: Compiler, builder: ModuleBuilder, progress: Progress) -> Result<Self, Error> {
        let mut compiler = compiler.progress(progress.clone());
        compiler.options().keep_nodes = true;
        let program = compiler.compile()?;
        let module = builder.lower(Lower::Off).load_bytes(&program.to_bytes()?)?;
        Ok(Self { module, maps: program.compiled().debug.clone(), progress })
    }

    /// Runs a method of both, and compares the results that both have. The candidate must be loaded with
    /// [`Lower::Off`], because lowering merges the instructions whose results are compared.
    ///
    /// # Errors
    /// If either fails, or the candidate has no debug map.
    pub fn compare(
        &mut self,
        candidate: &mut Module,
        method: &str,
        inputs: &[Input<'_>],
    ) -> Result<Comparison, Incomparable> {
        let maps = debug_map::of_program(&candidate.program().parsed());
        let of_method = |maps: &[MethodMap]| maps.iter().find(|map| map.method == method).cloned();
        let no_map = || Incomparable::NoDebugMap { method: method.to_owned() };
        let (map, own) = (of_method(&maps).ok_or_else(no_map)?, of_method(&self.maps).unwrap_or_default());
        let (expected, wanted) =
            Keeper::new(&own, "running reference", &self.progress).trace(&mut self.module, method, inputs)?;
        let (got, outputs) = Keeper::new(&map, "running candidate", &self.progress).trace(candidate, method, inputs)?;
        let outputs = output_rows(&self.module.meta(method)?, &wanted, &outputs);
        Ok(Comparison { outputs, ..Comparison::of(&expected, &got) })
    }
}

impl From<Error> for Incomparable {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::NoDebugMap { method } => {
                write!(
                    f,
                    "`{method}` does not say what its instructions come from: it was compiled without a debug map"
                )
            }
        }
    }
}

impl std::error::Error for Incomparable {}

/// Runs a method once and keeps the results of its instructions.
///
/// # Errors
/// The module's.
pub fn trace(module: &mut Module, method: &str, inputs: &[Input<'_>], map: &MethodMap) -> Result<Trace, Error> {
    let (trace, _) = Keeper::new(map, "running", &Progress::default()).trace(module, method, inputs)?;
    Ok(trace)
}

struct Keeper<'m> {
    map: &'m MethodMap,
    /// The last argument and the number of results so far, by instruction.
    written: HashMap<usize, (usize, usize)>,
    trace: Trace,
    error: Option<Error>,
    /// The stage of progress; its unit is one instruction.
    stage: &'static str,
    progress: &'m Progress,
    done: u64,
}

impl<'m> Keeper<'m> {
    fn new(map: &'m MethodMap, stage: &'static str, progress: &'m Progress) -> Self {
        Self { map, written: HashMap::new(), trace: Trace::default(), error: None, stage, progress, done: 0 }
    }

    /// Runs the method, and returns the outputs too.
    fn trace(mut self, module: &mut Module, method: &str, inputs: &[Input<'_>]) -> Result<(Trace, Vec<Value>), Error> {
        let outputs = module.call(method).inputs(inputs).tracer(&mut self).run()?;
        match self.error {
            Some(error) => Err(error),
            None => Ok((self.trace, outputs)),
        }
    }
}

impl Interrupt for Keeper<'_> {
    fn poll(&self) -> Option<Stop> {
        self.progress.check().is_err().then_some(Stop::Cancelled)
    }
}

impl EventTracer for Keeper<'_> {
    fn end(&mut self, event: Event<'_>) {
        if let Event::Operator { .. } | Event::Delegate { .. } = event {
            self.done += 1;
            let total = (self.map.instructions.len() as u64).max(self.done);
            // Cancellation is checked before the next instruction, not here.
            drop(self.progress.report(self.stage, self.done, total));
        }
    }

    fn interrupt(&self) -> Option<&dyn Interrupt> {
        Some(self)
    }

    fn wants_tensors(&self) -> bool {
        true
    }

    fn tensor(&mut self, instruction: usize, argument: usize, tensor: TensorRef<'_>) {
        let Some(Some(origin)) = self.map.instructions.get(instruction) else { return };
        // Results arrive in the order of the arguments; a repetition in a loop starts again at the first.
        let (last, index) = self.written.get(&instruction).copied().unwrap_or((usize::MAX, 0));
        let index = if last == usize::MAX || argument <= last { 0 } else { index + 1 };
        self.written.insert(instruction, (argument, index));
        let Some(name) = origin.results.get(index) else { return };
        match Tensor::copy_of(&TensorView::from(tensor)) {
            Ok(value) => self.trace.keep(name, origin, value),
            Err(error) => self.error = Some(error),
        }
    }
}

impl Trace {
    fn keep(&mut self, name: &str, origin: &InstructionOrigin, value: Tensor) {
        // A result of a later repetition of a loop replaces that of an earlier one.
        if let Some(known) = self.by_name.get(name).and_then(|at| self.results.get_mut(*at)) {
            known.value = value;
            return;
        }
        self.by_name.insert(name.to_owned(), self.results.len());
        self.results.push(TracedResult { name: name.to_owned(), origin: origin.clone(), value });
    }

    fn get(&self, name: &str) -> Option<&Tensor> {
        Some(&self.results.get(*self.by_name.get(name)?)?.value)
    }

    /// Number of results that were kept.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// True if no result was kept.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }
}

impl Comparison {
    /// Compares the results that two traces have in common.
    pub fn of(reference: &Trace, candidate: &Trace) -> Self {
        let mut comparison = Self::default();
        let mut unseen = 0;
        for TracedResult { name, origin, value } in &reference.results {
            if let Some(other) = candidate.get(name) {
                comparison.rows.push(row(name, origin, Difference::of(value, other), unseen));
                unseen = 0;
            } else {
                comparison.only_in_reference.push(name.clone());
                unseen += 1;
            }
        }
        comparison
    }

    /// The first result that differs by more than `tolerance` of the reference's scale.
    pub fn first_difference(&self, tolerance: f64) -> Option<&Row> {
        self.rows.iter().find(|row| row.difference.relative() > tolerance)
    }

    /// True if no result and no output differs by more than `tolerance` of the reference's scale.
    pub fn agrees(&self, tolerance: f64) -> bool {
        self.differences().all(|difference| difference.relative() <= tolerance)
    }

    fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.rows.iter().map(|row| &row.difference).chain(self.outputs.iter().map(|row| &row.difference))
    }

    /// Describes where the results start to differ: at the first result that differs by more than `tolerance`, if the
    /// reference has no results between it and the last that agrees. Otherwise, somewhere between these two. `None` if
    /// none differs.
    pub fn parting(&self, tolerance: f64) -> Option<String> {
        let at = self.rows.iter().position(|row| row.difference.relative() > tolerance)?;
        let row = self.rows.get(at)?;
        let Row { result, op, unseen, .. } = row;
        let relative = row.difference.relative();
        if *unseen == 0 {
            return Some(format!("results diverge at `{result}` ({op}), relative {relative:.2e}"));
        }
        let from = match at.checked_sub(1).and_then(|before| self.rows.get(before)) {
            Some(before) => format!("`{}`, which agrees,", before.result),
            None => "the inputs".to_owned(),
        };
        let between = match unseen {
            1 => "the result in between is fused and cannot be compared".to_owned(),
            _ => format!("the {unseen} results in between are fused and cannot be compared"),
        };
        Some(format!("results diverge between {from} and `{result}` ({op}), relative {relative:.2e}: {between}"))
    }

    /// The lowest signal-to-noise ratio of a result or output, in dB. It is negative infinity if shapes differ, and
    /// infinity if nothing differs.
    pub fn min_snr(&self) -> f64 {
        let ratio = |of: &Difference| if of.shapes.is_some() { f64::NEG_INFINITY } else { of.snr_db };
        self.differences().map(ratio).fold(f64::INFINITY, f64::min)
    }

    /// The results that differ most, relative to their scale, the worst first.
    pub fn worst(&self, count: usize) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by(|a, b| b.difference.relative().total_cmp(&a.difference.relative()));
        rows.truncate(count);
        rows
    }
}

impl Difference {
    fn of(reference: &Tensor, candidate: &Tensor) -> Self {
        let mut difference = Self { max_abs: 0.0, scale: 0.0, snr_db: f64::INFINITY, shapes: None };
        if reference.shape() != candidate.shape() {
            difference.shapes = Some((reference.shape().to_vec(), candidate.shape().to_vec()));
            return difference;
        }
        let (mut energy, mut noise) = (0.0, 0.0);
        for (want, got) in doubles(reference).into_iter().zip(doubles(candidate)) {
            let same = want == got || (want.is_nan() && got.is_nan());
            let distance = if same { 0.0 } else { (want - got).abs() };
            // The distance of a number from NaN is infinite.
            let distance = if distance.is_nan() { f64::INFINITY } else { distance };
            difference.max_abs = difference.max_abs.max(distance);
            if want.is_finite() {
                difference.scale = difference.scale.max(want.abs());
                energy += want * want;
            }
            noise += distance * distance;
        }
        if noise > 0.0 {
            difference.snr_db = 10.0 * (energy / noise).log10();
        }
        difference
    }

    /// The largest difference relative to the reference's scale.
    pub fn relative(&self) -> f64 {
        if self.shapes.is_some() {
            f64::INFINITY
        } else {
            self.max_abs / if self.scale > 0.0 { self.scale } else { 1.0 }
        }
    }
}

fn row(name: &str, origin: &InstructionOrigin, difference: Difference, unseen: usize) -> Row {
    Row {
        result: name.to_owned(),
        node: origin.node.clone(),
        op: origin.op.clone(),
        module: origin.module.clone(),
        source: origin.source.clone(),
        difference,
        unseen,
    }
}

/// The outputs that are tensors in both.
fn output_rows(meta: &MethodMeta, wanted: &[Value], got: &[Value]) -> Vec<OutputRow> {
    let pairs = wanted.iter().zip(got).enumerate();
    let row = |(index, pair): (usize, (&Value, &Value))| {
        let (Value::Tensor(want), Value::Tensor(got)) = pair else { return None };
        let name = meta.output_names.get(index).filter(|name| !name.is_empty());
        let name = name.cloned().unwrap_or_else(|| format!("output {index}"));
        Some(OutputRow { name, difference: Difference::of(want, got) })
    };
    pairs.filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_graph::operators::aten;

    fn row(result: &str, relative: f64, unseen: usize) -> Row {
        Row {
            result: result.to_owned(),
            node: result.to_owned(),
            op: aten::packet::ADD.to_owned(),
            module: String::new(),
            source: None,
            difference: Difference { max_abs: relative, scale: 1.0, snr_db: 20.0, shapes: None },
            unseen,
        }
    }

    #[test]
    fn no_number_is_near_nan_and_infinity() {
        let of = |want: f32, got: f32| {
            let tensor = |x: f32| Tensor::of(&[2], &[1.0, x]).unwrap();
            Difference::of(&tensor(want), &tensor(got))
        };
        for (want, got) in [(2.0, f32::NAN), (f32::NAN, 2.0), (2.0, f32::INFINITY), (f32::INFINITY, f32::NEG_INFINITY)]
        {
            let difference = of(want, got);
            assert_eq!((difference.max_abs, difference.snr_db), (f64::INFINITY, f64::NEG_INFINITY), "{want} {got}");
        }
        assert_eq!(of(f32::NAN, f32::NAN).snr_db, f64::INFINITY);
        assert_eq!(of(f32::INFINITY, f32::INFINITY).snr_db, f64::INFINITY);
    }

    #[test]
    fn where_numbers_part_is_said_as_far_as_it_was_seen() {
        let part = |rows: &[Row]| Comparison { rows: rows.to_vec(), ..Comparison::default() }.parting(1e-4);
        assert_eq!(part(&[row("a", 0.0, 0), row("b", 1e-5, 7)]), None);
        let at = part(&[row("a", 0.0, 3), row("b", 0.5, 0)]).expect("they differ");
        assert!(at.starts_with("results diverge at `b`"), "{at}");
        let between = part(&[row("a", 0.0, 0), row("b", 0.5, 1)]).expect("they differ");
        assert!(between.starts_with("results diverge between `a`, which agrees, and `b`"), "{between}");
        assert!(between.contains("the result in between is fused"), "{between}");
        let anywhere = part(&[row("b", 0.5, 299)]).expect("they differ");
        assert!(anywhere.starts_with("results diverge between the inputs and `b`"), "{anywhere}");
        assert!(anywhere.contains("299 results"), "{anywhere}");
    }
}
