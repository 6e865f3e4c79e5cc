//! Activation functions of neural networks.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType};

use crate::support::elementwise::{map, out_like, tiles, unary};
use crate::support::math;
use crate::support::number::{Arithmetic, Number};
use crate::support::promote::{self, check_cast};
use crate::support::shape::{Dims, normalize_dim};
use crate::support::tile::{Compute, Cursor, Operand, Sink, scalar_as};

/// `elu.out(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1, *, Tensor(a!) out)`.
pub const ELU_OUT: Op = Op::new("aten::elu.out", 5, elu_out);
/// `gelu.out(Tensor self, *, str approximate="none", Tensor(a!) out)`.
pub const GELU_OUT: Op = Op::new("aten::gelu.out", 3, gelu_out);
/// `glu.out(Tensor self, int dim=-1, *, Tensor(a!) out)`: the first half times the sigmoid of the second.
pub const GLU_OUT: Op = Op::new("aten::glu.out", 3, glu_out);
/// `leaky_relu.out(Tensor self, Scalar negative_slope=0.01, *, Tensor(a!) out)`.
pub const LEAKY_RELU_OUT: Op = Op::new("aten::leaky_relu.out", 3, leaky_relu_out);
/// `logit.out(Tensor self, float? eps=None, *, Tensor(a!) out)`.
pub const LOGIT_OUT: Op = Op::new("aten::logit.out", 3, logit_out);
/// `relu.out(Tensor self, *, Tensor(a!) out)`.
pub const RELU_OUT: Op = Op::new("aten::relu.out", 2, relu_out);

pub const OPS: &[Op] = &[ELU_OUT, GELU_OUT, GLU_OUT, LEAKY_RELU_OUT, LOGIT_OUT, RELU_OUT];

/// The functions that activations are made of, in each floating compute type. Their names differ from those that `std`
/// gives floats.
trait Transcendental: Compute + Arithmetic {
    fn exponential(self) -> Self;
    fn exponential_minus_one(self) -> Self;
    fn logarithm(self) -> Self;
    fn hyperbolic_tangent(self) -> Self;
    fn error_function(self) -> Self;
}

macro_rules! transcendental {
    ($t:ty, $($module:ident)::+) => {
        impl Transcendental for $t {
            #[inline(always)]
            fn exponential(self) -> Self {
                $($module)::+::exp(self)
            }
            #[inline(always)]
            fn exponential_minus_one(self) -> Self {
                $($module)::+::expm1(self)
            }
            #[inline(always)]
            fn logarithm(self) -> Self {
                $($module)::+::log(self)
            }
            #[inline(always)]
            fn hyperbolic_tangent(self) -> Self {
                $($module)::+::tanh(self)
            }
            #[inline(always)]
            fn error_function(self) -> Self {
                $($module)::+::erf(self)
            }
        }
    };
}

transcendental!(f32, math);
transcendental!(f64, libm);

fn elu_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let (alpha, scale, input_scale) = (cx.double(1)?, cx.double(2)?, cx.double(3)?);
    let dtype = a.dtype();
    let mut out = out_like(cx, 4, &a, dtype)?;
    compute!(FLOAT, dtype, C => {
        let (negative, positive, input) =
            (C::from_f64(alpha * scale), C::from_f64(scale), C::from_f64(input_scale));
        // Two loops of vector code; one with the choice inside would not be.
        unary(&a, &mut out, (dtype, dtype), &move |a: &[C], out: &mut [C]| {
            for (a, out) in a.chunks(C::TILE).zip(out.chunks_mut(C::TILE)) {
                map(move |x: C| (x * input).exponential_minus_one() * negative)(a, out);
                for (out, &x) in out.iter_mut().zip(a) {
                    let above = x * positive;
                    *out = if x < C::ZERO { *out } else { above };
                }
            }
        })
    })
}

