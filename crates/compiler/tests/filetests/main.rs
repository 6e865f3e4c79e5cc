//! Tests of passes, memory plans and emission as text files: `tests/filetests/<pass>/<name>.graph`.
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
//! The first comment says what the file shows. `# run:` lists the steps, in order and with commas between them: passes by
//! name, and the commands of [`command`]. Above the line `---` stands the model, in the text form of
//! `rushlight_graph::text`; below it what the last step gives: the model as text, a listing, or `# error:` with the
//! kind and the text of the error. Each method of a model is a case of its own, except where methods share constants or states. The model is
//! verified before the first step and after each.
//!
//! `UPDATE_FILETESTS=1` writes what came below the line instead of comparing it. `RUSHLIGHT_FILETEST=dead-code/` runs only
//! the files whose path contains this.

mod command;
mod diff;
mod file;
mod listing;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rushlight_compiler::passes;
use rushlight_graph::text::{Contents, Detail};
use rushlight_graph::{ConstantData, Model};

use command::{Failure, Outcome};
use file::File;

/// What rewrites the expectations.
const BLESS: &str = "UPDATE_FILETESTS=1 cargo test -p rushlight-compiler --test filetests";

/// Computed constants of up to this many bytes stand in the output.
const SHORT: usize = 64;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests")
}

/// The `.graph` files below a folder.
fn graphs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(graphs(&path));
        } else if path.extension().is_some_and(|extension| extension == "graph") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn files() {
    let root = root();
    let filter = std::env::var("RUSHLIGHT_FILETEST").unwrap_or_default();
    let shown = |path: &Path| format!("tests/filetests/{}", path.strip_prefix(&root).unwrap().display());
    let paths: Vec<PathBuf> = graphs(&root).into_iter().filter(|path| shown(path).contains(&filter)).collect();
    assert!(!paths.is_empty(), "no file matches RUSHLIGHT_FILETEST={filter}");
    let bless = std::env::var_os("UPDATE_FILETESTS").is_some();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // A panic in a pass must not hide the path.
                    let result = std::panic::catch_unwind(|| test(path, bless));
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
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "\n{}\n\n{count} of {} files fail; if what came is right, bless it and read the changes:\n  {BLESS}\n",
        failures.join("\n\n"),
        paths.len()
    );
}

#[test]
fn every_pass_has_a_file_and_a_name_of_its_own() {
    let texts: Vec<String> = graphs(&root()).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let files: Vec<File<'_>> = texts.iter().map(|text| File::parse(text).unwrap()).collect();
    let mut names = HashSet::new();
    for pass in passes::all() {
        let name = pass.name();
        assert!(names.insert(name.to_owned()), "two passes are called `{name}`");
        let has_file = files.iter().any(|file| file.steps.iter().any(|step| step.name == name));
        assert!(has_file, "no file of tests/filetests runs `{name}`");
    }
}

/// Runs a file and compares what it gives with what it expects, or writes that there.
fn test(path: &Path, bless: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).unwrap();
    let file = File::parse(&text)?;
    let got = output(&file)?;
    if got == file.expected {
        return Ok(());
    }
    if bless {
        // In one step, as other tests read the files at the same time.
        let written = path.with_extension("new");
        fs::write(&written, file.with_expected(&got)).unwrap();
        fs::rename(&written, path).unwrap();
        return Ok(());
    }
    Err(format!("- expected, + came\n{}", diff::lines(file.expected, &got)))
}

/// What the last step gives, or the error of the step that fails.
fn output(file: &File<'_>) -> Result<String, String> {
    let mut model = Model::parse(file.input, &Contents::default()).map_err(|error| format!("the model: {error}"))?;
    model.verify().map_err(|error| format!("the model: {error}"))?;
    let mut outcome = Outcome::Model;
    for step in &file.steps {
        if matches!(outcome, Outcome::Text(_)) {
            return Err(format!("`{}` stands behind a step that gives a listing, which must be the last", step.name));
        }
        outcome = match command::run(step, &mut model) {
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

/// Computes constants that the text shows, which it would not do for what is computed when it is written.
fn materialize(model: &mut Model) -> Result<(), String> {
    for id in model.constants.ids() {
        let constant = &mut model.constants[id];
        if matches!(constant.data, ConstantData::Computed(_)) && constant.len().is_ok_and(|len| len <= SHORT) {
            constant.data = ConstantData::Dense(constant.read().map_err(|error| error.to_string())?.to_vec().into());
        }
    }
    Ok(())
}

/// Checks that a model and what is read from its text have the same text.
fn reads_back(model: &Model) -> Result<(), String> {
    // What is large and computed when it is written may take minutes.
    if model.constants.iter().any(|(_, constant)| matches!(constant.data, ConstantData::Computed(_))) {
        return Ok(());
    }
    let (text, contents) = model.to_text(Detail::Exact).map_err(|error| error.to_string())?;
    let read =
        Model::parse(&text, &contents).map_err(|error| format!("its text does not read back: {error}\n{text}"))?;
    let (again, _) = read.to_text(Detail::Exact).map_err(|error| error.to_string())?;
    if again == text { Ok(()) } else { Err(format!("its text reads back differently\n{}", diff::lines(&text, &again))) }
}
