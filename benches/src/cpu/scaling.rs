//! One file for several sizes.

use std::fmt::Write as _;

use anyhow::Result;

use super::engines::{Engine, Engines, ONNX_RUNTIME, OURS, Precision};
use super::sides::{ROUNDS, Sides};
use super::{Missing, cell, header, ratio, row};
use crate::document::{conditions, milliseconds};

const COLUMNS: [&Engine; 2] = [&ONNX_RUNTIME, &OURS];

/// A model of `tools/models/peers.py`: its name, its symbolic dimension, its description, and the sizes of its runs.
const PROGRAMS: &[(&str, &str, &str, &[usize])] = &[
    ("resnet50_batch", "batch", "ResNet50, with the batch as a symbol up to 16", &[1, 4, 16]),
    (
        "encoder",
        "length",
        "Four layers of a transformer's encoder, 384 wide with 6 heads, with the length of the sequence as a symbol up to 2048",
        &[32, 64, 128, 256, 512, 1024, 2048],
    ),
];

pub fn run(engines: &Engines) -> Result<String> {
    let mut missing = Missing::default();
    let mut text = conditions("cargo xtask bench cpu scaling");
    let _ = writeln!(
        text,
        "\n\nMilliseconds of one execution in float32: medians of {ROUNDS} rounds in which both engines take turns, \
         with one thread and with two. One process of each engine runs all sizes, from one file. Every result was \
         compared with eager PyTorch. *Ratio* is Rushlight's time over ONNX Runtime's."
    );
    for (model, unit, title, sizes) in PROGRAMS {
        let _ = write!(text, "\n### {title}\n");
        println!("{title}");
        let titles = [
            *unit,
            "ONNX Runtime",
            "Rushlight",
            "ratio",
            "ONNX Runtime, 2 threads",
            "Rushlight, 2 threads",
            "ratio, 2 threads",
            "other work",
        ];
        text.push_str(&header(titles));
        missing.unless(&format!("{model}, compiling"), engines.compile(model, Precision::F32));
        let tensor = |size: usize| match *unit {
            "batch" => format!("{size}x3x224x224"),
            _ => format!("1x{size}x384"),
        };
        let mut sides = Sides::none();
        for threads in [1, 2] {
            for engine in COLUMNS {
                let opened = engines.open(engine, model, threads, &tensor(sizes[0]));
                if let Some(session) = missing.unless(&format!("{model}, {}, {threads} threads", engine.name), opened) {
                    sides.add(2 * (threads - 1) + usize::from(engine.name == OURS.name), session);
                }
            }
        }
        for &size in *sizes {
            for session in sides.sessions() {
                session.input(&engines.models.join(model), &tensor(size))?;
            }
            let (medians, others) = sides.measure()?;
            let mut times = [None; 4];
            for (place, median) in medians {
                times[place] = Some(median);
            }
            let compared = |at: usize| cell(times[at + 1].zip(times[at]).map(|(ours, theirs)| ours / theirs), ratio);
            let time = |at: usize| cell(times[at], milliseconds);
            let cells = [size.to_string(), time(0), time(1), compared(0), time(2), time(3), compared(2), ratio(others)];
            row(&mut text, cells);
        }
    }
    text.push_str(&missing.text());
    Ok(text)
}
