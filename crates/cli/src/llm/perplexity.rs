//! `rushlight llm perplexity`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rushlight_llm::score_text;
use serde_json::json;

use super::generation::TextModel;
use crate::failure::Failure;
use crate::output;
use crate::progress;

/// Measures how well a model predicts a text.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight llm perplexity llama.pte wiki.test.raw
  rushlight llm perplexity llama.pte notes.txt --window 512 --json

Each token is predicted once, after those before it in its window, as in the rolling log-likelihood of lm-eval. It is
fastest with a program of `compile --full-logits`; others are called for each token.")]
pub struct Perplexity {
    #[command(flatten)]
    model: TextModel,

    /// A text file; `-` reads standard input
    #[arg(required_unless_present = "text_flag")]
    text: Option<PathBuf>,

    /// The text file as an option, in place of the argument
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "text")]
    text_flag: Option<PathBuf>,

    /// Tokens that the model sees at a time; by default its whole context
    #[arg(long, value_name = "TOKENS", value_parser = crate::arguments::count)]
    window: Option<usize>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Perplexity {
    pub fn run(self) -> Result<(), Failure> {
        self.model.source.check_generates()?;
        let tokenizer = self.model.tokenizer()?;
        // clap requires one of them.
        let path = self.text.or(self.text_flag).unwrap_or_else(|| "-".into());
        let text = if path.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin()).map_err(Failure::stdin)?
        } else {
            std::fs::read_to_string(&path).map_err(|error| Failure::read(&path, error))?
        };
        let mut model = self.model.load()?;
        let tokens = tokenizer.encode(&text, false)?;
        let bos = tokenizer.special_tokens().bos.or(model.limits().bos);
        let window = self.window.unwrap_or(model.limits().max_context_len);
        let bar = progress::bar(tokens.len() as u64, "tokens");
        let start = Instant::now();
        let score = score_text(&mut model, &tokens, bos, window, |scored| bar.set_position(scored as u64))?;
        let seconds = start.elapsed().as_secs_f64();
        bar.finish_and_clear();
        let (perplexity, bits) = (score.perplexity(), score.bits_per_byte(text.len()));
        if self.json {
            output::print_json(&json!({
                "perplexity": perplexity,
                "bits_per_byte": bits,
                "log_likelihood": score.log_likelihood,
                "tokens": score.tokens,
                "bytes": text.len(),
                "window": window,
                "seconds": seconds,
            }));
            return Ok(());
        }
        output::print(&format!(
            "perplexity {perplexity:.4} a token, {bits:.4} bits a byte; {} tokens in windows of {window}, {:.1} a second",
            score.tokens,
            score.tokens as f64 / seconds
        ));
        Ok(())
    }
}
