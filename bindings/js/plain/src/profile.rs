//! The time of each step of a call.

use std::cell::{Cell, RefCell};

use rushlight::runtime::{DelegateEvent, DelegateTracer, Event, EventTracer};

use crate::Plain;

/// Accumulates the time of each step over the calls of one method.
#[derive(Debug)]
pub struct Timer {
    /// Milliseconds since any moment.
    now: fn() -> f64,
    // In cells, as delegates share the tracer of their call.
    steps: RefCell<Vec<Step>>,
    instruction: Cell<usize>,
    /// When the instruction began, and the step of its delegate.
    begun: Cell<f64>,
    step_begun: Cell<f64>,
}

#[derive(Debug)]
struct Step {
    /// The instruction, and in a delegate the step of it.
    at: (usize, Option<usize>),
    name: String,
    calls: u32,
    milliseconds: f64,
}

impl Timer {
    /// A timer with a clock, which gives milliseconds.
    pub fn new(now: fn() -> f64) -> Self {
        Self {
            now,
            steps: RefCell::default(),
            instruction: Cell::default(),
            begun: Cell::default(),
            step_begun: Cell::default(),
        }
    }

    fn add(&self, at: (usize, Option<usize>), name: &str, milliseconds: f64) {
        let mut steps = self.steps.borrow_mut();
        match steps.iter_mut().find(|step| step.at == at) {
            Some(step) => {
                step.calls += 1;
                step.milliseconds += milliseconds;
            }
            None => steps.push(Step { at, name: name.to_owned(), calls: 1, milliseconds }),
        }
    }

    /// The steps in order. A delegate that has told of its own is left out.
    pub fn steps(&self) -> Plain {
        let steps = self.steps.borrow();
        let told = |at: usize| steps.iter().any(|step| step.at.0 == at && step.at.1.is_some());
        let shown = steps.iter().filter(|step| step.at.1.is_some() || !told(step.at.0));
        let plain = |step: &Step| {
            Plain::Object(vec![
                ("name", step.name.as_str().into()),
                ("instruction", step.at.0.into()),
                ("step", step.at.1.into()),
                ("calls", step.calls.into()),
                ("milliseconds", step.milliseconds.into()),
            ])
        };
        Plain::Array(shown.map(plain).collect())
    }
}

impl EventTracer for Timer {
    fn begin(&mut self, event: Event<'_>) {
        if let Event::Operator { instruction, .. } | Event::Delegate { instruction, .. } = event {
            self.instruction.set(instruction);
            self.begun.set((self.now)());
        }
    }

    fn end(&mut self, event: Event<'_>) {
        let (Event::Operator { operator: name, .. } | Event::Delegate { id: name, .. }) = event else { return };
        self.add((self.instruction.get(), None), name, (self.now)() - self.begun.get());
    }

    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        Some(self)
    }
}

impl DelegateTracer for Timer {
    fn begin(&self, _event: DelegateEvent<'_>) {
        self.step_begun.set((self.now)());
    }

    fn end(&self, event: DelegateEvent<'_>) {
        if event.step.is_some() {
            self.add((self.instruction.get(), event.step), event.name, (self.now)() - self.step_begun.get());
        }
    }
}
