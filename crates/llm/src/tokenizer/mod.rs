//! Converts text to tokens and back.

mod added_tokens;
mod backtracking;
mod bpe;
mod byte_level;
mod decoder;
mod files;
mod gguf;
mod gguf_pre_tokenizers;
mod linear;
mod llama2c;
mod model;
mod normalizer;
mod pattern;
mod piece;
mod pipeline;
mod post_processor;
mod pre_tokenizer;
mod precompiled;
mod sentencepiece;
mod settings;
mod special_tokens;
mod split_patterns;
mod tekken;
mod tiktoken;
mod trie;
mod unigram;
mod vocabulary;
mod word_piece;

use std::io::Read;
use std::path::{Path, PathBuf};

use rushlight::{Module, Program};
use rushlight_format::FileKind;
use rushlight_format::tokenizer::{self as carried, HUGGING_FACE, MAX_VOCABULARY, VOCABULARIES};
use serde_json::Value as Json;

use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use files::SettingsFiles;
pub(crate) use files::regular_file;
use pipeline::Pipeline;
use sentencepiece::{Description, SentencePiece};
pub use special_tokens::SpecialTokens;

/// A tokenizer, with its special tokens and its chat template.
///
/// The format is detected from the content.
#[derive(Debug)]
pub struct Tokenizer {
    scheme: Scheme,
    special: SpecialTokens,
    chat_template: Option<String>,
}

/// The algorithm that turns texts into tokens.
#[derive(Debug)]
enum Scheme {
    /// Components, as in a `tokenizer.json`.
    Pipeline(Box<Pipeline>),
    SentencePiece(Box<SentencePiece>),
}

/// Number of bytes that identify a program.
const KIND_LEN: u64 = 8;

/// Of this many tokens, one may differ between the tokenizers of a family, such as a special token.
const SAME_FOR_ONE_DIFFERENT: usize = 16;

/// Magic bytes of a `.gguf`.
const GGUF: &[u8] = b"GGUF";

