//! The CPU back end's entry in the table.

#[cfg(feature = "cpu-compile")]
use rushlight_compiler::partition;
#[cfg(feature = "cpu-compile")]
use rushlight_cpu_compile::{Cpu, Keys};
#[cfg(all(feature = "pt2", feature = "backends", feature = "cpu-compile"))]
use rushlight_engine::Engine;
#[cfg(all(feature = "pt2", feature = "backends", feature = "cpu-compile"))]
use rushlight_graph::quantization::LayerShape;
#[cfg(all(feature = "pt2", feature = "backends", feature = "cpu-compile"))]
use rushlight_quantize::PackedBytes;

#[cfg(feature = "cpu-compile")]
use super::Destination;
#[cfg(all(feature = "pt2", feature = "backends", feature = "cpu-compile"))]
use super::QuantizedKernels;
use super::{BackendInfo, Halves};

pub(super) const CPU: BackendInfo = BackendInfo {
    name: "cpu",
    about: "this machine's vector instructions and threads",
    halves: Some(Halves {
        #[cfg(feature = "cpu-compile")]
        compile: Some(compile),
        #[cfg(all(feature = "compile", not(feature = "cpu-compile")))]
        compile: None,
        #[cfg(feature = "cpu")]
        run: Some(run::HALF),
        #[cfg(all(feature = "backends", not(feature = "cpu")))]
        run: None,
        #[cfg(all(feature = "pt2", feature = "backends", feature = "cpu-compile"))]
        quantized: Some(QuantizedKernels { packed_bytes, rough }),
        #[cfg(all(feature = "pt2", feature = "backends", not(feature = "cpu-compile")))]
        quantized: None,
    }),
};

#[cfg(feature = "cpu-compile")]
fn compile(destination: &Destination) -> Box<dyn partition::Backend> {
    let keys = if destination.in_memory { Keys::Place } else { Keys::Content };
    Box::new(Cpu { threads: destination.threads, keys, packs_late: destination.is_file, ..Cpu::default() })
}

#[cfg(all(feature = "pt2", feature = "backends", feature = "cpu-compile"))]
fn packed_bytes(layer: &LayerShape<'_>) -> Option<PackedBytes> {
    let (integers, floats) = rushlight_cpu_compile::packed_bytes(layer);
    rushlight_cpu_compile::has_kernel(layer).then_some(PackedBytes { integers, floats })
}

/// Only where processors multiply pairs of bf16 is it faster.
#[cfg(all(feature = "pt2", feature = "backends", feature = "cpu-compile"))]
fn rough(engine: &Engine) -> &'static [(&'static str, &'static str)] {
    if engine.supports_bf16() { &[("precision", "bf16")] } else { &[] }
}

#[cfg(feature = "cpu")]
mod run {
    use std::sync::Arc;

    use rushlight_cpu_payload::{CPU_BACKEND, CpuProgram, Step};
    use rushlight_cpu_run::CpuBackend;

    use crate::backends::{Blobs, Host, RunHalf, Running, StepInfo};
    use crate::error::Error;

    pub(super) const HALF: RunHalf = RunHalf { id: CPU_BACKEND, options: &[], make, step };

    /// The first call starts the threads of the host.
    fn make(host: &Host, blobs: &Arc<Blobs>) -> Result<Running, Error> {
        let backend = CpuBackend::new(host.engine()?).weights(blobs.clone());
        Ok(Box::new(match &host.profile {
            Some(steps) => backend.profile(steps.clone()),
            None => backend,
        }))
    }

    fn step(payload: &[u8], index: usize) -> Option<StepInfo> {
        let payload = CpuProgram::parse(payload).ok()?;
        let step = payload.steps.get(index)?;
        Some(StepInfo {
            kind: step.name(),
            value: payload.names.get(index).cloned().unwrap_or_default(),
            indices: matches!(step, Step::Gather(_)).then_some("indices"),
        })
    }
}
