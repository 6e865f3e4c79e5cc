//! `hwbench`: every case runs, and the measured limits are positive.

use std::time::Duration;

use rushlight_engine::hwbench::*;
use rushlight_engine::{Engine, Isa};

fn selection(filter: &str, all: bool) -> Selection {
    let isas = Isa::available().collect();
    Selection { threads: 2, isas, chosen: Isa::detect(), filter: filter.to_owned(), all, budget: Duration::ZERO }
}

#[test]
fn every_case_can_be_computed() {
    let selection = Selection { isas: vec![Isa::detect()], ..selection("", true) };
    let mut timings = Vec::new();
    time_kernels(&selection, |timing| timings.push(timing)).expect("sizes agree");
    for timing in &timings {
        assert!(timing.byte_rate() > 0.0, "{timing:?}");
        assert_eq!(timing.flop_rate() > 0.0, timing.flops > 0.0, "{timing:?}");
        let same = |other: &&Timing| (other.kernel, &other.shape) == (timing.kernel, &timing.shape);
        assert_eq!(timings.iter().filter(same).filter(|timing| timing.chosen).count(), 1, "{timing:?}");
    }
    assert!(timings.iter().any(|timing| timing.variant == "Winograd 4x4" && timing.chosen));
    assert!(timings.iter().any(|timing| timing.variant == "direct" && timing.chosen));
}

#[test]
fn a_variant_is_timed_with_each_instruction_set() {
    let mut timings = Vec::new();
    time_kernels(&selection("gemm 32x64x64 small", false), |timing| timings.push(timing)).expect("sizes agree");
    assert_eq!(timings.iter().map(|timing| timing.isa).collect::<Vec<_>>(), Isa::available().collect::<Vec<_>>());
    let shapes: Vec<_> = timings.iter().map(|timing| (timing.kernel, timing.shape.as_str())).collect();
    assert!(shapes.iter().all(|shape| *shape == ("gemm", "32x64x64 small")), "{shapes:?}");
}

#[test]
fn atypical_cases_are_timed_on_request() {
    for (all, expected) in [(false, 0), (true, Isa::available().count())] {
        let mut count = 0;
        time_kernels(&selection("softmax 1x1000 ", all), |_| count += 1).expect("sizes agree");
        assert_eq!(count, expected);
    }
}

#[test]
fn limits_are_positive_on_every_instruction_set() {
    for isa in Isa::available() {
        let engine = Engine::with_isa(isa, 2).expect("it is available");
        let rate = flop_rate(&engine);
        assert!(rate.is_finite() && rate > 0.0, "{isa}: {rate}");
        let bf16 = bf16_flop_rate(&engine);
        assert_eq!(bf16.is_some(), engine.supports_bf16());
        assert!(bf16.is_none_or(|rate| rate.is_finite() && rate > 0.0), "{isa}: {bf16:?}");
    }
    let engine = Engine::new(2);
    let limits = Limits::measure(&engine);
    assert_eq!((limits.isa, limits.threads), (Isa::detect(), engine.threads()));
    assert!(limits.byte_rate.is_finite() && limits.byte_rate > 0.0, "{limits:?}");
    let (caches, memory) = read_rates(&Engine::new(1), &WORKING_SETS, MEMORY);
    assert_eq!(caches.len(), WORKING_SETS.len());
    assert!(caches.into_iter().chain([memory]).all(|rate| rate.is_finite() && rate > 0.0));
}
