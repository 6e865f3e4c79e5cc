//! Progress of long work, and its cancellation.

use std::fmt;
use std::sync::Arc;

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

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}
