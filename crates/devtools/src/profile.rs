//! Where the time of an execution goes.

use std::time::{Duration, Instant};

use rushlight::runtime::{Event, EventTracer};

/// A tracer that times every instruction over one or several executions.
#[derive(Debug, Default)]
pub struct Profiler {
    instructions: Vec<Timing>,
    executions: Vec<Duration>,
    started: Option<Instant>,
    execution_started: Option<Instant>,
}

/// Time spent in one instruction, over all executions.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Index of the instruction in the method.
    pub instruction: usize,
    /// The operator, the delegate's backend, or the name of the instruction.
    pub name: String,
    pub calls: usize,
    pub total: Duration,
}

impl Profiler {
    /// Times of the instructions that ran, in the method's order.
    pub fn instructions(&self) -> impl Iterator<Item = &Timing> {
        self.instructions.iter().filter(|timing| timing.calls > 0)
    }

    /// Times by name, the most expensive first.
    pub fn by_name(&self) -> Vec<Timing> {
        let mut names: Vec<Timing> = Vec::new();
        for timing in self.instructions() {
            match names.iter_mut().find(|known| known.name == timing.name) {
                Some(known) => {
                    known.calls += timing.calls;
                    known.total += timing.total;
                }
                None => names.push(timing.clone()),
            }
        }
        names.sort_by_key(|timing| std::cmp::Reverse(timing.total));
        names
    }

    /// Durations of the whole executions.
    pub fn executions(&self) -> &[Duration] {
        &self.executions
    }

    fn timing(&mut self, event: Event<'_>) -> Option<&mut Timing> {
        let (instruction, name) = match event {
            Event::Operator { instruction, operator } => (instruction, operator),
            Event::Delegate { instruction, id } => (instruction, id),
            Event::Move { instruction } => (instruction, "move"),
            Event::JumpFalse { instruction } => (instruction, "jump_false"),
            Event::Free { instruction } => (instruction, "free"),
            Event::Execute { .. } => return None,
        };
        while self.instructions.len() <= instruction {
            let instruction = self.instructions.len();
            self.instructions.push(Timing { instruction, name: String::new(), calls: 0, total: Duration::ZERO });
        }
        let timing = self.instructions.get_mut(instruction)?;
        if timing.name.is_empty() {
            name.clone_into(&mut timing.name);
        }
        Some(timing)
    }
}

impl EventTracer for Profiler {
    fn begin(&mut self, event: Event<'_>) {
        if let Event::Execute { .. } = event {
            self.execution_started = Some(Instant::now());
        } else {
            self.started = Some(Instant::now());
        }
    }

    fn end(&mut self, event: Event<'_>) {
        let now = Instant::now();
        if let Event::Execute { .. } = event {
            self.executions.extend(self.execution_started.take().map(|start| now - start));
        } else if let Some(start) = self.started.take()
            && let Some(timing) = self.timing(event)
        {
            timing.calls += 1;
            timing.total += now - start;
        }
    }
}