fn gelu_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, approximate) = (cx.tensor(0)?, cx.string(1)?);
    let dtype = a.dtype();
    let mut out = out_like(cx, 2, &a, dtype)?;
    let types = (dtype, dtype);
    match approximate {
        "none" => compute!(FLOAT, dtype, C => {
            let (half, root) = (C::from_f64(0.5), C::from_f64(core::f64::consts::FRAC_1_SQRT_2));
            unary(&a, &mut out, types, &map(move |x: C| x * half * (C::ONE + (x * root).error_function())))
        }),
        "tanh" => compute!(FLOAT, dtype, C => {
            // sqrt(2 / pi), and the factor of the cube
            let (beta, kappa) = (C::from_f64(0.797_884_560_802_865_4), C::from_f64(0.044_715));
            let half = C::from_f64(0.5);
            let gelu = |x: C| half * x * (C::ONE + (beta * (x + kappa * x * x * x)).hyperbolic_tangent());
            unary(&a, &mut out, types, &map(gelu))
        }),
        _ => Err(Error::invalid("approximate must be \"none\" or \"tanh\"").arg(1)),
    }
}

fn leaky_relu_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, slope) = (cx.tensor(0)?, cx.scalar(1)?);
    let dtype = a.dtype();
    let mut out = out_like(cx, 2, &a, dtype)?;
    compute!(FLOAT, dtype, C => {
        let slope = scalar_as::<C>(slope, dtype);
        unary(&a, &mut out, (dtype, dtype), &map(move |x: C| if x > C::ZERO { x } else { x * slope }))
    })
}

fn logit_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, eps) = (cx.tensor(0)?, cx.optional_double(1)?);
    let common = promote::to_float(a.dtype());
    let mut out = out_like(cx, 2, &a, common)?;
    compute!(FLOAT, common, C => {
        let (low, high) = match eps {
            Some(eps) => (C::from_f64(eps), C::ONE - C::from_f64(eps)),
            None => (C::NEG_INFINITY, C::INFINITY),
        };
        let inside = move |x: C| {
            let x = if x < low { low } else { x };
            if x > high { high } else { x }
        };
        let types = (common, common);
        let Some(narrow) = C::narrow(common) else {
            return unary(&a, &mut out, types, &map(move |x: C| { let x = inside(x); (x / (C::ONE - x)).logarithm() }));
        };
        // For 16-bit floats PyTorch rounds each step, and the logarithm near 1 makes that visible.
        unary(&a, &mut out, types, &move |a: &[C], out: &mut [C]| {
            map(move |x: C| C::ONE - inside(x))(a, out);
            narrow(out);
            for (out, &x) in out.iter_mut().zip(a) {
                *out = inside(x) / *out;
            }
            narrow(out);
            for out in out {
                *out = out.logarithm();
            }
        })
    })
}

fn relu_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let dtype = a.dtype();
    if dtype == ScalarType::Bool {
        return Err(Error::from(Detail::Dtype { expected: "an integer or floating type", got: dtype }).arg(0));
    }
    let mut out = out_like(cx, 1, &a, dtype)?;
    compute!(REAL, dtype, C => unary(&a, &mut out, (dtype, dtype), &map(move |x: C| if x < C::ZERO { C::ZERO } else { x })))
}

fn glu_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let dim = normalize_dim(cx.int(1)?, a.rank()).map_err(|e| e.arg(1))?;
    let mut sizes = Dims::from_slice(a.sizes())?;
    let half = match sizes.get_mut(dim) {
        Some(size) if *size % 2 == 0 => {
            *size /= 2;
            *size
        }
        _ => return Err(Error::invalid("the dimension that glu halves must have an even size").arg(0)),
    };
    let dtype = a.dtype();
    let mut out = cx.out(2)?;
    check_cast(dtype, out.dtype()).map_err(|e| e.arg(2))?;
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    compute!(FLOAT, dtype, C => {
        let mut first = Cursor::new(&sizes, a.strides(), out.sizes(), out.dim_order())?;
        let offset = half * a.strides().get(dim).copied().unwrap_or(0);
        let mut second = Cursor::new(&sizes, a.strides(), out.sizes(), out.dim_order())?.shifted(offset);
        let (mut value, mut gate) = (Operand::<C>::at(&a, &mut first, dtype)?, Operand::<C>::at(&a, &mut second, dtype)?);
        let sink = Sink::<C>::new(dtype, &out)?;
        let (mut room_value, mut room_gate, mut room) = (None, None, None);
        tiles(out.numel(), C::TILE, |at, len| {
            let (value, gate) = (value.next(&mut room_value, len), gate.next(&mut room_gate, len));
            sink.write(&mut out, &mut room, (at, len), |out| {
                for ((out, &x), &y) in out.iter_mut().zip(value).zip(gate) {
                    *out = x * (C::ONE / (C::ONE + (-y).exponential()));
                }
            })
        })
    })
}
