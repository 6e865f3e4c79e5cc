//! Unsafe code is where ARCHITECTURE.md says, and nowhere else.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::command::root;
use crate::source::{files, identifiers, tokens};

const DOCUMENT: &str = "ARCHITECTURE.md";
const SECTION: &str = "## Where unsafe lives";

/// Fails if a file has unsafe code, or allows it, that the section does not list, or is listed and has none.
pub fn check() -> Result<()> {
    let listed = listed()?;
    let mut wrong = Vec::new();
    for file in files()? {
        let mut names = BTreeSet::new();
        identifiers(&tokens(&file)?, &mut names);
        let (is_unsafe, is_listed) = (names.contains("unsafe"), listed.contains(&file));
        if is_unsafe && !is_listed {
            wrong.push(format!("{} has unsafe code and is not listed", file.display()));
        }
        if !is_unsafe && is_listed {
            wrong.push(format!("{} is listed and has no unsafe code", file.display()));
        }
    }
    wrong.extend(
        listed
            .iter()
            .filter(|file| !root().join(file).exists())
            .map(|f| format!("{} is listed and does not exist", f.display())),
    );
    if wrong.is_empty() { Ok(()) } else { bail!("{DOCUMENT}, `{SECTION}`:\n{}", wrong.join("\n")) }
}

/// The files of the section: lines of `` - `file`, `file`: why``, relative to the root or to the folder of the line before them
/// that ends with `/`.
fn listed() -> Result<BTreeSet<PathBuf>> {
    let text = fs::read_to_string(root().join(DOCUMENT))?;
    let (_, section) = text.split_once(SECTION).with_context(|| format!("{DOCUMENT} has no `{SECTION}`"))?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut files = BTreeSet::new();
    for line in section.lines().filter_map(|line| line.strip_prefix("- ")) {
        let (names, _) = line.split_once("`: ").with_context(|| format!("{DOCUMENT}: `{line}` gives no reason"))?;
        files.extend(names.split(", ").map(|name| PathBuf::from(name.trim_matches('`'))));
    }
    Ok(files)
}
