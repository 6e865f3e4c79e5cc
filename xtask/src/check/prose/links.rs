//! Links of Markdown files lead to files and headings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use super::{markdown, read};
use crate::command::root;

/// The pages of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages of `docs` that the book has not.
const OUTSIDE: &str = "docs/contributing/";

/// Links that lead nowhere, and pages of the book that its summary lacks.
pub fn dead(files: &[String]) -> Result<Vec<String>> {
    let mut texts = BTreeMap::new();
    for file in files {
        texts.insert(file.as_str(), read(file)?);
    }
    let headings: BTreeMap<&str, BTreeSet<String>> = texts.iter().map(|(file, text)| (*file, anchors(text))).collect();
    let mut wrong = Vec::new();
    let mut pages = BTreeSet::new();
    for (file, text) in &texts {
        for (line, target) in targets(text) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { PathBuf::from(file) } else { beside(file, path) };
            let name = path.to_string_lossy().replace('\\', "/");
            let is_dead = match headings.get(name.as_str()) {
                Some(headings) => !anchor.is_empty() && !headings.contains(anchor),
                None => !root().join(&path).exists(),
            };
            if is_dead {
                wrong.push(format!("{file}:{line}: `{target}` leads nowhere"));
            }
            if *file == SUMMARY {
                pages.insert(name);
            }
        }
    }
    let of_book =
        texts.keys().filter(|file| file.starts_with("docs/") && !file.starts_with(OUTSIDE) && **file != SUMMARY);
    wrong.extend(of_book.filter(|file| !pages.contains(**file)).map(|file| format!("{SUMMARY} lacks {file}")));
    Ok(wrong)
}

/// The path of a link in a file, relative to the root.
fn beside(file: &str, link: &str) -> PathBuf {
    let mut path = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// The targets of links to this repository, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    for (number, line) in markdown::lines_without_code(text) {
        let mut rest = line;
        while let Some((_, after)) = rest.split_once("](") {
            let (target, left) = after.split_once(')').unwrap_or((after, ""));
            if !target.contains("://") && !target.starts_with("mailto:") {
                targets.push((number, target));
            }
            rest = left;
        }
    }
    targets
}

/// The anchors of a document's headings, as code hosts and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in markdown::lines_without_code(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug = slug(title.trim());
        let numbered = (1..).map(|count| format!("{slug}-{count}"));
        let free = std::iter::once(slug.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

fn slug(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_code_hosts() {
        let found = anchors("# C and C++\n## `rushlight.llm`, twice\n```\n# code\n```\n## A\n## A\n");
        let expected = ["c-and-c", "rushlightllm-twice", "a", "a-1"];
        assert_eq!(found, expected.into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn targets_are_those_of_this_repository() {
        let text = "[a](b.md#c) and [d](https://e.f), [g](#h)\n`x`\n";
        assert_eq!(targets(text), [(1, "b.md#c"), (1, "#h")]);
        assert_eq!(beside("docs/start/c.md", "../../README.md"), PathBuf::from("README.md"));
    }
}
