//! Parallel map over owned items.

use std::sync::{Mutex, PoisonError};

use crate::Engine;

/// Returns the result of `work` for each item, in the order of the items. At most `threads` threads, including the
/// caller, take items one by one; if the system creates fewer, these do all of the work.
///
/// # Panics
/// If `work` panics.
pub fn parallel_map<T: Send, R: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let waiting = Mutex::new(items.into_iter().enumerate());
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some((index, item)) = take() {
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            drop(std::thread::Builder::new().spawn_scoped(scope, run));
        }
        run();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs `work` on each item, on the threads of an engine. Their caches may still hold the results of its last kernel.
pub fn on_threads_of<T: Send>(engine: &Engine, items: Vec<T>, work: impl Fn(T) + Sync) {
    let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    engine.pool().run(items.len(), |index| {
        let item = items[index].lock().unwrap_or_else(PoisonError::into_inner).take();
        item.into_iter().for_each(&work);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_with_any_number_of_threads() {
        for threads in [0, 1, 2, 5, 200] {
            let squares = parallel_map((0..100).collect(), threads, |x: u32| x * x);
            assert!(squares.into_iter().eq((0..100).map(|x| x * x)), "{threads}");
        }
        assert!(parallel_map(Vec::<u32>::new(), 2, |x| x).is_empty());
    }
}
