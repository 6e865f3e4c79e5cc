//! The steps of `# run:`. A new command is an arm of [`run`].

use std::fmt::Write;
use std::num::NonZeroUsize;

use rushlight_compiler::partition::{Backend, parse_option, partition};
use rushlight_compiler::passes::EliminateDeadCode;
use rushlight_compiler::{CompileOptions, Stage, advance};
use rushlight_cpu_compile::{Cpu, passes};
use rushlight_cpu_payload::CpuProgram;
use rushlight_graph::testing::filetests::{Failure, Outcome, Step};
use rushlight_graph::{Error, Model, Op, Pass, Progress};

/// Runs a step:
///
/// | step | output |
/// |---|---|
/// | `canonical` | the model in the form that backends are shown |
/// | the name of a pass that legalizes parts | the model after that pass |
/// | `claims` | for each node its claimant and precision, or the reason of the refusal |
/// | `lower` | the tensors and steps of each part's payload, then the rest of the method |
///
/// `claims` and `lower` take the options of the backend, such as `precision=bf16`.
pub fn run(step: &Step, model: &mut Model) -> Result<Outcome, Failure> {
    let mut cpu = Cpu { threads: Some(NonZeroUsize::MIN), ..Cpu::default() };
    for (key, value) in &step.options {
        match (step.name.as_str(), key.as_str()) {
            ("claims" | "lower", _) => parse_option(&mut cpu, key, value)?,
            _ => return Err(Failure::unknown_option(key)),
        }
    }
    let backends: Vec<Box<dyn Backend>> = vec![Box::new(cpu)];
    match step.name.as_str() {
        "canonical" => {
            advance(model, &CompileOptions { backends, ..CompileOptions::default() }, Stage::Canonical)?;
            Ok(Outcome::Model)
        }
        "claims" => Ok(Outcome::Text(claims(model, &backends)?)),
        "lower" => Ok(Outcome::Text(payloads(model, &backends)?)),
        name => match passes().into_iter().find(|pass| pass.name() == name) {
            Some(pass) => pass.run(model).map(|()| Outcome::Model).map_err(Failure::from),
            None => {
                let names: Vec<_> = passes().iter().map(|pass| format!("`{}`", pass.name())).collect();
                let steps = names.join(", ");
                Err(Failure::Usage(format!(
                    "no such step: they are `canonical`, `claims`, `lower` and the passes {steps}"
                )))
            }
        },
    }
}

/// Names of the results and operator of each node, in the order of the report.
fn nodes(model: &Model) -> Vec<(String, String)> {
    let mut nodes = Vec::new();
    for graph in model.methods.values() {
        for block in graph.live_blocks() {
            for node in &graph.blocks[block].nodes {
                let node = &graph.nodes[*node];
                let results = node.results.iter().map(|result| format!("%{}", graph.values[*result].name));
                nodes.push((results.collect::<Vec<_>>().join(", "), node.op.name().to_owned()));
            }
        }
    }
    nodes
}

fn claims(model: &mut Model, backends: &[Box<dyn Backend>]) -> Result<String, Error> {
    let nodes = nodes(model);
    let report = partition(model, backends, &Progress::default())?;
    let mut text = String::new();
    let mut method = None;
    for ((results, op), entry) in nodes.iter().zip(&report.entries) {
        if method != Some(&entry.method) {
            let _ = writeln!(text, "{}method {:?}", if method.is_some() { "\n" } else { "" }, entry.method);
            method = Some(&entry.method);
        }
        let precision = entry.precision.as_ref().map_or_else(String::new, |precision| format!(", {precision}"));
        let _ = writeln!(text, "  {results} = {op}: {}{precision}", entry.claimant());
        for (_, reason) in entry.reasons() {
            let _ = writeln!(text, "    {reason}");
        }
    }
    Ok(text)
}

fn payloads(model: &mut Model, backends: &[Box<dyn Backend>]) -> Result<String, Error> {
    partition(model, backends, &Progress::default())?;
    // Removes the originals of nodes that were copied into parts.
    EliminateDeadCode.run(model)?;
    let mut text = String::new();
    for (name, graph) in &model.methods {
        let _ = writeln!(text, "{}method {name:?}", if text.is_empty() { "" } else { "\n" });
        for block in graph.live_blocks() {
            for node in &graph.blocks[block].nodes {
                let node = &graph.nodes[*node];
                let results = node.results.iter().map(|result| format!("%{}", graph.values[*result].name));
                let _ = writeln!(text, " {} = {}", results.collect::<Vec<_>>().join(", "), node.op.name());
                if let Op::Delegate(id) = node.op {
                    let program = CpuProgram::parse(&model.delegates[id].payload);
                    text.push_str(&program.map_err(|error| Error::invalid(error.to_string()))?.to_string());
                }
            }
        }
    }
    Ok(text)
}
