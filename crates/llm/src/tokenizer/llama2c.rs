//! Files of llama2.c, as ExecuTorch's tools write them too: the pieces of a SentencePiece model of BPE, with their scores.

use super::piece::{Piece, PieceKind, SPACE, byte_of_name};
use super::sentencepiece::{Algorithm, Description, Whitespace};
use super::settings::damaged;
use crate::error::Result;

/// The three pieces before those of bytes.
const UNKNOWN: u32 = 0;
const BOS: u32 = 1;
const EOS: u32 = 2;

const PADDING: &[u8] = b"<pad>";

/// Reads a file; `None` if the bytes are none.
///
/// # Errors
/// For bytes that have the structure of such a file, with texts that are not UTF-8 or scores that are not numbers.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Description>> {
    // ExecuTorch's: the number of pieces, those that begin and end a text, and the longest; the original: the longest alone.
    if let Some(([count, bos, eos, _], rest)) = numbers::<4>(bytes)
        && let Some(entries) = entries(rest)
    {
        // Its tool may put a piece for padding first, which it does not count.
        let is_padded = entries.first().is_some_and(|(_, text)| *text == PADDING);
        let padding = usize::from(is_padded && entries.len() == count as usize + 1);
        if entries.len() == count as usize + padding {
            return description(&entries, padding as u32, [bos, eos]).map(Some);
        }
    }
    let Some((_, rest)) = numbers::<1>(bytes) else { return Ok(None) };
    entries(rest).map(|entries| description(&entries, 0, [BOS, EOS])).transpose()
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<([u32; N], &[u8])> {
    let mut rest = bytes;
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (four, after) = rest.split_first_chunk()?;
        (*number, rest) = (u32::from_le_bytes(*four), after);
    }
    Some((numbers, rest))
}

/// Scores and texts up to the end of the file; `None` if they end within one.
fn entries(mut bytes: &[u8]) -> Option<Vec<(f32, &[u8])>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let ([score, len], rest) = numbers::<2>(bytes)?;
        let (text, rest) = rest.split_at_checked(len as usize)?;
        entries.push((f32::from_bits(score), text));
        bytes = rest;
    }
    (entries.len() > EOS as usize).then_some(entries)
}

/// A model, whose pieces begin at `first`.
fn description(entries: &[(f32, &[u8])], first: u32, ends: [u32; 2]) -> Result<Description> {
    let (unknown, [bos, eos]) = (UNKNOWN + first, ends.map(|id| id.saturating_add(first)));
    let mut pieces = Vec::with_capacity(entries.len());
    for (id, (score, text)) in entries.iter().enumerate() {
        let text = str::from_utf8(text).ok().filter(|text| !text.is_empty() && !score.is_nan());
        let text = text.ok_or_else(|| damaged(format!("the piece {id} has no text or score")))?;
        let kind = match id as u32 {
            id if id < first => PieceKind::Control,
            id if id == unknown => PieceKind::Unknown,
            id if id == bos || id == eos => PieceKind::Control,
            _ => byte_of_name(text).map_or(PieceKind::Normal, PieceKind::Byte),
        };
        let text = match kind {
            // Written with line breaks around.
            PieceKind::Control => text.trim().to_owned(),
            // Spaces stand in place of the character for them.
            PieceKind::Normal => text.replace(' ', &SPACE.to_string()),
            _ => text.to_owned(),
        };
        pieces.push(Piece { text, score: *score, kind });
    }
    Ok(Description {
        pieces,
        algorithm: Algorithm::Bpe,
        byte_fallback: true,
        unknown,
        unknown_surface: String::new(),
        bos: Some(bos),
        eos: Some(eos),
        around: [Some(bos), None],
        chars_map: None,
        whitespace: Whitespace { adds_dummy_prefix: true, removes_extra: false, escapes: true, is_suffix: false },
    })
}
