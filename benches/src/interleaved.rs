//! Measures several sides in turns, so that other work of the machine affects all sides equally.

use std::time::Duration;

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
    /// The ratio of their time to ours.
    pub fn ratio(self) -> f64 {
        self.theirs / self.ours
    }

    /// The smaller figure of each side.
    pub fn fastest(self, other: Self) -> Self {
        Self { theirs: self.theirs.min(other.theirs), ours: self.ours.min(other.ours) }
    }
}

/// Measures two sides in turns, for a number of rounds after one warm-up round. Returns one figure of the rounds for
/// each side, such as their [`median`].
pub fn interleaved(
    rounds: usize,
    of: fn(&mut [f64]) -> f64,
    mut theirs: impl FnMut() -> Result<f64>,
    mut ours: impl FnMut() -> Result<f64>,
) -> Result<Pair> {
    let figures = in_turns(rounds, of, 2, |side| if side == 0 { theirs() } else { ours() })?;
    Ok(Pair { theirs: figures[0], ours: figures[1] })
}

/// Measures any number of sides in turns, by their index. Each round begins with another side.
pub fn in_turns(
    rounds: usize,
    of: fn(&mut [f64]) -> f64,
    sides: usize,
    mut measure: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<f64>> {
    let mut samples = vec![Vec::new(); sides];
    for round in 0..=rounds {
        for turn in 0..sides {
            let side = (round + turn) % sides;
            let sample = measure(side)?;
            if round > 0 {
                samples[side].push(sample);
            }
        }
    }
    Ok(samples.iter_mut().map(|samples| of(samples)).collect())
}

/// Calls at least `calls` times and for at least `at_least`. Returns the median of the durations, in nanoseconds.
pub fn timed(calls: usize, at_least: Duration, mut call: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let (mut samples, mut spent) = (Vec::new(), Duration::ZERO);
    while samples.len() < calls || spent < at_least {
        let taken = call()?;
        spent += taken;
        samples.push(taken.as_nanos() as f64);
    }
    Ok(median(&mut samples))
}

/// The upper median; NaN without samples.
pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The minimum, which other work disturbed least; NaN without samples.
pub fn least(samples: &mut [f64]) -> f64 {
    samples.iter().copied().min_by(f64::total_cmp).unwrap_or(f64::NAN)
}

/// The geometric mean; NaN without values.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0), |(sum, count), value| (sum + value.ln(), count + 1));
    (sum / f64::from(count)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_and_the_first_round_only_warms_up() {
        let mut order = Vec::new();
        let medians = in_turns(3, median, 2, |side| {
            order.push(side);
            Ok(if order.len() <= 2 { 100.0 } else { (10 * side + order.len()) as f64 })
        });
        assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(medians.unwrap(), [5.0, 16.0]);
    }

    #[test]
    fn geometric_means() {
        assert!((geometric_mean([2.0, 8.0]) - 4.0).abs() < 1e-12);
        assert!(geometric_mean([]).is_nan());
    }
}
