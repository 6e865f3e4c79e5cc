//! Answers to conversations, from the steps of the model: their text, calls of tools and log probabilities.

use rushlight_llm::{Step, TokenScore, Tokenizer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::completions::number;
use super::head::{TokenCounts, raw};
use crate::error::Refusal;
use crate::job::Event;
use crate::tool_calls::{Parsed, ToolCall, ToolCalls};

/// An answer in the making.
pub struct Answer {
    pub content: String,
    /// `None` if calls are not looked for.
    parser: Option<ToolCalls>,
    pub calls: Vec<ToolCall>,
    /// The scores of its tokens, as JSON; none of streams.
    pub scores: Vec<Box<RawValue>>,
    pub reason: Option<&'static str>,
}

/// The part of an answer that an event adds.
#[derive(Default)]
pub struct Delta {
    pub text: String,
    /// Calls, with the number of each in the answer.
    pub calls: Vec<(usize, ToolCall)>,
    pub scores: Vec<Box<RawValue>>,
}

impl Answer {
    /// `names` are those of tools that it may call.
    pub fn new(names: &[String]) -> Self {
        Self {
            content: String::new(),
            parser: (!names.is_empty()).then(|| ToolCalls::new(names.to_vec())),
            calls: Vec::new(),
            scores: Vec::new(),
            reason: None,
        }
    }

    pub fn push(&mut self, tokenizer: &Tokenizer, step: Step) -> Result<Delta, Refusal> {
        let scores = match (step.token, &step.score) {
            (Some(token), Some(score)) => vec![score_json(tokenizer, token, score)?],
            _ => Vec::new(),
        };
        let parsed = match &mut self.parser {
            Some(parser) => parser.push(&step.text),
            None => Parsed { text: step.text, calls: Vec::new() },
        };
        Ok(Delta { scores, ..self.add(parsed) })
    }

    fn add(&mut self, parsed: Parsed) -> Delta {
        // Tokenizers put a space before a word.
        let space = if self.content.is_empty() { " " } else { "" };
        let text = parsed.text.strip_prefix(space).unwrap_or(&parsed.text);
        self.content.push_str(text);
        let first = self.calls.len();
        self.calls.extend_from_slice(&parsed.calls);
        Delta {
            text: text.to_owned(),
            calls: parsed.calls.into_iter().enumerate().map(|(index, call)| (first + index, call)).collect(),
            scores: Vec::new(),
        }
    }

    /// Ends the answer. Returns the text that was held back.
    pub fn finish(&mut self, reason: &'static str) -> Delta {
        let parsed = self.parser.as_mut().map(ToolCalls::finish).unwrap_or_default();
        let delta = self.add(parsed);
        self.reason = Some(if self.calls.is_empty() || reason == "length" { reason } else { "tool_calls" });
        delta
    }
}

/// Receives the answers of a job. Returns the numbers of their tokens.
pub async fn receive(
    events: &mut mpsc::Receiver<Event>,
    tokenizer: &Tokenizer,
    answers: &mut [Answer],
) -> Result<TokenCounts, Refusal> {
    let mut tokens = TokenCounts::default();
    while let Some(event) = events.recv().await {
        match event {
            Event::Step { choice, step } => {
                if let Some(answer) = answers.get_mut(choice) {
                    let delta = answer.push(tokenizer, step)?;
                    answer.scores.extend(delta.scores);
                }
            }
            Event::Finished { choice, reason, usage, cached } => {
                tokens.finished(&usage, cached);
                if let Some(answer) = answers.get_mut(choice) {
                    answer.finish(reason.name());
                }
            }
            Event::Failed(refusal) => return Err(refusal),
            Event::Prompt(_) => {}
        }
    }
    Ok(tokens)
}

fn score_json(tokenizer: &Tokenizer, token: u32, score: &TokenScore) -> Result<Box<RawValue>, Refusal> {
    let json = |token: u32, log_probability: f64| -> Result<Value, Refusal> {
        let bytes = tokenizer.token_bytes(token)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(json!({ "token": text, "logprob": number(log_probability), "bytes": bytes }))
    };
    let likely = score.alternatives.iter().map(|(token, log_probability)| json(*token, *log_probability));
    let likely = likely.collect::<Result<Vec<_>, _>>()?;
    let mut own = json(token, score.log_probability)?;
    if let Value::Object(fields) = &mut own {
        fields.insert("top_logprobs".to_owned(), likely.into());
    }
    raw(&own)
}
