//! Operators on one or two elements.

use crate::Mismatch;
use crate::requantize::{Output, Scale};

/// The shift of both operands of a sum before they are scaled: bits of precision below an integer.
const FRACTION: u32 = 20;

/// A sum of two quantized elements with scales of their own.
#[derive(Clone, Copy, Debug)]
pub struct Add {
    /// Zero points of the operands.
    pub zero_points: [i32; 2],
    /// Factors that bring both operands, times `2^20`, to one scale.
    pub scales: [Scale; 2],
    /// The factor from that scale to the output's.
    pub output_scale: Scale,
    pub output: Output,
}

impl Add {
    /// Computes one element.
    #[inline]
    #[must_use]
    pub fn apply(&self, a: i8, b: i8) -> i8 {
        let term = |x: i8, i: usize| {
            let x = i32::from(x).wrapping_sub(self.zero_points[i]);
            self.scales[i].apply(x.wrapping_shl(FRACTION))
        };
        let sum = term(a, 0).wrapping_add(term(b, 1));
        self.output.clamp(self.output_scale.apply(sum))
    }
}

/// A product of two quantized elements.
#[derive(Clone, Copy, Debug)]
pub struct Mul {
    /// Zero points of the operands.
    pub zero_points: [i32; 2],
    pub scale: Scale,
    pub output: Output,
}

impl Mul {
    /// Computes one element.
    #[inline]
    #[must_use]
    pub fn apply(&self, a: i8, b: i8) -> i8 {
        let term = |x: i8, i: usize| i32::from(x).wrapping_sub(self.zero_points[i]);
        self.output.clamp(self.scale.apply(term(a, 0).wrapping_mul(term(b, 1))))
    }
}

/// Replaces each element by an entry of a table: `out[i] = table[x[i] + 128]`. An activation of int8 values has 256
/// results.
pub fn look_up(table: &[i8; 256], x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    Mismatch::unless(x.len() == out.len())?;
    for (out, &x) in out.iter_mut().zip(x) {
        *out = table[usize::from(x.wrapping_sub(i8::MIN) as u8)];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_begins_at_the_smallest_value() {
        let table = core::array::from_fn(|i| !(i as u8 as i8));
        let mut out = [0; 4];
        look_up(&table, &[-128, -127, 0, 127], &mut out).unwrap();
        assert_eq!(out, [-1, -2, 127, 0]);
        assert_eq!(look_up(&table, &[1], &mut out), Err(Mismatch));
    }
}
