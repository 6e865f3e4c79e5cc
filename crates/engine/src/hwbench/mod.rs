//! Hardware benchmark: the roofline [`Limits`] of this machine, and the time of each kernel variant at shapes of common
//! models.
//!
//! Times are the minimum of many repetitions, which other load on the machine disturbs least.

mod compute;
mod limits;
mod memory;

pub use limits::{Limits, MEMORY, WORKING_SETS, bf16_flop_rate, byte_op_rate, flop_rate, read_rates};

use std::time::{Duration, Instant};

use crate::{Engine, Error, Isa};

/// Kernels, shapes and threads to benchmark.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Number of threads; 0 counts as 1.
    pub threads: usize,
    /// Instruction sets to time, each supported by this machine.
    pub isas: Vec<Isa>,
    /// The instruction set that models run with on this machine.
    pub chosen: Isa,
    /// Selects kernels and shapes whose name contains this.
    pub filter: String,
    /// All shapes instead of a few typical ones.
    pub all: bool,
    /// Time budget per variant; a single repetition may exceed it.
    pub budget: Duration,
}

/// Time of a kernel variant with an instruction set.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    pub kernel: &'static str,
    /// The sizes, and a model that has them.
    pub shape: String,
    /// Algorithm, if there are several; otherwise empty.
    pub variant: &'static str,
    pub isa: Isa,
    pub threads: usize,
    /// Models run with this variant and instruction set on this machine.
    pub chosen: bool,
    /// Time of one call.
    pub time: Duration,
    /// Additions and multiplications of one call as the operator is defined (Winograd does fewer). Other operations,
    /// such as exp, count as one.
    pub flops: f64,
    /// Bytes of all operands and the output, each counted once.
    pub bytes: f64,
}

impl Timing {
    /// Operations per second.
    pub fn flop_rate(&self) -> f64 {
        per_second(self.flops, self.time)
    }

    /// Bytes per second.
    pub fn byte_rate(&self) -> f64 {
        per_second(self.bytes, self.time)
    }
}

/// Times the selected kernels with the selected instruction sets, and passes each result to `report` immediately: by
/// kernel, then variant, then instruction set in the order of [`Selection::isas`].
///
/// # Errors
/// [`Error::Unavailable`] if this machine does not support an instruction set.
pub fn time_kernels(selection: &Selection, mut report: impl FnMut(Timing)) -> Result<(), Error> {
    let engines: Result<Vec<Engine>, Error> =
        selection.isas.iter().map(|&isa| Engine::with_isa(isa, selection.threads)).collect();
    Bench { selection, engines: engines?, report: &mut report }.run()
}

/// A run of the benchmark.
struct Bench<'a> {
    selection: &'a Selection,
    engines: Vec<Engine>,
    report: &'a mut dyn FnMut(Timing),
}

/// A kernel at one shape.
struct Case {
    kernel: &'static str,
    shape: String,
    /// One of the few that are timed by default.
    typical: bool,
    flops: f64,
    bytes: f64,
}

/// An algorithm for a case.
struct Variant {
    name: &'static str,
    chosen: bool,
    run: Box<dyn FnMut(&Engine) -> Result<(), Error>>,
}

impl Variant {
    /// The only algorithm of a case.
    fn only(run: impl FnMut(&Engine) -> Result<(), Error> + 'static) -> Self {
        Self { name: "", chosen: true, run: Box::new(run) }
    }
}

impl Bench<'_> {
    fn run(&mut self) -> Result<(), Error> {
        compute::time(self)?;
        memory::time(self)
    }

    /// Times the variants of a case, which are only constructed if it is selected.
    fn time(&mut self, case: &Case, variants: impl FnOnce() -> Vec<Variant>) -> Result<(), Error> {
        let Selection { chosen, filter, all, budget, .. } = self.selection;
        let name = format!("{} {}", case.kernel, case.shape);
        if !(case.typical || *all) || !name.contains(filter.as_str()) {
            return Ok(());
        }
        for mut variant in variants() {
            for engine in &self.engines {
                let time = shortest(*budget, || (variant.run)(engine))?;
                (self.report)(Timing {
                    kernel: case.kernel,
                    shape: case.shape.clone(),
                    variant: variant.name,
                    isa: engine.isa(),
                    threads: engine.threads(),
                    chosen: variant.chosen && engine.isa() == *chosen,
                    time,
                    flops: case.flops,
                    bytes: case.bytes,
                });
            }
        }
        Ok(())
    }
}

/// Minimum time of the repetitions that start within the budget; at least one.
fn shortest<E>(budget: Duration, mut run: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    run()?;
    let mut shortest = start.elapsed();
    while start.elapsed() < budget {
        let from = Instant::now();
        run()?;
        shortest = shortest.min(from.elapsed());
    }
    Ok(shortest)
}

/// Returns `amount` per second; 0 for an empty duration.
pub fn per_second(amount: f64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { amount / time.as_secs_f64() }
}

/// Values that are neither zero nor subnormal.
fn test_values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 1009 * 7919 % 1009) as f32 / 1009.0 + 0.001).collect()
}
