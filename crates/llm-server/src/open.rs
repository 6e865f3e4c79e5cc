//! Open connections: the client and the state of each, and the choice of the one that gives way at the limit.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Time that a connection may wait for its client before it gives way to others.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of connections of one client that wait for room; more are closed.
const MAX_ENTERING: usize = 16;

/// The client of a connection: an IPv4 address, or a /64 network of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Default for Client {
    fn default() -> Self {
        Self(Ipv6Addr::UNSPECIFIED.into())
    }
}

impl Client {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// It waits for the head of a request.
    Waits,
    /// A request has begun to arrive.
    Receives,
    /// A request has arrived, and its answer is made or sent.
    Answers,
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    open: Mutex<HashMap<u64, Entry>>,
    /// Number of connections of each client for which there is no room yet.
    entering: Mutex<HashMap<Client, usize>>,
    closed: Notify,
}

/// A connection that waits for room.
#[derive(Debug)]
pub(crate) struct Entering {
    client: Client,
    all: Arc<Connections>,
}

#[derive(Debug)]
struct Entry {
    client: Client,
    state: State,
    since: Instant,
    /// Wakes the connection to be closed.
    gives_way: Arc<Notify>,
    /// True once it was told to.
    is_leaving: bool,
}

/// An open connection. It is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    all: Arc<Connections>,
    gives_way: Arc<Notify>,
}

impl Connections {
    /// A table for at most `max` connections.
    pub fn new(max: usize) -> Arc<Self> {
        let (open, entering) = (Mutex::default(), Mutex::default());
        Arc::new(Self { max: max.max(1), open, entering, closed: Notify::new() })
    }

    /// Returns an open connection if there is room for it, and none waits for room.
    pub fn enter_now(self: &Arc<Self>, client: Client, number: u64) -> Option<Connection> {
        if self.entering().is_empty() { self.enter(&mut self.open(), client, number) } else { None }
    }

    /// Opens a connection if there is room.
    fn enter(self: &Arc<Self>, open: &mut HashMap<u64, Entry>, client: Client, number: u64) -> Option<Connection> {
        if open.len() >= self.max {
            return None;
        }
        let gives_way = Arc::new(Notify::new());
        let (state, since) = (State::Waits, Instant::now());
        let entry = Entry { client, state, since, gives_way: gives_way.clone(), is_leaving: false };
        open.insert(number, entry);
        Some(Connection { number, all: self.clone(), gives_way })
    }

    /// Returns a place among the connections that wait for room; `None` if too many of this client wait.
    pub fn arrive(self: &Arc<Self>, client: Client) -> Option<Entering> {
        let mut entering = self.entering();
        let count = entering.entry(client).or_default();
        if *count >= MAX_ENTERING {
            return None;
        }
        *count += 1;
        Some(Entering { client, all: self.clone() })
    }

    fn entering(&self) -> MutexGuard<'_, HashMap<Client, usize>> {
        self.entering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until none is open.
    pub async fn all_closed(&self) {
        loop {
            let closed = self.closed.notified();
            if self.open().is_empty() {
                return;
            }
            closed.await;
        }
    }
}

impl Entering {
    /// Waits until there is room for the connection. At the limit, another one gives way: one that has waited for its client for
    /// [`GRACE`], or one of a client with several more connections.
    pub async fn enter(self, number: u64) -> Connection {
        let Self { client, all } = &self;
        loop {
            let closed = all.closed.notified();
            {
                let mut open = all.open();
                if let Some(connection) = all.enter(&mut open, *client, number) {
                    return connection;
                }
                // One at a time makes room for one.
                if !open.values().any(|entry| entry.is_leaving)
                    && let Some(leaves) = surplus(&open, *client, Instant::now())
                    && let Some(entry) = open.get_mut(&leaves)
                {
                    entry.is_leaving = true;
                    entry.gives_way.notify_one();
                }
            }
            // Others reach the age at which they give way.
            let _ = tokio::time::timeout(GRACE / 10, closed).await;
        }
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        let mut entering = self.all.entering();
        if let Some(count) = entering.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                entering.remove(&self.client);
            }
        }
    }
}

