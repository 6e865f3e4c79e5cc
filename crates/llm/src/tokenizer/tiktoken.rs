//! Files of tiktoken: a line for each token, with its bytes in base64 and its rank.

use rustc_hash::FxHashSet;
use serde_json::{Map, Value as Json, json};

use super::bpe::BY_RANK;
use super::byte_level;
use super::settings::damaged;
use super::special_tokens::SpecialTokens;
use super::split_patterns;
use super::vocabulary::MAX_GAP;
use crate::base64;
use crate::error::Result;

/// An encoding of tiktoken: what its file does not have.
struct Encoding {
    /// The number of ranks, by which a file is known.
    ranks: usize,
    split_pattern: &'static str,
    normalizer: Option<&'static str>,
    /// Special tokens, from the number of ranks on.
    special: fn() -> Vec<(usize, String)>,
    /// The tokens that begin and end a text.
    bos: Option<&'static str>,
    eos: &'static [&'static str],
}

impl Encoding {
    const fn new(ranks: usize, split_pattern: &'static str, special: fn() -> Vec<(usize, String)>) -> Self {
        Self { ranks, split_pattern, normalizer: None, special, bos: None, eos: &[END] }
    }
}

/// `r50k_base`, `cl100k_base`, `o200k_base`, and those of Qwen and Llama 3.
const ENCODINGS: &[Encoding] = &[
    Encoding::new(50_256, split_patterns::GPT2, || named(0, &[END])),
    Encoding::new(100_256, split_patterns::CL100K, cl100k),
    Encoding::new(199_998, split_patterns::O200K, o200k),
    Encoding {
        normalizer: Some("NFC"),
        eos: &["<|im_end|>", END],
        ..Encoding::new(151_643, split_patterns::QWEN, qwen)
    },
    LLAMA3,
];

const LLAMA3: Encoding = Encoding {
    bos: Some("<|begin_of_text|>"),
    eos: &["<|end_of_text|>", "<|eot_id|>"],
    ..Encoding::new(128_000, split_patterns::LLAMA3, llama3)
};

/// Files of fewer ranks are small ones of somebody's own, which ExecuTorch takes for Llama 3's.
const MIN_KNOWN: usize = 50_000;

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
    Some((bytes, usize::try_from(rank.parse::<u32>().ok()?).ok()?))
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
    let encoding = match ENCODINGS.iter().find(|encoding| encoding.ranks == ranks) {
        Some(encoding) => encoding,
        None if ranks < MIN_KNOWN => &LLAMA3,
        None => {
            let known: Vec<String> = ENCODINGS.iter().map(|encoding| encoding.ranks.to_string()).collect();
            return Err(damaged(format!(
                "the file of tiktoken has {ranks} ranks, which is no encoding that is known\n  expected  {} ranks, or less than {MIN_KNOWN}\n  \
                 help      use the model's `tokenizer.json`",
                known.join(", ")
            )));
        }
    };
    let special: Vec<(usize, String)> =
        (encoding.special)().into_iter().map(|(distance, name)| (ranks + distance, name)).collect();
    let id = |name: &str| special.iter().find(|(_, special)| special == name).map(|(id, _)| *id as u32);
    let ends = SpecialTokens {
        bos: encoding.bos.and_then(id),
        eos: encoding.eos.iter().filter_map(|name| id(name)).collect(),
    };
    Ok((settings(ranked, special, ends.bos, encoding.split_pattern, encoding.normalizer)?, ends))
}

/// The settings of tokens with their numbers, of which a lower one is merged first.
pub(super) fn settings(
    tokens: Vec<(Vec<u8>, usize)>,
    special: Vec<(usize, String)>,
    bos: Option<u32>,
    split_pattern: &str,
    normalizer: Option<&str>,
) -> Result<Json> {
    let count = tokens.len();
    let bytes: FxHashSet<u8> = tokens.iter().filter(|(bytes, _)| bytes.len() == 1).map(|(bytes, _)| bytes[0]).collect();
    if bytes.len() < 256 {
        return Err(damaged(format!("only {} of 256 bytes are tokens", bytes.len())));
    }
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
    let mut settings = json!({
        "added_tokens": added,
        "normalizer": normalizer.map(|kind| json!({ "type": kind })),
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": split_pattern }, "behavior": "Isolated" },
            { "type": "ByteLevel", "add_prefix_space": false, "use_regex": false },
        ] },
        "model": { "type": "BPE", "merges": BY_RANK, "ignore_merges": true },
        "post_processor": template,
        "decoder": { "type": "ByteLevel" },
    });
    settings["model"]["vocab"] = Json::Object(vocabulary);
    Ok(settings)
}
