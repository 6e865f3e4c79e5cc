//! `rushlight doctor`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use rushlight::kernels::ALL;
use rushlight::{BackendInfo, MethodMeta, Module, Registry};

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
        let count: usize = ALL.iter().map(|set| set.iter().count()).sum();
        output::print(&format!("  operators  {count}, the reference kernels, one thread, no vector dispatch"));
        output::print(&format!(
            "  backends   {}",
            rushlight::backends().map(BackendInfo::name).collect::<Vec<_>>().join(", ")
        ));
        match &self.model {
            Some(model) => diagnose(&mut self.caching.add_to(Module::builder())?.load(model)?, model),
            None => Ok(()),
        }
    }
}

/// Prints the findings on a program.
fn diagnose(module: &mut Module, path: &std::path::Path) -> Result<(), Failure> {
    output::print(&format!("\n{}", path.display()));
    let registry = Registry::new(ALL);
    let mut findings = 0;
    let lowered = match module.report() {
        Ok(report) => {
            let total = report.entries.len();
            let shares: Vec<String> =
                report.claim_counts().iter().map(|(name, count)| format!("{name} {count}")).collect();
            output::print(&format!(
                "  lowered when it is loaded; backends of its {total} nodes: {}",
                shares.join(", ")
            ));
            let mut unclaimed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
            for entry in &report.entries {
                for (_, reason) in entry.reasons() {
                    *unclaimed.entry((&entry.op, reason)).or_default() += 1;
                }
            }
            for ((op, reason), count) in unclaimed {
                findings += 1;
                output::print(&format!("  {count} x {op} stays on the reference kernels: {reason}"));
            }
            true
        }
        Err(reason) => {
            output::print(&format!("  not lowered when it is loaded: {}", reason.message()));
            false
        }
    };
    if let Some(used) = module.cache_use() {
        output::print(&format!("  cache: {used}"));
    }
    for plan in module.program().parsed().methods() {
        let meta = MethodMeta::of(&plan);
        for op in &meta.operators {
            if registry.find(&op.name, "").is_none() {
                findings += 1;
                output::print(&format!("  {}: {} is missing; the method cannot be loaded", meta.name, op.name));
            }
        }
        for backend in meta.backends.iter().filter(|id| !lowered && !rushlight::runs_backend(id)) {
            findings += 1;
            output::print(&format!(
                "  {}: a part is compiled for {backend}, which is not in this build; the method cannot be loaded. \
                 Export without the partitioner",
                meta.name
            ));
        }
        let calls: usize = meta.operators.iter().map(|op| op.calls).sum();
        if calls > 0 && !lowered {
            findings += 1;
            output::print(&format!(
                "  {}: {calls} calls run on the reference kernels, which are portable but use one thread and the \
                 baseline instructions only; see where the time goes with `rushlight run --profile`",
                meta.name
            ));
        }
        let copies: usize = meta
            .operators
            .iter()
            .filter(|op| op.name.ends_with("_copy.out") || op.name.contains("::clone"))
            .map(|op| op.calls)
            .sum();
        if copies * 4 > calls && calls > 0 && !lowered {
            findings += 1;
            output::print(&format!("  {}: {copies} of {calls} calls only copy or reorder elements", meta.name));
        }
    }
    if findings == 0 {
        output::print("  nothing to report");
    }
    Ok(())
}
