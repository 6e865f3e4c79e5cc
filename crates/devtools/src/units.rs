//! Numbers with units, as people read them.

/// A number of bytes for people: `1.5 MB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
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
}
