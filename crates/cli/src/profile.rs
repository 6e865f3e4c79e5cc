//! Profiles, as `run` and `bench` print them.

use std::path::PathBuf;

use clap::Args;
use rushlight::{DeviceLimits, Module};
use rushlight_devtools::breakdown::{Breakdown, InstructionTime, map_of, place};
use rushlight_devtools::profile::Profiler;
use rushlight_devtools::steps::{self, StepRow};
use rushlight_devtools::trace;

use crate::arguments::{count, output_file};
use crate::failure::Failure;
use crate::output;

/// Default number of instructions and steps to list.
const SLOWEST: usize = 10;

#[derive(Args)]
pub struct Profile {
    /// Print the time of each operator, and the slowest instructions and fused steps. Steps show their share of the
    /// nearer limit: the machine's peak compute or read rate. A slow step with a low share could be faster. The share
    /// exceeds 100 % if data comes from a cache or an algorithm saves operations
    #[arg(long)]
    pub profile: bool,

    /// With --profile: number of slowest instructions and steps to list [default: 10, and all with --json]
    #[arg(long, value_name = "N", value_parser = count, requires = "profile")]
    slowest: Option<usize>,

    /// Write the start and end of each instruction and step to this file, for Perfetto (ui.perfetto.dev) and Chrome
    #[arg(long, value_name = "FILE.json", value_parser = output_file())]
    pub trace: Option<PathBuf>,
}

/// The measurements of a running method.
pub struct Measurement {
    pub profiler: Profiler,
}

impl Measurement {
    /// The steps that ran.
    pub fn rows(&self, module: &mut Module, method: &str) -> Vec<StepRow> {
        steps::rows(&self.profiler.steps().times(), module, method)
    }

    /// The times of instructions and of delegates' steps, as JSON.
    pub fn json(&self, profile: &Profile, module: &mut Module, method: &str) -> Result<serde_json::Value, Failure> {
        let mut breakdown = Breakdown::of(&self.profiler, map_of(module, method).as_ref());
        let mut rows = self.rows(module, method);
        if let Some(slowest) = profile.slowest {
            breakdown.instructions = breakdown.slowest(slowest).into_iter().cloned().collect();
            rows.sort_by_key(|row| std::cmp::Reverse(row.time));
            rows.truncate(slowest);
        }
        let mut json = breakdown.json();
        steps::add(&mut json, &rows, module)?;
        if let Err(reason) = module.report() {
            json["not_lowered"] = reason.message().into();
        }
        if let Some(used) = module.cache_use() {
            json["cache"] = used.to_string().into();
        }
        Ok(json)
    }
}

impl Profile {
    /// The measurement that the user asks for; `None` if there is none.
    pub fn measurement(&self) -> Option<Measurement> {
        let profiler = if self.trace.is_some() { Profiler::with_spans() } else { Profiler::default() };
        (self.profile || self.trace.is_some()).then_some(Measurement { profiler })
    }

    /// Writes the trace, if the user asks for one.
    pub fn write_trace(&self, measured: &Measurement) -> Result<(), Failure> {
        let Some(path) = &self.trace else { return Ok(()) };
        let trace = trace::chrome(&measured.profiler);
        output::write_text(path, &trace.to_string())
    }

    /// Prints the slowest fused steps, with their operations and bytes per second beside the limits of their device.
    fn print_steps(&self, rows: &[StepRow], limits: &[DeviceLimits]) {
        let mut rows: Vec<&StepRow> = rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time));
        rows.truncate(self.slowest.unwrap_or(SLOWEST));
        let row = |row: &&StepRow| {
            let source = row.source.as_deref().unwrap_or_default();
            vec![
                format!("{}.{}", row.instruction, row.step),
                row.kind.clone(),
                output::duration(row.time),
                format!("{:.1} %", 100.0 * row.share),
                format!("{:.1}", row.flops / 1e9),
                format!("{:.1}", row.bandwidth / 1e9),
                steps::limits_of(row, limits)
                    .map_or_else(String::new, |limits| output::limit_share(limits.share(row.flops, row.bandwidth))),
                row.node.clone(),
                row.module.clone(),
                output::short_source(source.split_once(" in ").map_or(source, |(place, _)| place)),
            ]
        };
        let header = ["step ", "kind", "time ", "share ", "GFLOP/s ", "GB/s ", "of limit ", "node", "module", "source"];
        output::print(&format!("\n{}", output::fitted(&output::table(&header, rows.iter().map(row)))));
        for limits in limits {
            output::print(&format!("limits: {}", output::limits(limits)));
        }
    }

    /// Prints the time of each operator and of the slowest instructions and steps, the slowest first.
    pub fn print(&self, measured: &Measurement, module: &mut Module, method: &str) -> Result<(), Failure> {
        if !self.profile {
            return Ok(());
        }
        let breakdown = Breakdown::of(&measured.profiler, map_of(module, method).as_ref());
        self.print_instructions(&breakdown);
        let rows = measured.rows(module, method);
        if !rows.is_empty() {
            self.print_steps(&rows, &steps::limits(&rows, module)?);
        }
        if let Err(reason) = module.report() {
            output::print(&format!("not lowered: {}", reason.message()));
        }
        if let Some(used) = module.cache_use() {
            output::print(&format!("cache: {used}"));
        }
        output::print(&format!("one execution: {}", output::duration(breakdown.execution)));
        Ok(())
    }

    fn print_instructions(&self, breakdown: &Breakdown) {
        let share = |share: f64| format!("{:.1} %", 100.0 * share);
        let rows = breakdown.operators.iter().map(|part| {
            vec![part.name.clone(), part.calls.to_string(), output::duration(part.time), share(part.share)]
        });
        output::print(&format!("\n{}", output::table(&["operator", "calls ", "time ", "share "], rows)));
        let slowest = breakdown.slowest(self.slowest.unwrap_or(SLOWEST));
        if !slowest.is_empty() {
            let row = |row: &&InstructionTime| {
                let origin = row.origin.as_ref();
                let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
                vec![
                    row.instruction.to_string(),
                    row.part.name.clone(),
                    output::duration(row.part.time),
                    share(row.part.share),
                    text(origin.map(|origin| origin.node.as_str())),
                    text(origin.map(|origin| origin.module.as_str())),
                    output::short_source(origin.map(place).unwrap_or_default()),
                ]
            };
            let header = ["instruction ", "operator", "time ", "share ", "node", "module", "source"];
            output::print(&format!("\n{}", output::fitted(&output::table(&header, slowest.iter().map(row)))));
        }
    }
}
