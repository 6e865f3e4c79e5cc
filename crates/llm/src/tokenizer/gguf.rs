//! Reads the vocabulary of a GGUF file. The result is what other readers make of the model's `tokenizer.json`, or of its
//! SentencePiece model, so that all share the code that follows.

use rushlight_checkpoint::gguf::{Metadata, Value, read_metadata};
use serde_json::{Map, Value as Json, json};

use super::bpe::{BY_RANK, BY_SCORE};
use super::gguf_pre_tokenizers::GgufPreTokenizer;
use super::piece::{Piece, PieceKind, SPACE};
use super::precompiled::CharsMap;
use super::sentencepiece::{Algorithm, Description, UNKNOWN_SURFACE, Whitespace, check_distinct};
use super::settings::damaged;
use super::special_tokens::SpecialTokens;
use crate::error::{Error, Result};

/// The tokenizer of a GGUF file.
pub(super) struct GgufVocabulary {
    pub(super) source: Source,
    pub(super) chat_template: Option<String>,
}

/// The description from which a tokenizer is built.
pub(super) enum Source {
    /// Settings like those of a `tokenizer.json`, with the tokens that begin and end texts.
    Settings(Json, SpecialTokens),
    SentencePiece(Description),
}

/// Values of `tokenizer.ggml.token_type`.
const UNKNOWN: f64 = 2.0;
const CONTROL: f64 = 3.0;
const USER_DEFINED: f64 = 4.0;

/// Maximum number of characters of a word in BERT.
const MAX_WORD: usize = 100;

/// Reads the vocabulary from `bytes`, the beginning of a file with its metadata.
///
/// # Errors
/// `Tokenizer` for a file that is damaged, has no vocabulary, or has a vocabulary of an unknown kind.
pub(super) fn read(bytes: &[u8]) -> Result<GgufVocabulary> {
    let metadata = read_metadata(bytes).map_err(|error| damaged(error.to_string()))?;
    let file = File(&metadata);
    let Some(Value::Texts(tokens)) = metadata.get("tokenizer.ggml.tokens") else {
        return Err(damaged("the GGUF file has no vocabulary"));
    };
    let kinds = file.numbers("token_type");
    let kind = |token: usize| kinds.get(token).copied().unwrap_or(1.0);
    let token =
        |key: &str| file.int(key).and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < tokens.len());
    let flag = |key: &str, default: bool| file.flag(key).unwrap_or(default);
    let (mut bos, mut eos) = (token("bos_token_id"), token("eos_token_id"));
    let unknown = || (0..tokens.len()).find(|token| kind(*token) == UNKNOWN);
    // `adds_bos` and `adds_eos` are the defaults for files without `add_bos_token` and `add_eos_token`.
    let (mut settings, [adds_bos, adds_eos]) = match file.text("model") {
        Some("gpt2") => {
            let pre_tokenizer = pre_tokenizer(&file)?;
            (byte_level(&file, pre_tokenizer)?, [pre_tokenizer.adds_bos, false])
        }
        Some("gemma4") => (gemma(&file, tokens, unknown())?, [true, false]),
        Some("llama") => (sentencepiece(&file, tokens, unknown()), [true, false]),
        Some("bert") => {
            let named = |name: &str| tokens.iter().position(|token| token == name).map(|id| id as u32);
            bos = bos.or_else(|| token("cls_token_id")).or_else(|| named("[CLS]"));
            eos = token("seperator_token_id").or(eos).or_else(|| named("[SEP]"));
            let unknown = token("unknown_token_id").map(|id| id as usize).or_else(unknown);
            let unknown = unknown.or_else(|| named("[UNK]").map(|id| id as usize));
            (word_piece(&file, tokens, unknown)?, [true, flag("add_sep_token", true)])
        }
        Some("t5") => {
            let around = [bos.filter(|_| flag("add_bos_token", false)), eos.filter(|_| flag("add_eos_token", true))];
            let description = unigram(&file, tokens, kind, [bos, eos], around)?;
            let source = Source::SentencePiece(description);
            return Ok(GgufVocabulary { source, chat_template: chat_template(&metadata) });
        }
        other => {
            return Err(Error::Tokenizer(format!(
                "the vocabulary is of the kind `{}`\n  expected  `gpt2`, `llama`, `gemma4`, `bert` or `t5`\n  help      use the model's \
                 `tokenizer.json`",
                other.unwrap_or_default()
            )));
        }
    };
    let added = tokens.iter().enumerate().filter(|(id, _)| matches!(kind(*id), UNKNOWN | CONTROL | USER_DEFINED));
    let added = added.map(
        |(id, content)| json!({ "id": id, "content": content, "special": kind(id) != USER_DEFINED, "normalized": false }),
    );
    settings["added_tokens"] = added.collect();
    if settings["model"]["vocab"].is_null() {
        let ids = tokens.iter().enumerate().map(|(id, text)| (text.clone(), id.into()));
        settings["model"]["vocab"] = Json::Object(ids.collect());
    }
    settings["post_processor"] = around(
        tokens,
        [bos.filter(|_| flag("add_bos_token", adds_bos)), eos.filter(|_| adds_eos || flag("add_eos_token", false))],
    );
    let mut special = SpecialTokens { bos, eos: Vec::new() };
    for end in [eos, token("eot_token_id"), token("eom_token_id")].into_iter().flatten() {
        if !special.eos.contains(&end) {
            special.eos.push(end);
        }
    }
    Ok(GgufVocabulary { source: Source::Settings(settings, special), chat_template: chat_template(&metadata) })
}

