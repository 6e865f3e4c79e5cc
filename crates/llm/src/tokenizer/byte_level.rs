//! GPT-2's characters for bytes: printable ones stand for themselves, others for what follows U+0100.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

/// The character of each byte.
static CHARS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut next = 0x100;
    std::array::from_fn(|byte| match byte as u8 {
        printable @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(printable),
        _ => {
            next += 1;
            char::from_u32(next - 1).unwrap_or_default()
        }
    })
});

static BYTES: LazyLock<FxHashMap<char, u8>> =
    LazyLock::new(|| CHARS.iter().enumerate().map(|(byte, char)| (*char, byte as u8)).collect());

/// A character for each byte of a text.
pub(super) fn encode(text: &str) -> String {
    encode_bytes(text.as_bytes())
}

/// A character for each byte.
pub(super) fn encode_bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| CHARS[usize::from(*byte)]).collect()
}

/// Adds the bytes of a token, or its text if it is not made of such characters.
pub(super) fn decode(token: &str, to: &mut Vec<u8>) {
    let start = to.len();
    for char in token.chars() {
        let Some(byte) = BYTES.get(&char) else {
            to.truncate(start);
            to.extend_from_slice(token.as_bytes());
            return;
        };
        to.push(*byte);
    }
}
