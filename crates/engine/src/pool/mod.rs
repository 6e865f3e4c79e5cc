//! Thread pool: persistent threads that share the tasks of one job at a time.
//!
//! A worker spins for about a millisecond after its last job, then parks. The caller participates and never waits for a
//! worker that has not started. Each thread starts with its own contiguous range of tasks and then steals from the
//! others. The threads are the system's, or those that the embedder lends (`lent.rs`). The synchronization protocol is in
//! [`gate`]. After a `fork`, the child has no workers; [`fork`] detects it, and the pool starts new ones there.
#![allow(unsafe_code)]

#[cfg(feature = "std")]
mod fork;
#[cfg(feature = "std")]
mod gate;
// Its test needs threads of the system.
#[cfg(all(
    feature = "std",
    any(all(test, not(target_family = "wasm")), all(target_os = "unknown", target_feature = "atomics"))
))]
#[cfg_attr(test, allow(dead_code, reason = "tests need no embedder that loses threads"))]
mod lent;
#[cfg(all(feature = "std", not(all(target_os = "unknown", target_feature = "atomics"))))]
mod system;

#[cfg(feature = "std")]
pub use fork::fork_generation;
#[cfg(all(feature = "std", target_os = "unknown", target_feature = "atomics"))]
pub use lent::{LentThread, lose_lent_thread};

#[cfg(feature = "std")]
pub use threaded::Pool;

#[cfg(not(feature = "std"))]
pub use inline::Pool;

/// Maximum threads of a pool: each has a stack and scratch memory.
pub const MAX_THREADS: usize = 1024;

#[cfg(not(feature = "std"))]
mod inline {
    /// The calling thread alone: without `std` there are no threads.
    #[derive(Debug)]
    pub struct Pool(());

    impl Pool {
        pub fn new(_threads: usize) -> Self {
            Self(())
        }

        pub fn threads(&self) -> usize {
            1
        }

        /// Runs `task(0)` to `task(tasks - 1)`.
        pub fn run(&self, tasks: usize, task: impl Fn(usize) + Sync) {
            (0..tasks).for_each(task);
        }

        /// Runs `task(0, 0)` to `task(0, tasks - 1)`.
        #[expect(clippy::unused_self, reason = "the signature is that of the pool with threads")]
        pub(crate) fn run_with_slot(&self, tasks: usize, task: impl Fn(usize, usize) + Sync) {
            (0..tasks).for_each(|index| task(0, index));
        }
    }
}

#[cfg(feature = "std")]
mod threaded {
    use std::cell::UnsafeCell;
    use std::fmt;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::ptr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
    use std::thread;

    use super::MAX_THREADS;
    use super::fork::fork_generation;
    use super::gate::{Gate, Sleep};
    #[cfg(all(target_os = "unknown", target_feature = "atomics"))]
    use super::lent::{Patience, Worker, check_lost};
    #[cfg(not(all(target_os = "unknown", target_feature = "atomics")))]
    use super::system::{Patience, Worker, check_lost};

    /// A thread pool.
    pub struct Pool {
        shared: Arc<Shared>,
        workers: Vec<Worker>,
        /// Fork generation of the process that has the workers.
        generation: usize,
        /// The pool for a child of that process, or null before its first job; owned.
        in_child: AtomicPtr<Pool>,
    }

    /// State that the caller and the workers share.
    struct Shared {
        /// Set while a job runs.
        busy: AtomicBool,
        gate: Gate,
        job: UnsafeCell<Job>,
        /// For each thread, the next task of its range that nobody has taken.
        next: Box<[Next]>,
        panicked: AtomicBool,
        stop: AtomicBool,
        sleeps: Box<[Sleep]>,
    }

    /// Index of a task, padded to a cache line.
    #[repr(align(64))]
    struct Next(AtomicUsize);

    // SAFETY: `job` is written only by the thread that set `busy`, while the gate is closed and empty, and read only by
    // those who entered the gate. Everything else is atomic.
    unsafe impl Sync for Shared {}
    // SAFETY: the pointers of `job` are used only while the gate is open, when the closure that they point to lives.
    unsafe impl Send for Shared {}

