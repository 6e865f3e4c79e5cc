//! Payloads of the CPU backend, of arbitrary steps over arbitrary tensors: no panic, no harm, no more memory than the limit,
//! and no more than a second of the processor's time, with each instruction set of the machine and one to three threads. Each
//! tensor of a step is in an allocation of its own, so that the address sanitizer sees what reaches beyond one.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use rushlight_cpu_run::CpuBackend;
use rushlight_engine::{Engine, Isa};

#[path = "../../crates/backends/cpu/run/tests/it/payload/mod.rs"]
#[expect(dead_code, reason = "tests make payloads by hand, too")]
mod payload;

use payload::source::Source;

/// Memory limit of one program, in bytes.
const MEMORY_LIMIT: usize = 4 << 20;

/// Limit on the processor time of one input, which does not count other processes.
const TOO_SLOW: Duration = Duration::from_secs(1);

/// Engines of all instruction sets; more with one thread than with several, whose threads wait for each other.
static ENGINES: LazyLock<Vec<Arc<Engine>>> = LazyLock::new(|| {
    let of = |threads: usize| Isa::ALL.iter().filter_map(move |isa| Engine::with_isa(*isa, threads).ok());
    [1, 1, 1, 2, 3].into_iter().flat_map(of).map(Arc::new).collect()
});

unsafe extern "C" {
    /// The time of the processor that this process has taken, in microseconds.
    safe fn clock() -> std::ffi::c_long;
}

fuzz_target!(|data: &[u8]| {
    let mut source = Source::new(data);
    let engine = ENGINES[source.below(ENGINES.len())].clone();
    let payload = payload::arbitrary::payload(&mut source);
    let backend = CpuBackend::new(engine).isolated();
    let start = clock();
    let _ = payload::run(payload, backend, MEMORY_LIMIT);
    let taken = Duration::from_micros(u64::try_from(clock() - start).unwrap_or(0));
    assert!(taken < TOO_SLOW, "{taken:?}");
});
