//! Measuring two sides in turns, so that what else the machine does meets both.

use anyhow::Result;

/// A stage of a program's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading and verifying the program.
    Verify,
    /// Loading its method, and dropping it again.
    Method,
    /// Executing with inputs that are set.
    Execute,
    /// Setting inputs, executing and reading outputs.
    Call,
}

/// Nanoseconds of both sides.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub theirs: f64,
    pub ours: f64,
}

impl Pair {
    /// How many times as long they take.
    pub fn ratio(self) -> f64 {
        self.theirs / self.ours
    }
}

/// Takes turns for a number of rounds after one to warm up; the medians of the rounds.
pub fn interleaved(
    rounds: usize,
    mut theirs: impl FnMut() -> Result<f64>,
    mut ours: impl FnMut() -> Result<f64>,
) -> Result<Pair> {
    let (mut all_theirs, mut all_ours) = (Vec::new(), Vec::new());
    theirs()?;
    ours()?;
    for _ in 0..rounds {
        all_theirs.push(theirs()?);
        all_ours.push(ours()?);
    }
    Ok(Pair { theirs: median(&mut all_theirs), ours: median(&mut all_ours) })
}

/// The upper median; NaN of no samples.
pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
