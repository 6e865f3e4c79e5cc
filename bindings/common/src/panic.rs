//! Stops panics in a binding, before they reach another language.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rushlight::Error;

/// Runs the body of a function that another language calls. A panic becomes an error with the code `Internal`, which `of_panic` turns into
/// the binding's error.
///
/// # Errors
/// The errors of the body.
pub fn caught<T, E>(body: impl FnOnce() -> Result<T, E>, of_panic: impl FnOnce(Error) -> E) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let error = rushlight::panic_error(&*panic);
        // Dropping the payload may panic, too.
        std::mem::forget(panic);
        Err(of_panic(error))
    })
}

/// Runs the body of a function that cannot fail, such as a destructor. After a panic, it returns `otherwise`; the standard hook prints
/// the panic.
pub fn ending_panics<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        std::mem::forget(panic);
        otherwise
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("at its end")
        }
    }

    #[test]
    fn panics_end_here_and_so_do_those_of_their_payloads() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let caught: [Result<(), Error>; 2] =
            [caught(|| panic!("number {}", 7), |error| error), caught(|| std::panic::panic_any(Bomb), |error| error)];
        let code = ending_panics(7, || std::panic::panic_any(Bomb));
        std::panic::set_hook(hook);
        let [number, bomb] = caught.map(Result::unwrap_err);
        assert!(number.message().ends_with("number 7") && bomb.message().ends_with("it panicked"));
        assert_eq!((code, ending_panics(7, || 8)), (7, 8));
    }
}
