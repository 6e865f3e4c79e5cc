//! The Python library compiles for the versions of Python that have a wheel of their own, of which none need be installed.

use anyhow::Result;

use crate::command::{command, root, run};
use crate::dist::OWN_WHEELS;

/// Fails if the library does not compile for one of [`OWN_WHEELS`].
pub fn check() -> Result<()> {
    let folder = root().join("target/pythons");
    std::fs::create_dir_all(&folder)?;
    for python in OWN_WHEELS {
        let file = folder.join(format!("{python}.txt"));
        let version = python.trim_start_matches("python");
        let (version, flags) =
            version.strip_suffix('t').map_or((version, ""), |version| (version, "build_flags=Py_GIL_DISABLED\n"));
        let link = "shared=true\nsuppress_build_script_link_lines=true";
        // PyO3's file of configuration.
        std::fs::write(&file, format!("implementation=CPython\nversion={version}\n{link}\n{flags}"))?;
        let mut check = command("cargo", &["check", "--quiet", "-p", "rushlight-python", "--no-default-features"]);
        // Apart from other builds, which would make PyO3 again for their Python.
        run(check.arg("--target-dir").arg(&folder).env("PYO3_CONFIG_FILE", &file))?;
    }
    Ok(())
}
