//! The definition of an operator.

use crate::{Error, Graph, Type, ValueId};

use super::{Builder, Operands};

/// Maximum rank of a tensor, as in PyTorch.
pub const MAX_RANK: usize = 64;

/// Inference and lowering of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Full name, as in its schema.
    pub name: &'static str,
    pub infer: Infer,
    /// Lowering to simpler operators; `None` where kernels have it.
    pub lower: Option<Lower>,
}

/// The types of the results; a list of tensors counts as its elements.
pub type Infer = fn(&Operands<'_>, &Graph) -> Result<Vec<Type>, Error>;

/// Adds simpler nodes that compute the results; `None` leaves this call as it is.
pub type Lower = fn(&mut Builder<'_>, &Operands<'_>) -> Result<Option<Vec<ValueId>>, Error>;

/// An operator that kernels have.
pub(crate) const fn kernel(name: &'static str, infer: Infer) -> Definition {
    Definition { name, infer, lower: None }
}

/// An operator that is made of others.
pub(crate) const fn composite(name: &'static str, infer: Infer, lower: Lower) -> Definition {
    Definition { name, infer, lower: Some(lower) }
}
