//! Where the time of an execution goes.

use std::time::{Duration, Instant};

use rushlight::runtime::{DelegateTracer, Event, EventTracer, MemoryKind};

use crate::steps::StepTracer;

/// A tracer that times every instruction, and every step of delegates, over one or several executions.
#[derive(Debug, Default)]
pub struct Profiler {
    instructions: Vec<Timing>,
    executions: Vec<Duration>,
    copies: Vec<Copied>,
    started: Option<Instant>,
    copy_started: Option<Instant>,
    execution_started: Option<Instant>,
    spans: Option<Vec<Span>>,
    steps: StepTracer,
}

/// When an instruction, or a whole execution, ran.
#[derive(Clone, Debug)]
pub struct Span {
    /// The method; or the operator, the delegate's backend, or the name of the instruction.
    pub name: String,
    /// Its index in the method; `None` for the execution.
    pub instruction: Option<usize>,
    pub start: Instant,
    pub time: Duration,
}

/// A copy of a tensor's data between host and device.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Index of the instruction that needed it; the number of instructions for outputs.
    pub instruction: usize,
    pub bytes: usize,
    pub from: MemoryKind,
    pub to: MemoryKind,
    pub time: Duration,
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
    /// A profiler that also keeps when each instruction and each step ran.
    pub fn with_spans() -> Self {
        Self { spans: Some(Vec::new()), steps: StepTracer::with_runs(), ..Self::default() }
    }

    /// The steps of delegates.
    pub fn steps(&self) -> &StepTracer {
        &self.steps
    }

    /// When instructions and executions ran, if that is kept.
    pub fn spans(&self) -> &[Span] {
        self.spans.as_deref().unwrap_or_default()
    }

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

    /// Copies between host and devices, over all executions, in their order. They are no part of their instructions' times.
    pub fn copies(&self) -> &[Copied] {
        &self.copies
    }

    /// Durations of the whole executions.
    pub fn executions(&self) -> &[Duration] {
        &self.executions
    }

    fn timing(&mut self, event: Event<'_>) -> Option<&mut Timing> {
        let (Some(instruction), name) = describe(event) else { return None };
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

/// The index of an instruction and its name; the name of the method for an execution.
fn describe(event: Event<'_>) -> (Option<usize>, &str) {
    match event {
        Event::Operator { instruction, operator } => (Some(instruction), operator),
        Event::Delegate { instruction, id } => (Some(instruction), id),
        Event::Move { instruction } => (Some(instruction), "move"),
        Event::JumpFalse { instruction } => (Some(instruction), "jump_false"),
        Event::Free { instruction } => (Some(instruction), "free"),
        Event::Copy { instruction, to: MemoryKind::Host, .. } => (Some(instruction), "copy to host"),
        Event::Copy { instruction, .. } => (Some(instruction), "copy to device"),
        Event::Execute { method } => (None, method),
    }
}

impl EventTracer for Profiler {
    fn begin(&mut self, event: Event<'_>) {
        if let Event::Delegate { instruction, id } = event {
            self.steps.enter(instruction, id);
        }
        let started = match event {
            Event::Execute { .. } => &mut self.execution_started,
            Event::Copy { .. } => &mut self.copy_started,
            _ => &mut self.started,
        };
        *started = Some(Instant::now());
    }

    fn end(&mut self, event: Event<'_>) {
        let now = Instant::now();
        if let Some(spans) = &mut self.spans {
            let (instruction, name) = describe(event);
            let started = match event {
                Event::Execute { .. } => self.execution_started,
                Event::Copy { .. } => self.copy_started,
                _ => self.started,
            };
            spans.extend(started.map(|start| Span { name: name.to_owned(), instruction, start, time: now - start }));
        }
        if let Event::Execute { .. } = event {
            self.executions.extend(self.execution_started.take().map(|start| now - start));
        } else if let Event::Copy { instruction, bytes, from, to } = event {
            let time = self.copy_started.take().map(|start| now - start);
            self.copies.extend(time.map(|time| Copied { instruction, bytes, from, to, time }));
        } else if let Some(start) = self.started.take()
            && let Some(timing) = self.timing(event)
        {
            timing.calls += 1;
            timing.total += now - start;
        }
    }

    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        Some(&self.steps)
    }
}
