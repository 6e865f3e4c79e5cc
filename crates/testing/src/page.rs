//! `docs/operators.md`, with a row for each operator from the results of the suite; and pages in two parts, which two suites write.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use crate::runner::Tally;

const HEAD: &str = "\
# Operators

The operator suite writes this page (`UPDATE_DOCS=1 cargo test -p rushlight-testing --test it operators`), and checks it
in each run.

A case is one call of the operator in its own program: written, parsed, loaded, executed and compared with PyTorch.
Cases are PyTorch's own samples and hand-picked edge cases. *works* means that all cases agree within the tolerance.
`crates/testing/src/tolerance.rs` states each tolerance with its reason.

";

/// The page's text. `without_cases` are operators that the suite leaves out, and why.
pub fn render(tallies: &BTreeMap<String, Tally>, without_cases: &BTreeMap<String, String>) -> String {
    let mut page = HEAD.to_owned();
    let works = tallies.values().filter(|t| state(t) == "works").count();
    let passed: usize = tallies.values().map(|t| t.passed).sum();
    let skipped: usize = tallies.values().flat_map(|t| t.skipped.values()).sum();
    let _ =
        writeln!(page, "{works} of {} operators work; {passed} cases agree, {skipped} are skipped.\n", tallies.len());
    page.push_str("| operator | set | dtypes | cases | state |\n|---|---|---|---|---|\n");
    for (op, tally) in tallies {
        let dtypes: Vec<&str> = tally.dtypes.values().copied().collect();
        let set = tally.set.unwrap_or("");
        let _ = writeln!(page, "| {op} | {set} | {} | {} | {} |", dtypes.join(" "), tally.passed, state(tally));
    }
    page.push_str("\n## Left out\n\n| operator | why |\n|---|---|\n");
    for (op, why) in without_cases {
        let _ = writeln!(page, "| {op} | {why} |");
    }
    for (op, tally) in tallies {
        for (reason, count) in &tally.skipped {
            let _ = writeln!(page, "| {op} | {count} cases: {reason} |");
        }
    }
    page
}

fn state(tally: &Tally) -> String {
    if tally.missing {
        "missing".into()
    } else if tally.failed.is_empty() {
        "works".into()
    } else {
        format!("{} cases differ", tally.failed.len())
    }
}

/// The heading between the two parts of a page.
const HEADING: &str = "\n## Architectures\n";

/// Writes the part of a page before the heading of its section, which stays.
///
/// # Errors
/// If the page cannot be written.
pub fn put_head(path: &Path, head: &str) -> io::Result<()> {
    let page = fs::read_to_string(path).unwrap_or_default();
    let section = page.find(HEADING).map_or("", |at| &page[at..]);
    fs::write(path, format!("{head}{section}"))
}

/// The section of a page, with its heading.
///
/// # Errors
/// If the page cannot be read.
pub fn section(path: &Path) -> io::Result<String> {
    let page = fs::read_to_string(path)?;
    Ok(page.find(HEADING).map_or("", |at| &page[at + 1..]).to_owned())
}

/// Writes the section of a page, with its heading. The text before it is kept.
///
/// # Errors
/// If the page cannot be read or written.
pub fn put_section(path: &Path, section: &str) -> io::Result<()> {
    let page = fs::read_to_string(path)?;
    let head = page.find(HEADING).map_or(page.as_str(), |at| &page[..at]);
    fs::write(path, format!("{head}\n{section}"))
}
