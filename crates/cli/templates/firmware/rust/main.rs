//! Runs a program from flash on each of some inputs, with static memory and no allocator, and prints its outputs.
#![no_std]
#![no_main]

mod model;

use board::{exit, print, print_float, print_unsigned, stack_used};
use cortex_m_rt::entry;
use rushlight::runtime::{Input, LoadOptions, Memory, Registry, Result};
use rushlight::{Method, Program, ScalarType, TensorView};

#[entry]
fn main() -> ! {
    match run() {
        Ok(()) => exit(true),
        Err(error) => {
            print("error ");
            print_unsigned(error.code as u32);
            print("\n");
            exit(false)
        }
    }
}

/// Runs the program on every input.
fn run() -> Result<()> {
    let program = Program::parse(model::PROGRAM)?;
    let memory = Memory::new(model::ARENA.take().unwrap_or_default());
    let sets = [&model::OPS];
    let mut method = Method::load(&program, "{{method}}", memory, &LoadOptions::new(Registry::new(&sets)))?;
    let size = 4 * model::SHAPE.iter().product::<usize>();
    for (index, input) in model::INPUTS.chunks_exact(size).enumerate() {
        let input = TensorView::new(ScalarType::Float, &model::SHAPE, input)?;
        let outputs = method.execute(&[Input::Tensor(input)])?;
        show(index, outputs.tensor(0)?.as_slice::<f32>()?);
    }
    print("RAM of the model ");
    print_unsigned(method.memory_use().total as u32);
    print(" bytes, stack ");
    print_unsigned(stack_used());
    print(" bytes\n");
    Ok(())
}

/// Prints an output and the place of its maximum.
fn show(index: usize, output: &[f32]) {
    print("input ");
    print_unsigned(index as u32);
    let best = (0..output.len()).max_by(|a, b| output[*a].total_cmp(&output[*b])).unwrap_or_default();
    print(": largest at ");
    print_unsigned(best as u32);
    print(" of");
    for &value in output {
        print(" ");
        print_float(value);
    }
    print("\n");
}
