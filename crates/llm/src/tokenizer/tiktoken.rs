//! Files of tiktoken: a line for each token, with its bytes in base64 and its rank.

use rustc_hash::FxHashSet;
use serde_json::{Map, Value as Json, json};

use super::bpe::BY_RANK;
use super::byte_level;
use super::normalizer::CURRENT_NFC;
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
    /// Special tokens, of a file of this number of ranks.
    special: fn(usize) -> Vec<(usize, String)>,
    /// The tokens that begin and end a text.
    bos: Option<&'static str>,
    eos: &'static [&'static str],
}

impl Encoding {
    const fn new(ranks: usize, split_pattern: &'static str, special: fn(usize) -> Vec<(usize, String)>) -> Self {
        Self { ranks, split_pattern, normalizer: None, special, bos: None, eos: &[END] }
    }
}

/// `r50k_base` and `p50k_base`, whose token for the end is among the others; Whisper's for many languages, whose file has an empty
/// token at the end; `cl100k_base`, `o200k_base`, and those of Qwen, Llama 4 and Llama 3.
///
/// Whisper's for English has the ranks of `r50k_base`, and cannot be told from it.
const ENCODINGS: &[Encoding] = &[
    Encoding::new(50_256, split_patterns::GPT2, |_| named(50_256, &[END])),
    Encoding::new(50_281, split_patterns::GPT2, |_| named(50_256, &[END])),
    Encoding::new(50_257, split_patterns::GPT2, whisper),
    Encoding::new(100_256, split_patterns::CL100K, cl100k),
    Encoding::new(199_998, split_patterns::O200K, o200k),
    Encoding {
        normalizer: Some(CURRENT_NFC),
        eos: &["<|im_end|>", END],
        ..Encoding::new(151_643, split_patterns::QWEN, qwen)
    },
    Encoding {
        bos: Some("<|begin_of_text|>"),
        eos: &["<|end_of_text|>", "<|eom|>", "<|eot|>"],
        ..Encoding::new(200_000, split_patterns::O200K, llama4)
    },
    LLAMA3,
];

const LLAMA3: Encoding = Encoding {
    bos: Some("<|begin_of_text|>"),
    eos: &["<|end_of_text|>", "<|eot_id|>"],
    ..Encoding::new(128_000, split_patterns::LLAMA3, llama3)
};

/// Minimum ranks of the files of known models. A smaller file has the encoding of Llama 3, as in ExecuTorch.
const MIN_KNOWN: usize = 50_000;

/// Beginning of the line of an empty token.
const EMPTY: &str = "= ";

const END: &str = "<|endoftext|>";

/// Special tokens of Llama 3, of which ExecuTorch has the same.
const LLAMA3_SPECIAL: usize = 256;
/// Special tokens of Llama 4.
const LLAMA4_SPECIAL: usize = 2048;
/// Further special tokens of Qwen.
const QWEN_EXTRA: usize = 205;

/// Whisper's languages.
const LANGUAGES: &str = "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk \
    br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su";

fn named(first: usize, names: &[&str]) -> Vec<(usize, String)> {
    numbered(first, names.iter().map(|name| (*name).to_owned()))
}

fn numbered(first: usize, names: impl Iterator<Item = String>) -> Vec<(usize, String)> {
    names.enumerate().map(|(index, name)| (first + index, name)).collect()
}

fn whisper(ranks: usize) -> Vec<(usize, String)> {
    const AFTER: [&str; 6] = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"];
    const TIMESTAMPS: u32 = 1501;

    let first = ["endoftext", "startoftranscript"].into_iter().chain(LANGUAGES.split(' ')).chain(AFTER);
    let timestamps = (0..TIMESTAMPS).map(|index| format!("<|{}.{:02}|>", index / 50, index % 50 * 2));
    numbered(ranks, first.map(|name| format!("<|{name}|>")).chain(timestamps))
}

fn cl100k(ranks: usize) -> Vec<(usize, String)> {
    let fim = named(ranks + 1, &[END, "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]);
    [fim, named(ranks + 20, &["<|endofprompt|>"])].concat()
}

fn o200k(ranks: usize) -> Vec<(usize, String)> {
    [named(ranks + 1, &[END]), named(ranks + 20, &["<|endofprompt|>"])].concat()
}

fn qwen(ranks: usize) -> Vec<(usize, String)> {
    let first = [END, "<|im_start|>", "<|im_end|>"].map(str::to_owned).into_iter();
    numbered(ranks, first.chain((0..QWEN_EXTRA).map(|index| format!("<|extra_{index}|>"))))
}

fn llama4(ranks: usize) -> Vec<(usize, String)> {
    let reserved = |kind: &'static str, ids: std::ops::Range<u32>| {
        ids.map(move |id| format!("<|{kind}reserved_special_token_{id}|>"))
    };
    let all = |names: &'static [&'static str]| names.iter().map(|name| format!("<|{name}|>"));
    let names = all(&["begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix"])
        .chain(all(&["header_start", "header_end", "eom", "eot", "step"]))
        .chain(reserved("text_post_train_", 0..6))
        .chain(all(&["python_start", "python_end", "finetune_right_pad"]))
        .chain(reserved("text_post_train_", 8..69))
        .chain(all(&["image_start", "image_end"]))
        .chain(reserved("vision_", 0..2))
        .chain(all(&["tile_x_separator", "tile_y_separator"]))
        .chain(reserved("vision_", 2..6))
        .chain(all(&["image"]))
        .chain(reserved("vision_", 6..7))
        .chain(all(&["patch"]))
        .chain(reserved("vision_", 7..1048))
        .chain(reserved("reasoning_", 0..8))
        .chain(all(&["reasoning_thinking_start", "reasoning_thinking_end"]));
    let names: Vec<String> = names.collect();
    let rest = reserved("", 0..(LLAMA4_SPECIAL.saturating_sub(names.len())) as u32);
    numbered(ranks, names.into_iter().chain(rest))
}

fn llama3(ranks: usize) -> Vec<(usize, String)> {
    let first = named(
        ranks,
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
    let reserved =
        (first.len()..LLAMA3_SPECIAL).map(|id| (ranks + id, format!("<|reserved_special_token_{}|>", id - 10)));
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
    let mut ranks = 0;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        match entry(line) {
            Some((token, rank)) => {
                ranks = ranks.max(rank + 1);
                ranked.push((token, rank));
            }
            // Whisper's ends with an empty token, which no text has.
            None if line == format!("{EMPTY}{ranks}") && ranks == ranked.len() => ranks += 1,
            None => return Err(damaged(format!("line {} has no token and rank", number + 1))),
        }
    }
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
    let special = (encoding.special)(ranks);
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
