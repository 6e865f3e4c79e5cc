//! The engines, and the start of each with a model.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rushlight::Compiler;

use crate::agreement;
use crate::environment::{llama_libraries, variable};
use crate::peer::{Opened, Peer};
use crate::process::on_cores;

/// Maximum error of a result relative to its largest value, against eager PyTorch.
const FLOAT32_ERROR: f64 = 1e-4;
/// bfloat16 has 8 bits of precision, which random weights amplify from layer to layer.
const BFLOAT16_ERROR: f64 = 0.2;

/// So do 8-bit steps. The limit only shows that it is the same model.
const INT8_ERROR: f64 = 0.7;

/// An engine, and the file that it runs.
#[derive(Debug)]
pub struct Engine {
    pub name: &'static str,
    worker: Worker,
    pub file: &'static str,
    error: f64,
}

#[derive(Debug)]
enum Worker {
    Ours,
    ExecuTorch,
    /// ExecuTorch with the kernels for language models.
    ExecuTorchLlama,
    /// `peers/worker.py` with this argument.
    Python(&'static str),
}

const fn engine(name: &'static str, worker: Worker, file: &'static str) -> Engine {
    Engine { name, worker, file, error: FLOAT32_ERROR }
}

/// The type of the weights that our compiler packs.
#[derive(Clone, Copy)]
pub enum Precision {
    F32,
    Bf16,
}

impl Precision {
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// The file that our compiler writes for `model.pt2`, for the CPU backend.
const fn compiled(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "compiled.pte",
        Precision::Bf16 => "compiled_bf16.pte",
    }
}

pub const OURS: Engine = engine("Rushlight", Worker::Ours, compiled(Precision::F32));
pub const OURS_BF16: Engine =
    Engine { error: BFLOAT16_ERROR, ..engine("Rushlight bf16", Worker::Ours, compiled(Precision::Bf16)) };
pub const OURS_PORTABLE: Engine = engine("portable `.pte`", Worker::Ours, "portable.pte");
pub const OURS_XNNPACK: Engine = engine("XNNPACK's `.pte`", Worker::Ours, "xnnpack.pte");
pub const EXECUTORCH: Engine = engine("ExecuTorch XNNPACK", Worker::ExecuTorch, "xnnpack.pte");
pub const ONNX_RUNTIME: Engine = engine("ONNX Runtime", Worker::Python("onnxruntime"), "model.onnx");
pub const OPENVINO: Engine = engine("OpenVINO", Worker::Python("openvino"), "openvino.xml");
pub const LITERT: Engine = engine("LiteRT", Worker::Python("litert"), "model.tflite");
pub const OPENVINO_BF16: Engine =
    Engine { error: BFLOAT16_ERROR, ..engine("OpenVINO bf16", Worker::Python("openvino-bf16"), "openvino.xml") };

const fn integer(name: &'static str, worker: Worker, file: &'static str) -> Engine {
    Engine { error: INT8_ERROR, ..engine(name, worker, file) }
}

/// The file that our compiler writes for `model_int8.pt2`.
const COMPILED_INT8: &str = "compiled_int8.pte";

pub const OURS_INT8: Engine = integer("Rushlight", Worker::Ours, COMPILED_INT8);
pub const EXECUTORCH_INT8: Engine = integer("ExecuTorch XNNPACK", Worker::ExecuTorch, "xnnpack_int8.pte");
pub const ONNX_RUNTIME_INT8: Engine = integer("ONNX Runtime", Worker::Python("onnxruntime"), "model_int8.onnx");
pub const OPENVINO_INT8: Engine = integer("OpenVINO", Worker::Python("openvino"), "openvino_int8.xml");
pub const LITERT_INT8: Engine = integer("LiteRT", Worker::Python("litert"), "model_int8.tflite");

/// All sides use 8-bit rows and 4-bit weights; llama.cpp rounds scales to 16 bits.
const FOUR_BITS_ERROR: f64 = 0.02;
const Q4_0_ERROR: f64 = 0.3;

pub const OURS_FOUR_BITS: Engine =
    Engine { error: FOUR_BITS_ERROR, ..engine("Rushlight", Worker::Ours, compiled(Precision::F32)) };
pub const EXECUTORCH_FOUR_BITS: Engine =
    Engine { error: FOUR_BITS_ERROR, ..engine("ExecuTorch XNNPACK", Worker::ExecuTorch, "xnnpack.pte") };
pub const LLAMA_CPP: Engine =
    Engine { error: Q4_0_ERROR, ..engine("llama.cpp Q4_0", Worker::Python("ggml"), "model.pt2") };

/// Rows are rounded to 8 bits again in each layer, and quantizers choose their own scales. The weights are made so that
/// 4 bits represent them (`tools/models/language_models.py`). The error for a wrong text is as large as the largest
/// logit.
const LANGUAGE_MODEL_ERROR: f64 = 0.5;

/// An engine for a language model that our compiler compiled.
pub const fn ours_language_model(name: &'static str, file: &'static str) -> Engine {
    Engine { error: LANGUAGE_MODEL_ERROR, ..engine(name, Worker::Ours, file) }
}

pub const EXECUTORCH_LANGUAGE_MODEL: Engine =
    Engine { error: LANGUAGE_MODEL_ERROR, ..engine("ExecuTorch XNNPACK", Worker::ExecuTorchLlama, "executorch.pte") };
pub const LLAMA_CPP_LANGUAGE_MODEL: Engine =
    Engine { error: LANGUAGE_MODEL_ERROR, ..engine("llama.cpp Q4_0", Worker::Python("llama.cpp"), "q4_0.gguf") };

/// The peers that compute in int8.
pub const PEERS_INT8: [&Engine; 4] = [&EXECUTORCH_INT8, &ONNX_RUNTIME_INT8, &OPENVINO_INT8, &LITERT_INT8];

/// The peers that compute in float32.
pub const PEERS: [&Engine; 4] = [&EXECUTORCH, &ONNX_RUNTIME, &OPENVINO, &LITERT];

/// A running engine with a model.
pub struct Session {
    pub engine: &'static Engine,
    pub peer: Peer,
    pub opened: Opened,
}

/// The paths of the engines and models.
pub struct Engines {
    pub models: PathBuf,
    executorch: PathBuf,
    /// Libraries of ExecuTorch's kernels for language models.
    llama_libraries: Vec<String>,
    /// The Python interpreter that has the peers.
    python: PathBuf,
    /// The folder for outputs.
    folder: PathBuf,
}

impl Engines {
    /// Reads the environment variables that main.rs describes.
    pub fn of_environment() -> Result<Self> {
        let executorch = variable("EXECUTORCH_WORKER")?;
        let folder = executorch.parent().context("the worker is in no folder")?.to_owned();
        let (models, python) = (variable("MODELS")?, variable("PEERS_PYTHON")?);
        Ok(Self { models, python, executorch, folder, llama_libraries: llama_libraries() })
    }

