//! The table of operators: one-operator programs, run by both sides.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rushlight_testing::program::{self, Placement};

use crate::agreement;
use crate::calls::{self, Call};
use crate::document::{conditions, microseconds};
use crate::environment::llama_libraries;
use crate::interleaved::{Pair, geometric_mean, interleaved, least};
use crate::ours::{self, Tensor};
use crate::peer::Peer;
use crate::process::on_cores;

/// Both sides copy the inputs before the clock starts, so that caches are in the same state. Tensors that are updated
/// in place are then in the same state too.
pub const PLACEMENT: Placement = Placement::Planned;

const ROUNDS: usize = 7;
const TURN: Duration = Duration::from_millis(3);

/// Rounds for calls that in the first rounds are slower than theirs, or less than a quarter faster. Other work of the
/// machine can cause such a difference.
const MORE_ROUNDS: usize = 31;
const CLEARLY_FASTER: f64 = 1.25;

/// Number of times that such calls are loaded again by new processes of both sides. The physical pages of a side's
/// tensors decide which of them stay in the caches, which can change a time by a factor of 1.9.
const PLACES: usize = 12;

/// Below this ratio, the difference between two processes of theirs is measured too. It is the error of a ratio.
const CLOSE: f64 = 1.05;

/// Operators for which the wheel's kernel library replaces the portable kernel by one that uses vector instructions or
/// a matrix library (the symbols `opt_*` of `libexecutorch_kernels_optimized.so`).
const OPTIMIZED: &[&str] = &[
    "aten::_fft_c2r.out",
    "aten::_fft_r2c.out",
    "aten::_log_softmax.out",
    "aten::add.Scalar_out",
    "aten::add.out",
    "aten::bmm.out",
    "aten::div.Scalar_out",
    "aten::div.out",
    "aten::elu.out",
    "aten::exp.out",
    "aten::gelu.out",
    "aten::grid_sampler_2d.out",
    "aten::le.Scalar_out",
    "aten::le.Tensor_out",
    "aten::linear.out",
    "aten::mm.out",
    "aten::mul.Scalar_out",
    "aten::mul.out",
    "aten::native_layer_norm.out",
    "aten::sub.Scalar_out",
    "aten::sub.out",
    "aten::sum.IntList_out",
    "aten::where.self_out",
];

/// Measures the calls that contain `filter`. Returns the section of the document.
pub fn run(worker: &Path, filter: Option<&str>) -> Result<String> {
    let mut sides = Sides::start(worker)?;
    let mut rows = Vec::new();
    for call in calls::all(filter)? {
        // These libraries load all of PyTorch, therefore these calls are measured last.
        if is_llama(&call.case.op) && sides.libraries.is_empty() {
            sides.libraries = llama_libraries();
            sides.restart()?;
        }
        let outcome = measure(&call, &mut sides)?;
        println!("{}", line(&call, &outcome));
        rows.push((call, outcome));
        if let Some((_, Outcome::TheyFail(reason, _))) = rows.last()
            && reason.contains("aborted")
        {
            sides.restart()?;
        }
    }
    Ok(section(&rows))
}

/// A process of each side, and the parameters to start others.
struct Sides<'w> {
    worker: &'w Path,
    /// Libraries with ExecuTorch's kernels.
    libraries: Vec<String>,
    theirs: Peer,
    ours: Peer,
}

impl<'w> Sides<'w> {
    fn start(worker: &'w Path) -> Result<Self> {
        Ok(Self {
            worker,
            libraries: Vec::new(),
            theirs: process_of_theirs(worker, &[])?,
            ours: process_of_ours(worker)?,
        })
    }

    fn restart(&mut self) -> Result<()> {
        let theirs = process_of_theirs(self.worker, &self.libraries)?;
        (self.theirs, self.ours) = (theirs, process_of_ours(self.worker)?);
        Ok(())
    }

    /// Starts two processes of theirs, one of them in the place of ours.
    fn restart_with_theirs_alone(&mut self) -> Result<()> {
        let theirs = || process_of_theirs(self.worker, &self.libraries);
        (self.theirs, self.ours) = (theirs()?, theirs()?);
        Ok(())
    }

    /// The fastest turns of both sides in several processes. `restart` starts the processes and `load` loads the call.
    fn in_places(
        &mut self,
        restart: fn(&mut Self) -> Result<()>,
        load: impl Fn(&mut Peer) -> Result<()>,
    ) -> Result<Pair> {
        let mut all = Pair { theirs: f64::INFINITY, ours: f64::INFINITY };
        for _ in 0..PLACES {
            restart(self)?;
            load(&mut self.ours)?;
            load(&mut self.theirs)?;
            all = all.fastest(self.turns(MORE_ROUNDS)?);
        }
        Ok(all)
    }

    /// The fastest turns of both sides.
    fn turns(&mut self, rounds: usize) -> Result<Pair> {
        interleaved(rounds, least, || self.theirs.time(1, TURN), || self.ours.time(1, TURN))
    }
}

/// Starts a process of theirs, with the kernels of these libraries.
fn process_of_theirs(worker: &Path, libraries: &[String]) -> Result<Peer> {
    let mut theirs = Peer::spawn(&mut on_cores(worker, 1), folder(worker)?)?;
    libraries.iter().try_for_each(|library| theirs.library(library))?;
    Ok(theirs)
}

/// Starts a process of ours, with its files beside the worker.
fn process_of_ours(worker: &Path) -> Result<Peer> {
    Peer::spawn(on_cores(std::env::current_exe()?, 1).arg("serve-portable"), folder(worker)?)
}

fn folder(worker: &Path) -> Result<&Path> {
    worker.parent().context("the worker is in no folder")
}

