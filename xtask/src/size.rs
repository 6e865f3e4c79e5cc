//! Code size and memory on a Cortex-M4.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::command::{command, output, root, run};
use crate::setup;

const TARGET: &str = "thumbv7em-none-eabihf";

/// Largest code and read-only data of the runtime without operators, in bytes.
const LIMIT: u32 = 21 * 1024;

/// Bytes of the features and the scores that the keywords firmware contains.
const FEATURES: u32 = 490 + 12;

/// Prints the sections of the firmware, of the same runtime without operators, and the memory that the firmware reports. Fails
/// if the runtime without operators has grown beyond its limit.
pub fn report() -> Result<()> {
    setup::one("cross")?;
    setup::one("qemu")?;
    build()?;
    let program = std::fs::metadata(example().join("digits.pte"))?.len() as u32;
    let images = std::fs::metadata(example().join("images/images.bin"))?.len() as u32;
    let keywords = std::fs::metadata(example().join("keywords/keywords.pte"))?.len() as u32;
    println!(
        "bytes for {TARGET}; rodata without the programs ({program} and {keywords}), the images ({images}) and the features"
    );
    println!("{:<28} {:>8} {:>8} {:>8} {:>8} {:>8}", "", "text", "rodata", "sum", "data", "bss");
    let runtime = show("runtime without operators", "size", program)?;
    show("digits", "digits", program + images)?;
    show("keywords", "keywords", keywords + FEATURES)?;
    for binary in ["digits", "keywords"] {
        println!("\nmemory of the {binary} firmware, in bytes");
        for line in run_firmware(binary)?.lines().filter_map(|line| line.strip_prefix("memory ")) {
            println!("{line}");
        }
    }
    if runtime > LIMIT {
        bail!("the runtime without operators takes {runtime} bytes of code and read-only data, the limit is {LIMIT}");
    }
    Ok(())
}

/// Output of the firmware `digits` or `keywords` in the emulator. Fails if a prediction is wrong.
pub fn run_firmware(binary: &str) -> Result<String> {
    build()?;
    output(command("cargo", &["run", "--quiet", "--release", "--bin", binary]).current_dir(example()))
}

fn example() -> PathBuf {
    root().join("examples/cortex-m")
}

fn build() -> Result<()> {
    run(command("cargo", &["build", "--quiet", "--release"]).current_dir(example()))
}

/// Prints one line of the table; returns text and rodata without `content`.
fn show(name: &str, binary: &str, content: u32) -> Result<u32> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| example().join("target"), PathBuf::from);
    let path = target.join(TARGET).join("release").join(binary);
    let file = std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let sections = sections(&file).with_context(|| format!("`{}` is not a 32-bit ELF file", path.display()))?;
    let size = |name: &str| sections.iter().filter(|(n, _)| n == name).map(|(_, size)| size).sum::<u32>();
    let (text, rodata) = (size(".text"), size(".rodata").saturating_sub(content));
    let sum = text + rodata;
    println!("{name:<28} {text:>8} {rodata:>8} {sum:>8} {:>8} {:>8}", size(".data"), size(".bss"));
    Ok(sum)
}

/// Names and sizes of the sections of a little-endian 32-bit ELF file.
fn sections(file: &[u8]) -> Option<Vec<(String, u32)>> {
    if !file.starts_with(b"\x7fELF\x01\x01") {
        return None;
    }
    let word = |at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(*file.get(at..)?.first_chunk()?)));
    let (table, entry, count, names) = (word(32)? as usize, half(46)?, half(48)?, half(50)?);
    let header = |index: usize| table + index * entry;
    let names = file.get(word(header(names) + 16)? as usize..)?;
    let section = |index: usize| {
        let name = names.get(word(header(index))? as usize..)?.split(|&byte| byte == 0).next()?;
        Some((String::from_utf8_lossy(name).into_owned(), word(header(index) + 20)?))
    };
    (0..count).map(section).collect()
}
