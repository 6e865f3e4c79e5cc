//! The Swift package over the C library: compiled, and its checks run, where there is a compiler.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use crate::command::{command, exists, root, run};

/// The number of tokens, each of one letter, that the answer of the small Llama is compared in.
const TOKENS: usize = 16;

/// `folder` has the program of the small Llama, which the tests of C wrote.
pub fn test(folder: &Path, package: &Path) -> Result<()> {
    if !exists("swiftc") {
        println!("NOT RUN: the Swift package: there is no swiftc");
        return Ok(());
    }
    let built = folder.join("swift");
    fs::create_dir_all(&built)?;
    let binding = root().join("bindings/swift");
    let compile = || {
        let mut compile =
            command("swiftc", &["-swift-version", "6", "-wmo", "-parse-as-library", "-warnings-as-errors"]);
        compile.arg("-I").arg(binding.join("Sources/CRushlight"));
        compile.arg("-Xcc").arg(format!("-I{}", package.join("include").display()));
        compile
    };
    let object = built.join("Rushlight.o");
    let mut library = compile();
    library
        .args(["-module-name", "Rushlight", "-emit-module", "-emit-module-path"])
        .arg(built.join("Rushlight.swiftmodule"));
    library.arg("-emit-object").arg("-o").arg(&object);
    for entry in fs::read_dir(binding.join("Sources/Rushlight"))? {
        library.arg(entry?.path());
    }
    run(&mut library)?;
    let (check, lib) = (built.join("check"), package.join("lib"));
    let mut link = compile();
    link.arg("-o").arg(&check).arg("-I").arg(&built).arg(binding.join("Tests/Check.swift")).arg(&object);
    link.arg("-L").arg(&lib).args(["-Xlinker", "-rpath", "-Xlinker"]).arg(&lib);
    run(&mut link)?;
    let text: Json = serde_json::from_slice(&fs::read(root().join("tests/decoders/llama/text.json"))?)?;
    let text = |name: &str| text[name].as_str().with_context(|| format!("no `{name}` of the Llama"));
    fs::copy(root().join("examples/cortex-m/digits.pte"), built.join("digits.pte"))?;
    fs::copy(root().join("examples/cortex-m/images/images.bin"), built.join("images.bin"))?;
    let answer: String = text("greedy")?.chars().take(TOKENS).collect();
    run(command(check, &[]).arg(&built).arg(folder.join("llama.pte")).arg(text("prompt")?).arg(answer))
}
