//! The queue of jobs between the threads that serve and the thread that owns the model. It has a line for each tenant.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::error::Refusal;
use crate::fair::{Held, Tenant};

/// A job that can wait in a queue.
pub(crate) trait Waits {
    fn tenant(&self) -> Tenant;

    /// True if nobody waits for the job any more, or it has waited for too long.
    fn is_over(&self, now: Instant) -> bool;

    /// Ends a job that has not begun.
    fn refuse(self, refusal: Refusal);
}

/// Makes a queue for at most `max` jobs.
pub(crate) fn queue<J: Waits>(max: usize) -> (Sender<J>, Receiver<J>) {
    let lines = Lines { waiting: HashMap::new(), len: 0, count: 0, is_open: true };
    let queue =
        Arc::new(Queue { max: max.max(1), lines: Mutex::new(lines), came: Condvar::new(), went: Notify::new() });
    (Sender(queue.clone()), Receiver(queue))
}

struct Queue<J> {
    max: usize,
    lines: Mutex<Lines<J>>,
    /// A job came, or there will be no more.
    came: Condvar,
    /// A job went, or none will be taken any more.
    went: Notify,
}

struct Lines<J> {
    /// Jobs with their numbers in the order of arrival. No line is empty.
    waiting: HashMap<Tenant, VecDeque<(u64, J)>>,
    /// Number of jobs in all lines.
    len: usize,
    /// Number of jobs that came so far.
    count: u64,
    /// False once the other end is gone.
    is_open: bool,
}

impl<J> Queue<J> {
    fn lines(&self) -> MutexGuard<'_, Lines<J>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Waits> Lines<J> {
    /// Takes a job out of the line of a tenant, from the end that `pop` takes it from.
    fn take(&mut self, tenant: Tenant, pop: impl FnOnce(&mut VecDeque<(u64, J)>) -> Option<(u64, J)>) -> Option<J> {
        let line = self.waiting.get_mut(&tenant)?;
        let (_, job) = pop(line)?;
        self.len -= 1;
        if line.is_empty() {
            self.waiting.remove(&tenant);
        }
        Some(job)
    }

    /// Removes the jobs that are over.
    fn remove_over(&mut self) -> Vec<J> {
        let now = Instant::now();
        let mut over = Vec::new();
        for line in self.waiting.values_mut() {
            if line.iter().any(|(_, job)| job.is_over(now)) {
                let (gone, waits): (VecDeque<_>, _) = line.drain(..).partition(|(_, job)| job.is_over(now));
                *line = waits;
                over.extend(gone.into_iter().map(|(_, job)| job));
            }
        }
        self.waiting.retain(|_, line| !line.is_empty());
        self.len -= over.len();
        over
    }

    /// Makes room for a newcomer. The job that came last goes, of the tenant with most jobs, if that one has at least two more.
    fn displace(&mut self, newcomer: Tenant) -> Option<J> {
        let jobs = self.waiting.iter().flat_map(|(tenant, line)| std::iter::repeat_n(*tenant, line.len()));
        let held: Held = jobs.collect();
        let lines = self.waiting.iter().filter(|(tenant, _)| held.exceeds(**tenant, newcomer));
        let last = |line: &VecDeque<(u64, J)>| line.back().map(|(number, _)| *number);
        let most = lines.map(|(tenant, line)| ((held.excess(*tenant), last(line)), *tenant));
        let (_, tenant) = most.max_by(|(a, _), (b, _)| a.cmp(b))?;
        self.take(tenant, VecDeque::pop_back)
    }
}

/// The end of a queue that takes jobs. The queue is closed when it is dropped.
pub(crate) struct Sender<J: Waits>(Arc<Queue<J>>);

/// Why a job was not queued.
#[derive(Debug)]
pub(crate) enum Full {
    /// There is no room.
    Full,
    /// The thread of the model has ended.
    Closed,
}

impl From<Full> for Refusal {
    fn from(full: Full) -> Self {
        match full {
            Full::Full => Self::queue_is_full(),
            Full::Closed => Self::stopped(),
        }
    }
}

impl<J: Waits> Sender<J> {
    /// True if the thread of the model has ended.
    pub fn is_closed(&self) -> bool {
        !self.0.lines().is_open
    }

