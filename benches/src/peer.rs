//! An engine in its own process: ExecuTorch's, built from `executorch/worker.cpp`, which describes the commands; one of
//! `peers/worker.py`; or ours (`serve.rs`).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::interleaved::Stage;

/// A worker, and the folder for the files that it reads and writes.
pub struct Peer {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
}

/// Time and memory of loading a program.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// Nanoseconds from the name of the file to the loaded method.
    pub load: f64,
    /// Nanoseconds of the first execution.
    pub first: f64,
    /// Bytes that both added to the peak resident size of the process.
    pub added: f64,
}

impl Peer {
    /// Starts ExecuTorch's side.
    pub fn start(worker: &Path) -> Result<Self> {
        let folder = worker.parent().context("the worker is in no folder")?;
        Self::spawn(&mut Command::new(worker), folder)
    }

    /// Starts any side; its outputs are written to files in `folder`.
    pub fn spawn(worker: &mut Command, folder: &Path) -> Result<Self> {
        let folder = folder.to_owned();
        // Engines log errors to stderr and also return them as answers.
        let mut process = worker
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start `{}`", worker.get_program().display()))?;
        let commands = process.stdin.take().context("no stdin")?;
        let answers = BufReader::new(process.stdout.take().context("no stdout")?);
        Ok(Self { process, commands, answers, folder })
    }

    /// Loads a library that registers kernels, or one that such a library needs.
    pub fn library(&mut self, library: &str) -> Result<()> {
        self.ask(&format!("library {library}")).map(|_| ())
    }

    /// Loads the program's `forward` and sets its inputs.
    pub fn load<'b>(&mut self, program: &[u8], inputs: impl IntoIterator<Item = &'b [u8]>) -> Result<()> {
        let (program_file, inputs_file) = (self.folder.join("program.pte"), self.folder.join("inputs.bin"));
        std::fs::write(&program_file, program)?;
        std::fs::write(&inputs_file, inputs.into_iter().collect::<Vec<_>>().concat())?;
        self.ask(&format!("load {} {}", program_file.display(), inputs_file.display())).map(|_| ())
    }

    /// Loads the program from its file, for `threads` threads, and executes it once. The input is a float32 tensor of
    /// these sizes, whose values are in a file.
    pub fn open(&mut self, program: &Path, threads: usize, input: &Path, sizes: &str) -> Result<Opened> {
        let answer = self.ask(&format!("open {} {threads} {} {sizes}", program.display(), input.display()))?;
        let mut numbers = answer.split_whitespace().map(str::parse);
        let mut next = || anyhow::Ok(numbers.next().with_context(|| format!("too few numbers: {answer}"))??);
        Ok(Opened { load: next()?, first: next()?, added: next()? })
    }

    /// Sets another input of the opened program.
    pub fn input(&mut self, input: &Path, sizes: &str) -> Result<()> {
        self.ask(&format!("input {} {sizes}", input.display())).map(|_| ())
    }

    /// Nanoseconds that Rushlight took to lower the opened program.
    pub fn lowering(&mut self) -> Result<f64> {
        Ok(self.ask("lowering")?.parse()?)
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Executes at least `calls` times and for this long. Returns the median of the calls in nanoseconds.
    pub fn time(&mut self, calls: usize, at_least: Duration) -> Result<f64> {
        Ok(self.ask(&format!("time {calls} {}", at_least.as_nanos()))?.parse()?)
    }

    /// Executes the program, and returns the bytes of all output tensors.
    pub fn outputs(&mut self) -> Result<Vec<u8>> {
        let file = self.folder.join("outputs.bin");
        self.ask(&format!("outputs {}", file.display()))?;
        Ok(std::fs::read(file)?)
    }

    /// Times one stage of the program's life. Returns the median of batches, in nanoseconds.
    pub fn stage(&mut self, stage: Stage, batches: usize) -> Result<f64> {
        let name = match stage {
            Stage::Verify => "verify",
            Stage::Method => "method",
            Stage::Execute => "execute",
            Stage::Call => "call",
        };
        Ok(self.ask(&format!("stage {name} {batches}"))?.parse()?)
    }

    /// Runs a program of the folder `call`; returns the median over `batches` of the time of a call, in nanoseconds.
    pub fn batches(&mut self, batches: usize) -> Result<f64> {
        Ok(self.ask(&batches.to_string())?.parse()?)
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        writeln!(self.commands, "{command}")?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            bail!("it aborted");
        }
        match answer.trim().strip_prefix("error ") {
            Some(reason) => bail!("{reason}"),
            None => Ok(answer.trim().to_owned()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process also ends with its standard input, so a failure to kill it does no harm.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
