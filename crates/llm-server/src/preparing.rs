//! Bounds on the cost of requests before they enter the queue: their bytes, and the work to read, render and tokenize them.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::oneshot;

use crate::error::{Refusal, defect};
use crate::fair::{Held, Shares, Tenant, give_back};
use crate::open::Client;

/// Maximum number of requests that are prepared at a time.
pub(crate) const MAX_PREPARING: usize = 4;

/// Maximum number of them of one client, or of one key if there are several: another one never waits for all.
const MAX_OF_ONE: usize = MAX_PREPARING - 1;

/// Minimum bytes of a large body. Large requests are prepared one at a time, so that their memory is taken once.
const MIN_LARGE: usize = 256 << 10;

/// Bytes of a body that every connection may hold without a reservation.
const FREE: usize = 64 << 10;

/// Number of bodies of the largest size that fit in memory, over all connections.
const BODIES: usize = 16;

/// Turns of requests that are prepared, and room for those that are received.
#[derive(Debug)]
pub(crate) struct Preparing {
    turns: Arc<Mutex<Turns>>,
    room: Arc<Mutex<Taken>>,
    /// True if the limits are for each key instead of each client.
    has_keys: bool,
    /// Maximum time that a request waits for its turn.
    timeout: Duration,
}

/// Requests that are prepared, and those that wait for it.
#[derive(Debug)]
struct Turns {
    free: usize,
    is_large_free: bool,
    held: Held,
    /// As `held`, by the tenants that [`Preparing::one`] returns.
    held_by_one: Held,
    /// Microseconds of work.
    shares: Shares,
    /// In the order of arrival.
    waiting: Vec<Waiting>,
}

/// A request that waits for its turn.
#[derive(Debug)]
struct Waiting {
    tenant: Tenant,
    one: Tenant,
    is_large: bool,
    turn: oneshot::Sender<Permit>,
}

/// The permit to prepare a request. Work that continues after the client has left keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    _turn: Arc<Turn>,
}

/// A turn that was given. It ends when this is dropped.
#[derive(Debug)]
struct Turn {
    turns: Arc<Mutex<Turns>>,
    tenant: Tenant,
    one: Tenant,
    is_large: bool,
    since: Instant,
}

/// Room for bodies, in pieces of [`FREE`] bytes beyond the first.
#[derive(Debug)]
struct Taken {
    max: usize,
    all: usize,
    by_one: HashMap<Tenant, usize>,
}

/// Room reserved for a body.
#[derive(Debug)]
pub(crate) struct Room {
    taken: Arc<Mutex<Taken>>,
    one: Tenant,
    pieces: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Preparing {
    /// `keys` is the number of API keys.
    pub fn new(max_body: usize, timeout: Duration, keys: usize) -> Self {
        let turns = Turns {
            free: MAX_PREPARING,
            is_large_free: true,
            held: Held::default(),
            held_by_one: Held::default(),
            shares: Shares::default(),
            waiting: Vec::new(),
        };
        let max = max_body.div_ceil(FREE).saturating_mul(BODIES);
        let room = Taken { max, all: 0, by_one: HashMap::new() };
        let (turns, room) = (Arc::new(Mutex::new(turns)), Arc::new(Mutex::new(room)));
        Self { turns, room, has_keys: keys > 1, timeout }
    }

    /// The key of a tenant, or the client where keys make no difference.
    fn one(&self, tenant: Tenant) -> Tenant {
        if self.has_keys { Tenant { client: Client::default(), ..tenant } } else { tenant }
    }

    /// Returns room for a body that has no bytes yet.
    pub fn room(&self, tenant: Tenant) -> Room {
        Room { taken: self.room.clone(), one: self.one(tenant), pieces: 0 }
    }

    /// Waits for the turn of a request of `len` bytes.
    pub async fn turn(&self, tenant: Tenant, len: usize) -> Result<Permit, Refusal> {
        let (turn, given) = oneshot::channel();
        {
            let waiting = Waiting { tenant, one: self.one(tenant), is_large: len >= MIN_LARGE, turn };
            locked(&self.turns).waiting.push(waiting);
        }
        give(&self.turns);
        match tokio::time::timeout(self.timeout, given).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Refusal::stopped()),
            Err(_) => {
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server prepares other requests: come again"))
            }
        }
    }
}

