//! `rushlight llm tokenize`.

use std::path::PathBuf;

use clap::Args;
use rushlight_llm::Tokenizer;
use serde_json::json;

use super::run::given;
use crate::failure::Failure;
use crate::output;

/// Shows the tokens of a text.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight llm tokenize llama.pte \"Hello, world\"
  rushlight llm tokenize tokenizer.json \"Hello, world\"
  rushlight llm tokenize llama.pte -f book.txt
  rushlight llm tokenize Llama-3.2-1B/ - < book.txt --json > tokens.json")]
pub struct Tokenize {
    /// A tokenizer: tokenizer.json, tokenizer.model, tekken.json, a .gguf, a folder, or a .pte that carries one
    tokenizer: PathBuf,

    /// The text; `-` reads standard input
    #[arg(required_unless_present_any = ["text_flag", "file"])]
    text: Option<String>,

    /// The text as an option, in place of the argument
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", conflicts_with = "text")]
    text_flag: Option<String>,

    /// A file with the text, without the line break at its end
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["text", "text_flag"])]
    file: Option<PathBuf>,

    /// Leave out the tokens that the tokenizer puts around a text
    #[arg(long)]
    no_special: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Tokenize {
    pub fn run(self) -> Result<(), Failure> {
        let tokenizer = Tokenizer::open(&self.tokenizer)?;
        let text = given(self.file.as_deref(), self.text.or(self.text_flag).as_deref())?.unwrap_or_default();
        let tokens = tokenizer.encode(&text, !self.no_special)?;
        let pieces = tokens.iter().map(|token| (*token, tokenizer.id_to_token(*token).unwrap_or_default().to_owned()));
        if self.json {
            let (tokens, pieces): (Vec<_>, Vec<_>) = pieces.unzip();
            output::print_json(&json!({ "tokens": tokens, "pieces": pieces }));
            return Ok(());
        }
        output::print(&output::table(
            &["token ", "piece"],
            pieces.map(|(token, piece)| vec![token.to_string(), piece]),
        ));
        output::print(&format!("{} tokens", tokens.len()));
        Ok(())
    }
}
