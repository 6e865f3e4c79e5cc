//! Archives of the C library, for Linux with glibc.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::bill::Bill;
use super::{LICENCES, Place, Target, time_of_commit};
use crate::c;
use crate::command::{command, run};
use crate::setup;

/// What zig calls a target whose C library the package is linked for.
fn zig_name(target: &Target) -> Option<String> {
    let (_, glibc) = target.zig_triple.split_once("-unknown-linux-gnu")?;
    let (architecture, _) = target.triple.split_once('-')?;
    Some(format!("{architecture}-linux-gnu{glibc}"))
}

impl Place {
    /// The folder of the package, as `cargo xtask c-package` lays it out, and its archive.
    pub fn c_package(&self, target: &Target) -> Result<Option<(PathBuf, PathBuf)>> {
        let Some(zig) = zig_name(target) else {
            println!("NOT MADE: the C library for {}, whose shared library is linked in another way", target.name);
            return Ok(None);
        };
        let mut build = self.reproducible(setup::dist_program("cargo-zigbuild"))?;
        build.args(["zigbuild", "--profile", "wheel", "--locked", "--package", "rushlight-c"]);
        run(build.args(["--target", target.zig_triple, "--target-dir"]).arg(&self.build))?;
        let built = self.build.join(target.triple).join("wheel/librushlight_c.a");
        let name = format!("rushlight-c-{}-{}", env!("CARGO_PKG_VERSION"), target.name);
        let folder = self.build.join("archives").join(&name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let linker = c::Linker {
            program: setup::dist_program("python"),
            arguments: ["-m", "ziglang", "cc", "-target", &zig].map(str::to_owned).to_vec(),
            unwinder: "-lunwind",
        };
        c::assemble(&self.source, &built, &folder, &linker)?;
        let bill = Bill::of("rushlight-c", &self.source, target.triple)?;
        std::fs::write(folder.join(LICENCES), bill.licences(&self.source)?)?;
        std::fs::write(folder.join("rushlight.cdx.json"), bill.cyclonedx()?)?;
        let archive = self.out.join(format!("{name}.tar.gz"));
        pack(&folder, &archive)?;
        Ok(Some((folder, archive)))
    }
}

fn pack(folder: &Path, archive: &Path) -> Result<()> {
    let mut pack = command(setup::dist_program("python"), &["tools/pack.py", "archive"]);
    run(pack.arg(folder).arg(archive).arg(time_of_commit()?))
}
