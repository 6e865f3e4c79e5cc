//! Mistral's `tekken.json`: the ranks of tiktoken after special tokens.

use serde_json::Value as Json;

use super::settings::{count, damaged, list, text};
use super::special_tokens::SpecialTokens;
use super::{split_patterns, tiktoken};
use crate::base64;
use crate::error::Result;

/// Special tokens of files that do not list theirs.
const SPECIAL: &[&str] = &[
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// Limit of the special tokens that a file may reserve.
const MAX_SPECIAL: usize = 1 << 16;

/// True if settings are those of a `tekken.json`.
pub(super) fn is_tekken(json: &Json) -> bool {
    json["vocab"].is_array() && json["config"]["default_num_special_tokens"].is_number()
}

/// The settings that a `tokenizer.json` of the same tokens has, and the special tokens.
///
/// # Errors
/// For a file that is damaged.
pub(super) fn read(json: &Json) -> Result<(Json, SpecialTokens)> {
    let config = &json["config"];
    let reserved = count(config, "default_num_special_tokens")?;
    let size = count(config, "default_vocab_size")?;
    if reserved > MAX_SPECIAL {
        return Err(damaged(format!("`default_num_special_tokens` is {reserved}, more than {MAX_SPECIAL}")));
    }
    let mut names: Vec<String> = (0..reserved).map(|id| format!("<SPECIAL_{id}>")).collect();
    match json["special_tokens"].as_array() {
        Some(listed) => {
            for token in listed {
                let rank = count(token, "rank")?;
                let name = names.get_mut(rank).ok_or_else(|| damaged(format!("there is no special token {rank}")))?;
                text(token, "token_str")?.clone_into(name);
            }
        }
        None => names.iter_mut().zip(SPECIAL).for_each(|(name, known)| (*known).clone_into(name)),
    }
    let wanted = size.checked_sub(reserved).ok_or_else(|| damaged("there are more special tokens than tokens"))?;
    let mut tokens = Vec::new();
    for entry in list(json, "vocab")?.iter().take(wanted) {
        let rank = count(entry, "rank")?;
        let bytes = base64::decode(text(entry, "token_bytes")?).filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or_else(|| damaged(format!("the token {rank} is not base64")))?;
        let id = rank.checked_add(reserved).ok_or_else(|| damaged(format!("the token {rank} is beyond all others")))?;
        tokens.push((bytes, id));
    }
    let id = |name: &str| names.iter().position(|known| known == name).map(|id| id as u32);
    let special = SpecialTokens { bos: id("<s>"), eos: id("</s>").into_iter().collect() };
    let pattern = config["pattern"].as_str().unwrap_or(split_patterns::TEKKEN);
    let names = names.into_iter().enumerate().collect();
    Ok((tiktoken::settings(tokens, names, special.bos, pattern, None)?, special))
}
