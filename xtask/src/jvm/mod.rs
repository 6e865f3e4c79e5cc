//! The library for Java and Kotlin: a jar with the native library of this machine, and its tests.

mod android;
mod corpus;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;

use crate::command::{checked, command, exists, output, root, run, target_folder};
use crate::setup::{self, venv_python};

/// The sources, in folders by their packages.
const SOURCES: &str = "bindings/jvm/java";

/// Libraries to compile the sources with; the jar does not contain them.
const ANNOTATIONS: &str = "bindings/jvm/annotations";

const TESTS: &str = "bindings/jvm/tests";

/// The version of Java's class files, which any Android takes.
const RELEASE: &[&str] = &["--release", "8", "-Xlint:all,-options,-try", "-Werror"];

/// Builds the jar and the Android library into `target/jvm`, optimized.
pub fn package() -> Result<()> {
    let folder = target_folder().join("jvm");
    run(&mut command("cargo", &["build", "--locked", "--quiet", "-p", "rushlight-jni", "--profile", "wheel"]))?;
    let jar = jar("wheel", &folder)?;
    println!("{}: {} bytes", jar.display(), fs::metadata(&jar)?.len());
    android::package("wheel", &folder)
}

/// Builds the jar that the tests use, and the book.
pub fn package_for_tests() -> Result<PathBuf> {
    // With the tests, whose dependencies have features of their own.
    run(checked("build").args(["--tests", "--lib"]))?;
    jar("checked", &test_folder())
}

fn test_folder() -> PathBuf {
    target_folder().join("jvm-test")
}

/// The sources below a folder of the repository.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "java") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}

/// Compiles the library's classes into a folder.
fn compile(classes: &Path) -> Result<()> {
    fresh(classes)?;
    let sources = [sources(Path::new(SOURCES))?, sources(Path::new(ANNOTATIONS))?];
    run(command("javac", RELEASE).arg("-d").arg(classes).args(sources.concat()))?;
    Ok(fs::remove_dir_all(classes.join("org/jetbrains"))?)
}

/// Makes `rushlight.jar` of the classes and the native library that was built with a profile of cargo.
fn jar(profile: &str, folder: &Path) -> Result<PathBuf> {
    let (system, ending) = match std::env::consts::OS {
        "macos" => ("macos", "dylib"),
        system => (system, "so"),
    };
    let content = folder.join("content");
    compile(&content)?;
    let native = content.join(format!("native/{system}-{}", std::env::consts::ARCH));
    fs::create_dir_all(&native)?;
    let library = format!("librushlight_jni.{ending}");
    let built = target_folder().join(profile).join(&library);
    fs::copy(&built, native.join(&library)).with_context(|| format!("there is no `{}`", built.display()))?;
    let about = content.join("META-INF");
    fs::create_dir_all(about.join("proguard"))?;
    fs::copy(root().join("bindings/jvm/android/proguard.txt"), about.join("proguard/rushlight.pro"))?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root().join(licence), about.join(licence))?;
    }
    let jar = folder.join("rushlight.jar");
    pack(&jar, &content, &[])?;
    Ok(jar)
}

/// Packs a folder. Files have one date, so that the same sources are the same bytes.
fn pack(archive: &Path, content: &Path, options: &[&str]) -> Result<()> {
    let mut pack = command("jar", &["--create", "--date", "2000-01-01T00:00:00Z"]);
    run(pack.args(options).arg("--file").arg(archive).arg("-C").arg(content).arg("."))
}

/// The tests, with the library of the profile `checked`, twice: as they are, and with the checks of JNI on.
pub fn test() -> Result<()> {
    if !is_there() {
        println!("NOT RUN: all of this stage, which needs a JDK");
        return Ok(());
    }
    let jar = package_for_tests()?;
    Tests::new(&jar)?.run()?;
    run(command(venv_python(), &["tools/jvm_interface.py"]).arg(&jar))?;
    kotlin(&jar)
}

/// The same with the library as it is published.
pub fn test_whole() -> Result<()> {
    if !is_there() {
        bail!("a JDK is needed: cargo xtask setup jvm");
    }
    // The command line makes programs for the tests.
    run(&mut checked("build"))?;
    package()?;
    Tests::new(&target_folder().join("jvm/rushlight.jar"))?.run()
}

/// Builds the jar with the profile `release` and compiles a class against it. Returns the class path of both, `None` without a JDK.
pub fn class_path_with(source: &str) -> Result<Option<String>> {
    if !is_there() {
        return Ok(None);
    }
    run(&mut command("cargo", &["build", "--quiet", "--release", "-p", "rushlight-jni", "--lib"]))?;
    let folder = target_folder().join("bench/jvm");
    let jar = jar("release", &folder)?;
    compile_against(&jar, &folder.join("classes"), &[source.into()]).map(Some)
}

