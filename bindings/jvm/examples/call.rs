//! The time of a call from Rust, beside which `cargo xtask bench jvm` puts that of the same call from Java.

use std::hint::black_box;
use std::time::Instant;

use rushlight::{Module, TensorView};

/// So few that the machine does nothing else in some of the rounds.
const CALLS: u32 = 1000;
const ROUNDS: usize = 5000;

fn main() -> Result<(), rushlight::Error> {
    let program = std::env::args().nth(1).unwrap_or_else(|| "tests/corpus/1.5.1/add.pte".to_owned());
    let mut module = Module::builder().threads(1).load(program)?;
    let numbers = [1.0f32; 6];
    let input = TensorView::of(&[2, 3], &numbers)?;
    let mut best = u128::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(module.forward(&[input.into(), input.into()])?);
        }
        best = best.min(start.elapsed().as_nanos() / u128::from(CALLS));
    }
    println!("{best} ns a call from Rust");
    Ok(())
}
