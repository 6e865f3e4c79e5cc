//! Hundreds of architectures, at small sizes: all of torchvision's classifiers, segmentation networks and video
//! classifiers, and those of transformers that `tools/models/definitions/zoo_*.py` list. Each is compiled, lowered at
//! load from the program of ExecuTorch's compiler, and quantized in every scheme, and compared with eager PyTorch.
//!
//! Ignored by default, because the models are generated: `cargo xtask test zoo` makes and runs all of them, which takes
//! hours, `cargo xtask test models` a few. The folder is `target/zoo`, or the one in RUSHLIGHT_ZOO; RUSHLIGHT_ONLY
//! lists the names to run. The results of a model are written to `target/zoo-results`, so that a run may be made in
//! parts. UPDATE_DOCS adds all results there to `zoo.json` beside these tests, from which a section of `docs/models.md`
//! is generated.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rushlight::runtime::Code;
use rushlight::{Compiler, Error, Module, Quantization, Scheme};
use rushlight_testing::page;
use rushlight_testing::recorded::{self, Failure, Recording};
use serde_json::{Map, Value as Json, json};

/// The beginning of the section.
const SECTION: &str = "\
## Architectures

`tools/models/generate.py --zoo` exports these architectures at small sizes with random weights: torchvision's with its builders,
those of transformers from configurations. Each is compiled for the reference operators and for the CPU backend, straight from
`torch.export.export` and after `run_decompositions()`. ExecuTorch's own portable program, and the one for its XNNPACK delegate,
are lowered at load. Each architecture is also quantized without PyTorch in every scheme.

A number is the maximum difference from eager PyTorch, relative to the largest element of the output. For a quantized model it is
the signal-to-noise ratio of the worst output in dB, followed by that of PyTorch's own flow. That is PT2E with `XNNPACKQuantizer`,
static and dynamic, for `int8` and `int8-dynamic`, and torchao's `quantize_` for the others. Both flows calibrate with the calls
that they are measured on. A star means that PyTorch's flow leaves more than half of the layers in float that Rushlight quantizes.
A number in parentheses refers to a reason below. An empty cell was not run yet.

`cargo xtask test zoo` writes this section.

";

/// Maximum difference from eager PyTorch, relative to the largest element of an output. It allows for f32 rounding in
/// another order of accumulation.
const TOLERANCE: f64 = 1e-4;

/// The same for programs that ExecuTorch lowered for XNNPACK. XNNPACK computes GELU without the approximation that the
/// model requests.
const XNNPACK_TOLERANCE: f64 = 1e-3;

/// The same for models where eager PyTorch in f32 deviates much from f64, in units of that deviation. In networks of
/// random weights, rounding errors grow from layer to layer.
const OF_ROUNDING: f64 = 4.0;

/// The tolerance, or that of the model's rounding if it is larger.
fn widened(recording: &Recording, tolerance: f64) -> f64 {
    let rounding = recording.beside("rounding.json").ok().and_then(|rounding| rounding["error"].as_f64());
    tolerance.max(OF_ROUNDING * rounding.unwrap_or_default())
}

/// Maximum loss of signal-to-noise ratio against PyTorch's flow, in dB. It applies below [`GOOD`], and if the flow
/// quantizes at least half as many layers.
const MAX_LOSS: f64 = 8.0;

/// Models that select their largest intermediate results. Noise may change the selection, and then the results are not
/// comparable.
const CHOOSING: [&str; 1] = ["transformers.rt_detr"];

/// See [`MAX_LOSS`].
const GOOD: f64 = 30.0;

/// Below this a report must warn, in dB.
const LOW: f64 = 10.0;

/// Result of a model in one configuration.
enum Cell {
    /// The largest difference.
    Agrees(f64),
    /// Signal-to-noise ratio in dB, infinite without noise, and the number of quantized layers.
    Quantized(f64, usize),
    /// Refused with a reason that is not a defect.
    Refused(String),
    Defect(String),
}

impl Cell {
    fn to_json(&self) -> Json {
        match self {
            Self::Agrees(error) => json!({ "error": error }),
            Self::Quantized(snr, layers) => {
                json!({ "snr": snr.is_finite().then_some(snr), "infinite": snr.is_infinite(), "layers": layers })
            }
            Self::Refused(reason) => json!({ "refused": reason }),
            Self::Defect(reason) => json!({ "defect": reason }),
        }
    }
}

/// Classifies an error of the compiler: a missing operator is a refusal, anything else a defect.
fn of_compiler(error: &Error) -> Cell {
    let text = error.to_string();
    match error.code() {
        Code::NotSupported | Code::OperatorMissing => Cell::Refused(text),
        _ => Cell::Defect(text),
    }
}

