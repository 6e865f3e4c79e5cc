//! The harness of tests that are text files, `tests/filetests/<folder>/<name>.graph`. The compiler and the backends run
//! them with their own commands.
//!
//! ```text
//! # A node whose result nothing uses is removed.
//! # run: dead-code
//!
//! method "forward" {
//!   input %x : f32[2]
//!   %dead = aten::relu(%x) : f32[2]
//!   return %x
//! }
//!
//! ---
//!
//! method "forward" {
//!   input %x : f32[2]
//!   return %x
//! }
//! ```
//!
//! The first comment says what the file shows. `# run:` lists the steps, in order and separated by commas. The model
//! stands above the line `---`, in the text form of [`text`](crate::text). The result of the last step stands below it:
//! the model as text, a listing, or `# error:` with the kind and the text of the error. Each method of a model is a
//! separate case, except if methods share constants or states. The model is verified before the first step and after
//! each.
//!
//! `UPDATE_FILETESTS=1` writes the output below the line instead of comparing it. `RUSHLIGHT_FILETEST=dead-code/` runs
//! only the files whose path contains this text.

mod diff;
mod file;

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::text::{Contents, Detail};
use crate::{ConstantData, Error, Model};

pub use file::{File, Step};

/// The result of a step.
#[derive(Debug)]
pub enum Outcome {
    /// The step changed the model.
    Model,
    /// A listing.
    Text(String),
}

/// The reason why a step has no result.
#[derive(Debug)]
pub enum Failure {
    /// The compiler refuses the model, which a file may expect.
    Compile(Error),
    /// The step is malformed.
    Usage(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Compile(error)
    }
}

impl Failure {
    /// An option that the step does not have.
    pub fn unknown_option(key: &str) -> Self {
        Self::Usage(format!("no option `{key}`"))
    }
}

/// The files of one test binary.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// The folder `tests/filetests` of the repository, or one in it.
    pub root: &'static str,
    /// Folders below the root whose files other binaries run.
    pub others: &'static [&'static str],
    /// The package whose test `filetests` this is, for the command that rewrites the expectations.
    pub package: &'static str,
}

/// Computed constants of up to this many bytes are written to the output.
const SHORT: usize = 64;

impl Suite {
    /// The `.graph` files, in the order of their paths.
    pub fn paths(&self) -> Vec<PathBuf> {
        let others: Vec<PathBuf> = self.others.iter().map(|other| Path::new(self.root).join(other)).collect();
        let mut found = Vec::new();
        let mut open = vec![PathBuf::from(self.root)];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.extend((!others.contains(&path)).then_some(path));
                } else if path.extension().is_some_and(|extension| extension == "graph") {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Runs the files with the commands of `run`, on all cores.
    ///
    /// # Panics
    /// If a file fails, or none is selected.
    pub fn run(&self, run: impl Fn(&Step, &mut Model) -> Result<Outcome, Failure> + Sync) {
        let filter = std::env::var("RUSHLIGHT_FILETEST").unwrap_or_default();
        let shown = |path: &Path| path.strip_prefix(self.root).unwrap().display().to_string();
        let paths: Vec<PathBuf> = self.paths().into_iter().filter(|path| shown(path).contains(&filter)).collect();
        assert!(!paths.is_empty() || !filter.is_empty(), "no file in {}", self.root);
        let is_updating = std::env::var_os("UPDATE_FILETESTS").is_some();
        let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // A panic in a pass must not hide the path.
                        let test = std::panic::AssertUnwindSafe(|| test(path, is_updating, &run));
                        let result = std::panic::catch_unwind(test);
                        let result = result.unwrap_or_else(|_| Err("panics, see above".into()));
                        if let Err(failure) = result {
                            failures.lock().unwrap().push(format!("{}: {failure}", shown(path)));
                        }
                    }
                });
            }
        });
        let mut failures = failures.into_inner().unwrap();
        failures.sort();
        assert!(
            failures.is_empty(),
            "\n{}\n\n{} of {} files fail; if what came is right, bless it and read the changes:\n  \
             UPDATE_FILETESTS=1 cargo test -p {} --test it filetests::\n",
            failures.join("\n\n"),
            failures.len(),
            paths.len(),
            self.package
        );
    }
}

