//! `rushlight export-llm`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, Args};
use rushlight::options::{CompilerOptions, OptionValue, Options as _};

use crate::arguments::output_file;
use crate::compile;
use crate::failure::Failure;
use crate::option_args::{Chosen, OptionArgs, Selection};

/// Those options of compiling that the export takes.
pub struct Settings;

impl Selection for Settings {
    type Of = CompilerOptions;

    fn rows() -> OptionArgs<CompilerOptions> {
        OptionArgs::all().without(&["share_state", "hidden_states", "lora_rank"]).without(&compile::CALIBRATED)
    }

    fn adjust(name: &str, arg: Arg) -> Arg {
        compile::Settings::adjust(name, arg)
    }
}

/// Exports a decoder with transformers, and compiles it to a .pte file. Needs Python with rushlight, torch and transformers.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight export-llm SmolLM2-135M/ -o smollm2.pte
  rushlight export-llm Qwen3-0.6B/ --quantize 8da4w --embeddings 4 --max-context-len 4096 -o qwen.pte
  rushlight export-llm Qwen3-0.6B/ --python .venv/bin/python -o qwen.pte

For any decoder that transformers can export. `rushlight compile FOLDER` makes the same program without Python, of the families that
docs/language-models.md lists. In Python this is `rushlight.llm.export`.")]
pub struct ExportLlm {
    /// The folder of the model, or its name on Hugging Face's hub
    #[arg(value_name = "FOLDER", value_parser = NonEmptyStringValueParser::new())]
    model: String,

    /// The file to write
    #[arg(short, long, value_name = "FILE.pte", value_parser = output_file())]
    output: PathBuf,

    #[command(flatten)]
    settings: Chosen<Settings>,

    /// The Python that has torch, transformers and rushlight
    #[arg(long, value_name = "FILE", default_value = "python3")]
    python: PathBuf,
}

/// Prints those of the packages that this Python lacks.
const MISSING: &str = "import importlib.util as u; \
                       print(' '.join(p for p in ('rushlight', 'torch', 'transformers') if u.find_spec(p) is None))";

impl ExportLlm {
    pub fn run(self) -> Result<(), Failure> {
        let python = self.python.display();
        let start = |error| Failure::File { what: format!("cannot start `{python}`, which `--python` names"), error };
        let missing = Command::new(&self.python).args(["-c", MISSING]).stdin(Stdio::null()).output().map_err(start)?;
        let missing = String::from_utf8_lossy(&missing.stdout);
        if !missing.trim().is_empty() {
            let missing = missing.trim();
            return Err(Failure::Other(format!(
                "`{python}` has no {}\n  help      {python} -m pip install {missing}, or `--python` of an environment with them",
                missing.replace(' ', ", ")
            )));
        }
        let mut export = Command::new(&self.python);
        export.args(["-m", "rushlight.llm"]).arg(&self.model).arg("--output").arg(&self.output);
        let mut options = self.settings.options;
        for spec in CompilerOptions::table() {
            let name = format!("--{}", spec.name.replace('_', "-"));
            match options.get(spec.name).unwrap_or(OptionValue::None) {
                value if value == spec.default() => {}
                OptionValue::Flag(_) => {
                    export.arg(name);
                }
                OptionValue::Texts(texts) => texts.iter().for_each(|text| {
                    export.arg(&name).arg(text);
                }),
                value => {
                    export.arg(name).arg(value.to_string());
                }
            }
        }
        let status = export.stdin(Stdio::null()).status().map_err(start)?;
        if !status.success() {
            // It has said why.
            return Err(Failure::Other(format!("the export failed: {status}")));
        }
        Ok(())
    }
}
