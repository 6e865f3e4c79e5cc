//! Unsafe code is in the files that `xtask/unsafe.txt` lists, and nowhere else.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::command::root;
use crate::source::{files, identifiers, tokens};

/// The files that may have unsafe code: `file: what for`.
const LIST: &str = "xtask/unsafe.txt";

/// Fails if a file has unsafe code, or allows it, that the list does not name, or is named and has none.
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
    if wrong.is_empty() { Ok(()) } else { bail!("{LIST}:\n{}", wrong.join("\n")) }
}

fn listed() -> Result<BTreeSet<PathBuf>> {
    let text = fs::read_to_string(root().join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (file, _) = line.split_once(": ").with_context(|| format!("{LIST}: `{line}` gives no reason"))?;
            Ok(PathBuf::from(file))
        })
        .collect()
}
