//! `rushlight quantize`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use rushlight::{
    CompiledProgram, Compiler, Decibels, Observer, Quantization, QuantizationReport, Rounding, Scheme, Tensor, Value,
    ValueInfo, exported_meta, open_exported,
};
use rushlight_devtools::samples::samples;
use rushlight_devtools::{describe, npy, quantization};
use serde_json::json;

use crate::arguments::{backend_spec, finite, named, output_file};
use crate::failure::Failure;
use crate::inputs::{self, Normalize, extension, is_image};
use crate::output;
use crate::progress::Follower;

/// Quantizes a model that torch.export.save wrote, and compiles it to a .pte file. Needs no Python.
#[derive(Args)]
#[command(after_help = after_help())]
pub struct Quantize {
    /// The .pt2 file
    #[arg(value_name = "FILE.pt2")]
    model: PathBuf,

    /// The quantization scheme
    #[arg(long, default_value = "int8", value_name = "SCHEME", value_parser = named::<Scheme>(Scheme::ALL.map(|scheme| scheme.name)))]
    scheme: Scheme,

    /// Inputs from which the ranges of activations are measured: a .npz file with an array for each input, a .npy file,
    /// an image, or a folder of images. Arrays hold many inputs along their first dimension. May be repeated
    #[arg(long, value_name = "FILE|FOLDER")]
    calibrate: Vec<PathBuf>,

    /// Normalization of images after the division by 255
    #[arg(long, value_enum, default_value = "none")]
    normalize: Normalize,

    /// The choice of the ranges of activations
    #[arg(long, default_value = "histogram", value_name = "OBSERVER", value_parser = named::<Observer>(Observer::ALL.map(Observer::name)))]
    observer: Observer,

    /// The rounding of weights
    #[arg(long, default_value = "mse", value_name = "ROUNDING", value_parser = named::<Rounding>(Rounding::ALL.map(Rounding::name)))]
    weights: Rounding,

    /// Also quantize the tables of embeddings, to 8 bits with a scale per row, or to 4 bits in groups of 32. The
    /// backend `cpu`, and others that support quantized tables, read them directly
    #[arg(long, value_name = "BITS")]
    embeddings: Option<u32>,

    /// Modules that stay floats, by name; `*` is any text. A pattern that matches no module is an error. May be
    /// repeated
    #[arg(long, value_name = "PATTERN")]
    keep: Vec<String>,

    /// Minimum signal-to-noise of the outputs, in dB: the worst layers stay floats until it is reached
    #[arg(long, value_name = "DB", value_parser = finite, allow_negative_numbers = true)]
    min_snr: Option<f64>,

    /// Keep the biases of convolutions, instead of correcting them for the shift that rounding causes in the means of
    /// results
    #[arg(long)]
    no_bias_correction: bool,

    /// A backend that may claim nodes, with options such as `cpu:precision=bf16`. May be repeated: the first one is
    /// asked first. `rushlight backends` lists the backends and their options
    #[arg(long = "backend", value_name = "NAME[:KEY=VALUE,...]", default_value = "cpu")]
    backends: Vec<String>,

    /// The file to write; by default the model's name with the extension .pte
    #[arg(short, long, value_name = "FILE.pte", value_parser = output_file())]
    output: Option<PathBuf>,

    /// Write the result of each layer, the worst first: JSON or a web page if the name ends in .json or .html, else
    /// text; `-` prints it
    #[arg(long, value_name = "FILE|-")]
    report: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn after_help() -> String {
    let schemes = Scheme::ALL.map(|scheme| format!("  {:13}  {}\n", scheme.name, scheme.about)).concat();
    format!(
        "\
Schemes:
{schemes}
Outputs are compared with those in floats: on the inputs of --calibrate, or else on those that the model was exported with,
if the file has them. Where their signal-to-noise is below 10 dB, a warning says what to do.

Examples:
  rushlight quantize model.pt2 --calibrate inputs.npz -o model.pte
  rushlight quantize model.pt2 --calibrate photos/ --normalize imagenet --report report.html
  rushlight quantize model.pt2 --calibrate inputs.npz --min-snr 30       the worst layers stay floats
  rushlight quantize model.pt2 --scheme int8-dynamic
  rushlight quantize model.pt2 --scheme 8da4w --weights gptq --calibrate inputs.npz --keep lm_head"
    )
}

/// Maximum number of layers in a summary.
const MAX_WORST: usize = 5;

impl Quantize {
    pub fn run(self) -> Result<(), Failure> {
        let start = Instant::now();
        let bytes = open_exported(&self.model)?;
        let output = self.output.clone().unwrap_or_else(|| self.model.with_extension("pte"));
        let to_stdout = self.report.as_deref() == Some(Path::new("-"));
        let report = self.report.as_ref().filter(|_| !to_stdout);
        let calibration = self.calibration_files()?;
        let inputs = calibration.iter().chain([&self.model]);
        output::check_outputs(inputs, std::iter::once(&output).chain(report))?;
        output::check_result(&output, to_stdout || self.json)?;
        let before = bytes.len() as u64;
        let inputs = exported_meta(bytes.clone())?.inputs;
        let mut quantization = Quantization::new(self.scheme)
            .observer(self.observer)
            .rounding(self.weights)
            .bias_correction(!self.no_bias_correction)
            .calibrate("forward", self.samples(&calibration, &inputs)?);
        if let Some(bits) = self.embeddings {
            quantization = quantization.embeddings(bits);
        }
        quantization = self.keep.iter().fold(quantization, Quantization::keep);
        if let Some(min_snr) = self.min_snr {
            quantization = quantization.min_snr(min_snr);
        }
        let follower = Follower::start()?;
        let compiler = Compiler::new().method_bytes("forward", bytes).quantize(quantization);
        let mut compiler = compiler.progress(follower.progress());
        for backend in &self.backends {
            compiler = compiler.backend(backend_spec(backend)?);
        }
        let program = compiler.compile()?;
        let size = program.save_with(&output, &follower.progress()).map_err(Failure::of_arguments)?;
        drop(follower);
        let Some(report) = program.quantization() else { return Ok(()) };
        if let Some(path) = self.report.as_deref().filter(|_| !to_stdout) {
            write_report(report, &self.model, path)?;
        }
        for warning in &report.warnings {
            output::warn(warning);
        }
        if self.json {
            let mut result = json!({
                "file": output.display().to_string(),
                "bytes": size,
                "bytes_exported": before,
                "backends": program.compiled().report.claim_counts(),
                "seconds": start.elapsed().as_secs_f64(),
            });
            result["quantization"] = describe::quantization(report);
            output::print_json(&result);
            return Ok(());
        }
        if to_stdout {
            output::print(report.to_string().trim_end());
        }
        output::print_summary(&output, &summary(&output, before, size, &program, report, start));
        if !to_stdout {
            print_worst(&output, report);
        }
        Ok(())
    }

