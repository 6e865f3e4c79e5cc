//! The sizes of all tensors in the present call.

use rushlight_format::cpu::{CpuProgram, Size, SizeOp};
use rushlight_runtime::{DelegateContext, Result};

use crate::error::damaged;
use crate::memory::Memory;

/// Sizes, computed from those of the inputs.
pub(crate) struct Shapes {
    ops: Vec<SizeOp>,
    values: Vec<i64>,
    tensors: Vec<Tensor>,
    /// The sizes of all tensors, one after the other.
    dims: Vec<usize>,
    specs: Vec<(Size, Vec<Size>)>,
    ready: bool,
    dynamic: bool,
}

/// A tensor in the present call.
#[derive(Clone, Copy, Debug, Default)]
struct Tensor {
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
            tensors.push(Tensor { first, rank: tensor.dims.len(), ..Tensor::default() });
            first += tensor.dims.len();
        }
        let specs = program.tensors.iter().map(|tensor| (tensor.offset, tensor.dims.clone())).collect();
        Self {
            ops: program.sizes.clone(),
            values: vec![0; program.sizes.len()],
            tensors,
            dims: vec![0; first],
            specs,
            ready: false,
            dynamic: program.sizes.iter().any(|op| matches!(op, SizeOp::Input { .. })),
        }
    }

    /// Computes everything again, if the sizes of the inputs are others than in the call before.
    pub fn update(&mut self, context: &DelegateContext<'_>, memory: &Memory<'_>) -> Result<()> {
        if self.ready && !self.dynamic {
            return Ok(());
        }
        let mut changed = !self.ready;
        for (op, value) in self.ops.iter().zip(&mut self.values) {
            if let SizeOp::Input { input, dim } = *op {
                let input = context.input(input as usize)?;
                let size = *input.sizes().get(dim as usize).ok_or_else(damaged)? as i64;
                changed |= *value != size;
                *value = size;
            }
        }
        if !changed {
            return Ok(());
        }
        self.ready = false;
        for index in 0..self.ops.len() {
            let get = |at: u32| self.values.get(at as usize).copied().unwrap_or(0);
            let value = match self.ops.get(index) {
                Some(SizeOp::Fixed(value)) => *value,
                Some(SizeOp::Add(a, b)) => get(*a).saturating_add(get(*b)),
                Some(SizeOp::Mul(a, b)) => get(*a).saturating_mul(get(*b)),
                Some(SizeOp::FloorDiv(a, b)) => floor_div(get(*a), get(*b)).ok_or_else(damaged)?,
                Some(SizeOp::Mod(a, b)) => {
                    let quotient = floor_div(get(*a), get(*b)).ok_or_else(damaged)?;
                    get(*a).wrapping_sub(quotient.wrapping_mul(get(*b)))
                }
                Some(SizeOp::Max(a, b)) => get(*a).max(get(*b)),
                Some(SizeOp::Min(a, b)) => get(*a).min(get(*b)),
                Some(SizeOp::Input { .. }) | None => continue,
            };
            if let Some(slot) = self.values.get_mut(index) {
                *slot = value;
            }
        }
        for index in 0..self.tensors.len() {
            self.tensor(index, memory)?;
        }
        self.ready = true;
        Ok(())
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
            len = len.checked_mul(size).ok_or_else(damaged)?;
            *self.dims.get_mut(tensor.first + at).ok_or_else(damaged)? = size;
        }
        tensor.len = len;
        let end = tensor.offset.checked_add(len).ok_or_else(damaged)?;
        if memory.capacity(index).is_some_and(|capacity| end > capacity) {
            return Err(damaged());
        }
        *self.tensors.get_mut(index).ok_or_else(damaged)? = tensor;
        Ok(())
    }

    /// A size in the present call.
    pub fn size(&self, size: Size) -> Result<usize> {
        match size {
            Size::Fixed(size) => usize::try_from(size).map_err(|_| damaged()),
            Size::Computed(index) => {
                let value = self.values.get(index as usize).copied().ok_or_else(damaged)?;
                usize::try_from(value).map_err(|_| damaged())
            }
        }
    }

    /// The sizes of a tensor.
    pub fn dims(&self, tensor: u32) -> &[usize] {
        let tensor = self.tensors.get(tensor as usize).copied().unwrap_or_default();
        self.dims.get(tensor.first..tensor.first + tensor.rank).unwrap_or_default()
    }

    /// Where a tensor begins in its buffer, and its number of elements.
    pub fn window(&self, tensor: u32) -> (usize, usize) {
        let tensor = self.tensors.get(tensor as usize).copied().unwrap_or_default();
        (tensor.offset, tensor.len)
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let exact = a.wrapping_sub(quotient.wrapping_mul(b)) == 0;
    Some(if !exact && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}
