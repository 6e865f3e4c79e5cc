//! `/v1/completions`: prompts to be continued, as text or tokens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use rushlight_llm::{Adapter, Constraint, FinishReason, Generation, TextStream, TokenScore, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::body::{Body, Prompt, owner};
use super::head::{Head, TokenCounts, raw, respond};
use super::sampling::{SamplingFields, check_scores, max_tokens};
use super::stream::{self, Chunk};
use crate::error::Refusal;
use crate::fair::Tenant;
use crate::job::{Event, Job, Owner};
use crate::service::Service;

/// Maximum number of tokens of an answer whose request names none, as OpenAI has it.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Maximum number of prompts in a request.
const MAX_PROMPTS: usize = 128;

const OBJECT: &str = "text_completion";

#[derive(Deserialize)]
struct Request {
    model: Option<String>,
    prompt: Prompt,
    #[serde(default, deserialize_with = "max_tokens")]
    max_tokens: Option<usize>,
    echo: Option<bool>,
    logprobs: Option<usize>,
    suffix: Option<String>,
    best_of: Option<usize>,
    #[serde(flatten)]
    sampling: SamplingFields,
}

pub async fn complete(State(service): State<Arc<Service>>, mut body: Body) -> Result<Response, Refusal> {
    service.answers()?;
    let request: Request = body.read().await?;
    let deadline = service.deadline();
    let prepared = body.prepare(&service, request, prepare).await?;
    let Prepared { head, prompts, generation, answering, is_streamed, includes_usage } = prepared;
    drop(body);
    if is_streamed {
        let [prompt] = &prompts[..] else {
            return Err(Refusal::of("prompt", "expected one prompt in a request that streams"));
        };
        let pieces = Pieces::new(&service.tokenizer, prompt, &answering)?;
        let events = service.submit(|events| job(prompt, &generation, &answering, deadline, events))?;
        let first = pieces.first();
        let mut chunks =
            Chunks { scores: vec![Scores::default(); answering.choices], service, head, pieces, includes_usage };
        let first = chunks.json(first)?;
        return Ok(stream::respond(events, answering.choices, &first, chunks));
    }
    // Some are computed while the answers to the ones before are collected.
    let ahead = (service.options.max_sessions / answering.choices).max(1);
    let mut submitted = VecDeque::new();
    let mut choices = Vec::new();
    let mut counts = TokenCounts::default();
    let mut rest = prompts.iter();
    loop {
        let next = if submitted.len() < ahead { rest.next() } else { None };
        if let Some(prompt) = next {
            let job = |events| job(prompt, &generation, &answering, deadline, events);
            // Only the first asks for a place in the queue, the others wait for one.
            let events = if choices.is_empty() && submitted.is_empty() {
                service.submit(job)?
            } else {
                service.submit_later(job).await?
            };
            submitted.push_back((prompt, events));
            continue;
        }
        let Some((prompt, mut events)) = submitted.pop_front() else { break };
        let mut pieces = Pieces::new(&service.tokenizer, prompt, &answering)?;
        let no_scores = answering.has_scores.then(Vec::new);
        let begin = |choice| Piece { scores: no_scores.clone(), ..Piece::of(choice) };
        let mut answers: Vec<Piece> = (0..answering.choices).map(begin).collect();
        let mut add = |pieces: Vec<Piece>| {
            for piece in pieces {
                if let Some(answer) = answers.get_mut(piece.choice) {
                    answer.append(piece);
                }
            }
        };
        add(pieces.first());
        while let Some(event) = events.recv().await {
            add(pieces.of(event)?);
        }
        counts.add(&pieces.counts);
        let first = choices.len();
        // Log probabilities may be many.
        stream::beside(|| -> Result<(), Refusal> {
            for answer in answers {
                if answer.reason.is_none() {
                    return Err(Refusal::cut_off());
                }
                choices.push(answer.json(&service.tokenizer, first, &mut Scores::default())?);
            }
            Ok(())
        })?;
    }
    Ok(respond(head.json(OBJECT, &choices, Some(&counts))))
}

/// A request that was checked and tokenized.
struct Prepared {
    head: Head,
    prompts: Vec<Vec<u32>>,
    generation: Generation,
    answering: Answering,
    is_streamed: bool,
    includes_usage: bool,
}

