//! Files that all versions of the writers write, run here: ExecuTorch of every minor version from 0.6 with its torch, the Python
//! package `flatbuffers` of several versions, and torchao's. ExecuTorch before 1.2 writes by `flatc`, later by that package.
//!
//! An environment takes some gigabytes; each is removed once it has written. RUSHLIGHT_WRITERS_ONLY names some, separated by
//! commas.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::command::{command, root, run};

/// An environment: its name, and the packages that are installed together. Of environments that differ in `flatbuffers`
/// only, the later ones replace that package only.
struct Environment {
    name: &'static str,
    packages: &'static [&'static str],
    flatbuffers: &'static [&'static str],
}

const ENVIRONMENTS: &[Environment] = &[
    Environment {
        name: "0.6",
        packages: &["executorch==0.6.0", "torch==2.7.0", "torchao==0.10.0"],
        flatbuffers: &[NEWEST],
    },
    Environment { name: "0.7", packages: &["executorch==0.7.0", "torch==2.8.0"], flatbuffers: &[NEWEST] },
    Environment { name: "1.0", packages: &["executorch==1.0.1", "torch==2.9.0"], flatbuffers: &[NEWEST] },
    Environment { name: "1.1", packages: &["executorch==1.1.0", "torch==2.10.0"], flatbuffers: &[NEWEST] },
    Environment {
        name: "1.2",
        packages: &["executorch==1.2.0", "torch==2.11.0", "torchao==0.17.0"],
        flatbuffers: &["24.3.25", "25.2.10", "25.9.23", NEWEST],
    },
    Environment { name: "1.3", packages: &["executorch==1.3.1", "torch==2.12.0"], flatbuffers: &[NEWEST] },
    Environment { name: "1.4", packages: &["executorch==1.4.1", "torch==2.13.0"], flatbuffers: &[NEWEST] },
    Environment {
        name: "1.5",
        packages: &["executorch==1.5.1", "torch==2.15.0", "torchao==0.18.0"],
        flatbuffers: &["24.3.25", "25.2.10", "25.9.23", NEWEST],
    },
];

/// The version that the newest ExecuTorch comes with.
const NEWEST: &str = "25.12.19";

/// Lets all environments write to `target/writers`. The test that runs the files there is `corpus::`.
///
/// # Errors
/// If one cannot be installed or writes nothing; the others have written then.
pub fn write() -> Result<()> {
    let out = root().join("target/writers");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let only = std::env::var("RUSHLIGHT_WRITERS_ONLY").unwrap_or_default();
    let is_wanted = |name: &str| only.is_empty() || only.split(',').any(|wanted| wanted == name);
    let mut failed = Vec::new();
    for environment in ENVIRONMENTS.iter().filter(|environment| is_wanted(environment.name)) {
        if let Err(error) = environment.write(&out) {
            println!("NOT RUN: the environment {}: {error:#}", environment.name);
            failed.push(environment.name);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("some environments wrote nothing: {}", failed.join(", ")) }
}

impl Environment {
    fn write(&self, out: &Path) -> Result<()> {
        let folder = root().join(".venv-writers").join(self.name);
        let written = self.write_in(&folder, out);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        written
    }

    fn write_in(&self, folder: &Path, out: &Path) -> Result<()> {
        let python = folder.join("bin/python");
        run(command("python3.11", &["-m", "venv", "--clear"]).arg(folder))?;
        let install = |packages: &[&str]| {
            let mut install = command(&python, &["-m", "pip", "install", "--quiet", "--no-compile", "--no-cache-dir"]);
            run(install.arg("--disable-pip-version-check").args(packages))
        };
        install(self.packages).context("it cannot be installed")?;
        for version in self.flatbuffers {
            install(&[&format!("flatbuffers=={version}")])?;
            // It starts `flatc`, which lies beside Python.
            let mut make = command(&python, &["tools/corpus/make_versions.py", "--out"]);
            run(make.arg(out.join("corpus")))?;
        }
        Ok(())
    }
}
