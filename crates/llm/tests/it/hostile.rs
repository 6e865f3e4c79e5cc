//! Files that somebody changed: an error, or a tokenizer that encodes and decodes, but no panic.

use rushlight_llm::{ChatTemplate, Tokenizer};

use crate::{folder, rows};

/// Changes some bytes of a text: others of it, digits, or signs that structure it.
fn mutated(text: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let mut text = text.to_vec();
    for _ in 0..=next(4) {
        let at = next(text.len());
        match next(5) {
            0 => text[at] = text[next(text.len())],
            1 => text[at] = b"0123456789"[next(10)],
            2 => text[at] = b"[]{}\",:\\"[next(8)],
            3 => {
                text.remove(at);
            }
            _ => {
                let (from, len) = (next(text.len()), next(40));
                let copied: Vec<u8> = text.iter().skip(from).take(len).copied().collect();
                text.splice(at..at, copied);
            }
        }
    }
    text
}

/// Mutations of one file.
const COUNT: u64 = 150;

#[test]
fn mutated_tokenizers_are_errors_or_work() {
    let (mut refused, mut read) = (0, 0);
    for entry in std::fs::read_dir(folder("llm/tokenizers")).unwrap() {
        let file = std::fs::read(entry.unwrap().path().join("tokenizer.json")).unwrap();
        // Settings, which decide most, are at both ends; the vocabulary is between.
        for seed in 0..COUNT {
            let Ok(tokenizer) = Tokenizer::from_bytes(&mutated(&file, seed)) else {
                refused += 1;
                continue;
            };
            read += 1;
            for text in ["Hello,  wörld 你好 👩‍👩‍👧 <s> 12", "", " "] {
                if let Ok(tokens) = tokenizer.encode(text, true) {
                    let _ = tokenizer.decode(&tokens, seed % 2 == 0);
                }
            }
            let _ = tokenizer.decode(&[0, 1, 511, 512, u32::MAX], false);
        }
    }
    assert!(refused > 100 && read > 50, "{refused} refused, {read} read");
}

#[test]
fn mutated_templates_are_errors_or_work() {
    let (mut refused, mut rendered) = (0, 0);
    for row in rows(&folder("llm/templates.json")).into_iter().step_by(6) {
        for seed in 0..COUNT {
            let source = mutated(row["template"].as_str().unwrap().as_bytes(), seed);
            let template = ChatTemplate::new(&String::from_utf8_lossy(&source));
            match template.and_then(|template| template.render_json(&row["messages"], &row["tools"], true)) {
                Ok(_) => rendered += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 50 && rendered > 50, "{refused} refused, {rendered} rendered");
}

#[test]
fn a_normalizer_cannot_grow_a_text_without_bound() {
    let content = "a".repeat(1000);
    let grow = format!(r#"{{"type": "Replace", "pattern": {{"String": "a"}}, "content": "{content}"}}"#);
    let normalizers = vec![grow; 100].join(",");
    let file = format!(
        r#"{{"model": {{"type": "WordLevel", "vocab": {{"a": 0}}, "unk_token": "a"}},
            "normalizer": {{"type": "Sequence", "normalizers": [{normalizers}]}}}}"#
    );
    let error = Tokenizer::from_bytes(file.as_bytes()).unwrap().encode("a", false).unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}
