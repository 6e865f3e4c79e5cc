//! Interrupts.

use super::{Result, free, guard, guard_or, hand_out};
use rushlight_bindings_common::Flag;

/// A flag that ends calls early. Threads: any number of them may set and clear it while others run calls with it; setting it is safe in
/// a signal handler.
pub struct rl_interrupt(Flag);

/// The flag of an interrupt, if there is one.
///
/// # Safety
/// `interrupt` is NULL or a live interrupt.
pub unsafe fn flag(interrupt: *const rl_interrupt) -> Option<Flag> {
    // SAFETY: as the caller promises.
    unsafe { interrupt.as_ref() }.map(|interrupt| interrupt.0.clone())
}

/// Makes an interrupt, which is not set. It may be freed while calls run with it: they continue then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_interrupt_new(interrupt: *mut *mut rl_interrupt) -> *mut super::rl_status {
    guard(|| {
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(interrupt, "interrupt", || Ok(rl_interrupt(Flag::default()))) }
    })
}

/// Sets the flag (`is_set` is true), so that calls with this interrupt end before their next step with `RL_INVALID_STATE`, or clears it.
/// It stays set until it is cleared. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_interrupt_set(interrupt: *mut rl_interrupt, is_set: bool) {
    guard_or((), || {
        // SAFETY: NULL or a live interrupt.
        let interrupt: Result<&rl_interrupt> = unsafe { super::reference(interrupt, "interrupt") };
        if let Ok(interrupt) = interrupt {
            interrupt.0.set(is_set);
        }
    })
}

/// Frees an interrupt. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_interrupt_free(interrupt: *mut rl_interrupt) {
    // SAFETY: NULL or an interrupt that the caller uses no more.
    unsafe { free(interrupt) }
}