    /// Puts a job into the line of its tenant. If the queue is full, jobs that are over give way, and then one of a tenant that
    /// has more. Returns the numbers of both; a job that is not queued comes back.
    pub fn send(&self, job: J) -> Result<Gone, (Full, J)> {
        let tenant = job.tenant();
        let mut lines = self.0.lines();
        if !lines.is_open {
            return Err((Full::Closed, job));
        }
        let is_full = |lines: &Lines<J>| lines.len >= self.0.max;
        let over = if is_full(&lines) { lines.remove_over() } else { Vec::new() };
        let refused = if is_full(&lines) { lines.displace(tenant) } else { None };
        if is_full(&lines) {
            return Err((Full::Full, job));
        }
        lines.count += 1;
        lines.len += 1;
        let number = lines.count;
        lines.waiting.entry(tenant).or_default().push_back((number, job));
        drop(lines);
        self.0.came.notify_one();
        let gone = Gone { over: over.len(), refused: usize::from(refused.is_some()) };
        over.into_iter().for_each(|job| job.refuse(Refusal::timeout()));
        if let Some(job) = refused {
            job.refuse(Refusal::queue_is_full());
        }
        Ok(gone)
    }

    /// Ends when jobs have gone since the call.
    pub fn gone(&self) -> impl Future<Output = ()> + '_ {
        self.0.went.notified()
    }
}

/// Numbers of jobs that gave way to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Those for which nobody waited any more, or that had waited for too long.
    pub over: usize,
    pub refused: usize,
}

impl<J: Waits> Drop for Sender<J> {
    fn drop(&mut self) {
        self.0.lines().is_open = false;
        self.0.came.notify_all();
    }
}

/// The end of a queue that jobs are taken from.
pub(crate) struct Receiver<J: Waits>(Arc<Queue<J>>);

