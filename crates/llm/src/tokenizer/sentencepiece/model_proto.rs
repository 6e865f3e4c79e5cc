//! `sentencepiece_model.proto`: the file of a model, a message of Protocol Buffers.

use super::super::piece::{Piece, PieceKind};
use super::super::precompiled::CharsMap;
use super::super::settings::damaged;
use super::{Algorithm, Description, UNKNOWN_SURFACE, Whitespace, check_distinct};
use crate::error::Result;

/// Numbers of fields of `ModelProto`.
const PIECES: u64 = 1;
const TRAINER_SPEC: u64 = 2;
const NORMALIZER_SPEC: u64 = 3;
const DENORMALIZER_SPEC: u64 = 5;

/// True if bytes may be a model: they begin with its first piece.
pub(in super::super) fn is_model_proto(bytes: &[u8]) -> bool {
    let Some(Ok((PIECES, Field::Bytes(piece)))) = Fields(bytes).next() else { return false };
    matches!(Fields(piece).next(), Some(Ok((1, Field::Bytes(_)))))
}

/// Reads a model.
///
/// # Errors
/// For a file that is damaged, or a kind of model other than unigram and BPE.
pub(in super::super) fn read(bytes: &[u8]) -> Result<Description> {
    let mut pieces = Vec::new();
    let mut trainer = TrainerSpec::default();
    let mut normalizer = NormalizerSpec::default();
    for field in Fields(bytes) {
        match field? {
            (PIECES, Field::Bytes(message)) => pieces.push(piece(message, pieces.len())?),
            (TRAINER_SPEC, Field::Bytes(message)) => trainer.read(message)?,
            (NORMALIZER_SPEC, Field::Bytes(message)) => normalizer.read(message)?,
            (DENORMALIZER_SPEC, Field::Bytes(message)) => {
                let mut denormalizer = NormalizerSpec::default();
                denormalizer.read(message)?;
                if !denormalizer.chars_map.is_empty() {
                    return Err(damaged("the model has a denormalizer, which is not supported"));
                }
            }
            _ => {}
        }
    }
    check_distinct(&pieces)?;
    let algorithm = match trainer.model_type {
        1 => Algorithm::Unigram,
        2 => Algorithm::Bpe,
        other => {
            let name = match other {
                3 => "words".to_owned(),
                4 => "characters".to_owned(),
                other => format!("the type {other}"),
            };
            return Err(damaged(format!("a SentencePiece model of {name} is not supported: unigram and BPE are")));
        }
    };
    let unknown = pieces.iter().position(|piece| piece.kind == PieceKind::Unknown);
    let unknown = unknown.ok_or_else(|| damaged("the model has no unknown piece"))?;
    let control = |text: &str| {
        let id = pieces.iter().position(|piece| piece.kind == PieceKind::Control && piece.text == text);
        id.map(|id| id as u32)
    };
    let (bos, eos) = (control(&trainer.bos), control(&trainer.eos));
    let chars_map = &normalizer.chars_map;
    Ok(Description {
        pieces,
        algorithm,
        byte_fallback: trainer.byte_fallback,
        unknown: unknown as u32,
        unknown_surface: trainer.unknown_surface,
        bos,
        eos,
        // A model without a token that begins texts ends them with one, as T5 does.
        around: [bos, eos.filter(|_| bos.is_none())],
        chars_map: if chars_map.is_empty() { None } else { Some(CharsMap::of_bytes(chars_map)?) },
        whitespace: Whitespace {
            adds_dummy_prefix: normalizer.adds_dummy_prefix,
            removes_extra: normalizer.removes_extra,
            escapes: normalizer.escapes,
            is_suffix: trainer.whitespace_is_suffix,
        },
    })
}

/// Settings of training that segmentation needs, with their defaults.
struct TrainerSpec {
    model_type: u64,
    byte_fallback: bool,
    whitespace_is_suffix: bool,
    /// Texts of the pieces that begin and end a text.
    bos: String,
    eos: String,
    unknown_surface: String,
}

impl Default for TrainerSpec {
    fn default() -> Self {
        Self {
            model_type: 1,
            byte_fallback: false,
            whitespace_is_suffix: false,
            bos: "<s>".to_owned(),
            eos: "</s>".to_owned(),
            unknown_surface: UNKNOWN_SURFACE.to_owned(),
        }
    }
}

impl TrainerSpec {
    fn read(&mut self, message: &[u8]) -> Result<()> {
        for field in Fields(message) {
            match field? {
                (3, Field::Int(kind)) => self.model_type = kind,
                (24, Field::Int(is_suffix)) => self.whitespace_is_suffix = is_suffix != 0,
                (35, Field::Int(fallback)) => self.byte_fallback = fallback != 0,
                (44, Field::Bytes(surface)) => self.unknown_surface = text(surface)?,
                (46, Field::Bytes(bos)) => self.bos = text(bos)?,
                (47, Field::Bytes(eos)) => self.eos = text(eos)?,
                _ => {}
            }
        }
        Ok(())
    }
}

struct NormalizerSpec {
    chars_map: Vec<u8>,
    adds_dummy_prefix: bool,
    removes_extra: bool,
    escapes: bool,
}

impl Default for NormalizerSpec {
    fn default() -> Self {
        Self { chars_map: Vec::new(), adds_dummy_prefix: true, removes_extra: true, escapes: true }
    }
}

impl NormalizerSpec {
    fn read(&mut self, message: &[u8]) -> Result<()> {
        for field in Fields(message) {
            match field? {
                (2, Field::Bytes(map)) => self.chars_map = map.to_vec(),
                (3, Field::Int(adds)) => self.adds_dummy_prefix = adds != 0,
                (4, Field::Int(removes)) => self.removes_extra = removes != 0,
                (5, Field::Int(escapes)) => self.escapes = escapes != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

fn piece(message: &[u8], id: usize) -> Result<Piece> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: PieceKind::Normal };
    let mut kind = 1;
    for field in Fields(message) {
        match field? {
            (1, Field::Bytes(bytes)) => piece.text = text(bytes)?,
            (2, Field::Fixed32(bits)) => piece.score = f32::from_bits(bits),
            (3, Field::Int(number)) => kind = number,
            _ => {}
        }
    }
    if piece.text.is_empty() || piece.score.is_nan() {
        return Err(damaged(format!("the piece {id} has no text or score")));
    }
    piece.kind = PieceKind::of_type(kind, &piece.text).ok_or_else(|| match kind {
        6 => damaged(format!("the piece {id} is a byte of the name {:?}", piece.text)),
        other => damaged(format!("the piece {id} is of the kind {other}")),
    })?;
    Ok(piece)
}

fn text(bytes: &[u8]) -> Result<String> {
    str::from_utf8(bytes).map(str::to_owned).map_err(|_| damaged("a text of the model is not UTF-8"))
}

/// The content of a field.
enum Field<'a> {
    Int(u64),
    Fixed32(u32),
    /// A text, bytes, or another message.
    Bytes(&'a [u8]),
    /// Eight bytes, in no field that is read.
    Fixed64,
}

/// The fields of a message, each with its number.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| damaged("the SentencePiece model is cut short or damaged")))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Int(self.varint()?),
            1 => {
                self.take(8)?;
                Field::Fixed64
            }
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(len)?)
            }
            5 => {
                let (bytes, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Field::Fixed32(u32::from_le_bytes(*bytes))
            }
            _ => return None,
        };
        Some((tag >> 3, field))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
