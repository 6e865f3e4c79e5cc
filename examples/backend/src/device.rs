//! A simulated device. It stands for the API of a real backend, such as wgpu, CUDA or Core ML.
//!
//! The host reaches its buffers only by copies, and its queue runs jobs in order. Its clock ticks when the host polls,
//! so that tests can produce every interleaving without threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::payload::Payload;

/// The device. Share it between backends that use each other's buffers.
#[derive(Debug)]
pub struct Device {
    index: u32,
    state: Mutex<State>,
    uploads: AtomicUsize,
    downloads: AtomicUsize,
}

/// The number of a buffer.
pub(crate) type BufferId = u64;

#[derive(Debug, Default)]
struct State {
    buffers: BTreeMap<BufferId, Vec<f32>>,
    next_buffer: BufferId,
    queue: VecDeque<Job>,
    clock: u64,
}

/// Work in the queue. Its buffers may be gone when it runs.
#[derive(Debug)]
struct Job {
    /// The tick at which it is done.
    due: u64,
    payload: Arc<Payload>,
    inputs: Vec<BufferId>,
    outputs: Vec<BufferId>,
    sums: Vec<BufferId>,
    elements: usize,
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
}

impl Device {
    /// Makes another device.
    pub fn new() -> Self {
        static DEVICES: AtomicU32 = AtomicU32::new(0);
        let index = DEVICES.fetch_add(1, Ordering::Relaxed);
        Self { index, state: Mutex::default(), uploads: AtomicUsize::new(0), downloads: AtomicUsize::new(0) }
    }

    /// The index of the device.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Number of copies from the host to the device.
    pub fn uploads(&self) -> usize {
        self.uploads.load(Ordering::Relaxed)
    }

    /// Number of copies from the device to the host.
    pub fn downloads(&self) -> usize {
        self.downloads.load(Ordering::Relaxed)
    }

    /// Number of jobs that are not done.
    pub fn queued(&self) -> usize {
        self.state().queue.len()
    }

    /// Number of buffers.
    pub fn buffers(&self) -> usize {
        self.state().buffers.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn allocate(&self, elements: usize) -> BufferId {
        let mut state = self.state();
        state.next_buffer += 1;
        let id = state.next_buffer;
        state.buffers.insert(id, vec![0.0; elements]);
        id
    }

    pub(crate) fn free(&self, id: BufferId) {
        self.state().buffers.remove(&id);
    }

    /// Copies from the host, after all submitted work is done. `None` if the buffer is too small.
    pub(crate) fn upload(&self, id: BufferId, data: &[u8]) -> Option<()> {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.finish_all();
        let buffer = state.buffers.get_mut(&id)?.get_mut(..data.len().div_ceil(4))?;
        for (to, from) in buffer.iter_mut().zip(data.as_chunks().0) {
            *to = f32::from_le_bytes(*from);
        }
        Some(())
    }

    /// Copies to the host, after the work that is done. `None` if the buffer is too small.
    pub(crate) fn download(&self, id: BufferId, data: &mut [u8]) -> Option<()> {
        self.downloads.fetch_add(1, Ordering::Relaxed);
        let state = self.state();
        let buffer = state.buffers.get(&id)?.get(..data.len().div_ceil(4))?;
        for (to, from) in data.as_chunks_mut().0.iter_mut().zip(buffer) {
            *to = from.to_le_bytes();
        }
        Some(())
    }

    /// Copies a buffer on the device. It does not count as a copy of the host's.
    pub(crate) fn duplicate(&self, id: BufferId) -> BufferId {
        let mut state = self.state();
        let data = state.buffers.get(&id).cloned().unwrap_or_default();
        state.next_buffer += 1;
        let id = state.next_buffer;
        state.buffers.insert(id, data);
        id
    }

    pub(crate) fn fill(&self, id: BufferId, value: f32) {
        self.state().buffers.entry(id).and_modify(|data| data.fill(value));
    }

    /// Appends work to the queue, which takes `latency` ticks after the work before it. Returns the tick at which it is
    /// done.
    pub(crate) fn submit(
        &self,
        latency: u64,
        payload: &Arc<Payload>,
        inputs: Vec<BufferId>,
        outputs: Vec<BufferId>,
        sums: Vec<BufferId>,
        elements: usize,
    ) -> u64 {
        let mut state = self.state();
        let due = state.fence().saturating_add(latency);
        state.queue.push_back(Job { due, payload: payload.clone(), inputs, outputs, sums, elements });
        due
    }

    /// The tick at which all submitted work is done.
    pub(crate) fn fence(&self) -> u64 {
        self.state().fence()
    }

    /// Removes the job that is due at this tick from the queue.
    pub(crate) fn cancel(&self, due: u64) {
        self.state().queue.retain(|job| job.due != due);
    }

    /// Does the jobs that are due by this tick, and returns true if the tick has come. If not, the clock ticks.
    pub(crate) fn poll(&self, due: u64) -> bool {
        let mut state = self.state();
        if state.clock < due {
            state.clock += 1;
            return false;
        }
        while state.queue.front().is_some_and(|job| job.due <= due) {
            state.finish_first();
        }
        true
    }
}

impl State {
    fn fence(&self) -> u64 {
        self.queue.back().map_or(self.clock, |job| job.due.max(self.clock))
    }

    fn finish_all(&mut self) {
        self.clock = self.fence();
        while !self.queue.is_empty() {
            self.finish_first();
        }
    }

    fn finish_first(&mut self) {
        let Some(job) = self.queue.pop_front() else { return };
        let mut registers = vec![0.0; job.payload.registers()];
        for element in 0..job.elements {
            let buffers = &mut self.buffers;
            let input = |index: usize| buffers.get(job.inputs.get(index)?)?.get(element).copied();
            let inputs: Option<Vec<f32>> = (0..job.inputs.len()).map(input).collect();
            let Some(inputs) = inputs else { return };
            let accumulate = |sum: usize, value: f32| {
                let sum = buffers.get_mut(job.sums.get(sum)?)?.get_mut(element)?;
                *sum += value;
                Some(*sum)
            };
            if job.payload.evaluate(element, &mut registers, |index| inputs.get(index).copied(), accumulate).is_none() {
                return;
            }
            for (id, register) in job.outputs.iter().zip(&job.payload.outputs) {
                if let Some(slot) = self.buffers.get_mut(id).and_then(|data| data.get_mut(element)) {
                    *slot = registers[*register as usize];
                }
            }
        }
    }
}