fn prepare(service: &Service, request: Request, tenant: Tenant) -> Result<Prepared, Refusal> {
    if request.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
        return Err(Refusal::of("suffix", "it is not supported: the answer goes on from the prompt alone"));
    }
    let choices = request.sampling.choices();
    if request.best_of.is_some_and(|best_of| best_of > choices) {
        return Err(Refusal::of("best_of", "it is not supported beyond `n`"));
    }
    let defaults = &service.options.generation;
    let max_tokens = request.max_tokens.or(defaults.max_new_tokens()).unwrap_or(DEFAULT_MAX_TOKENS);
    let generation = request.sampling.generation(
        defaults,
        || service.dry_breakers(),
        Some(max_tokens),
        request.logprobs,
        service.limits.vocab_size,
    )?;
    let constraint = service.constraint(request.sampling.grammar(None)?.as_ref())?;
    let prompts = request.prompt.tokens(&service.tokenizer, "prompt", MAX_PROMPTS)?;
    let adapter = service.adapter(request.model.as_deref())?;
    let head = Head::new(service, "cmpl-", request.model)?;
    let answering = Answering {
        echo: request.echo.unwrap_or(false),
        has_scores: request.logprobs.is_some(),
        choices,
        constraint,
        adapter,
        owner: owner(tenant, request.sampling.cache_salt.clone())?,
        tenant,
    };
    prompts.iter().try_for_each(|prompt| service.check(prompt, choices))?;
    let tokens = prompts.iter().map(|prompt| {
        let answer = max_tokens.min(service.limits.max_context_len - prompt.len());
        (answer + if answering.echo { prompt.len() } else { 0 }) * choices
    });
    check_scores(tokens.sum(), request.logprobs)?;
    let (is_streamed, includes_usage) = (request.sampling.is_streamed(), request.sampling.includes_usage());
    Ok(Prepared { head, prompts, generation, answering, is_streamed, includes_usage })
}

/// The options of a prompt's answers.
#[derive(Clone)]
struct Answering {
    /// True if they begin with the prompt.
    echo: bool,
    /// True if they have log probabilities.
    has_scores: bool,
    choices: usize,
    constraint: Option<Constraint>,
    adapter: Option<Adapter>,
    owner: Owner,
    tenant: Tenant,
}

fn job(
    prompt: &[u32],
    generation: &Generation,
    answering: &Answering,
    deadline: Instant,
    events: mpsc::Sender<Event>,
) -> Job {
    Job {
        owner: answering.owner.clone(),
        tenant: answering.tenant,
        prompt: prompt.to_vec(),
        adapter: answering.adapter.clone(),
        generation: generation.clone(),
        constraint: answering.constraint.clone(),
        choices: answering.choices,
        scores_prompt: answering.echo && answering.has_scores,
        deadline,
        events,
    }
}

/// A piece of an answer, or all of it.
#[derive(Default)]
struct Piece {
    choice: usize,
    text: String,
    /// Tokens with their scores, `None` for the first of a prompt; if they are asked for.
    scores: Option<Vec<(u32, Option<TokenScore>)>>,
    reason: Option<FinishReason>,
}

impl Piece {
    fn of(choice: usize) -> Self {
        Self { choice, ..Self::default() }
    }

    fn append(&mut self, next: Self) {
        self.text.push_str(&next.text);
        if let Some(scores) = next.scores {
            self.scores.get_or_insert_default().extend(scores);
        }
        self.reason = next.reason.or(self.reason);
    }

    /// One of `choices`, of which there are `first` before those of its prompt. `scores` is that of the pieces before.
    fn json(&self, tokenizer: &Tokenizer, first: usize, scores: &mut Scores) -> Result<Box<RawValue>, Refusal> {
        let logprobs = self.scores.as_ref().map(|list| scores.json(tokenizer, list)).transpose()?;
        let finish_reason = self.reason.map(FinishReason::name);
        raw(&Choice { index: first + self.choice, text: &self.text, logprobs, finish_reason })
    }
}

/// Makes pieces of the events of a prompt.
struct Pieces {
    choices: usize,
    has_scores: bool,
    counts: TokenCounts,
    /// The tokens of the prompt and their text, if the answers begin with them.
    echo: Option<(Vec<u32>, String)>,
}

impl Pieces {
    fn new(tokenizer: &Tokenizer, prompt: &[u32], answering: &Answering) -> Result<Self, Refusal> {
        let Answering { echo, has_scores, choices, .. } = *answering;
        let echo = if echo { Some((prompt.to_vec(), tokenizer.decode(prompt, true)?)) } else { None };
        Ok(Self { choices, has_scores, counts: TokenCounts::default(), echo })
    }

    /// The prompt, unless its scores come with an event.
    fn first(&self) -> Vec<Piece> {
        if self.has_scores { Vec::new() } else { self.echoes(None) }
    }

    fn echoes(&self, scores: Option<&[(u32, Option<TokenScore>)]>) -> Vec<Piece> {
        let Some((_, text)) = &self.echo else { return Vec::new() };
        let echo = |choice| Piece { text: text.clone(), scores: scores.map(<[_]>::to_vec), ..Piece::of(choice) };
        (0..self.choices).map(echo).collect()
    }

