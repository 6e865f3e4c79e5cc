//! The functions of instructions, as loops over vectors.
#![allow(unsafe_code)]

use super::{Binary, Unary};
use crate::Activation;
use crate::arch::{Arithmetic, Function, Job, LANES, Several, Simd, math};
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
        let whole = self.n / LANES * LANES;
        for first in (0..whole).step_by(LANES) {
            for i in 0..N {
                // SAFETY: `run_on` asks for the inputs.
                x[i] = unsafe { s.load(at[i]) };
                at[i] = at[i].wrapping_add(self.inputs[i].step);
            }
            // SAFETY: `run_on` asks for the output.
            unsafe { s.store(self.to.wrapping_add(first), f(x)) };
        }
        let rest = self.n - whole;
        if rest > 0 {
            for i in 0..N {
                // SAFETY: as above.
                x[i] = unsafe { s.load_part(at[i], rest) };
            }
            // SAFETY: as above.
            unsafe { s.store_part(self.to.wrapping_add(whole), rest, f(x)) };
        }
    }
}

impl Loop {
    /// Reads vectors of the first input, and writes what a function makes of them.
    #[inline(always)]
    fn several<S: Simd>(self, s: S, function: impl Function) {
        let rest = match const { S::SIDE_BY_SIDE } {
            4 => self.by::<S, 4>(s, function),
            2 => self.by::<S, 2>(s, function),
            _ => self,
        };
        if rest.n > 0 {
            rest.each(
                s,
                #[inline(always)]
                |[x]| function.of(s, x),
            );
        }
    }

    /// The same for whole `N` vectors; what is left.
    #[inline(always)]
    fn by<S: Simd, const N: usize>(mut self, s: S, function: impl Function) -> Self {
        let input = &mut self.inputs[0];
        while self.n >= N * LANES {
            let mut x = [s.splat(0.0); N];
            for i in 0..N {
                // SAFETY: `run_on` asks for the input.
                x[i] = unsafe { s.load(input.at.wrapping_add(i * input.step)) };
            }
            let y = function.of(Several::<S, N>(s), x);
            for i in 0..N {
                // SAFETY: `run_on` asks for the output.
                unsafe { s.store(self.to.wrapping_add(i * LANES), y[i]) };
            }
            input.at = input.at.wrapping_add(N * input.step);
            self.to = self.to.wrapping_add(N * LANES);
            self.n -= N * LANES;
        }
        self
    }
}

/// Runs the loop of a function that matches a pattern: a job of its own, for small ones compile faster, and better.
macro_rules! run_single {
    (
        $simd:ident, $loop:ident, $function:ident: $type:ty;
        $pattern:pat => |$s:ident, [$($x:ident),+]| $body:expr
    ) => {{
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
    }};
}

/// The same for a function of one vector, with as many vectors at a time as the processor likes.
macro_rules! run_several {
    ($simd:ident, $loop:ident, $function:ident: $type:ty; $pattern:pat => |$s:ident, [$x:ident]| $body:expr) => {{
        #[derive(Clone, Copy)]
        struct This(Loop, $type);
        impl Function for This {
            #[inline(always)]
            fn of<S: Arithmetic>(self, $s: S, $x: S::V) -> S::V {
                if let $pattern = self.1 { $body } else { $x }
            }
        }
        impl Job for This {
            type Out = ();

            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                self.0.several(s, self);
            }
        }
        $simd.vectorize(This($loop, $function));
    }};
}

/// Runs the loop of the function that matches. Long functions of one vector are taken several vectors at a time; those that are
/// short, or that look at single numbers, by single vectors.
macro_rules! choose {
    (
        $simd:ident, $loop:ident, $function:ident: $type:ty;
        single: { $($pattern:pat => |$s:ident, [$($x:ident),+]| $body:expr,)* }
        several: { $($many:pat => |$many_s:ident, [$many_x:ident]| $many_body:expr,)* }
    ) => {
        match $function {
            $(
                #[allow(unused_variables)]
                $pattern => run_single! { $simd, $loop, $function: $type; $pattern => |$s, [$($x),+]| $body },
            )*
            $(
                #[allow(unused_variables)]
                $many => run_several! { $simd, $loop, $function: $type; $many => |$many_s, [$many_x]| $many_body },
            )*
        }
    };
}

