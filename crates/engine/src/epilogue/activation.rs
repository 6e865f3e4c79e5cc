//! Activation functions, applied to vectors.

use crate::arch::{Arithmetic, math};

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Activation {
    #[default]
    None,
    /// `clamp(x, min, max)`; neither bound may be NaN, and NaN stays NaN.
    Clamp {
        min: f32,
        max: f32,
    },
    /// `x` for positive x, else `slope * x`.
    LeakyRelu {
        slope: f32,
    },
    /// `x` for positive x, else `alpha * (exp(x) - 1)`.
    Elu {
        alpha: f32,
    },
    /// `x * clamp(x + 3, 0, 6) / 6`
    HardSwish,
    /// `clamp(x + 3, 0, 6) / 6`
    HardSigmoid,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `x * sigmoid(x)`
    Silu,
    Tanh,
    /// `x * (1 + erf(x / sqrt(2))) / 2`
    GeluErf,
    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`
    GeluTanh,
}

impl Activation {
    pub const RELU: Activation = Activation::Clamp { min: 0.0, max: f32::INFINITY };
    pub const RELU6: Activation = Activation::Clamp { min: 0.0, max: 6.0 };

    /// Returns true if the activation is cheap enough to be applied in the registers of the microkernel: clamp and
    /// hard-swish.
    pub fn is_fusable(self) -> bool {
        matches!(self, Self::None | Self::Clamp { .. } | Self::HardSwish)
    }

    /// Like [`apply`](Self::apply), with less accuracy where the result is rounded to bf16 anyway.
    #[inline(always)]
    pub(super) fn apply_for_bf16<S: Arithmetic>(self, s: S, x: S::V) -> S::V {
        if self == Activation::GeluErf { math::gelu_for_bf16(s, x) } else { self.apply(s, x) }
    }

    #[inline(always)]
    pub(crate) fn apply<S: Arithmetic>(self, s: S, x: S::V) -> S::V {
        let zero = s.splat(0.0);
        match self {
            Activation::None => x,
            Activation::Clamp { min, max } => s.clamp(x, s.splat(min), s.splat(max)),
            Activation::LeakyRelu { slope } => s.select_less(zero, x, x, s.mul(x, s.splat(slope))),
            Activation::Elu { alpha } => {
                let negative = s.mul(s.splat(alpha), s.sub(math::exp(s, x), s.splat(1.0)));
                s.select_less(zero, x, x, negative)
            }
            Activation::HardSwish => s.mul(x, hard_sigmoid(s, x)),
            Activation::HardSigmoid => hard_sigmoid(s, x),
            Activation::Sigmoid => math::sigmoid(s, x),
            Activation::Silu => s.mul(x, math::sigmoid(s, x)),
            Activation::Tanh => math::tanh(s, x),
            Activation::GeluErf => math::gelu(s, x),
            Activation::GeluTanh => {
                let cube = s.mul(s.mul(x, x), x);
                let inner = s.mul(s.fma(s.splat(0.044_715), cube, x), s.splat(0.797_884_6));
                let halved = s.mul(x, s.splat(0.5));
                s.fma(halved, math::tanh(s, inner), halved)
            }
        }
    }
}

#[inline(always)]
fn hard_sigmoid<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let shifted = s.add(x, s.splat(3.0));
    s.mul(s.clamp(shifted, s.splat(0.0), s.splat(6.0)), s.splat(1.0 / 6.0))
}
