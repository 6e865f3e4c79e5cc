//! Generates text from a prompt.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::clock::Instant;
use crate::error::Result;
#[cfg(feature = "grammar")]
use crate::grammar::Constraint;
use crate::model::Model;
use crate::prompt::Part;
use crate::sampling::{Sampler, Sampling};
use crate::session::Session;
use crate::speculation::{Budget, Draft, Speculation};
use crate::submission::Submission;
use crate::text_stream::TextStream;
use crate::token_score::TokenScore;
use crate::tokenizer::Tokenizer;

/// Options of text generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// Maximum number of tokens; by default, the free room of the context.
    pub max_new_tokens: Option<usize>,
    pub sampling: Sampling,
    /// Stop strings, which are not part of the answer.
    pub stop: Vec<String>,
    /// True if the answer continues after EOS tokens.
    pub ignore_eos: bool,
    /// Number of most likely tokens to return at each step with their log probabilities, besides that of the chosen
    /// token. `None` computes none.
    pub log_probabilities: Option<usize>,
    /// Drafts tokens, so that one call of the model reads several tokens of the answer. The answer is the same up to
    /// the rounding of logits. The logits of a call of several tokens may differ in the last bits from those of single
    /// calls, and with weights of bf16 by the rounding of bf16. The clock decides the length of drafts, so such a
    /// difference may come and go.
    pub speculation: Option<Speculation>,
}

impl From<Sampling> for Generation {
    /// Options with this sampling, and the defaults of all others.
    fn from(sampling: Sampling) -> Self {
        Self { sampling, ..Self::default() }
    }
}

/// The reason why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop string was generated.
    Stop,
    /// The maximum number of tokens is reached, or the context is full.
    Length,
    /// The caller ended it.
    Cancelled,
}

impl FinishReason {
    /// Returns the name in OpenAI's API. That API has none for answers that the caller ended.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Token counts and times of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt that the session did not have already.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// Time in which the model read the prompt.
    pub prefill: Duration,
    /// Tokens of the answer that the model read one by one. The last token of an answer is read only if the model ended
    /// the answer.
    pub decoded_tokens: usize,
    /// Time in which the model read these tokens, with the time for drafts.
    pub decode: Duration,
    /// Tokens that were guessed and verified.
    pub drafted_tokens: usize,
    /// Drafted tokens that are in the answer.
    pub accepted_tokens: usize,
    /// The reason why no token was drafted although [`Generation::speculation`] or [`Generator::step_with_draft`] asked
    /// for it.
    pub no_speculation: Option<&'static str>,
    pub finish_reason: FinishReason,
}

