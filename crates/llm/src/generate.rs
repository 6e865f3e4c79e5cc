//! Text from a prompt.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::Model;
use crate::sampling::{Sampler, Sampling};
use crate::session::Session;
use crate::text_stream::TextStream;
use crate::tokenizer::Tokenizer;

/// How text is generated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// Maximum number of tokens; by default as many as the context has room for.
    pub max_new_tokens: Option<usize>,
    pub sampling: Sampling,
    /// Stop strings, which are not part of the answer.
    pub stop: Vec<String>,
    /// True if the answer goes on after EOS tokens.
    pub ignore_eos: bool,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or one of the texts that end it came.
    Stop,
    /// There are as many tokens as were asked for, or the context is full.
    Length,
    /// The caller ended it.
    Cancelled,
}

/// Token counts and times of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, without those that the session had already.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// Time in which the model read the prompt.
    pub prefill: Duration,
    /// Tokens of the answer that the model read, one by one: the last one of an answer is not read unless the model ended it.
    pub decoded_tokens: usize,
    /// Time in which it read them.
    pub decode: Duration,
    pub finish_reason: FinishReason,
}

/// Adds a prompt to a session and generates text, which `on_text` gets as it comes. The session has the prompt and the tokens of the
/// answer that the model read afterwards.
///
/// # Errors
/// `Sampling`, and those of [`Session::prefill`], [`Sampler::sample`] and [`Tokenizer::decode`].
pub fn generate(
    model: &mut Model,
    session: &mut Session,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &Generation,
    mut on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Usage> {
    let mut sampler = Sampler::new(options.sampling.clone())?;
    let start = Instant::now();
    session.prefill(model, prompt)?;
    let prefill = start.elapsed();
    sampler.observe_prompt(session.tokens());
    let mut ends: Vec<u32> = model.limits().eos.clone();
    ends.extend(&tokenizer.special_tokens().eos);
    let capacity = model.limits().max_context_len;
    let max_new_tokens = options.max_new_tokens.unwrap_or(usize::MAX);
    let mut text =
        Answer { stop: &options.stop, stream: TextStream::after(tokenizer, session.tokens())?, held: String::new() };
    let (mut generated_tokens, mut decoded_tokens, mut decode) = (0, 0, Duration::ZERO);
    let mut finish_reason = loop {
        if generated_tokens >= max_new_tokens {
            break FinishReason::Length;
        }
        let token = sampler.sample(session.logits())?.token;
        if !options.ignore_eos && ends.contains(&token) {
            break FinishReason::Stop;
        }
        generated_tokens += 1;
        let (piece, is_stopped) = text.push(tokenizer, token)?;
        if !piece.is_empty() && on_text(&piece).is_break() {
            break FinishReason::Cancelled;
        }
        if is_stopped {
            break FinishReason::Stop;
        }
        if generated_tokens >= max_new_tokens || session.position() >= capacity {
            break FinishReason::Length;
        }
        let start = Instant::now();
        session.prefill(model, &[token])?;
        decode += start.elapsed();
        decoded_tokens += 1;
    };
    if finish_reason != FinishReason::Cancelled {
        let (rest, is_stopped) = text.finish(tokenizer)?;
        if is_stopped {
            finish_reason = FinishReason::Stop;
        }
        if !rest.is_empty() {
            // It is over, whatever the caller says.
            let _ = on_text(&rest);
        }
    }
    Ok(Usage { prompt_tokens: prompt.len(), generated_tokens, prefill, decoded_tokens, decode, finish_reason })
}

/// The text of an answer, which ends before one of some texts.
struct Answer<'a> {
    stop: &'a [String],
    stream: TextStream,
    /// Text that may be the beginning of one that ends the answer.
    held: String,
}

impl Answer<'_> {
    /// The text that a token adds, and whether the answer ends with it.
    fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<(String, bool)> {
        self.held.push_str(&self.stream.push(tokenizer, token)?);
        Ok(self.release())
    }

    /// Takes what belongs to the answer for sure.
    fn release(&mut self) -> (String, bool) {
        let ends = self.stop.iter().filter(|stop| !stop.is_empty());
        if let Some(end) = ends.clone().filter_map(|stop| self.held.find(stop)).min() {
            self.held.truncate(end);
            return (std::mem::take(&mut self.held), true);
        }
        let may_begin = |at: &usize| ends.clone().any(|stop| stop.starts_with(&self.held[*at..]));
        let positions = self.held.char_indices().map(|(at, _)| at);
        let keep = positions.into_iter().find(may_begin).unwrap_or(self.held.len());
        let held = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, held), false)
    }

    /// Takes the text that was held back, and whether the answer ends with it.
    fn finish(&mut self, tokenizer: &Tokenizer) -> Result<(String, bool)> {
        let rest = self.stream.finish(tokenizer)?;
        self.held.push_str(&rest);
        let (mut text, is_stopped) = self.release();
        if !is_stopped {
            text.push_str(&std::mem::take(&mut self.held));
        }
        Ok((text, is_stopped))
    }
}

impl Usage {
    /// Tokens of the prompt that the model read a second; 0 without a prompt.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }

    /// Tokens of the answer that the model read a second; 0 if it read none.
    pub fn decode_rate(&self) -> f64 {
        rate(self.decoded_tokens, self.decode)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if count == 0 { 0.0 } else { count as f64 / time.as_secs_f64() }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prompt_tokens, generated_tokens, .. } = self;
        let (prefill, decode) = (self.prefill_rate(), self.decode_rate());
        write!(
            f,
            "prompt {prompt_tokens} tokens, {prefill:.1} a second; answer {generated_tokens} tokens, {decode:.1} a second"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_may_end_the_answer_is_held() {
        let stop = ["</s>".to_owned(), "END".to_owned(), String::new()];
        let mut answer = Answer { stop: &stop, stream: TextStream::new(), held: "a <".to_owned() };
        assert_eq!(answer.release(), ("a ".to_owned(), false));
        answer.held.push_str("/b");
        assert_eq!(answer.release(), ("</b".to_owned(), false));
        answer.held.push_str("ENEN");
        assert_eq!(answer.release(), ("EN".to_owned(), false));
        answer.held.push_str("D of </s>");
        assert_eq!(answer.release(), (String::new(), true));
    }
}
