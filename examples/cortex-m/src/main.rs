//! Classifies ten handwritten digits with a program in flash, values and tensors in static memory, no allocator.
//!
//! Prints each prediction with its logits, also as bits, and what memory was used. The exit status is 0 if all ten are
//! right.
#![no_std]
#![no_main]

use cortex_m_rt::entry;
use rushlight::kernels::{conv, elementwise, linear, shape};
use rushlight::runtime::{Input, LoadOptions, Memory, OpSet, Registry, Result};
use rushlight::{Arena, Method, Program, TensorView};
use rushlight_example_cortex_m::{exit, print, print_bits, print_float, print_unsigned, stack_used};

static PROGRAM: &[u8] = rushlight::include_program!("../digits.pte");

/// Ten images of 8 x 8 pixels, as little-endian floats: the digits 0 to 9.
static IMAGES: &[u8] = rushlight::include_program!("../images/images.bin");

/// The operators that the program needs, and no others: `rushlight ops digits.pte`.
static OPS: OpSet = OpSet {
    name: "OPS",
    groups: &[&[&[
        linear::matmul::ADDMM_OUT,
        conv::convolution::CONVOLUTION_OUT,
        conv::max_pool::MAX_POOL2D_WITH_INDICES_OUT,
        shape::permute::PERMUTE_COPY_OUT,
        elementwise::activation::RELU_OUT,
    ]]],
};

static ARENA: Arena<12288> = Arena::new();

#[entry]
fn main() -> ! {
    match classify() {
        Ok(right) => {
            print("right: ");
            print_unsigned(right);
            print(" of 10\n");
            exit(right == 10)
        }
        Err(error) => {
            print("error ");
            print_unsigned(error.code as u32);
            print("\n");
            exit(false)
        }
    }
}

/// Runs the program on every image. Returns how many predictions are right.
fn classify() -> Result<u32> {
    let program = Program::parse(PROGRAM)?;
    let memory = Memory::new(ARENA.take().unwrap_or_default());
    let sets = [&OPS];
    let mut method = Method::load(&program, "forward", memory, &LoadOptions::new(Registry::new(&sets)))?;
    let mut right = 0;
    for (digit, image) in IMAGES.chunks_exact(256).enumerate() {
        let image = TensorView::new(rushlight::ScalarType::Float, &[1, 1, 8, 8], image)?;
        let outputs = method.execute(&[Input::Tensor(image)])?;
        let logits = outputs.tensor(0)?.as_slice::<f32>()?;
        let predicted = arg_max(logits);
        right += u32::from(predicted == digit);
        show(digit, predicted, logits);
    }
    let sizes = method.memory_use();
    for (name, bytes) in [
        ("method", sizes.method as u32),
        ("planned", sizes.planned as u32),
        ("temp", sizes.temp as u32),
        ("total", sizes.total as u32),
        ("stack", stack_used()),
    ] {
        print("memory ");
        print(name);
        print(" ");
        print_unsigned(bytes);
        print("\n");
    }
    Ok(right)
}

fn arg_max(logits: &[f32]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (i, logit);
        }
    }
    best.0
}

fn show(digit: usize, predicted: usize, logits: &[f32]) {
    print("digit ");
    print_unsigned(digit as u32);
    print(" predicted ");
    print_unsigned(predicted as u32);
    print(" logits");
    for &logit in logits {
        print(" ");
        print_float(logit);
    }
    print(" bits");
    for &logit in logits {
        print(" ");
        print_bits(logit);
    }
    print("\n");
}