/// Adds a prompt to a session and generates text. Passes each piece of text to `on_text` as it is generated. Afterwards
/// the session has the prompt, and the tokens of the answer that the model read. A [`Generator`] does the same step by
/// step. If `on_text` breaks at the last text of an answer, the finish reason is that of the answer.
///
/// # Errors
/// The errors of [`Generator::start`] and [`Generator::step`].
pub fn generate(
    model: &mut Model,
    session: &mut Session,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &Generation,
    on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Usage> {
    match options.speculation {
        Some(mut speculation) => {
            generate_with_draft(model, session, tokenizer, prompt, options, Some(&mut speculation), on_text)
        }
        None => generate_with_draft(model, session, tokenizer, prompt, options, None, on_text),
    }
}

/// As [`generate`], with tokens that `draft` proposes, if there is one, in place of [`Generation::speculation`].
///
/// # Errors
/// The errors of [`Generator::start`] and [`Generator::step_with_draft`].
pub fn generate_with_draft(
    model: &mut Model,
    session: &mut Session,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &Generation,
    mut draft: Option<&mut dyn Draft>,
    mut on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Usage> {
    let mut generator = Generator::start(model, session, tokenizer, prompt, options.clone())?;
    loop {
        // Each step borrows the draft again.
        let draft: Option<&mut dyn Draft> = match &mut draft {
            Some(draft) => Some(&mut **draft),
            None => None,
        };
        let Some(step) = generator.advance(model, session, tokenizer, draft)? else { break };
        if !step.text.is_empty() && on_text(&step.text).is_break() {
            break;
        }
    }
    Ok(generator.usage())
}

/// An answer that is generated step by step. Several answers can take turns, each with a session of its own.
#[derive(Clone, Debug)]
pub struct Generator {
    options: Generation,
    sampler: Sampler,
    /// Tokens that end the answer.
    ends: Vec<u32>,
    answer: Answer,
    /// The last token, unless the model has read it.
    unread: Option<u32>,
    #[cfg(feature = "grammar")]
    constraint: Option<Constraint>,
    /// Buffer for logits that the grammar masks.
    #[cfg(feature = "grammar")]
    allowed: Vec<f32>,
    /// `None` until the first token of an answer with drafts.
    budget: Option<Budget>,
    usage: Usage,
    is_finished: bool,
}

/// The result of one step of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Text that is final. Empty if a character or a stop string may be incomplete.
    pub text: String,
    /// `None` if the model ended the answer.
    pub token: Option<u32>,
    /// The token with which the model ended the answer. It is not part of the answer.
    pub end: Option<u32>,
    /// The log probability of the token or the end, if [`Generation::log_probabilities`] asks for it.
    pub score: Option<TokenScore>,
}

impl Generator {
    /// Adds a prompt to a session. Without a prompt the answer continues from the session's last token.
    ///
    /// # Errors
    /// `Option`, also for invalid options of speculation, and the errors of [`Session::prefill`]. `NoTokens`, also
    /// for an empty prompt in a session without [logits](Session::logits).
    pub fn start(
        model: &mut Model,
        session: &mut Session,
        tokenizer: &Tokenizer,
        prompt: &[u32],
        options: Generation,
    ) -> Result<Self> {
        Self::start_while(model, session, tokenizer, prompt, options, || ControlFlow::Continue(()))
    }

    /// As [`start`](Self::start), but calls `goes_on` between parts of the prompt, as [`Session::prefill_while`] does.
    /// If it breaks, the answer is over.
    ///
    /// # Errors
    /// The errors of `start`.
    pub fn start_while(
        model: &mut Model,
        session: &mut Session,
        tokenizer: &Tokenizer,
        prompt: &[u32],
        options: Generation,
        goes_on: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Self> {
        Self::start_parts_while(model, session, tokenizer, &[Part::Tokens(prompt)], options, goes_on)
    }

    /// As [`start_while`](Self::start_while), for a prompt of tokens and embeddings.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start) and [`Session::prefill_parts`].
    pub fn start_parts_while(
        model: &mut Model,
        session: &mut Session,
        tokenizer: &Tokenizer,
        prompt: &[Part<'_>],
        options: Generation,
        goes_on: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Self> {
        let mut sampler = Sampler::new(options.sampling.clone())?;
        options.speculation.map_or(Ok(()), Speculation::check)?;
        // A part that is malformed may have no positions, and would be skipped.
        prompt.iter().try_for_each(|part| model.check(part))?;
        let start = Instant::now();
        let mut read = 0;
        let len: usize = prompt.iter().map(Part::len).sum();
        if len > 0 || !session.has_logits() {
            read = session.prefill_parts_while(model, prompt, goes_on)?;
        }
        let is_cancelled = read < len;
        let prefill = start.elapsed();
        sampler.observe_prompt(session.tokens());
        let mut ends: Vec<u32> = model.limits().eos.clone();
        ends.extend(&tokenizer.special_tokens().eos);
        let answer = Answer {
            stop: options.stop.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
            stream: TextStream::after(tokenizer, session.tokens())?,
            held: String::new(),
        };
        let is_empty = options.max_new_tokens == Some(0);
        let usage = Usage {
            prompt_tokens: read,
            generated_tokens: 0,
            prefill,
            decoded_tokens: 0,
            decode: Duration::ZERO,
            drafted_tokens: 0,
            accepted_tokens: 0,
            no_speculation: None,
            finish_reason: if is_empty && !is_cancelled { FinishReason::Length } else { FinishReason::Cancelled },
        };
        Ok(Self {
            options,
            sampler,
            ends,
            answer,
            unread: None,
            #[cfg(feature = "grammar")]
            constraint: None,
            #[cfg(feature = "grammar")]
            allowed: Vec::new(),
            budget: None,
            usage,
            is_finished: is_empty || is_cancelled,
        })
    }

    /// Chooses the next token. `None` if the answer is over.
    ///
    /// # Errors
    /// The errors of [`Session::prefill`], [`Sampler::sample`] and [`Tokenizer::decode`].
    pub fn step(&mut self, model: &mut Model, session: &mut Session, tokenizer: &Tokenizer) -> Result<Option<Step>> {
        match self.options.speculation {
            Some(mut speculation) => self.step_with_draft(model, session, tokenizer, &mut speculation),
            None => self.advance(model, session, tokenizer, None),
        }
    }

    /// As [`step`](Self::step), with tokens that `draft` proposes. `draft` is asked as long as this makes the answer
    /// faster, and now and then otherwise. A model that cannot verify drafts is not slowed down;
    /// [`Usage::no_speculation`] has the reason.
    ///
    /// # Errors
    /// The errors of `step` and of the draft.
    pub fn step_with_draft(
        &mut self,
        model: &mut Model,
        session: &mut Session,
        tokenizer: &Tokenizer,
        draft: &mut dyn Draft,
    ) -> Result<Option<Step>> {
        self.advance(model, session, tokenizer, Some(draft))
    }

    /// Reads the last token of each answer in one call of the model, in place of one call for each
    /// [`step`](Self::step). Several answers at once take little longer than one. Answers with speculation are left
    /// out.
    ///
    /// # Errors
    /// The errors of [`Session::prefill_batch`].
    pub fn read_batch(model: &mut Model, answers: &mut [(&mut Self, &mut Session)]) -> Result<()> {
        let mut batch = Vec::new();
        let mut read = Vec::new();
        for (generator, session) in answers {
            if let Some(token) = generator.unread
                && !generator.is_finished
                && generator.options.speculation.is_none()
            {
                batch.push((&mut **session, token));
                read.push(generator);
            }
        }
        let start = Instant::now();
        Session::prefill_batch(model, &mut batch)?;
        let time = start.elapsed() / u32::try_from(read.len()).unwrap_or(u32::MAX).max(1);
        for generator in read {
            generator.unread = None;
            generator.usage.decoded_tokens += 1;
            generator.usage.decode += time;
        }
        Ok(())
    }

    /// Submits the last token of the answer. The model reads it while the [`Submission`] is polled, so that the next
    /// [`step`](Self::step) makes no call. The submission is ready at once if there is nothing to read: at the beginning, at the end,
    /// and for an answer with speculation. Polling has the errors of [`Session::submit`].
    pub fn submit<'g>(&'g mut self, model: &'g mut Model, session: &'g mut Session) -> Submission<'g> {
        let unread = self.unread.filter(|_| !self.is_finished && self.options.speculation.is_none());
        Submission::new(async move {
            let Some(token) = unread else { return Ok(()) };
            let start = Instant::now();
            session.submit(model, &[Part::Tokens(&[token])])?.await?;
            self.unread = None;
            self.usage.decoded_tokens += 1;
            self.usage.decode += start.elapsed();
            Ok(())
        })
    }

    fn advance(
        &mut self,
        model: &mut Model,
        session: &mut Session,
        tokenizer: &Tokenizer,
        draft: Option<&mut dyn Draft>,
    ) -> Result<Option<Step>> {
        if self.is_finished {
            return Ok(None);
        }
        if let Some(token) = self.unread {
            match draft {
                Some(draft) => self.read_with_draft(model, session, token, draft)?,
                None => drop(self.read(model, session, token)?),
            }
            // Cleared only now: if a draft fails, the next step reads the token.
            self.unread = None;
            self.usage.decoded_tokens += 1;
        }
        let token = self.choose(session.logits())?;
        let score = self.options.log_probabilities.map(|count| TokenScore::of(session.logits(), token, count));
        if !self.options.ignore_eos && self.ends.contains(&token) {
            let text = self.finish(tokenizer, FinishReason::Stop)?;
            return Ok(Some(Step { text, token: None, end: Some(token), score }));
        }
        let is_complete = self.accept(token)?;
        self.usage.generated_tokens += 1;
        self.unread = Some(token);
        let (mut text, is_stopped) = self.answer.push(tokenizer, token)?;
        let is_full = self.options.max_new_tokens.is_some_and(|max| self.usage.generated_tokens >= max)
            || session.position() >= model.limits().max_context_len;
        if is_stopped {
            self.is_finished = true;
            self.usage.finish_reason = FinishReason::Stop;
        } else if is_complete {
            text.push_str(&self.finish(tokenizer, FinishReason::Stop)?);
        } else if is_full {
            text.push_str(&self.finish(tokenizer, FinishReason::Length)?);
        }
        Ok(Some(Step { text, token: Some(token), end: None, score }))
    }

    /// Allows only answers of a grammar from here on. The answer ends where the grammar ends.
    #[cfg(feature = "grammar")]
    pub fn constrain(&mut self, constraint: Constraint) {
        self.constraint = Some(constraint);
    }

    /// Takes the constraint of an unfinished answer, so that another thread can [prepare](Constraint::prepare) it. Give it back with
    /// [`constrain`](Self::constrain) before the next step: an answer without its constraint ignores the grammar.
    #[cfg(feature = "grammar")]
    pub fn take_constraint(&mut self) -> Option<Constraint> {
        if self.is_finished { None } else { self.constraint.take() }
    }

    /// Chooses a token that the grammar allows.
    fn choose(&mut self, logits: &[f32]) -> Result<u32> {
        #[cfg(feature = "grammar")]
        if let Some(constraint) = &mut self.constraint {
            self.allowed.clear();
            self.allowed.extend_from_slice(logits);
            constraint.mask(&mut self.allowed)?;
            return Ok(self.sampler.sample(&self.allowed)?.token);
        }
        Ok(self.sampler.sample(logits)?.token)
    }

    /// Passes a token to the grammar. Returns true if the answer is complete.
    #[cfg_attr(
        not(feature = "grammar"),
        expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "a grammar needs both")
    )]
    fn accept(&mut self, token: u32) -> Result<bool> {
        #[cfg(feature = "grammar")]
        if let Some(constraint) = &mut self.constraint {
            return constraint.accept(token);
        }
        let _ = token;
        Ok(false)
    }

    /// Reads a token of the answer with the model. Returns the time that this took.
    fn read(&mut self, model: &mut Model, session: &mut Session, token: u32) -> Result<Duration> {
        let start = Instant::now();
        session.prefill(model, &[token])?;
        let time = start.elapsed();
        self.usage.decode += time;
        Ok(time)
    }

    /// As [`read`](Self::read), with a draft of the next tokens.
    fn read_with_draft(
        &mut self,
        model: &mut Model,
        session: &mut Session,
        token: u32,
        draft: &mut dyn Draft,
    ) -> Result<()> {
        let budget = match &mut self.budget {
            Some(budget) => budget,
            None => {
                self.usage.no_speculation = session.cannot_read_ahead(model);
                if self.usage.no_speculation.is_none() {
                    let start = Instant::now();
                    draft.prefill(session.tokens())?;
                    self.usage.prefill += start.elapsed();
                }
                self.budget.insert(Budget::default())
            }
        };
        if self.usage.no_speculation.is_some() {
            return self.read(model, session, token).map(drop);
        }
        if session.next_ahead() == Some(token) {
            budget.record_token(true);
            self.usage.accepted_tokens += 1;
            return self.read(model, session, token).map(drop);
        }
        budget.record_token(false);
        // The room for drafted tokens in the answer. The last token is not read, so it is not counted.
        let wanted =
            self.options.max_new_tokens.map_or(usize::MAX, |max| max.saturating_sub(self.usage.generated_tokens));
        let limits = model.limits();
        let room = limits.max_context_len.saturating_sub(session.position());
        let len = budget.draft_len().min(wanted.min(room).min(model.max_call_len(room)).saturating_sub(1));
        let start = Instant::now();
        let mut drafts = Vec::new();
        if len > 0 {
            let tokens: Vec<u32> = session.tokens().iter().copied().chain([token]).collect();
            drafts = draft.propose(&tokens, len)?;
            drafts.truncate(len);
            let known = drafts.iter().take_while(|token| (**token as usize) < limits.vocab_size).count();
            drafts.truncate(known);
        }
        if drafts.is_empty() {
            let proposal = start.elapsed();
            self.usage.decode += proposal;
            budget.record_waste(proposal);
            let time = self.read(model, session, token)?;
            if let Some(budget) = &mut self.budget {
                budget.record_plain_call(time);
            }
            return Ok(());
        }
        let count = drafts.len();
        session.prefill_with_drafts(model, token, drafts)?;
        let time = start.elapsed();
        budget.record_draft_call(count, time);
        self.usage.drafted_tokens += count;
        self.usage.decode += time;
        Ok(())
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

/// The text of an answer, up to a stop string.
#[derive(Clone, Debug)]
struct Answer {
    /// The stop strings that are not empty.
    stop: Vec<String>,
    stream: TextStream,
    /// Text that may be the beginning of a stop string.
    held: String,
}

impl Answer {
    /// Returns the text that a token adds, and true if the answer ends with it.
    fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<(String, bool)> {
        self.held.push_str(&self.stream.push(tokenizer, token)?);
        Ok(self.release())
    }

    /// Takes the text that certainly belongs to the answer.
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

    /// Takes the text that was held back, and true if the answer ends with it.
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
    /// Tokens of the prompt that the model read per second; 0 without a prompt.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }

    /// Tokens of the answer that the model read per second; 0 if it read none.
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
        )?;
        match self.drafted_tokens {
            0 => Ok(()),
            drafted => write!(f, "; {} of {drafted} guessed ones are right", self.accepted_tokens),
        }
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
