//! Builds payloads of the CPU backend by hand, and programs with one method that runs them. The fuzz target
//! `cpu_payload` uses it too.

pub mod arbitrary;
pub mod source;

use std::sync::Arc;

use rushlight_cpu_payload::{Affine, Buffer, CPU_BACKEND, CpuProgram, Size, Step, Tensor as CpuTensor, TensorId};
use rushlight_cpu_run::{CpuBackend, Weights};
use rushlight_format::pte::{DelegateModel, InstructionModel, PlanModel, ProgramModel, TensorModel, ValueModel};
use rushlight_format::{FormatError, ScalarType};
use rushlight_runtime::{
    Error, HeapBlock, Input, LoadOptions, Memory, Method, OutputBuffer, Program, Registry, StableBytes, TensorView,
};

/// The name of the method.
const METHOD: &str = "forward";

/// A payload to build and the data to run it on. Each tensor has a buffer of its own.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pub program: CpuProgram,
    /// The tensors that the method takes, with the upper bounds of their sizes.
    pub inputs: Vec<TensorModel>,
    /// The tensors that it returns, in the same way.
    pub outputs: Vec<TensorModel>,
    /// Contents of the blobs, by position.
    pub blobs: Vec<Vec<u8>>,
    /// Bytes to run instead of the encoded `program`.
    pub bytes: Option<Vec<u8>>,
    /// Bytes that are repeated to fill the inputs; zeros if it is empty.
    pub values: Vec<u8>,
}

impl Payload {
    /// Returns a payload of one step from `inputs` to one output, all of them `f32` and of fixed sizes.
    pub fn of_step(inputs: &[&[u64]], output: &[u64], step: impl FnOnce(&[TensorId], TensorId) -> Step) -> Self {
        let mut payload = Self::default();
        let inputs: Vec<_> = inputs.iter().map(|dims| payload.input(ScalarType::Float, dims)).collect();
        let output = payload.output(ScalarType::Float, output);
        payload.program.steps.push(step(&inputs, output));
        payload
    }

    /// Adds a buffer, and a tensor that is stored in it.
    pub fn tensor(&mut self, dtype: ScalarType, buffer: Buffer, dims: &[Size], affine: Option<Affine>) -> TensorId {
        let program = &mut self.program;
        let index = program.buffers.len() as u32;
        program.buffers.push(buffer);
        program.tensors.push(CpuTensor { dtype, buffer: index, offset: Size::Fixed(0), dims: dims.to_vec(), affine });
        program.tensors.len() as TensorId - 1
    }

    /// Adds an input.
    pub fn input(&mut self, dtype: ScalarType, dims: &[u64]) -> TensorId {
        let position = self.inputs.len() as u32;
        self.inputs.push(TensorModel::new(dtype, &caller_sizes(dims)).dynamic());
        let id = self.tensor(dtype, Buffer::Input(position), &fixed(dims), None);
        self.program.inputs.push(id);
        id
    }

    /// Adds an output.
    pub fn output(&mut self, dtype: ScalarType, dims: &[u64]) -> TensorId {
        let position = self.outputs.len() as u32;
        self.outputs.push(TensorModel::new(dtype, &caller_sizes(dims)).dynamic());
        let id = self.tensor(dtype, Buffer::Output(position), &fixed(dims), None);
        self.program.outputs.push(id);
        self.program.output_sizes.push(fixed(dims));
        id
    }

    /// Adds an intermediate result of `floats` floats in the arena.
    pub fn arena(&mut self, floats: u64, dtype: ScalarType, dims: &[u64], affine: Option<Affine>) -> TensorId {
        let offset = self.program.arena;
        self.program.arena = offset.saturating_add(floats);
        self.tensor(dtype, Buffer::Arena { offset, len: floats }, &fixed(dims), affine)
    }

    /// Adds weights as a blob.
    pub fn blob(&mut self, dtype: ScalarType, dims: &[u64], bytes: Vec<u8>) -> TensorId {
        let position = self.blobs.len() as u32;
        self.program.blobs.push(blob_name(position as usize));
        self.blobs.push(bytes);
        self.tensor(dtype, Buffer::Blob(position), &fixed(dims), None)
    }

    /// Adds a constant that is stored in the payload.
    pub fn inline(&mut self, dims: &[u64], floats: &[f32]) -> TensorId {
        let (offset, len) = (self.program.inline_floats.len() as u64, floats.len() as u64);
        self.program.inline_floats.extend_from_slice(floats);
        self.tensor(ScalarType::Float, Buffer::Inline { offset, len }, &fixed(dims), None)
    }