/// Reads the value of a step's option.
pub fn parse_option<T: FromStr>(value: &str) -> Result<T, Failure> {
    value.parse().map_err(|_| Failure::Usage(format!("`{value}` is not a value of this option")))
}

/// Runs a file and compares its output with the expected one, or writes it there.
fn test(
    path: &Path,
    is_updating: bool,
    run: &impl Fn(&Step, &mut Model) -> Result<Outcome, Failure>,
) -> Result<(), String> {
    let text = fs::read_to_string(path).unwrap();
    let file = File::parse(&text)?;
    let got = output(&file, run)?;
    if got == file.expected {
        return Ok(());
    }
    if is_updating {
        // The file is replaced in one step, because other tests may read it at the same time.
        let written = path.with_extension("new");
        fs::write(&written, file.with_expected(&got)).unwrap();
        fs::rename(&written, path).unwrap();
        return Ok(());
    }
    Err(format!("- expected, + came\n{}", diff::lines(file.expected, &got)))
}

/// The result of the last step, or the error of the step that fails.
fn output(file: &File<'_>, run: &impl Fn(&Step, &mut Model) -> Result<Outcome, Failure>) -> Result<String, String> {
    let mut model = Model::parse(file.input, &Contents::default()).map_err(|error| format!("the model: {error}"))?;
    model.verify().map_err(|error| format!("the model: {error}"))?;
    let mut outcome = Outcome::Model;
    for step in &file.steps {
        if matches!(outcome, Outcome::Text(_)) {
            return Err(format!("`{}` stands behind a step that gives a listing, which must be the last", step.name));
        }
        outcome = match run(step, &mut model) {
            Ok(outcome) => outcome,
            Err(Failure::Usage(failure)) => return Err(format!("`{}`: {failure}", step.name)),
            Err(Failure::Compile(error)) => {
                let text = error.to_string().replace('\n', "\n#");
                return Ok(format!("# error: {:?}: {text}\n", error.kind()));
            }
        };
        model.verify().map_err(|error| format!("after `{}`: {error}", step.name))?;
    }
    materialize(&mut model)?;
    reads_back(&model)?;
    match outcome {
        Outcome::Model => Ok(model.to_text(Detail::Review).map_err(|error| error.to_string())?.0),
        Outcome::Text(text) => Ok(text),
    }
}

/// Computes short constants, because the text shows only constants that are already computed.
fn materialize(model: &mut Model) -> Result<(), String> {
    for id in model.constants.ids() {
        let constant = &mut model.constants[id];
        if matches!(constant.data, ConstantData::Computed(_)) && constant.len().is_ok_and(|len| len <= SHORT) {
            constant.data = ConstantData::Dense(constant.read().map_err(|error| error.to_string())?.to_vec().into());
        }
    }
    Ok(())
}

/// Checks that a model and the model parsed from its text have the same text.
fn reads_back(model: &Model) -> Result<(), String> {
    // Large constants that are computed on demand may take minutes.
    if model.constants.iter().any(|(_, constant)| matches!(constant.data, ConstantData::Computed(_))) {
        return Ok(());
    }
    let (text, contents) = model.to_text(Detail::Exact).map_err(|error| error.to_string())?;
    let read =
        Model::parse(&text, &contents).map_err(|error| format!("its text does not read back: {error}\n{text}"))?;
    let (again, _) = read.to_text(Detail::Exact).map_err(|error| error.to_string())?;
    if again == text { Ok(()) } else { Err(format!("its text reads back differently\n{}", diff::lines(&text, &again))) }
}
