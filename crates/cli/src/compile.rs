//! `rushlight compile`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, Args};
use rushlight::options::CompilerOptions;
use rushlight::{Compiler, is_language_model, open_exported};
use rushlight_compiler::emit::ExternalWeights;
use rushlight_compiler::partition::Report;
use rushlight_compiler::{Compiled, ConstantResult};
use rushlight_devtools::describe;
use rushlight_format::tokenizer;
use rushlight_graph::Literal;
use serde_json::json;

use crate::arguments::{backend_spec, output_file};
use crate::failure::Failure;
use crate::inputs::extension;
use crate::option_args::{Chosen, OptionArgs, Selection};
use crate::output;
use crate::progress::Follower;

/// All rows of the options of compiling.
pub struct Settings;

impl Selection for Settings {
    type Of = CompilerOptions;

    fn rows() -> OptionArgs<CompilerOptions> {
        OptionArgs::<CompilerOptions>::all()
    }

    fn adjust(name: &str, arg: Arg) -> Arg {
        match name {
            "embeddings" => arg.requires("quantize"),
            "no_tokenizer" => arg.conflicts_with("tokenizer"),
            "hidden_states" => arg.conflicts_with("full_logits"),
            _ => arg,
        }
    }
}

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
  rushlight compile Llama-3.2-1B/ --quantize 8da4w --embeddings 4 --backend cpu -o llama.pte
  rushlight compile Qwen3-0.6B/ --max-context-len 4096 --max-seq-len 512 --kv-cache int8 -o qwen.pte
  rushlight compile qwen3-0.6b-q8_0.gguf --quantize int4 --backend cpu -o qwen.pte
  rushlight compile Qwen3-Embedding-0.6B/ --hidden-states --backend cpu -o embedding.pte

A language model is a folder of Hugging Face, with config.json and .safetensors files, or a GGUF file. `forward` of its program takes tokens
[1, T] and the position of the first, and returns the logits of the last; ExecuTorch's runners know such programs.")]
pub struct Compile {
    /// The .pt2 files, or the folder or .gguf file of a language model. NAME=FILE makes the file a method of that name;
    /// a file without a name is `forward`
    #[arg(required = true, value_name = "[NAME=]FILE.pt2|FOLDER|FILE.gguf", value_parser = NonEmptyStringValueParser::new())]
    models: Vec<String>,

    /// The file to write; by default the first input's name with the extension .pte
    #[arg(short, long, value_name = "FILE.pte", value_parser = output_file())]
    output: Option<PathBuf>,

    #[command(flatten)]
    settings: Chosen<Settings>,

    /// Write which backend claimed each node, and why others did not: JSON if the name ends in .json, else text; `-`
    /// prints it
    #[arg(long, value_name = "FILE|-")]
    report: Option<PathBuf>,

    /// A method without inputs that returns a number, truth value or text; may be repeated
    #[arg(long = "constant", value_name = "NAME=VALUE")]
    constants: Vec<String>,

    /// Read inputs from the caller's memory, without a place in the arena
    #[arg(long)]
    no_plan_inputs: bool,

    /// Let the caller provide the memory of outputs
    #[arg(long)]
    no_plan_outputs: bool,

    /// Alignment of planned tensors, in bytes
    #[arg(long, default_value_t = 16, value_name = "BYTES", value_parser = alignment)]
    alignment: u64,

    /// Keep the Python stack of every instruction in the file
    #[arg(long)]
    stack_traces: bool,

    /// Leave out the data by which the tools name nodes and lines of Python
    #[arg(long)]
    no_debug_map: bool,

    /// Write weights to .ptd files beside the program, to be passed at load (`--data`). FILE is a name without a
    /// folder, by default the program's with the extension .ptd. PATTERN chooses weights by name, `*` is any text. May
    /// be repeated: the first pattern that matches counts, and weights that match none stay in the program
    #[arg(
        long,
        value_name = "[PATTERN=]FILE.ptd",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    external_weights: Vec<String>,

