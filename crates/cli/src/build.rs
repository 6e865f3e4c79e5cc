//! Compiling to a .pte file: what `rushlight compile` and `rushlight quantize` have in common.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use rushlight::options::CompilerOptions;
use rushlight::{CompiledProgram, Compiler, Value, exported_meta, is_language_model, open_exported};
use rushlight_compiler::emit::ExternalWeights;
use rushlight_compiler::partition::Report;
use rushlight_compiler::{Compiled, ConstantResult};
use rushlight_devtools::describe;
use rushlight_format::tokenizer;
use rushlight_graph::Literal;
use serde_json::{Value as Json, json};

use crate::arguments::{backend_spec, output_file};
use crate::calibration::{Calibration, File};
use crate::failure::Failure;
use crate::output;
use crate::progress::Follower;

/// The models, and how their program is written.
#[derive(Args)]
pub struct Build {
    /// The .pt2 files, or the folder or .gguf file of a language model. NAME=FILE makes the file a method of that name;
    /// a file without a name is `forward`
    #[arg(required = true, value_name = "[NAME=]FILE.pt2|FOLDER|FILE.gguf", value_parser = NonEmptyStringValueParser::new())]
    models: Vec<String>,

    /// The file to write; by default the first input's name with the extension .pte
    #[arg(short, long, value_name = "FILE.pte", value_parser = output_file())]
    output: Option<PathBuf>,

    #[command(flatten)]
    pub calibration: Calibration,

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
    pub json: bool,
}

/// A program that was written.
pub struct Built {
    pub program: CompiledProgram,
    pub output: PathBuf,
    pub size: u64,
    /// The files of external weights, with their sizes in bytes.
    pub external: Vec<(PathBuf, u64)>,
    /// Bytes of the exported programs; `None` for a language model.
    pub exported: Option<u64>,
    pub elapsed: Duration,
}

impl Build {
    /// Compiles the models and writes their program. `report` is the file of a report, which is written later; `-` is standard
    /// output.
    pub fn run(&self, options: &CompilerOptions, report: Option<&Path>) -> Result<Built, Failure> {
        let start = Instant::now();
        let follower = Follower::start()?;
        // An unknown backend is reported before other errors.
        options.backend.iter().try_for_each(|backend| backend_spec(backend).map(drop))?;
        let calibration = self.calibration.files(&self.methods()?)?;
        let samples = self.samples(&calibration)?;
        let compiler = Compiler::new().progress(follower.progress());
        let compiler = options.apply_with(compiler, |quantization| {
            let samples = samples.into_iter();
            samples.fold(quantization, |quantization, (method, samples)| quantization.calibrate(method, samples))
        });
        let mut compiler = compiler.map_err(Failure::of_arguments)?;
        let language_model = options.language_model().map_err(Failure::of_arguments)?;
        let (mut paths, mut exported) = (Vec::with_capacity(self.models.len()), Some(0));
        for model in &self.models {
            if is_language_model(model) {
                paths.push(model.as_str());
                exported = None;
                compiler = compiler.language_model(model, language_model);
                continue;
            }
            let (name, path) = method_and_path(model);
            let bytes = open_exported(path)?.len() as u64;
            exported = exported.map(|all| all + bytes);
            paths.push(path);
            compiler = compiler.method(name, path);
        }
        let output = self.output.clone().unwrap_or_else(|| default_output(paths.first().unwrap_or(&"model")));
        let inputs: Vec<&Path> =
            paths.iter().map(Path::new).chain(calibration.iter().map(|file| file.path.as_path())).collect();
        let to_stdout = report == Some(Path::new("-"));
        let report = report.filter(|_| !to_stdout);
        output::check_outputs(&inputs, std::iter::once(output.as_path()).chain(report))?;
        output::check_result(&output, to_stdout || self.json)?;
        let compiler = self.emitting(compiler)?;
        // The inputs of a calibration may not fit.
        let is_calibrated = options.quantize.is_some() && exported.is_some();
        let wrong = |error| if is_calibrated { Failure::Model(error) } else { Failure::of_arguments(error) };
        let program = compiler.compile().map_err(wrong)?;
        let external = program.external_files(&output).map_err(Failure::of_arguments)?;
        let weights = external.iter().map(|(path, _)| path.as_path());
        output::check_outputs(&inputs, std::iter::once(output.as_path()).chain(report).chain(weights))?;
        let size = program.save_with(&output, &follower.progress()).map_err(Failure::of_arguments)?;
        drop(follower);
        for warning in program.quantization().into_iter().flat_map(|report| &report.warnings) {
            output::warn(warning);
        }
        for operator in program.missing_operators() {
            output::warn(&operator.warning("see \"Custom operators\" in the documentation"));
        }
        Ok(Built { program, output, size, external, exported, elapsed: start.elapsed() })
    }

