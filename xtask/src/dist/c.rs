//! Archives of the C library.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::bill::Bill;
use super::{Built, LICENCES, Place, Target, macos, pack};
use crate::c::link::{LINUX, Linker, MACOS, WINDOWS};
use crate::c::{self, Library};
use crate::command::{run, target_folder};
use crate::setup;

/// Returns `zig cc` as the linker of a target.
fn linker(target: &Target) -> Result<Linker> {
    let (architecture, rest) = target.zig_triple.split_once('-').context("a triple of one word")?;
    let (system, name, unwinder) = match rest.split_once('-').context("a triple of two words")? {
        ("apple", _) => (&MACOS, format!("macos.{}", macos::OLDEST), None),
        ("pc", _) => (&WINDOWS, "windows-gnu".to_owned(), Some("-lunwind")),
        (_, linux) => (&LINUX, linux.to_owned(), Some("-lunwind")),
    };
    // Without optimization zig writes the time into libraries for Windows.
    let arguments = ["-m", "ziglang", "cc", "-O2", "-target", &format!("{architecture}-{name}")];
    let arguments = arguments.map(str::to_owned).to_vec();
    Ok(Linker { program: setup::dist_program("python"), arguments, system, unwinder })
}

impl Place {
    /// The folder of the package, as `cargo xtask c-package` lays it out, and its archive.
    pub fn c_package(&self, target: &Target) -> Result<(PathBuf, PathBuf)> {
        let mut build = self.reproducible(setup::dist_program("cargo-zigbuild"))?;
        build.args(["zigbuild", "--profile", "wheel", "--locked", "--package", "rushlight-c"]);
        run(build.args(["--target", target.zig_triple, "--target-dir"]).arg(&self.build))?;
        let built = self.build.join(target.triple).join("wheel/librushlight_c.a");
        let name = format!("rushlight-c-{}-{}", env!("CARGO_PKG_VERSION"), target.name);
        let folder = self.build.join("archives").join(&name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        c::assemble(&self.source, &built, &folder, &linker(target)?)?;
        let bill = Bill::of("rushlight-c", &self.source, target.triple)?;
        fs::write(folder.join(LICENCES), bill.licences(&self.source)?)?;
        fs::write(folder.join("rushlight.cdx.json"), bill.cyclonedx()?)?;
        let archive = self.out.join(format!("{name}.{}", target.archive_extension()));
        pack(&folder, &archive)?;
        Ok((folder, archive))
    }
}

/// Checks what the shared library exports, links a program in C with each library of the package, and runs it where this machine can.
pub fn check(target: &Target, built: &Built) -> Result<()> {
    let linker = linker(target)?;
    linker.system.check_exports(&built.c_package, &setup::llvm_tool("llvm-nm")?)?;
    let folder = target_folder().join("packages/c").join(target.name);
    fs::create_dir_all(&folder)?;
    for library in [Library::Static, Library::Shared] {
        let extension = if target.is_windows() { ".exe" } else { "" };
        let program = folder.join(format!("{library:?}{extension}"));
        c::classifier(&built.c_package, &linker, library, &program)?;
        let what = format!("a program with the {library:?} C library for {}", target.name);
        match (target.run)(&program)? {
            Some(mut run) => {
                c::classifies(&mut run)?;
                println!("{what}: classifies the digits");
            }
            None => println!("NOT RUN: {what}, which links: this machine does not run it"),
        }
    }
    Ok(())
}
