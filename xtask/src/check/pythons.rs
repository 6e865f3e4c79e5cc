//! The Python library compiles for the versions of Python that have a wheel of their own, of which none need be installed.

use anyhow::Result;

use crate::command::{command, root, run};

/// Versions, and how they were built, as PyO3's files of configuration have them.
const CONFIGURATIONS: &[(&str, &str)] = &[("3.10", ""), ("3.14", "build_flags=Py_GIL_DISABLED\n")];

/// Fails if the library does not compile for one of [`CONFIGURATIONS`].
pub fn check() -> Result<()> {
    let folder = root().join("target/pythons");
    std::fs::create_dir_all(&folder)?;
    for (version, flags) in CONFIGURATIONS {
        let file = folder.join(format!("{version}.txt"));
        let link = "shared=true\nsuppress_build_script_link_lines=true";
        std::fs::write(&file, format!("implementation=CPython\nversion={version}\n{link}\n{flags}"))?;
        let mut check = command("cargo", &["check", "--quiet", "-p", "rushlight-python", "--no-default-features"]);
        // Apart from other builds, which would make PyO3 again for their Python.
        run(check.args(["--target-dir", "target/pythons"]).env("PYO3_CONFIG_FILE", &file))?;
    }
    Ok(())
}
