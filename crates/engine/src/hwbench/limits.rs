//! Roofline limits: the peak compute and bandwidth of an instruction set with a number of threads.

use core::convert::Infallible;
use core::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::{per_second, shortest};
use crate::arch::{Kernel, LANES, Simd};
use crate::{Engine, Isa};

/// Bytes that all threads together read to measure memory bandwidth: larger than most caches.
pub const MEMORY: usize = 128 << 20;

/// Minimum of these bytes per thread.
const MIN_THREAD_BYTES: usize = 8 << 20;

/// Bytes that each thread reads repeatedly, to measure the bandwidth of L1, L2 and L3 on most machines.
pub const WORKING_SETS: [usize; 3] = [16 << 10, 256 << 10, 4 << 20];

/// Duration of one measurement.
const BUDGET: Duration = Duration::from_millis(30);

/// Minimum duration of a repetition: long compared to waking a thread.
const REPETITION: Duration = Duration::from_micros(500);

/// Peak rates of an engine (instruction set and threads) on this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    pub isa: Isa,
    pub threads: usize,
    /// f32 additions and multiplications per second.
    pub flop_rate: f64,
    /// Bytes read from memory per second. Caches are faster.
    pub byte_rate: f64,
}

impl Limits {
    /// Measures the limits, in about a fifth of a second.
    pub fn measure(engine: &Engine) -> Self {
        let byte_rate = read_rates(engine, &[], MEMORY).1;
        Self { isa: engine.isa(), threads: engine.threads(), flop_rate: flop_rate(engine), byte_rate }
    }
}

/// Measures f32 additions and multiplications per second of all threads, with multiply-adds on registers.
pub fn flop_rate(engine: &Engine) -> f64 {
    let (rounds, time) = repeated(|rounds| {
        engine.pool.run(engine.threads(), |_| engine.dispatch.run(MultiplyAdds { rounds }));
    });
    let each = 2 * LANES * engine.dispatch.run(Chains::Floats) * rounds;
    per_second((engine.threads() * each) as f64, time)
}

/// The same for bf16 dot products; `None` if the instruction set has none.
pub fn bf16_flop_rate(engine: &Engine) -> Option<f64> {
    let pairs = engine.dispatch.run(Chains::Bf16Dots);
    if pairs == 0 {
        return None;
    }
    let (rounds, time) = repeated(|rounds| {
        engine.pool.run(engine.threads(), |_| engine.dispatch.run(Bf16Dots { rounds }));
    });
    Some(per_second((engine.threads() * 4 * LANES * pairs * rounds) as f64, time))
}

/// The same for int8 dot products; `None` if the instruction set has none.
pub fn byte_op_rate(engine: &Engine) -> Option<f64> {
    let quads = engine.dispatch.run(Chains::Int8Dots);
    if quads == 0 {
        return None;
    }
    let (rounds, time) = repeated(|rounds| {
        engine.pool.run(engine.threads(), |_| engine.dispatch.run_int8(Int8Dots { rounds }));
    });
    Some(per_second((engine.threads() * 8 * LANES * quads * rounds) as f64, time))
}

/// Measures bytes read per second by all threads: for each working set, which each thread has to itself, and from
/// memory, with a working set of all threads of at least `memory` bytes, which should exceed the caches.
pub fn read_rates(engine: &Engine, working_sets: &[usize], memory: usize) -> (Vec<f64>, f64) {
    let threads = engine.threads();
    let memory_bytes = (memory / threads).max(MIN_THREAD_BYTES);
    // Untouched memory is a single zero page. Each thread writes its part, which is also faster.
    let parts: Vec<OnceLock<Vec<f32>>> = (0..threads).map(|_| OnceLock::new()).collect();
    let rate = |bytes: usize| {
        let bytes = bytes.min(memory_bytes);
        let (rounds, time) = repeated(|rounds| {
            engine.pool.run(threads, |part| {
                let data = parts[part].get_or_init(|| vec![1.0; memory_bytes / size_of::<f32>()]);
                let data = &data[..bytes / size_of::<f32>()];
                engine.dispatch.run(Read { data, rounds, prefetches: bytes == memory_bytes });
            });
        });
        per_second((threads * rounds * bytes) as f64, time)
    };
    (working_sets.iter().map(|&bytes| rate(bytes)).collect(), rate(memory_bytes))
}

/// Returns the shortest time of a number of rounds chosen to take long enough.
fn repeated(run: impl Fn(usize)) -> (usize, Duration) {
    run(1);
    let mut rounds = 1;
    loop {
        let start = Instant::now();
        run(rounds);
        if start.elapsed() >= REPETITION {
            break;
        }
        rounds *= 2;
    }
    let Ok(time) = shortest::<Infallible>(BUDGET, || {
        run(rounds);
        Ok(())
    });
    (rounds, time)
}

/// Instantiates a kernel with independent dependency chains, one for each register except those of two operands.
macro_rules! with_chains {
    ($simd:ty, $function:ident($($argument:expr),*)) => {
        match <$simd>::MR {
            12.. => $function::<$simd, 14>($($argument),*),
            6.. => $function::<$simd, 6>($($argument),*),
            _ => $function::<$simd, 3>($($argument),*),
        }
    };
}

