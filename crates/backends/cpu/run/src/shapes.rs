//! The sizes of all tensors in the present call.

use std::ops::RangeInclusive;

use rushlight_cpu_payload::{Buffer, CpuProgram, Size, SizeOp, Sizes, TensorId};
use rushlight_format::shapes::Operation;
use rushlight_runtime::{DelegateContext, Detail, Error, MAX_RANK, Result};

use crate::error::Unfit;
use crate::memory::Memory;

/// Sizes, computed from those of the inputs.
#[derive(Clone)]
pub(crate) struct Shapes {
    ops: Vec<SizeOp>,
    values: Vec<i64>,
    tensors: Vec<TensorShape>,
    /// The sizes of all tensors, one after the other.
    dims: Vec<usize>,
    specs: Vec<(Size, Vec<Size>)>,
    /// The tensor of each input.
    inputs: Vec<u32>,
    ready: bool,
    dynamic: bool,
}

/// A tensor in the present call.
#[derive(Clone, Copy, Debug, Default)]
struct TensorShape {
    offset: usize,
    len: usize,
    first: usize,
    rank: usize,
}

impl Shapes {
    pub fn new(program: &CpuProgram) -> Self {
        let mut tensors = Vec::with_capacity(program.tensors.len());
        let mut first = 0;
        for tensor in &program.tensors {
            tensors.push(TensorShape { first, rank: tensor.dims.len(), ..TensorShape::default() });
            first += tensor.dims.len();
        }
        let specs = program.tensors.iter().map(|tensor| (tensor.offset, tensor.dims.clone())).collect();
        Self {
            ops: program.sizes.clone(),
            values: vec![0; program.sizes.len()],
            tensors,
            dims: vec![0; first],
            specs,
            inputs: program.inputs.clone(),
            ready: false,
            dynamic: program.sizes.iter().any(|op| matches!(op, SizeOp::Input { .. } | SizeOp::Element { .. })),
        }
    }

    /// Recomputes all sizes if those of the inputs changed since the last call, and returns true if they did. The caller
    /// [accepts](Self::accept) the new ones. Fails for sizes that the program was not compiled for: a size is read from one
    /// input and holds for all that were compiled with it.
    pub fn update(&mut self, context: &DelegateContext<'_>, memory: &Memory<'_>) -> Result<bool> {
        // Inputs may be other than the payload's sizes even where none of those depends on them.
        let changed = if self.ready && !self.dynamic { false } else { self.compute(context, memory)? };
        for (index, tensor) in self.inputs.iter().enumerate() {
            let (got, expected) = (context.input(index)?.sizes(), self.dims(*tensor));
            // They are few: calling `memcmp` would take longer than comparing them.
            if got.len() != expected.len() || got.iter().zip(expected).any(|(got, expected)| got != expected) {
                return Err(other_sizes(got, expected).arg(index));
            }
        }
        Ok(changed)
    }

    /// Reads the sizes of the inputs and computes the others. True if any changed.
    fn compute(&mut self, context: &DelegateContext<'_>, memory: &Memory<'_>) -> Result<bool> {
        let mut changed = !self.ready;
        for (op, value) in self.ops.iter().zip(&mut self.values) {
            let now = match *op {
                SizeOp::Input { input, dim } => {
                    let sizes = context.input(input as usize)?.sizes();
                    *sizes.get(dim as usize).ok_or(Unfit::Dimension { dim, rank: sizes.len() })? as i64
                }
                SizeOp::Element { input, index, min, max } => {
                    element(context, input as usize, index as usize, min..=max)?
                }
                _ => continue,
            };
            changed |= *value != now;
            *value = now;
        }
        if !changed {
            return Ok(false);
        }
        self.ready = false;
        for index in 0..self.ops.len() {
            let get = |at: u32| self.values.get(at as usize).copied().unwrap_or(0);
            let value = match self.ops.get(index) {
                Some(SizeOp::Fixed(value)) => *value,
                Some(SizeOp::Add(a, b)) => get(*a).saturating_add(get(*b)),
                Some(SizeOp::Mul(a, b)) => get(*a).saturating_mul(get(*b)),
                Some(SizeOp::FloorDiv(a, b)) => divided(Operation::FloorDiv, get(*a), get(*b))?,
                Some(SizeOp::Mod(a, b)) => divided(Operation::Mod, get(*a), get(*b))?,
                Some(SizeOp::Max(a, b)) => get(*a).max(get(*b)),
                Some(SizeOp::Min(a, b)) => get(*a).min(get(*b)),
                Some(SizeOp::Input { .. } | SizeOp::Element { .. }) | None => continue,
            };
            if let Some(slot) = self.values.get_mut(index) {
                *slot = value;
            }
        }
        for index in 0..self.tensors.len() {
            self.tensor(index, memory)?;
        }
        Ok(true)
    }

    /// Keeps the sizes for the calls to come, until those of the inputs change.
    pub fn accept(&mut self) {
        self.ready = true;
    }