#[inline(always)]
fn unary<S: Simd>(simd: S, all: Loop, function: Unary) {
    choose! { simd, all, function: Unary;
        single: {
            Unary::Identity => |_s, [x]| x,
            Unary::Neg => |s, [x]| s.mul(x, s.splat(-1.0)),
            Unary::Abs => |s, [x]| s.abs(x),
            Unary::Sqrt => |s, [x]| s.sqrt(x),
            Unary::Rsqrt => |s, [x]| s.div(s.splat(1.0), s.sqrt(x)),
            Unary::Reciprocal => |s, [x]| s.div(s.splat(1.0), x),
            Unary::Square => |s, [x]| s.mul(x, x),
            Unary::Floor => |s, [x]| s.floor(x),
            Unary::Ceil => |s, [x]| s.ceil(x),
            Unary::Round => |s, [x]| s.round(x),
            Unary::Trunc => |s, [x]| s.trunc(x),
            Unary::Not => |s, [x]| s.select_equal(x, s.splat(0.0), s.splat(1.0), s.splat(0.0)),
            Unary::IsNan => |s, [x]| s.select_equal(x, x, s.splat(0.0), s.splat(1.0)),
            Unary::Sin => |s, [x]| math::sin(s, x),
            Unary::Cos => |s, [x]| math::cos(s, x),
            Unary::RoundF16 => |s, [x]| s.read(&s.lanes(x).map(|x| from_f16(to_f16(x)))),
            Unary::RoundBf16 => |s, [x]| s.read(&s.lanes(x).map(|x| from_bf16(to_bf16(x)))),
        }
        several: {
            Unary::Exp => |s, [x]| math::exp(s, x),
            Unary::Log => |s, [x]| math::log(s, x),
            Unary::Tanh => |s, [x]| math::tanh(s, x),
            Unary::Sigmoid => |s, [x]| math::sigmoid(s, x),
            Unary::Erf => |s, [x]| math::erf(s, x),
            Unary::Log1p => |s, [x]| math::log1p(s, x),
            Unary::Expm1 => |s, [x]| math::expm1(s, x),
        }
    }
}

#[inline(always)]
fn binary<S: Simd>(simd: S, all: Loop, function: Binary) {
    choose! { simd, all, function: Binary;
        single: {
            Binary::Pow => |s, [a, b]| math::pow(s, a, b),
            Binary::Add => |s, [a, b]| s.add(a, b),
            Binary::Sub => |s, [a, b]| s.sub(a, b),
            Binary::Mul => |s, [a, b]| s.mul(a, b),
            Binary::Div => |s, [a, b]| s.div(a, b),
            Binary::Max => |s, [a, b]| s.maximum(a, b),
            Binary::Min => |s, [a, b]| s.minimum(a, b),
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
        several: {}
    }
}

/// Whether `a <= b`.
#[inline(always)]
fn at_most<S: Arithmetic>(s: S, a: S::V, b: S::V) -> S::V {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    s.select_less(a, b, one, s.select_equal(a, b, one, zero))
}

#[inline(always)]
fn select<S: Simd>(simd: S, all: Loop) {
    let function = ();
    choose! { simd, all, function: ();
        single: {
            () => |s, [condition, a, b]| s.select_equal(condition, s.splat(0.0), b, a),
        }
        several: {}
    }
}

#[inline(always)]
fn activate<S: Simd>(simd: S, all: Loop, activation: Activation) {
    choose! { simd, all, activation: Activation;
        single: {
            Activation::None => |s, [x]| Activation::None.apply(s, x),
            Activation::Clamp { min, max } => |s, [x]| Activation::Clamp { min, max }.apply(s, x),
            Activation::LeakyRelu { slope } => |s, [x]| Activation::LeakyRelu { slope }.apply(s, x),
            Activation::HardSwish => |s, [x]| Activation::HardSwish.apply(s, x),
            Activation::HardSigmoid => |s, [x]| Activation::HardSigmoid.apply(s, x),
        }
        several: {
            Activation::Elu { alpha } => |s, [x]| Activation::Elu { alpha }.apply(s, x),
            Activation::Sigmoid => |s, [x]| Activation::Sigmoid.apply(s, x),
            Activation::Silu => |s, [x]| Activation::Silu.apply(s, x),
            Activation::Tanh => |s, [x]| Activation::Tanh.apply(s, x),
            Activation::GeluErf => |s, [x]| Activation::GeluErf.apply(s, x),
            Activation::GeluTanh => |s, [x]| Activation::GeluTanh.apply(s, x),
        }
    }
}
