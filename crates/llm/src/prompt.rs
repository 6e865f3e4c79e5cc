//! Prompts of tokens and of embeddings.

/// A part of a prompt. A prompt of text, images and sound is a list of parts, in the order in which the model reads them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'p> {
    /// Tokens of text, one for each position.
    Tokens(&'p [u32]),
    /// Rows of embeddings `[n, dim]`, row-major, one for each position. An encoder of images or sound returns them.
    /// [`Model::prompt_dim`](crate::Model::prompt_dim) has the `dim` of a model.
    Embeddings {
        /// `n * dim` elements.
        rows: &'p [f32],
        /// Number of elements of a row.
        dim: usize,
    },
}

impl<'p> Part<'p> {
    /// Number of positions.
    pub fn len(&self) -> usize {
        match *self {
            Self::Tokens(tokens) => tokens.len(),
            Self::Embeddings { rows, dim } => rows.len().checked_div(dim).unwrap_or(0),
        }
    }

    /// True for a part without positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits the part into parts of at most `len` positions.
    pub(crate) fn chunks(self, len: usize) -> impl Iterator<Item = Self> {
        let len = len.max(1);
        let count = self.len().div_ceil(len);
        (0..count).map(move |index| self.slice(index * len, len))
    }

    /// Returns at most `len` positions from `start` on.
    fn slice(self, start: usize, len: usize) -> Self {
        let end = start.saturating_add(len).min(self.len());
        match self {
            Self::Tokens(tokens) => Self::Tokens(tokens.get(start..end).unwrap_or_default()),
            Self::Embeddings { rows, dim } => {
                Self::Embeddings { rows: rows.get(start * dim..end * dim).unwrap_or_default(), dim }
            }
        }
    }

    /// Returns the positions from `start` on.
    pub(crate) fn skip(self, start: usize) -> Self {
        self.slice(start, usize::MAX)
    }
}

impl<'p> From<&'p [u32]> for Part<'p> {
    fn from(tokens: &'p [u32]) -> Self {
        Self::Tokens(tokens)
    }
}
