//! `rushlight demo`.

use std::time::Instant;

use clap::Args;
use rushlight::{Module, TensorView};

use crate::failure::Failure;
use crate::output;

/// Classifies ten handwritten digits with the model that firmware runs on a Cortex-M too. Needs no files.
#[derive(Args)]
pub struct Demo {}

static MODEL: &[u8] = rushlight::include_program!("../../../examples/cortex-m/digits.pte");
/// Ten images of 8 x 8, one a digit, as little-endian f32 in 0..1.
static IMAGES: &[u8] = include_bytes!("../../../examples/cortex-m/images/images.bin");

const SIDE: usize = 8;

impl Demo {
    pub fn run() -> Result<(), Failure> {
        let start = Instant::now();
        let mut module = Module::from_bytes(MODEL)?;
        module.load_method("forward")?;
        let loaded = start.elapsed();
        output::print(&format!(
            "digits.pte: {}, {} operators, ready in {}\n",
            output::bytes(MODEL.len() as u64),
            module.meta("forward")?.operators.len(),
            output::duration(loaded)
        ));
        let images: Vec<f32> = IMAGES.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let mut right = 0;
        let mut time = std::time::Duration::ZERO;
        for (digit, image) in images.chunks_exact(SIDE * SIDE).enumerate() {
            let start = Instant::now();
            let view = TensorView::of(&[1, 1, SIDE, SIDE], image).map_err(rushlight::Error::from)?;
            let outputs = module.forward(&[view.into()])?;
            time += start.elapsed();
            let logits = outputs.first().map(|v| v.as_slice::<f32>()).transpose()?.unwrap_or_default();
            let (best, share) = softmax_top(logits);
            right += usize::from(best == digit);
            print_digit(image, digit, best, share);
        }
        let count = images.len() / (SIDE * SIDE);
        output::print(&format!(
            "{right} of {count} right, {} an image on the reference kernels",
            output::duration(time / count.max(1) as u32)
        ));
        if right == count {
            Ok(())
        } else {
            Err(Failure::Other("the model misread a digit that it should know".to_owned()))
        }
    }
}

/// The most likely class and its probability.
fn softmax_top(logits: &[f32]) -> (usize, f32) {
    let (best, most) = logits.iter().copied().enumerate().fold((0, f32::MIN), |a, b| if b.1 > a.1 { b } else { a });
    let sum: f32 = logits.iter().map(|v| (v - most).exp()).sum();
    (best, 1.0 / sum)
}

fn print_digit(image: &[f32], digit: usize, best: usize, share: f32) {
    let shades = [' ', '░', '▒', '▓', '█'];
    for (i, row) in image.chunks_exact(SIDE).enumerate() {
        let pixels: String = row.iter().flat_map(|v| [shades[((v * 4.99) as usize).min(4)]; 2]).collect();
        let text = match i {
            3 => format!("   a {digit}, read as {best}"),
            4 => format!("   {:.1} % sure", 100.0 * share),
            _ => String::new(),
        };
        output::print(format!("  {pixels}{text}").trim_end());
    }
}