    fn tensor(&mut self, index: usize, memory: &Memory<'_>) -> Result<()> {
        let (Some((offset, dims)), Some(tensor)) = (self.specs.get(index), self.tensors.get(index)) else {
            return Ok(());
        };
        let mut tensor = *tensor;
        tensor.offset = self.size(*offset)?;
        let mut len = 1usize;
        for (at, size) in dims.iter().enumerate() {
            let size = self.size(*size)?;
            len = len.checked_mul(size).ok_or(Unfit::Overflow)?;
            if let Some(slot) = self.dims.get_mut(tensor.first + at) {
                *slot = size;
            }
        }
        tensor.len = len;
        if len == 0 {
            // A tensor without elements may be placed past the end of its memory, or have no memory.
            tensor.offset = 0;
        }
        let end = tensor.offset.checked_add(len).ok_or(Unfit::Overflow)?;
        if let Some(len) = memory.capacity(index).filter(|capacity| end > *capacity) {
            let is_state = matches!(memory.buffer(index as u32), Some(Buffer::State(_)));
            return Err(if is_state { Unfit::BeyondState { end } } else { Unfit::Beyond { end, len } }.into());
        }
        if let Some(slot) = self.tensors.get_mut(index) {
            *slot = tensor;
        }
        Ok(())
    }

    /// A size in the present call.
    pub fn size(&self, size: Size) -> Result<usize> {
        match size {
            Size::Fixed(size) => usize::try_from(size).map_err(|_| Unfit::Overflow.into()),
            Size::Computed(index) => {
                let value = self.values.get(index as usize).copied().unwrap_or(0);
                usize::try_from(value).map_err(|_| Unfit::ComputedSize(value).into())
            }
        }
    }

    /// Returns the present values of sizes or strides, with zeros behind them.
    pub fn present(&self, sizes: &[Size]) -> Result<[usize; MAX_RANK]> {
        let mut present = [0; MAX_RANK];
        sizes.iter().zip(&mut present).try_for_each(|(size, slot)| {
            *slot = self.size(*size)?;
            Ok::<(), Error>(())
        })?;
        Ok(present)
    }

    /// The sizes of a tensor.
    pub fn dims(&self, tensor: u32) -> &[usize] {
        let tensor = self.tensors.get(tensor as usize).copied().unwrap_or_default();
        self.dims.get(tensor.first..tensor.first + tensor.rank).unwrap_or_default()
    }

    /// Returns the offset of a tensor in its buffer, and its number of elements.
    pub fn span(&self, tensor: u32) -> (usize, usize) {
        let tensor = self.tensors.get(tensor as usize).copied().unwrap_or_default();
        (tensor.offset, tensor.len)
    }
}

impl Sizes for Shapes {
    fn rank(&self, tensor: TensorId) -> usize {
        self.dims(tensor).len()
    }

    fn dim(&self, tensor: TensorId, index: usize) -> u64 {
        self.dims(tensor).get(index).map_or(0, |size| *size as u64)
    }

    fn size(&self, size: Size) -> u64 {
        Self::size(self, size).map_or(0, |size| size as u64)
    }
}

/// Reads a position from an input, which the caller may set to anything.
fn element(context: &DelegateContext<'_>, input: usize, index: usize, range: RangeInclusive<i64>) -> Result<i64> {
    let tensor = context.input(input)?;
    let elements = tensor.as_slice::<i64>().map_err(|error| error.arg(input))?;
    let missing = Unfit::Beyond { end: index.saturating_add(1), len: elements.len() };
    let value = *elements.get(index).ok_or(missing)?;
    if range.contains(&value) {
        return Ok(value);
    }
    let size = usize::try_from(range.end().saturating_add(1)).unwrap_or(usize::MAX);
    Err(Error::from(Detail::Index { index: value, size }).arg(input))
}

#[cold]
fn other_sizes(got: &[usize], expected: &[usize]) -> Error {
    let differs = got.iter().zip(expected).enumerate().find(|(_, (got, expected))| got != expected);
    match differs {
        Some((dim, (got, expected))) => Detail::Size { dim, expected: *expected, got: *got }.into(),
        None => Unfit::Count { what: "dimensions of an input", expected: expected.len(), got: got.len() }.into(),
    }
}

fn divided(operation: Operation, a: i64, b: i64) -> Result<i64> {
    Ok(operation.apply(a, b).ok_or(Unfit::Division { by: b })?)
}

/// Multiplies some of a tensor's sizes. The result may overflow `usize` where another size is 0.
pub(crate) fn product(dims: Option<&[usize]>) -> Result<usize> {
    let dims = dims.ok_or(Unfit::Part("the step names dimensions that its tensor does not have"))?;
    dims.iter().try_fold(1usize, |all, size| all.checked_mul(*size)).ok_or_else(|| Unfit::Overflow.into())
}

/// Checks that windows fit into what they move over, which depends on the caller's sizes.
pub(crate) fn check_windows(out_size: &[usize]) -> Result<()> {
    if out_size.contains(&0) { Err(Error::invalid("the window is larger than the padded input")) } else { Ok(()) }
}
