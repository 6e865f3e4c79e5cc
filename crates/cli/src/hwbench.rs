//! `rushlight hwbench`.

use std::time::Duration;

use clap::Args;
use rushlight_devtools::steps::add_share;
use rushlight_engine::hwbench::{
    Limits, MEMORY, Selection, Timing, WORKING_SETS, bf16_flop_rate, byte_op_rate, flop_rate, read_rates, time_kernels,
};
use rushlight_engine::{self as engine, Engine, Isa};
use serde_json::{Value as Json, json};

use crate::arguments::threads;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output;
use crate::progress;

/// Time for which each variant is repeated.
const BUDGET: Duration = Duration::from_millis(30);

/// Measures the peak compute and read rates of this machine. Times each variant of the CPU backend's kernels with each
/// instruction set, at shapes of common models. Marks the choices that programs run with here: the best instruction
/// set, or the one that RUSHLIGHT_ISA names, and for convolutions the direct or Winograd's algorithm.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight hwbench                            the limits, and a few typical shapes
  rushlight hwbench convolution --threads 1    only convolutions, with one thread
  rushlight hwbench --all --json > here.json   every shape; takes a minute or so")]
pub struct Hwbench {
    /// Run only kernels and shapes whose names contain this text
    #[arg(default_value = "")]
    filter: String,

    /// Run every shape, not only a few typical ones
    #[arg(long)]
    all: bool,

    /// Number of threads; by default the number that the machine runs at once
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Hwbench {
    pub fn run(self) -> Result<(), Failure> {
        let threads = self.threads.unwrap_or_else(rushlight::default_threads);
        let chosen = rushlight::chosen_isa()?;
        let machine = Machine::here();
        if !self.json {
            for (name, value) in machine.rows() {
                output::print(&format!("{name:<10} {value}"));
            }
        }
        let limits = MachineLimits::measure(chosen, threads)?;
        if !self.json {
            limits.print();
        }
        let isas = Isa::available().collect();
        let selection = Selection { threads, isas, chosen, filter: self.filter.clone(), all: self.all, budget: BUDGET };
        let timings = Self::time(&selection)?;
        if timings.is_empty() {
            let more = if self.all { "" } else { " of the typical ones; `--all` has more" };
            return Err(Failure::Other(format!("`{}` is in the name of no kernel and shape{more}", self.filter)));
        }
        if self.json {
            let mut json = limits.json();
            json["machine"] = machine.json();
            json["kernels"] = timings.iter().map(|timing| limits.timing_json(timing)).collect();
            output::print_json(&json);
        } else {
            limits.print_timings(&timings);
        }
        Ok(())
    }

    fn time(selection: &Selection) -> Result<Vec<Timing>, Failure> {
        let spinner = progress::spinner();
        let mut timings = Vec::new();
        let timed = time_kernels(selection, |timing| {
            spinner.set_message(format!("{} {}", timing.kernel, timing.shape));
            spinner.tick();
            timings.push(timing);
        });
        spinner.finish_and_clear();
        timed.map_err(|error| failure(&error))?;
        Ok(timings)
    }
}

fn failure(error: &engine::Error) -> Failure {
    Failure::Other(error.to_string())
}

/// The peak rates of this machine.
struct MachineLimits {
    /// Rates of each instruction set, from the weakest to the strongest, with one thread and with all requested
    /// threads. The memory rate is measured with the chosen instruction set.
    limits: Vec<Limits>,
    reads: Vec<Reads>,
    chosen: Isa,
    threads: usize,
}

/// Read rates in bytes per second with `threads` threads, and further rates of the chosen instruction set.
struct Reads {
    threads: usize,
    /// For each of [`WORKING_SETS`]; each thread has its own.
    working_sets: Vec<f64>,
    memory: f64,
    /// Operations per second with pairs of bf16, if the instruction set has them.
    bf16: Option<f64>,
    /// Operations per second with bytes.
    bytes: Option<f64>,
}

impl MachineLimits {
    fn measure(chosen: Isa, threads: usize) -> Result<Self, Failure> {
        let counts = if threads == 1 { vec![1] } else { vec![1, threads] };
        let (mut limits, mut reads) = (Vec::new(), Vec::new());
        for threads in counts {
            let engine = |isa| Engine::with_isa(isa, threads).map_err(|error| failure(&error));
            let (working_sets, memory) = read_rates(&engine(chosen)?, &WORKING_SETS, MEMORY);
            for isa in Isa::available() {
                limits.push(Limits { isa, threads, flop_rate: flop_rate(&engine(isa)?), byte_rate: memory });
            }
            let engine = engine(chosen)?;
            let (bf16, bytes) = (bf16_flop_rate(&engine), byte_op_rate(&engine));
            reads.push(Reads { threads, working_sets, memory, bf16, bytes });
        }
        Ok(Self { limits, reads, chosen, threads })
    }

