//! Transcribes recordings: `cargo run --release samples/dialed.wav`.

mod wav;

use std::error::Error;

use rushlight::{Module, TensorView};

/// Samples a second that the model expects.
const RATE: u32 = {{rate}};

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        return Err("usage: cargo run --release RECORDING.wav...".into());
    }
    let mut module = Module::load("model.pte")?;
    let tokens = std::fs::read_to_string("labels.txt")?;
    let tokens: Vec<&str> = tokens.lines().collect();
    for path in &paths {
        let samples = wav::read(path, RATE)?;
        let outputs = module.forward(&[TensorView::of(&[1, samples.len()], &samples)?.into()])?;
        println!("{path}: {}", text_of(outputs[0].as_slice()?, &tokens));
    }
    Ok(())
}

/// Decodes CTC greedily: repeated tokens count once, and token 0, the blank, is removed.
fn text_of(logits: &[f32], tokens: &[&str]) -> String {
    let best = logits.chunks_exact(tokens.len()).map(|row| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0));
    let mut last = 0;
    let mut text = String::new();
    for token in best {
        if token != 0 && token != last {
            text.push_str(tokens[token]);
        }
        last = token;
    }
    text.replace('|', " ")
}
