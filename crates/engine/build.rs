//! Sets `baseline_simd` for targets that always have an instruction set with vectors, which need no scalar kernels.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(baseline_simd)");
    let variable = |name| env::var(name).unwrap_or_default();
    let baseline = match variable("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "sse2",
        "aarch64" => "neon",
        "wasm32" => "simd128",
        _ => return,
    };
    if variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == baseline) {
        println!("cargo::rustc-cfg=baseline_simd");
    }
}
