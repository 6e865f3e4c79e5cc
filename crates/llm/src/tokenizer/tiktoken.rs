//! Files of tiktoken: a line for each token, with its bytes in base64 and its rank.

use serde_json::{Map, Value as Json, json};

use super::bpe::BY_RANK;
use super::byte_level;
use super::settings::damaged;
use super::special_tokens::SpecialTokens;
use super::vocabulary::MAX_GAP;
use super::words;
use crate::base64;
use crate::error::Result;

/// What a file leaves to the program: the words, and the special tokens with their distance from the number of ranks.
struct Family {
    /// Numbers of ranks, by which it is known.
    ranks: &'static [usize],
    words: &'static str,
    special: fn() -> Vec<(usize, String)>,
    /// The tokens that begin a text, or none, and end one.
    bos: Option<&'static str>,
    eos: &'static [&'static str],
}

const FAMILIES: &[Family] = &[
    Family { ranks: &[50256], words: words::GPT2, special: || named(0, &[END]), bos: None, eos: &[END] },
    Family { ranks: &[100_256], words: words::GPT4, special: cl100k, bos: None, eos: &[END] },
    Family { ranks: &[199_998], words: words::GPT4O, special: o200k, bos: None, eos: &[END] },
    Family { ranks: &[151_643], words: words::QWEN, special: qwen, bos: None, eos: &["<|im_end|>", END] },
];

/// What every other file is taken for, as ExecuTorch does.
const LLAMA3: Family = Family {
    ranks: &[128_000],
    words: words::GPT4,
    special: llama3,
    bos: Some("<|begin_of_text|>"),
    eos: &["<|end_of_text|>", "<|eot_id|>"],
};

const END: &str = "<|endoftext|>";

/// Special tokens of Llama 3, of which ExecuTorch has the same.
const LLAMA3_SPECIAL: usize = 256;
/// Further special tokens of Qwen.
const QWEN_EXTRA: usize = 205;

fn named(first: usize, names: &[&str]) -> Vec<(usize, String)> {
    names.iter().enumerate().map(|(index, name)| (first + index, (*name).to_owned())).collect()
}

fn cl100k() -> Vec<(usize, String)> {
    let fim = named(1, &[END, "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]);
    [fim, named(20, &["<|endofprompt|>"])].concat()
}

fn o200k() -> Vec<(usize, String)> {
    [named(1, &[END]), named(20, &["<|endofprompt|>"])].concat()
}

fn qwen() -> Vec<(usize, String)> {
    let first = named(0, &[END, "<|im_start|>", "<|im_end|>"]);
    let extra = (0..QWEN_EXTRA).map(|index| (first.len() + index, format!("<|extra_{index}|>")));
    first.iter().cloned().chain(extra).collect()
}

fn llama3() -> Vec<(usize, String)> {
    let first = named(
        0,
        &[
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|reserved_special_token_0|>",
            "<|reserved_special_token_1|>",
            "<|finetune_right_pad_id|>",
            "<|step_id|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eom_id|>",
            "<|eot_id|>",
            "<|python_tag|>",
            "<|image|>",
        ],
    );
    // Two of the reserved ones are among the first.
    let reserved = (first.len()..LLAMA3_SPECIAL).map(|id| (id, format!("<|reserved_special_token_{}|>", id - 10)));
    first.iter().cloned().chain(reserved).collect()
}

/// True if bytes may be such a file: they begin with base64, a space and a number.
pub(super) fn is_tiktoken(bytes: &[u8]) -> bool {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    str::from_utf8(first).is_ok_and(|line| entry(line).is_some())
}

/// The bytes and the rank of a line.
fn entry(line: &str) -> Option<(Vec<u8>, usize)> {
    let (token, rank) = line.trim_end().split_once(' ')?;
    let bytes = base64::decode(token).filter(|bytes| !bytes.is_empty())?;
    Some((bytes, rank.parse().ok()?))
}

/// The settings that a `tokenizer.json` of the same tokens has, and the special tokens.
///
/// # Errors
/// For a file that is damaged.
pub(super) fn read(bytes: &[u8]) -> Result<(Json, SpecialTokens)> {
    let text = str::from_utf8(bytes).map_err(|_| damaged("the file of tiktoken is not ASCII"))?;
    let mut ranked = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let entry = entry(line);
        ranked.push(entry.ok_or_else(|| damaged(format!("line {} has no token and rank", number + 1)))?);
    }
    let ranks = ranked.iter().map(|(_, rank)| rank + 1).max().unwrap_or(0);
    let family = FAMILIES.iter().find(|family| family.ranks.contains(&ranks)).unwrap_or(&LLAMA3);
    let special: Vec<(usize, String)> =
        (family.special)().into_iter().map(|(distance, name)| (ranks + distance, name)).collect();
    let id = |name: &str| special.iter().find(|(_, special)| special == name).map(|(id, _)| *id as u32);
    let ends =
        SpecialTokens { bos: family.bos.and_then(id), eos: family.eos.iter().filter_map(|name| id(name)).collect() };
    Ok((settings(ranked, special, ends.bos, family.words)?, ends))
}

/// The settings of tokens with their numbers, of which a lower one is merged first.
pub(super) fn settings(
    tokens: Vec<(Vec<u8>, usize)>,
    special: Vec<(usize, String)>,
    bos: Option<u32>,
    words: &str,
) -> Result<Json> {
    let count = tokens.len();
    let mut vocabulary = Map::new();
    for (bytes, id) in tokens {
        if id > count.saturating_mul(8).saturating_add(MAX_GAP) {
            return Err(damaged(format!("the token {id} is beyond all others, of which there are {count}")));
        }
        if let Some(other) = vocabulary.insert(byte_level::encode_bytes(&bytes), id.into()) {
            return Err(damaged(format!("the tokens {other} and {id} have the same bytes")));
        }
    }
    let template = bos.and_then(|bos| special.iter().find(|(id, _)| *id == bos as usize)).map(|(id, name)| {
        let single = [
            json!({ "SpecialToken": { "id": name, "type_id": 0 } }),
            json!({ "Sequence": { "id": "A", "type_id": 0 } }),
        ];
        json!({ "type": "TemplateProcessing", "single": single, "special_tokens": { name: { "ids": [id] } } })
    });
    let added: Vec<Json> = special
        .into_iter()
        .map(|(id, name)| json!({ "id": id, "content": name, "special": true, "normalized": false }))
        .collect();
    Ok(json!({
        "added_tokens": added,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": words }, "behavior": "Isolated" },
            { "type": "ByteLevel", "add_prefix_space": false, "use_regex": false },
        ] },
        "model": { "type": "BPE", "vocab": vocabulary, "merges": BY_RANK, "ignore_merges": true },
        "post_processor": template,
        "decoder": { "type": "ByteLevel" },
    }))
}