/// Gives turns to requests that wait, as long as there are some.
fn give(turns: &Arc<Mutex<Turns>>) {
    loop {
        let mut all = locked(turns);
        let Some(Waiting { tenant, one, is_large, turn }) = all.next() else { return };
        all.free -= 1;
        all.is_large_free &= !is_large;
        all.held.add(tenant);
        all.held_by_one.add(one);
        drop(all);
        let turns = turns.clone();
        let permit = Permit { _turn: Arc::new(Turn { turns, tenant, one, is_large, since: Instant::now() }) };
        // If nobody waits any more, the turn ends here.
        let _ = turn.send(permit);
    }
}

impl Turns {
    /// Takes the request whose turn is next: of the tenant that has fewest at a time, and among equals of the one that took least time.
    fn next(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.turn.is_closed());
        if self.free == 0 || self.waiting.is_empty() {
            return None;
        }
        let waiting = self.waiting.iter().map(|waiting| waiting.tenant);
        let active: Vec<Tenant> = waiting.chain(self.held.tenants()).collect();
        self.shares.settle(&active);
        let may_begin = |waiting: &Waiting| {
            self.held_by_one.of(waiting.one) < MAX_OF_ONE && (self.is_large_free || !waiting.is_large)
        };
        let waiting = self.waiting.iter().enumerate().filter(|(_, waiting)| may_begin(waiting));
        let rank = |tenant: Tenant| self.held.rank(tenant, &self.shares);
        let (index, _) = waiting.min_by_key(|(index, waiting)| (rank(waiting.tenant), *index))?;
        Some(self.waiting.remove(index))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut turns = locked(&self.turns);
            turns.free += 1;
            turns.is_large_free |= self.is_large;
            turns.held.remove(self.tenant);
            turns.held_by_one.remove(self.one);
            let time = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            turns.shares.charge(self.tenant, time.saturating_add(1));
        }
        give(&self.turns);
    }
}

