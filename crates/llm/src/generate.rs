//! Text from a prompt.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::Model;
use crate::sampling::{Sampler, Sampling};
use crate::session::{Session, log_probabilities};
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
    /// Number of most likely tokens that each step has with their log probabilities, besides that of the chosen one; `None` computes
    /// none.
    pub log_probabilities: Option<usize>,
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
/// answer that the model read afterwards. A [`Generator`] does the same step by step.
///
/// # Errors
/// Those of [`Generator::start`] and [`Generator::step`].
pub fn generate(
    model: &mut Model,
    session: &mut Session,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &Generation,
    mut on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Usage> {
    let mut generator = Generator::start(model, session, tokenizer, prompt, options.clone())?;
    while let Some(step) = generator.step(model, session, tokenizer)? {
        if !step.text.is_empty() && on_text(&step.text).is_break() {
            break;
        }
    }
    Ok(generator.usage())
}

/// An answer that is being generated, step by step: several can take turns, each with a session of its own.
#[derive(Clone, Debug)]
pub struct Generator {
    options: Generation,
    sampler: Sampler,
    /// Tokens that end the answer.
    ends: Vec<u32>,
    answer: Answer,
    /// The last token, if the model has not read it.
    unread: Option<u32>,
    usage: Usage,
    is_finished: bool,
}

/// What a step adds to an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Text that became certain; empty where a character or a stop string may be incomplete.
    pub text: String,
    /// `None` if the model ended the answer.
    pub token: Option<u32>,
    /// How likely the token was, if [`Generation::log_probabilities`] asks for it.
    pub score: Option<TokenScore>,
}

/// How likely a token was. Probabilities are those of the model, before sampling changed them.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The natural logarithm of the token's probability.
    pub log_probability: f64,
    /// The most likely tokens with theirs, the most likely first.
    pub alternatives: Vec<(u32, f64)>,
}

impl Generator {
    /// Adds a prompt to a session. An empty one adds nothing: the answer goes on from the logits of the session.
    ///
    /// # Errors
    /// `Sampling`, and those of [`Session::prefill`], `NoTokens` for an empty prompt where there are no logits.
    pub fn start(
        model: &mut Model,
        session: &mut Session,
        tokenizer: &Tokenizer,
        prompt: &[u32],
        options: Generation,
    ) -> Result<Self> {
        let mut sampler = Sampler::new(options.sampling.clone())?;
        let start = Instant::now();
        if !prompt.is_empty() || !session.has_logits() {
            session.prefill(model, prompt)?;
        }
        let prefill = start.elapsed();
        sampler.observe_prompt(session.tokens());
        let mut ends: Vec<u32> = model.limits().eos.clone();
        ends.extend(&tokenizer.special_tokens().eos);
        let answer = Answer {
            stop: options.stop.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
            stream: TextStream::after(tokenizer, session.tokens())?,
            held: String::new(),
        };
        let is_finished = options.max_new_tokens == Some(0);
        let usage = Usage {
            prompt_tokens: prompt.len(),
            generated_tokens: 0,
            prefill,
            decoded_tokens: 0,
            decode: Duration::ZERO,
            finish_reason: if is_finished { FinishReason::Length } else { FinishReason::Cancelled },
        };
        Ok(Self { options, sampler, ends, answer, unread: None, usage, is_finished })
    }

    /// Chooses the next token. `None` when the answer is over.
    ///
    /// # Errors
    /// Those of [`Session::prefill`], [`Sampler::sample`] and [`Tokenizer::decode`].
    pub fn step(&mut self, model: &mut Model, session: &mut Session, tokenizer: &Tokenizer) -> Result<Option<Step>> {
        if self.is_finished {
            return Ok(None);
        }
        if let Some(token) = self.unread.take() {
            let start = Instant::now();
            session.prefill(model, &[token])?;
            self.usage.decode += start.elapsed();
            self.usage.decoded_tokens += 1;
        }
        let token = self.sampler.sample(session.logits())?.token;
        if !self.options.ignore_eos && self.ends.contains(&token) {
            return Ok(Some(Step { text: self.finish(tokenizer, FinishReason::Stop)?, ..Step::default() }));
        }
        self.usage.generated_tokens += 1;
        self.unread = Some(token);
        let score = self.options.log_probabilities.map(|count| TokenScore::of(session.logits(), token, count));
        let (mut text, is_stopped) = self.answer.push(tokenizer, token)?;
        let is_full = self.options.max_new_tokens.is_some_and(|max| self.usage.generated_tokens >= max)
            || session.position() >= model.limits().max_context_len;
        if is_stopped {
            self.is_finished = true;
            self.usage.finish_reason = FinishReason::Stop;
        } else if is_full {
            text.push_str(&self.finish(tokenizer, FinishReason::Length)?);
        }
        Ok(Some(Step { text, token: Some(token), score }))
    }

    /// Ends the answer. Returns the text that was held back.
    fn finish(&mut self, tokenizer: &Tokenizer, reason: FinishReason) -> Result<String> {
        let (rest, is_stopped) = self.answer.finish(tokenizer)?;
        self.is_finished = true;
        self.usage.finish_reason = if is_stopped { FinishReason::Stop } else { reason };
        Ok(rest)
    }

    /// Token counts and times so far; an answer that is not over counts as cancelled.
    pub fn usage(&self) -> Usage {
        self.usage
    }
}

impl TokenScore {
    /// The score of a token by logits, with `count` alternatives.
    fn of(logits: &[f32], token: u32, count: usize) -> Self {
        let scores = log_probabilities(logits);
        let of = |token: u32| scores.get(token as usize).copied().unwrap_or(f64::NEG_INFINITY);
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        let by_score = |a: &u32, b: &u32| of(*b).total_cmp(&of(*a)).then(a.cmp(b));
        let count = count.min(order.len());
        if (1..order.len()).contains(&count) {
            order.select_nth_unstable_by(count - 1, by_score);
        }
        order.truncate(count);
        order.sort_unstable_by(by_score);
        Self { log_probability: of(token), alternatives: order.into_iter().map(|token| (token, of(token))).collect() }
    }
}

/// The text of an answer, which ends before one of some texts.
#[derive(Clone, Debug)]
struct Answer {
    /// None is empty.
    stop: Vec<String>,
    stream: TextStream,
    /// Text that may be the beginning of one that ends the answer.
    held: String,
}

impl Answer {
    /// The text that a token adds, and whether the answer ends with it.
    fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<(String, bool)> {
        self.held.push_str(&self.stream.push(tokenizer, token)?);
        Ok(self.release())
    }

    /// Takes what belongs to the answer for sure.
    fn release(&mut self) -> (String, bool) {
        let ends = self.stop.iter();
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
        let stop = vec!["</s>".to_owned(), "END".to_owned()];
        let mut answer = Answer { stop, stream: TextStream::new(), held: "a <".to_owned() };
        assert_eq!(answer.release(), ("a ".to_owned(), false));
        answer.held.push_str("/b");
        assert_eq!(answer.release(), ("</b".to_owned(), false));
        answer.held.push_str("ENEN");
        assert_eq!(answer.release(), ("EN".to_owned(), false));
        answer.held.push_str("D of </s>");
        assert_eq!(answer.release(), (String::new(), true));
    }
}
