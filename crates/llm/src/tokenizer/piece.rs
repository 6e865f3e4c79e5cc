//! The pieces of texts that SentencePiece knows.

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: PieceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    Normal,
    Unknown,
    /// Never in a text, such as the token that begins one.
    Control,
    /// Always a token of its own.
    UserDefined,
    /// Not a result of segmentation.
    Unused,
    /// A byte, as `<0x0A>`.
    Byte(u8),
}

/// The byte that the name of a piece says, as `<0x0A>` does.
pub(super) fn byte_of_name(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
}