    /// A type-erased closure without its lifetime: `call(closure, slot, task)`.
    #[derive(Clone, Copy)]
    struct Job {
        closure: *const (),
        call: unsafe fn(*const (), usize, usize),
        tasks: usize,
    }

    /// The job of a pool that has had none.
    unsafe fn nothing(_: *const (), _: usize, _: usize) {}

    /// Calls a closure of type `F`.
    unsafe fn call<F: Fn(usize, usize) + Sync>(closure: *const (), slot: usize, task: usize) {
        // SAFETY: `closure` was made from an `&F` that outlives the job, and `F` is `Sync`.
        let closure = unsafe { &*closure.cast::<F>() };
        closure(slot, task);
    }

    impl Pool {
        /// Starts a pool of `threads` threads including the caller, at most [`MAX_THREADS`]. 0 and 1 start no thread.
        /// If the system refuses to create a thread, or none is lent, there are fewer.
        pub fn new(threads: usize) -> Self {
            let wanted = threads.clamp(1, MAX_THREADS) - 1;
            let generation = fork_generation();
            let shared = Arc::new(Shared {
                busy: AtomicBool::new(false),
                gate: Gate::new(),
                job: UnsafeCell::new(Job { closure: ptr::null(), call: nothing, tasks: 0 }),
                next: (0..=wanted).map(|_| Next(AtomicUsize::new(0))).collect(),
                panicked: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                sleeps: (0..wanted).map(|_| Sleep::new()).collect(),
            });
            let start = |index: usize| {
                let shared = Arc::clone(&shared);
                Worker::start(index, move || shared.work(index))
            };
            let workers = (0..wanted).map_while(start).collect();
            Self { shared, workers, generation, in_child: AtomicPtr::new(ptr::null_mut()) }
        }

        /// Returns true if the workers belong to a process that this one was forked from.
        fn is_foreign(&self) -> bool {
            self.generation != fork_generation()
        }

        /// Returns the pool for a forked child process, with at most as many threads. Reads nothing of this pool's
        /// shared state, which a fork may leave in any condition.
        #[cold]
        fn in_child(&self) -> &Self {
            let mut pool = self.in_child.load(Ordering::Acquire);
            if pool.is_null() {
                let made = Box::into_raw(Box::new(Self::new(self.threads())));
                match self.in_child.compare_exchange(pool, made, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => pool = made,
                    Err(other) => {
                        // SAFETY: `made` was just made by `Box::into_raw`, and nobody else has it.
                        drop(unsafe { Box::from_raw(made) });
                        pool = other;
                    }
                }
            }
            // SAFETY: `in_child` is set once, from a box that lives until `self` is dropped.
            unsafe { &*pool }
        }

        /// Number of threads, including the caller.
        pub fn threads(&self) -> usize {
            self.workers.len() + 1
        }

        /// Runs `task(0)` to `task(tasks - 1)`, each once, on whichever thread is free, and returns when all have
        /// finished.
        ///
        /// Does not allocate or lock. If the pool is busy, because another thread or a task runs a job on it, the
        /// calling thread runs all tasks itself.
        ///
        /// # Panics
        /// If a task panics.
        pub fn run(&self, tasks: usize, task: impl Fn(usize) + Sync) {
            self.run_with_slot(tasks, |_, index| task(index));
        }

