//! The limits of the machine.

use anyhow::Result;
use rushlight_engine::Engine;
use rushlight_engine::hwbench::{byte_op_rate, read_rates};

use super::threads_of;

/// Bytes that are read to measure the bandwidth of memory: more than the caches of servers, and similar to a model's
/// weights.
const MEMORY: usize = 2 << 30;

/// The limits of this machine with a number of threads.
pub struct Machine {
    pub threads: usize,
    /// Bytes per second of sequential reads from memory, without software prefetch.
    pub bytes: f64,
    /// Additions and multiplications of int8 per second, if the machine has instructions for them.
    pub ops: Option<f64>,
}

impl Machine {
    pub fn measure(threads: usize) -> Result<Self> {
        let isa = rushlight::chosen_isa().map_err(|e| anyhow::anyhow!("{e}"))?;
        let engine = Engine::with_isa(isa, threads).map_err(|e| anyhow::anyhow!("{e}"))?;
        let (_, bytes) = read_rates(&engine, &[], MEMORY);
        Ok(Self { threads, bytes, ops: byte_op_rate(&engine) })
    }

    /// The limits as a paragraph below a table.
    pub fn line(&self) -> String {
        let ops = self.ops.map_or_else(|| "no products of bytes".to_owned(), |ops| format!("{:.0} GOP/s", ops / 1e9));
        format!("\n{}: {:.1} GB/s, {ops}.\n", threads_of(self.threads), self.bytes / 1e9)
    }
}
