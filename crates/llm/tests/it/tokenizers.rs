//! Tokens are those of Hugging Face's `tokenizers`, of `sentencepiece` and of `tiktoken`.

use rushlight_llm::{Error, TextStream, Tokenizer};

use crate::{folder, rows};

fn all() -> Vec<(String, Tokenizer, Vec<serde_json::Value>)> {
    let folders = std::fs::read_dir(folder("llm/tokenizers")).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<_> = folders
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, Tokenizer::open(&path).unwrap(), rows(&path.join("expected.json")))
        })
        .collect();
    assert_eq!(all.len(), 11);
    all
}

#[test]
fn texts_become_the_same_tokens_and_back() {
    for (name, tokenizer, rows) in all() {
        assert!(rows.len() >= 30, "{name}");
        for row in rows {
            let text = row["text"].as_str().unwrap();
            let tokens = |key: &str| -> Vec<u32> { serde_json::from_value(row[key].clone()).unwrap() };
            assert_eq!(tokenizer.encode(text, true).unwrap(), tokens("tokens"), "{name}: {text:?}");
            assert_eq!(tokenizer.encode(text, false).unwrap(), tokens("plain"), "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&tokens("tokens"), true).unwrap(), row["decoded"], "{name}: {text:?}");
        }
    }
}

/// The number of ranks says which words a file of tiktoken has. The tests add ranks that no text has.
#[test]
fn files_of_tiktoken_are_known_by_their_number_of_ranks() {
    let trained = std::fs::read_to_string(folder("llm/tokenizers/tiktoken_llama3/tokenizer.model")).unwrap();
    let count = trained.lines().count();
    for (name, ranks, end) in [
        ("tiktoken_gpt2", 50_256, 50_256),
        ("tiktoken_cl100k", 100_256, 100_257),
        ("tiktoken_o200k", 199_998, 199_999),
        ("tiktoken_qwen", 151_643, 151_643),
    ] {
        let mut file = trained.clone();
        for rank in count..ranks {
            // 24 bits in base64, after bytes that are no UTF-8.
            let digits = [18, 12, 6, 0]
                .map(|shift| b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[rank >> shift & 63]);
            file.push_str(&format!("////{} {rank}\n", str::from_utf8(&digits).unwrap()));
        }
        let tokenizer = Tokenizer::from_bytes(file.as_bytes()).unwrap();
        assert_eq!(tokenizer.token_to_id("<|endoftext|>"), Some(end), "{name}");
        for row in rows(&folder(&format!("llm/ranks/{name}/expected.json"))) {
            let text = row["text"].as_str().unwrap();
            let tokens: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
            if !text.contains("<|im_start|>") {
                assert_eq!(tokenizer.encode(text, true).unwrap(), tokens, "{name}: {text:?}");
            }
            assert_eq!(tokenizer.decode(&tokens, true).unwrap(), row["decoded"], "{name}: {text:?}");
        }
    }
}

/// llama2.c's own files begin with the longest piece alone.
#[test]
fn original_files_of_llama2c_are_read() {
    let theirs = std::fs::read(folder("llm/tokenizers/llama2c/tokenizer.bin")).unwrap();
    let [a, b] = [&theirs[..], &theirs[12..]].map(|file| Tokenizer::from_bytes(file).unwrap());
    let text = "the model: 1/2, naïve 你好\n";
    assert_eq!(a.encode(text, true).unwrap(), b.encode(text, true).unwrap());
    assert_eq!(a.special_tokens(), b.special_tokens());
}

#[test]
fn files_of_tiktoken_that_are_no_known_encoding_are_refused() {
    let trained = std::fs::read_to_string(folder("llm/tokenizers/tiktoken_llama3/tokenizer.model")).unwrap();
    let without_a_byte: Vec<&str> = trained.lines().skip(1).collect();
    for (file, problem) in [
        (format!("{trained}YQ== 18446744073709551615\n"), "has no token and rank"),
        (format!("{trained}////AAAA 60000\n"), "60001 ranks"),
        (format!("{trained}= 50256\n"), "has no token and rank"),
        (format!("{trained}IQ== 600\n"), "the same bytes"),
        (without_a_byte.join("\n"), "255 of 256 bytes"),
    ] {
        let error = Tokenizer::from_bytes(file.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

/// As Llama's own code does, which encodes texts and puts control pieces between them.
#[test]
fn texts_between_control_pieces_are_encoded_by_themselves() {
    for name in ["model_bpe", "model_unigram", "llama2c"] {
        let tokenizer = Tokenizer::open(folder(&format!("llm/tokenizers/{name}"))).unwrap();
        let (bos, eos) = (tokenizer.special_tokens().bos.unwrap(), tokenizer.special_tokens().eos[0]);
        let [a, b] = ["[INST] hello", "the end"].map(|text| tokenizer.encode(text, false).unwrap());
        let whole = [&[bos][..], &a, &[eos, bos], &b].concat();
        assert_eq!(tokenizer.encode("<s>[INST] hello</s><s>the end", false).unwrap(), whole, "{name}");
        assert_eq!(tokenizer.decode(&[eos], false).unwrap(), "</s>");
    }
}

/// ExecuTorch's tool does not count it.
#[test]
fn files_of_llama2c_may_have_a_piece_for_padding() {
    let file = std::fs::read(folder("llm/tokenizers/llama2c/tokenizer.bin")).unwrap();
    let padding = [&(-1.0f32).to_le_bytes()[..], &5u32.to_le_bytes(), b"<pad>"].concat();
    let padded = [&file[..16], &padding, &file[16..]].concat();
    let [a, b] = [&file, &padded].map(|file| Tokenizer::from_bytes(file).unwrap());
    let text = "the model: 1/2, naïve 你好\n";
    let shifted: Vec<u32> = a.encode(text, true).unwrap().iter().map(|token| token + 1).collect();
    assert_eq!(b.encode(text, true).unwrap(), shifted);
    assert_eq!(b.token_to_id("<pad>"), Some(0));
}

#[test]
fn streams_give_the_whole_text_and_no_half_characters() {
    for (name, tokenizer, rows) in all() {
        for row in rows {
            let tokens: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
            let mut stream = TextStream::new();
            let mut text = String::new();
            for token in &tokens {
                text.push_str(&stream.push(&tokenizer, *token).unwrap());
                assert!(!text.contains('\u{fffd}'), "{name}: {text:?}");
            }
            text.push_str(&stream.finish(&tokenizer).unwrap());
            assert_eq!(text, row["decoded"], "{name}");
        }
    }
}

#[test]
fn tokens_that_end_a_character_and_begin_the_next_give_whole_ones() {
    // Two bytes a token, three a character.
    let file = serde_json::json!({
        "model": { "type": "BPE", "vocab": { "ä½": 0, "łä": 1, "½ł": 2 }, "merges": [] },
        "decoder": { "type": "ByteLevel" },
    });
    let tokenizer = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
    let mut stream = TextStream::new();
    let tokens: Vec<u32> = (0..300).map(|index| index % 3).collect();
    let pieces: Vec<String> = tokens.iter().map(|token| stream.push(&tokenizer, *token).unwrap()).collect();
    assert_eq!(pieces.concat(), "你".repeat(200));
    assert_eq!(stream.finish(&tokenizer).unwrap(), "");
}

#[test]
fn a_stream_goes_on_after_a_prompt() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/sentencepiece_bpe")).unwrap();
    let tokens = tokenizer.encode("the model is the same", false).unwrap();
    for at in 1..tokens.len() {
        let mut stream = TextStream::after(&tokenizer, &tokens[..at]).unwrap();
        let mut text = tokenizer.decode(&tokens[..at], true).unwrap();
        for token in &tokens[at..] {
            text.push_str(&stream.push(&tokenizer, *token).unwrap());
        }
        assert_eq!(text, "the model is the same");
    }
}

#[test]
fn bytes_that_never_become_a_character_come_out() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/sentencepiece_bpe")).unwrap();
    let byte = tokenizer.token_to_id("<0xFF>").unwrap();
    let mut stream = TextStream::new();
    let mut text = String::new();
    for _ in 0..100 {
        text.push_str(&stream.push(&tokenizer, byte).unwrap());
    }
    assert!(text.chars().count() > 90, "{text:?}");
    text.push_str(&stream.finish(&tokenizer).unwrap());
    assert_eq!(text.chars().filter(|char| *char == '\u{fffd}').count(), 100);
}

#[test]
fn files_that_are_no_tokenizer_are_refused() {
    for bytes in [
        &b""[..],
        b"\n",
        b"GGUF\x03",
        b"{}",
        b"{\"model\": 3}",
        b"[1]",
        b"{\"version\": \"1.0\", \"model\": {\"type\": \"BPE\"}",
    ] {
        let error = Tokenizer::from_bytes(bytes).unwrap_err();
        assert!(matches!(error, Error::Tokenizer(_)), "{error}");
    }
    let error = Tokenizer::open("/missing/tokenizer.json").unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
}

#[test]
fn a_megabyte_without_a_space_is_encoded() {
    for (name, tokenizer, _) in all() {
        let text = "ab".repeat(1 << 19);
        let tokens = tokenizer.encode(&text, false).unwrap();
        // A word of this length is unknown to WordPiece.
        assert!(name == "word_piece" || tokenizer.decode(&tokens, true).unwrap().trim() == text, "{name}");
    }
}
