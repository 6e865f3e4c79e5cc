//! Builds with few features have few dependencies: lowering on a device needs no archives, no JSON and no pickles, and the
//! code that backends share needs no backend.

use anyhow::{Result, bail};

use crate::command::{command, output};

/// Builds, as arguments of `cargo tree`, and the dependencies that they must not have.
const WITHOUT: &[(&[&str], &[&str])] = &[
    (&["--package", "rushlight-compiler", "--no-default-features"], &["serde", "serde_json", "zip"]),
    (
        &["--package", "rushlight", "--no-default-features", "--features", "lower,cpu,cpu-compile"],
        &["rushlight-quantize", "serde", "serde_json", "zip"],
    ),
    (
        &["--package", "rushlight", "--no-default-features", "--features", "lower,llm"],
        &["rushlight-cpu-compile", "rushlight-cpu-payload", "rushlight-cpu-run"],
    ),
    (
        &["--package", "rushlight", "--no-default-features"],
        &["rushlight-compiler", "rushlight-engine", "rushlight-graph"],
    ),
];

/// Fails if a build of [`WITHOUT`] has a dependency that it must not have.
pub fn check() -> Result<()> {
    for (arguments, excluded) in WITHOUT {
        let mut tree = command("cargo", &["tree", "--locked", "--edges", "normal", "--prefix", "none"]);
        let tree = output(tree.args(*arguments))?;
        let names: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
        if let Some(name) = excluded.iter().find(|name| names.contains(name)) {
            bail!("`cargo tree {}` has `{name}`, without which it must build", arguments.join(" "));
        }
    }
    Ok(())
}
