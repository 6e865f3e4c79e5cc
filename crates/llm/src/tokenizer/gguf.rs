//! The vocabulary inside of a `.gguf`, as the settings that a `tokenizer.json` of the same model has.

use rushlight_compiler::front::llm::gguf::{Metadata, Value, read_metadata};
use serde_json::{Map, Value as Json, json};

use super::bpe::BY_SCORE;
use super::settings::damaged;
use super::special_tokens::SpecialTokens;
use super::split_patterns::{GPT2, LLAMA3, O200K, QWEN, TEKKEN};
use crate::error::{Error, Result};

/// The tokenizer of a GGUF file.
pub(super) struct GgufVocabulary {
    /// As in a `tokenizer.json`.
    pub(super) settings: Json,
    pub(super) special: SpecialTokens,
    pub(super) chat_template: Option<String>,
}

/// Names of pre-tokenizers, the expressions that split a text one after the other, and whether words that are tokens stay whole.
const PRE_TOKENIZERS: &[(&[&str], &[&str], bool)] = &[
    (&["gpt-2", "mpt", "olmo", "jais", "phi-2", "trillion"], &[GPT2], false),
    (&["llama-bpe", "llama3", "llama-v3", "lfm2", "smollm3"], &[LLAMA3], true),
    (&["dbrx", "smaug-bpe"], &[LLAMA3], false),
    (&["qwen2", "deepseek-r1-qwen", "hunyuan"], &[QWEN], false),
    (&["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"], &[r"\p{N}", GPT2], false),
    (&["gpt-4o", "llama4"], &[O200K], false),
    (&["tekken"], &[TEKKEN], true),
];

/// Kinds of tokens.
const UNKNOWN: f64 = 2.0;
const CONTROL: f64 = 3.0;
const USER_DEFINED: f64 = 4.0;

/// Reads the beginning of a file.
///
/// # Errors
/// `Tokenizer` for a file that is damaged, has no vocabulary, or one of a kind that is not known.
pub(super) fn read(bytes: &[u8]) -> Result<GgufVocabulary> {
    let metadata = read_metadata(bytes).map_err(|error| damaged(error.to_string()))?;
    let file = File(&metadata);
    let Some(Value::Texts(tokens)) = metadata.get("tokenizer.ggml.tokens") else {
        return Err(damaged("the GGUF file has no vocabulary"));
    };
    let kinds = file.numbers("token_type");
    let kind = |token: usize| kinds.get(token).copied().unwrap_or(1.0);
    let vocabulary: Map<String, Json> = tokens.iter().enumerate().map(|(id, text)| (text.clone(), id.into())).collect();
    let added = tokens.iter().enumerate().filter(|(id, _)| matches!(kind(*id), CONTROL | USER_DEFINED));
    let added = added.map(
        |(id, content)| json!({ "id": id, "content": content, "special": kind(id) == CONTROL, "normalized": false }),
    );
    let mut settings = match file.text("model") {
        Some("gpt2") => byte_level(&file)?,
        Some("llama") => {
            let unknown = (0..tokens.len()).find(|token| kind(*token) == UNKNOWN);
            sentencepiece(&file, tokens, unknown)
        }
        other => {
            return Err(Error::Tokenizer(format!(
                "the vocabulary is of the kind `{}`\n  expected  `gpt2` or `llama`\n  help      use the model's `tokenizer.json`",
                other.unwrap_or_default()
            )));
        }
    };
    settings["added_tokens"] = added.collect();
    settings["model"]["vocab"] = Json::Object(vocabulary);
    let token =
        |key: &str| file.int(key).and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < tokens.len());
    let (bos, eos) = (token("bos_token_id"), token("eos_token_id"));
    settings["post_processor"] = around(
        tokens,
        [
            bos.filter(|_| file.flag("add_bos_token").unwrap_or(file.text("model") == Some("llama"))),
            eos.filter(|_| file.flag("add_eos_token").unwrap_or(false)),
        ],
    );
    let ends = [eos, token("eot_token_id"), token("eom_token_id")].into_iter().flatten();
    let mut special = SpecialTokens { bos, eos: Vec::new() };
    for end in ends {
        if !special.eos.contains(&end) {
            special.eos.push(end);
        }
    }
    let chat_template = match metadata.get("tokenizer.chat_template") {
        Some(Value::Text(template)) => Some(template.clone()),
        _ => None,
    };
    Ok(GgufVocabulary { settings, special, chat_template })
}

/// The metadata below `tokenizer.ggml`.
struct File<'a>(&'a Metadata);

impl File<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(&format!("tokenizer.ggml.{key}"))
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        }
    }

    fn int(&self, key: &str) -> Option<i64> {
        match self.get(key) {
            Some(Value::Int(int)) => Some(*int),
            _ => None,
        }
    }

    fn numbers(&self, key: &str) -> &[f64] {
        match self.get(key) {
            Some(Value::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }
}

/// BPE of bytes, as GPT-2 has it.
fn byte_level(file: &File<'_>) -> Result<Json> {
    let name = file.text("pre").unwrap_or("gpt-2");
    let known = PRE_TOKENIZERS.iter().find(|(names, _, _)| names.contains(&name));
    let Some((_, patterns, ignore_merges)) = known else {
        return Err(Error::Tokenizer(format!(
            "the pre-tokenizer `{name}` is not known\n  expected  {}\n  help      use the model's `tokenizer.json`",
            PRE_TOKENIZERS.iter().flat_map(|(names, _, _)| *names).copied().collect::<Vec<_>>().join(", ")
        )));
    };
    let Some(Value::Texts(merges)) = file.get("merges") else { return Err(damaged("the GGUF file has no merges")) };
    let split = |pattern: &&str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated" });
    let mut steps: Vec<Json> = patterns.iter().map(split).collect();
    steps.push(json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": false }));
    Ok(json!({
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": steps },
        "model": { "type": "BPE", "merges": merges, "ignore_merges": ignore_merges },
        "decoder": { "type": "ByteLevel" },
    }))
}

/// BPE of characters, as SentencePiece has it: the pair becomes one whose token has the highest score.
fn sentencepiece(file: &File<'_>, tokens: &[String], unknown: Option<usize>) -> Json {
    let space = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let has_prefix = file.flag("add_space_prefix").unwrap_or(true);
    let normalizers =
        if has_prefix { vec![json!({ "type": "Prepend", "prepend": "▁" }), space] } else { vec![space] };
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if has_prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    json!({
        "normalizer": { "type": "Sequence", "normalizers": normalizers },
        "model": {
            "type": "BPE", "merges": BY_SCORE, "scores": file.numbers("scores"), "byte_fallback": true, "fuse_unk": true,
            "unk_token": unknown.and_then(|token| tokens.get(token)),
        },
        "decoder": { "type": "Sequence", "decoders": decoders },
    })
}

/// A template of the tokens before and after a text.
fn around(tokens: &[String], [before, after]: [Option<u32>; 2]) -> Json {
    let text = |id: u32| tokens.get(id as usize).map(String::as_str).unwrap_or_default();
    let mut single = vec![json!({ "Sequence": { "id": "A", "type_id": 0 } })];
    let mut special = Map::new();
    for (id, is_before) in [(before, true), (after, false)] {
        let Some(id) = id else { continue };
        let part = json!({ "SpecialToken": { "id": text(id), "type_id": 0 } });
        single.insert(if is_before { 0 } else { single.len() }, part);
        special.insert(text(id).to_owned(), json!({ "ids": [id] }));
    }
    json!({ "type": "TemplateProcessing", "single": single, "special_tokens": special })
}
