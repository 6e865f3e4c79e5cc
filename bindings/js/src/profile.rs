//! The time of each step of a call.

use std::cell::{Cell, RefCell};

use js_sys::{Array, Object};
use rushlight::runtime::{DelegateEvent, DelegateTracer, Event, EventTracer};
use wasm_bindgen::prelude::*;

use crate::error::set;

#[wasm_bindgen]
extern "C" {
    /// Milliseconds of the clock that browsers and Node.js have.
    #[wasm_bindgen(js_namespace = performance)]
    fn now() -> f64;
}

/// Accumulates the time of each step over the calls of one method.
#[derive(Debug, Default)]
pub struct Timer {
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
    pub fn to_js(&self) -> Array {
        let steps = self.steps.borrow();
        let told = |at: usize| steps.iter().any(|step| step.at.0 == at && step.at.1.is_some());
        let shown = steps.iter().filter(|step| step.at.1.is_some() || !told(step.at.0));
        shown
            .map(|step| {
                let object = Object::new();
                set(&object, "name", step.name.as_str());
                set(&object, "instruction", step.at.0 as f64);
                set(&object, "step", step.at.1.map(|step| step as f64));
                set(&object, "calls", step.calls);
                set(&object, "milliseconds", step.milliseconds);
                JsValue::from(object)
            })
            .collect()
    }
}

impl EventTracer for Timer {
    fn begin(&mut self, event: Event<'_>) {
        if let Event::Operator { instruction, .. } | Event::Delegate { instruction, .. } = event {
            self.instruction.set(instruction);
            self.begun.set(now());
        }
    }

    fn end(&mut self, event: Event<'_>) {
        let (Event::Operator { operator: name, .. } | Event::Delegate { id: name, .. }) = event else { return };
        self.add((self.instruction.get(), None), name, now() - self.begun.get());
    }

    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        Some(self)
    }
}

impl DelegateTracer for Timer {
    fn begin(&self, _event: DelegateEvent<'_>) {
        self.step_begun.set(now());
    }

    fn end(&self, event: DelegateEvent<'_>) {
        if event.step.is_some() {
            self.add((self.instruction.get(), event.step), event.name, now() - self.step_begun.get());
        }
    }
}
