//! Packed weights in the types that they may have.

use alloc::vec::Vec;

use crate::Half;

/// What a function of [`pack`](crate::pack) made, as it is or rounded to 16 bits. Products widen such weights on the way
/// and sum in f32.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a> {
    F32(&'a [f32]),
    Half(Half, &'a [u16]),
}

impl<'a> From<&'a [f32]> for Weights<'a> {
    fn from(weights: &'a [f32]) -> Self {
        Self::F32(weights)
    }
}

impl<'a> From<&'a Vec<f32>> for Weights<'a> {
    fn from(weights: &'a Vec<f32>) -> Self {
        Self::F32(weights)
    }
}

impl Weights<'_> {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(weights) => weights.len(),
            Self::Half(_, weights) => weights.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `at`, which is at most their number, and the others.
    pub(crate) fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::F32(weights) => {
                let (first, others) = weights.split_at(at);
                (Self::F32(first), Self::F32(others))
            }
            Self::Half(half, weights) => {
                let (first, others) = weights.split_at(at);
                (Self::Half(half, first), Self::Half(half, others))
            }
        }
    }
}
