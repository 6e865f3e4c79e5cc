//! LoRA adapters of a model.

use std::hash::Hasher;
use std::sync::Arc;

use rushlight::{Input, TensorView};
use rushlight_checkpoint::lora::{Targets, peft};
use rustc_hash::FxHasher;

use crate::error::Result;

/// A LoRA adapter: low-rank matrices that change the answers of the sessions that have it
/// ([`Model::session_with`](crate::Model::session_with)). Any number of adapters and sessions shares the weights of one model, and
/// copies of an adapter share its matrices.
#[derive(Clone, Debug)]
pub struct Adapter(Arc<Inputs>);

#[derive(Debug)]
struct Inputs {
    /// The matrices in the order of the method's inputs.
    matrices: Vec<Matrix>,
    targets: Targets,
    /// Hash of the sizes and elements, which saved sessions have.
    fingerprint: u64,
}

#[derive(Debug)]
struct Matrix {
    sizes: [usize; 3],
    elements: Vec<f32>,
}

impl Adapter {
    pub(crate) fn of(targets: Targets, matrices: Vec<peft::Matrices>) -> Self {
        let each = targets.kinds.iter().zip(matrices).flat_map(|(kind, peft::Matrices { rank, a, b })| {
            let layers = kind.modules.len();
            [
                Matrix { sizes: [layers, rank, kind.inputs], elements: a },
                Matrix { sizes: [layers, kind.outputs, rank], elements: b },
            ]
        });
        let matrices: Vec<Matrix> = each.collect();
        let mut hasher = FxHasher::default();
        for Matrix { sizes, elements } in &matrices {
            sizes.iter().for_each(|size| hasher.write_usize(*size));
            elements.iter().for_each(|element| hasher.write_u32(element.to_bits()));
        }
        Self(Arc::new(Inputs { matrices, targets, fingerprint: hasher.finish() }))
    }

    /// The method's inputs after the tokens and their position.
    pub(crate) fn inputs(&self) -> Result<impl Iterator<Item = Input<'_>>> {
        let views = self.0.matrices.iter().map(|matrix| TensorView::of(&matrix.sizes, &matrix.elements));
        let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(rushlight::Error::from)?;
        Ok(views.into_iter().map(Input::from))
    }

    /// The layers that the adapter is for.
    pub(crate) fn targets(&self) -> &Targets {
        &self.0.targets
    }

    /// Hash of the sizes and elements.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }

    /// True for copies of one adapter.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Bytes of the matrices.
    pub fn size(&self) -> usize {
        self.0.matrices.iter().map(|matrix| size_of_val(&matrix.elements[..])).sum()
    }
}
