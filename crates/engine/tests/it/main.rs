//! Every instruction set of this machine against f64 reference loops, over awkward shapes.

mod attention;
mod bf16;
mod conv;
mod convert;
mod copy;
mod delta_rule;
mod elementwise;
mod finite_range;
mod gather_elements;
mod gemm;
mod hwbench;
mod pool_resize;
mod quantization_error;
mod quantized;
mod softmax_norm_reduce;
mod top_k;
mod weights;

use rushlight_engine::{Activation, Engine, Epilogue, Isa, Residual};

/// An engine for each instruction set of this machine and number of threads; with the feature `wide-scalar`, also for scalar code and
/// the AVX-512 tile in scalar code.
fn engines() -> impl Iterator<Item = Engine> {
    let threads: &[usize] = if cfg!(target_family = "wasm") { &[1] } else { &[1, 3] };
    let engines = Isa::available()
        .flat_map(move |isa| threads.iter().map(move |&threads| Engine::with_isa(isa, threads).unwrap()));
    #[cfg(feature = "wide-scalar")]
    let engines = engines.chain(threads.iter().map(|&threads| Engine::wide_scalar(threads)));
    engines
}

/// Rounds to bf16 bit patterns.
fn to_bf16(x: f32) -> u16 {
    half::bf16::from_f32(x).to_bits()
}

fn from_bf16(bits: u16) -> f32 {
    half::bf16::from_bits(bits).to_f32()
}

/// Reproducible random values in -1..1.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn vector(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
    }
}

/// An epilogue that owns its operands.
struct OwnedEpilogue {
    bias: Option<Vec<f32>>,
    residual: Option<(Vec<f32>, usize)>,
    residual_first: bool,
    activation: Activation,
}

const ACTIVATIONS: &[Activation] = &[
    Activation::None,
    Activation::RELU,
    Activation::RELU6,
    Activation::LeakyRelu { slope: 0.1 },
    Activation::Elu { alpha: 1.5 },
    Activation::HardSwish,
    Activation::HardSigmoid,
    Activation::Sigmoid,
    Activation::Silu,
    Activation::Tanh,
    Activation::GeluErf,
    Activation::GeluTanh,
];

impl OwnedEpilogue {
    fn random(rng: &mut Rng, rows: usize, columns: usize) -> Self {
        let stride = columns + rng.below(3);
        Self {
            bias: (rng.below(2) == 0).then(|| rng.vector(columns)),
            residual: (rng.below(3) == 0).then(|| (rng.vector(rows * stride), stride)),
            residual_first: rng.below(2) == 0,
            activation: if rng.below(2) == 0 { Activation::None } else { rng.one_of(ACTIVATIONS) },
        }
    }

    fn epilogue(&self) -> Epilogue<'_> {
        Epilogue {
            bias: self.bias.as_deref(),
            residual: self.residual.as_ref().map(|(data, stride)| Residual { data: data.into(), stride: *stride }),
            residual_first: self.residual_first,
            activation: self.activation,
        }
    }

    fn apply(&self, row: usize, column: usize, sum: f64) -> f64 {
        let mut x = sum + self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
        let residual = self.residual.as_ref().map_or(0.0, |(data, stride)| f64::from(data[row * stride + column]));
        if self.residual_first {
            x += residual;
        }
        x = activation(self.activation, x);
        if !self.residual_first {
            x += residual;
        }
        x
    }
}

/// The transpose of a row-major matrix.
fn transposed<T: Copy>(matrix: &[T], rows: usize, columns: usize) -> Vec<T> {
    (0..rows * columns).map(|at| matrix[at % rows * columns + at / rows]).collect()
}

fn activation(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let hard = |x: f64| (x + 3.0).clamp(0.0, 6.0) / 6.0;
    match activation {
        Activation::None => x,
        Activation::Clamp { min, max } => x.clamp(f64::from(min), f64::from(max)),
        Activation::LeakyRelu { slope } => {
            if x > 0.0 {
                x
            } else {
                x * f64::from(slope)
            }
        }
        Activation::Elu { alpha } => {
            if x > 0.0 {
                x
            } else {
                f64::from(alpha) * x.exp_m1()
            }
        }
        Activation::HardSwish => x * hard(x),
        Activation::HardSigmoid => hard(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Silu => x * sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::GeluErf => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}

/// Error bound of a sum of `terms` products of magnitude below 1: grows with the square root of their number.
fn rounding(terms: usize) -> f64 {
    1e-6 * (1.0 + (terms as f64).sqrt())
}

/// Asserts that results agree with the exact ones up to `bound`, relative for values above 1.
#[track_caller]
fn assert_close(got: &[f32], expected: &[f64], bound: f64, what: &dyn std::fmt::Debug) {
    assert_eq!(got.len(), expected.len());
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs();
        assert!(error <= bound * expected.abs().max(1.0), "{what:?}, element {i}: got {got}, expected {expected}");
    }
}

/// Runs a function on every engine and asserts agreement within `bound(expected)`, equal infinities and NaN, and
/// bit-identical results for all thread counts.
#[track_caller]
fn assert_agrees(
    what: &dyn std::fmt::Debug,
    expected: &[f64],
    bound: impl Fn(f64) -> f64,
    run: impl Fn(&Engine) -> Vec<f32>,
) {
    let mut single: Option<(Isa, Vec<f32>)> = None;
    for engine in engines() {
        let got = run(&engine);
        assert_eq!(got.len(), expected.len(), "{engine:?} {what:?}");
        for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
            let is_close = (f64::from(got) - expected).abs() <= bound(expected);
            let is_same = f64::from(got) == expected || (got.is_nan() && expected.is_nan());
            assert!(is_close || is_same, "{engine:?} {what:?}, element {i}: got {got}, expected {expected}");
        }
        match &single {
            Some((isa, single)) if *isa == engine.isa() && engine.threads() > 1 => {
                let is_same = single.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(is_same, "{engine:?} {what:?} depends on the number of threads");
            }
            _ => single = Some((engine.isa(), got)),
        }
    }
}
