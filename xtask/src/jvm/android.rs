//! The Android library, without Google's kit: `rust-lld` links against libraries that have the names of the system's and nothing else,
//! which Android's loader fills in. Unwinding of panics, which it lacks, is a crate.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{compile, fresh, pack};
use crate::command::{command, output, root, run, target_folder};

/// Targets, the names of their processors in Android, and the linker's names of their object files.
const TARGETS: &[(&str, &str, &str)] =
    &[("aarch64-linux-android", "arm64-v8a", "aarch64linux"), ("x86_64-linux-android", "x86_64", "elf_x86_64")];

/// The system's libraries.
const LIBRARIES: &[&str] = &["c", "dl", "log", "m"];

const LIBRARY: &str = "librushlight_jni.so";

/// Lays out `rushlight.aar`, with libraries that are built with a profile of cargo.
pub fn package(profile: &str, folder: &Path) -> Result<()> {
    let content = folder.join("android");
    fresh(&content)?;
    let linker = linker()?;
    for (triple, processor, format) in TARGETS {
        let built = build(profile, triple, format, &linker, &folder.join("stubs").join(triple))?;
        let libraries = content.join("jni").join(processor);
        fs::create_dir_all(&libraries)?;
        fs::copy(&built, libraries.join(LIBRARY)).with_context(|| format!("there is no `{}`", built.display()))?;
    }
    let classes = folder.join("classes");
    compile(&classes)?;
    pack(&content.join("classes.jar"), &classes, &[])?;
    for file in ["AndroidManifest.xml", "proguard.txt"] {
        fs::copy(root().join("bindings/jvm/android").join(file), content.join(file))?;
    }
    // There are no resources.
    fs::write(content.join("R.txt"), "")?;
    let library = folder.join("rushlight.aar");
    pack(&library, &content, &["--no-manifest"])?;
    println!("{}: {} bytes; NOT RUN: nobody has an Android here", library.display(), fs::metadata(&library)?.len());
    Ok(())
}

/// The linker that comes with the compiler.
fn linker() -> Result<PathBuf> {
    let sysroot = output(&mut command("rustc", &["--print", "sysroot"]))?;
    let host = output(&mut command("rustc", &["--print", "host-tuple"]))?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(host.trim()).join("bin/rust-lld"))
}

fn build(profile: &str, triple: &str, format: &str, linker: &Path, stubs: &Path) -> Result<PathBuf> {
    run(&mut command("rustup", &["target", "add", triple]))?;
    write_stubs(stubs, format, linker)?;
    let target = target_folder().join("android");
    let mut build =
        command("cargo", &["rustc", "--locked", "--quiet", "-p", "rushlight-jni", "--crate-type", "cdylib"]);
    build.args(["--profile", profile, "--target", triple, "--target-dir"]).arg(&target).arg("--");
    build.args(["-C", "linker-flavor=ld.lld", "-C", "link-arg=--no-as-needed", "-C"]);
    build.arg(format!("link-arg=-soname={LIBRARY}")).arg("-L").arg(stubs);
    for library in LIBRARIES {
        build.arg("-C").arg(format!("link-arg=-l{library}"));
    }
    let variable = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase().replace('-', "_"));
    run(build.env(variable, linker))?;
    Ok(target.join(triple).join(if profile == "dev" { "debug" } else { profile }).join(LIBRARY))
}

/// Writes libraries with the names of the system's. The compiler also asks for a static one that unwinds.
fn write_stubs(folder: &Path, format: &str, linker: &Path) -> Result<()> {
    fresh(folder)?;
    let nothing = folder.join("nothing.ld");
    fs::write(&nothing, "")?;
    for library in LIBRARIES {
        let name = format!("lib{library}.so");
        let mut link = command(linker, &["-flavor", "gnu", "-shared", "-m", format, "-soname", &name, "-o"]);
        run(link.arg(folder.join(&name)).arg(&nothing))?;
    }
    Ok(fs::write(folder.join("libunwind.a"), "!<arch>\n")?)
}
