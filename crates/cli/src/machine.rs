//! Describes the machine, for `doctor` and `hwbench`.

use std::env::consts::{ARCH, OS};

use serde_json::{Value as Json, json};

/// The machine that the command runs on.
pub struct Machine {
    /// The processor's name; `None` if the system does not report it.
    name: Option<String>,
    /// Number of threads that run at the same time; `None` if the system does not report it.
    processors: Option<usize>,
    features: Vec<&'static str>,
}

impl Machine {
    pub fn here() -> Self {
        let processors = std::thread::available_parallelism().ok().map(usize::from);
        Self { name: cpu_name(), processors, features: cpu_features() }
    }

    /// Names and values, as text.
    pub fn rows(&self) -> [(&'static str, String); 4] {
        let unknown = || "unknown".to_owned();
        let features = if self.features.is_empty() { "none that matter".to_owned() } else { self.features.join(" ") };
        [
            ("system", format!("{OS} {ARCH}")),
            ("processor", self.name.clone().unwrap_or_else(unknown)),
            ("processors", self.processors.map_or_else(unknown, |count| count.to_string())),
            ("features", features),
        ]
    }

    pub fn json(&self) -> Json {
        json!({
            "system": OS,
            "architecture": ARCH,
            "processor": self.name,
            "processors": self.processors,
            "features": self.features,
        })
    }
}

/// The processor's name, from Linux.
fn cpu_name() -> Option<String> {
    name_in(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// The name in the text of `/proc/cpuinfo`. On Arm it is often missing.
fn name_in(cpuinfo: &str) -> Option<String> {
    let fields =
        || cpuinfo.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()));
    ["model name", "Model", "Hardware", "uarch"]
        .iter()
        .find_map(|name| fields().find(|(key, value)| key == name && !value.is_empty()))
        .map(|(_, value)| value.to_owned())
}

/// The processor's instruction set extensions that matter to inference.
fn cpu_features() -> Vec<&'static str> {
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        allow(unused_mut, reason = "nothing is looked for")
    )]
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
        ("amx", rushlight_engine::Isa::Amx.is_available()),
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
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_where_there_is_one() {
        let x86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: A CPU @ 2.0: fast\n";
        assert_eq!(name_in(x86).as_deref(), Some("A CPU @ 2.0: fast"));
        let arm = "processor\t: 0\nCPU part\t: 0xd0b\n\nModel\t\t: Raspberry Pi 5\n";
        assert_eq!(name_in(arm).as_deref(), Some("Raspberry Pi 5"));
        assert_eq!(name_in("processor\t: 0\nmodel name\t:\n"), None);
    }
}
