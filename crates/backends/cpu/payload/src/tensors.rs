//! The tensors of a program, as the checks of its steps see them.

use rushlight_format::{MAX_RANK, ScalarType};

use crate::error::{Counted, List};
use crate::tensor::half_of;
use crate::work::Sizes;
use crate::{Buffer, PayloadError, PayloadFault, Size, Tensor, TensorId};

type Result<T = ()> = core::result::Result<T, PayloadError>;

/// The tensors of a program that is checked, with the buffers that they are in.
#[derive(Clone, Copy, Debug)]
pub struct Tensors<'p> {
    pub(crate) tensors: &'p [Tensor],
    pub(crate) buffers: &'p [Buffer],
    /// The number of computed sizes.
    pub(crate) sizes: usize,
}

impl Tensors<'_> {
    pub(crate) fn tensor(&self, id: TensorId) -> Option<&Tensor> {
        self.tensors.get(id as usize)
    }

    pub(crate) fn is_quantized(&self, id: TensorId) -> bool {
        self.tensor(id).is_some_and(|tensor| tensor.affine.is_some())
    }

    /// Checks whether a tensor is quantized.
    pub(crate) fn quantized(&self, id: TensorId, expected: bool) -> Result {
        if self.is_quantized(id) == expected { Ok(()) } else { Err(PayloadError::new(PayloadFault::MixedTypes)) }
    }

    /// Checks that no tensor of a step is quantized but these.
    pub(crate) fn floats(
        &self,
        inputs: impl Fn(&mut dyn FnMut(TensorId)),
        quantized: &[TensorId],
        y: Option<TensorId>,
    ) -> Result {
        let mut result = y.map_or(Ok(()), |y| self.quantized(y, false));
        inputs(&mut |id| {
            if result.is_ok() {
                result = self.quantized(id, quantized.contains(&id));
            }
        });
        result
    }

    /// Checks the element type of a tensor.
    pub(crate) fn dtype(&self, id: TensorId, expected: ScalarType) -> Result {
        match self.tensor(id).map(|tensor| tensor.dtype) {
            Some(got) if got != expected => Err(PayloadError::new(PayloadFault::Dtype { expected, got })),
            _ => Ok(()),
        }
    }

    /// Returns the type of a tensor of 16-bit floats in the arena or a state.
    pub(crate) fn half(&self, id: TensorId) -> Option<ScalarType> {
        let tensor = self.tensor(id)?;
        let buffer = self.buffers.get(tensor.buffer as usize)?;
        (half_of(tensor.dtype).is_some() && matches!(buffer, Buffer::Arena { .. } | Buffer::State(_)))
            .then_some(tensor.dtype)
    }

    /// Checks that a tensor in the arena or a state holds no 16-bit floats.
    pub(crate) fn no_half(&self, id: TensorId) -> Result {
        match self.half(id) {
            Some(got) => Err(PayloadError::new(PayloadFault::Dtype { expected: ScalarType::Float, got })),
            None => Ok(()),
        }
    }

    /// Checks that no tensor of a step in the arena or a state holds 16-bit floats.
    pub(crate) fn no_halves(&self, output: TensorId, inputs: impl Fn(&mut dyn FnMut(TensorId))) -> Result {
        let mut result = self.no_half(output);
        inputs(&mut |id| {
            if result.is_ok() {
                result = self.no_half(id);
            }
        });
        result
    }

    /// Returns the innermost size of a tensor if it is fixed; 1 without dimensions.
    pub(crate) fn last_size(&self, id: TensorId) -> Option<usize> {
        match self.tensor(id)?.dims.last() {
            Some(Size::Fixed(size)) => usize::try_from(*size).ok(),
            Some(Size::Computed(_)) => None,
            None => Some(1),
        }
    }

    /// Checks packed weights, which take `len` elements, if that is known before the inputs are.
    pub(crate) fn weights(&self, id: TensorId, dtype: ScalarType, len: Option<u64>) -> Result {
        self.dtype(id, dtype)?;
        let (Some(expected), Some(tensor)) = (len, self.tensor(id)) else { return Ok(()) };
        let got = tensor.dims.iter().map(|size| size.fixed());
        let got = got.into_iter().try_fold(1u64, |all, size| Some(all.saturating_mul(size?)));
        match got {
            Some(got) if got != expected => Err(PayloadError::new(PayloadFault::WeightSize { expected, got })),
            _ => Ok(()),
        }
    }

    /// Checks that a size fits in this machine's address space, or is one of the program's.
    pub(crate) fn check_size(&self, size: Size) -> Result {
        match size {
            Size::Fixed(value) => fits(value, 1),
            Size::Computed(index) => List::Sizes.check(index, self.sizes),
        }
    }

    /// Checks the sizes of a copy, which has as many strides.
    pub(crate) fn strided(&self, sizes: &[Size], strides: [&[Size]; 2]) -> Result {
        let rank = sizes.len();
        Counted::Dimensions.check(rank, MAX_RANK)?;
        if let Some(got) = strides.iter().map(|strides| strides.len()).find(|len| *len != rank) {
            return Err(PayloadError::new(PayloadFault::Ranks { expected: rank, got }));
        }
        sizes.iter().chain(strides.into_iter().flatten()).try_for_each(|size| self.check_size(*size))
    }

    /// True if all sizes of a tensor are fixed.
    pub(crate) fn is_fixed(&self, id: TensorId) -> bool {
        self.tensor(id).is_some_and(|tensor| tensor.dims.iter().all(|size| size.fixed().is_some()))
    }
}

/// The fixed sizes of tensors; computed ones are 0.
impl Sizes for Tensors<'_> {
    fn rank(&self, tensor: TensorId) -> usize {
        self.tensor(tensor).map_or(0, |tensor| tensor.dims.len())
    }

    fn dim(&self, tensor: TensorId, index: usize) -> u64 {
        let dims = self.tensor(tensor).map(|tensor| tensor.dims.as_slice());
        dims.and_then(|dims| dims.get(index)).and_then(|size| size.fixed()).unwrap_or(0)
    }

    fn size(&self, size: Size) -> u64 {
        size.fixed().unwrap_or(0)
    }
}

/// Checks that `size` elements of `bytes` bytes fit in this machine's address space.
pub(crate) fn fits(size: u64, bytes: usize) -> Result {
    let limit = isize::MAX as u64 / bytes as u64;
    if size < limit { Ok(()) } else { Err(PayloadError::new(PayloadFault::TooLarge { size, limit })) }
}

/// Returns the number of elements of packed weights; no tensor has as many if it is beyond `usize`.
pub(crate) fn elements(len: Option<usize>) -> u64 {
    len.map_or(u64::MAX, |len| len as u64)
}
