//! `rushlight doctor`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use rushlight::kernels::ALL;
use rushlight::{MethodMeta, Module, Registry};

use crate::failure::Failure;
use crate::output;

/// Describes this machine and, for a program, what would run slowly here or not at all.
#[derive(Args)]
pub struct Doctor {
    /// A .pte file to look at
    model: Option<PathBuf>,
}

impl Doctor {
    pub fn run(self) -> Result<(), Failure> {
        output::print(&format!("rushlight {}", env!("CARGO_PKG_VERSION")));
        output::print(&format!("  system     {} {}", std::env::consts::OS, std::env::consts::ARCH));
        let cores = std::thread::available_parallelism().map_or_else(|_| "unknown".to_owned(), |n| n.to_string());
        output::print(&format!("  processors {cores}"));
        output::print(&format!("  features   {}", cpu_features().join(" ")));
        let count: usize = ALL.iter().map(|set| set.iter().count()).sum();
        output::print(&format!("  operators  {count}, the reference kernels, one thread, no vector dispatch"));
        output::print(&format!("  backends   {}", rushlight::backend_names().collect::<Vec<_>>().join(", ")));
        match &self.model {
            Some(model) => diagnose(&mut Module::load(model)?, model),
            None => Ok(()),
        }
    }
}

/// What the processor has of the instruction sets that matter to inference.
fn cpu_features() -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    for (name, present) in [
        ("sse4.2", std::is_x86_feature_detected!("sse4.2")),
        ("avx", std::is_x86_feature_detected!("avx")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("f16c", std::is_x86_feature_detected!("f16c")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512vnni", std::is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", std::is_x86_feature_detected!("avx512bf16")),
    ] {
        found.extend(present.then_some(name));
    }
    #[cfg(target_arch = "aarch64")]
    for (name, present) in [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("fp16", std::arch::is_aarch64_feature_detected!("fp16")),
        ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("i8mm", std::arch::is_aarch64_feature_detected!("i8mm")),
        ("bf16", std::arch::is_aarch64_feature_detected!("bf16")),
        ("sve", std::arch::is_aarch64_feature_detected!("sve")),
    ] {
        found.extend(present.then_some(name));
    }
    if found.is_empty() {
        found.push("none that matter");
    }
    found
}

fn diagnose(module: &mut Module, path: &std::path::Path) -> Result<(), Failure> {
    output::print(&format!("\n{}", path.display()));
    let registry = Registry::new(ALL);
    let mut findings = 0;
    let lowered = match module.report() {
        Ok(report) => {
            let total = report.entries.len();
            let shares: Vec<String> = report.shares().iter().map(|(name, count)| format!("{name} {count}")).collect();
            output::print(&format!("  lowered when it is loaded; who takes its {total} nodes: {}", shares.join(", ")));
            let mut left: BTreeMap<(&str, &str), usize> = BTreeMap::new();
            for entry in &report.entries {
                for (_, reason) in entry.reasons() {
                    *left.entry((&entry.op, reason)).or_default() += 1;
                }
            }
            for ((op, reason), count) in left {
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
    for plan in module.program().parsed().methods() {
        let meta = MethodMeta::of(&plan);
        for op in &meta.operators {
            if registry.find(&op.name, "").is_none() {
                findings += 1;
                output::print(&format!("  {}: {} is missing; the method cannot be loaded", meta.name, op.name));
            }
        }
        for backend in meta.backends.iter().filter(|id| !lowered && *id != rushlight::format::cpu::CPU_BACKEND) {
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