        /// Like [`run`](Self::run); passes `task` a slot number below [`threads`](Self::threads) as well, which no two
        /// tasks have at the same time.
        pub(crate) fn run_with_slot<F: Fn(usize, usize) + Sync>(&self, tasks: usize, task: F) {
            let alone = tasks <= 1 || self.workers.is_empty();
            if !alone && self.is_foreign() {
                return self.in_child().run_with_slot(tasks, task);
            }
            if alone || self.shared.busy.swap(true, Ordering::Acquire) {
                // The slots are not shared: the other job has its own scratch memory.
                (0..tasks).for_each(|index| task(0, index));
                return;
            }
            let job = Job { closure: ptr::from_ref(&task).cast(), call: call::<F>, tasks };
            // SAFETY: this thread set `busy`, and the gate is closed and empty: whoever set `busy` before cleared it
            // after that.
            unsafe { *self.shared.job.get() = job };
            for (slot, next) in self.shared.next.iter().enumerate() {
                next.0.store(self.shared.part(tasks, slot), Ordering::Relaxed);
            }
            self.shared.gate.open();
            for (worker, sleep) in self.workers.iter().zip(&self.shared.sleeps).take(tasks - 1) {
                if sleep.must_be_woken() {
                    worker.unpark();
                }
            }
            let own = catch_unwind(AssertUnwindSafe(|| self.shared.take_tasks(job, 0)));
            self.shared.gate.close();
            let mut spins = 0u32;
            while !self.shared.gate.is_empty() {
                spins += 1;
                if spins.is_multiple_of(1 << 12) {
                    check_lost();
                    thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            let panicked = self.shared.panicked.swap(false, Ordering::Relaxed);
            self.shared.busy.store(false, Ordering::Release);
            if let Err(payload) = own {
                resume_unwind(payload);
            }
            assert!(!panicked, "a task panicked in another thread");
        }
    }

    impl Shared {
        /// Main loop of a worker.
        fn work(&self, index: usize) {
            let mut last = 0;
            loop {
                let Some(number) = self.wait(index, last) else { return };
                last = number;
                // SAFETY: this thread is inside the gate, so nobody writes the job.
                let job = unsafe { *self.job.get() };
                if catch_unwind(AssertUnwindSafe(|| self.take_tasks(job, index + 1))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                self.gate.leave();
            }
        }

        /// Waits for a job other than `last` and enters it; `None` if the pool is being dropped.
        fn wait(&self, index: usize, last: u32) -> Option<u32> {
            let mut patience = Patience::default();
            let mut spins = 0u32;
            loop {
                if let Some(number) = self.gate.enter(last) {
                    return Some(number);
                }
                if self.stop.load(Ordering::Relaxed) {
                    return None;
                }
                spins = spins.wrapping_add(1);
                if !spins.is_multiple_of(64) {
                    std::hint::spin_loop();
                    continue;
                }
                if !patience.is_over() {
                    continue;
                }
                let sleep = &self.sleeps[index];
                if sleep.announce(&self.gate) && !self.stop.load(Ordering::Relaxed) {
                    thread::park();
                }
                sleep.end();
                patience = Patience::default();
            }
        }

        /// Start of a thread's range: contiguous tasks, the same in every job of this size, so that data stays in the
        /// caches of one core.
        fn part(&self, tasks: usize, slot: usize) -> usize {
            let threads = self.next.len();
            tasks / threads * slot + (tasks % threads).min(slot)
        }

        /// Runs the tasks of the thread's own range, then steals from the others.
        fn take_tasks(&self, job: Job, slot: usize) {
            let threads = self.next.len();
            for part in (slot..threads).chain(0..slot) {
                let end = self.part(job.tasks, part + 1);
                loop {
                    let task = self.next[part].0.fetch_add(1, Ordering::Relaxed);
                    if task >= end {
                        break;
                    }
                    // SAFETY: this thread is the one that made the job or is inside its gate; `run_with_slot` returns,
                    // and the closure dies, only after the gate is closed and empty.
                    unsafe { (job.call)(job.closure, slot, task) };
                }
            }
        }
    }

    impl Drop for Pool {
        fn drop(&mut self) {
            let in_child = *self.in_child.get_mut();
            if !in_child.is_null() {
                // SAFETY: it was made by `Box::into_raw`, and nobody uses it any more.
                drop(unsafe { Box::from_raw(in_child) });
            }
            if self.is_foreign() {
                // These threads do not exist in this process: they can be neither joined nor detached.
                self.workers.drain(..).for_each(std::mem::forget);
                return;
            }
            self.shared.stop.store(true, Ordering::SeqCst);
            for worker in &self.workers {
                worker.unpark();
            }
            for worker in self.workers.drain(..) {
                worker.join();
            }
        }
    }

    impl fmt::Debug for Pool {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Pool").field("threads", &self.threads()).finish()
        }
    }
}
