//! The same model from three files: compiled ahead of time, and lowered when it is loaded.

use std::fmt::Write as _;

use anyhow::Result;

use super::engines::{Engine, Engines, OURS, OURS_PORTABLE, OURS_XNNPACK, Precision};
use super::sides::{ROUNDS, Sides};
use super::{IMAGE_SHAPE, Missing, cell, header, ratio, row};
use crate::document::{conditions, milliseconds};
use crate::interleaved::median;

/// Fresh processes for the time of lowering, with as many threads as users have by default.
const LOADS: usize = 5;

const SOURCES: [&Engine; 3] = [&OURS, &OURS_PORTABLE, &OURS_XNNPACK];

pub fn run(engines: &Engines, models: &[&str]) -> Result<String> {
    let cores = rushlight::default_threads();
    let mut missing = Missing::default();
    let mut text = conditions("cargo xtask bench cpu sources");
    let _ = write!(
        text,
        "\n\nMilliseconds of one execution with one thread: medians of {ROUNDS} rounds in which three processes take \
         turns. Each runs the same model from another file. The first is the output of `rushlight compile` for the CPU \
         backend. The others are the executorch wheel's portable and XNNPACK-delegated programs, lowered when they are \
         loaded. *Apart* is the slowest over the fastest. *Lowering* is the time of lowering in milliseconds, with \
         {cores} threads: the median of {LOADS} fresh processes.\n"
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
        missing.unless(&format!("{model}, compiling"), engines.compile(model, Precision::F32));
        let opened = SOURCES.map(|engine| engines.open(engine, model, 1, IMAGE_SHAPE));
        let mut sides = Sides::none();
        for (place, (engine, opened)) in SOURCES.iter().zip(opened).enumerate() {
            // A program that runs on the reference operators is none of the three.
            let lowered = opened.and_then(|mut session| {
                if place > 0 {
                    session.peer.lowering()?;
                }
                Ok(session)
            });
            if let Some(session) = missing.unless(&format!("{model}, {}", engine.name), lowered) {
                sides.add(place, session);
            }
        }
        let (medians, others) = sides.measure()?;
        drop(sides);
        let mut times = [None; SOURCES.len()];
        for &(place, median) in &medians {
            times[place] = Some(median);
        }
        let medians = || medians.iter().map(|&(_, median)| median);
        let slowest = medians().max_by(f64::total_cmp);
        let apart = slowest.zip(medians().min_by(f64::total_cmp)).map(|(slow, fast)| slow / fast);
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

fn lowering(engines: &Engines, engine: &'static Engine, model: &str, threads: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..LOADS {
        times.push(engines.open(engine, model, threads, IMAGE_SHAPE)?.peer.lowering()?);
    }
    Ok(median(&mut times))
}
