//! The Python library compiles for the versions of Python that have a wheel of their own, of which none need be installed.

use anyhow::Result;
use serde_json::Value;

use super::levels::workspace_packages;
use crate::command::{PORTABLE_TILES, command, output, root, run};
use crate::dist::OWN_WHEELS;

/// Fails if the library does not compile for one of [`OWN_WHEELS`], or clippy warns of it.
pub fn check() -> Result<()> {
    let folder = root().join("target/pythons");
    std::fs::create_dir_all(&folder)?;
    let features = other_defaults()?;
    for python in OWN_WHEELS {
        let file = folder.join(format!("{python}.txt"));
        let version = python.trim_start_matches("python");
        let (version, flags) =
            version.strip_suffix('t').map_or((version, ""), |version| (version, "build_flags=Py_GIL_DISABLED\n"));
        let link = "shared=true\nsuppress_build_script_link_lines=true";
        // PyO3's file of configuration.
        std::fs::write(&file, format!("implementation=CPython\nversion={version}\n{link}\n{flags}"))?;
        // As in the check of all crates, so that all but PyO3 and the library are there.
        let mut clippy = super::clippy_command(&["--workspace", "--no-default-features", "--features", &features]);
        run(clippy.env("PYO3_CONFIG_FILE", &file))?;
    }
    Ok(())
}

/// The default features of all crates but the Python library, and that of the checks.
fn other_defaults() -> Result<String> {
    let metadata = output(&mut command("cargo", &["metadata", "--format-version", "1", "--locked", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = workspace_packages(&metadata).filter(|package| package["features"]["default"].is_array());
    let names = packages.filter_map(|package| package["name"].as_str()).filter(|name| *name != "rushlight-python");
    Ok(names.map(|name| format!("{name}/default")).chain([PORTABLE_TILES.to_owned()]).collect::<Vec<_>>().join(","))
}
