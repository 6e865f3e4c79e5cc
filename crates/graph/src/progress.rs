//! Progress of long work, and its cancellation.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind};

/// Follows long work, such as a compilation, on any thread.
pub trait ProgressListener: Send + Sync {
    /// Called when `done` of the `total` units of a stage are complete. Stages, such as `writing`, follow each other and may
    /// come again; what a unit is depends on the stage.
    fn report(&self, stage: &'static str, done: u64, total: u64);

    /// True if the work is cancelled: it fails with [`ErrorKind::Cancelled`] after the current step.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// A handle of a [`ProgressListener`], or of none.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn ProgressListener>>);

impl Progress {
    /// A handle of a listener.
    pub fn new(listener: Arc<impl ProgressListener + 'static>) -> Self {
        Self(Some(listener))
    }

    /// A handle that stays cancelled once its listener was, for work on several threads.
    #[must_use]
    pub fn latched(&self) -> Self {
        let latched = |listener: &Arc<_>| Arc::new(Latched { listener: Arc::clone(listener), is_set: false.into() });
        Self(self.0.as_ref().map(|listener| latched(listener) as Arc<dyn ProgressListener>))
    }

    /// Reports that `done` of the `total` units of a stage are complete.
    ///
    /// # Errors
    /// `Cancelled` if the work is cancelled.
    pub fn report(&self, stage: &'static str, done: u64, total: u64) -> Result<(), Error> {
        if let Some(listener) = &self.0 {
            listener.report(stage, done, total);
        }
        self.check()
    }

    /// Fails if the work is cancelled.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check(&self) -> Result<(), Error> {
        match &self.0 {
            Some(listener) if listener.is_cancelled() => Err(Error::new(ErrorKind::Cancelled, "it was cancelled")),
            _ => Ok(()),
        }
    }
}

/// The listener behind [`Progress::latched`].
struct Latched {
    listener: Arc<dyn ProgressListener>,
    is_set: AtomicBool,
}

impl ProgressListener for Latched {
    fn report(&self, stage: &'static str, done: u64, total: u64) {
        self.listener.report(stage, done, total);
    }

    fn is_cancelled(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
            || (self.listener.is_cancelled() && {
                self.is_set.store(true, Ordering::Relaxed);
                true
            })
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latched_handle_stays_cancelled() {
        /// Cancels at the first poll alone.
        struct Once(AtomicBool);

        impl ProgressListener for Once {
            fn report(&self, _: &'static str, _: u64, _: u64) {}

            fn is_cancelled(&self) -> bool {
                !self.0.swap(true, Ordering::Relaxed)
            }
        }

        let once = Progress::new(Arc::new(Once(false.into())));
        let latched = once.latched();
        assert!(latched.check().is_err() && latched.report("packing", 1, 2).is_err());
        assert!(once.check().is_ok() && once.latched().check().is_ok());
    }
}
