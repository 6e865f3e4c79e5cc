//! The public API of the library crates, item by item: `docs/api` keeps what a change of it must show.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use public_api::Builder;

use crate::command::{command, root, run, target_folder};

/// The crates that are listed, with the features that the workspace turns on.
pub const LISTED: &[&str] = &[
    "rushlight",
    "rushlight-checkpoint",
    "rushlight-compiler",
    "rushlight-decoders",
    "rushlight-format",
    "rushlight-graph",
    "rushlight-llm",
    "rushlight-runtime",
];

/// Writes the listings.
pub fn write() -> Result<()> {
    let folder = document()?;
    for name in LISTED {
        let path = path(name);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(&path, listing(&folder, name)?)?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Fails if a listing is not what the crate has, or if rustdoc warns.
pub fn check() -> Result<()> {
    document_programs()?;
    let (mut wrong, folder) = (Vec::new(), document()?);
    for name in LISTED {
        let (is, was) = (listing(&folder, name)?, fs::read_to_string(path(name)).unwrap_or_default());
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (new, old) = (lines(&is), lines(&was));
        wrong.extend(old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}")));
        wrong.extend(new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}")));
        if is != was && wrong.is_empty() {
            wrong.push(format!("{name}: the order of items"));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!(
        "the public API has changed; if that is meant, run `cargo xtask api` and commit docs/api:\n{}",
        wrong.join("\n")
    )
}

fn path(name: &str) -> PathBuf {
    root().join("docs/api").join(name).with_extension("txt")
}

/// Documents the programs, in which rustdoc finds no warning.
fn document_programs() -> Result<()> {
    let mut doc = command("cargo", &["doc", "--workspace", "--bins", "--no-deps", "--quiet"]);
    run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Documents all libraries as JSON, and returns its folder. A warning is an error: rustdoc's lints do not depend on the output's format.
fn document() -> Result<PathBuf> {
    let mut doc = command("cargo", &["doc", "--workspace", "--lib", "--no-deps", "--quiet"]);
    doc.env("RUSTDOC", root().join("tools/rustdoc-json"));
    run(doc.env("RUSTDOCFLAGS", "-D warnings -Z unstable-options --output-format json"))?;
    Ok(target_folder().join("doc"))
}

/// All public items of a crate, a line each.
fn listing(folder: &Path, name: &str) -> Result<String> {
    let json = folder.join(name.replace('-', "_")).with_extension("json");
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .sorted(true)
        .build()
        .with_context(|| format!("the public API of {name}"))?;
    Ok(format!("{api}"))
}
