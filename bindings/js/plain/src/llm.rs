//! Language models: limits, options, steps and counts.

use rushlight_llm::{Error, Generation, Limits, Result, Session, Step, Tokenizer, Usage};
use serde_json::Value as Json;

use crate::{Plain, error};

/// The fields of a `RushlightError`.
pub fn llm_error(error: &Error) -> Plain {
    match error {
        Error::Module(error) => error::error(error),
        error => {
            let mut fields = error::own_error(error.code(), &error.to_string());
            fields.extend([
                ("expected", error.what_was_expected().into()),
                ("got", error.what_came().into()),
                ("hint", error.hint().into()),
            ]);
            Plain::Object(fields)
        }
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

/// Sets an option of an answer, which is a number. Returns false for a name that is unknown.
pub fn set_option(generation: &mut Generation, name: &str, value: f64) -> bool {
    let sampling = &mut generation.sampling;
    match name {
        "maxNewTokens" => generation.max_new_tokens = Some(value as usize),
        "temperature" => sampling.temperature = value as f32,
        "topK" => sampling.top_k = value as usize,
        "topP" => sampling.top_p = value as f32,
        "minP" => sampling.min_p = value as f32,
        "typicalP" => sampling.typical_p = value as f32,
        "repetitionPenalty" => sampling.repetition_penalty = value as f32,
        "presencePenalty" => sampling.presence_penalty = value as f32,
        "frequencyPenalty" => sampling.frequency_penalty = value as f32,
        "seed" => sampling.seed = value as u64,
        "ignoreEos" => generation.ignore_eos = value != 0.0,
        _ => return false,
    }
    true
}

/// The text and number of a token.
pub fn step(step: Step) -> Plain {
    Plain::Object(vec![("text", step.text.into()), ("token", step.token.into())])
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
