//! The same model from three files: compiled ahead of time, and lowered when it is loaded.

use std::fmt::Write as _;

use anyhow::Result;

use super::engines::{Engine, Engines, OURS, OURS_PORTABLE, OURS_XNNPACK};
use super::latency::{ROUNDS, measure};
use super::{Missing, PICTURE, cell, header, ratio, row};
use crate::document::{conditions, milliseconds};
use crate::interleaved::median;

/// Fresh processes for the time of lowering, with as many threads as users have by default.
const LOADS: usize = 5;

const SOURCES: [&Engine; 3] = [&OURS, &OURS_PORTABLE, &OURS_XNNPACK];

pub fn run(engines: &Engines, models: &[&str]) -> Result<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut missing = Missing::default();
    let mut text = conditions("cargo xtask bench cpu sources");
    let _ = write!(
        text,
        "\n\nMilliseconds of one execution with one thread, medians of {ROUNDS} rounds in which three processes take turns. Each \
         runs the same model from another file: what `rushlight compile` made of the `.pt2` file for the CPU back end, and \
         the executorch wheel's portable and XNNPACK-delegated programs, lowered when they are loaded. *Apart* is the \
         slowest over the fastest. *Lowering* is the time of that in milliseconds, with {cores} threads, the median of \
         {LOADS} fresh processes.\n"
    );
    let titles = [
        "model",
        "compiled `.pt2`",
        "portable `.pte`",
        "XNNPACK's `.pte`",
        "apart",
        "lowering portable",
        "lowering XNNPACK's",
        "other work",
    ];
    text.push_str(&header(titles));
    for model in models {
        missing.unless(&format!("{model}, compiling"), engines.compile(model));
        let opened = SOURCES.map(|engine| engines.open(engine, model, 1, PICTURE));
        let mut sessions = Vec::new();
        let mut places = Vec::new();
        for (place, (engine, opened)) in SOURCES.iter().zip(opened).enumerate() {
            // A program that runs on the reference operators is none of the three.
            let lowered = opened.and_then(|mut session| {
                if place > 0 {
                    session.peer.lowering()?;
                }
                Ok(session)
            });
            if let Some(session) = missing.unless(&format!("{model}, {}", engine.name), lowered) {
                sessions.push(session);
                places.push(place);
            }
        }
        let (medians, others) = measure(&mut sessions)?;
        drop(sessions);
        let mut times = [None; SOURCES.len()];
        for (&place, &median) in places.iter().zip(&medians) {
            times[place] = Some(median);
        }
        let slowest = medians.iter().copied().max_by(f64::total_cmp);
        let apart = slowest.zip(medians.iter().copied().min_by(f64::total_cmp)).map(|(slow, fast)| slow / fast);
        let lowering = [&OURS_PORTABLE, &OURS_XNNPACK].map(|engine| {
            let taken = lowering(engines, engine, model, cores);
            missing.unless(&format!("{model}, lowering of {}", engine.name), taken)
        });
        let cells = times.iter().map(|&time| cell(time, milliseconds)).chain([cell(apart, ratio)]);
        let cells = cells.chain(lowering.map(|time| cell(time, milliseconds))).chain([ratio(others)]);
        row(&mut text, [(*model).to_owned()].into_iter().chain(cells));
    }
    text.push_str(&missing.text());
    Ok(text)
}

fn lowering(engines: &Engines, engine: &Engine, model: &str, threads: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..LOADS {
        times.push(engines.open(engine, model, threads, PICTURE)?.peer.lowering()?);
    }
    Ok(median(&mut times))
}
