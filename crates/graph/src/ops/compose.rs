//! Short names for the operators that lowering uses most, which pick the overload for tensors and numbers.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, executorch_prim};
use crate::{Arg, Builder, Expr, Op, Type, ValueId};

use super::{Operands, promote};

impl Builder<'_> {
    /// `a + b`.
    pub(crate) fn add(&mut self, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<ValueId, Error> {
        let (a, b) = (a.into(), b.into());
        if self.is_tensor(&a) { self.pair(aten::packet::ADD, a, b) } else { self.pair(aten::packet::ADD, b, a) }
    }

    /// `a - b`.
    pub(crate) fn sub(&mut self, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<ValueId, Error> {
        let (a, b) = (a.into(), b.into());
        if self.is_tensor(&a) { self.pair(aten::packet::SUB, a, b) } else { self.pair(aten::packet::RSUB, b, a) }
    }

    /// `a * b`.
    pub(crate) fn mul(&mut self, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<ValueId, Error> {
        let (a, b) = (a.into(), b.into());
        if self.is_tensor(&a) { self.pair(aten::packet::MUL, a, b) } else { self.pair(aten::packet::MUL, b, a) }
    }

    /// `a / b`, in floating point. `a` is a tensor.
    pub(crate) fn div(&mut self, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<ValueId, Error> {
        self.pair(aten::packet::DIV, a.into(), b.into())
    }

    /// A comparison such as `aten::lt`, of a tensor with a tensor or number.
    pub(crate) fn compare(&mut self, name: &str, a: ValueId, b: impl Into<Arg>) -> Result<ValueId, Error> {
        self.pair(name, a.into(), b.into())
    }

    /// A function of one tensor.
    pub(crate) fn unary(&mut self, name: &str, x: ValueId) -> Result<ValueId, Error> {
        self.one(name, vec![x.into()])
    }

    /// `condition ? a : b` for each element, in the dtype that tensors and numbers promote to.
    pub(crate) fn select(
        &mut self,
        condition: ValueId,
        a: impl Into<Arg>,
        b: impl Into<Arg>,
    ) -> Result<ValueId, Error> {
        let (a, b) = (a.into(), b.into());
        let dtype = promote(&[&a, &b], self.graph)?;
        let (a, b) = (self.as_tensor(&a, dtype)?, self.as_tensor(&b, dtype)?);
        self.one(aten::WHERE_SELF, vec![condition.into(), a.into(), b.into()])
    }

    /// The tensor in another dtype; itself if it has that already.
    pub(crate) fn cast(&mut self, x: ValueId, dtype: ScalarType) -> Result<ValueId, Error> {
        if self.graph.tensor(x)?.dtype == dtype {
            return Ok(x);
        }
        self.one_with(aten::_TO_COPY, vec![x.into()], &[("dtype", dtype.into())])
    }

    /// The elements in row-major order in another shape.
    pub(crate) fn view(&mut self, x: ValueId, shape: Vec<Expr>) -> Result<ValueId, Error> {
        if self.graph.tensor(x)?.shape == shape {
            return Ok(x);
        }
        self.one(aten::VIEW_COPY, vec![x.into(), shape.into()])
    }

    /// A tensor as it is, a number as a tensor of this dtype without dimensions.
    pub(crate) fn as_tensor(&mut self, arg: &Arg, dtype: ScalarType) -> Result<ValueId, Error> {
        match arg {
            Arg::Value(value) if self.is_tensor(arg) => Ok(*value),
            Arg::Int(Expr::Int(value)) => self.integer(*value, dtype),
            Arg::Float(value) => self.scalar(*value, dtype),
            Arg::Bool(value) => self.integer(i64::from(*value), dtype),
            _ => self.one_with(aten::SCALAR_TENSOR, vec![arg.clone()], &[("dtype", dtype.into())]),
        }
    }

    /// `a + b` of numbers, of which some may be known only when the program runs.
    pub(crate) fn number_sum(&mut self, a: &Arg, b: &Arg) -> Result<Arg, Error> {
        self.number(executorch_prim::ADD_SCALAR, a, b, |a, b| a + b)
    }

    /// `a - b` of numbers.
    pub(crate) fn number_difference(&mut self, a: &Arg, b: &Arg) -> Result<Arg, Error> {
        self.number(executorch_prim::SUB_SCALAR, a, b, |a, b| a - b)
    }

    /// `a * b` of numbers.
    pub(crate) fn number_product(&mut self, a: &Arg, b: &Arg) -> Result<Arg, Error> {
        self.number(executorch_prim::MUL_SCALAR, a, b, |a, b| a * b)
    }

    /// `a / b` of numbers.
    pub(crate) fn number_quotient(&mut self, a: &Arg, b: &Arg) -> Result<Arg, Error> {
        self.number(executorch_prim::TRUEDIV_SCALAR, a, b, |a, b| a / b)
    }

    fn number(&mut self, name: &str, a: &Arg, b: &Arg, of: fn(f64, f64) -> f64) -> Result<Arg, Error> {
        if let (Some(a), Some(b)) = (known_number(a), known_number(b)) {
            return Ok(Arg::Float(of(a, b)));
        }
        // Kernels compute in integers if both operands are integers, so known numbers become floats.
        let float = |arg: &Arg| known_number(arg).map_or_else(|| arg.clone(), Arg::Float);
        let schema = self.schemas().expect(name)?;
        let results = self.push(Op::Call(schema), vec![float(a), float(b)], vec![Type::Float]);
        results.first().map(|value| Arg::Value(*value)).ok_or_else(|| Error::invalid("a number without a value"))
    }

    /// True if an argument is a tensor.
    pub(crate) fn is_tensor(&self, arg: &Arg) -> bool {
        arg.as_value().is_some_and(|value| matches!(self.graph.ty(value), Type::Tensor(_)))
    }

    /// Computes in f32 for inputs of f16 and bf16, as PyTorch's kernels do, and rounds once.
    pub(crate) fn precisely(
        &mut self,
        x: ValueId,
        body: impl FnOnce(&mut Self, ValueId) -> Result<ValueId, Error>,
    ) -> Result<ValueId, Error> {
        let dtype = self.graph.tensor(x)?.dtype;
        let wide = self.cast(x, compute_dtype(dtype))?;
        let result = body(self, wide)?;
        if is_half(dtype) { self.cast(result, dtype) } else { Ok(result) }
    }

    fn integer(&mut self, value: i64, dtype: ScalarType) -> Result<ValueId, Error> {
        // Beyond 53 bits a number is not exact as a double.
        if dtype == ScalarType::Long {
            let ty = crate::TensorType::new(dtype, Vec::new());
            return Ok(self.constant(crate::Constant::dense("scalar", ty, value.to_le_bytes().to_vec())?));
        }
        self.scalar(value as f64, dtype)
    }

    fn pair(&mut self, name: &str, a: Arg, b: Arg) -> Result<ValueId, Error> {
        let overload = if self.is_tensor(&b) { "Tensor" } else { "Scalar" };
        self.one(&format!("{name}.{overload}"), vec![a, b])
    }
}

/// Returns the value of a numeric argument, if it is known.
pub(crate) fn known_number(arg: &Arg) -> Option<f64> {
    match arg {
        Arg::Float(value) => Some(*value),
        Arg::Bool(value) => Some(f64::from(u8::from(*value))),
        Arg::Int(Expr::Int(value)) => Some(*value as f64),
        _ => None,
    }
}

/// Result of a lowering: the values that replace the node's results, or `None` if it stays.
pub(crate) type Lowered = Result<Option<Vec<ValueId>>, Error>;

/// True if the dtype has 16 bits of floating point.
const fn is_half(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::Half | ScalarType::BFloat16)
}

/// The dtype that PyTorch computes in for tensors of this one.
pub(crate) const fn compute_dtype(dtype: ScalarType) -> ScalarType {
    if is_half(dtype) { ScalarType::Float } else { dtype }
}

/// The same call of another operator.
pub(crate) fn forward(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    b.call(name, operands.args.to_vec()).map(Some)
}

/// The first argument as the result.
pub(crate) fn identity(_: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    Ok(Some(vec![operands.value(0)?]))
}

/// One result of a lowering.
pub(crate) fn done(value: ValueId) -> Lowered {
    Ok(Some(vec![value]))
}
