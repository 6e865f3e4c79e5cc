//! The resident size of a process, as Linux reports it.

use anyhow::{Context, Result};

/// The resident size of this process, in bytes.
pub fn now() -> Result<u64> {
    status("VmRSS:")
}

/// The largest resident size of this process, in bytes, since its start or [`forget_peak`].
pub fn peak() -> Result<u64> {
    status("VmHWM:")
}

/// Resets the peak resident size to the current one.
pub fn forget_peak() -> Result<()> {
    std::fs::write("/proc/self/clear_refs", "5").context("peaks are only known on Linux")
}

fn status(key: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("peaks are only known on Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let line = line.with_context(|| format!("no {key} in /proc/self/status"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
