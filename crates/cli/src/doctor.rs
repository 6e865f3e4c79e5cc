//! `rushlight doctor`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use rushlight::kernels::ALL;
use rushlight::{BackendInfo, MethodMeta, Module, Registry};
use rushlight_compiler::debug_map;
use rushlight_compiler::emit::MethodMap;
use rushlight_compiler::partition::Report;
use rushlight_format::pte::{Instruction, Plan};

use crate::arguments::Caching;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output;

/// Describes this machine and, for a program, the nodes that would run slowly here or not at all.
#[derive(Args)]
pub struct Doctor {
    /// A .pte file to look at
    model: Option<PathBuf>,
    #[command(flatten)]
    caching: Caching,
}

impl Doctor {
    pub fn run(self) -> Result<(), Failure> {
        output::print(&format!("rushlight {}", env!("CARGO_PKG_VERSION")));
        for (name, value) in Machine::here().rows() {
            output::print(&format!("  {name:<10} {value}"));
        }
        let backends: Vec<&str> = rushlight::backends().map(BackendInfo::name).collect();
        output::print(&format!("  backends   {}", backends.join(", ")));
        let count: usize = ALL.iter().map(|set| set.iter().count()).sum();
        output::print(&format!("  operators  {count} reference operators, for nodes that no other backend takes"));
        match &self.model {
            Some(model) => diagnose(&mut self.caching.add_to(Module::builder())?.load(model)?, model),
            None => Ok(()),
        }
    }
}

/// Number of nodes that are named for each finding.
const NAMED: usize = 5;

/// Prints the findings on a program.
fn diagnose(module: &mut Module, path: &Path) -> Result<(), Failure> {
    output::print(&format!("\n{}", path.display()));
    let (mut findings, is_lowered) = match module.report() {
        Ok(report) => (unclaimed(report), true),
        Err(reason) => {
            output::print(&format!("  not lowered when it is loaded: {}", reason.message()));
            (0, false)
        }
    };
    if let Some(used) = module.cache_use() {
        output::print(&format!("  cache: {used}"));
    }
    let program = module.program().parsed();
    let maps = debug_map::of_program(&program);
    for plan in program.methods() {
        let meta = MethodMeta::of(&plan);
        findings += missing(&meta, is_lowered);
        if !is_lowered {
            let map = maps.iter().find(|map| map.method == meta.name);
            findings += on_reference_operators(&plan, &meta, map);
        }
    }
    if findings == 0 {
        output::print("  nothing to report");
    }
    Ok(())
}

/// Prints the nodes of a lowered program that no backend claimed, by operator and reason. Returns the number of findings.
fn unclaimed(report: &Report) -> usize {
    let total = report.entries.len();
    let shares: Vec<String> = report.claim_counts().iter().map(|(name, count)| format!("{name} {count}")).collect();
    output::print(&format!("  lowered when it is loaded; backends of its {total} nodes: {}", shares.join(", ")));
    let mut nodes: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for entry in &report.entries {
        for (_, reason) in entry.reasons() {
            let origin = origin(&entry.node, &entry.module, entry.source.as_deref());
            nodes.entry((&entry.op, reason)).or_default().push(origin);
        }
    }
    for ((op, reason), nodes) in &nodes {
        output::print(&format!("  {} x {op} stays on the reference operators: {reason}", nodes.len()));
        print_nodes(nodes);
    }
    nodes.len()
}

/// Prints the operators and backends that this build lacks. Returns the number of findings.
fn missing(meta: &MethodMeta, is_lowered: bool) -> usize {
    let registry = Registry::new(ALL);
    let mut findings = 0;
    for op in meta.operators.iter().filter(|op| registry.find(&op.name, "").is_none()) {
        findings += 1;
        output::print(&format!("  {}: {} is missing; the method cannot be loaded", meta.name, op.name));
    }
    for backend in meta.backends.iter().filter(|id| !is_lowered && !rushlight::runs_backend(id)) {
        findings += 1;
        output::print(&format!(
            "  {}: a part is compiled for {backend}, which is not in this build; the method cannot be loaded. Export without \
             the partitioner",
            meta.name
        ));
    }
    findings
}

/// Prints the calls of a method that run on the reference operators, by operator, with their nodes. Returns the number of findings.
fn on_reference_operators(plan: &Plan<'_>, meta: &MethodMeta, map: Option<&MethodMap>) -> usize {
    let mut calls: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    for (at, instruction) in plan.instructions().enumerate() {
        let Instruction::Kernel { operator, .. } = instruction else { continue };
        let Some(operator) = plan.operator(operator as usize) else { continue };
        let (count, nodes) = calls.entry(operator.name).or_default();
        *count += 1;
        if let Some(Some(from)) = map.and_then(|map| map.instructions.get(at)) {
            nodes.push(origin(&from.node, &from.module, from.source.as_deref()));
        }
    }
    let total: usize = calls.values().map(|(count, _)| count).sum();
    if total == 0 {
        return 0;
    }
    output::print(&format!(
        "  {}: {total} calls run on the reference operators, which use one thread and no vector instructions",
        meta.name
    ));
    let mut calls: Vec<_> = calls.into_iter().collect();
    calls.sort_by_key(|(name, (count, _))| (Reverse(*count), *name));
    for (name, (count, nodes)) in calls {
        output::print(&format!("    {count} x {name}"));
        print_nodes(&nodes);
    }
    output::print("    `rushlight run --profile` shows their times");
    1
}

/// A node with its module and its line of Python, as far as they are known.
fn origin(node: &str, module: &str, source: Option<&str>) -> String {
    let source = source.map(output::short_source).unwrap_or_default();
    [node, module, &source].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ")
}

/// Prints the first nodes. Equal lines, such as those of the steps of an LSTM, are one.
fn print_nodes(nodes: &[String]) {
    let mut lines: Vec<(&String, usize)> = Vec::new();
    for node in nodes {
        match lines.iter_mut().find(|(line, _)| *line == node) {
            Some((_, count)) => *count += 1,
            None => lines.push((node, 1)),
        }
    }
    for (line, count) in lines.iter().take(NAMED) {
        let times = if *count == 1 { String::new() } else { format!("  ({count} times)") };
        output::print(&format!("        {line}{times}"));
    }
    let more: usize = lines.iter().skip(NAMED).map(|(_, count)| count).sum();
    if more > 0 {
        output::print(&format!("        and {more} more"));
    }
}
