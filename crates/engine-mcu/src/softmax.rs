//! Softmax over rows, in the fixed-point arithmetic of gemmlowp.
//!
//! Names such as `Q5.26` give the bits before and after the point, without the sign.

use crate::Mismatch;
use crate::requantize::divide_by_power_of_two;

/// A softmax whose outputs have the scale 1/256 and the zero point -128.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    /// Elements of a row.
    pub row: usize,
    /// `multiplier / 2^31 * 2^shift` is the scale of the input in Q5.26.
    pub multiplier: i32,
    /// From 0 to 30. Other values count modulo 32.
    pub shift: u32,
    /// Elements below the maximum by more than `-diff_min` give zero.
    pub diff_min: i32,
}

/// Bits before the point of sums of exponentials.
const ACCUMULATOR_BITS: u32 = 12;

/// Computes the softmax of each row of `x`.
///
/// Rows with a sum of exponentials of 512 or more have no representable result: their elements are -128, as are those
/// that `diff_min` excludes. CMSIS-NN shifts by too many bits there, and its results depend on the processor.
pub fn softmax(softmax: &Softmax, x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    Mismatch::unless(
        x.len() == out.len() && (x.is_empty() || (softmax.row > 0 && x.len().is_multiple_of(softmax.row))),
    )?;
    if x.is_empty() {
        return Ok(());
    }
    for (x, out) in x.chunks_exact(softmax.row).zip(out.chunks_exact_mut(softmax.row)) {
        let max = x.iter().fold(i8::MIN, |max, &x| max.max(x));
        let exponential = |x: i8| {
            let difference = i32::from(x) - i32::from(max);
            let is_near = difference >= softmax.diff_min;
            is_near.then(|| exp(high_product(difference.wrapping_shl(softmax.shift), softmax.multiplier)))
        };
        let sum = x
            .iter()
            .filter_map(|&x| exponential(x))
            .fold(0i32, |sum, e| sum.saturating_add(divide_by_power_of_two(e, ACCUMULATOR_BITS)));
        let headroom = sum.leading_zeros();
        let inverse = one_over_one_plus(sum.wrapping_shl(headroom).wrapping_sub(i32::MIN));
        // At most 34: a positive sum has at least one leading zero.
        let exponent = ACCUMULATOR_BITS + 23 - headroom;
        for (out, &x) in out.iter_mut().zip(x) {
            let probability = match exponential(x) {
                Some(e) if exponent < 32 => divide_by_power_of_two(high_product(inverse, e), exponent),
                _ => 0,
            };
            *out = (probability - 128).clamp(-128, 127) as i8;
        }
    }
    Ok(())
}

/// The doubled product's upper half: `a * b / 2^31`, rounded to the nearest integer, halves away from zero, saturated.
fn high_product(a: i32, b: i32) -> i32 {
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    let nudge = if (a < 0) == (b < 0) { 1 << 30 } else { 1 - (1 << 30) };
    ((i64::from(a) * i64::from(b) + nudge) / (1 << 31)) as i32
}

/// `value * 2^exponent`, saturated, for an exponent of 1 or 2.
fn saturating_shift(value: i32, exponent: u32) -> i32 {
    (i64::from(value) << exponent).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

/// `e^value` in Q0.31, for a value in Q5.26 that is not positive.
fn exp(value: i32) -> i32 {
    if value == 0 {
        return i32::MAX;
    }
    /// `e^(-1/4)`, `e^(-1/2)`, `e^-1` and so on to `e^-16`, in Q0.31.
    const FACTORS: [i32; 7] = [1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242];
    const QUARTER: i32 = 1 << 24;
    let rest = (value & (QUARTER - 1)) - QUARTER;
    let remainder = rest.wrapping_sub(value);
    let mut result = exp_near_eighth(rest);
    for (i, factor) in FACTORS.into_iter().enumerate() {
        if remainder & (QUARTER << i) != 0 {
            result = high_product(result, factor);
        }
    }
    result
}

/// `e^value` in Q0.31, for a value in Q5.26 from -1/4 to 0: four terms of the Taylor series around -1/8.
fn exp_near_eighth(value: i32) -> i32 {
    /// `e^(-1/8)` and `1/3` in Q0.31.
    const AT_CENTRE: i32 = 1895147668;
    const THIRD: i32 = 715827883;
    let x = (value << 5) + (1 << 28);
    let square = high_product(x, x);
    let fourth = divide_by_power_of_two(high_product(square, square), 2);
    let terms = high_product(fourth + high_product(square, x), THIRD) + square;
    AT_CENTRE + high_product(AT_CENTRE, x + divide_by_power_of_two(terms, 1))
}

/// `1 / (1 + value)` in Q0.31, for a value in Q0.31 from 0 to 1: three steps of Newton's method.
fn one_over_one_plus(value: i32) -> i32 {
    let sum = i64::from(value) + i64::from(i32::MAX);
    let half = i64::midpoint(sum, if sum >= 0 { 1 } else { -1 }) as i32;
    /// `48/17` and `-32/17` in Q2.29.
    const LINEAR: (i32, i32) = (1515870810, -1010580540);
    let mut x = LINEAR.0.wrapping_add(high_product(half, LINEAR.1));
    for _ in 0..3 {
        let error = (1i32 << 29).wrapping_sub(high_product(half, x));
        x = x.wrapping_add(saturating_shift(high_product(x, error), 2));
    }
    saturating_shift(x, 1)
}
