//! Programs that are lifted into the compiler's graph and compiled again compute the recorded results.

use std::path::{Path, PathBuf};

use rushlight::{Input, Lower, Module, TensorView};
use rushlight_compiler::{
    CompileOptions, compile, compile_pt2,
    front::pte::{LiftOptions, lift, lift_with},
};
use rushlight_format::shapes::{self, Place, RuleModel, SHAPES_KEY};
use rushlight_graph::text::Contents;
use rushlight_graph::{Bytes, Model};
use rushlight_testing::recorded::{self, Recording};

/// Programs that cannot be lifted, with part of the error.
const SKIPPED: &[(&str, &str)] = &[
    // The scratch arguments of `cortex_m` operators are memory that no instruction writes.
    ("1.5.1-cortex-m/attention_m55", "another dtype"),
    ("1.5.1-cortex-m/cnn_m4", "where nothing has written it"),
    ("1.5.1-cortex-m/cnn_m55", "where nothing has written it"),
    ("1.5.1-cortex-m/denoiser_m4", "another dtype"),
    ("1.5.1-cortex-m/denoiser_m55", "another dtype"),
    ("1.5.1-cortex-m/ds_cnn_m4", "another dtype"),
    ("1.5.1-cortex-m/ds_cnn_m55", "another dtype"),
    ("1.5.1-cortex-m/int8_io_m4", "another dtype"),
    ("1.5.1-cortex-m/keywords_m4", "another dtype"),
];

fn json_files(root: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let mut paths = Vec::new();
    for folder in folders.flatten() {
        let Ok(files) = std::fs::read_dir(folder.path()) else { continue };
        paths.extend(
            files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "json")),
        );
    }
    paths.sort();
    paths
}

fn read(path: &Path) -> Result<Bytes, String> {
    std::fs::read(path).map(Bytes::from).map_err(|error| format!("{}: {error}", path.display()))
}

fn text(model: Result<Model, rushlight_graph::Error>) -> Result<Model, String> {
    model.map_err(|error| format!("lift: {error}"))
}

/// Compiles a lifted model, makes the recorded calls, and returns their number and the program.
fn compile_and_run(model: Model, recording: &Recording) -> Result<(usize, Vec<u8>), String> {
    model.verify().map_err(|error| format!("verify: {error}"))?;
    let compiled = compile(model, &CompileOptions::default()).map_err(|error| format!("compile: {error}"))?;
    let file = compiled.program.to_bytes().map_err(|error| error.to_string())?;
    let mut module = Module::builder().lower(Lower::Off).load_bytes(&file).map_err(|error| format!("load: {error}"))?;
    let calls = recording.run(&mut module).map_err(|error| format!("run: {error}"))?;
    Ok((calls, file))
}

/// Lifts and compiles a recorded program, and then the result again.
fn round_trip(recording: &Recording) -> Result<usize, String> {
    let data = recording.data().iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let model = text(lift(&read(&recording.program())?, &data))?;
    let (calls, file) = compile_and_run(model, recording)?;
    let again = text(lift(&file.into(), &[])).map_err(|error| format!("again: {error}"))?;
    compile_and_run(again, recording).map_err(|error| format!("again: {error}"))?;
    Ok(calls)
}

/// Compiles the exported program and lifts the result.
fn round_trip_of_compiled(recording: &Recording) -> Result<usize, String> {
    let exported = recording.exported();
    let files = exported.iter().map(|(method, files)| Ok((*method, read(&files[0])?)));
    let files = files.collect::<Result<Vec<_>, String>>()?;
    let Ok(compiled) = compile_pt2(&files, &CompileOptions::default()) else { return Ok(0) };
    let file = compiled.program.to_bytes().map_err(|error| error.to_string())?;
    // Errors of the compiler itself are the subject of other tests.
    let mut module = Module::builder().lower(Lower::Off).load_bytes(&file).map_err(|error| format!("load: {error}"))?;
    if recording.run(&mut module).is_err() {
        return Ok(0);
    }
    compile_and_run(text(lift(&file.into(), &[]))?, recording).map(|(calls, _)| calls)
}

