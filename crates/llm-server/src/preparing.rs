//! Bounds on the cost of requests before they enter the queue: their bytes, and the work to read, render and tokenize them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Refusal, defect};

/// Maximum number of requests that are prepared at a time.
pub(crate) const MAX_PREPARING: usize = 4;

/// Minimum bytes of a large body. Large requests are prepared one at a time, so that their memory is taken once.
const LARGE: usize = 256 << 10;

/// Bytes of a body that every connection may hold without a permit.
const FREE: usize = 64 << 10;

/// Number of bodies of the largest size that fit in memory, over all connections.
const BODIES: usize = 16;

/// Permits for requests that are received and prepared.
#[derive(Debug)]
pub(crate) struct Preparing {
    all: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// One for each [`FREE`] bytes of bodies beyond the first.
    bytes: Arc<Semaphore>,
    /// Maximum time that a request waits for its turn.
    timeout: Duration,
}

/// Bytes reserved for a body.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: usize,
    permits: Vec<OwnedSemaphorePermit>,
}

/// The permit to prepare a request. Work that continues after the client has left keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    _permits: Arc<(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>)>,
}

impl Preparing {
    pub fn new(max_body: usize, timeout: Duration) -> Self {
        let pieces = max_body.div_ceil(FREE).saturating_mul(BODIES).min(Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(MAX_PREPARING)),
            large: Arc::new(Semaphore::new(1)),
            bytes: Arc::new(Semaphore::new(pieces)),
            timeout,
        }
    }

    /// Reserves room for a body of `len` bytes.
    pub fn grow(&self, room: &mut Room, len: usize) -> Result<(), Refusal> {
        let full =
            || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server has too many large requests: come again");
        while len > FREE.saturating_add(room.bytes) {
            let permit = self.bytes.clone().try_acquire_owned().map_err(|_| full())?;
            match room.permits.first_mut() {
                Some(first) => first.merge(permit),
                None => room.permits.push(permit),
            }
            room.bytes += FREE;
        }
        Ok(())
    }

    /// Waits for the turn of a request of `len` bytes.
    pub async fn turn(&self, len: usize) -> Result<Permit, Refusal> {
        let permits = async {
            // First, so that a large request keeps no small one from its turn.
            let large = if len >= LARGE { Some(self.large.clone().acquire_owned().await?) } else { None };
            Ok((self.all.clone().acquire_owned().await?, large))
        };
        let permits = tokio::time::timeout(self.timeout, permits).await;
        let late = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server prepares other requests: come again");
        let permits: Result<_, tokio::sync::AcquireError> = permits.map_err(late)?;
        Ok(Permit { _permits: Arc::new(permits.map_err(|_| Refusal::stopped())?) })
    }
}

impl Permit {
    /// Runs work beside the threads that serve, with a lower priority than the threads of the model. The permit is given back when the work
    /// ends, even if the client left before.
    pub async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let permit = self.clone();
        let work = move || {
            yield_to_answers();
            let result = work();
            drop(permit);
            result
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(defect()),
            Err(_) => Err(Refusal::stopped()),
        }
    }
}

/// Lets the threads that compute answers go first, where a system has priorities of threads.
fn yield_to_answers() {
    thread_local! {
        static IS_DONE: Cell<bool> = const { Cell::new(false) };
    }
    if IS_DONE.replace(true) {
        return;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        /// Ten steps below the others: a tenth of their time where they need the processor, too.
        const NICENESS: i32 = 10;
        // On Linux it is that of the thread. Where it is refused, all are equal.
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    #[test]
    fn work_of_clients_that_left_keeps_its_permit() {
        let preparing = Arc::new(Preparing::new(1 << 20, Duration::from_millis(200)));
        runtime().block_on(async {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let ended = Arc::new(std::sync::Mutex::new(ended));
            for _ in 0..MAX_PREPARING {
                let permit = preparing.turn(10).await.expect("a permit");
                let ended = ended.clone();
                let work = async move { permit.work(move || Ok(ended.lock().map(|ended| ended.recv()).is_ok())).await };
                // The client leaves while the work goes on.
                assert!(tokio::time::timeout(Duration::from_millis(50), work).await.is_err());
            }
            let refused = preparing.turn(10).await.expect_err("all permits are taken");
            assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
            drop(end);
            assert!(preparing.turn(10).await.is_ok());
        });
    }

    #[test]
    fn large_requests_are_prepared_one_at_a_time_and_small_ones_beside_them() {
        let preparing = Preparing::new(1 << 20, Duration::from_millis(100));
        runtime().block_on(async {
            let large = preparing.turn(LARGE).await.expect("a permit");
            assert!(preparing.turn(LARGE).await.is_err());
            for _ in 0..10 {
                assert!(preparing.turn(LARGE - 1).await.is_ok());
            }
            drop(large);
            assert!(preparing.turn(LARGE).await.is_ok());
        });
    }

    #[test]
    fn bodies_have_room_for_sixteen_of_the_largest() {
        let preparing = Preparing::new(1 << 20, Duration::from_secs(1));
        let mut rooms = Vec::new();
        for _ in 0..BODIES {
            let mut room = Room::default();
            for len in [10, FREE, 1 << 19, 1 << 20] {
                preparing.grow(&mut room, len).expect("there is room");
            }
            rooms.push(room);
        }
        // The first `FREE` bytes of each connection take no permit.
        let mut small = Room::default();
        assert!(preparing.grow(&mut small, FREE).is_ok());
        let mut large = Room::default();
        preparing.grow(&mut large, 1 << 20).expect("what the others leave of their first bytes");
        assert!(preparing.grow(&mut Room::default(), 1 << 20).is_err());
        drop(rooms);
        assert!(preparing.grow(&mut Room::default(), 1 << 20).is_ok());
    }
}
