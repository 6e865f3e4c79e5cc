//! The npm package `rushlight`: WebAssembly modules, their JavaScript, and what programs import.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{command, exists, root, run};
use crate::setup;

/// Instructions of WebAssembly that a module is compiled for, and flags of the compiler. Where machines have relaxed instructions,
/// LLVM must make no vectors of its own: docs/how-to/web-assembly.md says why.
const VARIANTS: &[(&str, &str)] = &[
    ("baseline", ""),
    ("simd", "-C target-feature=+simd128"),
    ("relaxed", "-C target-feature=+simd128,+relaxed-simd -C no-vectorize-loops -C no-vectorize-slp"),
];

/// The modules of the package: kind, cargo's features, and variants. Compilers only have loops that LLVM vectorizes.
const MODULES: &[(&str, &[&str], &[&str])] = &[
    ("run", &[], &["baseline", "simd", "relaxed"]),
    ("compile", &["--features", "compile"], &["baseline", "simd"]),
    ("llm", &["--features", "llm"], &["simd", "relaxed"]),
];

/// The variant that tests are run with.
const STAND_IN: &str = "baseline";

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds the package into `target/npm`, optimized, packs it and prints its sizes.
pub fn package() -> Result<()> {
    let folder = root().join("target/npm/rushlight");
    start(&folder)?;
    for (kind, features, variants) in MODULES {
        for variant in *variants {
            let module = build("npm", features, flags(variant)?)?;
            bind(&module, &folder.join("wasm"), &format!("{kind}-{variant}"))?;
        }
    }
    run(command("node", &["tools/npm_sizes.mjs"]).arg(folder.join("wasm")))?;
    run(command("npm", &["pack", "--silent", "--pack-destination", ".."]).current_dir(&folder))
}

/// Builds the package into a folder for tests: one module stands in for all. It is not optimized, and shares most of its crates with
/// that of `examples/wasm`, which the tests build too.
pub fn test_package(folder: &Path) -> Result<()> {
    start(folder)?;
    let module = build("dev", &["--features", "compile,llm"], flags(STAND_IN)?)?;
    let known = format!("run-{STAND_IN}");
    bind(&module, &folder.join("wasm"), &known)?;
    for (kind, _, variants) in MODULES {
        for name in variants.iter().map(|variant| format!("{kind}-{variant}")).filter(|name| *name != known) {
            for ending in ["js", "wasm"] {
                let file = |name: &str| folder.join("wasm").join(name).with_extension(ending);
                fs::copy(file(&known), file(&name))?;
            }
        }
    }
    Ok(())
}

/// Builds the package, and the demo page with it into `target/demo`.
pub fn package_demo() -> Result<()> {
    package()?;
    demo(&root().join("target/npm/rushlight"), &root().join("target/demo"))
}

/// Puts the demo page, its models and a built package into a folder.
pub fn demo(package: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    run(command("cp", &["-R", "examples/web/."]).arg(folder))?;
    run(command("cp", &["-R"]).arg(package).arg(folder.join("rushlight")))?;
    fs::copy(root().join("examples/cortex-m/digits.pte"), folder.join("models/digits.pte"))?;
    Ok(())
}

/// Installs what the package is built with, and copies what needs no building.
fn start(folder: &Path) -> Result<()> {
    setup::one("cross")?;
    setup::one("wasm-bindgen")?;
    if !exists("node") {
        bail!("the package is built with Node.js 20");
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder.join("wasm"))?;
    copy(&root().join("bindings/js/package"), folder)?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root().join(licence), folder.join(licence))?;
    }
    Ok(())
}

fn flags(variant: &str) -> Result<&'static str> {
    let known = VARIANTS.iter().find(|(name, _)| *name == variant);
    Ok(known.with_context(|| format!("no variant `{variant}`"))?.1)
}

fn build(profile: &str, features: &[&str], flags: &str) -> Result<PathBuf> {
    let mut build = command("cargo", &["build", "--quiet", "-p", "rushlight-js", "--target", TARGET]);
    build.args(["--profile", profile]).args(features);
    if !flags.is_empty() {
        build.env("RUSTFLAGS", flags);
    }
    run(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join(TARGET).join(if profile == "dev" { "debug" } else { profile }).join("rushlight_js.wasm"))
}

/// Writes `name.wasm`, and `name.js` with the function `bind`, which makes the JavaScript of one instance.
fn bind(module: &Path, folder: &Path, name: &str) -> Result<()> {
    let made = root().join("target/npm/bindgen");
    let mut bindgen = command(setup::tool("wasm-bindgen"), &["--target", "web", "--no-typescript"]);
    bindgen.args(["--omit-default-module-path", "--out-name", name]).arg("--out-dir").arg(&made);
    run(bindgen.arg(module))?;
    let glue = fs::read_to_string(made.join(format!("{name}.js")))?;
    fs::write(folder.join(format!("{name}.js")), of_instance(&glue)?)?;
    fs::copy(made.join(format!("{name}_bg.wasm")), folder.join(format!("{name}.wasm")))?;
    Ok(())
}

/// Makes a function of a JavaScript module that wasm-bindgen wrote: as it is, a module has one instance.
fn of_instance(glue: &str) -> Result<String> {
    const LAST: &str = "export { initSync, __wbg_init as default };";
    let Some(body) = glue.trim_end().strip_suffix(LAST) else { bail!("wasm-bindgen writes other modules than it did") };
    let mut exports = Vec::new();
    let mut function = String::from("export function bind() {\n");
    for line in body.lines() {
        let item = line.strip_prefix("export ").unwrap_or(line);
        if item.len() < line.len() {
            let name = item.split([' ', '(', '{']).nth(1).context("an export without a name")?;
            exports.push(name.to_owned());
        }
        function.push_str(item);
        function.push('\n');
    }
    function.push_str(&format!("return {{ init: __wbg_init, {} }};\n}}\n", exports.join(", ")));
    Ok(function)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
