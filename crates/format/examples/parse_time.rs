//! Prints how long parsing each of the given `.pte` files takes: `parse_time FILE...`

use std::hint::black_box;
use std::time::Instant;

use rushlight_format::Program;

const BATCHES: usize = 200;
const CALLS: u32 = 500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let file = std::fs::read(&path)?;
        let program = Program::parse(&file)?;
        let steps: usize = program.methods().map(|plan| plan.num_instructions()).sum();
        let mut times: Vec<f64> = (0..BATCHES)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..CALLS {
                    black_box(Program::parse(black_box(&file)).is_ok());
                }
                start.elapsed().as_secs_f64() / f64::from(CALLS)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{path}: {} bytes, {steps} instructions, median {:.3} µs, best {:.3} µs",
            file.len(),
            times[BATCHES / 2] * 1e6,
            times[0] * 1e6
        );
    }
    Ok(())
}
