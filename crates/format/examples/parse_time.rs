//! Prints how long it takes to parse, with all checks, programs of 2 and 100 additions and multiplications, and
//! those given: `cargo run --release --example parse_time [FILE...]`

use std::hint::black_box;
use std::time::Instant;

use rushlight_format::pte::{PlanModel, ProgramModel, TensorModel};
use rushlight_format::{FormatError, Program, ScalarType};

const BATCHES: usize = 4000;
/// Few enough that most batches run without another process in between.
const CALLS: u32 = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for steps in [2, 100] {
        measure(&format!("chain of {steps}"), &chain(steps)?)?;
    }
    for path in std::env::args().skip(1) {
        measure(&path, &std::fs::read(&path)?)?;
    }
    Ok(())
}

/// `x = x + y; x = x * y; …` on tensors of one element, as ExecuTorch's exporter lays it out.
fn chain(steps: usize) -> Result<Vec<u8>, FormatError> {
    let mut plan = PlanModel::new("forward");
    let tensor = TensorModel::new(ScalarType::Float, &[1]);
    let planned = plan.planned(tensor.clone());
    let mut x = plan.input(planned);
    let planned = plan.planned(tensor.clone());
    let y = plan.input(planned);
    for step in 0..steps {
        let planned = plan.planned(tensor.clone());
        let out = plan.push(planned);
        if step % 2 == 0 {
            let alpha = plan.push(1);
            plan.call("aten::add", "out", &[x, y, alpha, out, out]);
        } else {
            plan.call("aten::mul", "out", &[x, y, out, out]);
        }
        x = out;
    }
    plan.outputs.push(x);
    ProgramModel { methods: vec![plan], ..ProgramModel::new() }.to_bytes()
}

fn measure(name: &str, file: &[u8]) -> Result<(), FormatError> {
    Program::parse(file)?;
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                black_box(Program::parse(black_box(file)).is_ok());
            }
            start.elapsed().as_secs_f64() / f64::from(CALLS)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (median, best) = (times[BATCHES / 2] * 1e6, times[0] * 1e6);
    println!("{name}: {} bytes, median {median:.3} µs, best {best:.3} µs", file.len());
    Ok(())
}