    fn print(&self) {
        let counts = self.reads.iter().map(|reads| match reads.threads {
            1 => "1 thread ".to_owned(),
            threads => format!("{threads} threads "),
        });
        let header: Vec<String> = [String::new(), String::new()].into_iter().chain(counts).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let row = |name: String, unit: &str, rates: Vec<f64>| {
            let rates = rates.iter().map(|rate| format!("{:.1}", rate / 1e9));
            [name, unit.to_owned()].into_iter().chain(rates).collect::<Vec<_>>()
        };
        let compute = Isa::available().map(|isa| {
            let mark = if isa == self.chosen { " *" } else { "" };
            let rates = self.limits.iter().filter(|limits| limits.isa == isa).map(|limits| limits.flop_rate);
            row(format!("compute, {isa}{mark}"), "GFLOP/s", rates.collect())
        });
        let bf16: Option<Vec<f64>> = self.reads.iter().map(|reads| reads.bf16).collect();
        let bf16 = bf16.map(|rates| row(format!("compute in bf16, {} *", self.chosen), "GFLOP/s", rates));
        let bytes: Option<Vec<f64>> = self.reads.iter().map(|reads| reads.bytes).collect();
        let bytes = bytes.map(|rates| row(format!("compute in int8, {} *", self.chosen), "GOP/s", rates));
        let caches = WORKING_SETS.iter().enumerate().map(|(i, &bytes)| {
            let rates = self.reads.iter().filter_map(|reads| reads.working_sets.get(i).copied());
            row(format!("read {} a thread", output::bytes(bytes as u64)), "GB/s", rates.collect())
        });
        let memory = row("read from memory".to_owned(), "GB/s", self.reads.iter().map(|reads| reads.memory).collect());
        output::print(&format!(
            "\n{}",
            output::table(&header, compute.chain(bf16).chain(bytes).chain(caches).chain([memory]))
        ));
    }

    /// A row for each variant: its time with each instruction set, and the rates of the chosen one.
    fn print_timings(&self, timings: &[Timing]) {
        let isas: Vec<String> = Isa::available().map(|isa| format!("{isa}   ")).collect();
        let mut header = vec!["kernel", "shape", "variant"];
        header.extend(isas.iter().map(String::as_str));
        header.extend(["GFLOP/s ", "GB/s ", "of limit "]);
        let variants = timings.chunk_by(|a, b| (a.kernel, &a.shape, a.variant) == (b.kernel, &b.shape, b.variant));
        let rows = variants.filter_map(|variant| {
            let first = variant.first()?;
            let mut row = vec![first.kernel.to_owned(), first.shape.clone(), first.variant.to_owned()];
            row.extend(variant.iter().map(|timing| {
                let mark = if timing.chosen { "*" } else { " " };
                format!("{} {mark}", output::duration(timing.time))
            }));
            let timing = variant.iter().find(|timing| timing.isa == self.chosen)?;
            let rate = |rate: f64| if rate > 0.0 { format!("{:.1}", rate / 1e9) } else { String::new() };
            row.extend([rate(timing.flop_rate()), rate(timing.byte_rate()), self.share(timing)]);
            Some(row)
        });
        output::print(&format!("\nthreads: {}\n{}", self.threads, output::table(&header, rows)));
        output::print(&format!("* what programs are run with here{}", verdict(timings)));
        output::print(&format!("rates are those of {}", self.chosen));
    }

