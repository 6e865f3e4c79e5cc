//! Limits of rendering: steps, memory, time and depth. Everything that a template does counts here.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::time::Duration;

use super::failure::{Failure, Result};
use crate::clock::Instant;

/// Steps of one rendering, besides those for each byte of the messages: a node of the template, an element, or some bytes of a text
/// are a step each. Fewer under the fuzzer, which reaches the limit in one of few templates.
const MAX_STEPS: u64 = if cfg!(fuzzing) { 20_000 } else { 2_000_000 };
const STEPS_PER_BYTE: u64 = 4;
const BYTES_PER_STEP: usize = 16;

/// Bytes of values and text at one time, besides a multiple of the size of the messages.
const MAX_MEMORY: usize = 64 << 20;
const MEMORY_PER_BYTE: usize = 16;

/// Time of one rendering.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u64 = 1 << 12;

/// Depth of nested evaluations, and of nested values. A WebAssembly module has a small stack.
const MAX_DEPTH: u32 = if cfg!(target_family = "wasm") { 250 } else { 1500 };
/// Depth of a value that a template makes.
pub(super) const MAX_VALUE_DEPTH: u32 = if cfg!(target_family = "wasm") { 100 } else { 500 };

/// Counts the cost of one rendering, and ends it at a limit.
#[derive(Debug)]
pub(super) struct Meter {
    steps: Cell<u64>,
    max_steps: u64,
    memory: Cell<usize>,
    max_memory: usize,
    end: Instant,
    depth: Cell<u32>,
    /// Hashes keys of dicts.
    pub(super) hasher: RandomState,
}

impl Meter {
    /// A meter for messages of a size in bytes.
    pub(super) fn new(size: usize) -> Rc<Self> {
        let max_steps = (size as u64).saturating_mul(STEPS_PER_BYTE).saturating_add(MAX_STEPS);
        Rc::new(Self {
            steps: Cell::new(max_steps),
            max_steps,
            memory: Cell::new(0),
            max_memory: size.saturating_mul(MEMORY_PER_BYTE).saturating_add(MAX_MEMORY),
            end: Instant::now() + MAX_TIME,
            depth: Cell::new(0),
            hasher: RandomState::new(),
        })
    }

    /// Counts steps.
    pub(super) fn steps(&self, count: usize) -> Result<()> {
        let before = self.steps.get();
        let after = before.checked_sub(count as u64);
        let max = self.max_steps;
        let after =
            after.ok_or_else(|| Failure::new(format!("rendering takes more than {max} steps, which is the limit")))?;
        self.steps.set(after);
        if before / STEPS_PER_LOOK != after / STEPS_PER_LOOK && Instant::now() > self.end {
            let seconds = MAX_TIME.as_secs();
            return Err(Failure::new(format!("rendering takes more than {seconds} seconds, which is the limit")));
        }
        Ok(())
    }

    /// Counts the steps of reading or writing some bytes.
    pub(super) fn bytes(&self, count: usize) -> Result<()> {
        self.steps(1 + count / BYTES_PER_STEP)
    }

    /// Counts memory before its allocation. [`give`](Self::give) returns it.
    pub(super) fn take(&self, bytes: usize) -> Result<()> {
        let memory = self.memory.get().saturating_add(bytes);
        if memory > self.max_memory {
            let max = self.max_memory;
            return Err(Failure::new(format!("rendering takes more than {max} bytes of memory, which is the limit")));
        }
        self.memory.set(memory);
        Ok(())
    }

    pub(super) fn give(&self, bytes: usize) {
        self.memory.set(self.memory.get().saturating_sub(bytes));
    }

    /// Fails if `bytes` more would exceed the limit.
    pub(super) fn room(&self, bytes: usize) -> Result<()> {
        self.take(bytes)?;
        self.give(bytes);
        self.bytes(bytes)
    }

    /// Returns a pseudorandom number, another one after each step.
    pub(super) fn random(&self) -> u64 {
        self.hasher.hash_one(self.steps.get())
    }

    /// Enters a level of nesting, until the result is dropped.
    pub(super) fn deeper(&self) -> Result<Level<'_>> {
        let depth = self.depth.get() + 1;
        if depth > MAX_DEPTH {
            return Err(Failure::new(format!(
                "rendering is nested deeper than {MAX_DEPTH} levels, which is the limit"
            )));
        }
        self.depth.set(depth);
        Ok(Level { meter: self })
    }
}

/// A level of nesting.
#[derive(Debug)]
pub(super) struct Level<'a> {
    meter: &'a Meter,
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        self.meter.depth.set(self.meter.depth.get().saturating_sub(1));
    }
}

/// A text that grows within the limits.
#[derive(Debug)]
pub(super) struct Writer {
    text: String,
    meter: Rc<Meter>,
}

impl Writer {
    pub(super) fn new(meter: &Rc<Meter>) -> Self {
        Self { text: String::new(), meter: meter.clone() }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<()> {
        self.meter.take(text.len())?;
        self.meter.bytes(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    pub(super) fn push_char(&mut self, char: char) -> Result<()> {
        self.push(char.encode_utf8(&mut [0; 4]))
    }

    /// Adds a character several times.
    pub(super) fn fill(&mut self, char: char, count: usize) -> Result<()> {
        let len = count.saturating_mul(char.len_utf8());
        self.meter.take(len)?;
        self.meter.bytes(len)?;
        self.text.extend(std::iter::repeat_n(char, count));
        Ok(())
    }

    pub(super) fn meter(&self) -> &Rc<Meter> {
        &self.meter
    }

    /// The text, which no longer counts.
    pub(super) fn into_text(mut self) -> String {
        self.meter.give(self.text.len());
        std::mem::take(&mut self.text)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.meter.give(self.text.len());
    }
}
