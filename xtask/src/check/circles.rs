//! Refuses circles between files of different folders, and between any files of the crates without folders that are
//! listed here. The files of a folder can then be read, and moved, without the files that use them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::root;
use crate::source::{Crate, files};

/// The uses that close a circle and are still there: `user -> used: reason`.
const KNOWN: &str = "xtask/circles.txt";

/// Sources without folders, no two files of which use each other in circles.
const FLAT: &[&str] =
    &["bindings/python/src", "crates/backends/cpu/compile/src", "crates/compiler/src/emit", "crates/quantize/src"];

/// A file, and one that it uses.
type Use = (PathBuf, PathBuf);

/// Fails if a circle is closed by a use that [`KNOWN`] does not name, or if that names one that closes none.
pub fn check() -> Result<()> {
    let text = fs::read_to_string(root().join(KNOWN)).with_context(|| format!("cannot read {KNOWN}"))?;
    let mut known = BTreeSet::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let named = line.split_once(": ").and_then(|(files, _)| files.split_once(" -> "));
        let (user, used) = named.with_context(|| format!("{KNOWN}: expected `user -> used: reason`, got `{line}`"))?;
        known.insert((PathBuf::from(user), PathBuf::from(used)));
    }
    let mut wrong = Vec::new();
    let mut closing = BTreeSet::new();
    for root in files()?.iter().filter(|file| is_root(file)) {
        let uses = uses(root)?;
        let without: BTreeSet<Use> = uses.difference(&known).cloned().collect();
        for (user, used) in closes(&without) {
            wrong.push(format!("{} -> {}", user.display(), used.display()));
        }
        // One that is known closes a circle if it does so beside those that are not.
        for one in uses.intersection(&known) {
            let mut with = without.clone();
            with.insert(one.clone());
            if is_closed_by(one, &with) {
                closing.insert(one.clone());
            }
        }
    }
    let gone = known.difference(&closing);
    let gone: Vec<String> = gone.map(|(user, used)| format!("{} -> {}", user.display(), used.display())).collect();
    if !wrong.is_empty() {
        bail!("circles between files of different folders are closed by:\n{}", wrong.join("\n"));
    }
    if !gone.is_empty() {
        bail!("{KNOWN} names uses that close no circle, remove them:\n{}", gone.join("\n"));
    }
    Ok(())
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

/// The folder that a file belongs to: `a/b.rs` to `a`, and to `a/b` if there are files in that. In [`FLAT`] crates every file
/// is one of its own.
fn folder(file: &Path) -> PathBuf {
    let own = file.with_extension("");
    let parent = file.parent().unwrap_or(Path::new(""));
    let is_own = root().join(&own).is_dir() || FLAT.iter().any(|flat| parent == Path::new(flat));
    if is_own { own } else { parent.to_owned() }
}

/// Uses without which there are no circles between folders, as few as a greedy search finds.
fn closes(uses: &BTreeSet<Use>) -> Vec<Use> {
    let mut left = uses.clone();
    let mut found = Vec::new();
    loop {
        let circles = circles(&left);
        let Some(circle) = circles.first() else { break };
        // Of the folders that use each other, the direction with the fewest uses is the one that should not be.
        let mut folders: BTreeMap<(PathBuf, PathBuf), Vec<&Use>> = BTreeMap::new();
        for one in left.iter().filter(|(user, used)| circle.contains(user) && circle.contains(used)) {
            folders.entry((folder(&one.0), folder(&one.1))).or_default().push(one);
        }
        folders.retain(|(user, used), _| user != used);
        let worst =
            folders.values().min_by_key(|uses| uses.len()).and_then(|uses| uses.first()).map(|one| (*one).clone());
        let Some(worst) = worst else { break };
        left.remove(&worst);
        found.push(worst);
    }
    // An early removal may close nothing any more.
    found.retain(|one| {
        left.insert(one.clone());
        let is_closing = is_closed_by(one, &left);
        if is_closing {
            left.remove(one);
        }
        is_closing
    });
    found
}

/// True if a use is part of a circle.
fn is_closed_by((user, used): &Use, uses: &BTreeSet<Use>) -> bool {
    circles(uses).iter().any(|circle| circle.contains(user) && circle.contains(used))
}

/// Sets of files that use each other, in more than one folder.
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
        let folders: BTreeSet<PathBuf> = circle.iter().map(|file| folder(file)).collect();
        if folders.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}
