//! The vocabulary of a GGUF file gives the same tokens as the `tokenizer.json` that it was made from.

use rushlight_llm::{Error, SpecialTokens, Tokenizer};
use serde_json::Value as Json;

use crate::{folder, json, rows};

/// A file without tensors.
#[derive(Default)]
struct File {
    values: u64,
    metadata: Vec<u8>,
}

impl File {
    fn add(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.values += 1;
        for part in [&text(key), &kind.to_le_bytes()[..], value] {
            self.metadata.extend_from_slice(part);
        }
        self
    }

    fn text(self, key: &str, value: &str) -> Self {
        self.add(key, 8, &text(value))
    }

    fn list(self, key: &str, kind: u32, count: usize, elements: &[u8]) -> Self {
        let value = [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes(), elements].concat();
        self.add(key, 9, &value)
    }

    fn texts(self, key: &str, texts: &[String]) -> Self {
        let elements: Vec<u8> = texts.iter().flat_map(|each| text(each)).collect();
        self.list(key, 8, texts.len(), &elements)
    }

    fn int(self, key: &str, value: u32) -> Self {
        self.add(key, 4, &value.to_le_bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let counts = [0u64.to_le_bytes(), self.values.to_le_bytes()].concat();
        [b"GGUF", &3u32.to_le_bytes()[..], &counts, &self.metadata].concat()
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Returns the tokens and merges of a sample, and the kinds of its tokens.
fn sample(name: &str) -> (Vec<String>, Vec<String>, Vec<u8>) {
    let file = json(&folder("llm/tokenizers").join(name).join("tokenizer.json"));
    let vocabulary = file["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); vocabulary.len()];
    for (token, id) in vocabulary {
        tokens[id.as_u64().unwrap() as usize].clone_from(token);
    }
    let added: Vec<&Json> = file["added_tokens"].as_array().unwrap().iter().map(|token| &token["content"]).collect();
    let kind = |token: &String| match &**token {
        "<unk>" => 2i32,
        token if added.iter().any(|content| **content == token) => 3,
        token if token.starts_with("<0x") => 6,
        _ => 1,
    };
    let kinds = tokens.iter().flat_map(|token| kind(token).to_le_bytes()).collect();
    let pair = |merge: &Json| format!("{} {}", merge[0].as_str().unwrap(), merge[1].as_str().unwrap());
    let merges = file["model"]["merges"].as_array().unwrap().iter().map(pair).collect();
    (tokens, merges, kinds)
}

fn agree(tokenizer: &Tokenizer, name: &str) {
    for row in rows(&folder("llm/tokenizers").join(name).join("expected.json")) {
        let text = row["text"].as_str().unwrap();
        let tokens: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text, true).unwrap(), tokens, "{text:?}");
        assert_eq!(tokenizer.decode(&tokens, true).unwrap(), row["decoded"], "{text:?}");
    }
}

#[test]
fn byte_level_vocabularies_agree() {
    let (tokens, merges, kinds) = sample("byte_level_split");
    let file = File::default()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "dbrx")
        .text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
        .texts("tokenizer.ggml.tokens", &tokens)
        .texts("tokenizer.ggml.merges", &merges)
        .list("tokenizer.ggml.token_type", 5, tokens.len(), &kinds)
        .int("tokenizer.ggml.bos_token_id", 1)
        .int("tokenizer.ggml.eos_token_id", 2)
        .int("tokenizer.ggml.eot_token_id", 5)
        .add("tokenizer.ggml.add_bos_token", 7, &[1]);
    let tokenizer = Tokenizer::from_bytes(&file.bytes()).unwrap();
    agree(&tokenizer, "byte_level_split");
    assert_eq!(*tokenizer.special_tokens(), SpecialTokens { bos: Some(1), eos: vec![2, 5] });
    let template = tokenizer.chat_template().unwrap().unwrap();
    assert_eq!(template.render(&[rushlight_llm::Message::new("user", "a")], false).unwrap(), "<s>a</s>");
}

#[test]
fn sentencepiece_vocabularies_agree() {
    let (tokens, merges, kinds) = sample("sentencepiece_bpe");
    // The pair that is merged first has the highest score.
    let score = |token: &String| {
        let whole = |merge: &String| merge.split_once(' ').is_some_and(|(a, b)| format!("{a}{b}") == *token);
        merges.iter().position(whole).map_or(0.0, |rank| -(rank as f32) - 1.0)
    };
    let scores: Vec<u8> = tokens.iter().flat_map(|token| score(token).to_le_bytes()).collect();
    let file = File::default()
        .text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &tokens)
        .list("tokenizer.ggml.scores", 6, tokens.len(), &scores)
        .list("tokenizer.ggml.token_type", 5, tokens.len(), &kinds)
        .int("tokenizer.ggml.bos_token_id", 1);
    agree(&Tokenizer::from_bytes(&file.bytes()).unwrap(), "sentencepiece_bpe");
}

