//! `/v1/completions`: prompts to be continued, as text or tokens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use rushlight_llm::{Constraint, FinishReason, Generation, TextStream, TokenScore, Tokenizer};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::body::{Body, Prompt, read};
use super::head::{Head, TokenCounts};
use super::sampling::SamplingFields;
use super::stream;
use crate::error::Refusal;
use crate::job::{Event, Job};
use crate::service::Service;

/// Maximum number of tokens of an answer whose request names none, as OpenAI has it.
const DEFAULT_MAX_TOKENS: usize = 16;

const OBJECT: &str = "text_completion";

#[derive(Deserialize)]
struct Request {
    model: Option<String>,
    prompt: Prompt,
    max_tokens: Option<usize>,
    echo: Option<bool>,
    logprobs: Option<usize>,
    suffix: Option<String>,
    best_of: Option<usize>,
    #[serde(flatten)]
    sampling: SamplingFields,
}

pub async fn complete(State(service): State<Arc<Service>>, body: Body) -> Result<Response, Refusal> {
    service.answers()?;
    let request: Request = read(&body)?;
    if request.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
        return Err(Refusal::of("suffix", "it is not supported: the answer goes on from the prompt alone"));
    }
    if request.best_of.is_some_and(|best_of| best_of > request.sampling.choices()) {
        return Err(Refusal::of("best_of", "it is not supported beyond `n`"));
    }
    let max_tokens = request.max_tokens.or(service.options.generation.max_new_tokens).unwrap_or(DEFAULT_MAX_TOKENS);
    let defaults = &service.options.generation;
    let generation =
        request.sampling.generation(defaults, Some(max_tokens), request.logprobs, service.limits.vocab_size)?;
    let deadline = service.deadline();
    let constraint = service.constraint(request.sampling.grammar()?).await?;
    let prompts = request.prompt.tokens(&service, "prompt").await?;
    let head = Head::new(&service, "cmpl", request.model)?;
    let answering = Answering {
        echo: request.echo.unwrap_or(false),
        has_scores: request.logprobs.is_some(),
        choices: request.sampling.choices(),
        constraint,
    };
    prompts.iter().try_for_each(|prompt| service.check(prompt, answering.choices))?;
    if request.sampling.is_streamed() {
        let [prompt] = &prompts[..] else {
            return Err(Refusal::of("prompt", "expected one prompt in a request that streams"));
        };
        let includes_usage = request.sampling.includes_usage();
        return Ok(streamed(&service, prompt, &answering, head, includes_usage, |events| {
            job(prompt, &generation, &answering, deadline, events)
        })?
        .into_response());
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
        let mut answers = Answers::new(&service.tokenizer, prompt, &answering)?;
        while let Some(event) = events.recv().await {
            answers.take(event)?;
        }
        counts.add(&answers.counts);
        let first = choices.len();
        choices.extend(answers.into_json(&service.tokenizer, first)?);
    }
    Ok(Json(head.json(OBJECT, &choices, Some(&counts))).into_response())
}

/// What the answers of a prompt have.
#[derive(Clone)]
struct Answering {
    /// True if they begin with the prompt.
    echo: bool,
    /// True if they have log probabilities.
    has_scores: bool,
    choices: usize,
    constraint: Option<Constraint>,
}

fn job(
    prompt: &[u32],
    generation: &Generation,
    answering: &Answering,
    deadline: Instant,
    events: mpsc::Sender<Event>,
) -> Job {
    Job {
        prompt: prompt.to_vec(),
        generation: generation.clone(),
        constraint: answering.constraint.clone(),
        choices: answering.choices,
        scores_prompt: answering.echo && answering.has_scores,
        deadline,
        events,
    }
}

/// The answers to a prompt.
struct Answers {
    answers: Vec<Answer>,
    counts: TokenCounts,
    /// The tokens of the prompt, if the answers begin with them.
    echoed: Vec<u32>,
}

#[derive(Clone, Default)]
struct Answer {
    text: String,
    /// Tokens with their scores; `None` for the first of a prompt.
    scores: Option<Vec<(u32, Option<TokenScore>)>>,
    reason: Option<FinishReason>,
}

impl Answers {
    fn new(tokenizer: &Tokenizer, prompt: &[u32], answering: &Answering) -> Result<Self, Refusal> {
        let echoed = if answering.echo { prompt.to_vec() } else { Vec::new() };
        let answer = Answer {
            text: tokenizer.decode(&echoed, true)?,
            scores: answering.has_scores.then(Vec::new),
            reason: None,
        };
        Ok(Self { answers: vec![answer; answering.choices], counts: TokenCounts::default(), echoed })
    }

    fn take(&mut self, event: Event) -> Result<(), Refusal> {
        match event {
            Event::Prompt(scores) => {
                let echoed: Vec<_> = self.echoed.iter().copied().zip(scores).collect();
                let lists = self.answers.iter_mut().filter_map(|answer| answer.scores.as_mut());
                lists.for_each(|scores| scores.extend_from_slice(&echoed));
            }
            Event::Step { choice, step } => {
                let Some(answer) = self.answers.get_mut(choice) else { return Ok(()) };
                answer.text.push_str(&step.text);
                if let (Some(scores), Some(token)) = (&mut answer.scores, step.token.or(step.end)) {
                    scores.push((token, step.score));
                }
            }
            Event::Finished { choice, reason, usage, cached } => {
                self.counts.finished(&usage, cached);
                if let Some(answer) = self.answers.get_mut(choice) {
                    answer.reason = Some(reason);
                }
            }
            Event::Failed(refusal) => return Err(refusal),
        }
        Ok(())
    }

