//! States: what programs keep from call to call, such as KV caches.
//!
//! Most states are zeros at first. Memory that was never written takes no room then: the system gives it page by page.

use std::task::Poll;

use rushlight_cpu_payload::CpuProgram;
use rushlight_runtime::{CallStates, Code, Detail, Error, Result, State, StateInfo};

use crate::memory::zeros;

/// A state of one session.
struct Floats {
    floats: Vec<f32>,
    /// The bits of each float at first.
    initial: u32,
    /// True if elements are read only where the present positions say that they were written: what is behind may stay.
    is_cache: bool,
}

impl State for Floats {
    fn clear(&mut self) -> Result<()> {
        self.floats = filled(self.floats.len() as u64, self.initial)?;
        Ok(())
    }

    fn rewind(&mut self, _: usize) -> Result<()> {
        if self.is_cache {
            return Ok(());
        }
        Err(Error::new(
            Code::NotSupported,
            Detail::Text("the program keeps a state that has no positions to go back to"),
        ))
    }

    fn fork(&self) -> Result<Box<dyn State>> {
        let mut floats = filled(self.floats.len() as u64, self.initial)?;
        // Pages that were never written are not written in the copy either.
        for (to, from) in floats.chunks_mut(PAGE).zip(self.floats.chunks(PAGE)) {
            if from.iter().any(|float| float.to_bits() != self.initial) {
                to.copy_from_slice(from);
            }
        }
        Ok(Box::new(Self { floats, ..*self }))
    }

    fn save(&mut self, to: &mut Vec<u8>) -> Result<Poll<()>> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.floats);
        to.try_reserve(bytes.len()).map_err(|_| {
            Error::new(Code::MemoryAllocationFailed, Detail::Text("not enough memory to save the state"))
        })?;
        to.extend_from_slice(bytes);
        Ok(Poll::Ready(()))
    }

    fn restore(&mut self, from: &[u8]) -> Result<()> {
        let to: &mut [u8] = bytemuck::cast_slice_mut(&mut self.floats);
        if to.len() != from.len() {
            return Err(Detail::Count { what: "bytes of a saved state", expected: to.len(), got: from.len() }.into());
        }
        to.copy_from_slice(from);
        Ok(())
    }
}

/// Allocates `len` floats of these bits.
fn filled(len: u64, bits: u32) -> Result<Vec<f32>> {
    let mut floats = zeros(len)?;
    if bits != 0 {
        floats.fill(f32::from_bits(bits));
    }
    Ok(floats)
}

/// Floats that are copied together: a page of memory.
const PAGE: usize = 1024;

/// The states of a program, which a session lends it for each call.
pub(crate) struct States {
    declared: Vec<rushlight_cpu_payload::State>,
    /// The memory of each during a call.
    lent: Vec<Vec<f32>>,
}

impl States {
    pub fn new(program: &CpuProgram) -> Self {
        Self { declared: program.states.clone(), lent: program.states.iter().map(|_| Vec::new()).collect() }
    }

    /// The states of another call of the same program.
    pub fn another(&self) -> Self {
        Self { declared: self.declared.clone(), lent: self.lent.iter().map(|_| Vec::new()).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    /// The declaration of a state.
    pub fn info(&self, index: usize) -> Option<StateInfo<'_>> {
        let rushlight_cpu_payload::State { key, len, .. } = self.declared.get(index)?;
        let floats = usize::try_from(*len).unwrap_or(usize::MAX);
        Some(StateInfo { key, bytes: floats.saturating_mul(size_of::<f32>()) })
    }

    /// Makes a state for a session.
    pub fn make(&self, index: usize) -> Result<Box<dyn State>> {
        let state = self.declared.get(index).ok_or_else(|| Error::invalid("a state that the program does not have"))?;
        let rushlight_cpu_payload::State { len, initial, is_cache, .. } = *state;
        Ok(Box::new(Floats { floats: filled(len, initial)?, initial, is_cache }))
    }

    /// Takes the memory of all states of a session, or gives it back.
    pub fn exchange(&mut self, states: &mut CallStates<'_>) -> Result<()> {
        for (index, lent) in self.lent.iter_mut().enumerate() {
            std::mem::swap(lent, &mut states.get::<Floats>(index)?.floats);
        }
        Ok(())
    }

    /// Takes the memory of all states of a session. They have the sizes that the program declares, or none is taken.
    pub fn borrow(&mut self, states: &mut CallStates<'_>) -> Result<()> {
        for (index, declared) in self.declared.iter().enumerate() {
            let state = states.get::<Floats>(index)?;
            if state.initial != declared.initial {
                return Err(Error::invalid("methods share a state, and disagree on what it holds at first"));
            }
            let (expected, got) = (declared.len, state.floats.len());
            if got as u64 != expected {
                let expected = usize::try_from(expected).unwrap_or(usize::MAX);
                return Err(Detail::Count { what: "elements of a state that methods share", expected, got }.into());
            }
        }
        self.exchange(states)
    }

    /// The memory of all states during a call; empty slices otherwise.
    pub fn floats(&mut self) -> &mut [Vec<f32>] {
        &mut self.lent
    }
}
