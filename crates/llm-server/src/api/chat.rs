//! `/v1/chat/completions`: conversations, with tools.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use rushlight_llm::{Adapter, Constraint, Generation};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::{self, Answer};
use super::body::{Body, owner};
use super::head::{Head, TokenCounts, new_id, raw, respond};
use super::sampling::{SamplingFields, check_scores, max_tokens};
use super::stream::{self, Chunk};
use super::tools::{names_of, tools};
use crate::error::{Refusal, shown};
use crate::fair::Tenant;
use crate::job::{Event, Job, Owner};
use crate::service::Service;
use crate::tool_calls::ToolCall;

const CHUNK: &str = "chat.completion.chunk";

#[derive(Deserialize)]
struct Request {
    model: Option<String>,
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    #[serde(default, deserialize_with = "max_tokens")]
    max_tokens: Option<usize>,
    #[serde(default, deserialize_with = "max_tokens")]
    max_completion_tokens: Option<usize>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    /// Variables of the template, such as `enable_thinking`.
    chat_template_kwargs: Option<Map<String, Value>>,
    #[serde(flatten)]
    sampling: SamplingFields,
}

pub async fn complete(State(service): State<Arc<Service>>, mut body: Body) -> Result<Response, Refusal> {
    service.answers()?;
    let request: Request = body.read().await?;
    let deadline = service.deadline();
    let tenant = body.tenant;
    let prepared = body.prepare(&service, request, prepare).await?;
    let Prepared { owner, prompt, adapter, generation, constraint, choices, .. } = prepared;
    let Prepared { head, names, is_streamed, includes_usage, .. } = prepared;
    let mut events = service.submit(|events| Job {
        owner,
        tenant,
        prompt,
        adapter,
        generation,
        constraint,
        choices,
        scores_prompt: false,
        deadline,
        events,
    })?;
    drop(body);
    let mut answers: Vec<Answer> = (0..choices).map(|_| Answer::new(&names)).collect();
    if is_streamed {
        let chunks = Chunks { service, head, answers, tokens: TokenCounts::default(), includes_usage };
        return Ok(stream::respond(events, choices, &chunks.first(), chunks));
    }
    let tokens = answer::receive(&mut events, &service.tokenizer, &mut answers).await?;
    let choices = answers.iter().enumerate().map(|(index, answer)| choice_json(answer, index));
    let choices = choices.collect::<Result<Vec<_>, _>>()?;
    Ok(respond(head.json("chat.completion", &choices, Some(&tokens))))
}

/// A request that was checked, rendered and tokenized.
struct Prepared {
    head: Head,
    owner: Owner,
    prompt: Vec<u32>,
    adapter: Option<Adapter>,
    generation: Generation,
    constraint: Option<Constraint>,
    choices: usize,
    /// Those of tools that may be called.
    names: Vec<String>,
    is_streamed: bool,
    includes_usage: bool,
}

fn prepare(service: &Service, mut request: Request, tenant: Tenant) -> Result<Prepared, Refusal> {
    let (tools, called) = tools(request.tools.as_deref().unwrap_or_default(), request.tool_choice.as_ref())?;
    let grammar = match called {
        Some(called) => Some(called),
        None => request.sampling.grammar(None)?,
    };
    let constraint = service.constraint(grammar.as_ref())?;
    let alternatives = request.logprobs.unwrap_or(false).then(|| request.top_logprobs.unwrap_or(0));
    if alternatives.is_none() && request.top_logprobs.is_some_and(|count| count > 0) {
        return Err(Refusal::of("top_logprobs", "expected `logprobs` to be true with it"));
    }
    let generation = request.sampling.generation(
        &service.options.generation,
        || service.dry_breakers(),
        request.max_completion_tokens.or(request.max_tokens),
        alternatives,
        service.limits.vocab_size,
    )?;
    let messages = std::mem::take(&mut request.messages).into_iter().map(message).collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() {
        return Err(Refusal::of("messages", "expected at least one message"));
    }
    let adapter = service.adapter(request.model.as_deref())?;
    let head = Head::new(service, "chatcmpl-", request.model)?;
    let names = names_of(&tools);
    let owner = owner(tenant, request.sampling.cache_salt.clone())?;
    let variables = request.chat_template_kwargs.unwrap_or_default();
    let prompt = prompt(service, Value::Array(messages), tools, variables)?;
    let choices = request.sampling.choices();
    service.check(&prompt, choices)?;
    let most = generation.max_new_tokens.unwrap_or(usize::MAX).min(service.limits.max_context_len - prompt.len());
    check_scores(most * choices, alternatives)?;
    let (is_streamed, includes_usage) = (request.sampling.is_streamed(), request.sampling.includes_usage());
    Ok(Prepared { head, owner, prompt, adapter, generation, constraint, choices, names, is_streamed, includes_usage })
}

