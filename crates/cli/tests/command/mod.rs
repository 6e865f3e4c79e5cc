//! Starting the program that is tested.

use std::process::Command;

/// `rushlight`, in the emulator that runs this test if there is one: it does not hand itself on.
pub fn rushlight() -> Command {
    let program = env!("CARGO_BIN_EXE_rushlight");
    let emulator = match std::env::var("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER") {
        Ok(runner) if cfg!(all(target_arch = "aarch64", target_os = "linux")) => runner,
        _ => return Command::new(program),
    };
    let mut words = emulator.split_whitespace();
    let mut command = Command::new(words.next().expect("the emulator's name"));
    command.args(words).arg(program);
    command
}
