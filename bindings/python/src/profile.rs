//! Times of a module's runs, of its operators and of the steps of its delegates.

use std::time::Instant;

use pyo3::prelude::*;
use rushlight::runtime::Interrupt;
use rushlight_devtools::breakdown::{Breakdown, map_of};
use rushlight_devtools::profile::Profiler;
use rushlight_devtools::{steps, trace};
use rushlight_python_macros::guarded;

use crate::module::Module;

/// Runs a method `warmup` times, and then `runs` times. Returns the seconds of each of the latter.
#[guarded]
#[pyfunction]
pub fn benchmark(
    py: Python<'_>,
    module: &Module,
    method: &str,
    inputs: Vec<Bound<'_, PyAny>>,
    warmup: u32,
    runs: u32,
) -> PyResult<Vec<f64>> {
    module.act(py, method, &inputs, |module, inputs, signals| {
        let mut times = Vec::new();
        for run in 0..warmup.saturating_add(runs) {
            let start = Instant::now();
            module.call(method).inputs(inputs).tracer(signals).run()?;
            if run >= warmup {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        Ok(times)
    })
}

/// Runs a method once, and then `runs` times with a profiler. Returns two texts of JSON: the times with the limits of the devices, and a
/// trace for Perfetto and Chrome.
#[guarded]
#[pyfunction]
pub fn profile(
    py: Python<'_>,
    module: &Module,
    method: &str,
    inputs: Vec<Bound<'_, PyAny>>,
    runs: u32,
) -> PyResult<(String, String)> {
    module.act(py, method, &inputs, |module, inputs, signals| {
        module.call(method).inputs(inputs).tracer(signals).run()?;
        let mut profiler = Profiler::with_spans();
        for _ in 0..runs {
            // The signal's exception is raised when this returns.
            if signals.poll().is_some() {
                break;
            }
            module.call(method).inputs(inputs).tracer(&mut profiler).run()?;
        }
        let mut json = Breakdown::of(&profiler, map_of(module, method).as_ref()).json();
        let rows = steps::rows(&profiler.steps().times(), module, method);
        steps::add(&mut json, &rows, module)?;
        Ok((json.to_string(), trace::chrome(&profiler).to_string()))
    })
}