/// A message as templates read it: its text is one string, and arguments of calls are objects.
pub fn message(message: Value) -> Result<Value, Refusal> {
    let text = shown(&message);
    let wrong = |what: &str| Refusal::of("messages", format!("expected {what}, got {text}"));
    let Value::Object(mut fields) = message else { return Err(wrong("objects")) };
    if !fields.get("role").is_some_and(Value::is_string) {
        return Err(wrong("messages with a role"));
    }
    match fields.get("content") {
        Some(Value::String(_)) => {}
        None | Some(Value::Null) => drop(fields.insert("content".to_owned(), "".into())),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| match part.get("type").and_then(Value::as_str) {
                Some("text") => part.get("text").and_then(Value::as_str).map(str::to_owned),
                _ => None,
            };
            let text: Option<String> = parts.iter().map(text).collect();
            let text = text.ok_or_else(|| wrong("content of texts alone, as images and audio are not supported"))?;
            fields.insert("content".to_owned(), text.into());
        }
        Some(_) => return Err(wrong("a text as content")),
    }
    for call in fields.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        let arguments = call.pointer_mut("/function/arguments");
        if let Some(arguments) = arguments
            && let Some(object) = arguments.as_str().and_then(|text| serde_json::from_str::<Map<_, _>>(text).ok())
        {
            *arguments = Value::Object(object);
        }
    }
    Ok(Value::Object(fields))
}

/// The tokens of a conversation. The template has the special ones.
pub fn prompt(
    service: &Service,
    messages: Value,
    tools: Value,
    variables: Map<String, Value>,
) -> Result<Vec<u32>, Refusal> {
    let Some(template) = &service.template else {
        return Err(Refusal::invalid("the model's tokenizer has no chat template: use `/v1/completions`"));
    };
    let text = template.render_with(&messages, &tools, true, &variables)?;
    drop((messages, tools, variables));
    Ok(service.tokenizer.encode(&text, false)?)
}

fn choice_json(answer: &Answer, index: usize) -> Result<Box<RawValue>, Refusal> {
    let reason = answer.reason.ok_or_else(Refusal::stopped)?;
    let mut message = json!({ "role": "assistant", "content": answer.content, "refusal": null });
    if let (false, Value::Object(fields)) = (answer.calls.is_empty(), &mut message) {
        if answer.content.trim().is_empty() {
            fields.insert("content".to_owned(), Value::Null);
        }
        fields.insert("tool_calls".to_owned(), answer.calls.iter().map(call_json).collect());
    }
    raw(&Choice { index, message, logprobs: scores_json(&answer.scores), finish_reason: reason })
}

fn call_json(call: &ToolCall) -> Value {
    let ToolCall { name, arguments } = call;
    json!({ "id": new_id("call_"), "type": "function", "function": { "name": name, "arguments": arguments } })
}

#[derive(Serialize)]
struct Choice<'c> {
    index: usize,
    message: Value,
    logprobs: Option<LogProbs<'c>>,
    finish_reason: &'c str,
}