    /// Returns the files of the calibration, with the images of folders.
    fn calibration_files(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut all = Vec::new();
        for path in &self.calibrate {
            if !path.is_dir() {
                all.push(path.clone());
                continue;
            }
            let entries = fs::read_dir(path).map_err(|error| Failure::read(path, error))?;
            let images = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let mut images: Vec<PathBuf> = images.filter(|file| is_image(file)).collect();
            images.sort();
            if images.is_empty() {
                let what = format!("`{}` has no images: files that end in .png, .jpg or .jpeg", path.display());
                return Err(Failure::Input(what));
            }
            // A pipe or device with the name of an image may never end.
            if let Some(file) = images.iter().find(|file| !file.is_file()) {
                let what = format!("`{}` is not a regular file: move it out of the folder", file.display());
                return Err(Failure::Input(what));
            }
            all.append(&mut images);
        }
        Ok(all)
    }

    /// The inputs of each call of the calibration.
    fn samples(&self, files: &[PathBuf], inputs: &[ValueInfo]) -> Result<Vec<Vec<Value>>, Failure> {
        let mut all = Vec::new();
        for file in files {
            all.extend(self.read(file, inputs)?);
        }
        Ok(all)
    }

    fn read(&self, file: &Path, inputs: &[ValueInfo]) -> Result<Vec<Vec<Value>>, Failure> {
        let wrong = |what: String| Failure::Input(format!("`{}`: {what}", file.display()));
        let bytes = inputs::read(file)?;
        let arrays: Vec<(String, Tensor)> = match extension(file).as_str() {
            "npz" => npy::read_archive(&bytes).map_err(|error| wrong(error.to_string()))?,
            "npy" => vec![("array".to_owned(), npy::read(&bytes).map_err(|error| wrong(error.to_string()))?)],
            _ if is_image(file) => {
                let info = inputs.iter().find_map(ValueInfo::as_tensor);
                let info = info.ok_or_else(|| wrong("the model takes no tensor".to_owned()))?;
                vec![("image".to_owned(), inputs::image(file, &bytes, info, self.normalize)?)]
            }
            _ => return Err(wrong("expected a .npz, .npy, .png or .jpg file, or a folder of images".to_owned())),
        };
        samples(&arrays, inputs).map_err(wrong)
    }
}

/// `model.pte  25.8 MB of 102.5 MB exported · int8 · 54 of 54 layers · outputs 38.2 dB · cpu 100% of 92 nodes · 3.2 s`.
fn summary(
    output: &Path,
    before: u64,
    size: u64,
    program: &CompiledProgram,
    report: &QuantizationReport,
    start: Instant,
) -> String {
    let outputs = match report.output_snr {
        Some(ratio) => Decibels(Some(ratio)).to_string(),
        None => "not compared".to_owned(),
    };
    format!(
        "{}  {} of {} exported · {} · {} of {} layers · outputs {outputs} · {} · {}",
        output.display(),
        output::bytes(size),
        output::bytes(before),
        report.scheme.name,
        report.quantized(),
        report.layers.len(),
        output::shares(&program.compiled().report),
        output::duration(start.elapsed()),
    )
}

fn print_worst(output: &Path, report: &QuantizationReport) {
    if let Some(reason) = &report.not_compared {
        output::print_summary(output, &format!("  outputs not compared: {reason}"));
    }
    let worst = report.layers.iter().filter(|layer| layer.kept.is_none()).take(MAX_WORST);
    for layer in worst {
        if let Some(ratio) = layer.quality().filter(|ratio| ratio.is_finite()) {
            let what = if layer.snr.is_some() { "results" } else { "weights" };
            output::print_summary(output, &format!("  {:>8}  {what} of {}", Decibels(Some(ratio)), layer.name));
        }
    }
    for layer in report.layers.iter().filter(|layer| layer.kept.is_some()) {
        let reason = layer.kept.as_deref().unwrap_or_default();
        output::print_summary(output, &format!("  in floats  {}: {reason}", layer.name));
    }
}

fn write_report(report: &QuantizationReport, model: &Path, path: &Path) -> Result<(), Failure> {
    let title = model.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = match extension(path).as_str() {
        "json" => format!("{:#}\n", describe::quantization(report)),
        "html" => quantization::html(&title, report),
        _ => report.to_string(),
    };
    output::write_text(path, &text)
}
