//! Budgets of the test stages, and the table of their times in the page on tests.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::command::root;
use crate::steps::Done;

const PAGE: &str = "docs/contributing/testing.md";

/// The line above the table.
const HEADING: &str = "| stage | seconds | budget |";

/// Fails if a stage took longer than its budget, where `ENFORCE_BUDGETS` is set: a slow or busy machine fails no test.
pub fn enforce(done: &[Done]) -> Result<()> {
    let over: Vec<&str> = done.iter().filter(|step| step.is_over()).map(|step| step.name).collect();
    if over.is_empty() || std::env::var_os("ENFORCE_BUDGETS").is_none() {
        return Ok(());
    }
    bail!("over their budgets: {}", over.join(", "))
}

/// Writes the table of the page.
pub fn write(done: &[Done]) -> Result<()> {
    let page = read()?;
    let rows = done.iter().map(|step| format!("| {} | {:.0} | {} |\n", step.name, step.seconds, budget(step.budget)));
    let new = format!("{HEADING}\n|---|--:|--:|\n{}", rows.collect::<String>());
    Ok(fs::write(root().join(PAGE), page.replace(table(&page)?, &new))?)
}

fn read() -> Result<String> {
    fs::read_to_string(root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))
}

/// The table with its heading and the line break after its last row.
fn table(page: &str) -> Result<&str> {
    let (before, _) = page.split_once(HEADING).with_context(|| format!("{PAGE} has no line `{HEADING}`"))?;
    let rest = &page[before.len()..];
    Ok(rest.split_once("\n\n").map_or(rest, |(table, _)| &rest[..=table.len()]))
}

fn budget(seconds: Option<u32>) -> String {
    seconds.map(|seconds| seconds.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Step;
    use crate::test::{ROUNDS, stages};

    /// Seconds that all tests of a change may take.
    const TOTAL: u32 = 30 * 60;

    /// The name and the budget of a row.
    fn cells(row: &str) -> Option<(&str, &str)> {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        Some((cells.next()?, cells.nth(1)?))
    }

    #[test]
    fn the_page_has_the_budgets_of_the_stages() -> Result<()> {
        let column = |steps: &[Step]| steps.iter().filter_map(|step| step.budget).sum::<u32>();
        let sum: u32 = ROUNDS.iter().map(|round| column(round.steps).max(column(round.beside))).sum();
        assert!(sum <= TOTAL, "the budgets of the test stages make {sum} s: expected at most {TOTAL}");
        let page = read()?;
        let rows: Vec<(&str, &str)> = table(&page)?.lines().skip(2).filter_map(cells).collect();
        let wanted: Vec<(&str, String)> = stages().map(|step| (step.name, budget(step.budget))).collect();
        let wanted: Vec<(&str, &str)> = wanted.iter().map(|(name, budget)| (*name, budget.as_str())).collect();
        assert_eq!(rows, wanted);
        Ok(())
    }
}
