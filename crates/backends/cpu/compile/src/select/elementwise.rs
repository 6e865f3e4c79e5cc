//! Elementwise operators.

use rushlight_cpu_payload::{Activation, Binary, Unary};
use rushlight_format::ScalarType;

use rushlight_graph::ValueId;

use crate::call::Call;

/// A value, or a number that is known when the program is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    Value(ValueId),
    Number(f32),
}

/// An elementwise operator with its operands.
#[derive(Clone, Debug)]
pub(crate) enum Elementwise {
    Activation {
        activation: Activation,
        x: ValueId,
    },
    Unary {
        function: Unary,
        x: ValueId,
    },
    /// `b` is multiplied by `alpha` first.
    Binary {
        function: Binary,
        a: ValueId,
        b: Operand,
        alpha: f32,
    },
    Power {
        x: ValueId,
        exponent: f32,
    },
    /// The first choice where the condition holds, else the second.
    Select {
        condition: ValueId,
        choices: [Operand; 2],
    },
    /// Bounds in the wrong order, or NaN: the upper one wins, as in PyTorch. Others are an activation.
    Clamp {
        x: ValueId,
        min: f32,
        max: f32,
    },
    /// Bounds that are tensors, in the order in which they apply: the upper one wins.
    ClampTensor {
        x: ValueId,
        bounds: Vec<(Binary, ValueId)>,
    },
    Cast {
        x: ValueId,
        from: ScalarType,
        to: ScalarType,
    },
}

impl Elementwise {
    /// True if the step can give truth values, 1 and 0.
    pub fn gives_truth(&self) -> bool {
        match self {
            Self::Unary { function, .. } => matches!(function, Unary::IsNan | Unary::Not),
            Self::Binary { function, .. } => matches!(
                function,
                Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge | Binary::And | Binary::Or
            ),
            // A number may be another than 1 and 0.
            Self::Select { choices, .. } => choices.iter().all(|choice| matches!(choice, Operand::Value(_))),
            Self::Cast { .. } => true,
            Self::Activation { .. } | Self::Power { .. } | Self::Clamp { .. } | Self::ClampTensor { .. } => false,
        }
    }
}

/// The elementwise operator that a node is; `None` if it is none, or one in another form.
pub(super) fn select(call: &Call<'_>) -> Option<Elementwise> {
    let number = |name: &str| call.number(name).map(|number| number as f32);
    let operand = |name: &str| call.optional(name).map(Operand::Value).or_else(|| number(name).map(Operand::Number));
    let x = || call.optional("self");
    let binary = |function: Binary, other: &str| {
        let alpha = if call.arg("alpha").is_some() { number("alpha")? } else { 1.0 };
        Some(Elementwise::Binary { function, a: x()?, b: operand(other)?, alpha })
    };
    if let Some(activation) = activation(call) {
        let x = x().or_else(|| call.optional("input"))?;
        return Some(Elementwise::Activation { activation, x });
    }
    if let Some(function) = unary(call.name()) {
        return Some(Elementwise::Unary { function, x: x()? });
    }
    match call.name() {
        "aten::add.Tensor" | "aten::add.Scalar" => binary(Binary::Add, "other"),
        "aten::sub.Tensor" | "aten::sub.Scalar" => binary(Binary::Sub, "other"),
        "aten::mul.Tensor" | "aten::mul.Scalar" => binary(Binary::Mul, "other"),
        "aten::div.Tensor" | "aten::div.Scalar" => binary(Binary::Div, "other"),
        "aten::maximum" => binary(Binary::Max, "other"),
        "aten::minimum" => binary(Binary::Min, "other"),
        "aten::pow.Tensor_Tensor" => binary(Binary::Pow, "exponent"),
        "aten::pow.Tensor_Scalar" => Some(Elementwise::Power { x: x()?, exponent: number("exponent")? }),
        "aten::where.self" => {
            let choices = [Operand::Value(x()?), Operand::Value(call.optional("other")?)];
            Some(Elementwise::Select { condition: call.optional("condition")?, choices })
        }
        "aten::masked_fill.Scalar" => {
            let choices = [Operand::Number(number("value")?), Operand::Value(x()?)];
            Some(Elementwise::Select { condition: call.optional("mask")?, choices })
        }
        "aten::clamp" => Some(Elementwise::Clamp { x: x()?, min: number("min")?, max: number("max")? }),
        "aten::clamp.Tensor" => {
            let bounds = [("min", Binary::Max), ("max", Binary::Min)].into_iter();
            let bounds: Vec<_> = bounds.filter_map(|(name, bound)| Some((bound, call.optional(name)?))).collect();
            (!bounds.is_empty()).then_some(Elementwise::ClampTensor { x: x()?, bounds })
        }
        "aten::_to_copy" => {
            let dtype = |value: ValueId| call.graph.tensor(value).ok().map(|ty| ty.dtype);
            Some(Elementwise::Cast { x: x()?, from: dtype(x()?)?, to: dtype(call.result().ok()?)? })
        }
        name => match comparison(name) {
            Some(function) => binary(function, "other"),
            None => binary(logic(name).filter(|_| is_of_truth(call))?, "other"),
        },
    }
}