impl Room {
    /// Makes it room for a body of `len` bytes. Nobody takes more than half of the room that the others leave.
    pub fn grow(&mut self, len: usize) -> Result<(), Refusal> {
        let wanted = len.div_ceil(FREE).saturating_sub(1);
        if wanted <= self.pieces {
            return Ok(());
        }
        let mut taken = locked(&self.taken);
        let more = wanted - self.pieces;
        let own = taken.by_one.get(&self.one).copied().unwrap_or_default();
        let left = taken.max.saturating_sub(taken.all);
        if own.saturating_add(more) > left.saturating_sub(more) {
            let message = "the server has too many large requests: come again";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        taken.all += more;
        *taken.by_one.entry(self.one).or_default() += more;
        self.pieces = wanted;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.pieces == 0 {
            return;
        }
        let mut taken = locked(&self.taken);
        taken.all = taken.all.saturating_sub(self.pieces);
        give_back(&mut taken.by_one, &self.one, self.pieces);
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

/// Lowers the priority of this thread below the threads that compute answers, if the system has priorities of threads.
pub(crate) fn yield_to_answers() {
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

    fn tenant(key: usize, last: u8) -> Tenant {
        Tenant { key, client: Client::of([10, 0, 0, last].into()) }
    }

    #[test]
    fn work_of_clients_that_left_keeps_its_permit() {
        let preparing = Arc::new(Preparing::new(1 << 20, Duration::from_millis(200), 0));
        runtime().block_on(async {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let ended = Arc::new(Mutex::new(ended));
            for index in 0..MAX_PREPARING {
                let permit = preparing.turn(tenant(0, index as u8 / 2), 10).await.expect("a permit");
                let ended = ended.clone();
                let work = async move { permit.work(move || Ok(ended.lock().map(|ended| ended.recv()).is_ok())).await };
                // The client leaves while the work continues.
                assert!(tokio::time::timeout(Duration::from_millis(50), work).await.is_err());
            }
            let refused = preparing.turn(tenant(0, 9), 10).await.expect_err("all permits are taken");
            assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
            drop(end);
            assert!(preparing.turn(tenant(0, 9), 10).await.is_ok());
        });
    }

    #[test]
    fn large_requests_are_prepared_one_at_a_time_and_small_ones_beside_them() {
        let preparing = Preparing::new(1 << 20, Duration::from_millis(100), 0);
        runtime().block_on(async {
            let large = preparing.turn(tenant(0, 1), MIN_LARGE).await.expect("a permit");
            assert!(preparing.turn(tenant(0, 1), MIN_LARGE).await.is_err());
            assert!(preparing.turn(tenant(0, 2), MIN_LARGE).await.is_err());
            for _ in 0..10 {
                assert!(preparing.turn(tenant(0, 1), MIN_LARGE - 1).await.is_ok());
            }
            drop(large);
            assert!(preparing.turn(tenant(0, 1), MIN_LARGE).await.is_ok());
        });
    }

    /// One client, or one key of several, has many requests; the first of another one waits for none of them.
    #[test]
    fn one_turn_is_left_for_others() {
        for (keys, own, others) in
            [(0, [tenant(0, 1), tenant(0, 1)], tenant(0, 2)), (2, [tenant(0, 1), tenant(0, 2)], tenant(1, 1))]
        {
            let preparing = Preparing::new(1 << 20, Duration::from_millis(50), keys);
            runtime().block_on(async {
                let mut held = Vec::new();
                for index in 0..MAX_OF_ONE {
                    held.push(preparing.turn(own[index % 2], 10).await.expect("a permit"));
                }
                assert!(preparing.turn(own[0], 10).await.is_err() && preparing.turn(own[1], 10).await.is_err());
                assert!(preparing.turn(others, 10).await.is_ok());
            });
        }
    }

    /// The turns of a client with many requests and of others alternate, in whatever order they come.
    #[test]
    fn turns_alternate_between_clients() {
        for many in [5, 31, 200] {
            let preparing = Arc::new(Preparing::new(1 << 20, Duration::from_mins(1), 0));
            let order = Arc::new(Mutex::new(Vec::new()));
            runtime().block_on(async {
                // All turns are taken, so that the others wait.
                let held: Vec<Permit> = {
                    let mut held = Vec::new();
                    for last in 100..100 + MAX_PREPARING {
                        held.push(preparing.turn(tenant(0, last as u8), 10).await.expect("a permit"));
                    }
                    held
                };
                let mut tasks = Vec::new();
                let clients = std::iter::repeat_n(1, many).chain([2, 3, 2, 3]);
                for client in clients {
                    let (preparing, order) = (preparing.clone(), order.clone());
                    tasks.push(tokio::spawn(async move {
                        let permit = preparing.turn(tenant(0, client), MIN_LARGE).await.expect("a permit");
                        locked(&order).push(client);
                        // Each takes about the same time.
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        drop(permit);
                    }));
                    tokio::task::yield_now().await;
                }
                while locked(&preparing.turns).waiting.len() < many + 4 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                drop(held);
                for task in tasks {
                    task.await.expect("it ends");
                }
            });
            let order = locked(&order);
            for client in [2, 3] {
                let places: Vec<usize> =
                    order.iter().enumerate().filter(|(_, other)| **other == client).map(|(place, _)| place).collect();
                // Its first is among the first of each, whatever the other one has.
                assert!(places[0] < 3 && places.len() == 2, "{many}: {order:?}");
            }
        }
    }

    #[test]
    fn requests_that_gave_up_are_forgotten() {
        let preparing = Preparing::new(1 << 20, Duration::from_millis(1), 0);
        runtime().block_on(async {
            let _held = preparing.turn(tenant(0, 1), MIN_LARGE).await.expect("a permit");
            for _ in 0..100 {
                assert!(preparing.turn(tenant(0, 2), MIN_LARGE).await.is_err());
            }
            assert!(locked(&preparing.turns).waiting.len() <= 1);
        });
    }

    #[test]
    fn bodies_have_room_for_sixteen_of_the_largest() {
        let preparing = Preparing::new(1 << 20, Duration::from_secs(1), 0);
        // One client has half of the room, the next one half of the rest, and so on.
        let mut rooms = Vec::new();
        let mut counts = Vec::new();
        for client in 1..=5 {
            let before = rooms.len();
            loop {
                let mut room = preparing.room(tenant(0, client));
                let grown = [10, FREE, 1 << 19, 1 << 20].iter().try_for_each(|len| room.grow(*len));
                if grown.is_err() {
                    break;
                }
                rooms.push(room);
            }
            counts.push(rooms.len() - before);
        }
        assert_eq!(counts[..3], [8, 4, 2], "{counts:?}");
        assert!(rooms.len() <= BODIES + 1, "{counts:?}");
        // The first `FREE` bytes of each connection take no room.
        assert!(preparing.room(tenant(0, 1)).grow(FREE).is_ok());
        assert!(preparing.room(tenant(0, 1)).grow(1 << 20).is_err());
        drop(rooms);
        assert!(preparing.room(tenant(0, 1)).grow(1 << 20).is_ok());
        assert!(locked(&preparing.room).by_one.is_empty());
    }
}
