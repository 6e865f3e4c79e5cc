//! The functions of instructions, as loops over vectors.
#![allow(unsafe_code)]

use super::{Binary, Unary};
use crate::Activation;
use crate::arch::{Job, LANES, Simd, math};
use crate::convert::{from_bf16, from_f16, to_bf16, to_f16};

/// Where a function reads: vectors one after the other, or always the same.
#[derive(Clone, Copy)]
pub(super) struct Input {
    at: *const f32,
    /// Floats between vectors: 16, or 0 for a number.
    step: usize,
}

impl Input {
    pub(super) const NONE: Input = Input { at: core::ptr::null(), step: 0 };

    pub(super) fn memory(at: *const f32) -> Self {
        Self { at, step: LANES }
    }

    /// A number, in memory that must last as long as the input.
    pub(super) fn number(x: f32, memory: &mut [f32; LANES]) -> Self {
        *memory = [x; LANES];
        Self { at: memory.as_ptr(), step: 0 }
    }
}

/// A function of an instruction.
#[derive(Clone, Copy)]
pub(super) enum Apply {
    Unary(Unary),
    Binary(Binary),
    Select,
    Activate(Activation),
}

impl Apply {
    #[inline(always)]
    pub(super) fn operands(self) -> usize {
        match self {
            Apply::Unary(_) | Apply::Activate(_) => 1,
            Apply::Binary(_) => 2,
            Apply::Select => 3,
        }
    }

    /// # Safety
    /// Each of the inputs that the function has is a number, or `n` floats; `to` is `n` floats, which may be an input's, but
    /// do not otherwise overlap one.
    #[inline(always)]
    pub(super) unsafe fn run_on<S: Simd>(self, s: S, inputs: [Input; 3], to: *mut f32, n: usize) {
        let all = Loop { inputs, to, n };
        match self {
            Apply::Unary(function) => unary(s, all, function),
            Apply::Binary(function) => binary(s, all, function),
            Apply::Select => select(s, all),
            Apply::Activate(activation) => activate(s, all, activation),
        }
    }
}

/// The vectors to apply a function to.
#[derive(Clone, Copy)]
struct Loop {
    inputs: [Input; 3],
    to: *mut f32,
    n: usize,
}

impl Loop {
    /// Reads vectors of the first `N` inputs, and writes what `f` makes of them.
    #[inline(always)]
    fn each<S: Simd, const N: usize>(&self, s: S, f: impl Fn([S::V; N]) -> S::V) {
        let mut at = [core::ptr::null::<f32>(); N];
        let mut x = [s.splat(0.0); N];
        for i in 0..N {
            at[i] = self.inputs[i].at;
        }
        let mut to = self.to;
        let mut rest = self.n;
        loop {
            let is_whole = rest >= LANES;
            for i in 0..N {
                if is_whole {
                    // SAFETY: `run_on` asks for the inputs.
                    x[i] = unsafe { s.load(at[i]) };
                } else {
                    // SAFETY: likewise.
                    x[i] = unsafe { s.load_part(at[i], rest) };
                }
                at[i] = at[i].wrapping_add(self.inputs[i].step);
            }
            let y = f(x);
            if !is_whole {
                // SAFETY: `run_on` asks for the output.
                unsafe { s.store_part(to, rest, y) };
                return;
            }
            // SAFETY: likewise.
            unsafe { s.store(to, y) };
            to = to.wrapping_add(LANES);
            rest -= LANES;
            if rest == 0 {
                return;
            }
        }
    }
}

