//! `docs/benchmarks.md`: a section for each kind of measurement, replaced when it is measured again.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

const HEAD: &str = "\
# Benchmarks

`cargo xtask bench` writes this page. It builds ExecuTorch's side from the C++ libraries of the executorch wheel, and installs
the other engines. All sides run the same models in turns, with one thread each unless a section states otherwise. A run
replaces the sections that it measures. The page lists everything that was measured, also where Rushlight is slower.
";

/// The document, cut at its sections.
#[derive(Debug, PartialEq)]
pub struct Document {
    /// Titles and texts.
    sections: Vec<(String, String)>,
}

impl Document {
    /// Reads the document; an empty one if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::parse("")),
            Err(e) => Err(e).with_context(|| path.display().to_string()),
        }
    }

    fn parse(text: &str) -> Self {
        let sections = text.split("\n## ").skip(1).map(|section| {
            let (title, text) = section.split_once('\n').unwrap_or((section, ""));
            (title.to_owned(), text.trim().to_owned())
        });
        Self { sections: sections.collect() }
    }

    /// Replaces the section of this title, or appends it.
    pub fn replace(mut self, title: &str, text: &str) -> Self {
        let text = text.trim().to_owned();
        match self.sections.iter_mut().find(|(t, _)| t == title) {
            Some((_, old)) => *old = text,
            None => self.sections.push((title.to_owned(), text)),
        }
        self
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.text()).with_context(|| path.display().to_string())
    }

    fn text(&self) -> String {
        let sections = self.sections.iter().map(|(title, text)| format!("\n## {title}\n\n{text}\n"));
        HEAD.to_owned() + &sections.collect::<String>()
    }
}

/// A sentence about the command, the machine and the versions.
pub fn conditions(command: &str) -> String {
    let versions = std::env::var("VERSIONS").unwrap_or_default();
    let rust = printed("rustc", &["--version"]);
    let date = printed("date", &["-u", "+%Y-%m-%d"]);
    format!("{date}, {}; {versions}, {rust}. Measured by `{command}`.", machine())
}

/// The processor's name and the number of cores.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{} ({}), {cores} cores", name.unwrap_or("unknown processor"), std::env::consts::ARCH)
}

fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Microseconds with three significant digits.
pub fn microseconds(nanoseconds: f64) -> String {
    significant(nanoseconds / 1e3)
}

/// Milliseconds with three significant digits.
pub fn milliseconds(nanoseconds: f64) -> String {
    significant(nanoseconds / 1e6)
}

/// Three significant digits.
pub fn significant(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_replaced_and_the_others_kept() {
        let document = Document::parse("").replace("A", "1").replace("B", "| 2 |\n\n### C\n\n3\n");
        let again = Document::parse(&document.text());
        assert_eq!(again, document);
        let changed = again.replace("A", "4").text();
        assert!(changed.contains("\n## A\n\n4\n\n## B\n\n| 2 |\n\n### C\n\n3\n"), "{changed}");
        assert!(changed.starts_with(HEAD));
    }
}