/// Compiles classes against a jar. Returns the class path of both.
fn compile_against(jar: &Path, classes: &Path, sources: &[PathBuf]) -> Result<String> {
    fresh(classes)?;
    run(command("javac", RELEASE).arg("-cp").arg(jar).arg("-d").arg(classes).args(sources))?;
    Ok(format!("{}:{}", jar.display(), classes.display()))
}

/// Installs a JDK where that is possible.
fn is_there() -> bool {
    if let Err(error) = setup::one("jvm") {
        println!("{error:#}");
    }
    exists("javac")
}

/// The tests' classes, and the files that they read.
struct Tests {
    folder: PathBuf,
    class_path: String,
}

impl Tests {
    fn new(jar: &Path) -> Result<Self> {
        let folder = test_folder();
        let class_path = compile_against(jar, &folder.join("tests"), &sources(Path::new(TESTS))?)?;
        fs::write(folder.join("corpus.txt"), corpus::lines()?)?;
        let answer: Json = serde_json::from_slice(&fs::read(root().join("tests/decoders/llama/text.json"))?)?;
        let text = |name: &str| answer[name].as_str().context("a recorded answer has a prompt and a text");
        fs::write(folder.join("llama.txt"), format!("{}\n{}\n", text("prompt")?, text("greedy")?))?;
        let programs = folder.join("programs.pte");
        let mut compile = rushlight(&["compile"]);
        for name in ["types", "grow", "loop", "twice"] {
            compile.arg(format!("{name}={TESTS}/programs/{name}.pt2"));
        }
        run(compile.arg("-o").arg(programs))?;
        let llama = ["compile", "tests/decoders/llama", "--backend", "cpu", "--no-tokenizer", "-o"];
        run(rushlight(&llama).arg(folder.join("llama.pte")))?;
        Ok(Self { folder, class_path })
    }

    fn run(&self) -> Result<()> {
        for checks in [&[][..], &["-Xcheck:jni"]] {
            // A small heap, so that memory leaks are noticed.
            let mut tests = command("java", &["-Xmx256m", "-XX:MaxDirectMemorySize=64m"]);
            tests.args(checks).args(["-cp", &self.class_path, "org.pytorch.executorch.Tests"]);
            let printed = output(tests.arg(root()).arg(&self.folder))?;
            println!("{printed}");
            if let Some(line) = printed.lines().find(|line| line.contains("WARNING") || line.contains("FATAL")) {
                bail!("JNI is used wrongly: {line}");
            }
        }
        Ok(())
    }
}

/// The command line of the profile `checked`.
fn rushlight(arguments: &[&str]) -> std::process::Command {
    command(target_folder().join("checked/rushlight"), arguments)
}

/// A program in Kotlin, which must not need `!!` or casts.
fn kotlin(jar: &Path) -> Result<()> {
    if !exists("kotlinc") {
        println!("NOT RUN: a program in Kotlin, whose compiler is not there");
        return Ok(());
    }
    let folder = test_folder();
    let program = folder.join("program.jar");
    let mut compile =
        command("kotlinc", &["bindings/jvm/tests/kotlin/Program.kt", "-include-runtime", "-Werror", "-cp"]);
    run(compile.arg(jar).arg("-d").arg(&program))?;
    let class_path = format!("{}:{}", jar.display(), program.display());
    let mut start = command("java", &["-cp", &class_path, "ProgramKt", "examples/cortex-m/digits.pte"]);
    let printed = output(
        start.arg(folder.join("programs.pte")).arg(folder.join("llama.pte")).arg("tests/decoders/llama/tokenizer.json"),
    )?;
    // Twice the beginning of the recorded answer.
    if printed.trim() != "sFnnsFnn" {
        bail!("bindings/jvm/tests/kotlin/Program.kt printed {printed}");
    }
    is_not_served(jar)
}

/// Checks that the programs in `kotlin/not_served` do not compile, as the page on ExecuTorch states. Each must have its own error.
fn is_not_served(jar: &Path) -> Result<()> {
    let entries = fs::read_dir(root().join(TESTS).join("kotlin/not_served"))?;
    let sources = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut compile = command("kotlinc", &["-nowarn", "-cp"]);
    let compiled = compile.arg(jar).arg("-d").arg(test_folder().join("not_served")).args(&sources).output()?;
    let text = String::from_utf8_lossy(&compiled.stderr);
    for source in &sources {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        if !text.lines().any(|line| line.contains(&*name) && line.contains(": error: ")) {
            bail!("`{}` should not compile, and the compiler said: {text}", source.display());
        }
    }
    Ok(())
}
