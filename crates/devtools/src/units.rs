//! Numbers, with and without units, as people read them.

use std::time::Duration;

/// A number of bytes for people: `1.5 MB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Formats a number with at least six significant digits, without trailing zeros: `0.125`, `1e-10`.
pub fn number(value: f64) -> String {
    let trim = |digits: &str| match digits.split_once('.') {
        Some(_) => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => digits.to_owned(),
    };
    let magnitude = value.abs();
    if !value.is_finite() || magnitude == 0.0 {
        return format!("{value}");
    }
    if (1e-1..1e15).contains(&magnitude) {
        return trim(&format!("{value:.6}"));
    }
    // One more decimal for each zero after the point.
    if (1e-4..1e-1).contains(&magnitude) {
        let zeros = (-magnitude.log10()).floor().max(0.0) as usize;
        return trim(&format!("{value:.*}", 6 + zeros));
    }
    match format!("{value:.6e}").split_once('e') {
        Some((digits, exponent)) => format!("{}e{exponent}", trim(digits)),
        None => format!("{value}"),
    }
}

/// Formats a number with `digits` significant digits.
pub fn rounded(value: f64, digits: usize) -> String {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().map_or_else(|_| value.to_string(), number)
}

/// Formats a duration for people: `12.3 µs`.
pub fn duration(duration: Duration) -> String {
    let ns = duration.as_nanos() as f64;
    match duration.as_nanos() {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} µs", ns / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_or_so() {
        let shown: Vec<String> = [0, 999, 1_000, 1_549_999, 2_000_000_000].map(bytes).to_vec();
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "1.5 MB", "2.00 GB"]);
    }

    #[test]
    fn numbers_keep_their_digits() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1e-10, "1e-10"),
            (-1.234_567_8e-7, "-1.234568e-7"),
            (0.000_123_456_78, "0.000123457"),
            (0.012_345_678, "0.0123457"),
            (0.1, "0.1"),
            (0.5, "0.5"),
            (100.0, "100"),
            (-123.456_789_1, "-123.456789"),
            (16_777_216.0, "16777216"),
            (1e30, "1e30"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn digits_are_as_many_as_asked_for() {
        let cases = [(14.451_234, "14.45"), (0.0, "0"), (-123_456.0, "-123500"), (1.2e-7, "1.2e-7"), (f64::NAN, "NaN")];
        for (value, text) in cases {
            assert_eq!(rounded(value, 4), text);
        }
    }
}
