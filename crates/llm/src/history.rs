//! The tokens and embeddings that a session has read.

use crate::prompt::Part;

/// Bytes of a hash.
const HASH: usize = 32;

/// The tokens, and hashes of the rows of embeddings, of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// The tokens in order. Their positions are those that `rows` leaves.
    tokens: Vec<u32>,
    /// Rows of embeddings, in ascending order of their positions.
    rows: Vec<Row>,
}

/// A row of embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    position: usize,
    /// The hash of its elements. A later prompt with the same row at this position continues the session.
    hash: [u8; HASH],
}

impl History {
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        self.tokens.len() + self.rows.len()
    }

    pub fn push(&mut self, part: Part<'_>) {
        match part {
            Part::Tokens(tokens) => self.tokens.extend_from_slice(tokens),
            Part::Embeddings { rows, dim } => {
                for (row, position) in rows.chunks_exact(dim).zip(self.len()..) {
                    self.rows.push(Row { position, hash: hash(row) });
                }
            }
        }
    }

    /// Removes the positions from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.rows.truncate(self.rows.partition_point(|row| row.position < len));
        self.tokens.truncate(len.saturating_sub(self.rows.len()));
    }

    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Length of the common prefix with a prompt, in positions.
    pub fn common_prefix(&self, parts: &[Part<'_>]) -> usize {
        let (mut tokens, mut rows) = (self.tokens.iter(), self.rows.iter().peekable());
        let mut position = 0;
        for part in parts {
            let common = match *part {
                Part::Tokens(given) => {
                    let end = rows.peek().map_or(usize::MAX, |row| row.position - position);
                    given.iter().take(end).zip(tokens.by_ref()).take_while(|(a, b)| a == b).count()
                }
                Part::Embeddings { rows: given, dim } => {
                    let is_next = |row: &&Row, given: &[f32], at: usize| row.position == at && row.hash == hash(given);
                    let mut count = 0;
                    for given in given.chunks_exact(dim) {
                        if rows.next_if(|row| is_next(row, given, position + count)).is_none() {
                            break;
                        }
                        count += 1;
                    }
                    count
                }
            };
            position += common;
            if common < part.len() {
                break;
            }
        }
        position
    }

    /// The positions and hashes of the rows of embeddings, as bytes; empty without rows.
    pub fn rows_to_bytes(&self) -> Vec<u8> {
        let row = |row: &Row| [&(row.position as u64).to_le_bytes()[..], &row.hash].concat();
        self.rows.iter().flat_map(row).collect()
    }

    /// Makes a history of tokens and the rows of [`rows_to_bytes`](Self::rows_to_bytes). `None` for damaged rows: their
    /// positions must be ascending, and less than the number of tokens and rows.
    pub fn of(tokens: Vec<u32>, rows: &[u8]) -> Option<Self> {
        let (chunks, rest) = rows.as_chunks::<{ size_of::<u64>() + HASH }>();
        let row = |bytes: &[u8; size_of::<u64>() + HASH]| {
            let (position, hash) = bytes.split_first_chunk()?;
            let position = usize::try_from(u64::from_le_bytes(*position)).ok()?;
            Some(Row { position, hash: hash.try_into().ok()? })
        };
        let rows: Vec<Row> = chunks.iter().map(row).collect::<Option<_>>()?;
        let history = Self { tokens, rows };
        let is_ascending = history.rows.is_sorted_by(|a, b| a.position < b.position);
        let fits = history.rows.last().is_none_or(|row| row.position < history.len());
        (rest.is_empty() && is_ascending && fits).then_some(history)
    }
}

fn hash(row: &[f32]) -> [u8; HASH] {
    let mut hasher = blake3::Hasher::new();
    for element in row {
        hasher.update(&element.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Part<'_> = Part::Embeddings { rows: &[1.0, 2.0, 3.0, 4.0], dim: 2 };
    const B: Part<'_> = Part::Embeddings { rows: &[1.0, 2.0, 3.0, 5.0], dim: 2 };

    /// Two tokens, two rows, three tokens.
    fn history() -> History {
        let mut history = History::default();
        [Part::Tokens(&[7, 8]), A, Part::Tokens(&[9, 9, 5])].into_iter().for_each(|part| history.push(part));
        history
    }

    #[test]
    fn prefixes_end_where_tokens_or_rows_differ() {
        let history = history();
        assert_eq!((history.len(), history.tokens()), (7, &[7, 8, 9, 9, 5][..]));
        let (start, end) = (Part::Tokens(&[7, 8]), Part::Tokens(&[9, 9, 5, 6]));
        let common = |parts: &[Part<'_>]| history.common_prefix(parts);
        assert_eq!(common(&[]), 0);
        assert_eq!(common(&[Part::Tokens(&[1])]), 0);
        assert_eq!(common(&[Part::Tokens(&[7, 9])]), 1);
        // Tokens where the session has rows, and rows where it has tokens.
        assert_eq!(common(&[Part::Tokens(&[7, 8, 9])]), 2);
        assert_eq!(common(&[Part::Tokens(&[7]), A]), 1);
        assert_eq!(common(&[start, B]), 3);
        assert_eq!(common(&[start, A]), 4);
        assert_eq!(common(&[start, A, A]), 4);
        assert_eq!(common(&[Part::Tokens(&[7]), Part::Tokens(&[8]), A, Part::Tokens(&[9]), Part::Tokens(&[1])]), 5);
        assert_eq!(common(&[start, A, end]), 7);
    }

    #[test]
    fn histories_are_truncated_anywhere() {
        let whole = [Part::Tokens(&[7, 8]), A, Part::Tokens(&[9, 9, 5])];
        for len in 0..=7 {
            let mut cut = history();
            cut.truncate(len);
            assert_eq!((cut.len(), cut.common_prefix(&whole)), (len, len));
        }
    }

    #[test]
    fn rows_are_saved_and_restored() {
        let history = history();
        let (tokens, rows) = (history.tokens().to_vec(), history.rows_to_bytes());
        assert_eq!(History::of(tokens.clone(), &rows), Some(history));
        assert_eq!(History::of(tokens.clone(), &rows[1..]), None);
        // Rows beyond the end, and twice the same position.
        assert_eq!(History::of(Vec::new(), &rows), None);
        let first = &rows[..rows.len() / 2];
        assert_eq!(History::of(tokens, &[first, first].concat()), None);
    }
}
