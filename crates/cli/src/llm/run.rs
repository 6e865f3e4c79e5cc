//! `rushlight llm run`.

use std::path::{Path, PathBuf};

use clap::Args;
use rushlight_llm::{TokenScore, Usage};
use serde_json::json;

use super::saved;
use super::speaker::{self, Speaker};
use crate::failure::Failure;
use crate::output;

/// Continues a text.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight llm run llama.pte \"Once upon a time\"
  rushlight llm run Qwen3-0.6B/ --quantize 8da4w \"Once\"         a folder or .gguf file, compiled once
  rushlight llm run llama.pte --temperature 0 -n 64 \"The capital of France is\"
  rushlight llm run llama.pte --json \"Once\" > answer.json      with token counts and times
  rushlight llm run llama.pte --speculate lookup \"1, 2, 3, 1, 2,\"
  rushlight llm run llama.pte --regex \"[0-9]{4}\" \"The year of the moon landing: \"
  cat question.txt | rushlight llm run llama.pte -             the prompt from standard input
  rushlight llm run llama.pte -f book.txt --prompt-cache book.cache    reads the file once
  rushlight llm run llama.pte --session tale.session \"Then\"   continues the text of earlier runs

`rushlight llm chat` puts the prompt into the model's chat template.")]
pub struct Run {
    #[command(flatten)]
    speaker: speaker::Arguments,

    /// The text to continue; `-` reads standard input
    #[arg(required_unless_present_any = ["prompt_flag", "file"])]
    prompt: Option<String>,

    /// The text as an option, in place of the argument
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", conflicts_with = "prompt")]
    prompt_flag: Option<String>,

    /// A file with the text to continue, without the line break at its end
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_flag"])]
    file: Option<PathBuf>,

    /// Continue the text of this file, if there is one, and save the text with the answer to it. The file has the KV cache,
    /// so that nothing is read again
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_cache")]
    session: Option<PathBuf>,

    /// Print the text, token counts and times as JSON, and with `--logprobs` the tokens with their log probabilities
    #[arg(long)]
    json: bool,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        self.speaker.model.source.check_generates()?;
        let tokenizer = self.speaker.model.tokenizer()?;
        let text = given(self.file.as_deref(), self.prompt.as_deref().or(self.prompt_flag.as_deref()))?;
        let text = text.unwrap_or_default();
        let mut speaker = self.speaker.load(tokenizer)?;
        let Speaker { model, session, tokenizer, .. } = &mut speaker;
        let is_continued = match &self.session {
            Some(path) => saved::restore(path, model, session)?,
            None => false,
        };
        let prompt = tokenizer.encode(&text, !is_continued)?;
        let cache = self.speaker.prompt_cache.as_ref();
        // A cache of this prompt is as good as another one.
        let cache = cache.filter(|_| session.tokens() != prompt);
        let known = if is_continued { 0 } else { session.keep_common_prefix(model, &prompt)? };
        let mut cached = Ok(());
        let mut text = String::new();
        let mut scores = Vec::new();
        let usage = speaker.answer(
            prompt.get(known..).unwrap_or_default(),
            || false,
            |session| cached = cache.map_or(Ok(()), |path| saved::save(path, session)),
            |step| {
                if self.json {
                    text.push_str(&step.text);
                    scores.extend(step.token.zip(step.score.as_ref()).map(|(token, score)| score_json(token, score)));
                } else if !step.text.is_empty() {
                    output::print_foreign(&step.text);
                }
            },
        )?;
        cached?;
        if let Some(path) = &self.session {
            save(path, &mut speaker)?;
        }
        if self.json {
            let mut answer = json!({
                "text": text,
                "finish_reason": usage.finish_reason.name(),
                "usage": usage_json(&usage),
            });
            if self.speaker.options.values.has_log_probabilities() {
                answer["logprobs"] = scores.into();
            }
            output::print_json(&answer);
        } else {
            output::print("");
            output::to_stderr(&usage.to_string());
        }
        Ok(())
    }
}

/// Saves a session with the whole answer, if there is room for its last token.
fn save(path: &Path, speaker: &mut Speaker) -> Result<(), Failure> {
    let Speaker { model, session, unread, .. } = speaker;
    if let Some(token) = unread.take_if(|_| session.position() < model.limits().max_context_len) {
        session.prefill(model, &[token])?;
    }
    saved::save(path, session)
}

/// The text of a file, without the line break at its end, or the text of an argument, which stands for standard input if it is `-`.
/// `None` if there is neither.
pub fn given(file: Option<&Path>, text: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(path) = file else {
        return match text {
            Some("-") => std::io::read_to_string(std::io::stdin()).map(Some).map_err(Failure::stdin),
            text => Ok(text.map(ToOwned::to_owned)),
        };
    };
    let text = std::fs::read_to_string(path).map_err(|error| Failure::read(path, error))?;
    let line = |text: &str| text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line).to_owned());
    Ok(Some(line(&text).unwrap_or(text)))
}

/// A token with its log probability, and the most likely tokens with theirs.
fn score_json(token: u32, score: &TokenScore) -> serde_json::Value {
    let top = score.alternatives.iter().map(|(token, score)| json!({ "token": token, "logprob": score }));
    json!({ "token": token, "logprob": score.log_probability, "top": top.collect::<Vec<_>>() })
}

fn usage_json(usage: &Usage) -> serde_json::Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "prefill_seconds": usage.prefill.as_secs_f64(),
        "decode_seconds": usage.decode.as_secs_f64(),
        "drafted_tokens": usage.drafted_tokens,
        "accepted_tokens": usage.accepted_tokens,
    })
}