/// Counts the chains of an instruction; 0 if the processor lacks it.
enum Chains {
    Floats,
    /// bf16 dot products.
    Bf16Dots,
    /// Int8 dot products.
    Int8Dots,
}

impl Kernel for Chains {
    type Out = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        const fn chains<S: Simd, const N: usize>() -> usize {
            N
        }
        let is_supported = match self {
            Self::Floats => true,
            Self::Bf16Dots => s.with_bf16().is_some(),
            Self::Int8Dots => s.has_int8_dot(),
        };
        if is_supported { with_chains!(S, chains()) } else { 0 }
    }
}

/// Rounds of one multiply-add in each chain.
struct MultiplyAdds {
    rounds: usize,
}

impl Kernel for MultiplyAdds {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        with_chains!(S, multiply_add(s, self.rounds));
    }
}

/// Rounds of one bf16 dot product in each chain.
struct Bf16Dots {
    rounds: usize,
}

impl Kernel for Bf16Dots {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if const { S::MAY_HAVE_BF16 }
            && let Some(bf16) = s.with_bf16()
        {
            bf16.vectorize(DotChains { rounds: self.rounds });
        }
    }
}

/// [`Bf16Dots`] in code that may use the instruction.
struct DotChains {
    rounds: usize,
}

impl Kernel for DotChains {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        with_chains!(S, add_dots(s, self.rounds));
    }
}

#[inline(always)]
fn add_dots<S: Simd, const N: usize>(s: S, rounds: usize) {
    // Pairs of 0.5 and 0.5: sums stay finite for 2^128 rounds.
    let pair = s.splat_bf16_pairs(black_box(0x3f00_3f00));
    let mut chains = [s.splat(0.0); N];
    for (i, chain) in chains.iter_mut().enumerate() {
        *chain = s.splat(i as f32);
    }
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = s.dot_bf16(pair, pair, *chain);
        }
    }
    consume(s, chains);
}

/// Rounds of one int8 dot product in each chain.
struct Int8Dots {
    rounds: usize,
}

impl Kernel for Int8Dots {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        with_chains!(S, add_quads(s, self.rounds));
    }
}

#[inline(always)]
fn add_quads<S: Simd, const N: usize>(s: S, rounds: usize) {
    let ones = black_box(0x0101_0101);
    let (a, b) = (s.splat_u8_quads(ones), s.splat_i8_quads(ones));
    let mut chains = [s.splat_i32(0); N];
    for (i, chain) in chains.iter_mut().enumerate() {
        *chain = s.splat_i32(i as i32);
    }
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = s.dot_u8i8(a, b, *chain);
        }
    }
    let mut sums = [s.splat(0.0); N];
    for i in 0..N {
        sums[i] = s.i32_to_f32(chains[i]);
    }
    consume(s, sums);
}

#[inline(always)]
fn multiply_add<S: Simd, const N: usize>(s: S, rounds: usize) {
    // Chains converge to 1: no subnormal or infinite value slows them down.
    let (factor, offset) = (s.splat(black_box(0.75)), s.splat(black_box(0.25)));
    let mut chains = [factor; N];
    // Equal chains would be merged by the compiler.
    for (i, chain) in chains.iter_mut().enumerate() {
        *chain = s.splat(i as f32);
    }
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = s.fma(factor, *chain, offset);
        }
    }
    consume(s, chains);
}

/// Reads all data repeatedly.
struct Read<'a> {
    data: &'a [f32],
    rounds: usize,
    /// Prefetches, which helps with memory and hurts with caches.
    prefetches: bool,
}

/// Prefetch distance in floats.
const PREFETCH_FLOATS: usize = 2048;

impl Kernel for Read<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for _ in 0..self.rounds {
            if self.prefetches {
                with_chains!(S, add_prefetched(s, black_box(self.data)));
            } else {
                with_chains!(S, add(s, black_box(self.data)));
            }
        }
    }
}

#[inline(always)]
fn add<S: Simd, const N: usize>(s: S, data: &[f32]) {
    add_all::<S, N, false>(s, data);
}

#[inline(always)]
fn add_prefetched<S: Simd, const N: usize>(s: S, data: &[f32]) {
    add_all::<S, N, true>(s, data);
}

#[inline(always)]
fn add_all<S: Simd, const N: usize, const PREFETCH: bool>(s: S, data: &[f32]) {
    let mut sums = [s.splat(0.0); N];
    for block in data.chunks_exact(N * LANES) {
        for (sum, part) in sums.iter_mut().zip(block.chunks_exact(LANES)) {
            if const { PREFETCH } {
                s.prefetch(part.as_ptr().wrapping_add(PREFETCH_FLOATS));
            }
            *sum = s.add(*sum, s.load_slice(part));
        }
    }
    consume(s, sums);
}

/// Keeps the compiler from eliminating the computation of these values.
#[inline(always)]
fn consume<S: Simd, const N: usize>(s: S, vectors: [S::V; N]) {
    let mut sum = s.splat(0.0);
    for vector in vectors {
        sum = s.add(sum, vector);
    }
    black_box(s.to_array(sum));
}
