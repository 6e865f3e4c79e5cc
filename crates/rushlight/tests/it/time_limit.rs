//! The time limit of a call, and other reasons to stop one: between instructions and between the steps of a delegate.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rushlight::runtime::{EventTracer, Interrupt, Stop};
use rushlight::{Code, Input, Module, ModuleBuilder, TensorView};

const MLP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1/mlp.pte");

fn mlp(builder: ModuleBuilder, lower: &str) -> Module {
    builder.lower(lower).threads(1).load(MLP).expect("the corpus is part of the repository")
}

const FLOATS: [f32; 16] = [0.5; 16];

fn x() -> [Input<'static>; 1] {
    [TensorView::of(&[2, 8], &FLOATS).expect("a view").into()]
}

fn run(module: &mut Module) -> Result<Vec<f32>, rushlight::Error> {
    Ok(module.forward(&x())?[0].as_slice::<f32>()?.to_vec())
}

#[test]
fn a_time_limit_stops_a_call_between_steps() {
    for lower in ["off", "cpu"] {
        let mut module = mlp(Module::builder().time_limit(Duration::ZERO), lower);
        for _ in 0..2 {
            let error = run(&mut module).expect_err("no time is never enough");
            assert_eq!(error.code(), Code::OutOfResources, "{error}");
            assert!(error.message().starts_with("the time limit of 0 ms was reached before step 1 of "), "{error}");
            assert!(error.location().is_some_and(|site| site.contains("`forward`")), "{error}");
        }
        for limit in [Duration::from_hours(1), Duration::MAX] {
            let mut module = mlp(Module::builder().time_limit(limit), lower);
            assert_eq!(run(&mut module).expect("enough time").len(), 8);
        }
    }
}

/// Stops after it was polled this many times.
struct After(Cell<usize>);

impl Interrupt for After {
    fn poll(&self) -> Option<Stop> {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        (left == 0).then_some(Stop::Cancelled)
    }
}

impl EventTracer for After {
    fn interrupt(&self) -> Option<&dyn Interrupt> {
        Some(self)
    }
}

#[test]
fn calls_stop_at_every_step_and_the_method_stays_usable() {
    for lower in ["off", "cpu"] {
        let mut module = mlp(Module::builder(), lower);
        let want = run(&mut module).expect("it runs");
        let mut messages = Vec::new();
        for polls in 0.. {
            match module.call("forward").inputs(&x()).tracer(&mut After(Cell::new(polls))).run() {
                Ok(outputs) => {
                    assert_eq!(outputs[0].as_slice::<f32>().expect("floats"), want);
                    break;
                }
                Err(error) => {
                    assert_eq!(error.code(), Code::InvalidState);
                    messages.push(error.message().to_owned());
                }
            }
            assert_eq!(run(&mut module).expect("it runs again"), want);
        }
        // A lowered program is one instruction of several steps.
        assert!(messages.len() >= 3, "{messages:?}");
        assert!(messages.iter().all(|message| message.starts_with("the execution was cancelled before step ")));
    }
}

/// Cancelled by another thread.
struct Flag<'a>(&'a AtomicBool);

impl Interrupt for Flag<'_> {
    fn poll(&self) -> Option<Stop> {
        self.0.load(Ordering::Relaxed).then_some(Stop::Cancelled)
    }
}

impl EventTracer for Flag<'_> {
    fn interrupt(&self) -> Option<&dyn Interrupt> {
        Some(self)
    }
}

#[test]
fn another_thread_cancels() {
    let mut module = mlp(Module::builder(), "off");
    let cancelled = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            cancelled.store(true, Ordering::Relaxed);
        });
        loop {
            if let Err(error) = module.call("forward").inputs(&x()).tracer(&mut Flag(&cancelled)).run() {
                return error;
            }
        }
    });
    assert_eq!(error.message().split(" before step").next(), Some("the execution was cancelled"));
    assert!(run(&mut module).is_ok());
}
