//! Text to tokens and back.

mod added_tokens;
mod bpe;
mod byte_level;
mod decoder;
mod gguf;
mod model;
mod normalizer;
mod pattern;
mod pipeline;
mod post_processor;
mod pre_tokenizer;
mod precompiled;
mod settings;
mod unigram;
mod vocabulary;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use pipeline::Pipeline;

/// A tokenizer, with its special tokens and its chat template.
///
/// The format is detected from the content.
#[derive(Debug)]
pub struct Tokenizer {
    pipeline: Pipeline,
    special: SpecialTokens,
    chat_template: Option<String>,
}

/// Tokens with a meaning of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// The token that a text begins with.
    pub bos: Option<u32>,
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
}

/// The name of a tokenizer's file in a folder of Hugging Face.
const FILE: &str = "tokenizer.json";

/// Magic bytes of a `.gguf`.
const GGUF: &[u8] = b"GGUF";

/// Bytes that are read of a file: a `.gguf` has its vocabulary at the beginning, and weights then.
const MAX_FILE: u64 = 1 << 26;

impl Tokenizer {
    /// Opens a tokenizer: a `tokenizer.json` of Hugging Face, the folder of one, or a `.gguf`, which has the vocabulary and the chat
    /// template inside. Those of Hugging Face are in files beside, which are read too.
    ///
    /// # Errors
    /// `File` if a file cannot be read, `Tokenizer` if it is damaged or of an unknown kind.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let mut bytes = Vec::new();
        let opened = File::open(&file).and_then(|opened| opened.take(MAX_FILE).read_to_end(&mut bytes));
        opened.map_err(|error| Error::file(&file, error))?;
        let mut tokenizer = Self::from_bytes(&bytes).map_err(|error| match error {
            Error::Tokenizer(problem) => Error::Tokenizer(format!("`{}`: {problem}", file.display())),
            other => other,
        })?;
        if let Some(folder) = file.parent().filter(|_| !bytes.starts_with(GGUF)) {
            // Of `llama.tokenizer.json` they are `llama.tokenizer_config.json` and so on.
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            tokenizer.read_settings(folder, name.strip_suffix(FILE).unwrap_or_default())?;
        }
        Ok(tokenizer)
    }

    /// Reads a tokenizer from the bytes of its file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        const SHOWN: usize = 16;
        if bytes.starts_with(GGUF) {
            let gguf::Vocabulary { settings, special, chat_template } = gguf::read(bytes)?;
            return Ok(Self { pipeline: Pipeline::of(&settings)?, special, chat_template });
        }
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            let begins = String::from_utf8_lossy(bytes.get(..SHOWN).unwrap_or(bytes)).into_owned();
            return Err(Error::Tokenizer(format!(
                "the file is of an unknown kind\n  expected  a `tokenizer.json` of Hugging Face, or a `.gguf`\n  got       bytes that begin with \
                 {begins:?}"
            )));
        }
        let settings: Json = serde_json::from_slice(bytes).map_err(|error| Error::Tokenizer(error.to_string()))?;
        Ok(Self { pipeline: Pipeline::of(&settings)?, special: SpecialTokens::default(), chat_template: None })
    }

    /// The file of a model's tokenizer: `NAME.tokenizer.json` or `tokenizer.json` in the folder of `NAME.pte`.
    pub fn beside(model: &Path) -> Option<PathBuf> {
        let names = [model.with_extension(FILE), model.with_file_name(FILE)];
        names.into_iter().find(|path| path.exists())
    }

    /// The tokens of a text. With `add_special`, those that the tokenizer puts around a text are added; special tokens that the
    /// text spells are recognized either way.
    ///
    /// # Errors
    /// `Tokenizer` for a text with a character that has no token, where there is none for unknown ones.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        self.pipeline.encode(text, add_special)
    }

    /// The text of tokens. Bytes that are no character become U+FFFD, and tokens that do not exist nothing.
    ///
    /// # Errors
    /// `Tokenizer` if a regular expression of the file gives up.
    pub fn decode(&self, tokens: &[u32], skip_special: bool) -> Result<String> {
        self.pipeline.decode(tokens, skip_special)
    }

    /// The token as the tokenizer's file spells it.
    pub fn id_to_token(&self, token: u32) -> Option<&str> {
        self.pipeline.id_to_token(token)
    }

    /// The token that is spelled like this.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.pipeline.token_to_id(token)
    }

    /// Number of tokens, special ones among them.
    pub fn vocab_size(&self) -> usize {
        self.pipeline.vocab_size()
    }

    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// The chat template that came with the tokenizer.
    ///
    /// # Errors
    /// `Template` if it is damaged.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        let piece = |token: Option<u32>| token.and_then(|token| self.id_to_token(token)).unwrap_or_default();
        let template = self.chat_template.as_deref().map(ChatTemplate::new).transpose()?;
        let [bos, eos] = [piece(self.special.bos), piece(self.special.eos.first().copied())];
        Ok(template.map(|template| template.with_special_tokens(bos, eos)))
    }

    /// Reads special tokens and the chat template from the files of a folder of Hugging Face.
    fn read_settings(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let file = |name: &str| folder.join(format!("{prefix}{name}"));
        if let Some(config) = json(&file("tokenizer_config.json"))? {
            // A name, or a token with its properties.
            let name = |key: &str| config[key].as_str().or_else(|| config[key]["content"].as_str());
            self.special.bos = name("bos_token").and_then(|name| self.token_to_id(name));
            self.special.eos.extend(name("eos_token").and_then(|name| self.pipeline.token_to_id(name)));
            self.chat_template = pipeline::chat_template(&config["chat_template"]).map(str::to_owned);
        }
        if let Some(config) = json(&file("generation_config.json"))? {
            let ids = match &config["eos_token_id"] {
                Json::Array(ids) => ids.iter().filter_map(Json::as_u64).collect(),
                id => id.as_u64().into_iter().collect::<Vec<_>>(),
            };
            for id in ids.into_iter().filter_map(|id| u32::try_from(id).ok()) {
                if !self.special.eos.contains(&id) {
                    self.special.eos.push(id);
                }
            }
        }
        let file = file("chat_template.jinja");
        if file.exists() {
            let template = std::fs::read_to_string(&file).map_err(|error| Error::file(&file, error))?;
            self.chat_template = Some(template);
        }
        Ok(())
    }
}

/// The JSON of a file, if there is one.
fn json(path: &Path) -> Result<Option<Json>> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(|error| Error::file(path, error))?;
    let damaged = |error| Error::Tokenizer(format!("`{}`: {error}", path.display()));
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}
