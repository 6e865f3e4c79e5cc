//! State that outlives a call: what delegates keep, apart from their weights, for one session.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::task::Poll;

use crate::error::{Error, Result};
use crate::fault::Fault;

/// One state of a delegate: a KV cache, an accumulator, a buffer of a device.
///
/// The delegate makes it ([`Delegate::new_state`](super::Delegate::new_state)) and finds it again by its type in each
/// [`Call`](super::Call). The methods here let sessions handle states without knowing what they are; those that a back end
/// leaves out are errors.
pub trait State: Any + Send {
    /// Sets the state to what it was when it was made.
    fn clear(&mut self) -> Result<()>;

    /// Forgets everything after the first `len` positions. Meant for states that grow by positions, such as KV caches.
    fn rewind(&mut self, len: usize) -> Result<()> {
        let _ = len;
        Err(Fault::StateHook.into())
    }

    /// Makes a copy that changes on its own from now on.
    fn fork(&self) -> Result<Box<dyn State>> {
        Err(Fault::StateHook.into())
    }

    /// Appends the state to `to`, in a form that [`restore`](Self::restore) reads. A state in device memory may start to
    /// read it back and return [`Poll::Pending`], with `to` as it was; it is called again then.
    fn save(&mut self, to: &mut Vec<u8>) -> Result<Poll<()>> {
        let _ = to;
        Err(Fault::StateHook.into())
    }

    /// Sets the state to what was saved. The bytes may come from anywhere; the state is unchanged if they do not fit.
    fn restore(&mut self, from: &[u8]) -> Result<()> {
        let _ = from;
        Err(Fault::StateHook.into())
    }
}

/// A state that a delegate declares with [`Delegate::state`](super::Delegate::state).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateInfo<'a> {
    /// Delegates of one back end that give the same key, in any method of a program, share the state.
    pub key: &'a str,
    /// Bytes that it takes at most, for memory limits.
    pub bytes: usize,
}

/// All delegate states of one session, by back end and key.
///
/// Weights stay in the methods: any number of `States` takes turns with one loaded method, and one `States` goes through all
/// methods of its program. [`Method::add_states`](crate::Method::add_states) makes what a method needs; executing allocates
/// nothing.
pub struct States {
    entries: Vec<Entry>,
    /// Bytes that may still be taken.
    limit: usize,
    /// A [`save`](Self::save) that is under way: the next entry, and the bytes of those before.
    saving: Option<(usize, Vec<u8>)>,
}

struct Entry {
    backend: String,
    key: String,
    bytes: usize,
    state: Box<dyn State>,
}

/// Begins saved states.
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

    /// States that take at most this many bytes together.
    pub const fn with_limit(bytes: usize) -> Self {
        Self { entries: Vec::new(), limit: bytes, saving: None }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that the states take, as their delegates declared.
    pub fn size(&self) -> usize {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// The state of a back end under this key, if it has the type `T`.
    pub fn get_mut<T: State>(&mut self, backend: &str, key: &str) -> Option<&mut T> {
        let index = self.position(backend, key, 0)?;
        let state: &mut dyn Any = self.entries.get_mut(index)?.state.as_mut();
        state.downcast_mut()
    }

    /// Sets all states to what they were when they were made.
    pub fn clear(&mut self) -> Result<()> {
        self.saving = None;
        self.entries.iter_mut().try_for_each(|entry| entry.state.clear())
    }

    /// Forgets everything after the first `len` positions.
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

    /// Returns all states as bytes. While a device still reads one back it is [`Poll::Pending`]: call it again then, without
    /// executing anything in between.
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

    /// Sets the states to what was saved. They must be there already, as many and under the same keys. The bytes may come
    /// from anywhere.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.saving = None;
        let damaged = || Error::from(Fault::SavedState);
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let mut part = || {
                let (len, after) = rest.split_first_chunk::<8>()?;
                let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
                let (part, after) = after.split_at_checked(len)?;
                rest = after;
                Some(part)
            };
            let (backend, key, data) = (part(), part(), part());
            parts.push((backend.ok_or_else(damaged)?, key.ok_or_else(damaged)?, data.ok_or_else(damaged)?));
        }
        let is_for = |entry: &Entry, part: &(&[u8], &[u8], &[u8])| {
            entry.backend.as_bytes() == part.0 && entry.key.as_bytes() == part.1
        };
        let matches = |entry: &Entry| parts.iter().filter(|part| is_for(entry, part)).count() == 1;
        if parts.len() != self.entries.len() || !self.entries.iter().all(matches) {
            return Err(damaged());
        }
        for entry in &mut self.entries {
            let part = parts.iter().find(|part| is_for(entry, part)).map(|part| part.2).unwrap_or_default();
            entry.state.restore(part)?;
        }
        Ok(())
    }

    /// Index of the state, which was at `hint` when it was last looked up.
    fn position(&self, backend: &str, key: &str, hint: usize) -> Option<usize> {
        let is_it = |entry: &Entry| entry.key == key && entry.backend == backend;
        if self.entries.get(hint).is_some_and(is_it) {
            return Some(hint);
        }
        self.entries.iter().position(is_it)
    }

    /// Makes the states that a delegate declares and that are not there yet.
    pub(crate) fn add(&mut self, backend: &str, delegate: &mut dyn super::Delegate) -> Result<()> {
        let mut index = 0;
        while let Some(info) = delegate.state(index) {
            if self.position(backend, info.key, 0).is_none() {
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

/// States that one delegate may declare.
pub(crate) const MAX_STATES: usize = 4096;

impl core::fmt::Debug for States {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let keys = self.entries.iter().map(|entry| (&entry.backend, &entry.key));
        f.debug_list().entries(keys).finish()
    }
}

/// The key of a state of a delegate, and where it was found last.
pub(crate) struct StateSlot {
    key: String,
    hint: usize,
}

impl StateSlot {
    /// Returns the slots of all states that a delegate declares.
    pub(crate) fn of(delegate: &dyn super::Delegate) -> Vec<Self> {
        let infos = (0..MAX_STATES).map_while(|index| delegate.state(index));
        infos.map(|info| Self { key: info.key.into(), hint: 0 }).collect()
    }
}

/// The states of one delegate call, by their index in the delegate's declarations.
pub struct CallStates<'c> {
    pub(crate) backend: &'c str,
    pub(crate) slots: &'c mut [StateSlot],
    pub(crate) states: Option<&'c mut States>,
}

impl CallStates<'_> {
    /// State `index`. Fails if the session has no such state, or one of another type.
    pub fn get<T: State>(&mut self, index: usize) -> Result<&mut T> {
        let slot = self.slots.get_mut(index).ok_or(Fault::NoState)?;
        let states = self.states.as_mut().ok_or(Fault::NoState)?;
        slot.hint = states.position(self.backend, &slot.key, slot.hint).ok_or(Fault::NoState)?;
        let entry = states.entries.get_mut(slot.hint).ok_or(Fault::NoState)?;
        let state: &mut dyn Any = entry.state.as_mut();
        state.downcast_mut().ok_or_else(|| Fault::StateType.into())
    }
}

impl core::fmt::Debug for CallStates<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CallStates").field("len", &self.slots.len()).finish_non_exhaustive()
    }
}
