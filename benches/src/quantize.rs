//! Quantizing a model, beside PT2E and ExecuTorch's compiler.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rushlight::{Compiler, Input, Module, Quantization, Scheme, Tensor, TensorView, Value};
use serde_json::{Value as Json, json};

use crate::document::{conditions, significant};
use crate::interleaved::median;
use crate::process::answer;

const MODEL: &str = "resnet50";
const SHAPE: [usize; 4] = [1, 3, 224, 224];
/// Inputs of the calibration.
const SHOWN: usize = 100;
/// Inputs behind them, on which outputs are compared.
const COMPARED: usize = 16;
/// Runs of ours, half of them before theirs and half behind.
const RUNS: usize = 6;
/// The parts of their time, in order.
const PARTS: [(&str, &str); 5] = [
    ("imports", "imports"),
    ("prepare", "loading, and `prepare_pt2e`"),
    ("calibrate", "calibration"),
    ("convert", "`convert_pt2e`, and export"),
    ("lower", "lowering for XNNPACK, `to_executorch`"),
];

/// Quantizes what `tools/models/peers.py` exported to `models`; the section of the document.
pub fn run(models: &Path, python: &Path) -> Result<String> {
    let model = models.join(MODEL).join("model.pt2");
    let folder = std::env::temp_dir().join(format!("rushlight-quantize-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let section = compare(&model, &folder, python);
    std::fs::remove_dir_all(&folder)?;
    section
}

fn compare(model: &Path, folder: &Path, python: &Path) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("quantize.py");
    let (inputs, ours, theirs) = (folder.join("inputs.bin"), folder.join("ours.pte"), folder.join("theirs.pte"));
    let count = (SHOWN + COMPARED).to_string();
    if !Command::new(python).arg(&script).args(["--inputs", &count]).arg(&inputs).status()?.success() {
        bail!("no inputs were made");
    }
    let (mut seconds, mut parts) = (Vec::new(), Json::Null);
    for run in 0..RUNS {
        if run == RUNS / 2 {
            let mut command = Command::new(python);
            command.arg(&script).arg(model).arg(&inputs).arg(SHOWN.to_string()).arg(&theirs);
            parts = answer(&mut command)?;
        }
        let mut command = Command::new(std::env::current_exe()?);
        let taken = answer(command.arg("quantize-once").arg(model).arg(&inputs).arg(&ours))?;
        seconds.push(taken["seconds"].as_f64().context("seconds")?);
    }
    let seconds = median(&mut seconds);
    let part = |name: &str| parts[name].as_f64().with_context(|| format!("{name} in {parts}"));
    let mut all = 0.0;
    for (name, _) in PARTS {
        all += part(name)?;
    }
    let floats = Compiler::new().method("forward", model).backend("cpu").compile();
    let floats = floats.and_then(|program| program.to_bytes()).map_err(failed)?;
    let images = images(&inputs)?;
    let compared = images.get(SHOWN..).context("inputs to compare")?;
    let expected = outputs(&floats, compared)?;
    let ratio = |file: &Path| -> Result<f64> { Ok(decibels(&expected, &outputs(&std::fs::read(file)?, compared)?)) };
    let (our_ratio, their_ratio) = (ratio(&ours)?, ratio(&theirs)?);
    let mut text = conditions("cargo xtask bench quantize");
    let _ = write!(
        text,
        "\n\nQuantization of {MODEL}, from a `.pt2` file to a `.pte` file in int8, with {SHOWN} images of 224x224 and \
         all threads of the machine. Each side runs in its own process. Rushlight's time is the median of {RUNS} runs of `rushlight quantize`, half \
         of them before and half after the other side. It uses the defaults: histogram observers, per-channel weights, \
         bias correction, and a comparison of layers. The other side is PT2E with ExecuTorch's XNNPACKQuantizer \
         (histogram observers, per-channel weights) and its compiler. *Outputs* is the signal-to-noise ratio of the \
         results against the float model, on {COMPARED} other images. Weights are random.\n\n\
         | | seconds | ratio | outputs, dB |\n|---|--:|--:|--:|\n"
    );
    let _ = writeln!(text, "| Rushlight | {} | | {our_ratio:.1} |", significant(seconds));
    let _ = writeln!(text, "| PT2E and ExecuTorch | {} | {:.1} | {their_ratio:.1} |", significant(all), all / seconds);
    for (name, what) in PARTS {
        let _ = writeln!(text, "| {what} | {} | | |", significant(part(name)?));
    }
    Ok(text)
}

/// Quantizes a model in this process, and prints what that took.
pub fn once(model: &Path, inputs: &Path, out: &Path) -> Result<()> {
    let start = Instant::now();
    let samples = images(inputs)?.into_iter().take(SHOWN).map(|image| vec![Value::Tensor(image)]).collect();
    let quantization = Quantization::new(Scheme::INT8).calibrate("forward", samples);
    let compiler = Compiler::new().method("forward", model).quantize(quantization);
    let program = compiler.backend("cpu").compile().map_err(failed)?;
    program.save(out).map_err(failed)?;
    println!("{}", json!({ "seconds": start.elapsed().as_secs_f64() }));
    Ok(())
}

fn images(path: &Path) -> Result<Vec<Tensor>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let size = SHAPE.iter().product::<usize>() * size_of::<f32>();
    let image = |bytes: &[u8]| Tensor::from_bytes(rushlight::ScalarType::Float, &SHAPE, bytes).map_err(failed);
    bytes.chunks_exact(size).map(image).collect()
}

fn outputs(program: &[u8], images: &[Tensor]) -> Result<Vec<f32>> {
    let mut module = Module::from_bytes(program).map_err(failed)?;
    let mut all = Vec::new();
    for image in images {
        let view: TensorView<'_> = image.view().map_err(failed)?;
        let outputs = module.forward(&[Input::Tensor(view)]).map_err(failed)?;
        all.extend_from_slice(outputs.first().context("an output")?.as_slice::<f32>().map_err(failed)?);
    }
    Ok(all)
}

fn decibels(floats: &[f32], integers: &[f32]) -> f64 {
    let square = |number: f32| f64::from(number) * f64::from(number);
    let signal: f64 = floats.iter().map(|number| square(*number)).sum();
    let noise: f64 = floats.iter().zip(integers).map(|(float, integer)| square(float - integer)).sum();
    10.0 * (signal / noise).log10()
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(error: rushlight::Error) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}
