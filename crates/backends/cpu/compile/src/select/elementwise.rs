//! Elementwise operators.

use rushlight_compiler::passes::raise::clamp_bounds;
use rushlight_cpu_payload::{Activation, Binary, Unary};
use rushlight_format::ScalarType;
use rushlight_graph::Call;

use rushlight_graph::ValueId;
use rushlight_graph::operators::aten;

/// A value, or a number that is known when the program is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    Value(ValueId),
    Constant(f32),
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
    /// Bounds that are tensors, in the order in which they apply. The upper one wins.
    ClampTensor {
        x: ValueId,
        bounds: Vec<(Binary, ValueId)>,
    },
    Cast {
        x: ValueId,
        from: ScalarType,
        to: ScalarType,
    },
    /// The remainder of integers, with the sign of the divisor.
    Remainder {
        x: ValueId,
        divisor: f32,
    },
}

impl Elementwise {
    /// True if the step can produce truth values, 1 and 0.
    pub fn gives_truth(&self) -> bool {
        match self {
            Self::Unary { function, .. } => matches!(function, Unary::IsNan | Unary::Not),
            Self::Binary { function, .. } => matches!(
                function,
                Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge | Binary::And | Binary::Or
            ),
            // A constant may be a number other than 1 and 0.
            Self::Select { choices, .. } => choices.iter().all(|choice| matches!(choice, Operand::Value(_))),
            Self::Cast { .. } => true,
            Self::Activation { .. }
            | Self::Power { .. }
            | Self::Clamp { .. }
            | Self::ClampTensor { .. }
            | Self::Remainder { .. } => false,
        }
    }
}

/// Returns the elementwise operator that a node computes; `None` if the node is not elementwise or has unsupported
/// arguments.
pub(super) fn select(call: &Call<'_>) -> Option<Elementwise> {
    let number = |name: &str| call.number(name).map(|number| number as f32);
    let operand = |name: &str| call.optional(name).map(Operand::Value).or_else(|| number(name).map(Operand::Constant));
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
        aten::ADD_TENSOR | aten::ADD_SCALAR => binary(Binary::Add, "other"),
        aten::SUB_TENSOR | aten::SUB_SCALAR => binary(Binary::Sub, "other"),
        aten::MUL_TENSOR | aten::MUL_SCALAR => binary(Binary::Mul, "other"),
        aten::DIV_TENSOR | aten::DIV_SCALAR => binary(Binary::Div, "other"),
        aten::MAXIMUM => binary(Binary::Max, "other"),
        aten::MINIMUM => binary(Binary::Min, "other"),
        aten::POW_TENSOR_TENSOR => binary(Binary::Pow, "exponent"),
        aten::POW_TENSOR_SCALAR => Some(Elementwise::Power { x: x()?, exponent: number("exponent")? }),
        aten::WHERE_SELF => {
            let choices = [Operand::Value(x()?), Operand::Value(call.optional("other")?)];
            Some(Elementwise::Select { condition: call.optional("condition")?, choices })
        }
        aten::MASKED_FILL_SCALAR => {
            let choices = [Operand::Constant(number("value")?), Operand::Value(x()?)];
            Some(Elementwise::Select { condition: call.optional("mask")?, choices })
        }
        aten::CLAMP => Some(Elementwise::Clamp { x: x()?, min: number("min")?, max: number("max")? }),
        aten::CLAMP_TENSOR => {
            let bounds = [("min", Binary::Max), ("max", Binary::Min)].into_iter();
            let bounds: Vec<_> = bounds.filter_map(|(name, bound)| Some((bound, call.optional(name)?))).collect();
            (!bounds.is_empty()).then_some(Elementwise::ClampTensor { x: x()?, bounds })
        }
        aten::_TO_COPY => {
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

/// Returns the comparison that an operator computes.
fn comparison(name: &str) -> Option<Binary> {
    let (base, overload) = name.split_once('.')?;
    if !matches!(overload, "Tensor" | "Scalar") {
        return None;
    }
    Some(match base {
        aten::packet::EQ => Binary::Eq,
        aten::packet::NE => Binary::Ne,
        aten::packet::LT => Binary::Lt,
        aten::packet::LE => Binary::Le,
        aten::packet::GT => Binary::Gt,
        aten::packet::GE => Binary::Ge,
        _ => return None,
    })
}

/// Returns the logical operator that an operator computes on two truth values.
fn logic(name: &str) -> Option<Binary> {
    Some(match name {
        aten::LOGICAL_AND | aten::BITWISE_AND_TENSOR => Binary::And,
        aten::LOGICAL_OR | aten::BITWISE_OR_TENSOR => Binary::Or,
        aten::LOGICAL_XOR | aten::BITWISE_XOR_TENSOR => Binary::Ne,
        _ => return None,
    })
}

/// Returns the activation that a node computes, if it is one.
pub(crate) fn activation(call: &Call<'_>) -> Option<Activation> {
    if let Some((min, max)) = clamp_bounds(call) {
        return Some(Activation::Clamp { min, max });
    }
    Some(match call.name() {
        aten::ELU
            if [("scale", 1.0), ("input_scale", 1.0)].iter().all(|(name, one)| call.number(name) == Some(*one)) =>
        {
            Activation::Elu { alpha: call.number("alpha")? as f32 }
        }
        aten::LEAKY_RELU => Activation::LeakyRelu { slope: call.number("negative_slope")? as f32 },
        aten::HARDSWISH => Activation::HardSwish,
        aten::HARDSIGMOID => Activation::HardSigmoid,
        aten::SIGMOID => Activation::Sigmoid,
        aten::SILU => Activation::Silu,
        aten::TANH => Activation::Tanh,
        aten::GELU if call.text("approximate") == Some("tanh") => Activation::GeluTanh,
        aten::GELU => Activation::GeluErf,
        _ => return None,
    })
}

/// Returns the unary operator of the engine for an ATen operator.
fn unary(name: &str) -> Option<Unary> {
    Some(match name {
        aten::NEG => Unary::Neg,
        aten::ABS => Unary::Abs,
        aten::SQRT => Unary::Sqrt,
        aten::RSQRT => Unary::Rsqrt,
        aten::RECIPROCAL => Unary::Reciprocal,
        aten::EXP => Unary::Exp,
        aten::LOG => Unary::Log,
        aten::LOG1P => Unary::Log1p,
        aten::EXPM1 => Unary::Expm1,
        aten::SIN => Unary::Sin,
        aten::COS => Unary::Cos,
        aten::ERF => Unary::Erf,
        aten::FLOOR => Unary::Floor,
        aten::CEIL => Unary::Ceil,
        aten::ROUND => Unary::Round,
        aten::TRUNC => Unary::Trunc,
        aten::ISNAN => Unary::IsNan,
        aten::LOGICAL_NOT | aten::BITWISE_NOT => Unary::Not,
        _ => return None,
    })
}
