//! The runtime without operators: parse, load, execute. `cargo xtask size` builds and measures it.
//!
//! When it runs, loading fails because operators are missing. The exit status is 0 if exactly this happens.
#![no_std]
#![no_main]

use core::hint::black_box;

use cortex_m_rt::entry;
use rushlight::runtime::{Code, LoadOptions, Memory, OpSet, Registry, Result};
use rushlight::{Arena, Method, Program, ScalarType, TensorView};
use rushlight_example_cortex_m::exit;

static PROGRAM: &[u8] = rushlight::include_program!("../../digits.pte");

static OPS: OpSet = OpSet { name: "NONE", groups: &[] };

static ARENA: Arena<12288> = Arena::new();

#[entry]
fn main() -> ! {
    exit(matches!(run(), Err(error) if error.code == Code::OperatorMissing))
}

fn run() -> Result<()> {
    // Hides the empty set from the compiler, which could otherwise shrink the runtime.
    let sets = [black_box(&OPS)];
    let program = Program::parse(black_box(PROGRAM))?;
    let memory = Memory::new(ARENA.take().unwrap_or_default());
    let mut method = Method::load(&program, "forward", memory, &LoadOptions::new(Registry::new(&sets)))?;
    // Not a constant, because its size would count.
    let pixels = black_box([0; 256]);
    let image = TensorView::new(ScalarType::Float, &[1, 1, 8, 8], &pixels)?;
    let outputs = method.execute(&[image.into()])?;
    black_box(outputs.tensor(0)?.bytes());
    Ok(())
}
