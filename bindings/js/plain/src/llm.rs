//! Language models: limits, options, steps and counts.

use rushlight_bindings_common::ErrorParts;
use rushlight_llm::{Error, Limits, Result, Session, Step, Tokenizer, Usage};
use serde_json::Value as Json;

use crate::options::renamed;
use crate::{Plain, error};

/// The fields of a `RushlightError`.
pub fn llm_error(error: &Error) -> Plain {
    match error {
        Error::Option(error) => error::error(&renamed(error.clone()).into()),
        error => error::fields(ErrorParts::of_llm(error, error::register)),
    }
}

/// A model's metadata.
pub fn limits(limits: &Limits, tokenizer: &Tokenizer) -> Plain {
    let has_chat_template = tokenizer.chat_template().is_ok_and(|template| template.is_some());
    Plain::Object(vec![
        ("contextLength", limits.max_context_len.into()),
        ("vocabularySize", limits.vocab_size.into()),
        ("hasChatTemplate", has_chat_template.into()),
        ("prefillPart", Session::PREFILL_PART.into()),
    ])
}

/// Renders a chat template on messages, tools and variables, all of them JSON.
pub fn chat_prompt(
    tokenizer: &Tokenizer,
    messages: &str,
    tools: &str,
    variables: &str,
    answers: bool,
) -> Result<String> {
    let json = |text: &str| serde_json::from_str::<Json>(text).map_err(|error| Error::Template(error.to_string()));
    let [messages, tools, variables] = [json(messages)?, json(tools)?, json(variables)?];
    let none = serde_json::Map::new();
    let template = tokenizer.chat_template()?.ok_or_else(|| Error::Template("the model has none".to_owned()))?;
    template.render_with(&messages, &tools, answers, variables.as_object().unwrap_or(&none))
}

/// The text and number of a token, and its score if log probabilities are computed.
pub fn step(step: Step) -> Plain {
    let score = step.score.filter(|_| step.token.is_some()).map(|score| {
        let top = score
            .alternatives
            .iter()
            .map(|(token, logprob)| Plain::Object(vec![("token", (*token).into()), ("logprob", (*logprob).into())]));
        Plain::Object(vec![("logprob", score.log_probability.into()), ("top", top.collect())])
    });
    Plain::Object(vec![("text", step.text.into()), ("token", step.token.into()), ("score", score.into())])
}

/// Counts of tokens, milliseconds, and why the answer ended.
pub fn usage(usage: &Usage) -> Plain {
    let Usage { prompt_tokens, generated_tokens, prefill, decoded_tokens, decode, finish_reason, .. } = usage;
    Plain::Object(vec![
        ("promptTokens", (*prompt_tokens).into()),
        ("generatedTokens", (*generated_tokens).into()),
        ("prefillMs", (1e3 * prefill.as_secs_f64()).into()),
        ("decodedTokens", (*decoded_tokens).into()),
        ("decodeMs", (1e3 * decode.as_secs_f64()).into()),
        ("finishReason", finish_reason.name().into()),
    ])
}
