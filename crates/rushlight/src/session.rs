//! Sessions: separate states over shared weights.
//!
//! A session is a handle to the delegate states of one user, over the methods and weights of a module. Calls without a
//! session use the module's own states, which are made at the first of these calls. State in planned memory does not
//! belong to a session: `Module::session` refuses such programs, and `instantiate` copies them whole.

use std::sync::Arc;
use std::task::Poll;

use rushlight_runtime::{Code, States};

use crate::error::Error;
use crate::module::Module;

/// The states of one user of a [`Module`]: the states of its delegates, such as a KV cache. Code and weights stay in
/// the module, and any number of sessions can take turns with it.
///
/// [`Module::session`] makes one. It can outlive calls, move between threads, and be dropped at any time.
#[derive(Debug)]
pub struct Session {
    states: States,
    module: Arc<()>,
}

impl Session {
    /// Resets all states to their initial contents.
    pub fn clear(&mut self) -> Result<(), Error> {
        Ok(self.states.clear()?)
    }

    /// Removes everything after the first `len` positions, if the backends can.
    pub fn rewind(&mut self, len: usize) -> Result<(), Error> {
        Ok(self.states.rewind(len)?)
    }

    /// Makes an independent session that continues from the same states.
    pub fn fork(&self) -> Result<Self, Error> {
        Ok(Self { states: self.states.fork()?, module: self.module.clone() })
    }

    /// Returns the states as bytes. Pending while a device reads them back: then call it again.
    pub fn save(&mut self) -> Result<Poll<Vec<u8>>, Error> {
        Ok(self.states.save()?)
    }

    /// Replaces the states by those that a session of the same program saved.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.states
            .restore(bytes)
            .map_err(|error| Error::from(error).help("save and restore with the same program and the same backends"))
    }

    /// Returns the size of the states in bytes.
    pub fn size(&self) -> usize {
        self.states.size()
    }

    pub(crate) fn new(states: States, module: Arc<()>) -> Self {
        Self { states, module }
    }

    /// Returns the states, for a module of this identity.
    pub(crate) fn states(&mut self, module: &Arc<()>) -> Result<&mut States, Error> {
        if Arc::ptr_eq(&self.module, module) {
            return Ok(&mut self.states);
        }
        Err(Error::new(Code::InvalidArgument, "the session is of another module")
            .help("make it with this module's `session`"))
    }
}

impl Module {
    /// Makes a session. Loads all methods for it; their delegates make the states.
    ///
    /// # Errors
    /// `NotSupported` if a method keeps state in its own memory, as the reference operators do. Only
    /// [`instantiate`](Self::instantiate) copies such state.
    pub fn session(&mut self) -> Result<Session, Error> {
        let names: Vec<String> = self.method_names().map(ToOwned::to_owned).collect();
        let mut states = self.no_states();
        for name in names {
            let method = self.method(&name)?;
            if let Some(buffer) = method.planned_state() {
                let message = format!("`{name}` keeps `{buffer}` in memory of the method, which sessions cannot have");
                return Err(Error::new(Code::NotSupported, message).help(
                    "run it with a backend that keeps the state, or make a copy of the method with `instantiate`",
                ));
            }
            method.add_states(&mut states)?;
        }
        Ok(Session::new(states, self.identity()))
    }
}
