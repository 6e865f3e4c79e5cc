//! `/v1/chat/completions`: conversations, with tools.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use rushlight_llm::{Adapter, Constraint, Generation, Grammar, Step, TokenScore, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::body::{Body, owner};
use super::completions::number;
use super::head::{Head, TokenCounts, new_id, raw, respond};
use super::sampling::{SamplingFields, check_scores, max_tokens};
use super::stream;
use crate::error::{Refusal, shown};
use crate::fair::Tenant;
use crate::job::{Event, Job, Owner};
use crate::service::Service;
use crate::tool_calls::{Parsed, ToolCall, ToolCalls};

const CHUNK: &str = "chat.completion.chunk";

/// Maximum number of tools, as OpenAI has it.
const MAX_TOOLS: usize = 128;

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
    let mut tokens = TokenCounts::default();
    while let Some(event) = events.recv().await {
        match event {
            Event::Step { choice, step } => {
                if let Some(answer) = answers.get_mut(choice) {
                    let delta = answer.push(&service.tokenizer, step)?;
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
    let choices = answers.into_iter().enumerate().map(|(index, answer)| answer.into_json(index));
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
    let (tools, called) = tools(&request)?;
    let grammar = match called {
        Some(called) => Some(called),
        None => request.sampling.grammar()?,
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
    let head = Head::new(service, "chatcmpl", request.model)?;
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

/// The tools that the template is shown, null for none; and the form of the answer if it must call one.
fn tools(request: &Request) -> Result<(Value, Option<Grammar>), Refusal> {
    let tools = request.tools.as_deref().unwrap_or_default();
    if tools.len() > MAX_TOOLS {
        return Err(Refusal::of("tools", format!("expected at most {MAX_TOOLS} tools, got {}", tools.len())));
    }
    let name = |tool: &Value| tool.pointer("/function/name").and_then(Value::as_str).map(str::to_owned);
    if let Some(tool) = tools.iter().find(|tool| name(tool).is_none()) {
        return Err(Refusal::of("tools", format!("expected functions with a name, got {}", shown(tool))));
    }
    let is_wanted: Box<dyn Fn(&str) -> bool> = match &request.tool_choice {
        None | Some(Value::Null) => return Ok((if tools.is_empty() { Value::Null } else { tools.into() }, None)),
        Some(Value::String(choice)) => match choice.as_str() {
            "none" => return Ok((Value::Null, None)),
            "auto" => return Ok((if tools.is_empty() { Value::Null } else { tools.into() }, None)),
            "required" => Box::new(|_| true),
            _ => {
                return Err(Refusal::of(
                    "tool_choice",
                    format!("expected `auto`, `none`, `required` or a function, got `{}`", shown(choice)),
                ));
            }
        },
        Some(choice) => match choice.pointer("/function/name").and_then(Value::as_str) {
            Some(wanted) => Box::new(move |name| name == wanted),
            None => {
                let message = format!("expected a function with a name, got {}", shown(choice));
                return Err(Refusal::of("tool_choice", message));
            }
        },
    };
    let calls: Vec<Value> = tools
        .iter()
        .filter(|tool| name(tool).is_some_and(|name| is_wanted(&name)))
        .map(|tool| {
            let parameters = tool.pointer("/function/parameters").filter(|schema| schema.is_object());
            json!({
                "type": "object",
                "properties": {
                    "name": { "const": name(tool) },
                    "arguments": parameters.cloned().unwrap_or_else(|| json!({ "type": "object" })),
                },
                "required": ["name", "arguments"],
                "additionalProperties": false,
            })
        })
        .collect();
    if calls.is_empty() {
        return Err(Refusal::of("tool_choice", "expected a function that is among `tools`"));
    }
    Ok((tools.into(), Some(Grammar::JsonSchema(json!({ "anyOf": calls })))))
}

fn names_of(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |tool: &Value| tool.pointer("/function/name").and_then(Value::as_str).map(str::to_owned);
    tools.iter().filter_map(name).collect()
}

/// A message as templates read it: its text is one string, and arguments of calls are objects.
fn message(message: Value) -> Result<Value, Refusal> {
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
            let text = text.ok_or_else(|| wrong("content of texts alone"))?;
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
fn prompt(
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

/// An answer in the making.
struct Answer {
    content: String,
    /// `None` if calls are not looked for.
    parser: Option<ToolCalls>,
    calls: Vec<ToolCall>,
    /// The scores of its tokens, as JSON; none of streams.
    scores: Vec<Box<RawValue>>,
    reason: Option<&'static str>,
}

/// The part of an answer that an event adds.
#[derive(Default)]
struct Delta {
    text: String,
    calls: Vec<(usize, ToolCall)>,
    scores: Vec<Box<RawValue>>,
}

impl Answer {
    /// `names` are those of tools that it may call.
    fn new(names: &[String]) -> Self {
        Self {
            content: String::new(),
            parser: (!names.is_empty()).then(|| ToolCalls::new(names.to_vec())),
            calls: Vec::new(),
            scores: Vec::new(),
            reason: None,
        }
    }

    fn push(&mut self, tokenizer: &Tokenizer, step: Step) -> Result<Delta, Refusal> {
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
    fn finish(&mut self, reason: &'static str) -> Delta {
        let parsed = self.parser.as_mut().map(ToolCalls::finish).unwrap_or_default();
        let delta = self.add(parsed);
        self.reason = Some(if self.calls.is_empty() || reason == "length" { reason } else { "tool_calls" });
        delta
    }

    fn into_json(self, index: usize) -> Result<Box<RawValue>, Refusal> {
        let reason = self.reason.ok_or_else(Refusal::stopped)?;
        let mut message = json!({ "role": "assistant", "content": self.content, "refusal": null });
        if let (false, Value::Object(fields)) = (self.calls.is_empty(), &mut message) {
            if self.content.trim().is_empty() {
                fields.insert("content".to_owned(), Value::Null);
            }
            fields.insert("tool_calls".to_owned(), self.calls.iter().map(call_json).collect());
        }
        raw(&Choice { index, message, logprobs: scores_json(&self.scores), finish_reason: reason })
    }
}

fn call_json(call: &ToolCall) -> Value {
    let ToolCall { name, arguments } = call;
    json!({ "id": new_id("call"), "type": "function", "function": { "name": name, "arguments": arguments } })
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

/// A chunk with a delta of one answer.
fn chunk(head: &Head, index: usize, delta: &Value, scores: &[Box<RawValue>], reason: Option<&str>) -> String {
    let choice = ChunkChoice { index, delta, logprobs: scores_json(scores), finish_reason: reason };
    head.json(CHUNK, &[choice], None)
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
    fn first(&self) -> Vec<String> {
        let begin = json!({ "role": "assistant", "content": "" });
        (0..self.answers.len()).map(|index| chunk(&self.head, index, &begin, &[], None)).collect()
    }
}

impl stream::Chunks for Chunks {
    fn of(&mut self, event: Event) -> Result<Vec<String>, Refusal> {
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

    fn last(&self) -> Vec<String> {
        let none: &[()] = &[];
        if self.includes_usage { vec![self.head.json(CHUNK, none, Some(&self.tokens))] } else { Vec::new() }
    }
}

/// The checks of a body that need no model.
#[cfg(fuzzing)]
pub fn check(body: &[u8], defaults: &rushlight_llm::GenerationOptions, vocabulary: usize) -> Result<(), Refusal> {
    let request: Request = super::body::parse(body)?;
    tools(&request)?;
    request.sampling.grammar()?;
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
