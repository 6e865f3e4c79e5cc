//! Refuses circles between the files of a crate: those through different folders always, those within a folder unless
//! `xtask/circles.txt` has the reason. A file can then be read, and moved, without the files that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::root;
use crate::source::{Crate, files};

/// The uses that may close a circle within a folder: `user -> used: reason`. A user may be `folder/*`.
const KNOWN: &str = "xtask/circles.txt";

/// Maximum number of printed uses of a circle.
const MAX_PRINTED: usize = 20;

/// A file, and one that it uses.
type Use = (PathBuf, PathBuf);

/// Fails if a use that [`KNOWN`] does not name closes a circle, or if [`KNOWN`] names a use that closes none.
pub fn check() -> Result<()> {
    let text = fs::read_to_string(root().join(KNOWN)).with_context(|| format!("cannot read {KNOWN}"))?;
    let known = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let known = known.map(Known::parse).collect::<Result<Vec<_>>>()?;
    let mut closing = vec![false; known.len()];
    let mut wrong = Vec::new();
    for root in files()?.iter().filter(|file| is_root(file)) {
        let uses = uses(root)?;
        let unknown: BTreeSet<Use> =
            uses.iter().filter(|one| !known.iter().any(|known| known.names(one))).cloned().collect();
        let through_folders = circles(&uses).into_iter().filter(|circle| folders(circle).len() > 1);
        through_folders.for_each(|circle| describe(&circle, &uses, &mut wrong));
        let within_folders = circles(&unknown).into_iter().filter(|circle| folders(circle).len() == 1);
        within_folders.for_each(|circle| describe(&circle, &unknown, &mut wrong));
        // A known use closes a circle if it does so together with the unknown ones.
        for (known, closing) in known.iter().zip(&mut closing) {
            let named: Vec<&Use> = uses.iter().filter(|one| known.names(one)).collect();
            if !named.is_empty() {
                let circles = circles(&unknown.iter().chain(named.iter().copied()).cloned().collect());
                *closing |= named.iter().any(|one| circles.iter().any(|circle| is_inside(one, circle)));
            }
        }
    }
    if !wrong.is_empty() {
        bail!("circles between files:\n{}", wrong.join("\n"));
    }
    let gone = known.iter().zip(closing).filter(|(_, closing)| !closing).map(|(known, _)| known.line);
    let gone: Vec<&str> = gone.collect();
    if !gone.is_empty() {
        bail!("{KNOWN} names uses that close no circle, remove them:\n{}", gone.join("\n"));
    }
    Ok(())
}

/// A line of [`KNOWN`].
struct Known<'a> {
    line: &'a str,
    user: PathBuf,
    used: PathBuf,
}

impl<'a> Known<'a> {
    fn parse(line: &'a str) -> Result<Self> {
        let named = line.split_once(": ").and_then(|(files, _)| files.split_once(" -> "));
        let (user, used) = named.with_context(|| format!("{KNOWN}: expected `user -> used: reason`, got `{line}`"))?;
        let (user, used) = (PathBuf::from(user), PathBuf::from(used));
        if folder(&user) != folder(&used) {
            bail!("{KNOWN}: files of different folders may not use each other in circles: `{line}`");
        }
        Ok(Self { line, user, used })
    }

    fn names(&self, (user, used): &Use) -> bool {
        let is_any = self.user.ends_with("*") && user.parent() == self.user.parent();
        (is_any || *user == self.user) && *used == self.used
    }
}

fn folders(circle: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    circle.iter().map(|file| folder(file)).collect()
}

/// Describes a circle by the uses between its files, those of different folders first.
fn describe(circle: &BTreeSet<PathBuf>, uses: &BTreeSet<Use>, to: &mut Vec<String>) {
    let scope = if folders(circle).len() > 1 { "of different folders" } else { "of one folder" };
    to.push(format!("{} files {scope}:", circle.len()));
    let inside = uses.iter().filter(|one| is_inside(one, circle));
    let (across, within): (Vec<&Use>, Vec<&Use>) = inside.partition(|(user, used)| folder(user) != folder(used));
    let line = |(user, used): &Use| format!("  {} -> {}", user.display(), used.display());
    to.extend(across.into_iter().chain(within).take(MAX_PRINTED).map(line));
}

/// True for the root of a library, or of a program that is all of its crate.
fn is_root(file: &Path) -> bool {
    let is_main = file.ends_with("src/main.rs") && !root().join(file.with_file_name("lib.rs")).exists();
    file.ends_with("src/lib.rs") || is_main
}

/// The uses between files of a crate.
fn uses(file: &Path) -> Result<BTreeSet<Use>> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let read = Crate::read(file)?;
    let mut uses = BTreeSet::new();
    for (index, module) in read.modules.iter().enumerate() {
        for used in read.uses(index) {
            let used = &read.modules[used].file;
            if *used != module.file {
                uses.insert((folder.join(&module.file), folder.join(used)));
            }
        }
    }
    Ok(uses)
}

/// The folder that a file belongs to: `a/b.rs` to `a`, and to `a/b` if there are files in that.
fn folder(file: &Path) -> PathBuf {
    let own = file.with_extension("");
    if root().join(&own).is_dir() { own } else { file.parent().unwrap_or(Path::new("")).to_owned() }
}

/// True if a use is part of a circle.
fn is_inside((user, used): &Use, circle: &BTreeSet<PathBuf>) -> bool {
    circle.contains(user) && circle.contains(used)
}

/// Sets of files that use each other.
fn circles(uses: &BTreeSet<Use>) -> Vec<BTreeSet<PathBuf>> {
    let mut forward: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    let mut backward: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for (user, used) in uses {
        forward.entry(user).or_default().push(used);
        backward.entry(used).or_default().push(user);
    }
    let reach = |start: &Path, edges: &BTreeMap<&Path, Vec<&Path>>| {
        let mut seen = BTreeSet::from([start.to_owned()]);
        let mut open = vec![start.to_owned()];
        while let Some(file) = open.pop() {
            for next in edges.get(&*file).into_iter().flatten() {
                if seen.insert((*next).to_owned()) {
                    open.push((*next).to_owned());
                }
            }
        }
        seen
    };
    let mut done = BTreeSet::new();
    let mut circles = Vec::new();
    for file in forward.keys() {
        if done.contains(*file) {
            continue;
        }
        let circle: BTreeSet<PathBuf> = reach(file, &forward).intersection(&reach(file, &backward)).cloned().collect();
        done.extend(circle.iter().cloned());
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}