impl Tokenizer {
    /// Opens a tokenizer file or folder. Its content determines the kind:
    ///
    /// - `tokenizer.json` of Hugging Face; its special tokens and its chat template are read from the files next to it
    /// - a `.gguf`, which contains the vocabulary and the chat template
    /// - SentencePiece's model
    /// - tiktoken's ranks, whose number determines the tokenizer: GPT-2's, Codex's, Whisper's, GPT-4's, GPT-4o's,
    ///   Qwen's, Llama 4's or Llama 3's; fewer than 50,000 ranks are Llama 3's, too
    /// - Mistral's `tekken.json`
    /// - llama2.c's file, in the original format or in ExecuTorch's
    /// - a `.pte` that carries one of these
    ///
    /// # Errors
    /// `File` if a file cannot be read, `Tokenizer` if it is damaged or of an unknown kind, `Module` for a damaged
    /// program, and `NoTokenizer` for a program that carries none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = if path.is_dir() {
            let inside = VOCABULARIES.iter().map(|name| path.join(name)).find(|file| file.exists());
            inside.unwrap_or_else(|| path.join(HUGGING_FACE))
        } else {
            path.to_owned()
        };
        let mut bytes = Vec::new();
        let mut opened = regular_file(&file).map_err(|error| Error::file(&file, error))?;
        let mut read = |count| opened.by_ref().take(count).read_to_end(&mut bytes).map(|_| FileKind::of(&bytes));
        if read(KIND_LEN).map_err(|error| Error::file(&file, error))? == FileKind::Program {
            let module = Module::load(&file)?;
            return Self::of_program(module.program())?
                .ok_or_else(|| Error::NoTokenizer { model: Some(file), looked_at: Vec::new() });
        }
        // A `.gguf` begins with its vocabulary; weights follow.
        read(MAX_VOCABULARY).map_err(|error| Error::file(&file, error))?;
        let mut tokenizer = Self::from_bytes(&bytes).map_err(|error| match error {
            Error::Tokenizer(problem) => Error::Tokenizer(format!("`{}`: {problem}", file.display())),
            other => other,
        })?;
        if let Some(folder) = file.parent().filter(|_| !bytes.starts_with(GGUF)) {
            // For `llama.tokenizer.json` they are `llama.tokenizer_config.json` and so on.
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let prefix = name.strip_suffix(HUGGING_FACE).unwrap_or_default();
            tokenizer.read_settings(SettingsFiles::Folder(folder, prefix))?;
        }
        Ok(tokenizer)
    }

    /// Reads the tokenizer that a program carries. `rushlight compile` and `rushlight export-llm` put it there. `None`
    /// if the program carries none.
    ///
    /// # Errors
    /// `Tokenizer` if it is damaged, too large, or of an unknown kind.
    pub fn of_program(program: &Program<'_>) -> Result<Option<Self>> {
        let parsed = program.parsed();
        let carried = |name: &str| Some((name.to_owned(), parsed.named(&format!("{}{name}", carried::KEY_PREFIX))?));
        let Some((name, bytes)) = VOCABULARIES.iter().copied().chain([carried::GGUF]).find_map(carried) else {
            return Ok(None);
        };
        let files = SettingsFiles::Program(parsed);
        if bytes.len() as u64 > MAX_VOCABULARY {
            return Err(files.damaged(&name, &format_args!("it has {} bytes, more than {MAX_VOCABULARY}", bytes.len())));
        }
        let mut tokenizer = Self::from_bytes(bytes).map_err(|error| match error {
            Error::Tokenizer(problem) => files.damaged(&name, &problem),
            other => other,
        })?;
        tokenizer.read_settings(files)?;
        Ok(Some(tokenizer))
    }

    /// Reads the tokenizer of a model: the one that its program carries. If there is none, or it cannot be read, reads
    /// the file [`beside`](Self::beside) the program.
    ///
    /// # Errors
    /// `NoTokenizer`, with all places where it could be, and the errors of [`open`](Self::open).
    pub fn of_model(program: &Program<'_>, path: Option<&Path>) -> Result<Self> {
        match (Self::of_program(program), path.and_then(Self::beside)) {
            (Ok(Some(tokenizer)), _) => Ok(tokenizer),
            (_, Some(file)) => Self::open(file),
            (Err(error), None) => Err(error),
            (Ok(None), None) => Err(Error::NoTokenizer {
                model: path.map(Path::to_owned),
                looked_at: path.into_iter().flat_map(places_beside).collect(),
            }),
        }
    }

    /// Reads a tokenizer from the bytes of its file.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        const SHOWN: usize = 16;
        if bytes.starts_with(GGUF) {
            let gguf::GgufVocabulary { source, chat_template } = gguf::read(bytes)?;
            let tokenizer = match source {
                gguf::Source::Settings(settings, special) => Self::of_settings(&settings, special)?,
                gguf::Source::SentencePiece(description) => Self::of_description(description)?,
            };
            return Ok(Self { chat_template, ..tokenizer });
        }
        // Its file begins with a number, whose bytes may be any.
        if let Some(description) = llama2c::read(bytes)? {
            return Self::of_description(description);
        }
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
            let json: Json = serde_json::from_slice(bytes).map_err(|error| Error::Tokenizer(error.to_string()))?;
            if tekken::is_tekken(&json) {
                let (settings, special) = tekken::read(&json)?;
                return Self::of_settings(&settings, special);
            }
            return Self::of_settings(&json, SpecialTokens::default());
        }
        if tiktoken::is_tiktoken(bytes) {
            let (settings, special) = tiktoken::read(bytes)?;
            return Self::of_settings(&settings, special);
        }
        if sentencepiece::is_model_proto(bytes) {
            return Self::of_description(sentencepiece::read_model_proto(bytes)?);
        }
        let begins = String::from_utf8_lossy(bytes.get(..SHOWN).unwrap_or(bytes)).into_owned();
        Err(Error::Tokenizer(format!(
            "the file is of an unknown kind\n  expected  `tokenizer.json` of Hugging Face, a `.gguf`, a SentencePiece model, ranks of \
             tiktoken, `tekken.json`, or a file of llama2.c\n  got       bytes that begin with {begins:?}"
        )))
    }

    fn of_settings(settings: &Json, special: SpecialTokens) -> Result<Self> {
        Ok(Self { scheme: Scheme::Pipeline(Box::new(Pipeline::of(settings)?)), special, chat_template: None })
    }

    fn of_description(description: Description) -> Result<Self> {
        let sentencepiece = SentencePiece::new(description)?;
        let special = sentencepiece.special.clone();
        Ok(Self { scheme: Scheme::SentencePiece(Box::new(sentencepiece)), special, chat_template: None })
    }

    /// Finds the file of a model's tokenizer: `NAME.tokenizer.json` in the folder of `NAME.pte`, or another file there
    /// with the usual name of a tokenizer.
    pub fn beside(model: &Path) -> Option<PathBuf> {
        places_beside(model).find(|path| path.exists())
    }

    /// Returns the tokens of a text. With `add_special`, adds the tokens that the tokenizer puts around a text. Special
    /// tokens that the text spells out are recognized either way.
    ///
    /// # Errors
    /// `Tokenizer` for a text with a character that has no token, if there is no token for unknown characters.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        match &self.scheme {
            Scheme::Pipeline(pipeline) => pipeline.encode(text, add_special),
            Scheme::SentencePiece(sentencepiece) => sentencepiece.encode(text, add_special),
        }
    }

    /// Returns the text of tokens. Invalid bytes become U+FFFD, and unknown tokens are skipped.
    ///
    /// # Errors
    /// `Tokenizer` if a regular expression of the file gives up.
    pub fn decode(&self, tokens: &[u32], skip_special: bool) -> Result<String> {
        match &self.scheme {
            Scheme::Pipeline(pipeline) => pipeline.decode(tokens, skip_special),
            Scheme::SentencePiece(sentencepiece) => Ok(sentencepiece.decode(tokens, skip_special)),
        }
    }

    /// Returns the bytes that a token adds to a text that is not empty. They may be a part of a character. Empty for an
    /// unknown token.
    ///
    /// # Errors
    /// The errors of [`decode`](Self::decode).
    pub fn token_bytes(&self, token: u32) -> Result<Vec<u8>> {
        match &self.scheme {
            Scheme::Pipeline(pipeline) => pipeline.token_bytes(token),
            Scheme::SentencePiece(sentencepiece) => Ok(sentencepiece.token_bytes(token)),
        }
    }

    /// True for special tokens, which have no text.
    #[cfg(feature = "grammar")]
    pub(crate) fn is_special(&self, token: u32) -> bool {
        match &self.scheme {
            Scheme::Pipeline(pipeline) => pipeline.is_special(token),
            Scheme::SentencePiece(sentencepiece) => sentencepiece.is_special(token),
        }
    }

    /// Checks that the tokenizer of a draft model has the same tokens for a vocabulary of `count`: drafts of another tokenizer would
    /// never be accepted. A sixteenth of the tokens may differ, because models of one family have special tokens of their own.
    ///
    /// # Errors
    /// `DraftTokenizer`.
    pub fn check_draft(&self, draft: &Self, count: usize) -> Result<()> {
        let differs = |token: &u32| {
            let [a, b] = [self, draft].map(|tokenizer| tokenizer.token_bytes(*token).ok());
            a.zip(b).is_some_and(|(a, b)| a != b)
        };
        let different = (0..u32::try_from(count).unwrap_or(u32::MAX)).filter(differs).count();
        if different > count / SAME_FOR_ONE_DIFFERENT {
            return Err(Error::DraftTokenizer { different, count });
        }
        Ok(())
    }

    /// Returns the token as it is spelled in the tokenizer's file.
    pub fn id_to_token(&self, token: u32) -> Option<&str> {
        match &self.scheme {
            Scheme::Pipeline(pipeline) => pipeline.id_to_token(token),
            Scheme::SentencePiece(sentencepiece) => sentencepiece.vocabulary().text(token),
        }
    }

    /// Returns the token with this spelling.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match &self.scheme {
            Scheme::Pipeline(pipeline) => pipeline.token_to_id(token),
            Scheme::SentencePiece(sentencepiece) => sentencepiece.vocabulary().id(token),
        }
    }

    /// Number of tokens, special ones among them.
    pub fn vocab_size(&self) -> usize {
        match &self.scheme {
            Scheme::Pipeline(pipeline) => pipeline.vocab_size(),
            Scheme::SentencePiece(sentencepiece) => sentencepiece.vocabulary().len(),
        }
    }

    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// Sets the chat template.
    ///
    /// # Errors
    /// `Template` for a text that is not a template.
    pub fn set_chat_template(&mut self, template: &str) -> Result<()> {
        ChatTemplate::new(template)?;
        self.chat_template = Some(template.to_owned());
        Ok(())
    }

    /// Returns the chat template that came with the tokenizer.
    ///
    /// # Errors
    /// `Template` if it is damaged.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        let piece = |token: Option<u32>| token.and_then(|token| self.id_to_token(token)).unwrap_or_default();
        let template = self.chat_template.as_deref().map(ChatTemplate::new).transpose()?;
        let [bos, eos] = [piece(self.special.bos), piece(self.special.eos.first().copied())];
        Ok(template.map(|template| template.with_special_tokens(bos, eos)))
    }

    /// Reads special tokens and the chat template from the files of a Hugging Face folder.
    fn read_settings(&mut self, files: SettingsFiles<'_>) -> Result<()> {
        if let Some(config) = files.json(carried::TOKENIZER_CONFIG)? {
            // A name, or a token with its properties.
            let name = |key: &str| config[key].as_str().or_else(|| config[key]["content"].as_str());
            let id = |key: &str| name(key).and_then(|name| self.token_to_id(name));
            let (bos, eos) = (id("bos_token"), id("eos_token"));
            self.special.bos = bos.or(self.special.bos);
            if let Some(eos) = eos.filter(|eos| !self.special.eos.contains(eos)) {
                self.special.eos.push(eos);
            }
            self.chat_template = pipeline::chat_template(&config["chat_template"]).map(str::to_owned);
        }
        if let Some(config) = files.json(carried::GENERATION_CONFIG)? {
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
        if let Some(template) = files.text(carried::CHAT_TEMPLATE)? {
            self.chat_template = Some(template);
        }
        Ok(())
    }
}

/// Returns the possible files of a model's tokenizer, by priority.
fn places_beside(model: &Path) -> impl Iterator<Item = PathBuf> {
    std::iter::once(model.with_extension(HUGGING_FACE)).chain(VOCABULARIES.map(|name| model.with_file_name(name)))
}
