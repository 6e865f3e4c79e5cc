//! Messages with numbers that need no allocator.

use core::fmt;

/// A message whose `{}` stand for numbers, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentence {
    pub text: &'static str,
    /// One number for each place of `text`, then zeros.
    pub numbers: [u64; 2],
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.numbers.iter();
        for (index, piece) in self.text.split("{}").enumerate() {
            if index > 0
                && let Some(number) = numbers.next()
            {
                write!(f, "{number}")?;
            }
            f.write_str(piece)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    #[test]
    fn numbers_stand_in_their_places() {
        let of = |text, numbers| Sentence { text, numbers }.to_string();
        assert_eq!(of("no number", [0, 0]), "no number");
        assert_eq!(of("{} of {} steps", [2, 7]), "2 of 7 steps");
        assert_eq!(of("at most {}", [u64::MAX, 0]), "at most 18446744073709551615");
    }
}
