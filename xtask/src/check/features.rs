//! Builds with few features have few dependencies: lowering on a device needs no archives, no JSON and no pickles, and decoders
//! need no backend. A feature also has all that it needs: alone, `lower` has both halves of a backend.

use std::fs;

use anyhow::{Result, bail};

use crate::command::{command, output, root};

/// Builds, as arguments of `cargo tree`, and the dependencies that they must not have.
const WITHOUT: &[(&[&str], &[&str])] = &[
    (&["--package", "rushlight-compiler", "--no-default-features"], &["serde", "serde_json", "zip"]),
    (
        &["--package", "rushlight", "--no-default-features", "--features", "lower"],
        &["rushlight-quantize", "serde", "serde_json", "zip"],
    ),
    (
        &["--package", "rushlight", "--no-default-features", "--features", "llm"],
        &["rushlight-cpu-compile", "rushlight-cpu-payload", "rushlight-cpu-run"],
    ),
    (
        &["--package", "rushlight", "--no-default-features"],
        &["rushlight-compiler", "rushlight-engine", "rushlight-graph"],
    ),
];

/// Each public feature of the facade, and the dependencies that it has alone: it does something by itself.
const FACADE: &[(&str, &[&str])] = &[
    ("std", &["memmap2"]),
    ("cpu", &["rushlight-cpu-run", "rushlight-engine", "memmap2"]),
    ("compile", &["rushlight-compiler", "rushlight-graph", "memmap2"]),
    ("cortex-m-compile", &["rushlight-cortex-m-compile", "rushlight-compiler"]),
    ("cpu-compile", &["rushlight-cpu-compile", "rushlight-compiler"]),
    ("pt2", &["rushlight-compiler", "rushlight-quantize", "serde_json"]),
    ("lower", &["rushlight-cpu-compile", "rushlight-cpu-run", "rushlight-compiler"]),
    ("llm", &["rushlight-decoders", "rushlight-checkpoint", "rushlight-compiler"]),
];

/// Fails if a build of [`WITHOUT`] has a dependency that it must not have, or a feature of [`FACADE`] alone lacks one. All features of
/// the facade that its manifest has for users must be in [`FACADE`].
pub fn check() -> Result<()> {
    for (arguments, excluded) in WITHOUT {
        let names = dependencies(arguments)?;
        if let Some(name) = excluded.iter().find(|name| names.iter().any(|had| had == *name)) {
            bail!("`cargo tree {}` has `{name}`, without which it must build", arguments.join(" "));
        }
    }
    for (feature, needed) in FACADE {
        let names = dependencies(&["--package", "rushlight", "--no-default-features", "--features", feature])?;
        if let Some(name) = needed.iter().find(|name| names.iter().all(|had| had != *name)) {
            bail!("the feature `{feature}` of `rushlight` lacks `{name}` if it is alone");
        }
    }
    let manifest = fs::read_to_string(root().join("crates/rushlight/Cargo.toml"))?;
    let declared = manifest.split("[features]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap_or_default();
    let declared = declared.lines().filter_map(|line| Some(line.split_once(" = [")?.0));
    let mut public = declared.filter(|name| !name.starts_with(['_', '#']) && *name != "default");
    if let Some(name) = public.find(|name| FACADE.iter().all(|(known, _)| known != name)) {
        bail!("{} does not say what the feature `{name}` of `rushlight` does alone", file!());
    }
    Ok(())
}

/// The names of all packages of a build, whose arguments are those of `cargo tree`.
fn dependencies(arguments: &[&str]) -> Result<Vec<String>> {
    let mut tree = command("cargo", &["tree", "--locked", "--edges", "normal", "--prefix", "none"]);
    let tree = output(tree.args(arguments))?;
    Ok(tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}