impl<J: Waits> Receiver<J> {
    /// Waits for a job. False if there is none and will be none.
    pub fn wait(&self) -> bool {
        let mut lines = self.0.lines();
        while lines.len == 0 && lines.is_open {
            lines = self.0.came.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
        lines.len > 0
    }

    /// Tenants with jobs, in the order in which their first jobs came.
    pub fn tenants(&self) -> Vec<Tenant> {
        let lines = self.0.lines();
        if lines.len == 0 {
            return Vec::new();
        }
        let first = |line: &VecDeque<(u64, J)>| line.front().map(|(number, _)| *number);
        let mut tenants: Vec<_> = lines.waiting.iter().map(|(tenant, line)| (first(line), *tenant)).collect();
        drop(lines);
        tenants.sort_unstable_by_key(|(number, _)| *number);
        tenants.into_iter().map(|(_, tenant)| tenant).collect()
    }

    /// Takes the first job of a tenant.
    pub fn take(&self, tenant: Tenant) -> Option<J> {
        let job = self.0.lines().take(tenant, VecDeque::pop_front);
        self.0.went.notify_waiters();
        job
    }

    /// Ends the jobs for which nobody waits, and those that have waited for too long. Returns their number.
    pub fn remove_over(&self) -> usize {
        let mut lines = self.0.lines();
        if lines.len == 0 {
            return 0;
        }
        let over = lines.remove_over();
        drop(lines);
        if !over.is_empty() {
            self.0.went.notify_waiters();
        }
        let count = over.len();
        over.into_iter().for_each(|job| job.refuse(Refusal::timeout()));
        count
    }
}

impl<J: Waits> Drop for Receiver<J> {
    fn drop(&mut self) {
        let mut lines = self.0.lines();
        lines.is_open = false;
        let waiting = std::mem::take(&mut lines.waiting);
        lines.len = 0;
        drop(lines);
        self.0.went.notify_waiters();
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::open::Client;

    #[derive(Debug)]
    struct Job {
        tenant: Tenant,
        number: usize,
        is_over: bool,
        refused: Arc<AtomicUsize>,
    }

    impl Waits for Job {
        fn tenant(&self) -> Tenant {
            self.tenant
        }

        fn is_over(&self, _: Instant) -> bool {
            self.is_over
        }

        fn refuse(self, _: Refusal) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn tenant(key: usize, client: u8) -> Tenant {
        Tenant { key, client: Client::of([10, 0, 0, client].into()) }
    }

    /// For any requests the queue keeps its size, each tenant its order, and no tenant has room that another one with fewer lacks.
    #[test]
    fn tenants_share_the_queue() {
        for seed in 0..300u64 {
            let mut state = seed;
            let mut below = |bound: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % bound
            };
            let max = 1 + below(20) as usize;
            let (sender, receiver) = queue::<Job>(max);
            let refused = Arc::new(AtomicUsize::new(0));
            let (mut sent, mut taken, mut full, mut over) = (0, 0, 0, 0);
            let mut last: HashMap<Tenant, usize> = HashMap::new();
            for number in 0..300 {
                // One client sends most of them.
                let tenant = if below(3) > 0 { tenant(0, 0) } else { tenant(below(2) as usize, below(3) as u8) };
                let job = Job { tenant, number, is_over: below(20) == 0, refused: refused.clone() };
                match sender.send(job) {
                    Ok(gone) => {
                        sent += 1;
                        over += gone.over;
                        assert!(gone.over == 0 || gone.refused == 0);
                    }
                    Err((Full::Full, job)) => {
                        full += 1;
                        let lines = sender.0.lines();
                        let held: Held =
                            lines.waiting.iter().flat_map(|(of, line)| std::iter::repeat_n(*of, line.len())).collect();
                        assert!(lines.waiting.keys().all(|holder| !held.exceeds(*holder, job.tenant)));
                    }
                    Err((Full::Closed, _)) => panic!("it is open"),
                }
                let lines = sender.0.lines();
                assert!(lines.len <= max);
                assert_eq!(lines.len, lines.waiting.values().map(VecDeque::len).sum::<usize>());
                assert!(lines.waiting.values().all(|line| !line.is_empty()));
                drop(lines);
                if below(3) == 0
                    && let Some(tenant) = receiver.tenants().first()
                {
                    let job = receiver.take(*tenant).expect("its line has a job");
                    taken += 1;
                    assert!(last.insert(*tenant, job.number).is_none_or(|before| before < job.number));
                }
            }
            over += receiver.remove_over();
            let waiting = sender.0.lines().len;
            let displaced = refused.load(Ordering::Relaxed) - over;
            assert_eq!(sent, taken + over + displaced + waiting, "seed {seed}");
            assert_eq!(sent + full, 300);
        }
    }

    /// A client fills the queue. Another one is still accepted, and the first one loses its last request.
    #[test]
    fn a_client_with_many_jobs_gives_way() {
        let (sender, receiver) = queue::<Job>(64);
        let refused = Arc::new(AtomicUsize::new(0));
        let job = |tenant: Tenant, number: usize| Job { tenant, number, is_over: false, refused: refused.clone() };
        for number in 0..64 {
            assert!(sender.send(job(tenant(0, 1), number)).is_ok());
        }
        assert!(sender.send(job(tenant(0, 1), 64)).is_err());
        for number in 0..32 {
            assert!(sender.send(job(tenant(0, 2), number)).is_ok());
        }
        assert!(sender.send(job(tenant(0, 2), 32)).is_err());
        assert_eq!(refused.load(Ordering::Relaxed), 32);
        let numbers = std::iter::from_fn(|| receiver.take(tenant(0, 1))).map(|job| job.number);
        assert_eq!(numbers.collect::<Vec<_>>(), (0..32).collect::<Vec<_>>());
    }

    #[test]
    fn both_ends_hear_of_each_other() {
        let (sender, receiver) = queue::<Job>(4);
        let waiting = std::thread::spawn(move || (receiver.wait(), receiver.wait()));
        std::thread::sleep(Duration::from_millis(20));
        let refused = Arc::new(AtomicUsize::new(0));
        sender.send(Job { tenant: tenant(0, 1), number: 0, is_over: false, refused }).expect("there is room");
        // The second call finds it still there.
        assert_eq!(waiting.join().expect("it ends"), (true, true));
        assert!(sender.is_closed());
        let (sender, receiver) = queue::<Job>(4);
        let waiting = std::thread::spawn(move || receiver.wait());
        drop(sender);
        assert!(!waiting.join().expect("it ends"));
    }
}
