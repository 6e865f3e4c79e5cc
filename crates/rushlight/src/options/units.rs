//! Sizes and times as text.

use std::time::Duration;

/// Splits a text into a number and the unit after it, in lower case.
fn with_unit(text: &str) -> (&str, String) {
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim(), unit.trim().to_ascii_lowercase())
}

/// Parses a size in bytes: a number, or one with kB, MB, GB, TB, KiB, MiB, GiB or TiB.
pub fn size(text: &str) -> Option<usize> {
    let (number, unit) = with_unit(text);
    let factor = match &*unit {
        "" | "b" => 1u64,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    usize::try_from(number.parse::<u64>().ok()?.checked_mul(factor)?).ok()
}

/// Parses a time: seconds, or a number with ns, us, ms, s, min or h.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = with_unit(text);
    let seconds = match &*unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}
