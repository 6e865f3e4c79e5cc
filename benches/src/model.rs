//! A whole model.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::agreement;
use crate::document::{conditions, milliseconds};
use crate::interleaved::{interleaved, median};
use crate::ours;
use crate::peer::Peer;

const NAME: &str = "mobilenet_v3_small_224";
const ROUNDS: usize = 9;

/// Measures the model in `models`; the section of the document.
pub fn run(worker: &Path, models: &Path) -> Result<String> {
    let folder = models.join(NAME);
    let program = std::fs::read(folder.join("model.pte")).with_context(|| folder.display().to_string())?;
    let inputs = ours::archived(&folder.join("inputs_0.npz"))?;
    let mut peer = Peer::start(worker)?;
    peer.load(&program, inputs.iter().map(|tensor| &tensor.bytes[..]))?;
    ours::with_session(&program, &inputs, |session| {
        if let Some(difference) = agreement::difference(&session.outputs()?, &peer.outputs()?) {
            bail!("the two disagree about the model: {difference}");
        }
        let pair = interleaved(
            ROUNDS,
            median,
            || peer.time(1, Duration::from_millis(200)),
            || session.time(3, Duration::from_millis(200)),
        )?;
        Ok(format!(
            "{}\n\nfp32 at 224x224, batch 1, exported by the executorch wheel as a portable program. Medians of \
             {ROUNDS} rounds in which the two runtimes take turns. Their results agree.\n\n\
             | ExecuTorch, ms | Rushlight, ms | ratio |\n|--:|--:|--:|\n| {} | {} | {:.1} |\n",
            conditions("cargo xtask bench portable"),
            milliseconds(pair.theirs),
            milliseconds(pair.ours),
            pair.ratio()
        ))
    })
}