/// Runs one configuration; a panic is a defect.
fn cell(way: impl FnOnce() -> Result<Cell, Failure>) -> Cell {
    match catch_unwind(AssertUnwindSafe(way)) {
        Ok(Ok(cell)) => cell,
        Ok(Err(failure)) => Cell::Defect(failure),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Cell::Defect(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

fn compiler(recording: &Recording, form: usize) -> Compiler {
    recording
        .exported()
        .iter()
        .fold(Compiler::new(), |compiler, (method, files)| compiler.method(*method, &files[form]))
}

fn compiled(recording: &Recording, form: usize, backend: &str) -> Result<Cell, Failure> {
    let compiler = compiler(recording, form).backend(backend);
    let program = match compiler.compile() {
        Ok(program) => program,
        Err(error) => return Ok(of_compiler(&error)),
    };
    let file = program.to_bytes().map_err(|e| e.to_string())?;
    drop(program);
    let mut module = Module::builder().lower("off").load_bytes(&file).map_err(|e| format!("load: {e}"))?;
    Ok(Cell::Agrees(recording.run_within_tolerance(&mut module, widened(recording, TOLERANCE))?))
}

/// Runs a program of ExecuTorch's compiler; refused if there is none.
fn lowered(recording: &Recording, file: &str) -> Result<Cell, Failure> {
    let path = recording.folder().join(file);
    if !path.exists() {
        let made = recording.beside("lowered.json")?;
        let reason = made[file]["error"].as_str().unwrap_or("it was not made");
        return Ok(Cell::Refused(format!("ExecuTorch's compiler: {reason}")));
    }
    let mut module = match Module::builder().lower("cpu").load(&path) {
        Ok(module) => module,
        Err(error) => return Ok(of_compiler(&error)),
    };
    if let Err(error) = module.report() {
        return Ok(of_compiler(error));
    }
    let tolerance = if file == "xnnpack.pte" { XNNPACK_TOLERANCE } else { TOLERANCE };
    Ok(Cell::Agrees(recording.run_within_tolerance(&mut module, widened(recording, tolerance))?))
}

fn quantized(recording: &Recording, scheme: Scheme) -> Result<Cell, Failure> {
    let mut quantization = Quantization::new(scheme);
    for (method, inputs) in recording.inputs()? {
        quantization = quantization.calibrate(method, vec![inputs]);
    }
    let compiler = compiler(recording, 0).backend("cpu");
    let program = match compiler.quantize(quantization).compile() {
        Ok(program) => program,
        Err(error) if error.code() == Code::InvalidArgument => return Ok(Cell::Refused(error.to_string())),
        Err(error) => return Ok(of_compiler(&error)),
    };
    let file = program.to_bytes().map_err(|e| e.to_string())?;
    let report = program.quantization();
    let warns = report.is_some_and(|report| !report.warnings.is_empty());
    let layers = report.map_or(0, |report| report.layers.iter().filter(|layer| layer.kept.is_none()).count());
    drop(program);
    let mut module = Module::builder().lower("off").load_bytes(&file).map_err(|e| format!("load: {e}"))?;
    let pytorch = recording.beside("quantized.json").unwrap_or_default();
    let pytorch = &pytorch[scheme.name];
    let snr = match recording.signal_to_noise(&mut module) {
        Err(_) if has_other_sizes(pytorch) => {
            return Ok(Cell::Refused(
                "the sizes of its results depend on the rounded weights, as in PyTorch's flow".to_owned(),
            ));
        }
        snr => snr?,
    };
    if snr < LOW && !warns {
        return Ok(Cell::Defect(format!("{snr:.1} dB without a warning")));
    }
    match pytorch["snr"].as_f64() {
        Some(theirs)
            if snr < GOOD.min(theirs - MAX_LOSS)
                && !quantizes_few(pytorch, layers as u64)
                && !CHOOSING.contains(&recording.name.as_str()) =>
        {
            Ok(Cell::Defect(format!("{snr:.1} dB, where PyTorch's flow reaches {theirs:.1} dB")))
        }
        _ => Ok(Cell::Quantized(snr, layers)),
    }
}

/// True if the results of PyTorch's flow have other sizes than those of the float model, too.
fn has_other_sizes(pytorch: &Json) -> bool {
    pytorch["error"].as_str().is_some_and(|error| error.contains("must match the size of tensor"))
}

/// True if PyTorch's flow leaves more than half of the layers in floats.
fn quantizes_few(pytorch: &Json, layers: u64) -> bool {
    pytorch["layers"].as_u64().is_some_and(|theirs| 2 * theirs < layers)
}

/// The configurations of a model with their results, by name.
fn row(recording: &Recording) -> Map<String, Json> {
    let mut cells = Map::new();
    let mut put = |name: &str, way: &dyn Fn() -> Result<Cell, Failure>| {
        let start = Instant::now();
        let cell = cell(way);
        if let Cell::Defect(reason) = &cell {
            println!("{} {name}: {}", recording.name, reason.replace('\n', " | "));
        }
        let mut json = cell.to_json();
        json["seconds"] = json!((start.elapsed().as_secs_f64() * 10.0).round() / 10.0);
        cells.insert(name.to_owned(), json);
    };
    for (form, label) in ["exported", "decomposed"].into_iter().enumerate() {
        for backend in ["portable", "cpu"] {
            put(&format!("{label} {backend}"), &|| compiled(recording, form, backend));
        }
    }
    if recording.folder().join("lowered.json").exists() {
        for file in ["model.pte", "xnnpack.pte"] {
            put(file, &|| lowered(recording, file));
        }
    }
    for scheme in Scheme::ALL {
        put(scheme.name, &|| quantized(recording, scheme));
    }
    cells
}

fn results() -> PathBuf {
    recorded::folder("RUSHLIGHT_ZOO_RESULTS", "zoo-results")
}

fn read(path: &Path) -> Json {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
#[ignore = "needs the generated models"]
fn architectures_compile_lower_and_quantize() {
    let folder = results();
    fs::create_dir_all(&folder).unwrap();
    let mut defects = Vec::new();
    let mut count = 0;
    for recording in recorded::wanted("RUSHLIGHT_ZOO", "zoo") {
        let start = Instant::now();
        let path = folder.join(format!("{}.json", recording.name));
        // This file remains if the process ends while it runs the model.
        let ended = json!({ "name": recording.name, "cells": { "all": { "defect": "the process ended" } } });
        fs::write(&path, ended.to_string()).unwrap();
        let cells = row(&recording);
        let found = cells.iter().filter_map(|(way, cell)| Some((way, cell["defect"].as_str()?)));
        let found: Vec<_> = found.map(|(way, why)| format!("{} {way}: {}", recording.name, one_line(why))).collect();
        println!("{}: {} defects, {:.1} s", recording.name, found.len(), start.elapsed().as_secs_f64());
        defects.extend(found);
        let pytorch = recording.beside("quantized.json").unwrap_or_default();
        let (name, family) = (&recording.name, recording.family());
        let row = json!({ "name": name, "family": family, "cells": cells, "pytorch": pytorch });
        fs::write(&path, format!("{row:#}\n")).unwrap();
        count += 1;
    }
    println!("{count} architectures");
    assert!(defects.is_empty(), "{} defects:\n{}", defects.len(), defects.join("\n"));
}

/// `zoo.json` has the latest result of each architecture, by name. With UPDATE_DOCS, new results are added to it, and
/// the section of the page is written. Otherwise, the section must match the record, and the record must have no
/// defects.
#[test]
fn the_page_has_all_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (record, page) = (folder.join("zoo.json"), folder.join("../../docs/models.md"));
    let Json::Object(mut rows) = read(&record) else { panic!("the record is an object") };
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let files = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let refused = recorded::folder("RUSHLIGHT_ZOO", "zoo").join("refused");
        for row in files(results()).chain(files(refused)).map(|path| read(&path)) {
            rows.insert(row["name"].as_str().unwrap_or_default().to_owned(), kept(&row));
        }
        rows.sort_keys();
        let lines: Vec<String> = rows.iter().map(|(name, row)| format!("{}: {row}", json!(name))).collect();
        fs::write(&record, format!("{{\n{}\n}}\n", lines.join(",\n"))).unwrap();
        page::put_section(&page, &section(&rows)).unwrap();
    }
    assert!(page::section(&page).unwrap() == section(&rows), "docs/models.md is out of date: run with UPDATE_DOCS=1");
    let defects: Vec<&String> =
        rows.iter().filter(|(_, row)| row.to_string().contains("\"defect\"")).map(|row| row.0).collect();
    assert!(defects.is_empty(), "defects of {defects:?}");
}

/// The part of a result that is kept: no times, no folders of this machine, and only the digits that the page shows.
fn kept(row: &Json) -> Json {
    let cell = |cell: &Json| {
        let mut kept = Map::new();
        for (key, value) in cell.as_object().into_iter().flatten() {
            let value = match (key.as_str(), value) {
                ("seconds", _) => continue,
                ("infinite", Json::Bool(false)) => continue,
                ("error", Json::Number(error)) => json!(format!("{:.0e}", error.as_f64().unwrap_or_default())),
                ("snr", Json::Number(snr)) => json!((snr.as_f64().unwrap_or_default() * 10.0).round() / 10.0),
                (_, Json::String(text)) => json!(one_line(text)),
                (_, other) => other.clone(),
            };
            kept.insert(key.clone(), value);
        }
        Json::Object(kept)
    };
    let cells = |of: &Json| -> Map<String, Json> {
        of.as_object().into_iter().flatten().map(|(name, one)| (name.clone(), cell(one))).collect()
    };
    match row["refused"].as_str() {
        Some(reason) => json!({ "family": row["family"], "refused": one_line(reason) }),
        None => json!({ "family": row["family"], "cells": cells(&row["cells"]), "pytorch": cells(&row["pytorch"]) }),
    }
}

const WAYS: [(&str, &str); 6] = [
    ("exported portable", "exported"),
    ("exported cpu", "CPU"),
    ("decomposed portable", "decomposed"),
    ("decomposed cpu", "CPU"),
    ("model.pte", "ExecuTorch's"),
    ("xnnpack.pte", "XNNPACK's"),
];

fn section(rows: &Map<String, Json>) -> String {
    let mut text = String::from(SECTION);
    // A new scheme has a column once the architectures were run with it.
    let is_recorded = |name: &&str| rows.values().any(|row| !row["cells"][name].is_null());
    let schemes: Vec<&str> = Scheme::ALL.iter().map(|scheme| scheme.name).filter(is_recorded).collect();
    let ways: Vec<&str> = WAYS.iter().map(|(_, title)| *title).collect();
    text += &format!("| model | {} | {} |\n", ways.join(" | "), schemes.join(" | "));
    text += &format!("|---|{}\n", "--:|".repeat(WAYS.len() + schemes.len()));
    let mut reasons: Vec<String> = Vec::new();
    let mut refused = String::new();
    let mut made = 0;
    let mut rows: Vec<(&String, &Json)> = rows.iter().collect();
    rows.sort_by_key(|(name, row)| (row["family"].to_string(), *name));
    for (name, row) in rows {
        if let Some(reason) = row["refused"].as_str() {
            refused += &format!("| {name} | {} |\n", escaped(reason));
            continue;
        }
        made += 1;
        let mut cells: Vec<String> = WAYS.iter().map(|(way, _)| shown(&row["cells"][way], &mut reasons)).collect();
        for scheme in &schemes {
            let ours = shown(&row["cells"][scheme], &mut reasons);
            let theirs = &row["pytorch"][scheme];
            let theirs = match (&theirs["snr"], &theirs["error"]) {
                (Json::Number(snr), _) => {
                    let few = quantizes_few(theirs, row["cells"][scheme]["layers"].as_u64().unwrap_or_default());
                    format!("{:.1}{}", snr.as_f64().unwrap_or_default(), if few { "\\*" } else { "" })
                }
                (_, Json::String(error)) => note(&format!("PyTorch: {error}"), &mut reasons),
                (Json::Null, _) if theirs.is_object() => "∞".to_owned(),
                _ => String::new(),
            };
            cells.push(if theirs.is_empty() { ours } else { format!("{ours} / {theirs}") });
        }
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    text += &format!("\n{made} architectures.\n\nReasons:\n\n");
    for (index, reason) in reasons.iter().enumerate() {
        text += &format!("{}. {reason}\n", index + 1);
    }
    if !refused.is_empty() {
        text += "\n`torch.export` itself refuses these models:\n\n| model | reason |\n|---|---|\n";
        text += &refused;
    }
    text
}

fn shown(cell: &Json, reasons: &mut Vec<String>) -> String {
    match (&cell["error"], &cell["snr"], &cell["refused"], &cell["defect"]) {
        (Json::String(error), ..) => error.clone(),
        (_, Json::Number(snr), ..) => format!("{:.1}", snr.as_f64().unwrap_or_default()),
        (_, _, Json::String(reason), _) => note(reason, reasons),
        (.., Json::String(reason)) => format!("**{}**", note(reason, reasons)),
        _ if cell["infinite"] == true => "∞".to_owned(),
        _ => String::new(),
    }
}

/// The number of a reason, which is added if it is new.
fn note(reason: &str, reasons: &mut Vec<String>) -> String {
    let reason = one_line(reason);
    let index = reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    format!("({})", index + 1)
}

/// The beginning of a text, without the folders of installed Python packages.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().map(|word| word.rsplit_once("site-packages/").map_or(word, |(_, path)| path));
    words.collect::<Vec<_>>().join(" ").chars().take(240).collect()
}

fn escaped(text: &str) -> String {
    one_line(text).replace('|', "\\|")
}
