//! A file that is ready to be written: the flatbuffer, and the blobs after it.

use alloc::vec::Vec;

use crate::blob::Blob;
use crate::error::{ErrorKind, Feature, FormatError};
use crate::flatbuf::{Builder, Offset};
use crate::schema::{Field, SEGMENT_OFFSET, SEGMENT_SIZE};

/// The default alignment of segments.
pub const SEGMENT_ALIGNMENT: u64 = 128;

/// A part of a file: bytes, or a producer of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece<'m> {
    Bytes(&'m [u8]),
    Blob(&'m Blob<'m>),
}

impl Piece<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Blob(blob) => blob.size(),
        }
    }
}

/// The layout of a file whose data is not copied together yet: large blobs are borrowed.
#[derive(Clone, Debug)]
pub struct Image<'m> {
    head: Vec<u8>,
    /// Blobs in order, with their offset in the file. Gaps are zero.
    blobs: Vec<(u64, Piece<'m>)>,
}

impl<'m> Image<'m> {
    pub(crate) fn new(head: Vec<u8>, base: u64, segments: &SegmentList<'m>) -> Self {
        let blobs = segments.blobs.iter().map(|(offset, blob)| (base + offset, *blob)).collect();
        Self { head, blobs }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.blobs.last().map_or(self.head.len() as u64, |(offset, blob)| offset + blob.size())
    }

    /// The parts of the file, in order.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let mut at = self.head.len() as u64;
        let blobs = self.blobs.iter().flat_map(move |(offset, piece)| {
            let gap = offset.saturating_sub(at);
            at = offset + piece.size();
            let pieces = match piece {
                Piece::Bytes(_) => 1,
                Piece::Blob(blob) => blob.pieces(),
            };
            let parts = (0..pieces).map(move |index| match piece {
                Piece::Bytes(bytes) => Part::Bytes(bytes),
                Piece::Blob(blob) => Part::Blob { offset: *offset, blob, piece: index },
            });
            core::iter::once(Part::Zeros(gap)).chain(parts)
        });
        core::iter::once(Part::Bytes(&self.head)).chain(blobs)
    }

    /// Passes the file to `sink` piece by piece, in order; stops at the first error.
    ///
    /// # Errors
    /// The sink's, and `Unsupported` if data cannot be produced.
    pub fn write<E: From<FormatError>>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut buffer = Vec::new();
        self.parts().try_for_each(|part| part.write(&mut buffer, &mut sink))
    }

    /// The whole file in memory.
    ///
    /// # Errors
    /// `Unsupported` if data cannot be produced.
    pub fn to_vec(&self) -> Result<Vec<u8>, FormatError> {
        let mut bytes = Vec::with_capacity(self.size() as usize);
        self.write(|piece| {
            bytes.extend_from_slice(piece);
            Ok::<(), FormatError>(())
        })?;
        Ok(bytes)
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub enum Part<'m> {
    Bytes(&'m [u8]),
    /// A number of bytes that are zero.
    Zeros(u64),
    /// A piece of data, and its place in the file.
    Blob {
        offset: u64,
        blob: &'m Blob<'m>,
        piece: u64,
    },
}

impl Part<'_> {
    /// Passes the part to `sink`. Data that must be produced goes through `buffer`, whose contents are replaced.
    ///
    /// # Errors
    /// The sink's, and `Unsupported` if data cannot be produced.
    pub fn write<E: From<FormatError>>(
        &self,
        buffer: &mut Vec<u8>,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        const ZEROS: [u8; 256] = [0; 256];
        match *self {
            Self::Bytes(bytes) => sink(bytes),
            Self::Zeros(count) => {
                let mut left = count;
                while left > 0 {
                    let now = left.min(ZEROS.len() as u64);
                    sink(ZEROS.get(..now as usize).unwrap_or(&ZEROS))?;
                    left -= now;
                }
                Ok(())
            }
            Self::Blob { offset, blob, piece } => {
                let kind = ErrorKind::Unsupported { what: Feature::UnmadeData };
                sink(blob.piece(piece, buffer).ok_or_else(|| FormatError::new(SEGMENT_SIZE, kind, offset))?)
            }
        }
    }
}

/// The layout of a file's segments. Offsets count from the start of the first segment.
#[derive(Debug, Default)]
pub(crate) struct SegmentList<'m> {
    blobs: Vec<(u64, Piece<'m>)>,
    segments: Vec<(u64, u64)>,
}

impl<'m> SegmentList<'m> {
    /// Adds a segment of pieces at the given offsets, and returns its index.
    pub fn push(&mut self, alignment: u64, pieces: impl IntoIterator<Item = (u64, Piece<'m>)>) -> u32 {
        let start = self.size().next_multiple_of(alignment.max(1));
        let mut size = 0;
        for (offset, piece) in pieces.into_iter().filter(|(_, piece)| piece.size() > 0) {
            self.blobs.push((start + offset, piece));
            size = offset + piece.size();
        }
        self.segments.push((if size == 0 { 0 } else { start }, size));
        self.segments.len() as u32 - 1
    }

    /// Bytes to the end of the last piece.
    pub fn size(&self) -> u64 {
        self.blobs.last().map_or(0, |(offset, blob)| offset + blob.size())
    }

    /// The vector of `DataSegment` tables.
    pub fn build(&self, builder: &mut Builder) -> Offset {
        let tables: Vec<Offset> = self
            .segments
            .iter()
            .map(|(offset, size)| builder.table(&[(SEGMENT_OFFSET, (*offset).into()), (SEGMENT_SIZE, (*size).into())]))
            .collect();
        builder.offsets(&tables)
    }
}

/// Refuses a flatbuffer whose offsets would not fit 31 bits.
pub(crate) fn check_len(len: usize, field: Field) -> Result<(), FormatError> {
    if len > i32::MAX as usize {
        return Err(field.error(ErrorKind::TooLarge { size: len as u64 }, 0));
    }
    Ok(())
}
