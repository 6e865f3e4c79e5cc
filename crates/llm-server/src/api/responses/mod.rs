//! `/v1/responses`: OpenAI's Responses API for texts and function tools. Responses are not kept, so a request has the whole
//! conversation.

mod input;
mod output;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use rushlight_llm::{Adapter, Constraint, Generation, Grammar};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{self, Answer};
use super::body::{Body, owner};
use super::chat;
use super::head::{model_name, new_id, now, raw, respond};
use super::sampling::{SamplingFields, check_scores, max_tokens};
use super::stream;
use super::tools::{names_of, tools};
use crate::error::{Refusal, shown};
use crate::fair::Tenant;
use crate::job::{Job, Owner};
use crate::service::Service;
use input::Input;
use output::{Description, Events};

/// The value of `include` that asks for log probabilities.
const LOG_PROBABILITIES: &str = "message.output_text.logprobs";

#[derive(Deserialize)]
struct Request {
    model: Option<String>,
    input: Option<Input>,
    instructions: Option<String>,
    #[serde(default, deserialize_with = "max_tokens")]
    max_output_tokens: Option<usize>,
    text: Option<TextOptions>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    include: Option<Vec<String>>,
    top_logprobs: Option<usize>,
    metadata: Option<Map<String, Value>>,
    /// Variables of the template, as in `/v1/chat/completions`.
    chat_template_kwargs: Option<Map<String, Value>>,
    previous_response_id: Option<Value>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    background: Option<bool>,
    truncation: Option<String>,
    #[serde(flatten)]
    sampling: SamplingFields,
}

#[derive(Default, Deserialize)]
struct TextOptions {
    format: Option<Value>,
}

pub async fn create(State(service): State<Arc<Service>>, mut body: Body) -> Result<Response, Refusal> {
    service.answers()?;
    let request: Request = body.read().await?;
    let deadline = service.deadline();
    let tenant = body.tenant;
    let prepared = body.prepare(&service, request, prepare).await?;
    let Prepared { owner, prompt, adapter, generation, constraint, names, description, is_streamed } = prepared;
    let mut events = service.submit(|events| Job {
        owner,
        tenant,
        prompt,
        adapter,
        generation,
        constraint,
        choices: 1,
        scores_prompt: false,
        deadline,
        events,
    })?;
    drop(body);
    let mut answer = Answer::new(&names);
    if is_streamed {
        let mut chunks = Events::new(service, description, answer);
        let first = chunks.first();
        return Ok(stream::respond(events, 1, &first, chunks));
    }
    let tokens = answer::receive(&mut events, &service.tokenizer, std::slice::from_mut(&mut answer)).await?;
    Ok(respond(description.complete(&answer, &tokens)?))
}

/// A request that was checked, rendered and tokenized.
struct Prepared {
    owner: Owner,
    prompt: Vec<u32>,
    adapter: Option<Adapter>,
    generation: Generation,
    constraint: Option<Constraint>,
    /// Names of the tools that may be called.
    names: Vec<String>,
    description: Description,
    is_streamed: bool,
}

fn prepare(service: &Service, mut request: Request, tenant: Tenant) -> Result<Prepared, Refusal> {
    check_state(&request)?;
    let given = request.tools.take().unwrap_or_default();
    let choice = request.tool_choice.take();
    let (shown_tools, called) = shown_tools(&given, choice.as_ref())?;
    let format = request.text.unwrap_or_default().format;
    let grammar = match (called, text_format(format.as_ref())?) {
        (Some(called), _) => Some(called),
        (None, format) => request.sampling.grammar(format)?,
    };
    let constraint = service.constraint(grammar.as_ref())?;
    let alternatives = alternatives(request.include.as_deref().unwrap_or_default(), request.top_logprobs)?;
    let generation = request.sampling.generation(
        &service.options.generation,
        || service.dry_breakers(),
        request.max_output_tokens,
        alternatives,
        service.limits.vocab_size,
    )?;
    let input = request.input.ok_or_else(|| Refusal::of("input", "expected a text or a list of messages"))?;
    let messages = input::messages(input, request.instructions.as_deref())?;
    let adapter = service.adapter(request.model.as_deref())?;
    let description = Description {
        id: new_id("resp_"),
        created: now(),
        model: model_name(service, request.model)?,
        instructions: request.instructions,
        max_output_tokens: generation.max_new_tokens.filter(|tokens| *tokens < usize::MAX),
        temperature: generation.sampling.temperature,
        top_p: generation.sampling.top_p,
        text: output::text_json(format.as_ref())?,
        tools: raw(&given)?,
        tool_choice: raw(&choice.unwrap_or_else(|| "auto".into()))?,
        metadata: raw(&request.metadata.unwrap_or_default())?,
    };
    let names = names_of(&shown_tools);
    let owner = owner(tenant, request.sampling.cache_salt.clone())?;
    let variables = request.chat_template_kwargs.unwrap_or_default();
    let prompt = chat::prompt(service, messages.into(), shown_tools, variables).map_err(of_input)?;
    service.check_prompt("input", &prompt)?;
    let most = generation.max_new_tokens.unwrap_or(usize::MAX).min(service.limits.max_context_len - prompt.len());
    check_scores(most, alternatives)?;
    let is_streamed = request.sampling.is_streamed();
    Ok(Prepared { owner, prompt, adapter, generation, constraint, names, description, is_streamed })
}

