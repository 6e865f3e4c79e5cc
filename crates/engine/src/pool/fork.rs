//! Detection of `fork`, whose child has only the thread that forked.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Number of forks since the handler was registered.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of forks between this process and the one that first called this. Objects of another generation
/// may refer to threads that this process does not have, and to locks that they hold.
///
/// Costs one load after the first call. On systems without `fork` it is always 0.
pub fn fork_generation() -> usize {
    watch();
    GENERATION.load(Ordering::Relaxed)
}

#[cfg(all(unix, not(miri)))]
fn watch() {
    use core::ffi::c_int;
    use core::sync::atomic::AtomicBool;

    static IS_WATCHED: AtomicBool = AtomicBool::new(false);

    unsafe extern "C" {
        fn pthread_atfork(
            prepare: Option<unsafe extern "C" fn()>,
            parent: Option<unsafe extern "C" fn()>,
            child: Option<unsafe extern "C" fn()>,
        ) -> c_int;
    }

    unsafe extern "C" fn forked() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }

    if !IS_WATCHED.load(Ordering::Relaxed) && !IS_WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: a function of POSIX, with its signature; the handler lives as long as the process and only adds to an
        // atomic number. If it fails for lack of memory, forks are not detected, as before this call.
        unsafe { pthread_atfork(None, None, Some(forked)) };
    }
}

#[cfg(not(all(unix, not(miri))))]
fn watch() {}
