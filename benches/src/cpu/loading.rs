//! From the name of a file to the first result: time and memory.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use rushlight::Module;
use rushlight_cpu_payload::{CPU_BACKEND, CpuProgram};

use super::engines::{Engine, Engines, OURS, PEERS, Precision};
use super::{IMAGE_SHAPE, Missing, cell, fastest, header, ours, ratio, row};
use crate::document::{conditions, milliseconds, significant};
use crate::interleaved::median;
use crate::peer::Opened;

/// Fresh processes.
const LOADS: usize = 7;

/// Memory that the compiled program may add over its weights and 1.2 times its planned activations.
const ALLOWANCE: f64 = 4e6;

pub fn run(engines: &Engines, models: &[&str]) -> Result<String> {
    let columns: Vec<&'static Engine> = PEERS.into_iter().chain([&OURS]).collect();
    let mut missing = Missing::default();
    let mut text = conditions("cargo xtask bench cpu loading");
    let _ = write!(
        text,
        "\n\nMedians of {LOADS} fresh processes with one thread. All libraries and plugins are loaded, and the files \
         are in the page cache. The engines take turns.\n\n### From the file to ready, milliseconds\n\nWithout the \
         first execution. Rushlight maps the output of `rushlight compile` for the CPU backend. *Ratio* is Rushlight's time over that of the fastest peer.\n"
    );
    let names = || columns.iter().map(|engine| engine.name);
    text.push_str(&header(["model"].into_iter().chain(names()).chain(["ratio"])));
    let (mut first, mut memory) = (String::new(), String::new());
    first.push_str(&header(["model"].into_iter().chain(names())));
    let bounded = ["weights", "planned", "bound"];
    memory.push_str(&header(["model"].into_iter().chain(names()).chain(bounded)));
    for model in models {
        let file = missing.unless(&format!("{model}, compiling"), engines.compile(model, Precision::F32));
        let opened = measured(engines, model, &columns, IMAGE_SHAPE, LOADS, &mut missing);
        let name = || [(*model).to_owned()].into_iter();
        let loads: Vec<Option<f64>> = opened.iter().map(|opened| opened.map(|opened| opened.load)).collect();
        let compared = ours(&loads).zip(fastest(&loads)).map(|(ours, fastest)| ours / fastest);
        row(&mut text, name().chain(loads.iter().map(|&load| cell(load, milliseconds))).chain([cell(compared, ratio)]));
        let firsts = opened.iter().map(|opened| cell(opened.map(|opened| opened.first), milliseconds));
        row(&mut first, name().chain(firsts));
        let (weights, planned) = file.map_or(Ok((None, None)), |file| sizes(&file).map(|(w, p)| (Some(w), Some(p))))?;
        let bound = weights.zip(planned).map(|(weights, planned)| weights + 1.2 * planned + ALLOWANCE);
        let added = opened.iter().map(|opened| cell(opened.map(|opened| opened.added / 1e6), significant));
        let bounded = [weights, planned, bound].map(|bytes| cell(bytes.map(|bytes| bytes / 1e6), significant));
        row(&mut memory, name().chain(added).chain(bounded));
    }
    let _ = write!(
        text,
        "\n### First execution, milliseconds\n{first}\n### Memory added by loading and the first execution, MB\n\nBy \
         the maximum resident size, which includes pages of mapped files. *Weights* is the size of Rushlight's file, \
         and *planned* the size of its memory plan. *Bound* is the sum of *weights*, 1.2 times *planned*, and 4 MB.\n{memory}"
    );
    text.push_str(&missing.text());
    Ok(text)
}

/// Medians over `loads` new processes, by engine.
pub fn measured(
    engines: &Engines,
    model: &str,
    columns: &[&'static Engine],
    sizes: &str,
    loads: usize,
    missing: &mut Missing,
) -> Vec<Option<Opened>> {
    let mut samples: Vec<Vec<Opened>> = vec![Vec::new(); columns.len()];
    let mut works = vec![true; columns.len()];
    // The first time reads the files.
    for load in 0..=loads {
        for (column, engine) in columns.iter().enumerate() {
            if works[column] {
                let opened = engines.open(engine, model, 1, sizes).map(|session| session.opened);
                let opened = missing.unless(&format!("{model}, {}", engine.name), opened);
                works[column] = opened.is_some();
                samples[column].extend(opened.filter(|_| load > 0));
            }
        }
    }
    let of = |samples: &[Opened], part: fn(&Opened) -> f64| median(&mut samples.iter().map(part).collect::<Vec<_>>());
    let middle = |samples: &Vec<Opened>| {
        let [load, first, added] = [|o: &Opened| o.load, |o: &Opened| o.first, |o: &Opened| o.added];
        (!samples.is_empty()).then(|| Opened {
            load: of(samples, load),
            first: of(samples, first),
            added: of(samples, added),
        })
    };
    samples.iter().map(middle).collect()
}

/// Bytes of a compiled file, and of the memory that it plans for one thread.
fn sizes(file: &Path) -> Result<(f64, f64)> {
    let error = |e: rushlight::Error| anyhow::anyhow!("{e}");
    let module = Module::load(file).map_err(error)?;
    let program = module.program().parsed();
    let plan = program.method_named("forward").context("no method forward")?;
    let mut planned: u64 = (1..plan.num_buffers()).map(|id| plan.buffer_size(id as u32)).sum();
    for delegate in (0..plan.num_delegates()).filter_map(|index| plan.delegate(index)) {
        if delegate.id == CPU_BACKEND {
            let payload = program.delegate_data(delegate.data).context("a delegate without its payload")?;
            let payload = CpuProgram::parse(payload).map_err(|e| anyhow::anyhow!("{e:?}"))?;
            planned += (payload.arena + payload.scratch) * 4;
        }
    }
    Ok((program.bytes().len() as f64, planned as f64))
}
