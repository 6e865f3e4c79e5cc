//! `rushlight llm embed`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::generation::{PoolingChoice, TextModel};
use crate::failure::Failure;
use crate::output;

/// Computes embeddings of texts.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight llm embed Qwen3-Embedding-0.6B/ \"a text\" \"another\"
  rushlight llm embed embedding.pte --pooling mean --dimensions 256 - < lines.txt

Prints a line of JSON for each text: its embedding, of the Euclidean norm 1. A .pte file must be compiled with
`rushlight compile --hidden-states`.")]
pub struct Embed {
    #[command(flatten)]
    model: TextModel,

    /// The texts; `-` reads one from each line of standard input
    #[arg(required_unless_present_any = ["texts_flag", "file"])]
    texts: Vec<String>,

    /// A text, as an option; may be repeated
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", conflicts_with = "texts")]
    texts_flag: Vec<String>,

    /// A file with a text in each line
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["texts", "texts_flag"])]
    file: Option<PathBuf>,

    #[command(flatten)]
    pooling: PoolingChoice,

    /// Number of elements of an embedding; by default all of the model's
    #[arg(long, value_name = "N", value_parser = crate::arguments::count)]
    dimensions: Option<usize>,
}

impl Embed {
    pub fn run(mut self) -> Result<(), Failure> {
        self.model.source.return_hidden_states();
        let tokenizer = self.model.tokenizer()?;
        let mut model = self.model.load()?;
        let Some(size) = model.embedding_size() else {
            return Err(rushlight_llm::Error::ReturnsLogits.into());
        };
        let dimensions = self.dimensions.unwrap_or(size);
        if dimensions > size {
            return Err(Failure::Arguments(format!("`--dimensions {dimensions}`: the model has {size}")));
        }
        let pooling = self.pooling.pooling();
        let mut session = model.session()?;
        let mut embed = |text: &str| -> Result<(), Failure> {
            let embedding = session.embedding(&mut model, &tokenizer.encode(text, true)?, pooling, dimensions)?;
            output::print(&json!(embedding).to_string());
            Ok(())
        };
        if let Some(path) = &self.file {
            let text = std::fs::read_to_string(path).map_err(|error| Failure::read(path, error))?;
            text.lines().try_for_each(&mut embed)?;
        }
        for text in self.texts.iter().chain(&self.texts_flag) {
            match text.as_str() {
                "-" => std::io::stdin().lines().try_for_each(|line| embed(&line.map_err(Failure::stdin)?))?,
                text => embed(text)?,
            }
        }
        Ok(())
    }
}
