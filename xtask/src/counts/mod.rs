//! Numbers of instructions that the engine's kernels execute on AArch64 cores. An emulator counts them, exactly and whatever else the
//! machine does.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::command::{ARCH_DEPENDENT, command, exists, output, root, run, target_folder};
use crate::setup;

/// Cores, and the emulator's names of them: without an extension, with dot products, and with matrix multiplications of int8.
const CORES: [(&str, &str); 3] = [("a53", "cortex-a53"), ("a76", "cortex-a76"), ("max", "max,sve=off,sme=off")];

/// The expected counts.
const TABLE: &str = "xtask/src/counts/kernels.txt";

/// The emulator that loads plugins; the static one does not.
const QEMU: &str = "qemu-aarch64";

/// Start of the version whose plugin interface `plugin.c` declares.
const QEMU_VERSION: &str = "qemu-aarch64 version 7.";

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// A kernel's counts on each of [`CORES`].
struct Counts {
    kernel: String,
    counts: [u64; CORES.len()],
}

/// Compares the counts with [`TABLE`]: none is more than one percent above it. With `UPDATE_COUNTS`, writes the table.
pub fn check() -> Result<()> {
    if cfg!(not(target_os = "linux")) || cfg!(target_arch = "aarch64") {
        println!("NOT RUN: counts of instructions, which are those of an emulator on Linux");
        return Ok(());
    }
    setup::one("cross")?;
    setup::one("qemu")?;
    let version = output(&mut command(QEMU, &["--version"]))?;
    if !version.starts_with(QEMU_VERSION) || !exists("cc") {
        println!("NOT RUN: counts of instructions, which need a C compiler and {QEMU_VERSION}2");
        return Ok(());
    }
    let counted = count()?;
    if std::env::var_os("UPDATE_COUNTS").is_some() {
        return Ok(fs::write(root().join(TABLE), text(&counted)?)?);
    }
    let expected = parse(&fs::read_to_string(root().join(TABLE))?)?;
    compare(&counted, &expected)
}

/// Counts all kernels on all cores.
fn count() -> Result<Vec<Counts>> {
    let mut build = command("cargo", &["build", "--release", "--quiet", "--target", TARGET]);
    // With the packages of the stage `aarch64`, the engine has the same features, and is compiled once.
    build.args(ARCH_DEPENDENT.iter().flat_map(|name| ["-p", name])).args(["--example", "kernel_counts"]);
    run(build.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"))?;
    let folder = target_folder().join("counts");
    fs::create_dir_all(&folder)?;
    let plugin = folder.join("plugin.so");
    let mut compile = command("cc", &["-O2", "-w", "-shared", "-fPIC", "xtask/src/counts/plugin.c", "-o"]);
    run(compile.arg(&plugin))?;
    let mut all: Vec<Counts> = Vec::new();
    for (core, (name, cpu)) in CORES.into_iter().enumerate() {
        let counted = count_on(cpu, &plugin, &folder.join(name))?;
        for (at, (kernel, count)) in counted.into_iter().enumerate() {
            if core == 0 {
                all.push(Counts { kernel: kernel.clone(), counts: [0; CORES.len()] });
            }
            let row = all.get_mut(at).filter(|row| row.kernel == kernel).context("the kernels of two cores differ")?;
            row.counts[core] = count;
        }
    }
    Ok(all)
}

/// Counts all kernels on a core: names and numbers.
fn count_on(cpu: &str, plugin: &Path, counts: &Path) -> Result<Vec<(String, u64)>> {
    let program = target_folder().join(TARGET).join("release/examples/kernel_counts");
    let mut emulated = command(QEMU, &["-L", "/usr/aarch64-linux-gnu", "-cpu", cpu, "-plugin"]);
    emulated.arg(format!("{},out={}", plugin.display(), counts.display())).arg(program);
    let names = emulated.output().with_context(|| format!("cannot start {QEMU}"))?;
    let names = String::from_utf8(names.stderr)?;
    let counts = fs::read_to_string(counts)?;
    // Before each write: of the name, and of the end of its line.
    let counts: Vec<u64> = counts.lines().map(str::parse).collect::<Result<_, _>>()?;
    if counts.len() != 2 * names.lines().count() {
        bail!("{QEMU} -cpu {cpu} counted {} parts of this output:\n{names}", counts.len());
    }
    Ok(names.lines().map(str::to_owned).zip(counts.into_iter().skip(1).step_by(2)).collect())
}

fn compare(counted: &[Counts], expected: &[Counts]) -> Result<()> {
    let same_kernels = counted.iter().map(|row| &row.kernel).eq(expected.iter().map(|row| &row.kernel));
    if !same_kernels {
        bail!("{TABLE} has other kernels than the program: UPDATE_COUNTS=1 cargo xtask test aarch64-counts writes it");
    }
    let (mut more, mut fewer) = (String::new(), 0);
    for (counted, expected) in counted.iter().zip(expected) {
        for (core, (&now, &before)) in counted.counts.iter().zip(&expected.counts).enumerate() {
            if now * 100 > before * 101 {
                let (kernel, core) = (&counted.kernel, CORES[core].0);
                writeln!(more, "{kernel} on {core}: {now} instructions, {before} before")?;
            }
            fewer += usize::from(now * 101 < before * 100);
        }
    }
    println!("{} kernels on {} cores, {fewer} counts are lower than in {TABLE}", counted.len(), CORES.len());
    if !more.is_empty() {
        bail!("{more}UPDATE_COUNTS=1 cargo xtask test aarch64-counts writes {TABLE}");
    }
    Ok(())
}

/// The table as text: a line for each kernel, with its counts after tabs.
fn text(all: &[Counts]) -> Result<String> {
    let mut text = String::from("# kernel");
    CORES.iter().try_for_each(|(core, _)| write!(text, "\t{core}"))?;
    text.push('\n');
    for Counts { kernel, counts } in all {
        text.push_str(kernel);
        counts.iter().try_for_each(|count| write!(text, "\t{count}"))?;
        text.push('\n');
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Vec<Counts>> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let mut fields = line.split('\t');
        let kernel = fields.next().unwrap_or_default().to_owned();
        let counts: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>()?;
        let counts = counts.try_into().ok().with_context(|| format!("{TABLE}: {line}"))?;
        Ok(Counts { kernel, counts })
    })
    .collect()
}
