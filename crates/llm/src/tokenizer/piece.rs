//! The pieces of texts that SentencePiece knows.

/// Stands for a space (U+2581).
pub(super) const SPACE: char = '▁';

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

impl PieceKind {
    /// By the number of `ModelProto.SentencePiece.Type`, which GGUF files have too; `None` if it is none, or that of bytes for a
    /// piece of another name.
    pub(super) fn of_type(number: u64, text: &str) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte(byte_of_name(text)?),
            _ => return None,
        })
    }
}

/// The byte that the name of a piece says, as `<0x0A>` does.
pub(super) fn byte_of_name(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
}
