//! Every program of `tests/corpus`, of several versions of ExecuTorch, returns the recorded results: on the reference
//! operators, and lowered at load. So does every archive of `tests/archives`, after it is compiled.
//!
//! `cargo xtask test writers` makes such files with all versions, in `target/writers` or the folder that RUSHLIGHT_WRITERS names.

use std::path::{Path, PathBuf};

use rushlight::{Compiler, Lower, Module};
use rushlight_testing::recorded::{self, Recording};

/// The folder in the repository with such files.
fn kept(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(kind)
}

fn recordings(corpus: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for generation in
        std::fs::read_dir(corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display())).flatten()
    {
        paths.extend(recordings_of(&generation.path()));
    }
    paths.sort();
    paths
}

/// The recordings of one generation.
fn recordings_of(generation: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(generation).into_iter().flatten().flatten();
    files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

/// True if operators may take square roots. `libm` has assembly for them that Miri does not run.
fn has_roots(recording: &Recording) -> bool {
    let Ok(bytes) = std::fs::read(recording.program()) else { return true };
    let Ok(program) = rushlight_format::Program::parse(&bytes) else { return true };
    let mut operators =
        program.methods().flat_map(|plan| (0..plan.num_operators()).filter_map(move |i| plan.operator(i)));
    operators.any(|operator| operator.name.contains("norm") || operator.name.contains("sqrt"))
}

/// Runs every program of a folder, and returns their number.
fn check_programs(corpus: &Path) -> usize {
    let paths = recordings(corpus);
    let mut failures = Vec::new();
    let (mut programs, mut calls) = (0, 0);
    for path in &paths {
        let result = Recording::open(path).and_then(|recording| {
            // Miri tests the runtime alone: it lacks the instructions of the CPU backend, and is too slow.
            if cfg!(miri) {
                let runs = recording.backends().is_empty() && !has_roots(&recording);
                return if runs { recording.run(&mut recording.load("off")?) } else { Ok(0) };
            }
            let mut lowered = recording.load("cpu")?;
            let Some(backend) = recording.backends().into_iter().next() else {
                recording.run(&mut lowered).map_err(|failure| format!("lowered: {failure}"))?;
                return recording.run(&mut recording.load("off")?);
            };
            // Programs that need a backend are kept to test the error that names it, and to be lowered.
            match recording.load("off")?.load_method("forward") {
                Err(error) if error.to_string().contains(backend) => {}
                Err(error) => return Err(format!("another error than the missing backend: {error}")),
                Ok(()) => return Err("it loaded without its backend".to_owned()),
            }
            // Lowering turns the delegate back into operators.
            lowered.load_method("forward").map_err(|error| format!("lowered: {error}"))?;
            recording.run(&mut lowered).map_err(|failure| format!("lowered: {failure}"))
        });
        match result {
            Ok(count) => {
                programs += 1;
                calls += count;
            }
            Err(failure) => failures.push(format!("{}: {failure}", path.display())),
        }
    }
    println!("{programs} programs, {calls} calls");
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), paths.len(), failures.join("\n"));
    programs
}

/// Compiles every archive of a folder, for the CPU backend and without it, and runs the results. Returns the number of
/// archives.
fn check_archives(archives: &Path) -> usize {
    let paths = recordings(archives);
    let mut failures = Vec::new();
    for path in &paths {
        let result = Recording::open(path).and_then(|recording| {
            for backend in [None, Some("cpu")] {
                let mut compiler = Compiler::new();
                if let Some(backend) = backend {
                    compiler = compiler.backend(backend);
                }
                for (method, [file, _]) in recording.exported() {
                    compiler = compiler.method(method, file);
                }
                let program = compiler.compile().and_then(|compiled| compiled.to_bytes()).map_err(|e| e.to_string())?;
                let module = Module::builder().lower(Lower::Off).load_bytes(&program);
                recording.run(&mut module.map_err(|e| e.to_string())?)?;
            }
            Ok(())
        });
        failures.extend(result.err().map(|failure| format!("{}: {failure}", path.display())));
    }
    println!("{} archives", paths.len());
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), paths.len(), failures.join("\n"));
    paths.len()
}

/// The last section of `docs/versions.md`, up to its rows.
const PAGE_END: &str = "\
## What was checked

`UPDATE_DOCS=1 cargo xtask test writers` writes this table. It runs programs and archives that these versions wrote. All results agree
with those of the version's own runtime, or with PyTorch's. Programs run on the CPU backend, and on the reference operators if they have
no delegates.

| ExecuTorch | torch | `flatbuffers` | programs | archives |
|---|---|---|--:|--:|
";

/// Writes the table of the versions whose files have passed.
fn write_page(folder: &Path) {
    let mut rows = std::collections::BTreeMap::new();
    for path in recordings(&folder.join("corpus")) {
        let recording = Recording::open(&path).unwrap();
        let environment = recording.folder().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (_, flatbuffers) = environment.split_once("-flatbuffers-").unwrap_or(("", "25.12.19"));
        let [executorch, torch] = ["executorch", "torch"].map(|package| recording.made_with(package).to_owned());
        let archives = recordings_of(&folder.join("archives").join(&environment)).len();
        *rows.entry((executorch, torch, flatbuffers.to_owned(), archives)).or_insert(0) += 1;
    }
    let row = |((executorch, torch, flatbuffers, archives), programs): (&(String, String, String, usize), &usize)| {
        format!("| {executorch} | {torch} | {flatbuffers} | {programs} | {archives} |\n")
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/versions.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (heading, _) = PAGE_END.split_once('\n').unwrap();
    let before = page.split(heading).next().unwrap_or_default().trim_end();
    std::fs::write(&path, format!("{before}\n\n{PAGE_END}{}", rows.iter().map(row).collect::<String>())).unwrap();
}

#[test]
fn programs_of_every_generation_give_the_recorded_results() {
    let programs = check_programs(&kept("corpus"));
    assert!(programs >= 100, "the corpus is incomplete: {programs} programs");
}

#[test]
fn archives_of_every_generation_give_the_recorded_results() {
    let archives = check_archives(&kept("archives"));
    assert!(archives >= 9, "there are few archives: {archives}");
}

#[test]
#[ignore = "needs what other versions of the writers wrote"]
fn files_of_all_versions_give_the_recorded_results() {
    let folder = recorded::folder("RUSHLIGHT_WRITERS", "writers");
    let (programs, archives) = (check_programs(&folder.join("corpus")), check_archives(&folder.join("archives")));
    assert!(programs >= 10 && archives >= 3, "few files: {programs} programs, {archives} archives");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        write_page(&folder);
    }
}