    fn of(&self, timing: &Timing) -> Option<rushlight::runtime::Limits> {
        let is_same = |limits: &&Limits| (limits.isa, limits.threads) == (timing.isa, self.threads);
        let Limits { flop_rate, byte_rate, .. } = *self.limits.iter().find(is_same)?;
        Some(rushlight::runtime::Limits { flop_rate, byte_rate })
    }

    fn share(&self, timing: &Timing) -> String {
        let share = self.of(timing).map(|limits| limits.share(timing.flop_rate(), timing.byte_rate()));
        share.map_or_else(String::new, output::limit_share)
    }

    fn timing_json(&self, timing: &Timing) -> Json {
        let mut json = json!({
            "kernel": timing.kernel,
            "shape": timing.shape,
            "variant": timing.variant,
            "isa": timing.isa.name(),
            "threads": timing.threads,
            "chosen": timing.chosen,
            "ns": u64::try_from(timing.time.as_nanos()).unwrap_or(u64::MAX),
            "flops_per_s": timing.flop_rate(),
            "bytes_per_s": timing.byte_rate(),
        });
        if let Some(limits) = self.of(timing) {
            add_share(&mut json, &limits, timing.flop_rate(), timing.byte_rate());
        }
        json
    }

    fn json(&self) -> Json {
        let reads = self.reads.iter().map(|reads| {
            let sets = WORKING_SETS.iter().zip(&reads.working_sets);
            let sets: Vec<Json> = sets.map(|(size, rate)| json!({ "bytes": size, "bytes_per_s": rate })).collect();
            json!({
                "threads": reads.threads,
                "working_sets": sets,
                "memory_bytes_per_s": reads.memory,
                "bf16_flops_per_s": reads.bf16,
                "int8_ops_per_s": reads.bytes,
            })
        });
        json!({
            "chosen_isa": self.chosen.name(),
            "limits": self.limits.iter().map(limits_json).collect::<Json>(),
            "reads": reads.collect::<Vec<_>>(),
        })
    }
}

/// Compares the chosen variants with the fastest of the timed ones.
fn verdict(timings: &[Timing]) -> String {
    let (mut cases, mut fastest, mut worst) = (0, 0, (1.0, String::new()));
    for case in timings.chunk_by(|a, b| (a.kernel, &a.shape) == (b.kernel, &b.shape)) {
        let Some(chosen) = case.iter().find(|timing| timing.chosen) else { continue };
        let least = case.iter().map(|timing| timing.time).min().unwrap_or_default();
        let ratio = if least.is_zero() { 1.0 } else { chosen.time.as_secs_f64() / least.as_secs_f64() };
        cases += 1;
        fastest += usize::from(chosen.time == least);
        if ratio > worst.0 {
            worst = (
                ratio,
                format!("; at worst {ratio:.2} times the fastest one's time: {} {}", chosen.kernel, chosen.shape),
            );
        }
    }
    format!(", the fastest for {fastest} of {cases} shapes{}", worst.1)
}

/// The rates of an instruction set with a number of threads, per second.
fn limits_json(limits: &Limits) -> Json {
    json!({
        "isa": limits.isa.name(),
        "threads": limits.threads,
        "flops_per_s": limits.flop_rate,
        "bytes_per_s": limits.byte_rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_counts_shapes() {
        let timing = |shape: &str, chosen, micros| Timing {
            kernel: "product",
            shape: shape.to_owned(),
            variant: "",
            isa: Isa::Scalar,
            threads: 1,
            chosen,
            time: Duration::from_micros(micros),
            flops: 1.0,
            bytes: 1.0,
        };
        let first = [timing("a", true, 10), timing("a", false, 20)];
        assert_eq!(verdict(&first), ", the fastest for 1 of 1 shapes");
        let second = [timing("b", true, 30), timing("b", false, 20)];
        let expected = ", the fastest for 1 of 2 shapes; at worst 1.50 times the fastest one's time: product b";
        assert_eq!(verdict(&[first, second].concat()), expected);
    }
}
