//! State of delegates that outlives a call and belongs to one session. Weights are not part of it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::task::Poll;

use crate::error::{Error, Result};
use crate::fault::Fault;

/// One state of a delegate, such as a KV cache, an accumulator or a device buffer.
///
/// The delegate makes it ([`Delegate::new_state`](super::Delegate::new_state)) and downcasts it in each
/// [`Call`](super::Call). The methods here let sessions handle states of unknown types. A method that a backend does
/// not implement fails.
pub trait State: Any + Send {
    /// Resets the state to its first value.
    fn clear(&mut self) -> Result<()>;

    /// Drops everything after the first `len` positions. It is for states that grow by positions, such as KV caches.
    fn rewind(&mut self, len: usize) -> Result<()> {
        let _ = len;
        Err(Fault::StateHook.into())
    }

    /// Makes a copy that changes independently.
    fn fork(&self) -> Result<Box<dyn State>> {
        Err(Fault::StateHook.into())
    }

    /// Appends the state to `to`, in a form that [`restore`](Self::restore) reads. A state in device memory may start
    /// to read it back and return [`Poll::Pending`], with `to` unchanged. It is then called again.
    fn save(&mut self, to: &mut Vec<u8>) -> Result<Poll<()>> {
        let _ = to;
        Err(Fault::StateHook.into())
    }

    /// Sets the state to a saved one. The bytes are untrusted; the state is unchanged if they do not fit.
    fn restore(&mut self, from: &[u8]) -> Result<()> {
        let _ = from;
        Err(Fault::StateHook.into())
    }
}

/// A state that a delegate declares with [`Delegate::state`](super::Delegate::state).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateInfo<'a> {
    /// Delegates of one backend with the same key, in any method of a program, share the state.
    pub key: &'a str,
    /// Maximum bytes of the state, for memory limits. All delegates that share the state declare the same.
    pub bytes: usize,
}

/// All delegate states of one session, by backend and key.
///
/// Weights stay in the methods. Any number of `States` can take turns with one loaded method, and one `States` serves
/// all methods of its program. [`Method::add_states`](crate::Method::add_states) makes the states that a method needs;
/// executions allocate nothing.
pub struct States {
    entries: Vec<Entry>,
    /// Bytes that new states may still take.
    limit: usize,
    /// A [`save`](Self::save) in progress: the next entry, and the bytes of the entries before.
    saving: Option<(usize, Vec<u8>)>,
}

struct Entry {
    backend: String,
    key: String,
    bytes: usize,
    state: Box<dyn State>,
}

impl Entry {
    /// Fails if a delegate declares other bytes than the state has.
    fn check(&self, declared: usize) -> Result<()> {
        if self.bytes == declared {
            return Ok(());
        }
        Err(Error::fault(Fault::StateBytes, self.bytes, declared))
    }
}

/// Magic number of saved states.
const MAGIC: &[u8; 4] = b"RLS1";

impl Default for States {
    fn default() -> Self {
        Self::new()
    }
}

impl States {
    pub const fn new() -> Self {
        Self::with_limit(usize::MAX)
    }

