//! Vector loops over each elementwise operator.
#![allow(unsafe_code)]

use super::{Binary, Unary};
use crate::Activation;
use crate::arch::{Arithmetic, Interleaved, Kernel, LANES, Simd, VectorFn, math};
use crate::float16::{from_bf16, from_f16, to_bf16, to_f16};

/// An operand of a loop: consecutive vectors, or a constant vector.
#[derive(Clone, Copy)]
pub(super) struct LoopInput {
    at: *const f32,
    /// Floats between vectors: 16, or 0 for a constant.
    step: usize,
}

impl LoopInput {
    pub(super) const NONE: LoopInput = LoopInput { at: core::ptr::null(), step: 0 };

    pub(super) fn memory(at: *const f32) -> Self {
        Self { at, step: LANES }
    }

    /// Broadcasts a constant into `memory`, which must outlive the operand.
    pub(super) fn number(x: f32, memory: &mut [f32; LANES]) -> Self {
        *memory = [x; LANES];
        Self { at: memory.as_ptr(), step: 0 }
    }
}

/// The operator of an instruction.
#[derive(Clone, Copy)]
pub(super) enum LoopOp {
    Unary(Unary),
    Binary(Binary),
    Select,
    Activate(Activation),
}

impl LoopOp {
    #[inline(always)]
    pub(super) fn operands(self) -> usize {
        match self {
            LoopOp::Unary(_) | LoopOp::Activate(_) => 1,
            LoopOp::Binary(_) => 2,
            LoopOp::Select => 3,
        }
    }

    /// Applies the operator.
    ///
    /// # Safety
    /// Each operand is a constant or `n` floats; `to` is `n` floats, which may be the same as an operand's but must not
    /// partially overlap one.
    #[inline(always)]
    pub(super) unsafe fn run_on<S: Simd>(self, s: S, inputs: [LoopInput; 3], to: *mut f32, n: usize) {
        let all = VectorLoop { inputs, to, n };
        match self {
            LoopOp::Unary(function) => unary(s, all, function),
            LoopOp::Binary(function) => binary(s, all, function),
            LoopOp::Select => select(s, all),
            LoopOp::Activate(activation) => activate(s, all, activation),
        }
    }
}

/// The vectors to process.
#[derive(Clone, Copy)]
struct VectorLoop {
    inputs: [LoopInput; 3],
    to: *mut f32,
    n: usize,
}

impl VectorLoop {
    /// Stores `f` of the vectors of the first `N` operands.
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
                // SAFETY: `run_on` requires the inputs.
                x[i] = unsafe { s.load(at[i]) };
                at[i] = at[i].wrapping_add(self.inputs[i].step);
            }
            // SAFETY: `run_on` requires the output.
            unsafe { s.store(self.to.wrapping_add(first), f(x)) };
        }
        let rest = self.n - whole;
        if rest > 0 {
            for i in 0..N {
                // SAFETY: as above.
                x[i] = unsafe { s.load_partial(at[i], rest) };
            }
            // SAFETY: as above.
            unsafe { s.store_partial(self.to.wrapping_add(whole), rest, f(x)) };
        }
    }
}

