//! Panics in functions that C calls and that cannot fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a function that C calls and that cannot fail, such as a destructor. A panic, whose line the standard hook prints, ends here.
pub fn ending_panics(body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        // Its end may panic, too.
        std::mem::forget(panic);
    }
}
