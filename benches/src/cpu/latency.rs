//! The time of one execution.

use std::fmt::Write as _;

use anyhow::Result;

use super::engines::{Engine, Engines, OPENVINO_BF16, OURS, OURS_BF16, OURS_INT8, PEERS, PEERS_INT8, Precision};
use super::sides::{ROUNDS, Sides, TURN};
use super::{IMAGE_SHAPE, Missing, THREADS, cell, fastest, header, ours, ratio, row, threads_of};
use crate::document::{conditions, milliseconds};
use crate::interleaved::geometric_mean;

/// One model's row for one number of threads: the peers, OpenVINO and ours in bf16, and ours.
struct Row {
    model: String,
    others: f64,
    /// Nanoseconds, by number of threads and engine.
    times: [Vec<Option<f64>>; THREADS.len()],
}

/// In float32, and bf16 beside it.
pub fn run(engines: &Engines, models: &[&str]) -> Result<String> {
    let columns: Vec<&'static Engine> = PEERS.into_iter().chain([&OPENVINO_BF16, &OURS_BF16, &OURS]).collect();
    let about = format!(
        "Milliseconds of one execution in float32 at 224x224, batch 1. {HOW} All results were first found to agree \
         with eager PyTorch. *Ratio* is Rushlight's time over that of the fastest peer in float32; above 1, Rushlight \
         is slower. *Other work* is the number of cores that other programs kept busy. *OpenVINO bf16* is its \
         precision hint, which it follows only on processors with bf16 instructions. Rushlight rounds weights to bf16, \
         and on such processors also the activations."
    );
    table(engines, models, &columns, "cargo xtask bench cpu latency", &about, |model, missing| {
        for precision in [Precision::F32, Precision::Bf16] {
            missing.unless(&format!("{model}, compiling in {}", precision.name()), engines.compile(model, precision));
        }
    })
}

/// In int8: each engine with what its own tools make of the model.
pub fn run_int8(engines: &Engines, models: &[&str]) -> Result<String> {
    let columns: Vec<&'static Engine> = PEERS_INT8.into_iter().chain([&OURS_INT8]).collect();
    let about = format!(
        "Milliseconds of one execution in int8 at 224x224, batch 1. {HOW} All models are quantized with the same four \
         inputs. Rushlight and ExecuTorch use PT2E with the XNNPACKQuantizer (per-channel weights), ONNX Runtime its \
         `quantize_static` (QDQ, per-channel weights), OpenVINO NNCF, and LiteRT ai-edge-quantizer (static, \
         `wi8_ai8`). *Ratio* is Rushlight's time over that of the fastest peer; above 1, Rushlight is slower. *Other \
         work* is the number of cores that other programs kept busy."
    );
    table(engines, models, &columns, "cargo xtask bench cpu int8", &about, |model, missing| {
        missing.unless(&format!("{model}, compiling in int8"), engines.compile_int8(model));
    })
}

/// Whose turn it is when.
const HOW: &str = "Times are medians of rounds in which all engines take turns, with one thread and with two, each in its \
                   own process.";

fn table(
    engines: &Engines,
    models: &[&str],
    columns: &[&'static Engine],
    command: &str,
    about: &str,
    compile: impl Fn(&str, &mut Missing),
) -> Result<String> {
    let mut missing = Missing::default();
    let mut rows = Vec::with_capacity(models.len());
    for model in models {
        compile(model, &mut missing);
        rows.push(measured(engines, model, columns, &mut missing)?);
    }
    let mut text = conditions(command);
    let _ = write!(text, "\n\n{about} Rounds: {ROUNDS}, turns: {} ms.\n", TURN.as_millis());
    let has_bf16 = columns.iter().any(|column| column.name == OURS_BF16.name);
    for (number, threads) in THREADS.iter().enumerate() {
        let _ = write!(text, "\n### {}\n", threads_of(*threads));
        println!("{threads} threads");
        let names = columns.iter().map(|engine| engine.name);
        let ratios: &[&str] = if has_bf16 { &["ratio", "ratio, bf16"] } else { &["ratio"] };
        let titles = ["model"].into_iter().chain(names).chain(ratios.iter().copied()).chain(["other work"]);
        text.push_str(&header(titles));
        for measured in &rows {
            let times = &measured.times[number];
            let cells = times.iter().map(|&time| cell(time, milliseconds));
            let mut rest = vec![cell(ours(times).zip(fastest(times)).map(|(ours, fastest)| ours / fastest), ratio)];
            if has_bf16 {
                let of = |engine: &Engine| times[columns.iter().position(|column| column.name == engine.name)?];
                rest.push(cell(of(&OURS_BF16).zip(of(&OPENVINO_BF16)).map(|(ours, theirs)| ours / theirs), ratio));
            }
            rest.push(ratio(measured.others));
            row(&mut text, [measured.model.clone()].into_iter().chain(cells).chain(rest));
        }
        let means = (0..columns.len())
            .map(|column| mean(&rows, |row| Some((ours(&row.times[number])?, row.times[number][column]?))));
        text.push_str("\nGeometric means of Rushlight's time over that of\n\n");
        for (engine, mean) in
            columns.iter().zip(means).filter(|(engine, _)| ![OURS.name, OURS_BF16.name].contains(&engine.name))
        {
            let _ = writeln!(text, "- {}: {}", engine.name, cell(mean, ratio));
        }
        let _ = writeln!(
            text,
            "- the fastest peer of each model: {}",
            cell(mean(&rows, |row| ours(&row.times[number]).zip(fastest(&row.times[number]))), ratio)
        );
    }
    text.push_str("\n### One thread over two\n\nThe time of one thread over that of two, in the same run.\n");
    text.push_str(&header(["model"].into_iter().chain(columns.iter().map(|engine| engine.name))));
    for measured in &rows {
        let [one, two] = &measured.times;
        let gains = one.iter().zip(two).map(|(one, two)| cell(one.zip(*two).map(|(one, two)| one / two), ratio));
        row(&mut text, [measured.model.clone()].into_iter().chain(gains));
    }
    text.push_str(&missing.text());
    Ok(text)
}

fn measured(engines: &Engines, model: &str, columns: &[&'static Engine], missing: &mut Missing) -> Result<Row> {
    let mut sides = Sides::none();
    for (number, &threads) in THREADS.iter().enumerate() {
        for (column, engine) in columns.iter().enumerate() {
            let opened = engines.open(engine, model, threads, IMAGE_SHAPE);
            if let Some(session) = missing.unless(&format!("{model}, {}, {threads} threads", engine.name), opened) {
                sides.add((number, column), session);
            }
        }
    }
    let (medians, others) = sides.measure()?;
    let mut times = THREADS.map(|_| vec![None; columns.len()]);
    for ((number, column), median) in medians {
        println!("{model}, {}, {} threads: {} ms", columns[column].name, THREADS[number], milliseconds(median));
        times[number][column] = Some(median);
    }
    Ok(Row { model: model.to_owned(), others, times })
}

/// The geometric mean of the ratios that there are.
fn mean(rows: &[Row], pair: impl Fn(&Row) -> Option<(f64, f64)>) -> Option<f64> {
    let ratios: Vec<f64> = rows.iter().filter_map(pair).map(|(ours, theirs)| ours / theirs).collect();
    (!ratios.is_empty()).then(|| geometric_mean(ratios))
}