impl VectorLoop {
    /// Stores a unary function of the first operand, with interleaved vectors if the instruction set profits.
    #[inline(always)]
    fn interleaved<S: Simd>(self, s: S, function: impl VectorFn) {
        let rest = match const { S::INTERLEAVE } {
            4 => self.blocks_of::<S, 4>(s, function),
            2 => self.blocks_of::<S, 2>(s, function),
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

    /// Processes blocks of `N` interleaved vectors; returns the remaining elements.
    #[inline(always)]
    fn blocks_of<S: Simd, const N: usize>(mut self, s: S, function: impl VectorFn) -> Self {
        let input = &mut self.inputs[0];
        while self.n >= N * LANES {
            let mut x = [s.splat(0.0); N];
            for i in 0..N {
                // SAFETY: `run_on` requires the input.
                x[i] = unsafe { s.load(input.at.wrapping_add(i * input.step)) };
            }
            let y = function.of(Interleaved::<S, N>(s), x);
            for i in 0..N {
                // SAFETY: `run_on` requires the output.
                unsafe { s.store(self.to.wrapping_add(i * LANES), y[i]) };
            }
            input.at = input.at.wrapping_add(N * input.step);
            self.to = self.to.wrapping_add(N * LANES);
            self.n -= N * LANES;
        }
        self
    }
}

/// Runs the loop of the operator that matches a pattern, as a kernel of its own: small functions compile faster and
/// better.
macro_rules! run_single {
    (
        $simd:ident, $loop:ident, $function:ident: $type:ty;
        $pattern:pat => |$s:ident, [$($x:ident),+]| $body:expr
    ) => {{
        struct OpKernel(VectorLoop, $type);
        impl Kernel for OpKernel {
            type Out = ();

            #[inline(always)]
            fn run<S: Simd>(self, $s: S) {
                // Refutable patterns match by construction.
                #[allow(irrefutable_let_patterns, reason = "the pattern of `select` is `()`")]
                if let $pattern = self.1 {
                    self.0.each($s, #[inline(always)] |[$($x),+]| $body);
                }
            }
        }
        $simd.vectorize(OpKernel($loop, $function));
    }};
}

/// The same for a unary operator, with interleaved vectors.
macro_rules! run_interleaved {
    ($simd:ident, $loop:ident, $function:ident: $type:ty; $pattern:pat => |$s:ident, [$x:ident]| $body:expr) => {{
        #[derive(Clone, Copy)]
        struct OpKernel(VectorLoop, $type);
        impl VectorFn for OpKernel {
            #[inline(always)]
            fn of<S: Arithmetic>(self, $s: S, $x: S::V) -> S::V {
                if let $pattern = self.1 { $body } else { $x }
            }
        }
        impl Kernel for OpKernel {
            type Out = ();

            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                self.0.interleaved(s, self);
            }
        }
        $simd.vectorize(OpKernel($loop, $function));
    }};
}

/// Dispatches to the loop of an operator. Long unary functions use interleaved vectors; short ones, and those that
/// process lanes one by one, use single vectors.
macro_rules! dispatch_op {
    (
        $simd:ident, $loop:ident, $function:ident: $type:ty;
        single: { $($pattern:pat => |$s:ident, [$($x:ident),+]| $body:expr,)* }
        interleaved: { $($many:pat => |$many_s:ident, [$many_x:ident]| $many_body:expr,)* }
    ) => {
        match $function {
            $(
                #[allow(unused_variables, reason = "the kernel matches the pattern again and binds its fields there")]
                $pattern => run_single! { $simd, $loop, $function: $type; $pattern => |$s, [$($x),+]| $body },
            )*
            $(
                #[allow(unused_variables, reason = "the kernel matches the pattern again and binds its fields there")]
                $many => run_interleaved! { $simd, $loop, $function: $type; $many => |$many_s, [$many_x]| $many_body },
            )*
        }
    };
}

#[inline(always)]
fn unary<S: Simd>(simd: S, all: VectorLoop, function: Unary) {
    dispatch_op! { simd, all, function: Unary;
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
            Unary::RoundF16 => |s, [x]| s.load_slice(&s.to_array(x).map(|x| from_f16(to_f16(x)))),
            Unary::RoundBf16 => |s, [x]| s.load_slice(&s.to_array(x).map(|x| from_bf16(to_bf16(x)))),
        }
        interleaved: {
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
fn binary<S: Simd>(simd: S, all: VectorLoop, function: Binary) {
    dispatch_op! { simd, all, function: Binary;
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
            Binary::Le => |s, [a, b]| less_equal(s, a, b),
            Binary::Gt => |s, [a, b]| s.select_less(b, a, s.splat(1.0), s.splat(0.0)),
            Binary::Ge => |s, [a, b]| less_equal(s, b, a),
            Binary::And => |s, [a, b]| {
                let b = s.select_equal(b, s.splat(0.0), s.splat(0.0), s.splat(1.0));
                s.select_equal(a, s.splat(0.0), s.splat(0.0), b)
            },
            Binary::Or => |s, [a, b]| {
                let b = s.select_equal(b, s.splat(0.0), s.splat(0.0), s.splat(1.0));
                s.select_equal(a, s.splat(0.0), b, s.splat(1.0))
            },
        }
        interleaved: {}
    }
}

/// `a <= b` as 1 or 0.
#[inline(always)]
fn less_equal<S: Arithmetic>(s: S, a: S::V, b: S::V) -> S::V {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    s.select_less(a, b, one, s.select_equal(a, b, one, zero))
}

#[inline(always)]
fn select<S: Simd>(simd: S, all: VectorLoop) {
    let function = ();
    dispatch_op! { simd, all, function: ();
        single: {
            () => |s, [condition, a, b]| s.select_equal(condition, s.splat(0.0), b, a),
        }
        interleaved: {}
    }
}

#[inline(always)]
fn activate<S: Simd>(simd: S, all: VectorLoop, activation: Activation) {
    dispatch_op! { simd, all, activation: Activation;
        single: {
            Activation::None => |s, [x]| Activation::None.apply(s, x),
            Activation::Clamp { min, max } => |s, [x]| Activation::Clamp { min, max }.apply(s, x),
            Activation::LeakyRelu { slope } => |s, [x]| Activation::LeakyRelu { slope }.apply(s, x),
            Activation::HardSwish => |s, [x]| Activation::HardSwish.apply(s, x),
            Activation::HardSigmoid => |s, [x]| Activation::HardSigmoid.apply(s, x),
        }
        interleaved: {
            Activation::Elu { alpha } => |s, [x]| Activation::Elu { alpha }.apply(s, x),
            Activation::Sigmoid => |s, [x]| Activation::Sigmoid.apply(s, x),
            Activation::Silu => |s, [x]| Activation::Silu.apply(s, x),
            Activation::Tanh => |s, [x]| Activation::Tanh.apply(s, x),
            Activation::GeluErf => |s, [x]| Activation::GeluErf.apply(s, x),
            Activation::GeluTanh => |s, [x]| Activation::GeluTanh.apply(s, x),
        }
    }
}
