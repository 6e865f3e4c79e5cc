//! Steps of a chore, whose times are printed.

use std::io::Read;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::command::{TAIL, target_folder};

/// A step of a chore.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub name: &'static str,
    run: fn() -> Result<()>,
    /// Seconds that the step may take on two cores, once its tools are installed.
    pub budget: Option<u32>,
}

impl Step {
    pub const fn new(name: &'static str, run: fn() -> Result<()>) -> Self {
        Self { name, run, budget: None }
    }

    /// The step with a budget in seconds.
    pub const fn within(self, seconds: u32) -> Self {
        Self { budget: Some(seconds), ..self }
    }
}

/// A step that ended, and its time.
#[derive(Debug)]
pub struct Done {
    pub name: &'static str,
    pub seconds: f64,
    pub budget: Option<u32>,
    /// The reason of a failure.
    failure: Option<String>,
}

impl Done {
    pub fn is_over(&self) -> bool {
        self.budget.is_some_and(|budget| self.seconds > f64::from(budget))
    }

    fn line(&self) -> String {
        let Self { name, seconds, failure, .. } = self;
        let state = if failure.is_some() { "FAILED" } else { "passed" };
        let budget = self.budget.map(|budget| format!(" of {budget:>4} s")).unwrap_or_default();
        let over = if self.is_over() { "   OVER ITS BUDGET" } else { "" };
        let reason = failure.as_ref().map(|reason| format!("   {reason}")).unwrap_or_default();
        format!("{name:<10} {state} {seconds:>8.1} s{budget}{over}{reason}")
    }
}

/// Steps that run one after the other, and others that run beside them in the same way.
#[derive(Debug)]
pub struct Round {
    pub steps: &'static [Step],
    pub beside: &'static [Step],
    pub folder: Folder,
}

/// Where the steps beside build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// In their own folder, because cargo locks a folder while it builds.
    Own,
    /// In that of the other steps, where all that they need has been built.
    Shared,
}

/// Runs steps one after the other, those after one that failed too.
#[derive(Debug, Default)]
pub struct Steps {
    done: Vec<Done>,
    /// The last output of the commands that failed.
    printed: Vec<String>,
}

impl Steps {
    /// Runs all steps of a chore and prints the time of each. Fails if one did.
    pub fn run(chore: &str, steps: &'static [Step]) -> Result<()> {
        Self::run_rounds(chore, &[Round { steps, beside: &[], folder: Folder::Shared }]).map(|_| ())
    }

    /// Runs one round after the other. Each step beside is a process of its own, whose output is shown when it ends. Returns the times.
    pub fn run_rounds(chore: &str, rounds: &[Round]) -> Result<Vec<Done>> {
        let start = Instant::now();
        let done = rounds.iter().fold(Self::default(), |done, round| done.add(Self::round(chore, round)));
        done.finish(chore, start)
    }

    fn round(chore: &str, round: &Round) -> Self {
        thread::scope(|scope| {
            let beside = scope.spawn(|| {
                let mut this = Self::default();
                for step in round.beside {
                    this.step(*step, || process(chore, step.name, round.folder));
                }
                this
            });
            let mut this = Self::default();
            for step in round.steps {
                println!("\n== {}", step.name);
                this.step(*step, step.run);
            }
            this.add(beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// Runs the step of that name.
    pub fn one(chore: &str, steps: &[Step], name: &str) -> Result<()> {
        match steps.iter().find(|step| step.name == name) {
            Some(step) => {
                let start = Instant::now();
                let result = (step.run)();
                println!("{chore} {name}: {:.1} s", start.elapsed().as_secs_f64());
                result
            }
            None => {
                let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
                bail!("{chore} has no `{name}`: {}", names.join(", "))
            }
        }
    }

    fn add(mut self, mut other: Self) -> Self {
        self.done.append(&mut other.done);
        self.printed.append(&mut other.printed);
        self
    }

    fn step(&mut self, step: Step, run: impl FnOnce() -> Result<()>) {
        let start = Instant::now();
        let result = run();
        let seconds = start.elapsed().as_secs_f64();
        let failure = result.err().map(|error| {
            let error = format!("{error:#}");
            let (reason, printed) = error.split_once('\n').unwrap_or((&error, ""));
            if !printed.is_empty() {
                self.printed.push(format!("{} printed at last:\n{printed}", step.name));
            }
            reason.to_owned()
        });
        self.done.push(Done { name: step.name, seconds, budget: step.budget, failure });
    }

    fn finish(self, chore: &str, start: Instant) -> Result<Vec<Done>> {
        let Self { done, printed } = self;
        for printed in printed {
            println!("\n{printed}");
        }
        println!("\n{}", done.iter().map(Done::line).collect::<Vec<_>>().join("\n"));
        let seconds = start.elapsed().as_secs_f64();
        let failed = done.iter().filter(|step| step.failure.is_some()).count();
        println!("{chore}: {} passed, {failed} failed, {seconds:.1} s", done.len() - failed);
        if failed > 0 {
            bail!("{failed} of {} failed", done.len());
        }
        Ok(done)
    }
}

/// Runs a step in a process of its own, and prints what that printed when it ends.
fn process(chore: &str, name: &str, folder: Folder) -> Result<()> {
    let (mut reader, writer) = std::io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args([chore, name]);
    if folder == Folder::Own {
        command.env("CARGO_TARGET_DIR", target_folder().join("beside"));
    }
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
