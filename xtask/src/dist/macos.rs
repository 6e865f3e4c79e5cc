//! Checks the builds for macOS with LLVM's tools, because they only run there.

use std::path::Path;

use anyhow::{Result, bail};

use super::{Built, target_folder};
use crate::c::link::MACOS;
use crate::command::{command, output, run};
use crate::setup;

/// The first version that runs on Apple's processors.
pub const OLDEST: &str = "11.0";

pub fn check(built: &Built) -> Result<()> {
    println!("NOT RUN: the program and the wheels for macOS, which only run there");
    needs_the_system_alone(&built.program)?;
    needs_the_system_alone(&built.c_package.join(MACOS.shared()))?;
    for wheel in [&built.wheel].into_iter().chain(&built.own_wheels) {
        let folder = target_folder().join("packages/macos");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        run(command(setup::dist_program("python"), &["-m", "zipfile", "--extract"]).arg(wheel).arg(&folder))?;
        let library = std::fs::read_dir(folder.join("rushlight"))?.filter_map(|entry| Some(entry.ok()?.path()));
        for library in library.filter(|path| path.extension().is_some_and(|extension| extension == "so")) {
            needs_the_system_alone(&library)?;
        }
    }
    Ok(())
}

/// Fails if a program for Apple's processors has no signature, without which they do not start it, if it needs a version after [`OLDEST`],
/// or a library that does not come with the system.
fn needs_the_system_alone(file: &Path) -> Result<()> {
    let headers = output(command(setup::llvm_tool("llvm-objdump")?, &["--macho", "--private-headers"]).arg(file))?;
    let words: Vec<&str> = headers.split_whitespace().collect();
    let is_signed = words.contains(&"LC_CODE_SIGNATURE");
    if !is_signed && words.contains(&"ARM64") {
        bail!("`{}` has no signature", file.display());
    }
    let mut oldest = words.windows(2).filter(|pair| pair[0] == "minos").map(|pair| pair[1]);
    if oldest.next() != Some(OLDEST) {
        bail!("`{}` needs another version of macOS than {OLDEST}", file.display());
    }
    let names = headers.split("LC_LOAD_DYLIB").skip(1).filter_map(|load| {
        let mut words = load.split_whitespace().skip_while(|word| *word != "name");
        words.nth(1)
    });
    let names: Vec<&str> = names.collect();
    if let Some(other) = names.iter().find(|name| !name.starts_with("/usr/lib/")) {
        bail!("`{}` needs `{other}`", file.display());
    }
    let signed = if is_signed { "signed" } else { "not signed" };
    println!("{}: {signed}, for macOS {OLDEST} and later, links {}", file.display(), names.join(" "));
    Ok(())
}
