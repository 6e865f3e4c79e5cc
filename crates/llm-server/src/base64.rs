//! Base64 encoding (RFC 4648), with padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().zip([16, 8, 0]).fold(0u32, |bits, (byte, shift)| bits | u32::from(*byte) << shift);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let char = ALPHABET.get((bits >> shift & 63) as usize).filter(|_| index <= group.len());
            text.push(char.map_or('=', |char| char::from(*char)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    /// The examples of RFC 4648.
    #[test]
    fn bytes_are_encoded() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(super::encode(bytes.as_bytes()), text);
        }
        assert_eq!(super::encode(&[0xfb, 0xff]), "+/8=");
    }
}