fn chat_template(metadata: &Metadata) -> Option<String> {
    match metadata.get("tokenizer.chat_template") {
        Some(Value::Text(template)) => Some(template.clone()),
        _ => None,
    }
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

fn pre_tokenizer(file: &File<'_>) -> Result<GgufPreTokenizer> {
    let name = file.text("pre").unwrap_or("default");
    GgufPreTokenizer::of_name(name).ok_or_else(|| {
        Error::Tokenizer(format!(
            "the pre-tokenizer `{name}` is not known\n  expected  {}\n  help      use the model's `tokenizer.json`",
            GgufPreTokenizer::names().join(", ")
        ))
    })
}

fn merges<'f>(file: &'f File<'_>) -> Result<&'f [String]> {
    match file.get("merges") {
        Some(Value::Texts(merges)) => Ok(merges),
        _ => Err(damaged("the GGUF file has no merges")),
    }
}

/// Returns the settings of a BPE over bytes, as in GPT-2.
fn byte_level(file: &File<'_>, pre_tokenizer: GgufPreTokenizer) -> Result<Json> {
    // The ids of Kimi K2's tokens are tiktoken ranks, which define the merges. Such a file may have no list of merges.
    let merges = if file.text("pre") == Some("kimi-k2") && file.get("merges").is_none() {
        json!(BY_RANK)
    } else {
        json!(merges(file)?)
    };
    Ok(json!({
        "pre_tokenizer": pre_tokenizer.settings(),
        "model": { "type": "BPE", "merges": merges, "ignore_merges": pre_tokenizer.ignores_merges },
        "decoder": { "type": "ByteLevel" },
    }))
}

/// Returns the settings of a BPE over characters with a list of merges, as in Gemma's `tokenizer.json`.
fn gemma(file: &File<'_>, tokens: &[String], unknown: Option<usize>) -> Result<Json> {
    Ok(json!({
        "normalizer": spaces(),
        "model": {
            "type": "BPE", "merges": merges(file)?, "byte_fallback": true, "fuse_unk": true,
            "unk_token": unknown.and_then(|token| tokens.get(token)),
        },
        "decoder": { "type": "Sequence", "decoders": decoders() },
    }))
}

/// Returns the normalizer that replaces spaces.
fn spaces() -> Json {
    json!({ "type": "Replace", "pattern": { "String": " " }, "content": SPACE })
}

/// Returns the decoders of a BPE over characters.
fn decoders() -> Vec<Json> {
    vec![
        json!({ "type": "Replace", "pattern": { "String": SPACE }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ]
}

/// Returns the settings of WordPiece, as in BERT. In the file, tokens that begin a word have a leading space, and others
/// have no prefix.
fn word_piece(file: &File<'_>, tokens: &[String], unknown: Option<usize>) -> Result<Json> {
    const PREFIX: &str = "##";
    let spelled = |token: &String| match token.strip_prefix(SPACE).filter(|word| !word.is_empty()) {
        Some(word) => word.to_owned(),
        None if token.starts_with('[') && token.ends_with(']') => token.clone(),
        None => format!("{PREFIX}{token}"),
    };
    let unknown = unknown.and_then(|id| tokens.get(id)).ok_or_else(|| damaged("the GGUF file has no unknown token"))?;
    let vocabulary: Map<String, Json> =
        tokens.iter().enumerate().map(|(id, token)| (spelled(token), id.into())).collect();
    if vocabulary.len() < tokens.len() {
        return Err(damaged("two tokens of the GGUF file are the same"));
    }
    let flag = |name: &str| file.flag(name).unwrap_or(true);
    Ok(json!({
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "lowercase": flag("normalizer.lowercase"), "strip_accents": flag("normalizer.strip_accents"),
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "model": {
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": PREFIX, "max_input_chars_per_word": MAX_WORD,
            "vocab": vocabulary,
        },
        "decoder": { "type": "WordPiece", "prefix": PREFIX, "cleanup": true },
    }))
}

/// Returns SentencePiece's unigram model, as in T5 and XLM-RoBERTa.
fn unigram(
    file: &File<'_>,
    tokens: &[String],
    kind: impl Fn(usize) -> f64,
    [bos, eos]: [Option<u32>; 2],
    around: [Option<u32>; 2],
) -> Result<Description> {
    let scores = file.numbers("scores");
    let mut pieces = Vec::with_capacity(tokens.len());
    for (id, text) in tokens.iter().enumerate() {
        let score = scores.get(id).copied().unwrap_or_default() as f32;
        if score.is_nan() {
            return Err(damaged(format!("the score of the token {id} is not a number")));
        }
        let kind = PieceKind::of_type(kind(id) as u64, text).unwrap_or(PieceKind::Normal);
        pieces.push(Piece { text: text.clone(), score, kind });
    }
    check_distinct(&pieces)?;
    let unknown = pieces.iter().position(|piece| piece.kind == PieceKind::Unknown);
    let chars_map: Vec<u8> =
        file.numbers("precompiled_charsmap").iter().map(|byte| (*byte as i64 & 0xff) as u8).collect();
    let flag = |name: &str, default: bool| file.flag(name).unwrap_or(default);
    Ok(Description {
        byte_fallback: pieces.iter().any(|piece| matches!(piece.kind, PieceKind::Byte(_))),
        pieces,
        algorithm: Algorithm::Unigram,
        unknown: unknown.ok_or_else(|| damaged("the GGUF file has no unknown token"))? as u32,
        unknown_surface: UNKNOWN_SURFACE.to_owned(),
        around,
        bos,
        eos,
        chars_map: if chars_map.is_empty() { None } else { Some(CharsMap::of_bytes(&chars_map)?) },
        whitespace: Whitespace {
            adds_dummy_prefix: flag("add_space_prefix", true),
            removes_extra: flag("remove_extra_whitespaces", false),
            escapes: true,
            is_suffix: false,
        },
    })
}

/// Returns the settings of a BPE over characters, as in SentencePiece: the pair whose token has the highest score is merged
/// first.
fn sentencepiece(file: &File<'_>, tokens: &[String], unknown: Option<usize>) -> Json {
    let has_prefix = file.flag("add_space_prefix").unwrap_or(true);
    let normalizers =
        if has_prefix { vec![json!({ "type": "Prepend", "prepend": SPACE }), spaces()] } else { vec![spaces()] };
    let mut decoders = decoders();
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

/// Returns a template that adds tokens before and after a text.
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
