//! Where the time goes inside of what was compiled for the CPU back end: its fused steps, with what they compute and move
//! per second.

use std::time::Duration;

use rushlight::{Module, StepTime};
use rushlight_engine::hwbench::{Limits, per_second};
use serde_json::{Value as Json, json};

/// The time of a fused step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Of which delegate of the method, and which of its steps.
    pub delegate: usize,
    pub step: usize,
    /// The node that it computes, the last one where several are fused.
    pub node: String,
    /// What kind of step it is.
    pub kind: &'static str,
    /// How often it ran.
    pub calls: u64,
    /// Of one run, on average.
    pub time: Duration,
    /// Of the time of all steps, from 0 to 1.
    pub share: f64,
    /// Operations and bytes per second.
    pub flops: f64,
    pub bandwidth: f64,
    /// The module that the node was called in, and its line of Python, if known.
    pub module: String,
    pub source: Option<String>,
}

/// The steps that ran, in the order of the program. What nodes come from is known if `module` was lowered when it was
/// loaded.
pub fn rows(times: &[Vec<StepTime>], module: &mut Module, method: &str) -> Vec<StepRow> {
    let total: f64 = times.iter().flatten().map(|step| step.total.as_secs_f64()).sum();
    let entries = module.report().map(|report| report.entries.as_slice()).unwrap_or_default();
    let all =
        times.iter().enumerate().flat_map(|(delegate, steps)| steps.iter().enumerate().map(move |s| (delegate, s)));
    all.filter(|(_, (_, step))| step.calls > 0)
        .map(|(delegate, (index, step))| {
            let time = step.total.div_f64(step.calls as f64);
            let origin = entries.iter().find(|entry| entry.method == method && entry.node == step.name);
            StepRow {
                delegate,
                step: index,
                node: step.name.clone(),
                kind: step.kind,
                calls: step.calls,
                time,
                share: if total > 0.0 { step.total.as_secs_f64() / total } else { 0.0 },
                flops: per_second(step.cost.flops, time),
                bandwidth: per_second(step.cost.bytes, time),
                module: origin.map_or_else(String::new, |entry| entry.module.clone()),
                source: origin.and_then(|entry| entry.source.clone()),
            }
        })
        .collect()
}

/// Times in nanoseconds, rates per second; with the machine's limits, the share of the nearer one and its name.
pub fn json(rows: &[StepRow], limits: Option<&Limits>) -> Json {
    let row = |row: &StepRow| {
        let mut json = json!({
            "delegate": row.delegate,
            "step": row.step,
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
        if let Some(limits) = limits {
            add_share(&mut json, limits, row.flops, row.bandwidth);
        }
        json
    };
    rows.iter().map(row).collect()
}

/// Adds the share of the nearer limit, and its name, of what does so many operations and moves so many bytes per second.
pub fn add_share(json: &mut Json, limits: &Limits, flops: f64, bandwidth: f64) {
    let (share, bound) = limits.share(flops, bandwidth);
    json["limit_share"] = share.into();
    json["limit"] = bound.name().into();
}

/// The machine's limits: per second, with the instruction set and the threads that they hold for.
pub fn limits_json(limits: &Limits) -> Json {
    json!({
        "isa": limits.isa.name(),
        "threads": limits.threads,
        "flops_per_s": limits.flop_rate,
        "bytes_per_s": limits.byte_rate,
    })
}