/// Runs a round trip on every recording, and reports the failures. Returns the number of programs and calls.
fn check(paths: &[PathBuf], trip: impl Fn(&Recording) -> Result<usize, String>) -> (usize, usize) {
    let mut failures = Vec::new();
    let (mut programs, mut calls) = (0, 0);
    for path in paths {
        let start = std::time::Instant::now();
        let recording = Recording::open(path).unwrap();
        let name =
            format!("{}/{}", path.parent().and_then(Path::file_name).unwrap_or_default().display(), recording.name);
        let skipped = SKIPPED.iter().find(|(skipped, _)| *skipped == name);
        match (trip(&recording), skipped) {
            (Ok(count), None) => {
                println!("{name}: {count} calls agree, {:.2} s", start.elapsed().as_secs_f64());
                programs += usize::from(count > 0);
                calls += count;
            }
            (Ok(_), Some(_)) => failures.push(format!("{name}: passes, and is named as one that does not")),
            (Err(failure), Some((_, reason))) if failure.contains(reason) => {}
            (Err(failure), _) => {
                let failure = format!("{name}: {}", failure.replace('\n', " | "));
                println!("{failure}");
                failures.push(failure);
            }
        }
    }
    println!("{programs} of {} programs, {calls} calls", paths.len());
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), paths.len(), failures.join("\n"));
    (programs, calls)
}

#[test]
fn lifted_programs_of_the_corpus_give_the_recorded_results() {
    let paths = json_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus"));
    let (programs, _) = check(&paths, round_trip);
    assert!(programs >= 30, "{programs} programs");
}

#[test]
fn delegates_stay_where_that_is_asked_for() {
    for path in json_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")) {
        let recording = Recording::open(&path).unwrap();
        let [backend, ..] = recording.backends()[..] else { continue };
        let file = read(&recording.program()).unwrap();
        let lift = LiftOptions { keep: vec![backend.to_owned()], ..LiftOptions::default() };
        let model = match lift_with(&file, &[], &lift) {
            // Their delegates give sizes.
            Err(error)
                if error.to_string().contains("gives an integer") && path.ends_with("1.5.1-vulkan/attention.json") =>
            {
                continue;
            }
            lifted => lifted.unwrap(),
        };
        assert!(model.delegates.iter().any(|(_, delegate)| delegate.backend == backend), "{}", path.display());
    }
}

fn models() -> Vec<PathBuf> {
    recorded::wanted_paths("RUSHLIGHT_MODELS", "models")
}

#[test]
#[ignore = "needs the generated models"]
fn lifted_models_give_the_recorded_results() {
    check(&models(), |recording| if recording.has_program() { round_trip(recording) } else { Ok(0) });
}

#[test]
#[ignore = "needs the generated models"]
fn lifted_output_of_the_compiler_gives_the_recorded_results() {
    check(
        &models(),
        |recording| {
            if recording.exported().is_empty() { Ok(0) } else { round_trip_of_compiled(recording) }
        },
    );
}

/// `(x[:, 1:] - x[:, :1]) * x`: the rules about sizes say that `x` is two wide, so the column broadcasts.
#[test]
fn static_sizes_beside_dynamic_ones_stay_known() {
    let text = "method forward {
      symbol s0 in 0..=8
      input %x : f32[s0, 2]
      %first = aten::slice_copy.Tensor(%x, 1, 0, 1, 1) : f32[s0, 1]
      %second = aten::slice_copy.Tensor(%x, 1, 1, 2, 1) : f32[s0, 1]
      %step = aten::sub.Tensor(%second, %first, 1) : f32[s0, 1]
      %y = aten::mul.Tensor(%step, %x) : f32[s0, 2]
      return %y
    }";
    let mut model = Model::parse(text, &Contents::default()).unwrap();
    let rules = [RuleModel::Fixed { place: Place { input: 0, dim: 1 }, size: 2 }];
    let blob = shapes::write([("forward", rules.as_slice())]).unwrap();
    model.named_data.push((SHAPES_KEY.to_owned(), blob.into()));
    let program = compile(model, &CompileOptions::default()).unwrap().program.to_bytes().unwrap();
    let mut module = Module::builder().lower("cpu").threads(1).load_bytes(&program).unwrap();
    for rows in [0, 1, 3, 8] {
        let x: Vec<f32> = (0..2 * rows).map(|index| (index * index) as f32).collect();
        let y: Vec<f32> = x.chunks(2).flat_map(|row| row.iter().map(|x| (row[1] - row[0]) * x)).collect();
        let outputs = module.run("forward", &[Input::from(TensorView::of(&[rows, 2], &x).unwrap())]).unwrap();
        assert_eq!(outputs[0].as_tensor().unwrap().as_slice::<f32>().unwrap(), y);
    }
}