    /// Returns the `.pte` file, without the blobs.
    ///
    /// # Errors
    /// When it cannot be written.
    fn file(&self) -> Result<Vec<u8>, FormatError> {
        let mut plan = PlanModel::new(METHOD);
        let mut args = Vec::new();
        for input in &self.inputs {
            args.push(plan.input(ValueModel::Tensor(input.clone())));
        }
        for output in &self.outputs {
            args.push(plan.output(ValueModel::Tensor(output.clone())));
        }
        let data = self.bytes.clone().unwrap_or_else(|| self.program.to_bytes()).into();
        plan.delegates.push(DelegateModel { id: CPU_BACKEND.into(), data, compile_specs: Vec::new() });
        plan.instructions.push(InstructionModel::Delegate { delegate: 0, args });
        let mut program = ProgramModel::new();
        program.methods.push(plan);
        program.to_bytes()
    }
}

/// Loads and runs a payload within a memory limit in bytes. Each tensor outside of the arena is an allocation of its own.
///
/// # Errors
/// Those of loading and of running.
pub fn run(payload: Payload, backend: CpuBackend, memory_limit: usize) -> Result<(), Error> {
    let sizes: Vec<_> =
        payload.inputs.iter().map(|input| input.sizes.iter().map(|size| *size as usize).collect()).collect();
    run_with_sizes(payload, backend, memory_limit, &[sizes])
}

/// As [`run`], with the sizes of all inputs in each of several calls.
///
/// # Errors
/// Those of loading and of the first call that fails.
pub fn run_with_sizes(
    mut payload: Payload,
    backend: CpuBackend,
    memory_limit: usize,
    calls: &[Vec<Vec<usize>>],
) -> Result<(), Error> {
    let blobs = core::mem::take(&mut payload.blobs).into_iter().enumerate();
    let weights: Weights = blobs.map(|(position, bytes)| (blob_name(position), shared(&bytes))).collect();
    let backend = backend.weights(Arc::new(weights));
    let file = payload.file()?;
    let mut block = HeapBlock::new(file.len())?;
    block.bytes_mut()[..file.len()].copy_from_slice(&file);
    let program = Program::parse(&block.bytes()[..file.len()])?;
    let options = LoadOptions { backends: &[&backend], ..LoadOptions::new(Registry::new(&[])) };
    let mut method = Method::load(&program, METHOD, Memory::heap().with_limit(memory_limit), &options)?;
    let inputs: Vec<_> =
        payload.inputs.iter().map(|input| bytes_of(input, &payload.values)).collect::<Result<_, _>>()?;
    let mut outputs: Vec<_> = payload.outputs.iter().map(|output| bytes_of(output, &[])).collect::<Result<_, _>>()?;
    for sizes in calls {
        let views: Vec<_> = payload
            .inputs
            .iter()
            .zip(&inputs)
            .zip(sizes)
            .map(|((input, bytes), sizes)| {
                let len = sizes.iter().product::<usize>() * input.scalar_type.size();
                TensorView::new(input.scalar_type, sizes, &bytes.bytes()[..len]).map(Input::Tensor)
            })
            .collect::<Result<_, _>>()?;
        let memory = outputs.iter_mut().enumerate();
        let mut memory: Vec<_> = memory.map(|(index, data)| OutputBuffer { index, data: data.bytes_mut() }).collect();
        method.start(&views, &mut memory)?.finish()?;
    }
    Ok(())
}

/// Returns the memory of a tensor, filled with repeated `values`.
fn bytes_of(input: &TensorModel, values: &[u8]) -> Result<HeapBlock, Error> {
    let mut block = HeapBlock::new(input.nbytes() as usize)?;
    block.bytes_mut().iter_mut().zip(values.iter().cycle()).for_each(|(byte, value)| *byte = *value);
    Ok(block)
}

/// Bytes in an allocation of their own that is aligned as floats are.
struct Aligned(Box<[f32]>);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Returns an aligned copy.
fn shared(bytes: &[u8]) -> rushlight_cpu_run::SharedBytes {
    Arc::new(Aligned(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
}

/// The name of a blob by its position.
fn blob_name(position: usize) -> String {
    format!("blob {position}")
}

/// Fixed sizes.
fn fixed(dims: &[u64]) -> Vec<Size> {
    dims.iter().map(|size| Size::Fixed(*size)).collect()
}

/// Returns the sizes that the method declares for its tensors: zeros where there would be more than 2^20 elements, so that
/// arbitrary payloads make no large allocations.
fn caller_sizes(dims: &[u64]) -> Vec<i32> {
    let is_small =
        dims.iter().try_fold(1u64, |count, size| count.checked_mul(*size)).is_some_and(|count| count <= 1 << 20);
    dims.iter().map(|size| if is_small { i32::try_from(*size).unwrap_or(0) } else { 0 }).collect()
}
