//! Linear layers with weights of four bits.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::engines::{EXECUTORCH_FOUR_BITS, Engine, Engines, LLAMA_CPP, OURS_FOUR_BITS, Precision};
use super::machine::Machine;
use super::sides::{ROUNDS, Sides};
use super::{Missing, THREADS, cell, header, ratio, row, threads_of};
use crate::document::{conditions, significant};

const COLUMNS: [&Engine; 3] = [&EXECUTORCH_FOUR_BITS, &LLAMA_CPP, &OURS_FOUR_BITS];

/// Models of `tools/models/peers.py`: K, N, and where such a layer is.
const SHAPES: [(usize, usize, &str); 9] = [
    (2048, 2048, "Llama 3.2 1B: queries, outputs"),
    (2048, 512, "Llama 3.2 1B: keys, values"),
    (2048, 8192, "Llama 3.2 1B: gate, up"),
    (8192, 2048, "Llama 3.2 1B: down"),
    (1024, 2048, "Qwen3 0.6B: queries"),
    (1024, 1024, "Qwen3 0.6B: keys, values"),
    (2048, 1024, "Qwen3 0.6B: outputs"),
    (1024, 3072, "Qwen3 0.6B: gate, up"),
    (3072, 1024, "Qwen3 0.6B: down"),
];
/// Weights of all layers of a model, as there.
const WEIGHTS: usize = 128 << 20;
const ROWS: [usize; 2] = [1, 128];
/// Bits of a weight in a group of 32 with its scale of 16 bits.
const BITS: f64 = 4.5;

pub fn run(engines: &Engines) -> Result<String> {
    let mut missing = Missing::default();
    let machines = THREADS.map(Machine::measure).into_iter().collect::<Result<Vec<_>>>()?;
    let mut text = conditions("cargo xtask bench cpu linear");
    let _ = write!(
        text,
        "\n\nMicroseconds of one linear layer: 4-bit weights in groups of 32, rows dynamically quantized to 8 bits, \
         results in float32. Medians of {ROUNDS} rounds in which all engines take turns, with one thread and with two, \
         each in its own process. Each engine runs as many layers as hold {} million weights, more than the caches \
         hold, and adds their results. The time is divided by the number of layers. Rushlight and ExecuTorch have \
         weights that torchao has quantized, and agree with eager PyTorch within 2 %. The weights of llama.cpp are the \
         same floats in Q4_0 (16-bit scales), in the layout that it chooses for this processor. *Ratio* is Rushlight's time \
         over that of the fastest peer. *GB/s* is Rushlight's rate of weights and scales ({BITS} bits per weight, with \
         16-bit scales), compared with sequential reads without prefetching in the same run. *GOP/s* is its rate of \
         additions and multiplications, compared with int8 multiplications in registers.\n",
        WEIGHTS >> 20,
    );
    machines.iter().for_each(|machine| text.push_str(&machine.line()));
    let mut tables = THREADS.map(|threads| ROWS.map(|rows| table_of(threads, rows)));
    for (k, n, what) in SHAPES {
        let model = format!("linear_{k}x{n}");
        println!("{model}");
        missing.unless(&format!("{model}, compiling"), engines.compile(&model, Precision::F32));
        let sizes = |rows: usize| format!("{rows}x{k}");
        let mut sides = Sides::none();
        for (index, threads) in THREADS.into_iter().enumerate() {
            for (column, engine) in COLUMNS.into_iter().enumerate() {
                let opened = engines.open(engine, &model, threads, &sizes(ROWS[0]));
                let name = format!("{model}, {}, {threads} threads", engine.name);
                if let Some(session) = missing.unless(&name, opened) {
                    sides.add((index, column), session);
                }
            }
        }
        let layers = WEIGHTS.div_ceil(k * n) as f64;
        for (at, rows) in ROWS.into_iter().enumerate() {
            for session in sides.sessions() {
                session.input(&engines.models.join(&model), &sizes(rows))?;
            }
            let (medians, others) = sides.measure()?;
            let mut times = [[None; COLUMNS.len()]; THREADS.len()];
            for ((index, column), median) in medians {
                times[index][column] = Some(median / layers);
            }
            for (index, times) in times.iter().enumerate() {
                let machine = machines.get(index).context("a machine for each number of threads")?;
                cells(&mut tables[index][at], &format!("{k} x {n}, {what}"), [rows, k, n], times, machine, others);
            }
        }
    }
    tables.into_iter().flatten().for_each(|table| text.push_str(&table));
    text.push_str(&missing.text());
    Ok(text)
}

fn table_of(threads: usize, rows: usize) -> String {
    let (s, rate) =
        (if rows == 1 { "" } else { "s" }, if rows == 1 { ["GB/s", "of memory"] } else { ["GOP/s", "of the peak"] });
    let mut text = format!("\n### {rows} row{s}, {}\n", threads_of(threads));
    let titles = ["K x N"].into_iter().chain(COLUMNS.iter().map(|engine| engine.name));
    text.push_str(&header(titles.chain(["ratio"]).chain(rate).chain(["other work"])));
    text
}

/// A line of a table.
fn cells(
    text: &mut String,
    name: &str,
    [rows, k, n]: [usize; 3],
    times: &[Option<f64>; COLUMNS.len()],
    machine: &Machine,
    others: f64,
) {
    let [peers @ .., ours] = times;
    let fastest = peers.iter().flatten().copied().min_by(f64::total_cmp);
    let microseconds = |time: Option<f64>| cell(time, |time| significant(time / 1e3));
    let (work, limit) = if rows == 1 {
        ((k * n) as f64 * BITS / 8.0, Some(machine.bytes))
    } else {
        (2.0 * (rows * k * n) as f64, machine.ops)
    };
    let rate = ours.map(|time| work / time * 1e9);
    let share = rate.zip(limit).map(|(rate, limit)| rate / limit);
    let cells = [name.to_owned()].into_iter().chain(times.iter().map(|time| microseconds(*time))).chain([
        cell(ours.zip(fastest).map(|(ours, theirs)| ours / theirs), ratio),
        cell(rate, |rate| significant(rate / 1e9)),
        cell(share, |share| format!("{:.0} %", share * 100.0)),
        ratio(others),
    ]);
    row(text, cells);
}
