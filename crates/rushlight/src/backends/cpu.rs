//! The CPU back end's entry in the table.

#[cfg(feature = "cpu")]
use std::sync::Arc;

#[cfg(feature = "compile")]
use rushlight_compiler::partition;
#[cfg(feature = "compile")]
use rushlight_cpu_compile::{Cpu, Keys};
#[cfg(feature = "cpu")]
use rushlight_cpu_payload::CpuProgram;
#[cfg(feature = "cpu")]
use rushlight_cpu_run::CpuBackend;
#[cfg(all(feature = "pt2", feature = "cpu"))]
use rushlight_engine::{Engine, Isa};
#[cfg(all(feature = "compile", feature = "cpu"))]
use rushlight_format::Blob;
#[cfg(all(feature = "compile", feature = "cpu"))]
use rushlight_graph::Bytes;
#[cfg(all(feature = "pt2", feature = "cpu"))]
use rushlight_graph::quantization::LayerShape;
#[cfg(all(feature = "pt2", feature = "cpu"))]
use rushlight_quantize::PackedBytes;
#[cfg(all(feature = "compile", feature = "cpu"))]
use rushlight_runtime::Code;

#[cfg(feature = "compile")]
use super::Destination;
#[cfg(all(feature = "pt2", feature = "cpu"))]
use super::QuantizedKernels;
#[cfg(feature = "cpu")]
use super::Running;
#[cfg(feature = "cpu")]
use super::host::Host;
use super::{BackendInfo, Halves};
#[cfg(feature = "cpu")]
use crate::error::Error;

/// Named data of lowered programs that stays in memory, by key.
#[cfg(feature = "cpu")]
pub(crate) use rushlight_cpu_run::Weights as Blobs;
#[cfg(feature = "cpu")]
pub use rushlight_cpu_run::{Cost, StepProfile, StepRun, StepTime};

pub(super) const CPU: BackendInfo = BackendInfo {
    name: "cpu",
    about: "this machine's vector instructions and threads",
    halves: Some(Halves {
        #[cfg(feature = "cpu")]
        id: rushlight_cpu_payload::CPU_BACKEND,
        #[cfg(feature = "compile")]
        compile,
        #[cfg(feature = "cpu")]
        run,
        #[cfg(feature = "cpu")]
        step,
        #[cfg(all(feature = "pt2", feature = "cpu"))]
        quantized: Some(QuantizedKernels { packed_bytes, rough }),
    }),
};

#[cfg(feature = "compile")]
fn compile(destination: &Destination) -> Box<dyn partition::Backend> {
    let keys = if destination.in_memory { Keys::Place } else { Keys::Content };
    Box::new(Cpu { threads: destination.threads, keys, packs_late: destination.is_file, ..Cpu::default() })
}

/// Its threads are started when it is first asked for.
#[cfg(feature = "cpu")]
fn run(host: &Host, blobs: &Arc<Blobs>) -> Result<Running, Error> {
    let backend = CpuBackend::new(host.engine()?).weights(blobs.clone());
    Ok(Box::new(match &host.profile {
        Some(steps) => backend.profile(steps.clone()),
        None => backend,
    }))
}

#[cfg(feature = "cpu")]
fn step(payload: &[u8], step: usize) -> Option<(&'static str, String)> {
    let payload = CpuProgram::parse(payload).ok()?;
    Some((payload.steps.get(step)?.name(), payload.names.get(step).cloned().unwrap_or_default()))
}

#[cfg(all(feature = "pt2", feature = "cpu"))]
fn packed_bytes(layer: &LayerShape<'_>) -> Option<PackedBytes> {
    let (integers, floats) = rushlight_cpu_compile::packed_bytes(layer);
    rushlight_cpu_compile::has_kernel(layer).then_some(PackedBytes { integers, floats })
}

/// Only where processors multiply pairs of bf16 is it faster.
#[cfg(all(feature = "pt2", feature = "cpu"))]
fn rough(engine: &Engine) -> &'static [(&'static str, &'static str)] {
    if engine.isa() == Isa::Avx512Bf16 { &[("precision", "bf16")] } else { &[] }
}

/// Named data that the compiler made, for run-time halves to use where it is.
///
/// # Errors
/// `InvalidProgram` for data that could not be made.
#[cfg(all(feature = "compile", feature = "cpu"))]
pub(crate) fn blobs(named: Vec<(String, Blob<'static>)>) -> Result<Arc<Blobs>, Error> {
    let shared = |(key, blob): (String, Blob<'static>)| match Bytes::of_blob(&blob) {
        Some(bytes) => Ok((key, Arc::new(View(bytes)) as _)),
        None => Err(Error::new(Code::InvalidProgram, format!("the data `{key}` could not be made"))),
    };
    named.into_iter().map(shared).collect::<Result<_, Error>>().map(Arc::new)
}

/// Bytes as run-time halves take them.
#[cfg(all(feature = "compile", feature = "cpu"))]
struct View(Bytes);

#[cfg(all(feature = "compile", feature = "cpu"))]
impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
