//! `rushlight export-llm`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use rushlight::ProgramTokenizer;

use crate::arguments::{LanguageModel, WeightQuantization, output_file};
use crate::failure::Failure;

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
    quantization: WeightQuantization,

    #[command(flatten)]
    language_model: LanguageModel,

    /// A backend to show the nodes to, with options such as `cpu:precision=bf16`; may be repeated; `cpu` by default
    #[arg(long = "backend", value_name = "NAME[:KEY=VALUE,...]")]
    backends: Vec<String>,

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
        if let Some(scheme) = self.quantization.quantize {
            export.args(["--quantize", scheme.name()]);
        }
        let numbers = [
            ("--embeddings", self.quantization.embeddings.map(u64::from)),
            ("--max-context-len", self.language_model.max_context_len.map(|len| len as u64)),
            ("--max-seq-len", self.language_model.max_seq_len.map(|len| len as u64)),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                export.args([name, &number.to_string()]);
            }
        }
        export.args(["--kv-cache", self.language_model.kv_cache.name()]);
        match self.language_model.program_tokenizer() {
            ProgramTokenizer::OfModel => {}
            ProgramTokenizer::Omitted => {
                export.arg("--no-tokenizer");
            }
            ProgramTokenizer::Of(path) => {
                export.arg("--tokenizer").arg(path);
            }
        }
        if self.language_model.full_logits {
            export.arg("--full-logits");
        }
        for backend in &self.backends {
            export.args(["--backend", backend]);
        }
        let status = export.stdin(Stdio::null()).status().map_err(start)?;
        if !status.success() {
            // It has said why.
            return Err(Failure::Other(format!("the export failed: {status}")));
        }
        Ok(())
    }
}
