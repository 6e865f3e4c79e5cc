//! Breaking changes of the public API since the last release.

use anyhow::Result;

use crate::check::api::LISTED;
use crate::command::{command, output, run};
use crate::setup;

/// Compares with a revision, or else with the last release. Fails if the version does not announce the changes, by
/// Cargo's rules: before 1.0, a breaking change needs a new minor version.
pub fn check(revision: Option<&str>) -> Result<()> {
    let release = last_release()?;
    let Some(baseline) = revision.or(release.as_deref()) else {
        println!("NOT RUN: no tag here is that of a release; `cargo xtask semver REVISION` compares with a revision");
        return Ok(());
    };
    setup::one("semver")?;
    let mut check =
        command(setup::tool("cargo-semver-checks")?, &["semver-checks", "check-release", "--baseline-rev", baseline]);
    check.args(["--default-features", "--color", "never"]);
    for name in LISTED {
        check.args(["--package", name]);
    }
    run(&mut check)
}

/// The tag of the highest version; releases have tags such as `v0.1.0`, and candidates for one, such as `v0.1.0-rc.1`, are none.
fn last_release() -> Result<Option<String>> {
    let tags = output(&mut command("git", &["tag", "--list", "v[0-9]*", "--sort=-version:refname"]))?;
    Ok(tags.lines().find(|tag| !tag.contains('-')).map(str::to_owned))
}
