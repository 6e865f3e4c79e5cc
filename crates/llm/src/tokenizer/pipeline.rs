//! `tokenizer.json`: how a text becomes tokens, in components.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::added_tokens::{AddedTokens, Part};
use super::decoder::Decoder;
use super::model::TokenModel;
use super::normalizer::Normalizer;
use super::post_processor::SpecialTokensTemplate;
use super::pre_tokenizer::{PreTokenizer, Words};
use super::settings::{damaged, max_len};
use crate::error::Result;

/// The components of a tokenizer. Padding and truncation, which files may have too, are for batches of training.
#[derive(Debug)]
pub(super) struct Pipeline {
    added: AddedTokens,
    normalizer: Option<Normalizer>,
    pre_tokenizer: Option<PreTokenizer>,
    model: TokenModel,
    template: SpecialTokensTemplate,
    decoder: Option<Decoder>,
}

/// Maximum number of normalizers, pre-tokenizers and decoders, those of sequences among them: each goes over every text.
const MAX_COMPONENTS: usize = 128;

/// Maximum bytes of their regular expressions together: a class of Unicode takes milliseconds to compile.
const MAX_EXPRESSIONS: usize = 1 << 14;

/// The number of components that one is made of, and bytes of their expressions.
fn size(json: &Json) -> [usize; 2] {
    let parts = ["normalizers", "pretokenizers", "decoders"].into_iter().filter_map(|name| json[name].as_array());
    let own = [1, json["pattern"]["Regex"].as_str().map_or(0, str::len)];
    parts.flatten().map(size).fold(own, |[count, bytes], [more, longer]| [count + more, bytes + longer])
}

impl Pipeline {
    pub(super) fn of(json: &Json) -> Result<Self> {
        if !json["model"].is_object() {
            return Err(damaged("the file has no `model`"));
        }
        let part = |name: &str| Some(&json[name]).filter(|json| !json.is_null());
        for component in ["normalizer", "pre_tokenizer", "decoder"].into_iter().filter_map(part) {
            let [count, bytes] = size(component);
            if count > MAX_COMPONENTS {
                return Err(damaged(format!("expected at most {MAX_COMPONENTS} components, got {count}")));
            }
            if bytes > MAX_EXPRESSIONS {
                let expected = format!("expected at most {MAX_EXPRESSIONS} bytes of regular expressions");
                return Err(damaged(format!("{expected}, got {bytes}")));
            }
        }
        let normalizer = part("normalizer").map(Normalizer::of).transpose()?;
        let added = json["added_tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut pre_tokenizer = part("pre_tokenizer").map(PreTokenizer::of).transpose()?;
        let mut model = TokenModel::of(&json["model"])?;
        if let (TokenModel::Bpe(bpe), Some(pre_tokenizer)) = (&mut model, &mut pre_tokenizer)
            && pre_tokenizer.leaves_bytes()
        {
            bpe.take_bytes();
        }
        Ok(Self {
            added: AddedTokens::of(added, normalizer.as_ref())?,
            normalizer,
            pre_tokenizer,
            model,
            template: part("post_processor").map(SpecialTokensTemplate::of).transpose()?.unwrap_or_default(),
            decoder: part("decoder").map(Decoder::of).transpose()?,
        })
    }

    pub(super) fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        for part in self.added.split(text) {
            match part {
                Part::Token(id) => tokens.push(id),
                Part::Text(range) => self.encode_text(&text[range.clone()], range.start == 0, &mut tokens)?,
            }
        }
        if add_special {
            self.template.add(&mut tokens);
        }
        Ok(tokens)
    }

    /// Adds the tokens of a text between two that are added. `is_first` if it is the beginning of all.
    fn encode_text(&self, text: &str, is_first: bool, to: &mut Vec<u32>) -> Result<()> {
        let normalized = match &self.normalizer {
            Some(normalizer) => Cow::Owned(normalizer.normalize(text, max_len(text.len()))?),
            None => Cow::Borrowed(text),
        };
        for part in self.added.split_normalized(&normalized) {
            match part {
                Part::Token(id) => to.push(id),
                Part::Text(range) => {
                    let is_first = is_first && range.start == 0;
                    let Some(pre_tokenizer) = &self.pre_tokenizer else {
                        self.model.encode([&normalized[range]].into_iter(), to)?;
                        continue;
                    };
                    let words = Words::of(normalized[range].to_owned(), is_first);
                    self.model.encode(pre_tokenizer.split(words, max_len(normalized.len()))?.iter(), to)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn decode(&self, tokens: &[u32], skip_special: bool) -> Result<String> {
        let wanted = tokens.iter().filter(|token| !(skip_special && self.added.is_special(**token)));
        let texts = wanted.filter_map(|token| self.encoded(*token));
        match &self.decoder {
            Some(decoder) => decoder.text(texts),
            None => Ok(texts.collect::<Vec<_>>().join(" ")),
        }
    }

    pub(super) fn token_bytes(&self, token: u32) -> Result<Vec<u8>> {
        let Some(text) = self.encoded(token) else { return Ok(Vec::new()) };
        if self.added.content(token) == Some(text) {
            return Ok(text.as_bytes().to_vec());
        }
        match &self.decoder {
            Some(decoder) => decoder.token_bytes(text),
            // Tokens without a decoder have spaces between them.
            None => Ok(format!(" {text}").into_bytes()),
        }
    }

    /// The text of a token that the decoder turns back.
    fn encoded(&self, token: u32) -> Option<&str> {
        self.added.encoded(token).or_else(|| self.model.vocabulary().text(token))
    }

    #[cfg(feature = "grammar")]
    pub(super) fn is_special(&self, token: u32) -> bool {
        self.added.is_special(token)
    }

    pub(super) fn id_to_token(&self, token: u32) -> Option<&str> {
        self.added.content(token).or_else(|| self.model.vocabulary().text(token))
    }

    pub(super) fn token_to_id(&self, token: &str) -> Option<u32> {
        self.added.id(token).or_else(|| self.model.vocabulary().id(token))
    }

    /// Number of tokens, added ones among them.
    pub(super) fn vocab_size(&self) -> usize {
        let vocabulary = self.model.vocabulary();
        vocabulary.len() + self.added.ids().filter(|id| vocabulary.text(*id).is_none()).count()
    }
}

/// The template of a `tokenizer_config.json`: one, or several by name, of which `default` is that of a chat.
pub(super) fn chat_template(setting: &Json) -> Option<&str> {
    match setting {
        Json::String(template) => Some(template),
        Json::Array(named) => {
            let default = named.iter().find(|template| template["name"] == "default").or_else(|| named.first())?;
            default["template"].as_str()
        }
        _ => None,
    }
}
