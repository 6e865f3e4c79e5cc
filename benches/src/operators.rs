//! The table of operators: one-operator programs, run by both sides.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rushlight_testing::program::{self, Placement};

use crate::agreement;
use crate::calls::{self, Call};
use crate::document::{conditions, microseconds};
use crate::interleaved::{Pair, geometric_mean, interleaved, least};
use crate::ours::{self, Tensor};
use crate::peer::Peer;

/// Both sides copy the inputs anew before the clock starts, so that caches are in the same state, and so are tensors
/// that are updated in place.
pub const PLACEMENT: Placement = Placement::Planned;

const ROUNDS: usize = 7;
const TURN: Duration = Duration::from_millis(3);

/// Rounds for calls that come out slower than theirs in the first ones, or less than a quarter faster: what else the
/// machine does may make as much of a difference.
const MORE_ROUNDS: usize = 31;
const CLEARLY_FASTER: f64 = 1.25;

/// How often such calls are loaded anew on both sides, by new processes: which physical pages a side's tensors were given
/// decides what caches hold of them, which made as much as a factor of 1.9.
const PLACES: usize = 12;

/// Operators for which the wheel's kernel library has, in place of the portable kernel, one that uses vector
/// instructions or a matrix library (the symbols `opt_*` of `libexecutorch_kernels_optimized.so`).
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

/// Measures the calls that contain `filter`; the section of the document.
pub fn run(worker: &Path, filter: Option<&str>) -> Result<String> {
    let mut sides = Sides::start(worker)?;
    let mut rows = Vec::new();
    for call in calls::all(filter)? {
        // All of PyTorch comes with them, so nothing else shall be measured afterwards.
        if is_llama(&call.case.op) && sides.libraries.is_empty() {
            let libraries = std::env::var("EXECUTORCH_LLAMA").unwrap_or_default();
            sides.libraries = libraries.split(':').filter(|library| !library.is_empty()).map(str::to_owned).collect();
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

/// A process of each side, and what it takes to start others.
struct Sides<'w> {
    worker: &'w Path,
    /// With ExecuTorch's kernels.
    libraries: Vec<String>,
    theirs: Peer,
    ours: Peer,
}

impl<'w> Sides<'w> {
    fn start(worker: &'w Path) -> Result<Self> {
        let (theirs, ours) = processes(worker)?;
        Ok(Self { worker, libraries: Vec::new(), theirs, ours })
    }

    fn restart(&mut self) -> Result<()> {
        (self.theirs, self.ours) = processes(self.worker)?;
        self.libraries.iter().try_for_each(|library| self.theirs.library(library))
    }

    /// Both sides' fastest turns.
    fn turns(&mut self, rounds: usize) -> Result<Pair> {
        interleaved(rounds, least, || self.theirs.time(1, TURN), || self.ours.time(1, TURN))
    }
}

fn processes(worker: &Path) -> Result<(Peer, Peer)> {
    let ours = &mut Command::new(std::env::current_exe()?);
    Ok((Peer::start(worker)?, Peer::spawn(ours.arg("serve-portable"), worker.parent().context("no folder")?)?))
}

enum Outcome {
    Both(Pair),
    /// Why they do not run it, and our nanoseconds.
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
    if pair.ratio() < CLEARLY_FASTER {
        pair = sides.turns(MORE_ROUNDS)?;
        for _ in 1..PLACES {
            sides.restart()?;
            load(&mut sides.ours)?;
            load(&mut sides.theirs)?;
            pair = pair.fastest(sides.turns(MORE_ROUNDS)?);
        }
    }
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is that of one lifetime")]
    let ours = ours::with_session(&written.bytes, &inputs, |session| session.outputs())?;
    Ok(match agreement::difference(&ours, &theirs) {
        Some(difference) if !call.is_unspecified() => Outcome::Differ(pair, difference),
        _ => Outcome::Both(pair),
    })
}

fn line(call: &Call, outcome: &Outcome) -> String {
    let head = format!("| {} | {} | {} |", call.case.op, call.arguments.replace('|', "\\|"), library(&call.case.op));
    match outcome {
        Outcome::Both(pair) => {
            format!("{head} {} | {} | {:.2} |", microseconds(pair.theirs), microseconds(pair.ours), pair.ratio())
        }
        Outcome::TheyFail(reason, ours) => format!("{head} {reason} | {} | |", microseconds(*ours)),
        Outcome::Differ(pair, difference) => {
            let (theirs, ours) = (microseconds(pair.theirs), microseconds(pair.ours));
            format!("{head} {theirs} | {ours} | results differ: {difference} |")
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
            Outcome::Both(pair) => Some((call, *pair)),
            _ => None,
        })
        .collect();
    let slower = measured.iter().filter(|(_, pair)| pair.ratio() < 1.0).count();
    let all = geometric_mean(measured.iter().map(|(_, pair)| pair.ratio()));
    let portable = measured.iter().filter(|(call, _)| library(&call.case.op) == "portable");
    let only_portable = geometric_mean(portable.map(|(_, pair)| pair.ratio()));
    let mut text = conditions("cargo xtask bench portable");
    let _ = write!(
        text,
        "\n\nEach line is a program of one operator that both runtimes load, each in a process of its own. The times are \
         microseconds of its execution. The two take turns of {} ms for {ROUNDS} rounds ({MORE_ROUNDS} other rounds where these show no ratio of \
         {CLEARLY_FASTER} or more, in each of {PLACES} places in memory); a turn counts with the median of its calls and a \
         side with its fastest turn, because what else a machine does slows a turn by up to a half, and physical pages \
         that share a cache's sets by even more. *Library* is the one of the wheel's that has their kernel: \
         `optimized` are kernels with vector instructions that the wheel registers in place of portable ones, `custom` \
         those for large language models. The ratio says how many times as long they take.\n\n\
         {} calls, {slower} of them slower than theirs. Geometric mean of the ratios: {all:.2}; of those against \
         portable kernels {only_portable:.2}.\n",
        TURN.as_millis(),
        rows.len(),
    );
    let mut family = "";
    for (call, outcome) in rows {
        if call.family != family {
            family = &call.family;
            let _ = write!(text, "\n### {family}\n\n");
            text.push_str("| operator | arguments | library | ExecuTorch | Rushlight | ratio |\n");
            text.push_str("|---|---|---|--:|--:|--:|\n");
        }
        text.push_str(&line(call, outcome));
        text.push('\n');
    }
    text
}
