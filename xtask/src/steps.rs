//! Steps of a chore, whose times are printed.

use std::time::Instant;

use anyhow::{Result, bail};

/// A step and its name.
pub type Step = (&'static str, fn() -> Result<()>);

/// Runs steps one after the other, those after one that failed too.
#[derive(Debug, Default)]
pub struct Steps {
    report: Vec<String>,
    failed: usize,
    /// The last output of the commands that failed.
    printed: Vec<String>,
}

impl Steps {
    /// Runs all steps of a chore and prints the time of each. Fails if one did.
    pub fn run(chore: &str, steps: &[Step]) -> Result<()> {
        let mut this = Self::default();
        let start = Instant::now();
        for (name, step) in steps {
            this.step(name, *step);
        }
        this.finish(chore, start)
    }

    /// Runs the step of that name.
    pub fn one(chore: &str, steps: &[Step], name: &str) -> Result<()> {
        match steps.iter().find(|(known, _)| *known == name) {
            Some((_, step)) => {
                let start = Instant::now();
                let result = step();
                println!("{chore} {name}: {:.1} s", start.elapsed().as_secs_f64());
                result
            }
            None => {
                let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
                bail!("{chore} has no `{name}`: {}", names.join(", "))
            }
        }
    }

    fn step(&mut self, name: &str, step: fn() -> Result<()>) {
        println!("\n== {name}");
        let start = Instant::now();
        let result = step();
        let seconds = start.elapsed().as_secs_f64();
        self.report.push(match result {
            Ok(()) => format!("{name:<10} passed {seconds:>8.1} s"),
            Err(error) => {
                let error = format!("{error:#}");
                let (reason, printed) = error.split_once('\n').unwrap_or((&error, ""));
                if !printed.is_empty() {
                    self.printed.push(format!("{name} printed at last:\n{printed}"));
                }
                self.failed += 1;
                format!("{name:<10} FAILED {seconds:>8.1} s   {reason}")
            }
        });
    }

    fn finish(self, chore: &str, start: Instant) -> Result<()> {
        let Self { report, failed, printed } = self;
        for printed in printed {
            println!("\n{printed}");
        }
        println!("\n{}", report.join("\n"));
        let seconds = start.elapsed().as_secs_f64();
        println!("{chore}: {} passed, {failed} failed, {seconds:.1} s", report.len() - failed);
        if failed > 0 {
            bail!("{failed} of {} failed", report.len());
        }
        Ok(())
    }
}
