//! SentencePiece (Kudo and Richardson 2018): a text is normalized with its spaces as characters, and segmented as a whole.

mod model_proto;
mod normalizer;

use rustc_hash::FxHashMap;

use super::added_tokens::{AddedTokens, Part};
use super::bpe::{Bpe, Unknown};
use super::piece::{Piece, PieceKind, SPACE};
use super::precompiled::CharsMap;
use super::settings::{damaged, max_len};
use super::special_tokens::SpecialTokens;
use super::unigram::Unigram;
use super::vocabulary::Vocabulary;
use crate::error::Result;

pub(super) use model_proto::{is_model_proto, read as read_model_proto};
use normalizer::Normalizer;

/// Text of an unknown piece, unless the model says otherwise.
pub(super) const UNKNOWN_SURFACE: &str = " \u{2047} ";

/// A model as its file describes it.
#[derive(Debug)]
pub(super) struct Description {
    /// By their number.
    pub(super) pieces: Vec<Piece>,
    pub(super) algorithm: Algorithm,
    pub(super) byte_fallback: bool,
    pub(super) unknown: u32,
    /// Text of an unknown piece when it is decoded.
    pub(super) unknown_surface: String,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// The tokens that are put before and after a text.
    pub(super) around: [Option<u32>; 2],
    pub(super) chars_map: Option<CharsMap>,
    pub(super) whitespace: Whitespace,
}

/// Rules for spaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whitespace {
    /// A space is added before a text, or after it with `is_suffix`.
    pub(super) adds_dummy_prefix: bool,
    /// Spaces at both ends are removed, and of several in a row all but one.
    pub(super) removes_extra: bool,
    /// Spaces become [`SPACE`].
    pub(super) escapes: bool,
    pub(super) is_suffix: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Unigram,
    Bpe,
}

/// A tokenizer of SentencePiece.
#[derive(Debug)]
pub(super) struct SentencePiece {
    kinds: Vec<PieceKind>,
    segmentation: Segmentation,
    normalizer: Normalizer,
    /// Control pieces, which are recognized in texts as they are in those of chat templates.
    control: AddedTokens,
    unknown_surface: String,
    around: [Option<u32>; 2],
    pub(super) special: SpecialTokens,
}

#[derive(Debug)]
enum Segmentation {
    Unigram(Unigram),
    /// After the text was split at user-defined pieces.
    Bpe(Bpe),
}

