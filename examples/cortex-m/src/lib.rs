//! Support for the firmware around the runtime: a console, exit, the stack's high-water mark. Nothing here uses
//! `core::fmt`, which alone would be larger than the runtime.
#![no_std]

use core::panic::PanicInfo;

use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use cortex_m_semihosting::hio;

/// Ends the emulator with exit status 0 or 1.
pub fn exit(success: bool) -> ! {
    debug::exit(if success { EXIT_SUCCESS } else { EXIT_FAILURE });
    loop {
        cortex_m::asm::wfi();
    }
}

/// Prints no message: panics are bugs, and their messages would be linked.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(false)
}

/// Writes to the host's standard output.
pub fn print(text: &str) {
    print_bytes(text.as_bytes());
}

fn print_bytes(bytes: &[u8]) {
    if let Ok(mut out) = hio::hstdout() {
        // Output that the host does not read is ignored.
        let _ = out.write_all(bytes);
    }
}

pub fn print_unsigned(mut value: u32) {
    let mut digits = [b'0'; 10];
    let mut len = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        len += 1;
        if value == 0 {
            break;
        }
    }
    let (_, digits) = digits.split_at(10 - len);
    print_bytes(digits);
}

/// Prints the value with three decimal places, truncated.
pub fn print_float(value: f32) {
    if value < 0.0 {
        print("-");
    }
    let thousandths = (value.abs() * 1000.0) as u32;
    print_unsigned(thousandths / 1000);
    let fraction = thousandths % 1000;
    print_bytes(&[
        b'.',
        b'0' + (fraction / 100) as u8,
        b'0' + (fraction / 10 % 10) as u8,
        b'0' + (fraction % 10) as u8,
    ]);
}

/// Prints the bits of the value in hexadecimal.
pub fn print_bits(value: f32) {
    let bits = value.to_bits();
    let mut digits = [0; 8];
    for (i, digit) in digits.iter_mut().enumerate() {
        let nibble = (bits >> (28 - 4 * i)) as u8 & 15;
        *digit = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    }
    print_bytes(&digits);
}

unsafe extern "C" {
    static mut _stack_end: u32;
    static mut _stack_start: u32;
}

/// The peak of the stack in bytes: the part that has overwritten the pattern that `cortex-m-rt` paints before `main`.
pub fn stack_used() -> u32 {
    let end = (&raw const _stack_end).addr();
    let start = (&raw const _stack_start).addr();
    let mut at = end;
    while at < start {
        // SAFETY: the linker script places aligned RAM from `_stack_end` to `_stack_start`. A volatile read of memory
        // that the running functions do not own observes bytes without making references to them.
        let word = unsafe { core::ptr::with_exposed_provenance::<u32>(at).read_volatile() };
        if word != cortex_m_rt::STACK_PAINT_VALUE {
            break;
        }
        at += 4;
    }
    (start - at) as u32
}