/// An answer's choice in a chunk.
#[derive(Serialize)]
struct ChunkChoice<'c> {
    index: usize,
    delta: &'c Value,
    logprobs: Option<LogProbs<'c>>,
    finish_reason: Option<&'c str>,
}

#[derive(Serialize)]
struct LogProbs<'c> {
    content: &'c [Box<RawValue>],
}

/// A chunk with a delta of one answer.
fn chunk(head: &Head, index: usize, delta: &Value, scores: &[Box<RawValue>], reason: Option<&str>) -> Chunk {
    let choice = ChunkChoice { index, delta, logprobs: scores_json(scores), finish_reason: reason };
    head.json(CHUNK, &[choice], None).into()
}

/// The log probabilities of tokens, or null.
fn scores_json(scores: &[Box<RawValue>]) -> Option<LogProbs<'_>> {
    (!scores.is_empty()).then_some(LogProbs { content: scores })
}

/// The answers of a stream.
struct Chunks {
    service: Arc<Service>,
    head: Head,
    answers: Vec<Answer>,
    tokens: TokenCounts,
    includes_usage: bool,
}

impl Chunks {
    /// The beginning of each answer.
    fn first(&self) -> Vec<Chunk> {
        let begin = json!({ "role": "assistant", "content": "" });
        (0..self.answers.len()).map(|index| chunk(&self.head, index, &begin, &[], None)).collect()
    }
}

impl stream::Chunks for Chunks {
    fn of(&mut self, event: Event) -> Result<Vec<Chunk>, Refusal> {
        let (choice, delta, reason) = match event {
            Event::Step { choice, step } => match self.answers.get_mut(choice) {
                Some(answer) => (choice, answer.push(&self.service.tokenizer, step)?, None),
                None => return Ok(Vec::new()),
            },
            Event::Finished { choice, reason, usage, cached } => {
                self.tokens.finished(&usage, cached);
                match self.answers.get_mut(choice) {
                    Some(answer) => (choice, answer.finish(reason.name()), answer.reason),
                    None => return Ok(Vec::new()),
                }
            }
            Event::Failed(refusal) => return Err(refusal),
            Event::Prompt(_) => return Ok(Vec::new()),
        };
        let mut chunks = Vec::new();
        if !delta.text.is_empty() || !delta.scores.is_empty() {
            chunks.push(chunk(&self.head, choice, &json!({ "content": delta.text }), &delta.scores, None));
        }
        for (index, call) in &delta.calls {
            let mut call = call_json(call);
            if let Value::Object(fields) = &mut call {
                fields.insert("index".to_owned(), (*index).into());
            }
            chunks.push(chunk(&self.head, choice, &json!({ "tool_calls": [call] }), &[], None));
        }
        if reason.is_some() {
            chunks.push(chunk(&self.head, choice, &json!({}), &[], reason));
        }
        Ok(chunks)
    }

    fn last(&self) -> Vec<Chunk> {
        let none: &[()] = &[];
        if self.includes_usage { vec![self.head.json(CHUNK, none, Some(&self.tokens)).into()] } else { Vec::new() }
    }
}

/// The checks of a body that need no model.
#[cfg(fuzzing)]
pub fn check(body: &[u8], defaults: &rushlight_llm::GenerationOptions, vocabulary: usize) -> Result<(), Refusal> {
    let request: Request = super::body::parse(body)?;
    tools(request.tools.as_deref().unwrap_or_default(), request.tool_choice.as_ref())?;
    request.sampling.grammar(None)?;
    let max = request.max_completion_tokens.or(request.max_tokens);
    request.sampling.generation(
        defaults,
        || Ok(std::collections::BTreeSet::new()),
        max,
        request.top_logprobs,
        vocabulary,
    )?;
    request.messages.into_iter().map(message).collect::<Result<Vec<_>, _>>().map(|_| ())
}
