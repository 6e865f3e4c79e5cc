//! Bounds on the operations of steps.
//!
//! Sizes, strides and kernels are numbers in a payload: nothing says that there are elements behind them. A step with such
//! parameters has a bound on its operations in proportion to the elements of its tensors;
//! [`StepKind::work`](crate::StepKind::work) computes both. They are compared when a payload is parsed, if its sizes are fixed,
//! and again whenever dynamic sizes change.
//!
//! Other steps read and write each element a fixed number of times, or once for each instruction in the payload.

use crate::{PayloadError, PayloadFault, Size, TensorId};

/// The operations of one call of a step, and their limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Multiplications, comparisons, elements that are moved: an upper bound that saturates.
    pub operations: u128,
    /// The limit that follows from the elements of the step's tensors and from its length in the payload.
    pub limit: u128,
}

impl Work {
    pub fn is_bounded(&self) -> bool {
        self.operations <= self.limit
    }

    /// Checks that the operations are within their limit.
    pub(crate) fn check(self) -> Result<(), PayloadError> {
        if self.is_bounded() {
            return Ok(());
        }
        let [operations, limit] = self.saturated();
        Err(PayloadError::new(PayloadFault::Work { operations, limit }))
    }

    /// The operations and the limit, for messages.
    pub fn saturated(&self) -> [u64; 2] {
        [self.operations, self.limit].map(|number| u64::try_from(number).unwrap_or(u64::MAX))
    }
}

/// The sizes of a program's tensors.
pub trait Sizes {
    /// The rank of a tensor.
    fn rank(&self, tensor: TensorId) -> usize;

    /// The size of one dimension of a tensor; 0 for a dimension that it does not have.
    fn dim(&self, tensor: TensorId, index: usize) -> u64;

    /// A size that is fixed or computed.
    fn size(&self, size: Size) -> u64;

    /// The number of elements of a tensor; saturates.
    fn elements(&self, tensor: TensorId) -> u128 {
        product((0..self.rank(tensor)).map(|index| self.dim(tensor, index)))
    }

    /// The size of a tensor's innermost dimension; 1 without dimensions.
    fn last(&self, tensor: TensorId) -> u128 {
        self.rank(tensor).checked_sub(1).map_or(1, |index| self.dim(tensor, index).into())
    }
}

/// Multiplies sizes: 0 if one is, and otherwise at most the largest number.
pub(crate) fn product(sizes: impl IntoIterator<Item = u64>) -> u128 {
    let all = sizes.into_iter().try_fold(1u128, |all, size| match size {
        0 => Err(()),
        size => Ok(all.saturating_mul(size.into())),
    });
    all.unwrap_or(0)
}