impl SentencePiece {
    pub(super) fn new(description: Description) -> Result<Self> {
        let Description { pieces, algorithm, byte_fallback, unknown, bos, eos, around, chars_map, whitespace, .. } =
            description;
        if pieces.get(unknown as usize).is_none() {
            return Err(damaged(format!("the unknown piece is {unknown}, of {} pieces", pieces.len())));
        }
        let known = |token: Option<u32>| token.filter(|token| (*token as usize) < pieces.len());
        let (bos, eos, around) = (known(bos), known(eos), around.map(known));
        let of_kind = |kind: PieceKind| {
            let pieces = pieces.iter().enumerate().filter(|(_, piece)| piece.kind == kind);
            AddedTokens::of_pieces(pieces.map(|(id, piece)| (id as u32, piece.text.as_str())))
        };
        let (control, user_defined) = (of_kind(PieceKind::Control)?, of_kind(PieceKind::UserDefined)?);
        let segmentation = match algorithm {
            Algorithm::Unigram => Segmentation::Unigram(Unigram::of_pieces(&pieces, unknown, byte_fallback)?),
            Algorithm::Bpe => {
                let mut vocabulary = Vocabulary::default();
                for (id, piece) in pieces.iter().enumerate() {
                    vocabulary.insert(&piece.text, id as u32);
                }
                let is_merged = |piece: &&Piece| {
                    matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined | PieceKind::Unused)
                };
                let score = |id: u32| pieces.get(id as usize).filter(is_merged).map(|piece| f64::from(piece.score));
                let unknown = Unknown { token: Some(unknown), is_fused: true, byte_fallback };
                let unused = pieces.iter().zip(0..).filter(|(piece, _)| piece.kind == PieceKind::Unused);
                Segmentation::Bpe(Bpe::by_scores(vocabulary, score, unknown, unused.map(|(_, id)| id).collect())?)
            }
        };
        Ok(Self {
            kinds: pieces.iter().map(|piece| piece.kind).collect(),
            segmentation,
            normalizer: Normalizer { chars_map, whitespace, user_defined },
            control,
            unknown_surface: description.unknown_surface,
            around,
            special: SpecialTokens { bos, eos: eos.into_iter().collect() },
        })
    }

    /// The tokens of a text, with `add_special` those that are put around one.
    pub(super) fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        let [before, after] = self.around.map(|token| token.filter(|_| add_special));
        tokens.extend(before);
        for part in self.control.split(text) {
            match part {
                Part::Token(token) => tokens.push(token),
                Part::Text(range) => {
                    // Llama's own code encodes texts between control pieces by themselves.
                    let max = max_len(range.len());
                    let normalized = self.normalizer.normalize(&text[range], max)?;
                    self.segment(&normalized, &mut tokens)?;
                }
            }
        }
        tokens.extend(after);
        Ok(tokens)
    }

    fn segment(&self, normalized: &str, to: &mut Vec<u32>) -> Result<()> {
        match &self.segmentation {
            Segmentation::Unigram(unigram) => unigram.encode(normalized, to),
            Segmentation::Bpe(bpe) => {
                for part in self.normalizer.user_defined.split(normalized) {
                    match part {
                        Part::Token(token) => to.push(token),
                        Part::Text(range) => bpe.encode([&normalized[range]].into_iter(), to),
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) fn decode(&self, tokens: &[u32], skip_special: bool) -> String {
        let Whitespace { adds_dummy_prefix, removes_extra, .. } = self.normalizer.whitespace;
        let strips = adds_dummy_prefix || removes_extra;
        let (mut text, mut bytes) = (String::new(), Vec::new());
        let mut is_stripped = false;
        for token in tokens {
            let Some((kind, piece)) = self.kinds.get(*token as usize).zip(self.vocabulary().text(*token)) else {
                continue;
            };
            if let PieceKind::Byte(byte) = kind {
                bytes.push(*byte);
                continue;
            }
            flush(&mut bytes, &mut text);
            match kind {
                PieceKind::Control if skip_special => {}
                PieceKind::Control => text.push_str(piece),
                PieceKind::Unknown => text.push_str(&self.unknown_surface),
                _ => {
                    let is_at_start = text.is_empty() && !is_stripped && strips;
                    let rest = piece.strip_prefix(SPACE).filter(|_| is_at_start);
                    // Where spaces at the beginning are removed, there may be more of them.
                    is_stripped |= rest.is_some() && !removes_extra;
                    text.extend(rest.unwrap_or(piece).chars().map(|char| if char == SPACE { ' ' } else { char }));
                }
            }
        }
        flush(&mut bytes, &mut text);
        text
    }

    pub(super) fn token_bytes(&self, token: u32) -> Vec<u8> {
        let piece = self.kinds.get(token as usize).zip(self.vocabulary().text(token));
        match piece {
            Some((PieceKind::Byte(byte), _)) => vec![*byte],
            Some((PieceKind::Unknown, _)) => self.unknown_surface.as_bytes().to_vec(),
            Some((_, text)) => text.replace(SPACE, " ").into_bytes(),
            None => Vec::new(),
        }
    }

    #[cfg(feature = "grammar")]
    pub(super) fn is_special(&self, token: u32) -> bool {
        matches!(self.kinds.get(token as usize), Some(PieceKind::Control))
    }

    pub(super) fn vocabulary(&self) -> &Vocabulary {
        match &self.segmentation {
            Segmentation::Unigram(unigram) => &unigram.vocabulary,
            Segmentation::Bpe(bpe) => &bpe.vocabulary,
        }
    }
}

/// Adds the characters of bytes to a text; each byte that is in none becomes U+FFFD.
fn flush(bytes: &mut Vec<u8>, to: &mut String) {
    for chunk in bytes.utf8_chunks() {
        to.push_str(chunk.valid());
        to.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, chunk.invalid().len()));
    }
    bytes.clear();
}

/// Fails if two pieces have one text.
pub(super) fn check_distinct(pieces: &[Piece]) -> Result<()> {
    let mut known: FxHashMap<&str, usize> = FxHashMap::default();
    for (id, piece) in pieces.iter().enumerate() {
        if let Some(other) = known.insert(&piece.text, id) {
            return Err(damaged(format!("the pieces {other} and {id} are both {:?}", piece.text)));
        }
    }
    Ok(())
}