/// The file stores tokens within words as they are, and tokens that begin words with a space.
#[test]
fn word_piece_vocabularies_agree() {
    let file = json(&folder("llm/tokenizers/word_piece/tokenizer.json"));
    let mut tokens = vec![String::new(); file["model"]["vocab"].as_object().unwrap().len()];
    for (token, id) in file["model"]["vocab"].as_object().unwrap() {
        let is_special = file["added_tokens"].as_array().unwrap().iter().any(|added| added["content"] == **token);
        tokens[id.as_u64().unwrap() as usize] = match token.strip_prefix("##") {
            Some(rest) => rest.to_owned(),
            None if is_special => token.replace('<', "[").replace('>', "]"),
            None => format!("▁{token}"),
        };
    }
    let id = |token: &str| tokens.iter().position(|known| known == token).unwrap() as u32;
    let bytes = File::default()
        .text("tokenizer.ggml.model", "bert")
        .texts("tokenizer.ggml.tokens", &tokens)
        .int("tokenizer.ggml.unknown_token_id", id("[unk]"))
        .int("tokenizer.ggml.cls_token_id", id("[s]"))
        .add("tokenizer.ggml.add_sep_token", 7, &[0])
        .bytes();
    let tokenizer = Tokenizer::from_bytes(&bytes).unwrap();
    for row in rows(&folder("llm/tokenizers/word_piece/expected.json")) {
        let text = row["text"].as_str().unwrap();
        if !text.contains('<') {
            let tokens: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
            assert_eq!(tokenizer.encode(text, true).unwrap(), tokens, "{text:?}");
        }
    }
}

#[test]
fn unigram_vocabularies_are_read() {
    let tokens = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁ab"].map(str::to_owned);
    let with = |kinds: &[i32]| {
        let kinds: Vec<u8> = kinds.iter().flat_map(|kind| kind.to_le_bytes()).collect();
        let scores: Vec<u8> =
            [0.0, 0.0, 0.0, -2.0, -3.0, -3.5, -4.0_f32].iter().flat_map(|score| score.to_le_bytes()).collect();
        let file = File::default()
            .text("tokenizer.ggml.model", "t5")
            .texts("tokenizer.ggml.tokens", &tokens)
            .list("tokenizer.ggml.scores", 6, tokens.len(), &scores)
            .list("tokenizer.ggml.token_type", 5, tokens.len(), &kinds)
            .int("tokenizer.ggml.eos_token_id", 2);
        Tokenizer::from_bytes(&file.bytes())
    };
    let tokenizer = with(&[2, 3, 3, 1, 1, 1, 1]).unwrap();
    // The single token is more likely than the three tokens.
    assert_eq!(tokenizer.encode("ab ba", true).unwrap(), [6, 3, 5, 4, 2]);
    assert_eq!(tokenizer.decode(&[6, 3, 5, 4, 2], true).unwrap(), "ab ba");
    assert_eq!(*tokenizer.special_tokens(), SpecialTokens { bos: None, eos: vec![2] });
    let error = with(&[1, 3, 3, 1, 1, 1, 1]).unwrap_err().to_string();
    assert!(error.contains("no unknown token"), "{error}");
}

#[test]
fn other_files_are_refused() {
    let tokens = ["a".to_owned()];
    let with = |model: &str, pre: &str| {
        let file = File::default().text("tokenizer.ggml.model", model).text("tokenizer.ggml.pre", pre);
        file.texts("tokenizer.ggml.tokens", &tokens)
    };
    let whole = with("gpt2", "gpt-2").texts("tokenizer.ggml.merges", &[]).bytes();
    assert!(Tokenizer::from_bytes(&whole).is_ok());
    for (bytes, expected) in [
        (File::default().bytes(), "no vocabulary"),
        (with("rwkv", "").bytes(), "of the kind `rwkv`"),
        (with("gpt2", "new").bytes(), "pre-tokenizer `new`"),
        (with("gpt2", "gpt-2").bytes(), "no merges"),
        (whole[..whole.len() - 9].to_vec(), "ends too early"),
        (b"GGUF".to_vec(), "ends too early"),
    ] {
        let error = Tokenizer::from_bytes(&bytes).unwrap_err();
        assert!(matches!(&error, Error::Tokenizer(text) if text.contains(expected)), "{error}, not {expected}");
    }
    for len in 0..whole.len() {
        assert!(Tokenizer::from_bytes(&whole[..len]).is_err());
    }
}
