//! Runs a keyword-spotting network in int8: no floats, one static arena, no allocator.
//!
//! The network is MLPerf Tiny's DS-CNN with random weights, which ExecuTorch's `CortexMQuantizer` quantized.
//! `rushlight compile keywords/keywords.pt2 --backend cortex-m:io=int8` compiles the program.
//!
//! The exit status is 0 if the scores of one recording equal those of ExecuTorch's compilation of the same export
//! (`tests/corpus/1.5.1-cortex-m/keywords_m4.pte`). Prints memory and the ticks of the system timer. The emulator derives the ticks
//! from executed instructions: 40 each.
#![no_std]
#![no_main]

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m_rt::entry;
use rushlight::kernels::cortex_m as int8;
use rushlight::runtime::{Input, LoadOptions, Memory, OpSet, Registry, Result};
use rushlight::{Arena, Method, Program, ScalarType, TensorView};
use rushlight_example_cortex_m::{exit, print, print_unsigned, stack_used};

static PROGRAM: &[u8] = rushlight::include_program!("../../keywords/keywords.pte");

/// 49 frames of 10 int8 features, the first call of `keywords_m4.json`.
static FEATURES: &[u8; 490] = include_bytes!("../../keywords/features.bin");

/// The recorded scores of twelve keywords.
static EXPECTED: &[u8; 12] = include_bytes!("../../keywords/scores.bin");

/// The operators that the program needs, and no others: `rushlight ops keywords.pte`.
static OPS: OpSet = OpSet {
    name: "OPS",
    groups: &[&[&[
        int8::conv::QUANTIZED_CONV2D_OUT,
        int8::conv::QUANTIZED_DEPTHWISE_CONV2D_OUT,
        int8::linear::QUANTIZED_LINEAR_OUT,
        int8::pool::QUANTIZED_AVG_POOL2D_OUT,
    ]]],
};

static ARENA: Arena<32768> = Arena::new();

#[entry]
fn main() -> ! {
    let is_right = match spot() {
        Ok(is_right) => is_right,
        Err(error) => {
            print("error ");
            print_unsigned(error.code as u32);
            print("\n");
            false
        }
    };
    exit(is_right)
}

/// Runs the network once. Returns true if all scores are as recorded.
fn spot() -> Result<bool> {
    let program = Program::parse(PROGRAM)?;
    let memory = Memory::new(ARENA.take().unwrap_or_default());
    let sets = [&OPS];
    let mut method = Method::load(&program, "forward", memory, &LoadOptions::new(Registry::new(&sets)))?;
    let features = TensorView::new(ScalarType::Char, &[1, 1, 49, 10], FEATURES)?;
    let timer = cortex_m::Peripherals::take().map(|peripherals| start(peripherals.SYST));
    let outputs = method.execute(&[Input::Tensor(features)])?;
    // The timer counts down, in 24 bits.
    let ticks = timer.map_or(0, |first| first.wrapping_sub(SYST::get_current()) & 0x00FF_FFFF);
    let is_right = outputs.tensor(0)?.bytes() == EXPECTED;
    drop(outputs);
    print(if is_right { "scores as recorded\n" } else { "other scores\n" });
    print("ticks ");
    print_unsigned(ticks);
    print("\n");
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
    Ok(is_right)
}

/// Starts the system timer, and returns its first value.
fn start(mut timer: SYST) -> u32 {
    timer.set_clock_source(SystClkSource::Core);
    timer.set_reload(0x00FF_FFFF);
    timer.clear_current();
    timer.enable_counter();
    SYST::get_current()
}
