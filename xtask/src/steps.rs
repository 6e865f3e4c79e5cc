//! Steps of a chore, whose times are printed.

use std::io::Read;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::command::{TAIL, target_folder};

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
        Self::run_beside(chore, steps, &[])
    }

    /// Like [`run`](Self::run), with other steps of the chore in parallel, each in its own process. Their output is
    /// shown when they end. They build in their own folder, because cargo would lock a shared one.
    pub fn run_beside(chore: &str, steps: &[Step], beside: &[Step]) -> Result<()> {
        let start = Instant::now();
        let this = thread::scope(|scope| {
            let beside = scope.spawn(|| {
                let mut this = Self::default();
                for (name, _) in beside {
                    this.step(name, || process(chore, name));
                }
                this
            });
            let mut this = Self::default();
            for (name, step) in steps {
                println!("\n== {name}");
                this.step(name, step);
            }
            this.add(beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
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

    fn add(mut self, mut other: Self) -> Self {
        self.report.append(&mut other.report);
        self.failed += other.failed;
        self.printed.append(&mut other.printed);
        self
    }

    fn step(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
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

/// Runs a step in a process of its own, and prints what that printed when it ends.
fn process(chore: &str, name: &str) -> Result<()> {
    let (mut reader, writer) = std::io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args([chore, name]).env("CARGO_TARGET_DIR", target_folder().join("beside"));
    let mut process = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // Its ends of the pipe would keep this process waiting.
    drop(command);
    let mut printed = Vec::new();
    reader.read_to_end(&mut printed)?;
    let status = process.wait()?;
    println!("\n== {name}, beside the others\n{}", String::from_utf8_lossy(&printed));
    if !status.success() {
        let tail = &printed[printed.len().saturating_sub(TAIL)..];
        bail!("{status}\n{}", String::from_utf8_lossy(tail));
    }
    Ok(())
}