    fn of(&mut self, event: Event) -> Result<Vec<Piece>, Refusal> {
        Ok(match event {
            Event::Prompt(scores) => {
                let tokens = self.echo.as_ref().map(|(tokens, _)| &tokens[..]).unwrap_or_default();
                let scores: Vec<_> = tokens.iter().copied().zip(scores).collect();
                self.echoes(Some(&scores))
            }
            Event::Step { choice, step } => {
                let token = step.token.or(step.end).filter(|_| self.has_scores);
                let scores = token.map(|token| vec![(token, step.score)]);
                if step.text.is_empty() && scores.is_none() {
                    return Ok(Vec::new());
                }
                vec![Piece { text: step.text, scores, ..Piece::of(choice) }]
            }
            Event::Finished { choice, reason, usage, cached } => {
                self.counts.finished(&usage, cached);
                vec![Piece { reason: Some(reason), ..Piece::of(choice) }]
            }
            Event::Failed(refusal) => return Err(refusal),
        })
    }
}

/// Writes log probabilities as `/v1/completions` has them: lists side by side, with the place of each token in the text.
#[derive(Clone, Default)]
struct Scores {
    stream: TextStream,
    /// Characters of the text so far.
    offset: usize,
}

#[derive(Serialize)]
struct Choice<'c> {
    index: usize,
    text: &'c str,
    logprobs: Option<LogProbs>,
    finish_reason: Option<&'c str>,
}

#[derive(Default, Serialize)]
struct LogProbs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    top_logprobs: Vec<Option<Box<RawValue>>>,
    text_offset: Vec<usize>,
}

impl Scores {
    fn json(&mut self, tokenizer: &Tokenizer, scores: &[(u32, Option<TokenScore>)]) -> Result<LogProbs, Refusal> {
        let mut all = LogProbs::default();
        for (token, score) in scores {
            all.tokens.push(token_text(tokenizer, *token)?);
            all.text_offset.push(self.offset);
            self.offset += self.stream.push(tokenizer, *token)?.chars().count();
            all.token_logprobs.push(score.as_ref().map(|score| number(score.log_probability)));
            let likely = score.as_ref().map(|score| -> Result<_, Refusal> {
                let mut map = Map::new();
                for (token, log_probability) in score.alternatives.iter().chain([&(*token, score.log_probability)]) {
                    // Among tokens with the same text, the most likely.
                    let number = || Value::from(number(*log_probability));
                    map.entry(token_text(tokenizer, *token)?).or_insert_with(number);
                }
                raw(&map)
            });
            all.top_logprobs.push(likely.transpose()?);
        }
        Ok(all)
    }
}

/// The text that a token adds; its name where it has none, as a special token.
fn token_text(tokenizer: &Tokenizer, token: u32) -> Result<String, Refusal> {
    Ok(String::from_utf8_lossy(&tokenizer.token_bytes(token)?).into_owned())
}

/// JSON has no infinity.
pub fn number(log_probability: f64) -> f64 {
    if log_probability.is_finite() { log_probability } else { -9999.0 }
}

/// The pieces of a stream.
struct Chunks {
    service: Arc<Service>,
    head: Head,
    pieces: Pieces,
    /// Those of each answer.
    scores: Vec<Scores>,
    includes_usage: bool,
}

impl Chunks {
    fn json(&mut self, pieces: Vec<Piece>) -> Result<Vec<Chunk>, Refusal> {
        let mut chunks = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let Some(scores) = self.scores.get_mut(piece.choice) else { continue };
            chunks.push(self.head.json(OBJECT, &[piece.json(&self.service.tokenizer, 0, scores)?], None).into());
        }
        Ok(chunks)
    }
}

impl stream::Chunks for Chunks {
    fn of(&mut self, event: Event) -> Result<Vec<Chunk>, Refusal> {
        let pieces = self.pieces.of(event)?;
        self.json(pieces)
    }

    fn last(&self) -> Vec<Chunk> {
        let none: &[()] = &[];
        if self.includes_usage {
            vec![self.head.json(OBJECT, none, Some(&self.pieces.counts)).into()]
        } else {
            Vec::new()
        }
    }
}

/// The checks of a body that need no model.
#[cfg(fuzzing)]
pub fn check(body: &[u8], defaults: &rushlight_llm::GenerationOptions, vocabulary: usize) -> Result<(), Refusal> {
    let request: Request = super::body::parse(body)?;
    request.sampling.grammar(None)?;
    request
        .sampling
        .generation(defaults, || Ok(std::collections::BTreeSet::new()), request.max_tokens, None, vocabulary)
        .map(|_| ())
}
