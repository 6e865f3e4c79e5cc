//! Times of delegates' steps, with their operations and bytes per second.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use rushlight::runtime::{Cost, DelegateEvent, DelegateTracer, Limits};
use rushlight::{DeviceLimits, Module};
use serde_json::{Value as Json, json};

/// Accumulates the times of the steps of the delegates of one method.
#[derive(Debug, Default)]
pub struct StepTracer {
    // Cells, because delegates share the tracer of their call.
    steps: RefCell<Vec<StepTime>>,
    /// The index of each step, by instruction and step.
    known: RefCell<HashMap<(usize, usize), usize>>,
    runs: RefCell<Vec<StepRun>>,
    keeps_runs: bool,
    instruction: Cell<usize>,
    backend: RefCell<String>,
    started: Cell<Option<Instant>>,
}

/// The time of one step, over all calls.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// Index of the instruction in the method that calls the delegate.
    pub instruction: usize,
    /// The backend's name in programs.
    pub backend: String,
    /// Index of the step in the payload.
    pub step: usize,
    pub kind: String,
    /// The graph value that it computes; empty if it is not known.
    pub value: String,
    pub calls: u64,
    pub total: Duration,
    /// The work of the last call; zeros if the delegate does not count it.
    pub cost: Cost,
}

/// The time of one run of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepRun {
    /// Index into [`StepTracer::times`].
    pub index: usize,
    pub start: Instant,
    pub time: Duration,
}

/// Maximum number of runs that are recorded one by one.
const MAX_RUNS: usize = 1 << 17;

impl StepTracer {
    /// A tracer that also records each run of a step.
    pub fn with_runs() -> Self {
        Self { keeps_runs: true, ..Self::default() }
    }

    /// The time of each step, in the order in which they ran first.
    pub fn times(&self) -> Vec<StepTime> {
        self.steps.borrow().clone()
    }

    /// The first runs of steps, in order, up to some hundred thousand.
    pub fn runs(&self) -> Vec<StepRun> {
        self.runs.borrow().clone()
    }

    /// Attributes the following steps to the delegate that this instruction calls.
    pub(crate) fn enter(&self, instruction: usize, backend: &str) {
        self.instruction.set(instruction);
        let mut known = self.backend.borrow_mut();
        if *known != backend {
            backend.clone_into(&mut known);
        }
    }

    /// Adds a call of a step. The start time is known if the host measured it.
    fn add(&self, event: DelegateEvent<'_>, start: Option<Instant>, time: Duration) {
        let Some(step) = event.step else { return };
        let mut steps = self.steps.borrow_mut();
        let instruction = self.instruction.get();
        let index = *self.known.borrow_mut().entry((instruction, step)).or_insert_with(|| {
            steps.push(StepTime {
                instruction,
                backend: self.backend.borrow().clone(),
                step,
                kind: event.name.to_owned(),
                value: event.value.to_owned(),
                calls: 0,
                total: Duration::ZERO,
                cost: Cost::default(),
            });
            steps.len() - 1
        });
        if let Some(known) = steps.get_mut(index) {
            known.calls += 1;
            known.total += time;
            known.cost = event.cost.unwrap_or_default();
        }
        let mut runs = self.runs.borrow_mut();
        if let Some(start) = start
            && self.keeps_runs
            && runs.len() < MAX_RUNS
        {
            runs.push(StepRun { index, start, time });
        }
    }
}

impl DelegateTracer for StepTracer {
    fn begin(&self, _event: DelegateEvent<'_>) {
        self.started.set(Some(Instant::now()));
    }

    fn end(&self, event: DelegateEvent<'_>) {
        let now = Instant::now();
        if let Some(start) = self.started.take() {
            self.add(event, Some(start), now - start);
        }
    }

    fn timed(&self, event: DelegateEvent<'_>, start: u64, end: u64) {
        self.add(event, None, Duration::from_nanos(end.saturating_sub(start)));
    }
}

/// The time of a delegate's step, and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Index of the instruction in the method that calls the delegate, and of the step in the delegate.
    pub instruction: usize,
    pub step: usize,
    /// The backend's name in programs.
    pub backend: String,
    /// The node that it computes; the last one if several are fused.
    pub node: String,
    pub kind: String,
    /// Number of runs.
    pub calls: u64,
    /// Average time of one run.
    pub time: Duration,
    /// Share of the time of all steps, from 0 to 1.
    pub share: f64,
    /// Operations and bytes per second; 0 if the delegate does not count them.
    pub flops: f64,
    pub bandwidth: f64,
    /// The module that called the node, and the line of Python, if known.
    pub module: String,
    pub source: Option<String>,
}

