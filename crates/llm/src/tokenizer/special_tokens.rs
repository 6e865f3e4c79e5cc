//! Tokens that begin and end texts.

/// Tokens with a meaning of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// The token that a text begins with.
    pub bos: Option<u32>,
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
}
