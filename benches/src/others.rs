//! Measures the work of other programs during a measurement, so that a disturbance shows (Linux).

use std::time::Instant;

use anyhow::{Context, Result};

/// The unit of the fields of /proc/stat and /proc/PID/stat; the same on every common Linux platform.
const TICKS_PER_SECOND: f64 = 100.0;

/// Counts from its creation on.
#[derive(Debug)]
pub struct Others {
    own: Vec<u32>,
    start: Instant,
    before: f64,
}

impl Others {
    /// Starts to count all work except that of these processes and this one.
    pub fn than(processes: impl IntoIterator<Item = u32>) -> Result<Self> {
        let own: Vec<u32> = processes.into_iter().chain([std::process::id()]).collect();
        let before = seconds(&own)?;
        Ok(Self { own, start: Instant::now(), before })
    }

    /// Number of cores that other programs kept busy, on average.
    pub fn cores(&self) -> Result<f64> {
        Ok(((seconds(&self.own)? - self.before) / self.start.elapsed().as_secs_f64()).max(0.0))
    }
}

/// Seconds of all cores in other processes, since the machine started.
fn seconds(own: &[u32]) -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat").context("other work is only known on Linux")?;
    let ticks: Vec<f64> = numbers(stat.lines().next().unwrap_or_default());
    // user, nice, system, idle, iowait, irq, softirq
    let busy: f64 = [0, 1, 2, 5, 6].iter().filter_map(|&at| ticks.get(at)).sum();
    let ours: f64 = own.iter().map(|&process| spent(process)).sum();
    Ok((busy - ours) / TICKS_PER_SECOND)
}

/// Ticks that a process has used; 0 if it has ended.
fn spent(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program's name is in parentheses and may contain anything; utime and stime are fields 14 and 15.
    let ticks = numbers(stat.rsplit_once(')').map_or("", |(_, rest)| rest));
    ticks.iter().skip(10).take(2).sum()
}

/// The words of a line that are numbers.
fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_does_not_count_as_that_of_others() {
        let own = std::process::id();
        let (before, start) = (spent(own), Instant::now());
        while spent(own) - before < 5.0 && start.elapsed().as_secs() < 20 {
            std::hint::black_box(std::fs::read_to_string("/proc/stat").unwrap());
        }
        assert!(spent(own) > before);
        assert_eq!(numbers(" S 1 -2 x 3"), [1.0, -2.0, 3.0]);
    }
}
