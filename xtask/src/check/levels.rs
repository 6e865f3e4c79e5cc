//! Crates depend on crates of lower levels only, on pinned versions, under licences that are allowed.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{command, output, root};

/// Fails if a crate has no level, depends on a crate of its own or a higher level, or has an unpinned dependency. Also
/// fails if a dependency has another licence, or a manifest belongs to no workspace.
pub fn check() -> Result<()> {
    let mut members = BTreeSet::new();
    for manifest in MANIFESTS {
        let arguments = ["metadata", "--format-version", "1", "--locked", "--manifest-path", manifest];
        let metadata = output(&mut command("cargo", &arguments))?;
        let metadata: Value = serde_json::from_str(&metadata).with_context(|| format!("metadata of {manifest}"))?;
        members.extend(workspace_packages(&metadata).filter_map(|p| p["manifest_path"].as_str().map(str::to_owned)));
        dependency_direction(&metadata).with_context(|| (*manifest).to_owned())?;
        licences(&metadata).with_context(|| (*manifest).to_owned())?;
    }
    let listed = output(&mut command("git", &["ls-files", "--", "*Cargo.toml"]))?;
    let there = listed.lines().filter(|manifest| root().join(manifest).exists());
    // The root's is a workspace and no crate.
    let is_known =
        |manifest: &&str| *manifest == "Cargo.toml" || members.contains(&*root().join(manifest).to_string_lossy());
    let forgotten: Vec<&str> = there.filter(|manifest| !is_known(manifest)).collect();
    if !forgotten.is_empty() {
        bail!("these belong to no workspace that is checked: {}", forgotten.join(", "));
    }
    Ok(())
}

/// The workspaces: the main one, and those that need another target or compiler.
const MANIFESTS: &[&str] =
    &["Cargo.toml", "crates/engine/loom/Cargo.toml", "examples/cortex-m/Cargo.toml", "fuzz/Cargo.toml"];

/// The levels of ARCHITECTURE.md. A crate may depend on crates of lower levels only; development dependencies may
/// point anywhere.
const LEVELS: &[(&str, u32)] = &[
    ("rushlight-format", 0),
    ("rushlight-engine", 0),
    ("rushlight-engine-mcu", 0),
    ("rushlight-cpu-payload", 1),
    ("rushlight-runtime", 1),
    ("rushlight-kernels", 2),
    ("rushlight-cpu-run", 2),
    ("rushlight-graph", 2),
    ("rushlight-checkpoint", 3),
    ("rushlight-compiler", 3),
    ("rushlight-decoders", 4),
    ("rushlight-cortex-m-compile", 4),
    ("rushlight-cpu-compile", 4),
    ("rushlight-quantize", 4),
    ("rushlight", 5),
    ("rushlight-devtools", 6),
    ("rushlight-llm", 6),
    ("rushlight-llm-server", 7),
    ("rushlight-bindings-common", 7),
    ("rushlight-c", 8),
    ("rushlight-jni", 8),
    ("rushlight-js-plain", 8),
    ("rushlight-js", 9),
    ("rushlight-node", 9),
    ("rushlight-python", 8),
    ("rushlight-python-macros", 0),
    ("rushlight-cli", 8),
    ("rushlight-testing", 8),
    ("rushlight-benches", 9),
    ("rushlight-example-backend", 8),
    ("rushlight-example-cortex-m", 8),
    ("rushlight-example-wasm", 8),
    ("rushlight-fuzz", 9),
    ("rushlight-loom", 8),
    ("xtask", 8),
];

fn dependency_direction(metadata: &Value) -> Result<()> {
    let level = |name: &str| LEVELS.iter().find(|(n, _)| *n == name).map(|(_, level)| *level);
    let mut wrong = Vec::new();
    for package in workspace_packages(metadata) {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(own) = level(name) else {
            wrong.push(format!("{name} has no level in xtask/src/check/levels.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let is_development = dependency["kind"] == "dev";
            if let Some(other) = level(on)
                && !is_development
                && other >= own
            {
                wrong.push(format!("{name} (level {own}) depends on {on} (level {other})"));
            }
            let requirement = dependency["req"].as_str().unwrap_or_default();
            if level(on).is_none() && !requirement.starts_with('=') {
                wrong.push(format!("{name} does not pin {on}: {requirement}"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("dependencies:\n{}", wrong.join("\n")) }
}

/// Licences that a dependency may have; with several to choose from, one of them is enough.
const ALLOWED: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "BSL-1.0",
    "Unlicense",
    "CC0-1.0",
    "0BSD",
    "NCSA",
];

fn licences(metadata: &Value) -> Result<()> {
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let licence = package["license"].as_str().unwrap_or("none");
        let is_allowed = |part: &str| ALLOWED.contains(&part.trim().trim_matches(['(', ')']));
        // `A AND B` needs both, `A OR B` (also written `A/B`) one of them; in practice AND binds groups of OR.
        let ok = licence.split(" AND ").all(|group| group.split(" OR ").flat_map(|p| p.split('/')).any(is_allowed));
        if !ok {
            wrong.push(format!("{}: {licence}", package["name"].as_str().unwrap_or_default()));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("licences that are not allowed:\n{}", wrong.join("\n")) }
}

pub fn workspace_packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    let members: Vec<&str> =
        metadata["workspace_members"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter(move |package| package["id"].as_str().is_some_and(|id| members.contains(&id)))
}
