//! `rushlight quantize`.

use std::path::{Path, PathBuf};

use clap::{Arg, Args};
use rushlight::options::{CompilerOptions, QUANTIZING};
use rushlight::{Decibels, QuantizationReport, Scheme};
use rushlight_devtools::{describe, quantization};

use crate::build::{Build, Built};
use crate::compile;
use crate::failure::Failure;
use crate::inputs::extension;
use crate::option_args::{Chosen, OptionArgs, Selection};
use crate::output;

/// All rows of the options of compiling. The scheme has a default, and so has the backend.
pub struct Settings;

impl Selection for Settings {
    type Of = CompilerOptions;

    fn rows() -> OptionArgs<CompilerOptions> {
        OptionArgs::<CompilerOptions>::all()
    }

    fn adjust(name: &str, arg: Arg) -> Arg {
        match name {
            "quantize" => arg.long("scheme").alias("quantize").help("The quantization scheme").default_value(SCHEME),
            "backend" => arg.default_value(BACKEND),
            // There is always a scheme.
            name if QUANTIZING.contains(&name) => arg,
            _ => compile::Settings::adjust(name, arg),
        }
    }
}

const SCHEME: &str = "int8";
const BACKEND: &str = "cpu";

/// Quantizes a model that torch.export.save wrote, or a published language model, and compiles it to a .pte file. Needs no Python.
#[derive(Args)]
#[command(after_help = after_help())]
pub struct Quantize {
    #[command(flatten)]
    build: Build,

    #[command(flatten)]
    settings: Chosen<Settings>,

    /// Write the result of each layer, the worst first: JSON or a web page if the name ends in .json or .html, else
    /// text; `-` prints it
    #[arg(long, value_name = "FILE|-")]
    report: Option<PathBuf>,
}

fn after_help() -> String {
    let schemes = Scheme::ALL.map(|scheme| format!("  {:13}  {}\n", scheme.name, scheme.about)).concat();
    format!(
        "\
Schemes:
{schemes}
Outputs are compared with those in floats: on the inputs of --calibrate, or else on those that the model was exported with,
if the file has them. Where their signal-to-noise is below 10 dB, a warning says what to do. Below 30 dB, the worst layers
are tried in floats, and the result shows the gain and the cost.

Examples:
  rushlight quantize model.pt2 --calibrate inputs.npz -o model.pte
  rushlight quantize model.pt2 --calibrate photos/ --normalize imagenet --report report.html
  rushlight quantize model.pt2 --calibrate inputs.npz --min-snr 30       the worst layers stay floats
  rushlight quantize model.pt2 --scheme int8-dynamic
  rushlight quantize model.pt2 --scheme 8da4w --weights gptq --calibrate inputs.npz --keep lm_head
  rushlight quantize encode=encoder.pt2 decode=decoder.pt2 --calibrate encode=in.npz --calibrate decode=tokens.npz -o model.pte

All options of `rushlight compile` are options of this command."
    )
}

/// Maximum number of layers in a summary.
const MAX_WORST: usize = 5;

impl Quantize {
    pub fn run(self) -> Result<(), Failure> {
        let mut options = self.settings.options;
        options.quantize.get_or_insert_with(|| SCHEME.to_owned());
        if options.backend.is_empty() {
            options.backend.push(BACKEND.to_owned());
        }
        let built = self.build.run(&options, self.report.as_deref())?;
        let to_stdout = self.report.as_deref() == Some(Path::new("-"));
        let Some(report) = built.program.quantization() else { return Ok(()) };
        if let Some(path) = self.report.as_deref().filter(|_| !to_stdout) {
            write_report(report, &built.output, path)?;
        }
        if self.build.json {
            output::print_json(&built.json());
            return Ok(());
        }
        if to_stdout {
            output::print(report.to_string().trim_end());
        }
        built.print(&summary(&built, report));
        if !to_stdout {
            print_worst(&built.output, report);
        }
        Ok(())
    }
}

/// `model.pte  25.8 MB of 102.5 MB exported · int8 · 54 of 54 layers · outputs 38.2 dB · cpu 100% of 92 nodes · 3.2 s`.
fn summary(built: &Built, report: &QuantizationReport) -> String {
    let outputs = match report.output_snr {
        Some(ratio) => Decibels(Some(ratio)).to_string(),
        None => "not compared".to_owned(),
    };
    let exported = built.exported.map_or_else(String::new, |bytes| format!(" of {} exported", output::bytes(bytes)));
    format!(
        "{}  {}{exported} · {} · {} of {} layers · outputs {outputs} · {} · {}",
        built.output.display(),
        output::bytes(built.size),
        report.scheme.name,
        report.quantized(),
        report.layers.len(),
        output::shares(built.report()),
        output::duration(built.elapsed),
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
    for proposal in &report.proposals {
        let keep: Vec<String> = proposal.keep.iter().map(|name| format!("--keep '{name}'")).collect();
        let advice = match keep.len() {
            0..=MAX_WORST => keep.join(" "),
            _ => format!("--min-snr {:.0}, or their names in --report", proposal.output_snr.floor()),
        };
        output::print_summary(output, &format!("  {proposal}: {advice}"));
    }
}

fn write_report(report: &QuantizationReport, program: &Path, path: &Path) -> Result<(), Failure> {
    let title = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = match extension(path).as_str() {
        "json" => format!("{:#}\n", describe::quantization(report)),
        "html" => quantization::html(&title, report),
        _ => report.to_string(),
    };
    output::write_text(path, &text)
}