/// Refuses requests that need a response which was kept, or one that is.
fn check_state(request: &Request) -> Result<(), Refusal> {
    let is_given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    if is_given(&request.previous_response_id) {
        let message = "responses are not kept: send the earlier messages and answers in `input`";
        return Err(Refusal::of("previous_response_id", message));
    }
    if is_given(&request.conversation) {
        let message = "conversations are not kept: send the earlier messages and answers in `input`";
        return Err(Refusal::of("conversation", message));
    }
    if is_given(&request.prompt) {
        return Err(Refusal::of("prompt", "prompts are not kept: send the text in `input` and `instructions`"));
    }
    if request.background == Some(true) {
        let message = "responses are not kept: leave `background` out, and read the response or its stream";
        return Err(Refusal::of("background", message));
    }
    if let Some(other) = request.truncation.as_deref().filter(|truncation| *truncation != "disabled") {
        let message = format!("expected `disabled`, got `{}`: leave out the oldest messages of `input`", shown(other));
        return Err(Refusal::of("truncation", message));
    }
    if request.sampling.choices() != 1 {
        return Err(Refusal::of("n", format!("expected 1 answer, got {}", request.sampling.choices())));
    }
    Ok(())
}

/// An error of the template, which names the field of `/v1/chat/completions`.
fn of_input(refusal: Refusal) -> Refusal {
    let param = refusal.param.map(|param| if param == "messages" { "input" } else { param });
    Refusal { param, ..refusal }
}

/// The form of the answer, as `text.format` gives it.
fn text_format(format: Option<&Value>) -> Result<Option<Grammar>, Refusal> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    match (format.get("type").and_then(Value::as_str), format.get("schema")) {
        (Some("text"), _) => Ok(None),
        (Some("json_object"), _) => Ok(Some(Grammar::JsonSchema(json!({ "type": "object" })))),
        (Some("json_schema"), Some(schema)) => Ok(Some(Grammar::JsonSchema(schema.clone()))),
        (Some("json_schema"), None) => Err(Refusal::of("text.format", "expected `schema` in the format `json_schema`")),
        _ => {
            let message = format!("expected the type `text`, `json_object` or `json_schema`, got {}", shown(format));
            Err(Refusal::of("text.format", message))
        }
    }
}

/// The number of alternatives of each token, if log probabilities are asked for.
fn alternatives(include: &[String], top: Option<usize>) -> Result<Option<usize>, Refusal> {
    let is_asked = include.iter().any(|value| value == LOG_PROBABILITIES);
    if !is_asked && top.is_some_and(|count| count > 0) {
        return Err(Refusal::of("top_logprobs", format!("expected `include` with `{LOG_PROBABILITIES}` beside it")));
    }
    Ok(is_asked.then(|| top.unwrap_or(0)))
}

/// The tools in the form of `/v1/chat/completions`, which templates read, and the form of the answer if it must call one.
fn shown_tools(given: &[Value], choice: Option<&Value>) -> Result<(Value, Option<Grammar>), Refusal> {
    let is_function = |tool: &Value| tool.get("type").and_then(Value::as_str) == Some("function");
    let function = |tool: &Value| match tool {
        Value::Object(fields) if is_function(tool) => {
            let mut function = fields.clone();
            function.shift_remove("type");
            Ok(json!({ "type": "function", "function": function }))
        }
        _ => Err(Refusal::of("tools", format!("expected functions, got {}", shown(tool)))),
    };
    let all = given.iter().map(function).collect::<Result<Vec<_>, _>>()?;
    let choice = match choice {
        Some(Value::Object(fields)) => {
            let name = fields.get("name").cloned();
            Some(json!({ "type": "function", "function": { "name": name } }))
        }
        other => other.cloned(),
    };
    tools(&all, choice.as_ref())
}

/// The checks of a body that need no model.
#[cfg(fuzzing)]
pub fn check(body: &[u8], defaults: &rushlight_llm::GenerationOptions, vocabulary: usize) -> Result<(), Refusal> {
    let request: Request = super::body::parse(body)?;
    check_state(&request)?;
    shown_tools(request.tools.as_deref().unwrap_or_default(), request.tool_choice.as_ref())?;
    let format = request.text.unwrap_or_default().format;
    request.sampling.grammar(text_format(format.as_ref())?)?;
    output::text_json(format.as_ref())?;
    let alternatives = alternatives(request.include.as_deref().unwrap_or_default(), request.top_logprobs)?;
    request.sampling.generation(
        defaults,
        || Ok(std::collections::BTreeSet::new()),
        request.max_output_tokens,
        alternatives,
        vocabulary,
    )?;
    let input = request.input.ok_or_else(|| Refusal::invalid("there is no input"))?;
    input::messages(input, request.instructions.as_deref()).map(|_| ())
}
