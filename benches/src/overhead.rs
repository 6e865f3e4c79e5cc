//! The overhead of the runtime: programs of 2 and 100 additions and multiplications of one-element tensors.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rushlight::{Input, Module};
use serde_json::Value as Json;

use crate::document::{conditions, microseconds};
use crate::interleaved::{Pair, Stage, interleaved, least};
use crate::ours;
use crate::peer::Peer;

const LENGTHS: &[usize] = &[2, 100];
const ROUNDS: usize = 15;

/// A stage, its number of batches in a turn, and its name.
type Timed = (Stage, usize, &'static str);

const STAGES: &[Timed] = &[
    (Stage::Verify, 100, "load with verification"),
    (Stage::Method, 60, "load the method"),
    (Stage::Execute, 100, "execute"),
    (Stage::Call, 100, "set inputs, execute, read outputs"),
];

/// Measures both languages. Returns the section of the document.
pub fn run(worker: &Path, models: &Path, python: &Path) -> Result<String> {
    let mut text = conditions("cargo xtask bench overhead");
    let _ = write!(
        text,
        "\n\nPrograms of 2 and 100 operators on one-element tensors, in microseconds. The two runtimes take turns. A \
         turn counts with the median of its batches of calls, a side with its fastest turn. *Ratio* is ExecuTorch's \
         time over Rushlight's.\n\n\
         Rust against the C++ runtime. ExecuTorch verifies with `InternalConsistency`. The times of Rushlight's \
         `execute` include setting the inputs; those of ExecuTorch's do not.\n\n"
    );
    let mut peer = Peer::start(worker)?;
    let chains: Vec<Chain> = LENGTHS.iter().map(|&length| Chain::read(models, length)).collect::<Result<_>>()?;
    table(
        &mut text,
        chains
            .iter()
            .flat_map(|chain| STAGES.iter().map(move |of| (chain, of)))
            .map(|(chain, of)| Ok(chain.row(of, chain.portable(of, &mut peer)?))),
    )?;
    text.push_str(
        "\nThe same programs, lowered by ExecuTorch for its XNNPACK delegate, with one thread. Rushlight runs them \
         with its defaults, without XNNPACK.\n\n",
    );
    let executing = || STAGES.iter().filter(|(stage, ..)| matches!(stage, Stage::Execute | Stage::Call));
    table(
        &mut text,
        chains
            .iter()
            .flat_map(|chain| executing().map(move |of| (chain, of)))
            .map(|(chain, of)| Ok(chain.row(of, chain.delegated(of, &mut peer)?))),
    )?;
    text.push_str(
        "\nFrom Python, with torch tensors: `rushlight.compat.portable_lib` against the wheel's own \
         `executorch.extension.pybindings.portable_lib`, in the same script.\n\n",
    );
    table(&mut text, from_python(models, python)?.into_iter().map(Ok))?;
    Ok(text)
}
struct Row {
    operators: usize,
    stage: String,
    pair: Pair,
}

/// Appends a table, and prints each row as soon as it is measured.
fn table(text: &mut String, rows: impl Iterator<Item = Result<Row>>) -> Result<()> {
    text.push_str("| operators | stage | ExecuTorch | Rushlight | ratio |\n|--:|---|--:|--:|--:|\n");
    for row in rows {
        let Row { operators, stage, pair } = row?;
        let (theirs, ours) = (microseconds(pair.theirs), microseconds(pair.ours));
        let line = format!("| {operators} | {stage} | {theirs} | {ours} | {:.2} |", pair.ratio());
        println!("{line}");
        let _ = writeln!(text, "{line}");
    }
    Ok(())
}

/// A chain of operators and its inputs.
struct Chain {
    operators: usize,
    folder: PathBuf,
    inputs: Vec<ours::Tensor>,
}

impl Chain {
    fn read(models: &Path, operators: usize) -> Result<Self> {
        let folder = models.join(format!("chain{operators}"));
        let inputs = ours::archived(&folder.join("inputs_0.npz"))?;
        Ok(Self { operators, folder, inputs })
    }

    fn row(&self, &(_, _, stage): &Timed, pair: Pair) -> Row {
        Row { operators: self.operators, stage: stage.to_owned(), pair }
    }

    /// Loads a program of this chain in ExecuTorch, and returns its bytes.
    fn load(&self, file: &str, peer: &mut Peer) -> Result<Vec<u8>> {
        let file = self.folder.join(file);
        let program = std::fs::read(&file).with_context(|| file.display().to_string())?;
        peer.load(&program, self.inputs.iter().map(|tensor| &tensor.bytes[..]))?;
        Ok(program)
    }

    fn portable(&self, &(stage, batches, _): &Timed, peer: &mut Peer) -> Result<Pair> {
        let program = self.load("model.pte", peer)?;
        ours::with_session(&program, &self.inputs, |session| {
            interleaved(ROUNDS, least, || peer.stage(stage, batches), || session.stage(stage, batches))
        })
    }

    /// Measures the chain lowered for XNNPACK.
    fn delegated(&self, &(stage, batches, _): &Timed, peer: &mut Peer) -> Result<Pair> {
        let program = self.load("xnnpack.pte", peer)?;
        let error = |e: rushlight::Error| anyhow::anyhow!("{e}");
        let mut module = Module::builder().threads(1).load_bytes(&program).map_err(error)?;
        let inputs: Vec<Input<'_>> = self.inputs.iter().map(ours::Tensor::input).collect::<Result<_>>()?;
        let method = module.method("forward").map_err(error)?;
        interleaved(ROUNDS, least, || peer.stage(stage, batches), || ours::calls(method, &inputs, stage, batches))
    }
}

fn from_python(models: &Path, python: &Path) -> Result<Vec<Row>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("overhead.py");
    let mut command = Command::new(python);
    let output = command.arg(&script).arg(models).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start `{}`", python.display()))?;
    if !output.status.success() {
        bail!("{} failed: {}", script.display(), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let printed: Vec<Json> = serde_json::from_str(text.lines().last().unwrap_or_default())?;
    let row = |measured: &Json| {
        let number = |key: &str| measured[key].as_f64().with_context(|| format!("{key} in {measured}"));
        let pair = Pair { theirs: number("theirs")?, ours: number("ours")? };
        let stage = measured["stage"].as_str().unwrap_or_default().to_owned();
        Ok(Row { operators: number("operators")? as usize, stage, pair })
    };
    printed.iter().map(row).collect()
}