    /// The names of the methods that a calibration may have inputs for.
    fn methods(&self) -> Result<Vec<&str>, Failure> {
        if let Some(model) = self.models.iter().find(|model| self.calibration.is_given() && is_language_model(model)) {
            return Err(Failure::arguments(
                format!("`--calibrate` is for .pt2 files, and `{model}` is a language model"),
                "leave it out, and choose a scheme without a calibration: 8da4w, int4, int8-dynamic or int8-weight",
            ));
        }
        Ok(self.models.iter().map(|model| method_and_path(model).0).collect())
    }

    /// The inputs of each call of the calibration, by method.
    fn samples(&self, files: &[File]) -> Result<Vec<(String, Vec<Vec<Value>>)>, Failure> {
        let mut all: Vec<(String, Vec<Vec<Value>>)> = Vec::new();
        for model in &self.models {
            let (method, path) = method_and_path(model);
            let mut files = files.iter().filter(|file| file.method == method).peekable();
            if files.peek().is_none() {
                continue;
            }
            let inputs = exported_meta(open_exported(path)?)?.inputs;
            let mut samples = Vec::new();
            for file in files {
                samples.extend(self.calibration.read(file, &inputs)?);
            }
            all.push((method.to_owned(), samples));
        }
        Ok(all)
    }

    /// Adds constants, and the options of the program's file.
    fn emitting(&self, mut compiler: Compiler) -> Result<Compiler, Failure> {
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
        Ok(compiler)
    }
}

impl Built {
    /// The report of the backends.
    pub fn report(&self) -> &Report {
        &self.program.compiled().report
    }

    /// The result as JSON.
    pub fn json(&self) -> Json {
        let Compiled { program, report, .. } = self.program.compiled();
        let mut result = json!({
            "file": self.output.display().to_string(),
            "bytes": self.size,
            "external_weights": self.external.iter().map(|(path, bytes)| json!({
                "file": path.display().to_string(),
                "bytes": bytes,
            })).collect::<Vec<_>>(),
            "methods": program.methods.iter().map(|plan| json!({
                "name": plan.name,
                "instructions": plan.instructions.len(),
                "planned_bytes": plan.buffer_sizes.iter().sum::<u64>(),
            })).collect::<Vec<_>>(),
            "tokenizer": self.tokenizer().iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "missing_operators": self.program.missing_operators().iter().map(|operator| &operator.name).collect::<Vec<_>>(),
            "backends": report.claim_counts(),
            "seconds": self.elapsed.as_secs_f64(),
        });
        if let Some(bytes) = self.exported {
            result["bytes_exported"] = bytes.into();
        }
        if let Some(report) = self.program.quantization() {
            result["quantization"] = describe::quantization(report);
        }
        result
    }

    /// The files of the tokenizer, with their sizes in bytes.
    pub fn tokenizer(&self) -> Vec<(&str, u64)> {
        let named_data = self.program.compiled().program.named_data.iter();
        tokenizer::files(named_data.map(|(key, data)| (key.as_str(), data.size()))).collect()
    }

    /// Prints a line for the program, and one for each file of weights.
    pub fn print(&self, summary: &str) {
        output::print_summary(&self.output, summary);
        for (path, bytes) in &self.external {
            let line = format!("{}  {} · weights", path.display(), output::bytes(*bytes));
            output::print_summary(&self.output, &line);
        }
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