/// The steps that ran, in order. The origin of nodes is known if `module` was lowered when it was loaded.
pub fn rows(times: &[StepTime], module: &mut Module, method: &str) -> Vec<StepRow> {
    let total: f64 = times.iter().map(|step| step.total.as_secs_f64()).sum();
    let entries = module.report().map(|report| report.entries.as_slice()).unwrap_or_default();
    let row = |step: &StepTime| {
        let time = step.total.div_f64(step.calls.max(1) as f64);
        let origin = entries.iter().find(|entry| entry.method == method && entry.node == step.value);
        StepRow {
            instruction: step.instruction,
            step: step.step,
            backend: step.backend.clone(),
            node: step.value.clone(),
            kind: step.kind.clone(),
            calls: step.calls,
            time,
            share: if total > 0.0 { step.total.as_secs_f64() / total } else { 0.0 },
            flops: per_second(step.cost.flops, time),
            bandwidth: per_second(step.cost.bytes, time),
            module: origin.map_or_else(String::new, |entry| entry.module.clone()),
            source: origin.and_then(|entry| entry.source.clone()),
        }
    };
    let mut rows: Vec<StepRow> = times.iter().map(row).collect();
    rows.sort_by_key(|row| (row.instruction, row.step));
    rows
}

/// Returns `amount / time` in units per second; 0 for no time.
pub fn per_second(amount: f64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { amount / time.as_secs_f64() }
}

/// The limits of the backends that steps ran on. Backends that measure nothing are left out.
///
/// # Errors
/// Those of [`Module::measure_limits`].
pub fn limits(rows: &[StepRow], module: &Module) -> Result<Vec<DeviceLimits>, rushlight::Error> {
    let mut backends: Vec<&str> = rows.iter().map(|row| row.backend.as_str()).collect();
    backends.sort_unstable();
    backends.dedup();
    backends.into_iter().filter_map(|id| module.measure_limits(id).transpose()).collect()
}

/// The limits of a row's backend.
pub fn limits_of<'l>(row: &StepRow, limits: &'l [DeviceLimits]) -> Option<&'l Limits> {
    limits.iter().find(|of| of.backend == row.backend).map(|of| &of.limits)
}

/// Times in nanoseconds, and rates per second. If the backend's limits are known, also the share of the nearer limit
/// and its name.
pub fn json(rows: &[StepRow], limits: &[DeviceLimits]) -> Json {
    let row = |row: &StepRow| {
        let mut json = json!({
            "instruction": row.instruction,
            "step": row.step,
            "backend": row.backend,
            "node": row.node,
            "kind": row.kind,
            "calls": row.calls,
            "ns": u64::try_from(row.time.as_nanos()).unwrap_or(u64::MAX),
            "share": row.share,
            "flops_per_s": row.flops,
            "bytes_per_s": row.bandwidth,
            "module": row.module,
            "source": row.source,
        });
        if let Some(limits) = limits_of(row, limits) {
            add_share(&mut json, limits, row.flops, row.bandwidth);
        }
        json
    };
    rows.iter().map(row).collect()
}

/// Adds the steps, and the limits of their backends, to a profile as JSON.
///
/// # Errors
/// Those of [`limits`].
pub fn add(json: &mut Json, rows: &[StepRow], module: &Module) -> Result<(), rushlight::Error> {
    let limits = limits(rows, module)?;
    json["steps"] = self::json(rows, &limits);
    json["limits"] = limits_json(&limits);
    Ok(())
}

/// Adds the name of the nearer limit, and the share of it that these operations and bytes per second reach.
pub fn add_share(json: &mut Json, limits: &Limits, flops: f64, bandwidth: f64) {
    let (share, bound) = limits.share(flops, bandwidth);
    json["limit_share"] = share.into();
    json["limit"] = bound.name().into();
}

/// The limits of each backend, per second.
pub fn limits_json(limits: &[DeviceLimits]) -> Json {
    let row = |DeviceLimits { backend, device, limits }: &DeviceLimits| {
        json!({
            "backend": backend,
            "device": device,
            "flops_per_s": limits.flop_rate,
            "bytes_per_s": limits.byte_rate,
        })
    };
    limits.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_clocks_are_added_up() {
        let tracer = StepTracer::with_runs();
        let cost = Cost { flops: 6.0, bytes: 8.0 };
        let event = DelegateEvent { name: "matmul", step: Some(3), value: "linear", cost: Some(cost) };
        tracer.enter(7, "CpuBackend");
        tracer.begin(event);
        tracer.end(event);
        tracer.enter(9, "Gpu");
        tracer.timed(event, 100, 350);
        tracer.timed(event, 400, 450);
        // An event that is not a step, such as a wait, has no row.
        tracer.timed(DelegateEvent { name: "wait", ..DelegateEvent::default() }, 0, 9);
        let [host, device] = &tracer.times()[..] else { panic!("two steps") };
        assert_eq!((host.instruction, host.backend.as_str(), host.calls, host.cost), (7, "CpuBackend", 1, cost));
        assert_eq!((device.instruction, device.calls, device.total), (9, 2, Duration::from_nanos(300)));
        assert_eq!(tracer.runs().len(), 1);
    }
}
