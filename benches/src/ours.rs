//! Rushlight's side: one loaded method and how long it takes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rushlight::kernels::ALL;
use rushlight::runtime::{HeapBlock, LoadOptions, Memory, Output, dense_strides};
use rushlight::{Input, Method, Program, Registry, ScalarType, TensorView};
use rushlight_devtools::npy;
use rushlight_format::pte::ValueSpec;
use rushlight_testing::cases::TensorData;

use crate::interleaved::{Stage, median, timed};

const METHOD: &str = "forward";

/// An input: dense in some dim order.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub dtype: ScalarType,
    pub sizes: Vec<usize>,
    strides: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl From<&TensorData> for Tensor {
    fn from(data: &TensorData) -> Self {
        let order = data.dim_order.iter().map(|&dim| dim as usize);
        Self::dense(data.dtype, data.sizes.clone(), order, data.bytes.clone())
    }
}

impl From<&rushlight::Tensor> for Tensor {
    fn from(tensor: &rushlight::Tensor) -> Self {
        let sizes = tensor.shape().to_vec();
        Self::dense(tensor.dtype(), sizes, 0..tensor.shape().len(), tensor.bytes().to_vec())
    }
}

/// The tensors of a `.npz` file, in its order.
pub fn archived(file: &Path) -> Result<Vec<Tensor>> {
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    let arrays = npy::read_archive(&bytes).map_err(|e| anyhow!("{e}"))?;
    Ok(arrays.iter().map(|(_, tensor)| tensor.into()).collect())
}

/// The inputs of a program's `forward`, whose bytes follow each other.
pub fn inputs(program: &[u8], mut bytes: &[u8]) -> Result<Vec<Tensor>> {
    let program = Program::parse(program).map_err(error)?;
    let plan = program.parsed().method_named(METHOD).context("no such method")?;
    let mut inputs = Vec::new();
    for value in plan.inputs() {
        let ValueSpec::Tensor(spec) = plan.value(value as usize) else { bail!("an input that is not a tensor") };
        let (own, rest) = bytes.split_at_checked(spec.nbytes).context("too few bytes for the inputs")?;
        bytes = rest;
        let sizes = spec.sizes.iter().map(|size| size as usize).collect();
        let order = spec.dim_order.iter().map(|&dim| dim as usize);
        inputs.push(Tensor::dense(spec.scalar_type, sizes, order, own.to_owned()));
    }
    Ok(inputs)
}

impl Tensor {
    /// One whose dimensions lie in memory in this order.
    fn dense(
        dtype: ScalarType,
        sizes: Vec<usize>,
        order: impl DoubleEndedIterator<Item = usize>,
        bytes: Vec<u8>,
    ) -> Self {
        let mut strides = vec![0; sizes.len()];
        dense_strides(&sizes, order, &mut strides);
        Self { dtype, sizes, strides, bytes }
    }

    pub fn input(&self) -> Result<Input<'_>> {
        self.view(&self.bytes)
    }

    /// The tensor with its bytes in another place.
    fn view<'t>(&'t self, bytes: &'t [u8]) -> Result<Input<'t>> {
        Ok(TensorView::strided(self.dtype, &self.sizes, &self.strides, bytes).map_err(error)?.into())
    }
}

/// An output tensor.
#[derive(Clone, Debug)]
pub struct Produced {
    pub dtype: ScalarType,
    pub bytes: Vec<u8>,
}

/// A loaded method and its inputs.
pub struct Session<'m> {
    file: &'m [u8],
    program: Program<'m>,
    method: Method<'m>,
    inputs: Vec<Input<'m>>,
}

/// Loads `forward` of a program for the time of a call.
pub fn with_session<R>(bytes: &[u8], inputs: &[Tensor], run: impl FnOnce(&mut Session<'_>) -> Result<R>) -> Result<R> {
    let mut file = aligned(bytes)?;
    let mut blocks = inputs.iter().map(|input| aligned(&input.bytes)).collect::<Result<Vec<_>>>()?;
    let file = &*file.bytes_mut();
    let program = Program::parse(file).map_err(error)?;
    let method = load(&program)?;
    let placed = inputs.iter().zip(&mut blocks).map(|(input, block)| input.view(block.bytes_mut()));
    run(&mut Session { file, program, method, inputs: placed.collect::<Result<_>>()? })
}

/// Bytes where PyTorch's allocator would put them, at a multiple of 64: how they lie to those that they are copied to
/// decides how fast that is, and what of them is in caches when the clock starts.
fn aligned(bytes: &[u8]) -> Result<HeapBlock> {
    let mut block = HeapBlock::new(bytes.len()).map_err(error)?;
    block.bytes_mut().copy_from_slice(bytes);
    Ok(block)
}

fn load<'m>(program: &Program<'m>) -> Result<Method<'m>> {
    Method::load(program, METHOD, Memory::heap(), &LoadOptions::new(Registry::new(ALL))).map_err(error)
}

impl Session<'_> {
    /// Sets the inputs and executes; how long the latter took.
    #[inline]
    fn execute(&mut self) -> Result<Duration> {
        let execution = self.method.start(&self.inputs, &mut []).map_err(error)?;
        let start = Instant::now();
        let outputs = execution.finish();
        let taken = start.elapsed();
        outputs.map_err(error)?;
        Ok(taken)
    }

    /// Executes at least `calls` times and for this long; the median of the calls in nanoseconds.
    pub fn time(&mut self, calls: usize, at_least: Duration) -> Result<f64> {
        timed(calls, at_least, || self.execute())
    }

    /// Executes; the output tensors.
    pub fn outputs(&mut self) -> Result<Vec<Produced>> {
        let outputs = self.method.execute(&self.inputs).map_err(error)?;
        let mut produced = Vec::new();
        for i in 0..outputs.len() {
            if let Output::Tensor(tensor) = outputs.get(i).map_err(error)? {
                produced.push(Produced { dtype: tensor.dtype(), bytes: tensor.bytes().to_vec() });
            }
        }
        Ok(produced)
    }

    /// One stage of the program's life, the median of batches, in nanoseconds.
    pub fn stage(&mut self, stage: Stage, batches: usize) -> Result<f64> {
        match stage {
            Stage::Verify => {
                let file = self.file;
                batched(batches, 20, || Program::parse(file).map(|_| ()).map_err(error))
            }
            Stage::Method => batched(batches, 5, || load(&self.program).map(|_| ())),
            Stage::Execute | Stage::Call => calls(&mut self.method, &self.inputs, stage, batches),
        }
    }
}

/// Executions of a method, the median of batches, in nanoseconds; for [`Stage::Call`] the outputs are read too.
pub fn calls(method: &mut Method<'_>, inputs: &[Input<'_>], stage: Stage, batches: usize) -> Result<f64> {
    // There is no way to execute again without setting the inputs again, so their share is in here.
    batched(batches, 50, || {
        let outputs = method.execute(inputs).map_err(error)?;
        if stage == Stage::Call {
            for i in 0..outputs.len() {
                std::hint::black_box(outputs.get(i).map_err(error)?);
            }
        }
        Ok(())
    })
}

/// The median of batches of calls, in nanoseconds for one.
pub fn batched(batches: usize, calls: u32, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut samples = Vec::new();
    for _ in 0..batches {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        samples.push(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(median(&mut samples))
}

fn error(error: rushlight::runtime::Error) -> anyhow::Error {
    anyhow!("{error}")
}