/// The connection that gives way to one of `newcomer`.
fn surplus(open: &HashMap<u64, Entry>, newcomer: Client, now: Instant) -> Option<u64> {
    let mut counts: HashMap<Client, usize> = HashMap::new();
    open.values().for_each(|entry| *counts.entry(entry.client).or_default() += 1);
    let count = |client: &Client| counts.get(client).copied().unwrap_or(0);
    let most = open.values().map(|entry| count(&entry.client)).max()?;
    let of_largest = open.iter().filter(|(_, entry)| count(&entry.client) == most);
    let is_unfair = most > count(&newcomer) + 1;
    let waits = |entry: &Entry| entry.state < State::Answers && now.duration_since(entry.since) >= GRACE;
    let waiting = open.iter().filter(|(_, entry)| waits(entry));
    let oldest = waiting.min_by_key(|(_, entry)| (usize::MAX - count(&entry.client), entry.state, entry.since));
    let unfair = || of_largest.filter(|_| is_unfair).min_by_key(|(_, entry)| (entry.state, entry.since));
    oldest.or_else(unfair).map(|(number, _)| *number)
}

impl Connection {
    /// Returns the handle through which a request reports its progress.
    pub fn activity(&self) -> Activity {
        Activity { number: self.number, all: self.all.clone() }
    }

    /// Ends when the connection is to give way.
    pub async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.open().remove(&self.number);
        self.all.closed.notify_waiters();
    }
}

/// Records the progress of a connection's requests.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    number: u64,
    all: Arc<Connections>,
}

/// A request in the making. The connection waits for the next when it is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Activity);

impl Activity {
    fn is(&self, state: State) {
        if let Some(entry) = self.all.open().get_mut(&self.number) {
            (entry.state, entry.since) = (state, Instant::now());
        }
    }

    /// A request has begun.
    pub fn begin(&self) -> Busy {
        self.is(State::Receives);
        Busy(self.clone())
    }

    /// A request has arrived as a whole.
    pub fn received(&self) {
        self.is(State::Answers);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is(State::Waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(client: u8, state: State, age: u64, now: Instant) -> Entry {
        let since = now.checked_sub(Duration::from_millis(age)).unwrap_or(now);
        Entry { client: of(client), state, since, gives_way: Arc::default(), is_leaving: false }
    }

    fn of(last: u8) -> Client {
        Client::of([10, 0, 0, last].into())
    }

    #[test]
    fn who_waits_longest_or_has_most_gives_way() {
        let now = Instant::now() + Duration::from_mins(1);
        let table = |entries: &[(u8, State, u64)]| -> HashMap<u64, Entry> {
            let numbered = (0..).zip(entries);
            numbered.map(|(number, (client, state, age))| (number, entry(*client, *state, *age, now))).collect()
        };
        // Among the waiting connections of the client with most connections, the one that has waited longest.
        let open = table(&[
            (1, State::Waits, 9000),
            (2, State::Waits, 2000),
            (2, State::Waits, 3000),
            (2, State::Answers, 9000),
        ]);
        assert_eq!(surplus(&open, of(3), now), Some(2));
        assert_eq!(surplus(&open, of(2), now), Some(2));
        // None of those that have just come, unless their client has several more.
        let open = table(&[(2, State::Waits, 10), (2, State::Receives, 500), (2, State::Answers, 9000)]);
        assert_eq!(surplus(&open, of(3), now), Some(0));
        assert_eq!(surplus(&open, of(2), now), None);
        // Answers give way to other clients alone.
        let open = table(&[(2, State::Answers, 10), (2, State::Answers, 20), (1, State::Answers, 90)]);
        assert_eq!(surplus(&open, of(3), now), Some(1));
        assert_eq!(surplus(&open, of(2), now), None);
        assert_eq!(surplus(&open, of(1), now), None);
    }

    /// Connections that come at once are opened as far as there is room, before any that wait.
    #[test]
    fn connections_do_not_wait_while_there_is_room() {
        let all = Connections::new(40);
        let mut open: Vec<Connection> = (0..40).filter_map(|number| all.enter_now(of(1), number)).collect();
        assert_eq!(open.len(), 40);
        assert!(all.enter_now(of(1), 40).is_none());
        let entering: Vec<_> = (0..20).filter_map(|_| all.arrive(of(1))).collect();
        assert_eq!(entering.len(), MAX_ENTERING);
        // Nobody overtakes those that wait.
        open.pop();
        assert!(all.enter_now(of(2), 41).is_none());
        drop(entering);
        assert!(all.enter_now(of(2), 41).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let client = |text: &str| Client::of(text.parse().expect("an address"));
        assert_eq!(client("2001:db8:1:2::3"), client("2001:db8:1:2:ffff::4"));
        assert_ne!(client("2001:db8:1:2::3"), client("2001:db8:1:3::3"));
        assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
        assert_ne!(client("10.0.0.1"), client("10.0.0.2"));
    }
}
