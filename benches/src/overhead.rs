//! What the runtime costs by itself: programs of 2 and 100 additions and products of one-element tensors.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rushlight::{Input, Module};
use serde_json::Value as Json;

use crate::document::{conditions, microseconds};
use crate::interleaved::{Pair, Stage, interleaved};
use crate::ours;
use crate::peer::Peer;

const LENGTHS: &[usize] = &[2, 100];
const ROUNDS: usize = 15;

const STAGES: &[(Stage, usize, &str)] = &[
    (Stage::Verify, 100, "load with verification"),
    (Stage::Method, 60, "load the method"),
    (Stage::Execute, 100, "execute"),
    (Stage::Call, 100, "set inputs, execute, read outputs"),
];

/// Measures both languages; the section of the document.
pub fn run(worker: &Path, models: &Path, python: &Path) -> Result<String> {
    let mut text = conditions("cargo xtask bench overhead");
    let _ = write!(
        text,
        "\n\nPrograms of 2 and 100 operators on one-element tensors; microseconds, medians of rounds in which the two take \
         turns. The ratio says how many times as long they take.\n\n\
         Rust against the C++ runtime. ExecuTorch verifies with `InternalConsistency`. Its `execute` finds inputs set; \
         Rushlight's has none without setting them, so that is in its times.\n\n"
    );
    text.push_str("| operators | stage | ExecuTorch | Rushlight | ratio |\n|--:|---|--:|--:|--:|\n");
    let mut peer = Peer::start(worker)?;
    for &length in LENGTHS {
        for &(stage, batches, name) in STAGES {
            let pair = stage_of(length, stage, batches, &mut peer, models)?;
            let line = row(length, name, pair);
            println!("{line}");
            let _ = writeln!(text, "{line}");
        }
    }
    text.push_str(
        "\nThe same programs as ExecuTorch lowers them for its XNNPACK delegate, with one thread; Rushlight runs them as it \
         does by default, without XNNPACK.\n\n",
    );
    text.push_str("| operators | stage | ExecuTorch | Rushlight | ratio |\n|--:|---|--:|--:|--:|\n");
    for &length in LENGTHS {
        for &(stage, batches, name) in STAGES.iter().filter(|(stage, ..)| matches!(stage, Stage::Execute | Stage::Call))
        {
            let pair = delegated(length, stage, batches, &mut peer, models)?;
            let line = row(length, name, pair);
            println!("{line}");
            let _ = writeln!(text, "{line}");
        }
    }
    text.push_str(
        "\nFrom Python, with torch tensors: `rushlight.compat.portable_lib` against the wheel's own \
         `executorch.extension.pybindings.portable_lib`, by the same script.\n\n",
    );
    text.push_str("| operators | stage | ExecuTorch | Rushlight | ratio |\n|--:|---|--:|--:|--:|\n");
    for measured in from_python(models, python)?.as_array().context("a list of measurements")? {
        let number = |key: &str| measured[key].as_f64().with_context(|| format!("{key} in {measured}"));
        let pair = Pair { theirs: number("theirs")?, ours: number("ours")? };
        let line = row(number("operators")? as usize, measured["stage"].as_str().unwrap_or_default(), pair);
        println!("{line}");
        let _ = writeln!(text, "{line}");
    }
    Ok(text)
}

fn row(length: usize, name: &str, pair: Pair) -> String {
    let (theirs, ours) = (microseconds(pair.theirs), microseconds(pair.ours));
    format!("| {length} | {name} | {theirs} | {ours} | {:.2} |", pair.ratio())
}

fn stage_of(length: usize, stage: Stage, batches: usize, peer: &mut Peer, models: &Path) -> Result<Pair> {
    let folder = models.join(format!("chain{length}"));
    let program = std::fs::read(folder.join("model.pte")).with_context(|| folder.display().to_string())?;
    let inputs = ours::archived(&folder.join("inputs_0.npz"))?;
    peer.load(&program, inputs.iter().map(|tensor| &tensor.bytes[..]))?;
    ours::with_session(&program, &inputs, |session| {
        interleaved(ROUNDS, || peer.stage(stage, batches), || session.stage(stage, batches))
    })
}

/// A chain that is lowered for XNNPACK.
fn delegated(length: usize, stage: Stage, batches: usize, peer: &mut Peer, models: &Path) -> Result<Pair> {
    let folder = models.join(format!("chain{length}"));
    let file = folder.join("xnnpack.pte");
    let inputs = ours::archived(&folder.join("inputs_0.npz"))?;
    let program = std::fs::read(&file).with_context(|| file.display().to_string())?;
    peer.load(&program, inputs.iter().map(|tensor| &tensor.bytes[..]))?;
    let error = |e: rushlight::Error| anyhow::anyhow!("{e}");
    let mut module = Module::builder().threads(1).load(&file).map_err(error)?;
    let inputs: Vec<Input<'_>> = inputs.iter().map(ours::Tensor::input).collect::<Result<_>>()?;
    let method = module.method("forward").map_err(error)?;
    interleaved(ROUNDS, || peer.stage(stage, batches), || ours::calls(method, &inputs, stage, batches))
}

fn from_python(models: &Path, python: &Path) -> Result<Json> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("overhead.py");
    let mut command = Command::new(python);
    let output = command.arg(&script).arg(models).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start `{}`", python.display()))?;
    if !output.status.success() {
        bail!("{} failed: {}", script.display(), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}