/// True if all operands are truth values.
fn is_of_truth(call: &Call<'_>) -> bool {
    call.operands().iter().all(|value| call.graph.tensor(*value).is_ok_and(|ty| ty.dtype == ScalarType::Bool))
}

/// The comparison that an operator computes.
fn comparison(name: &str) -> Option<Binary> {
    let (base, overload) = name.split_once('.')?;
    if !matches!(overload, "Tensor" | "Scalar") {
        return None;
    }
    Some(match base {
        "aten::eq" => Binary::Eq,
        "aten::ne" => Binary::Ne,
        "aten::lt" => Binary::Lt,
        "aten::le" => Binary::Le,
        "aten::gt" => Binary::Gt,
        "aten::ge" => Binary::Ge,
        _ => return None,
    })
}

/// The logical operator of two truth values that an operator computes.
fn logic(name: &str) -> Option<Binary> {
    Some(match name {
        "aten::logical_and" | "aten::bitwise_and.Tensor" => Binary::And,
        "aten::logical_or" | "aten::bitwise_or.Tensor" => Binary::Or,
        "aten::logical_xor" | "aten::bitwise_xor.Tensor" => Binary::Ne,
        _ => return None,
    })
}

/// The activation that a node computes, if it is one.
pub(crate) fn activation(call: &Call<'_>) -> Option<Activation> {
    let bound = |name: &str, default: f32| match call.arg(name) {
        None => Some(default),
        Some(_) => call.number(name).map(|number| number as f32),
    };
    Some(match call.name() {
        "aten::relu" => Activation::Clamp { min: 0.0, max: f32::INFINITY },
        "aten::hardtanh" => Activation::Clamp { min: bound("min_val", -1.0)?, max: bound("max_val", 1.0)? },
        "aten::clamp" => {
            let (min, max) = (bound("min", f32::NEG_INFINITY)?, bound("max", f32::INFINITY)?);
            if min.is_nan() || max.is_nan() || min > max {
                return None;
            }
            Activation::Clamp { min, max }
        }
        "aten::elu"
            if [("scale", 1.0), ("input_scale", 1.0)].iter().all(|(name, one)| call.number(name) == Some(*one)) =>
        {
            Activation::Elu { alpha: call.number("alpha")? as f32 }
        }
        "aten::leaky_relu" => Activation::LeakyRelu { slope: call.number("negative_slope")? as f32 },
        "aten::hardswish" => Activation::HardSwish,
        "aten::hardsigmoid" => Activation::HardSigmoid,
        "aten::sigmoid" => Activation::Sigmoid,
        "aten::silu" => Activation::Silu,
        "aten::tanh" => Activation::Tanh,
        "aten::gelu" if call.text("approximate") == Some("tanh") => Activation::GeluTanh,
        "aten::gelu" => Activation::Gelu,
        _ => return None,
    })
}

/// The unary operator that an operator computes.
fn unary(name: &str) -> Option<Unary> {
    Some(match name {
        "aten::neg" => Unary::Neg,
        "aten::abs" => Unary::Abs,
        "aten::sqrt" => Unary::Sqrt,
        "aten::rsqrt" => Unary::Rsqrt,
        "aten::reciprocal" => Unary::Reciprocal,
        "aten::exp" => Unary::Exp,
        "aten::log" => Unary::Log,
        "aten::log1p" => Unary::Log1p,
        "aten::expm1" => Unary::Expm1,
        "aten::sin" => Unary::Sin,
        "aten::cos" => Unary::Cos,
        "aten::erf" => Unary::Erf,
        "aten::floor" => Unary::Floor,
        "aten::ceil" => Unary::Ceil,
        "aten::round" => Unary::Round,
        "aten::trunc" => Unary::Trunc,
        "aten::isnan" => Unary::IsNan,
        "aten::logical_not" | "aten::bitwise_not" => Unary::Not,
        _ => return None,
    })
}
