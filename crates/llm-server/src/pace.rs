//! Times of the model's calls, by which a prompt is read beside answers without slowing them down.

use std::time::Duration;

/// Minimum number of a prompt's tokens that are read beside answers.
const MIN_PREFILL_TURN: usize = 8;

/// The times of the last calls.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// A token of all answers.
    decode: Duration,
    /// The last part of a prompt, and its number of tokens.
    prefill: Duration,
    prefill_len: usize,
}

impl Pace {
    /// Notes the time of a call for a token of each of `tokens` answers.
    pub fn decoded(&mut self, _tokens: usize, time: Duration) {
        self.decode = time;
    }

    /// Notes the time in which a part of a prompt was read.
    pub fn prefilled(&mut self, len: usize, time: Duration) {
        (self.prefill, self.prefill_len) = (time, len);
    }

    /// Number of a prompt's tokens that are read beside answers, at most `most`: a call for them takes no longer than a token of the answers.
    pub fn prefill_turn(&self, most: usize) -> usize {
        let (decode, prefill) = (self.decode.as_nanos(), self.prefill.as_nanos().max(1));
        let len = (self.prefill_len as u128).saturating_mul(decode) / prefill;
        // At most double, as longer calls take less time for each token.
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(2 * self.prefill_len);
        len.max(MIN_PREFILL_TURN).min(most)
    }
}
