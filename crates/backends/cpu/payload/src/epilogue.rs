//! Epilogues of GEMMs and convolutions: what their kernels do to accumulators. Accumulators of f32 and of i32 have other ones.

use rushlight_engine::Activation;

use crate::codec::{structure, union};
use crate::tensors::Tensors;
use crate::{Affine, PayloadError, TensorId};

/// The epilogue of f32 accumulators: the bias is added, then the residual before or after the activation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epilogue {
    /// One number for each column.
    pub bias: Option<TensorId>,
    pub residual: Option<Residual>,
    pub activation: Activation,
}

impl Epilogue {
    pub(crate) fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        self.bias.into_iter().chain(self.residual.map(Residual::tensor)).for_each(visit);
    }
}

/// A tensor of the shape of the result that an epilogue adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    BeforeActivation(TensorId),
    AfterActivation(TensorId),
}

impl Residual {
    /// Returns the tensor that is added.
    pub const fn tensor(self) -> TensorId {
        match self {
            Self::BeforeActivation(tensor) | Self::AfterActivation(tensor) => tensor,
        }
    }
}

/// The epilogue of the i32 accumulators of int8 kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Int8Epilogue {
    /// The left side has the scale and zero point of its tensor. The result is f32, or requantized to u8.
    Static {
        /// The initial accumulators of each column, the bits of `i32`: the bias in units of the accumulator, less
        /// the left side's zero point times the sum of the column's weights. `[phases, columns]` of a transposed
        /// convolution.
        offsets: TensorId,
        /// The scale of each column's accumulators.
        scales: TensorId,
        /// f32, for columns whose bias does not fit among the offsets.
        bias: Option<TensorId>,
        fake_quantize: Option<FakeQuantize>,
        /// A quantized tensor of the shape of the result, which is added before the activation.
        residual: Option<TensorId>,
        activation: Activation,
    },
    /// The left side was dynamically quantized.
    Dynamic {
        /// The scales and zero points that [`ChooseQparams`](crate::ChooseQparams) chose for the rows of the left side, or
        /// for all of it.
        qparams: TensorId,
        /// The sum of each column's weights, the bits of `i32`; `[phases, columns]` of a transposed convolution.
        sums: TensorId,
        /// The scale of each column's weights.
        scales: TensorId,
        bias: Option<TensorId>,
        activation: Activation,
    },
}

impl Int8Epilogue {
    pub(crate) fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        let read = match *self {
            Self::Static { offsets, scales, bias, residual, .. } => [Some(offsets), Some(scales), bias, residual],
            Self::Dynamic { qparams, sums, scales, bias, .. } => [Some(sums), Some(scales), bias, Some(qparams)],
        };
        read.into_iter().flatten().for_each(visit);
    }

    /// Checks that the left side and the residual of an int8 kernel are quantized, and nothing else is. The result may be.
    pub(crate) fn check(
        &self,
        tensors: &Tensors<'_>,
        inputs: impl Fn(&mut dyn FnMut(TensorId)),
        x: TensorId,
    ) -> Result<(), PayloadError> {
        match *self {
            Self::Static { fake_quantize, residual, .. } => {
                fake_quantize.map_or(Ok(()), |fake_quantize| fake_quantize.affine.check())?;
                tensors.floats(inputs, &[x, residual.unwrap_or(x)], None)
            }
            Self::Dynamic { .. } => tensors.floats(inputs, &[x], None),
        }
    }

    /// Returns the tensor with a number for each phase and column.
    pub(crate) const fn offsets(&self) -> TensorId {
        match self {
            Self::Static { offsets, .. } => *offsets,
            Self::Dynamic { sums, .. } => *sums,
        }
    }
}

/// Quantizes to u8 and back, as a quantized network does between two operators that an epilogue fuses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FakeQuantize {
    /// Applied before.
    pub activation: Activation,
    pub affine: Affine,
}

/// The epilogue of a GEMM with group-wise quantized weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupwiseEpilogue {
    /// The scales and zero points that [`ChooseQparams`](crate::ChooseQparams) chose for the rows of the left side.
    pub qparams: TensorId,
    /// The sum of each column's dequantized weights, as f32.
    pub sums: TensorId,
    pub bias: Option<TensorId>,
    pub activation: Activation,
}

impl GroupwiseEpilogue {
    pub(crate) fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.sums, self.qparams].into_iter().chain(self.bias).for_each(visit);
    }
}

structure! {
    Epilogue { bias, residual, activation }
    FakeQuantize { activation, affine }
    GroupwiseEpilogue { qparams, sums, bias, activation }
}

union! {
    Residual { 0 BeforeActivation(tensor), 1 AfterActivation(tensor) }
    Int8Epilogue {
        0 Static { offsets, scales, bias, fake_quantize, residual, activation },
        1 Dynamic { qparams, sums, scales, bias, activation }
    }
}
