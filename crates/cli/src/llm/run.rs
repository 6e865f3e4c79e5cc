//! `rushlight llm run`.

use clap::Args;
use rushlight_llm::{TokenScore, Usage};
use serde_json::json;

use super::speaker;
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

`rushlight llm chat` puts the prompt into the model's chat template.")]
pub struct Run {
    #[command(flatten)]
    speaker: speaker::Arguments,

    /// The text to continue; `-` reads standard input
    #[arg(required_unless_present = "prompt_flag")]
    prompt: Option<String>,

    /// The same, as other tools take it
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", conflicts_with = "prompt")]
    prompt_flag: Option<String>,

    /// Print the text, token counts and times as JSON, and with `--logprobs` the tokens with their log probabilities
    #[arg(long)]
    json: bool,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        let tokenizer = self.speaker.model.tokenizer()?;
        let prompt = tokenizer
            .encode(&read(self.prompt.as_ref().or(self.prompt_flag.as_ref()).map_or("-", |text| text))?, true)?;
        let mut text = String::new();
        let mut scores = Vec::new();
        let usage = self.speaker.load(tokenizer)?.answer(
            &prompt,
            || false,
            |step| {
                if self.json {
                    text.push_str(&step.text);
                    scores.extend(step.token.zip(step.score.as_ref()).map(|(token, score)| score_json(token, score)));
                } else if !step.text.is_empty() {
                    output::print_foreign(&step.text);
                }
            },
        )?;
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

/// A text of the arguments, or standard input for `-`.
pub fn read(text: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    std::io::read_to_string(std::io::stdin()).map_err(Failure::stdin)
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