    fn into_json(self, tokenizer: &Tokenizer, first: usize) -> Result<Vec<Value>, Refusal> {
        let json = |(index, answer): (usize, Answer)| {
            let reason = answer.reason.ok_or_else(Refusal::stopped)?;
            let scores = answer.scores.map(|scores| Scores::default().json(tokenizer, &scores)).transpose()?;
            Ok(json!({
                "index": first + index,
                "text": answer.text,
                "logprobs": scores,
                "finish_reason": reason.name(),
            }))
        };
        self.answers.into_iter().enumerate().map(json).collect()
    }
}

/// Writes log probabilities as `/v1/completions` has them: lists side by side, with the place of each token in the text.
#[derive(Default)]
struct Scores {
    stream: TextStream,
    /// Characters of the text so far.
    offset: usize,
}

impl Scores {
    fn json(&mut self, tokenizer: &Tokenizer, scores: &[(u32, Option<TokenScore>)]) -> Result<Value, Refusal> {
        let (mut tokens, mut offsets, mut of_tokens, mut alternatives) = (vec![], vec![], vec![], vec![]);
        for (token, score) in scores {
            tokens.push(Value::from(token_text(tokenizer, *token)?));
            offsets.push(Value::from(self.offset));
            self.offset += self.stream.push(tokenizer, *token)?.chars().count();
            of_tokens.push(score.as_ref().map_or(Value::Null, |score| number(score.log_probability)));
            let likely = score.as_ref().map(|score| -> Result<Value, Refusal> {
                let mut map = Map::new();
                for (token, log_probability) in score.alternatives.iter().chain([&(*token, score.log_probability)]) {
                    // Of tokens with the same text the most likely.
                    map.entry(token_text(tokenizer, *token)?).or_insert_with(|| number(*log_probability));
                }
                Ok(Value::Object(map))
            });
            alternatives.push(likely.transpose()?.unwrap_or(Value::Null));
        }
        Ok(
            json!({ "tokens": tokens, "token_logprobs": of_tokens, "top_logprobs": alternatives, "text_offset": offsets }),
        )
    }
}

/// The text that a token adds; its name where it has none, as a special token.
fn token_text(tokenizer: &Tokenizer, token: u32) -> Result<String, Refusal> {
    Ok(String::from_utf8_lossy(&tokenizer.token_bytes(token)?).into_owned())
}

/// JSON has no infinity.
pub fn number(log_probability: f64) -> Value {
    Value::from(if log_probability.is_finite() { log_probability } else { -9999.0 })
}

fn streamed(
    service: &Arc<Service>,
    prompt: &[u32],
    answering: &Answering,
    head: Head,
    includes_usage: bool,
    job: impl FnOnce(mpsc::Sender<Event>) -> Job,
) -> Result<Response, Refusal> {
    let events = service.submit(job)?;
    let head = Arc::new(head);
    let (sent, service) = (head.clone(), service.clone());
    let has_scores = answering.has_scores;
    let mut scores: Vec<Scores> = (0..answering.choices).map(|_| Scores::default()).collect();
    let echoed = if answering.echo { prompt.to_vec() } else { Vec::new() };
    let echo = service.tokenizer.decode(&echoed, true)?;
    let chunk =
        move |head: &Head, index: usize, text: String, logprobs: Option<Value>, reason: Option<FinishReason>| {
            let reason = reason.map(FinishReason::name);
            head.json(
                OBJECT,
                &[json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": reason })],
                None,
            )
        };
    let first: Vec<Value> = match (answering.echo, answering.has_scores) {
        (true, false) => (0..answering.choices).map(|index| chunk(&head, index, echo.clone(), None, None)).collect(),
        _ => Vec::new(),
    };
    let total = Arc::new(std::sync::Mutex::new(TokenCounts::default()));
    let counted = total.clone();
    let chunks = move |event| {
        Ok(match event {
            Event::Prompt(of_prompt) => {
                let list: Vec<_> = echoed.iter().copied().zip(of_prompt).collect();
                let mut chunks = Vec::new();
                for (index, scores) in scores.iter_mut().enumerate() {
                    let logprobs = scores.json(&service.tokenizer, &list)?;
                    chunks.push(chunk(&sent, index, echo.clone(), Some(logprobs), None));
                }
                chunks
            }
            Event::Step { choice, step } => {
                let logprobs = match (scores.get_mut(choice), step.token.or(step.end)) {
                    (Some(scores), Some(token)) if has_scores => {
                        Some(scores.json(&service.tokenizer, &[(token, step.score)])?)
                    }
                    _ => None,
                };
                if step.text.is_empty() && logprobs.is_none() {
                    return Ok(Vec::new());
                }
                vec![chunk(&sent, choice, step.text, logprobs, None)]
            }
            Event::Finished { choice, reason, usage, cached } => {
                if let Ok(mut total) = counted.lock() {
                    total.finished(&usage, cached);
                }
                vec![chunk(&sent, choice, String::new(), None, Some(reason))]
            }
            Event::Failed(refusal) => return Err(refusal),
        })
    };
    let last = move || match total.lock() {
        Ok(total) if includes_usage => vec![head.json(OBJECT, &[], Some(&total))],
        _ => Vec::new(),
    };
    Ok(stream::respond(events, answering.choices, &first, chunks, last))
}
