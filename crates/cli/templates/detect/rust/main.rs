//! Finds objects in images: `cargo run --release samples/shapes.pgm`.

mod picture;

use std::error::Error;

use rushlight::{Module, TensorView, ValueInfo};

const MIN_SCORE: f32 = 0.5;
const MAX_OVERLAP: f32 = 0.5;

struct Detection {
    class: usize,
    score: f32,
    /// Left, top, right and bottom in pixels of the model's input.
    sides: [f32; 4],
}

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
        println!("{path}");
        for found in detections(outputs[0].as_slice()?, outputs[1].as_slice()?) {
            let name = names.as_ref().map_or_else(|| found.class.to_string(), |names| names[found.class].to_owned());
            let [left, top, right, bottom] = found.sides.map(f32::round);
            println!("  {name} {:.0} % at {left} {top} {right} {bottom}", 100.0 * found.score);
        }
    }
    Ok(())
}

/// Returns the detections, the best first. Of boxes of one class that overlap, the best one stays.
fn detections(boxes: &[f32], scores: &[f32]) -> Vec<Detection> {
    let count = boxes.len() / 4;
    let mut candidates: Vec<Detection> = (0..count)
        .filter_map(|index| {
            let row = &scores[scores.len() / count * index..scores.len() / count * (index + 1)];
            let (class, score) = row.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
            let sides = boxes[4 * index..4 * index + 4].try_into().ok()?;
            (score >= MIN_SCORE).then_some(Detection { class, score, sides })
        })
        .collect();
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut found: Vec<Detection> = Vec::new();
    for candidate in candidates {
        if found.iter().all(|other| other.class != candidate.class || overlap(&other.sides, &candidate.sides) <= MAX_OVERLAP) {
            found.push(candidate);
        }
    }
    found
}

/// Returns the intersection over union of two boxes.
fn overlap(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let area = |sides: &[f32; 4]| (sides[2] - sides[0]) * (sides[3] - sides[1]);
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    width * height / (area(a) + area(b) - width * height)
}
