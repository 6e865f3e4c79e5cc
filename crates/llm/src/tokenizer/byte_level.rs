//! GPT-2's characters for bytes: printable ones stand for themselves, others for what follows U+0100.

use std::sync::LazyLock;

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

/// The byte of each character.
static BYTES: LazyLock<Vec<Option<u8>>> = LazyLock::new(|| {
    let mut bytes = vec![None; CHARS.iter().map(|char| *char as usize + 1).max().unwrap_or(0)];
    CHARS.iter().enumerate().for_each(|(byte, char)| bytes[*char as usize] = Some(byte as u8));
    bytes
});

/// Adds a character for each byte of a text.
pub(super) fn encode(text: &str, to: &mut String) {
    to.extend(text.bytes().map(|byte| CHARS[usize::from(byte)]));
}

/// A character for each byte.
pub(super) fn encode_bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| CHARS[usize::from(*byte)]).collect()
}

/// The character of a byte.
pub(super) fn char_of(byte: u8) -> char {
    CHARS[usize::from(byte)]
}

/// Adds the bytes of a token, or its text if it is not made of such characters.
pub(super) fn decode(token: &str, to: &mut Vec<u8>) {
    let start = to.len();
    let known = &BYTES[..];
    for char in token.chars() {
        let Some(Some(byte)) = known.get(char as usize) else {
            to.truncate(start);
            to.extend_from_slice(token.as_bytes());
            return;
        };
        to.push(*byte);
    }
}
