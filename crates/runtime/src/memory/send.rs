//! Memory and parts of methods that move between threads.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;

/// Memory of the caller's that a method may write to. Inputs are passed by shared references, which would make a
/// mutable reference read-only.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    bytes: NonNull<[u8]>,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Lent<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes: NonNull::from(bytes), lent: PhantomData }
    }

    /// Start of the memory to write.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes.cast()
    }

    /// The bytes as they are now. Nobody writes them before an execution begins, and the result is no longer in use
    /// then.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: made of a reference that is borrowed for 'a.
        unsafe { self.bytes.as_ref() }
    }
}

// SAFETY: as the mutable reference that it was made of.
unsafe impl Send for Lent<'_> {}
// SAFETY: as above: shared, it only reads; executions write, and borrow the method exclusively meanwhile.
unsafe impl Sync for Lent<'_> {}

/// Lets the parts of a method move between threads together. They refer to each other through cells and pointers.
pub(crate) struct Confined<T>(pub(crate) T);

// SAFETY: used for the loaded parts of one `Method` alone. Cells and pointers in them lead to each other, to memory that
// the method borrows exclusively or owns, to constants that nobody writes, and to shared arenas behind their busy flag;
// delegates are `Send`. All access goes through the method, exclusively to execute.
unsafe impl<T> Send for Confined<T> {}
