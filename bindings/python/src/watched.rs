//! Runs long work on a worker thread. The caller's thread handles signals, such as that of Ctrl-C, and reports
//! progress.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rushlight::{Progress, ProgressListener};

use crate::callback;

/// Interval at which the caller checks for signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// Interval at which the last report is repeated if there is no new one, for progress bars that appear only after a
/// while.
const REPEAT: Duration = Duration::from_millis(500);

/// Time for the work to end after a signal, so that incomplete files are removed. Work that takes longer continues in
/// the background, and its result is dropped.
const GRACE: Duration = Duration::from_millis(100);

/// Runs work on a worker thread. Calls `report`, a callback with the stage, the units done and the total, on this
/// thread. An exception of a Python callback on the worker is kept for [`callback::explained`].
///
/// # Errors
/// An exception of a signal handler or of `report`, after the work ended or was cancelled.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    report: Option<&Py<PyAny>>,
    work: impl FnOnce(Progress) -> T + Send + 'static,
) -> PyResult<T> {
    let state = Arc::new(State::default());
    let (send, result) = channel();
    let progress = Progress::new(state.clone());
    let work = move || {
        callback::forget();
        let done = catch_unwind(AssertUnwindSafe(|| work(progress)));
        // If no one waits any more, the result is dropped.
        drop(send.send((done, callback::take())));
    };
    thread::Builder::new().name("rushlight".to_owned()).spawn(work)?;
    // Only this thread uses the receiver.
    let result = Mutex::new(result);
    let wait = |limit| py.detach(|| result.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(limit));
    let last = Cell::new(None);
    let tell = |news: Option<Report>| match (report, news) {
        (Some(report), Some(news)) => {
            last.set(Some((Instant::now(), news)));
            report.call1(py, news).map(drop)
        }
        _ => Ok(()),
    };
    loop {
        match wait(SIGNALS) {
            Ok((Ok(done), raised)) => {
                callback::keep(raised);
                // The last report, such as that all work is done.
                tell(state.take())?;
                return Ok(done);
            }
            Ok((Err(panic), _)) => resume_unwind(panic),
            Err(RecvTimeoutError::Timeout) => {}
            // The worker sends a result before it ends.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread that worked ended without a result"));
            }
        }
        let news = state.take().or_else(|| to_repeat(last.get()));
        if let Err(error) = py.check_signals().and_then(|()| tell(news)) {
            state.is_cancelled.store(true, Ordering::Relaxed);
            // The caller does not wait longer, even if the work continues.
            drop(wait(GRACE));
            return Err(error);
        }
    }
}

/// A stage, the units done and the total.
type Report = (&'static str, u64, u64);

/// The last report, if it was made at least [`REPEAT`] ago.
fn to_repeat(last: Option<(Instant, Report)>) -> Option<Report> {
    last.filter(|(when, _)| when.elapsed() >= REPEAT).map(|(_, report)| report)
}

/// State shared by the worker and the waiting thread.
#[derive(Default)]
struct State {
    is_cancelled: AtomicBool,
    /// The last report that was not passed to the caller yet.
    report: Mutex<Option<Report>>,
}

impl State {
    fn take(&self) -> Option<Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ProgressListener for State {
    fn report(&self, stage: &'static str, done: u64, total: u64) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some((stage, done, total));
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}
