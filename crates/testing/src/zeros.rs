//! Inputs of zeros for a method, as its metadata describes them.

use rushlight::{Input, MethodMeta, ScalarType, TensorView};

/// Dtype, sizes and bytes of each tensor, which [`Zeros::inputs`] borrows.
#[derive(Debug)]
pub struct Zeros {
    tensors: Vec<Option<(ScalarType, Vec<usize>, Vec<u8>)>>,
}

impl Zeros {
    /// Zeros for the inputs that are tensors of at most `limit` bytes.
    pub fn of(meta: &MethodMeta, limit: u64) -> Self {
        let tensors = meta.inputs.iter().map(|input| {
            let tensor = input.as_tensor().filter(|tensor| tensor.nbytes <= limit)?;
            Some((tensor.dtype, tensor.sizes.clone(), vec![0u8; usize::try_from(tensor.nbytes).ok()?]))
        });
        Self { tensors: tensors.collect() }
    }

    /// All inputs of the method; `None` for those without zeros.
    pub fn inputs(&self) -> Vec<Input<'_>> {
        let inputs = self.tensors.iter().map(|tensor| {
            let (dtype, sizes, bytes) = tensor.as_ref()?;
            TensorView::new(*dtype, sizes, bytes).ok().map(Input::Tensor)
        });
        inputs.map(|input| input.unwrap_or(Input::None)).collect()
    }
}