    /// Divide weights into several .ptd files of at most this many bytes each; a larger tensor has its own file
    #[arg(long, value_name = "BYTES", requires = "external_weights", value_parser = clap::value_parser!(u64).range(1..))]
    external_weights_max_bytes: Option<u64>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Compile {
    pub fn run(self) -> Result<(), Failure> {
        let start = Instant::now();
        let follower = Follower::start()?;
        let options = &self.settings.options;
        // An unknown backend is reported before other errors.
        options.backend.iter().try_for_each(|backend| backend_spec(backend).map(drop))?;
        let compiler = Compiler::new().progress(follower.progress());
        let mut compiler = options.apply(compiler).map_err(Failure::of_arguments)?;
        let language_model = options.language_model().map_err(Failure::of_arguments)?;
        let mut paths = Vec::with_capacity(self.models.len());
        for model in &self.models {
            if is_language_model(model) {
                paths.push(model.as_str());
                compiler = compiler.language_model(model, language_model);
                continue;
            }
            let (name, path) = method_and_path(model);
            open_exported(path)?;
            paths.push(path);
            compiler = compiler.method(name, path);
        }
        let output = self.output.unwrap_or_else(|| default_output(paths.first().unwrap_or(&"model")));
        let to_stdout = self.report.as_deref() == Some(Path::new("-"));
        let report = self.report.as_ref().filter(|_| !to_stdout);
        output::check_outputs(&paths, std::iter::once(&output).chain(report))?;
        output::check_result(&output, to_stdout || self.json)?;
        for constant in &self.constants {
            let (name, value) = constant
                .split_once('=')
                .ok_or_else(|| Failure::Arguments(format!("`--constant {constant}` has no value; write NAME=VALUE")))?;
            compiler = compiler.constant(name, ConstantResult::Literal(literal(value)));
        }
        let emit = &mut compiler.options().emit;
        emit.plan_inputs = !self.no_plan_inputs;
        emit.plan_outputs = !self.no_plan_outputs;
        emit.alignment = self.alignment;
        emit.stack_traces = self.stack_traces;
        emit.debug_map = !self.no_debug_map;
        emit.external_weights = (!self.external_weights.is_empty()).then(|| ExternalWeights {
            rules: self.external_weights.iter().map(|rule| external_rule(rule)).collect(),
            max_bytes: self.external_weights_max_bytes,
        });
        let compiled = compiler.compile().map_err(Failure::of_arguments)?;
        let external = compiled.external_files(&output).map_err(Failure::of_arguments)?;
        let weights = external.iter().map(|(path, _)| path);
        output::check_outputs(&paths, std::iter::once(&output).chain(report).chain(weights))?;
        let size = compiled.save_with(&output, &follower.progress()).map_err(Failure::of_arguments)?;
        drop(follower);
        let elapsed = start.elapsed();
        let Compiled { program, report, .. } = compiled.compiled();
        match &self.report {
            Some(_) if to_stdout && !self.json => output::print(report.to_string().trim_end()),
            Some(path) if !to_stdout => write_report(report, path)?,
            _ => {}
        }
        let instructions: usize = program.methods.iter().map(|plan| plan.instructions.len()).sum();
        let named_data = program.named_data.iter().map(|(key, data)| (key.as_str(), data.size()));
        let tokenizer: Vec<(&str, u64)> = tokenizer::files(named_data).collect();
        let activations: u64 = program.methods.iter().flat_map(|plan| &plan.buffer_sizes).sum();
        if self.json {
            let mut result = json!({
                "file": output.display().to_string(),
                "bytes": size,
                "external_weights": external.iter().map(|(path, bytes)| json!({
                    "file": path.display().to_string(),
                    "bytes": bytes,
                })).collect::<Vec<_>>(),
                "methods": program.methods.iter().map(|plan| json!({
                    "name": plan.name,
                    "instructions": plan.instructions.len(),
                    "planned_bytes": plan.buffer_sizes.iter().sum::<u64>(),
                })).collect::<Vec<_>>(),
                "tokenizer": tokenizer.iter().map(|(name, _)| name).collect::<Vec<_>>(),
                "backends": report.claim_counts(),
                "seconds": elapsed.as_secs_f64(),
            });
            if to_stdout {
                result["report"] = describe::partition(report);
            }
            output::print_json(&result);
            return Ok(());
        }
        let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let tokenizer = match tokenizer.iter().map(|(_, bytes)| bytes).sum() {
            0 => String::new(),
            bytes => format!("tokenizer {} · ", output::bytes(bytes)),
        };
        let summary = format!(
            "{}  {} · {} · {} · {} · activations {} · {tokenizer}{}",
            output.display(),
            output::bytes(size),
            plural(program.methods.len(), "method"),
            output::shares(report),
            plural(instructions, "instruction"),
            output::bytes(activations),
            output::duration(elapsed),
        );
        output::print_summary(&output, &summary);
        for (path, bytes) in external {
            output::print_summary(&output, &format!("{}  {} · weights", path.display(), output::bytes(bytes)));
        }
        Ok(())
    }
}

/// The input's name with the extension .pte. Names of folders have no extension: a dot in them begins a version.
fn default_output(input: &str) -> PathBuf {
    let path = Path::new(input);
    match path.file_name().filter(|_| path.is_dir()) {
        Some(name) => path.with_file_name(format!("{}.pte", name.to_string_lossy())),
        None => path.with_extension("pte"),
    }
}

/// The method and the file of `[METHOD=]FILE`. A file may have any name; a method is an identifier.
fn method_and_path(text: &str) -> (&str, &str) {
    let is_identifier = |name: &str| {
        let is_inside = |char: char| char == '_' || char.is_alphanumeric();
        name.chars().all(is_inside) && name.chars().next().is_some_and(|first| !first.is_numeric())
    };
    match text.split_once('=') {
        Some((name, path)) if (name.is_empty() || is_identifier(name)) && !Path::new(text).exists() => (name, path),
        _ => ("forward", text),
    }
}

/// Parses an alignment of tensors in bytes.
fn alignment(text: &str) -> Result<u64, String> {
    const MAX: u64 = 1 << 16;
    match text.parse() {
        Ok(bytes @ 1u64..=MAX) if bytes.is_power_of_two() => Ok(bytes),
        _ => Err(format!("expected a power of two from 1 to {MAX}")),
    }
}

/// The pattern and the file of `[PATTERN=]FILE`.
fn external_rule(text: &str) -> (String, Option<String>) {
    let (pattern, file) = text.rsplit_once('=').unwrap_or(("*", text));
    (pattern.to_owned(), Some(file.to_owned()).filter(|file| !file.is_empty()))
}

/// Writes the report in the format of the file's extension.
fn write_report(report: &Report, path: &Path) -> Result<(), Failure> {
    let text = match extension(path).as_str() {
        "json" => format!("{:#}\n", describe::partition(report)),
        _ => report.to_string(),
    };
    output::write_text(path, &text)
}

/// Parses a number, a truth value, or else text.
fn literal(text: &str) -> Literal {
    match text {
        "true" | "True" => Literal::Bool(true),
        "false" | "False" => Literal::Bool(false),
        "none" | "None" => Literal::None,
        _ => match (text.parse(), text.parse()) {
            (Ok(int), _) => Literal::Int(int),
            (_, Ok(float)) => Literal::Float(float),
            _ => Literal::Str(text.to_owned()),
        },
    }
}
