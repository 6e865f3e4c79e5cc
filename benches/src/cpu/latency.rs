//! The time of one execution.

use std::fmt::Write as _;

use anyhow::Result;
use rushlight::Precision;

use super::engines::{Engine, Engines, OPENVINO_BF16, OURS, OURS_BF16, PEERS};
use super::sides::{ROUNDS, Sides, TURN};
use super::{Missing, PICTURE, cell, fastest, header, ours, ratio, row};
use crate::document::{conditions, milliseconds};
use crate::interleaved::geometric_mean;

const THREADS: [usize; 2] = [1, 2];
/// One model's row for one number of threads: the peers, OpenVINO and ours in bf16, and ours.
struct Row {
    model: String,
    others: f64,
    /// Nanoseconds, by number of threads and engine.
    times: [Vec<Option<f64>>; THREADS.len()],
}

pub fn run(engines: &Engines, models: &[&str]) -> Result<String> {
    let columns: Vec<&'static Engine> = PEERS.into_iter().chain([&OPENVINO_BF16, &OURS_BF16, &OURS]).collect();
    let mut missing = Missing::default();
    let rows: Vec<Row> =
        models.iter().map(|model| measured(engines, model, &columns, &mut missing)).collect::<Result<_>>()?;
    let mut text = conditions("cargo xtask bench cpu latency");
    let _ = write!(
        text,
        "\n\nMilliseconds of one execution in float32 at 224x224, batch 1: medians of {ROUNDS} rounds in which all engines, \
         with one thread and with two, take turns of {} ms, each in a process of its own. Every one was first found to agree \
         with eager PyTorch. *Ratio* is Rushlight's time over that of the fastest peer in float32; above 1 Rushlight is \
         slower. *Other work* is how many cores other programs kept busy meanwhile. *OpenVINO bf16* is its hint, which it \
         follows only where the processor has instructions for that; Rushlight rounds weights to bf16, and with such \
         instructions what they are multiplied with too.\n",
        TURN.as_millis(),
    );
    for (number, threads) in THREADS.iter().enumerate() {
        let _ = write!(text, "\n### {threads} thread{}\n", if *threads == 1 { "" } else { "s" });
        println!("{threads} threads");
        let names = columns.iter().map(|engine| engine.name);
        let titles = ["model"].into_iter().chain(names).chain(["ratio", "ratio, bf16", "other work"]);
        text.push_str(&header(titles));
        for measured in &rows {
            let times = &measured.times[number];
            let cells = times.iter().map(|&time| cell(time, milliseconds));
            let compared = cell(ours(times).zip(fastest(times)).map(|(ours, fastest)| ours / fastest), ratio);
            let of = |engine: &Engine| times[columns.iter().position(|column| column.name == engine.name)?];
            let halves = cell(of(&OURS_BF16).zip(of(&OPENVINO_BF16)).map(|(ours, theirs)| ours / theirs), ratio);
            let rest = [compared, halves, ratio(measured.others)];
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
    text.push_str("\n### One thread over two\n\nHow many times as long one thread takes, in the same run.\n");
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
    for precision in [Precision::F32, Precision::Bf16] {
        missing.unless(&format!("{model}, compiling in {}", precision.name()), engines.compile(model, precision));
    }
    let mut sides = Sides::none();
    for (number, &threads) in THREADS.iter().enumerate() {
        for (column, engine) in columns.iter().enumerate() {
            let opened = engines.open(engine, model, threads, PICTURE);
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