enum Outcome {
    /// Both times, and the ratio between two processes of theirs if the first ratio is [`CLOSE`].
    Both(Pair, Option<f64>),
    /// The reason why they do not run it, and our nanoseconds.
    TheyFail(String, f64),
    Differ(Pair, String),
}

fn measure(call: &Call, sides: &mut Sides<'_>) -> Result<Outcome> {
    let written = program::write(&call.case, PLACEMENT).map_err(|e| anyhow::anyhow!("{e}"))?;
    let inputs: Vec<Tensor> = written.inputs.iter().map(|&t| t.into()).collect();
    let load = |peer: &mut Peer| peer.load(&written.bytes, inputs.iter().map(|tensor| &tensor.bytes[..]));
    load(&mut sides.ours)?;
    // ExecuTorch refuses some calls with an error and some by aborting.
    if let Err(reason) = load(&mut sides.theirs) {
        return Ok(Outcome::TheyFail(reason.to_string(), sides.ours.time(3, 5 * TURN)?));
    }
    let theirs = sides.theirs.outputs()?;
    let mut pair = sides.turns(ROUNDS)?;
    let mut control = None;
    if pair.ratio() < CLEARLY_FASTER {
        pair = sides.in_places(Sides::restart, load)?;
        if pair.ratio() < CLOSE {
            control = Some(sides.in_places(Sides::restart_with_theirs_alone, load)?.ratio());
            sides.restart()?;
        }
    }
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is that of one lifetime")]
    let ours = ours::with_session(&written.bytes, &inputs, |session| session.outputs())?;
    Ok(match agreement::difference(&ours, &theirs) {
        Some(difference) if !call.is_unspecified() => Outcome::Differ(pair, difference),
        _ => Outcome::Both(pair, control),
    })
}

fn line(call: &Call, outcome: &Outcome) -> String {
    let head = format!("| {} | {} | {} |", call.case.op, call.arguments.replace('|', "\\|"), library(&call.case.op));
    match outcome {
        Outcome::Both(pair, control) => {
            let (theirs, ours) = (microseconds(pair.theirs), microseconds(pair.ours));
            let control = control.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            format!("{head} {theirs} | {ours} | {:.2} | {control} |", pair.ratio())
        }
        Outcome::TheyFail(reason, ours) => format!("{head} {reason} | {} | | |", microseconds(*ours)),
        Outcome::Differ(pair, difference) => {
            let (theirs, ours) = (microseconds(pair.theirs), microseconds(pair.ours));
            format!("{head} {theirs} | {ours} | results differ: {difference} | |")
        }
    }
}

fn is_llama(op: &str) -> bool {
    op.starts_with("llama::")
}

fn library(op: &str) -> &'static str {
    match op {
        op if is_llama(op) => "custom",
        op if OPTIMIZED.contains(&op) => "optimized",
        op if op.starts_with("quantized_decomposed::") => "quantized",
        _ => "portable",
    }
}

fn section(rows: &[(Call, Outcome)]) -> String {
    let measured: Vec<(&Call, Pair)> = rows
        .iter()
        .filter_map(|(call, outcome)| match outcome {
            Outcome::Both(pair, _) => Some((call, *pair)),
            _ => None,
        })
        .collect();
    let slower = measured.iter().filter(|(_, pair)| pair.ratio() < 1.0).count();
    let all = geometric_mean(measured.iter().map(|(_, pair)| pair.ratio()));
    let portable = measured.iter().filter(|(call, _)| library(&call.case.op) == "portable");
    let only_portable = geometric_mean(portable.map(|(_, pair)| pair.ratio()));
    let controls = rows
        .iter()
        .filter_map(|(_, outcome)| if let Outcome::Both(_, control) = outcome { *control } else { None })
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), control| (low.min(control), high.max(control)));
    let controls = if controls.0 <= controls.1 {
        format!(" (controls are {:.2} to {:.2})", controls.0, controls.1)
    } else {
        String::new()
    };
    let mut text = conditions("cargo xtask bench portable");
    let _ = write!(
        text,
        "\n\nEach row is a program of one operator that both runtimes load, each in its own process. Times are \
         microseconds of its execution. The two take turns of {} ms for {ROUNDS} rounds. If these show no ratio of \
         {CLEARLY_FASTER} or more, {MORE_ROUNDS} other rounds follow, in each of {PLACES} places in memory. A turn \
         counts with the median of its calls, a side with its fastest turn. Other programs slow a turn by up to a \
         half, and physical pages that share cache sets by even more. *Library* is the library of the wheel that has \
         ExecuTorch's kernel. `optimized` has kernels with vector instructions that the wheel registers in place of \
         portable ones, `custom` has those for large language models. *Ratio* is ExecuTorch's time over Rushlight's. \
         If it is below {CLOSE}, *control* is the ratio of ExecuTorch to a second process of ExecuTorch, measured in \
         the same way. A ratio closer to 1 than the control is not significant.\n\n\
         Of {} calls, {slower} are slower than ExecuTorch's{controls}. The geometric mean of the ratios is {all:.2}; \
         against portable kernels it is {only_portable:.2}.\n",
        TURN.as_millis(),
        rows.len(),
    );
    let mut family = "";
    for (call, outcome) in rows {
        if call.family != family {
            family = &call.family;
            let _ = write!(text, "\n### {family}\n\n");
            text.push_str("| operator | arguments | library | ExecuTorch | Rushlight | ratio | control |\n");
            text.push_str("|---|---|---|--:|--:|--:|--:|\n");
        }
        text.push_str(&line(call, outcome));
        text.push('\n');
    }
    text
}