    /// Makes an empty set whose states take at most this many bytes together.
    pub const fn with_limit(bytes: usize) -> Self {
        Self { entries: Vec::new(), limit: bytes, saving: None }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the states, as their delegates declared them.
    pub fn size(&self) -> usize {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// The state of a backend under this key, if it has the type `T`.
    pub fn get_mut<T: State>(&mut self, backend: &str, key: &str) -> Option<&mut T> {
        let index = self.position(backend, key, 0)?;
        let state: &mut dyn Any = self.entries.get_mut(index)?.state.as_mut();
        state.downcast_mut()
    }

    /// Resets all states to their first values.
    pub fn clear(&mut self) -> Result<()> {
        self.saving = None;
        self.entries.iter_mut().try_for_each(|entry| entry.state.clear())
    }

    /// Drops everything after the first `len` positions of each state.
    pub fn rewind(&mut self, len: usize) -> Result<()> {
        self.saving = None;
        self.entries.iter_mut().try_for_each(|entry| entry.state.rewind(len))
    }

    /// Makes a copy of all states.
    pub fn fork(&self) -> Result<Self> {
        let copy = |entry: &Entry| {
            let state = entry.state.fork()?;
            Ok(Entry { backend: entry.backend.clone(), key: entry.key.clone(), bytes: entry.bytes, state })
        };
        let entries = self.entries.iter().map(copy).collect::<Result<_>>()?;
        Ok(Self { entries, limit: self.limit, saving: None })
    }

    /// Returns all states as bytes. It is [`Poll::Pending`] while a device reads one back. Call it again then, without
    /// an execution in between.
    pub fn save(&mut self) -> Result<Poll<Vec<u8>>> {
        let (mut index, mut bytes) = self.saving.take().unwrap_or_else(|| (0, MAGIC.to_vec()));
        while let Some(entry) = self.entries.get_mut(index) {
            let mut data = Vec::new();
            if entry.state.save(&mut data)?.is_pending() {
                self.saving = Some((index, bytes));
                return Ok(Poll::Pending);
            }
            for part in [entry.backend.as_bytes(), entry.key.as_bytes(), &data] {
                bytes.extend((part.len() as u64).to_le_bytes());
                bytes.extend(part);
            }
            index += 1;
        }
        Ok(Poll::Ready(bytes))
    }

    /// Sets the states to saved ones. The same number of states, with the same keys, must exist already. The bytes are
    /// untrusted.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.saving = None;
        let damaged = || Error::from(Fault::SavedState);
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let mut saved = Vec::new();
        while !rest.is_empty() {
            let mut part = || {
                let (len, after) = rest.split_first_chunk::<8>()?;
                let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
                let (part, after) = after.split_at_checked(len)?;
                rest = after;
                Some(part)
            };
            let (backend, key, data) = (part(), part(), part());
            saved.push((backend.ok_or_else(damaged)?, key.ok_or_else(damaged)?, data.ok_or_else(damaged)?));
        }
        let is_for = |entry: &Entry, (backend, key, _): &(&[u8], &[u8], &[u8])| {
            entry.backend.as_bytes() == *backend && entry.key.as_bytes() == *key
        };
        let is_saved_once = |entry: &Entry| saved.iter().filter(|state| is_for(entry, state)).count() == 1;
        if saved.len() != self.entries.len() || !self.entries.iter().all(is_saved_once) {
            return Err(damaged());
        }
        for entry in &mut self.entries {
            let data = saved.iter().find(|state| is_for(entry, state)).map(|(_, _, data)| *data).unwrap_or_default();
            entry.state.restore(data)?;
        }
        Ok(())
    }

    /// Index of a state. `hint` is its index at the last lookup.
    fn position(&self, backend: &str, key: &str, hint: usize) -> Option<usize> {
        let matches = |entry: &Entry| entry.key == key && entry.backend == backend;
        if self.entries.get(hint).is_some_and(matches) {
            return Some(hint);
        }
        self.entries.iter().position(matches)
    }

    /// Makes the declared states of a delegate that do not exist yet. Fails if a state exists with other bytes: its
    /// delegates may be written in languages that do not check the bounds of its memory.
    pub(crate) fn add(&mut self, backend: &str, delegate: &mut dyn super::Delegate) -> Result<()> {
        let mut index = 0;
        while let Some(info) = delegate.state(index) {
            if let Some(entry) = self.position(backend, info.key, 0).and_then(|index| self.entries.get(index)) {
                entry.check(info.bytes)?;
            } else {
                let Some(limit) = self.limit.checked_sub(info.bytes) else {
                    return Err(Error::fault(Fault::LimitedMemory, info.bytes, self.limit));
                };
                let (key, bytes) = (info.key.into(), info.bytes);
                let state = delegate.new_state(index)?;
                self.limit = limit;
                self.entries.push(Entry { backend: backend.into(), key, bytes, state });
            }
            index += 1;
            if index > MAX_STATES {
                return Err(Error::fault(Fault::TooManyStates, MAX_STATES, 0));
            }
        }
        Ok(())
    }
}

/// Maximum number of states of one delegate.
pub(crate) const MAX_STATES: usize = 4096;

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.entries.iter().map(|entry| (&entry.backend, &entry.key));
        f.debug_list().entries(keys).finish()
    }
}

/// The key and the declared bytes of a delegate's state, and its index at the last lookup.
pub(crate) struct StateSlot {
    key: String,
    bytes: usize,
    hint: usize,
}

impl StateSlot {
    /// Returns the slots of all states that a delegate declares.
    pub(crate) fn of(delegate: &dyn super::Delegate) -> Vec<Self> {
        let infos = (0..MAX_STATES).map_while(|index| delegate.state(index));
        infos.map(|info| Self { key: info.key.into(), bytes: info.bytes, hint: 0 }).collect()
    }
}

/// The states of one delegate call, by their index in the delegate's declarations.
pub struct CallStates<'c> {
    pub(crate) backend: &'c str,
    pub(crate) slots: &'c mut [StateSlot],
    pub(crate) states: Option<&'c mut States>,
}

impl CallStates<'_> {
    /// State `index`. Fails if the session has no such state, or one of another type or with other declared bytes.
    pub fn get<T: State>(&mut self, index: usize) -> Result<&mut T> {
        let slot = self.slots.get_mut(index).ok_or(Fault::NoState)?;
        let states = self.states.as_mut().ok_or(Fault::NoState)?;
        slot.hint = states.position(self.backend, &slot.key, slot.hint).ok_or(Fault::NoState)?;
        let entry = states.entries.get_mut(slot.hint).ok_or(Fault::NoState)?;
        entry.check(slot.bytes)?;
        let state: &mut dyn Any = entry.state.as_mut();
        state.downcast_mut().ok_or_else(|| Fault::StateType.into())
    }
}

impl fmt::Debug for CallStates<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallStates").field("len", &self.slots.len()).finish_non_exhaustive()
    }
}