/// Runs the loop of the function that matches. Each is a job of its own, for small ones compile faster, and better.
macro_rules! choose {
    ($simd:ident, $loop:ident, $function:ident: $type:ty; $($pattern:pat => |$s:ident, [$($x:ident),+]| $body:expr,)*) => {
        match $function {
            $(
                #[allow(unused_variables)]
                $pattern => {
                    struct This(Loop, $type);
                    impl Job for This {
                        type Out = ();

                        #[inline(always)]
                        fn run<S: Simd>(self, $s: S) {
                            // Values of the pattern are those of the one that matched.
                            #[allow(irrefutable_let_patterns)]
                            if let $pattern = self.1 {
                                self.0.each($s, #[inline(always)] |[$($x),+]| $body);
                            }
                        }
                    }
                    $simd.vectorize(This($loop, $function));
                }
            )*
        }
    };
}

#[inline(always)]
fn unary<S: Simd>(simd: S, all: Loop, function: Unary) {
    choose! { simd, all, function: Unary;
        Unary::Identity => |_s, [x]| x,
        Unary::Neg => |s, [x]| s.mul(x, s.splat(-1.0)),
        Unary::Abs => |s, [x]| s.abs(x),
        Unary::Sqrt => |s, [x]| s.sqrt(x),
        Unary::Rsqrt => |s, [x]| s.div(s.splat(1.0), s.sqrt(x)),
        Unary::Reciprocal => |s, [x]| s.div(s.splat(1.0), x),
        Unary::Square => |s, [x]| s.mul(x, x),
        Unary::Exp => |s, [x]| math::exp(s, x),
        Unary::Log => |s, [x]| math::log(s, x),
        Unary::Sin => |s, [x]| math::sin(s, x),
        Unary::Cos => |s, [x]| math::cos(s, x),
        Unary::Tanh => |s, [x]| math::tanh(s, x),
        Unary::Sigmoid => |s, [x]| math::sigmoid(s, x),
        Unary::Erf => |s, [x]| math::erf(s, x),
        Unary::Floor => |s, [x]| s.floor(x),
        Unary::Ceil => |s, [x]| s.ceil(x),
        Unary::Round => |s, [x]| s.round(x),
        Unary::Trunc => |s, [x]| s.trunc(x),
        Unary::Not => |s, [x]| s.select_equal(x, s.splat(0.0), s.splat(1.0), s.splat(0.0)),
        Unary::IsNan => |s, [x]| s.select_equal(x, x, s.splat(0.0), s.splat(1.0)),
        Unary::Log1p => |s, [x]| math::log1p(s, x),
        Unary::Expm1 => |s, [x]| math::expm1(s, x),
        Unary::RoundF16 => |s, [x]| s.read(&s.lanes(x).map(|x| from_f16(to_f16(x)))),
        Unary::RoundBf16 => |s, [x]| s.read(&s.lanes(x).map(|x| from_bf16(to_bf16(x)))),
    }
}

#[inline(always)]
fn binary<S: Simd>(simd: S, all: Loop, function: Binary) {
    choose! { simd, all, function: Binary;
        Binary::Add => |s, [a, b]| s.add(a, b),
        Binary::Sub => |s, [a, b]| s.sub(a, b),
        Binary::Mul => |s, [a, b]| s.mul(a, b),
        Binary::Div => |s, [a, b]| s.div(a, b),
        Binary::Max => |s, [a, b]| s.maximum(a, b),
        Binary::Min => |s, [a, b]| s.minimum(a, b),
        Binary::Pow => |s, [a, b]| math::pow(s, a, b),
        Binary::Eq => |s, [a, b]| s.select_equal(a, b, s.splat(1.0), s.splat(0.0)),
        Binary::Ne => |s, [a, b]| s.select_equal(a, b, s.splat(0.0), s.splat(1.0)),
        Binary::Lt => |s, [a, b]| s.select_less(a, b, s.splat(1.0), s.splat(0.0)),
        Binary::Le => |s, [a, b]| at_most(s, a, b),
        Binary::Gt => |s, [a, b]| s.select_less(b, a, s.splat(1.0), s.splat(0.0)),
        Binary::Ge => |s, [a, b]| at_most(s, b, a),
        Binary::And => |s, [a, b]| {
            let b = s.select_equal(b, s.splat(0.0), s.splat(0.0), s.splat(1.0));
            s.select_equal(a, s.splat(0.0), s.splat(0.0), b)
        },
        Binary::Or => |s, [a, b]| {
            let b = s.select_equal(b, s.splat(0.0), s.splat(0.0), s.splat(1.0));
            s.select_equal(a, s.splat(0.0), b, s.splat(1.0))
        },
    }
}

/// Whether `a <= b`.
#[inline(always)]
fn at_most<S: Simd>(s: S, a: S::V, b: S::V) -> S::V {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    s.select_less(a, b, one, s.select_equal(a, b, one, zero))
}

#[inline(always)]
fn select<S: Simd>(simd: S, all: Loop) {
    let function = ();
    choose! { simd, all, function: ();
        () => |s, [condition, a, b]| s.select_equal(condition, s.splat(0.0), b, a),
    }
}

#[inline(always)]
fn activate<S: Simd>(simd: S, all: Loop, activation: Activation) {
    choose! { simd, all, activation: Activation;
        Activation::None => |s, [x]| Activation::None.apply(s, x),
        Activation::Clamp { min, max } => |s, [x]| Activation::Clamp { min, max }.apply(s, x),
        Activation::LeakyRelu { slope } => |s, [x]| Activation::LeakyRelu { slope }.apply(s, x),
        Activation::Elu { alpha } => |s, [x]| Activation::Elu { alpha }.apply(s, x),
        Activation::HardSwish => |s, [x]| Activation::HardSwish.apply(s, x),
        Activation::HardSigmoid => |s, [x]| Activation::HardSigmoid.apply(s, x),
        Activation::Sigmoid => |s, [x]| Activation::Sigmoid.apply(s, x),
        Activation::Silu => |s, [x]| Activation::Silu.apply(s, x),
        Activation::Tanh => |s, [x]| Activation::Tanh.apply(s, x),
        Activation::GeluErf => |s, [x]| Activation::GeluErf.apply(s, x),
        Activation::GeluTanh => |s, [x]| Activation::GeluTanh.apply(s, x),
    }
}
