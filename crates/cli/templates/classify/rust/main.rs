//! Classifies images: `cargo run --release samples/7.pgm`.

mod picture;

use std::error::Error;

use rushlight::{Module, TensorView, ValueInfo};

const TOP: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        return Err("usage: cargo run --release IMAGE...".into());
    }
    let mut module = Module::load("model.pte")?;
    let names = std::fs::read_to_string("labels.txt").ok();
    let names: Option<Vec<&str>> = names.as_ref().map(|names| names.lines().collect());
    let Some(ValueInfo::Tensor(input)) = module.meta("forward")?.inputs.first().cloned() else {
        return Err("the model takes no image".into());
    };
    for path in &paths {
        let pixels = picture::read(path, &input.sizes)?;
        let outputs = module.forward(&[TensorView::of(&input.sizes, &pixels)?.into()])?;
        let logits = outputs[0].as_slice::<f32>()?;
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = logits.iter().map(|logit| (logit - max).exp()).sum();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let best: Vec<String> = order
            .into_iter()
            .take(TOP)
            .map(|index| {
                let name = names.as_ref().map_or_else(|| index.to_string(), |names| names[index].to_owned());
                format!("{name} {:.1} %", 100.0 * (logits[index] - max).exp() / sum)
            })
            .collect();
        println!("{path}: {}", best.join(", "));
    }
    Ok(())
}
