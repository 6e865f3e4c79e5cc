//! The execution context of all kernels.

use crate::arch::{Dispatch, Isa};
use crate::error::Error;
use crate::pool::Pool;

/// Execution context of every function of this crate: an instruction set and a thread pool.
#[derive(Debug)]
pub struct Engine {
    pub(crate) dispatch: Dispatch,
    pub(crate) pool: Pool,
}

impl Engine {
    /// Creates an engine with the strongest instruction set of this machine and `threads` threads, including the caller
    /// (0 counts as 1).
    pub fn new(threads: usize) -> Self {
        Self { dispatch: Dispatch::best(), pool: Pool::new(threads) }
    }

    /// Creates an engine with a given instruction set, for tests and comparisons.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if this machine does not support it.
    pub fn with_isa(isa: Isa, threads: usize) -> Result<Self, Error> {
        let dispatch = Dispatch::of(isa).ok_or(Error::Unavailable(isa))?;
        Ok(Self { dispatch, pool: Pool::new(threads) })
    }

    /// Creates an engine with the register tile of AVX-512 in portable code, so that its control flow is tested on every
    /// machine.
    #[cfg(feature = "wide-scalar")]
    pub fn wide_scalar(threads: usize) -> Self {
        Self { dispatch: Dispatch::WideScalar(crate::arch::WideScalar::new()), pool: Pool::new(threads) }
    }

    /// Returns true if both sides of a GEMM with bf16 weights are rounded to bf16: where bf16 is supported, and by the portable
    /// register tile of AVX-512.
    pub fn rounds_to_bf16(&self) -> bool {
        #[cfg(feature = "wide-scalar")]
        if matches!(self.dispatch, Dispatch::WideScalar(_)) {
            return true;
        }
        self.supports_bf16()
    }

    /// Instruction set of the kernels.
    pub fn isa(&self) -> Isa {
        self.dispatch.isa()
    }

    /// The thread pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Number of threads, including the caller.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}
