//! `rushlight bench`.

use std::time::{Duration, Instant};

use clap::Args;
use rushlight::{Input, Module};
use serde_json::json;

use crate::arguments::{Method, Model, Running};
use crate::failure::Failure;
use crate::inputs::{Inputs, borrow};
use crate::output;
use crate::profile::{Measurement, Profile};
use crate::progress;

/// Number of times that the program is loaded.
const LOADS: u32 = 5;

/// Times loading and running a method.
#[derive(Args)]
pub struct Bench {
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    method: Method,
    #[command(flatten)]
    inputs: Inputs,

    /// Number of runs before the timed ones
    #[arg(long, default_value_t = 3)]
    warmup: u32,

    /// Number of timed runs
    #[arg(long, short = 'n', default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    #[command(flatten)]
    profile: Profile,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub fn run(self) -> Result<(), Failure> {
        output::check_outputs(self.model.files().chain(self.inputs.files()), &self.profile.trace)?;
        let (mut open, mut load) = (Vec::new(), Vec::new());
        let bar = progress::bar(u64::from(LOADS) + u64::from(self.warmup) + u64::from(self.runs), "loads and runs");
        for _ in 0..LOADS {
            let start = Instant::now();
            let mut module = self.model.load_to_run(&self.running)?;
            let opened = Instant::now();
            let method = self.method.choose(&module)?;
            module.load_method(&method)?;
            open.push(opened - start);
            load.push(opened.elapsed());
            bar.inc(1);
        }
        let mut module = self.model.load_to_run(&self.running)?;
        let method = self.method.choose(&module)?;
        output::say_who_runs(&mut module);
        let values = self.inputs.values(&module.meta(&method)?)?;
        let inputs = borrow(&values)?;
        for _ in 0..self.warmup {
            module.run(&method, &inputs)?;
            bar.inc(1);
        }
        let mut times = Vec::new();
        for _ in 0..self.runs {
            let start = Instant::now();
            module.run(&method, &inputs)?;
            times.push(start.elapsed());
            bar.inc(1);
        }
        bar.finish_and_clear();
        let stages = [("open", &mut open), ("load method", &mut load), ("execute", &mut times)];
        let stages = stages.map(|(name, times)| (name, Spread::of(times)));
        let mut measured = self.measure(&method, &inputs)?;
        if self.json {
            let stage = |(name, spread): &(&str, Spread)| ((*name).replace(' ', "_"), spread.json());
            let mut json = stages.iter().map(stage).collect::<serde_json::Map<_, _>>();
            if let Some((measured, module)) = &mut measured {
                json.insert("profile".to_owned(), measured.json(&self.profile, module, &method)?);
            }
            output::print_json(&json.into());
        } else {
            let rows = stages.iter().map(|(name, spread)| spread.row(name));
            output::print(&output::table(&["", "median ", "fastest ", "10 % ", "90 % ", "runs "], rows));
            if let Some((measured, module)) = &mut measured {
                self.profile.print(measured, module, &method)?;
            }
        }
        measured.map_or(Ok(()), |(measured, _)| self.profile.write_trace(&measured))
    }

    /// Profiles the method on a module of its own, if the user asks for it, so that profiling does not slow the timed
    /// runs.
    fn measure(&self, method: &str, inputs: &[Input<'_>]) -> Result<Option<(Measurement, Module)>, Failure> {
        let Some(mut measured) = self.profile.measurement() else { return Ok(None) };
        let mut module = self.model.load_to_run(&self.running)?;
        module.run(method, inputs)?;
        for _ in 0..self.runs.min(10) {
            module.call(method).inputs(inputs).tracer(&mut measured.profiler).run()?;
        }
        Ok(Some((measured, module)))
    }
}

/// Times of several runs of one action.
struct Spread {
    median: Duration,
    fastest: Duration,
    low: Duration,
    high: Duration,
    runs: usize,
}

impl Spread {
    fn of(times: &mut [Duration]) -> Self {
        times.sort_unstable();
        let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
        let at = |part| at(part).copied().unwrap_or_default();
        Self { median: at(50), fastest: at(0), low: at(10), high: at(90), runs: times.len() }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let times = [self.median, self.fastest, self.low, self.high].map(output::duration);
        std::iter::once(name.to_owned()).chain(times).chain([self.runs.to_string()]).collect()
    }

    fn json(&self) -> serde_json::Value {
        let ns = |duration: Duration| duration.as_nanos() as u64;
        json!({
            "median_ns": ns(self.median),
            "fastest_ns": ns(self.fastest),
            "p10_ns": ns(self.low),
            "p90_ns": ns(self.high),
            "runs": self.runs,
        })
    }
}