    /// Compiles a model for the CPU backend, and returns the file. An earlier file is removed even if that fails.
    pub fn compile(&self, model: &str, precision: Precision) -> Result<PathBuf> {
        self.compile_from(model, "model.pt2", compiled(precision), precision)
    }

    /// Like [`compile`](Self::compile), for the model that PyTorch's quantizer made.
    pub fn compile_int8(&self, model: &str) -> Result<PathBuf> {
        self.compile_from(model, "model_int8.pt2", COMPILED_INT8, Precision::F32)
    }

    fn compile_from(&self, model: &str, source: &str, file: &str, precision: Precision) -> Result<PathBuf> {
        let (folder, error) = (self.models.join(model), |e: rushlight::Error| anyhow::anyhow!("{e}"));
        let file = folder.join(file);
        if file.exists() {
            std::fs::remove_file(&file)?;
        }
        let backend = format!("cpu:precision={}", precision.name());
        let compiler = Compiler::new().method("forward", folder.join(source)).backend(&*backend);
        let program = compiler.compile().map_err(error)?;
        program.save(&file).map_err(error)?;
        Ok(file)
    }

    /// Starts an engine on a model, and compares its result with eager PyTorch.
    pub fn open(&self, engine: &'static Engine, model: &str, threads: usize, sizes: &str) -> Result<Session> {
        let folder = self.models.join(model);
        let file = folder.join(engine.file);
        if !file.exists() {
            let reason = std::fs::read_to_string(folder.join(format!("{}.failed", engine.file)));
            bail!("no {}: {}", engine.file, reason.as_deref().unwrap_or("it was not made").trim());
        }
        let mut peer = Peer::spawn(&mut self.worker(&engine.worker, threads)?, &self.folder)?;
        if matches!(engine.worker, Worker::ExecuTorchLlama) {
            self.llama_libraries.iter().try_for_each(|library| peer.library(library))?;
        }
        let opened = peer.open(&file, threads, &folder.join(format!("input_{sizes}.bin")), sizes)?;
        let mut session = Session { engine, peer, opened };
        session.check(&folder, sizes)?;
        Ok(session)
    }

    /// The command of a process that runs on the first cores.
    fn worker(&self, worker: &Worker, threads: usize) -> Result<Command> {
        let mut command = match worker {
            Worker::Ours => on_cores(std::env::current_exe()?, threads),
            Worker::ExecuTorch | Worker::ExecuTorchLlama => on_cores(&self.executorch, threads),
            Worker::Python(_) => on_cores(&self.python, threads),
        };
        match worker {
            Worker::Ours => command.arg("serve"),
            Worker::ExecuTorch | Worker::ExecuTorchLlama => &mut command,
            Worker::Python(name) => {
                command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/worker.py")).arg(name)
            }
        };
        Ok(command)
    }
}

impl Session {
    /// Sets another input of the program, and compares its result too.
    pub fn input(&mut self, folder: &Path, sizes: &str) -> Result<()> {
        self.peer.input(&folder.join(format!("input_{sizes}.bin")), sizes)?;
        self.check(folder, sizes)
    }

    fn check(&mut self, folder: &Path, sizes: &str) -> Result<()> {
        let file = folder.join(format!("output_{sizes}.bin"));
        let expected = std::fs::read(&file).with_context(|| file.display().to_string())?;
        let got = self.peer.outputs()?;
        let error = agreement::relative_error(&expected, &got).context("it gives a tensor of another size")?;
        // A NaN is not an agreement.
        if error <= self.engine.error { Ok(()) } else { bail!("it is off from eager PyTorch by {error:.1e}") }
    }
}
