//! `rushlight compile`.

use std::path::{Path, PathBuf};

use clap::{Arg, Args};
use rushlight::Decibels;
use rushlight::options::{CompilerOptions, QUANTIZING};
use rushlight_compiler::Compiled;
use rushlight_compiler::partition::Report;
use rushlight_devtools::describe;

use crate::build::{Build, Built};
use crate::failure::Failure;
use crate::inputs::extension;
use crate::option_args::{Chosen, OptionArgs, Selection};
use crate::output;

/// All rows of the options of compiling.
pub struct Settings;

impl Selection for Settings {
    type Of = CompilerOptions;

    fn rows() -> OptionArgs<CompilerOptions> {
        OptionArgs::<CompilerOptions>::all()
    }

    fn adjust(name: &str, arg: Arg) -> Arg {
        match name {
            name if QUANTIZING.contains(&name) => arg.requires("quantize"),
            "no_tokenizer" => arg.conflicts_with("tokenizer"),
            "hidden_states" => arg.conflicts_with("full_logits"),
            _ => arg,
        }
    }
}

/// Settings of a quantization that language models do without: they need a calibration, or are about convolutions.
pub const CALIBRATED: [&str; 5] = ["observer", "weights", "keep", "min_snr", "no_bias_correction"];

/// Compiles models that `torch.export.save` wrote, or published language models, to a .pte file. Needs no Python.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight compile model.pt2 -o model.pte
  rushlight compile encode=encoder.pt2 decode=decoder.pt2 --share-state -o model.pte
  rushlight compile model.pt2 --constant get_max_seq_len=128 -o model.pte
  rushlight compile model.pt2 --external-weights -o model.pte          weights in model.ptd
  rushlight compile model.pt2 --external-weights='body.*=body.ptd' --external-weights='head.*=head.ptd'
  rushlight compile model.pt2 --backend cpu:precision=bf16 -o model.pte
  rushlight compile model.pt2 --backend portable --report report.json
  rushlight compile model.pt2 --quantize int8 --calibrate inputs.npz --backend cpu -o model.pte
  rushlight compile Llama-3.2-1B/ --quantize 8da4w --embeddings 4 --backend cpu -o llama.pte
  rushlight compile Qwen3-0.6B/ --max-context-len 4096 --max-seq-len 512 --kv-cache int8 -o qwen.pte
  rushlight compile qwen3-0.6b-q8_0.gguf --quantize int4 --backend cpu -o qwen.pte
  rushlight compile Qwen3-Embedding-0.6B/ --hidden-states --backend cpu -o embedding.pte

A language model is a folder of Hugging Face, with config.json and .safetensors files, or a GGUF file. `forward` of its program takes tokens
[1, T] and the position of the first, and returns the logits of the last; ExecuTorch's runners know such programs.
`rushlight quantize` takes the same options, and shows the result of each layer.")]
pub struct Compile {
    #[command(flatten)]
    build: Build,

    #[command(flatten)]
    settings: Chosen<Settings>,

    /// Write which backend claimed each node, and why others did not: JSON if the name ends in .json, else text; `-`
    /// prints it
    #[arg(long, value_name = "FILE|-")]
    report: Option<PathBuf>,
}

impl Compile {
    pub fn run(self) -> Result<(), Failure> {
        let options = &self.settings.options;
        if self.build.calibration.is_given() && options.quantize.is_none() {
            return Err(Failure::arguments(
                "`--calibrate` is for a quantization",
                "add the scheme, such as `--quantize int8`",
            ));
        }
        let built = self.build.run(options, self.report.as_deref())?;
        let to_stdout = self.report.as_deref() == Some(Path::new("-"));
        match &self.report {
            Some(_) if to_stdout && !self.build.json => output::print(built.report().to_string().trim_end()),
            Some(path) if !to_stdout => write_report(built.report(), path)?,
            _ => {}
        }
        if self.build.json {
            let mut result = built.json();
            if to_stdout {
                result["report"] = describe::partition(built.report());
            }
            output::print_json(&result);
            return Ok(());
        }
        built.print(&summary(&built));
        Ok(())
    }
}

fn summary(built: &Built) -> String {
    let Compiled { program, report, .. } = built.program.compiled();
    let instructions: usize = program.methods.iter().map(|plan| plan.instructions.len()).sum();
    let activations: u64 = program.methods.iter().flat_map(|plan| &plan.buffer_sizes).sum();
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let tokenizer = match built.tokenizer().iter().map(|(_, bytes)| bytes).sum() {
        0 => String::new(),
        bytes => format!("tokenizer {} · ", output::bytes(bytes)),
    };
    let quantized = built.program.quantization().map_or_else(String::new, |report| {
        let outputs =
            report.output_snr.map_or_else(|| "not compared".to_owned(), |ratio| Decibels(Some(ratio)).to_string());
        format!(
            "{} · {} of {} layers · outputs {outputs} · ",
            report.scheme.name,
            report.quantized(),
            report.layers.len()
        )
    });
    format!(
        "{}  {} · {} · {quantized}{} · {} · activations {} · {tokenizer}{}",
        built.output.display(),
        output::bytes(built.size),
        plural(program.methods.len(), "method"),
        output::shares(report),
        plural(instructions, "instruction"),
        output::bytes(activations),
        output::duration(built.elapsed),
    )
}

/// Writes the report in the format of the file's extension.
fn write_report(report: &Report, path: &Path) -> Result<(), Failure> {
    let text = match extension(path).as_str() {
        "json" => format!("{:#}\n", describe::partition(report)),
        _ => report.to_string(),
    };
    output::write_text(path, &text)
}
