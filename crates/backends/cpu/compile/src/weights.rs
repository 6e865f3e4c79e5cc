//! Blobs of weights: packed by several threads when all of a program is known, or left where the file has them.

use std::hash::{BuildHasher, Hasher};

use half::f16;
use rushlight_engine::{Half, pack};
use rustc_hash::FxBuildHasher;

use rushlight_engine::parallel_map;
use rushlight_graph::Bytes;
use rushlight_graph::Error;

use crate::block::Block;
use crate::error::error;
use crate::precision::Precision;

/// The source of the names of packed weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Their content: what is the same is stored once, and the same program is the same file. All bytes are read for it.
    #[default]
    Content,
    /// Their address, for a program with one method that is run at once and never written.
    Place,
}

/// A blob of floats that a program refers to by name.
pub(super) struct Weights<'a> {
    pub name: String,
    pub content: Content<'a>,
}

/// The bytes of a blob, or how they are made.
pub(super) enum Content<'a> {
    /// It is there.
    Ready(Bytes),
    /// The number of elements, their type, and a function that writes them as floats.
    Packed(usize, Precision, Pack<'a>),
}

impl Content<'_> {
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Ready(bytes) => bytes.is_empty(),
            Self::Packed(len, ..) => *len == 0,
        }
    }
}

/// Writes packed weights.
pub(super) type Pack<'a> = Box<dyn FnOnce(&mut [f32]) -> Result<(), Error> + Send + 'a>;

impl std::fmt::Debug for Weights<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weights").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Makes blobs, each with a key.
pub(super) fn make(weights: Vec<Weights<'_>>, threads: usize, keys: Keys) -> Result<Vec<(String, Bytes)>, Error> {
    parallel_map(weights, threads, |one| one.make(keys)).into_iter().collect()
}

impl Weights<'_> {
    fn make(self, keys: Keys) -> Result<(String, Bytes), Error> {
        let data = match self.content {
            Content::Ready(bytes) => bytes,
            Content::Packed(len, precision, pack) => packed(&self.name, len, precision, pack)?,
        };
        if !data.len().is_multiple_of(size_of::<f32>()) {
            return Err(error(format!("the weights `{}` are no whole floats", self.name))
                .expected("a multiple of 4 bytes")
                .got(format!("{} bytes", data.len())));
        }
        let identity = match keys {
            Keys::Content => format!("{:016x}", content_hash(&data)),
            Keys::Place => format!("{:x}+{:x}", data.as_ptr().addr(), data.len()),
        };
        Ok((format!("rushlight.cpu/{}/{identity}", self.name), data))
    }
}

/// Packs `len` elements, as little-endian bytes of their type.
fn packed(name: &str, len: usize, precision: Precision, pack: Pack<'_>) -> Result<Bytes, Error> {
    let mut block = Block::new(len);
    pack(block.floats_mut())?;
    let half = match precision {
        Precision::F16 => Half::F16,
        Precision::Bf16 => Half::Bf16,
        Precision::F32 => return whole(block, len),
    };
    let floats = block.floats_mut();
    if precision == Precision::F16
        && let Some(got) = floats.iter().find(|x| x.is_finite() && !f16::from_f32(**x).is_finite())
    {
        return Err(error(format!("a weight of `{name}` is beyond the precision f16"))
            .expected("at most 65504 in magnitude")
            .got(got)
            .help("choose bf16, which has the range of f32"));
    }
    // Two elements in the place of a float, little-endian; two rows of a panel at a time.
    let mut narrow = Block::new(len.div_ceil(2));
    let mut rows = [0; 2 * pack::PANEL];
    for (to, floats) in narrow.floats_mut().chunks_mut(pack::PANEL).zip(floats.chunks(2 * pack::PANEL)) {
        pack::narrow(half, floats, &mut rows[..floats.len()]);
        for (to, pair) in to.iter_mut().zip(rows.chunks_exact(2)) {
            *to = f32::from_bits(u32::from(pair[1]) << 16 | u32::from(pair[0]));
        }
    }
    whole(narrow, len.div_ceil(2))
}

/// A block of so many floats as bytes.
fn whole(mut block: Block, len: usize) -> Result<Bytes, Error> {
    if cfg!(target_endian = "big") {
        block.floats_mut().iter_mut().for_each(|float| *float = f32::from_bits(float.to_bits().to_le()));
    }
    let size = len * size_of::<f32>();
    Bytes::new(block).slice(0..size).ok_or_else(|| error("packed weights lost their end"))
}

/// A hash of all bytes. Blobs with the same key are compared by the caller, so that a collision is no danger.
fn content_hash(bytes: &[u8]) -> u64 {
    let mut lanes = [const { FxBuildHasher }; 4].map(|build| build.build_hasher());
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
            lane.write_u64(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
    }
    let mut last = FxBuildHasher.build_hasher();
    last.write(chunks.remainder());
    lanes.iter().for_each(|lane| last.write_u64(lane.finish()));
    last.write_usize(bytes.len());
    last.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(count: usize) -> Vec<Weights<'static>> {
        let one = |index: usize| Weights {
            name: format!("w{index}"),
            content: Content::Packed(
                100,
                Precision::F32,
                Box::new(move |to| {
                    to.iter_mut().enumerate().for_each(|(at, float)| *float = (index * at) as f32);
                    Ok(())
                }),
            ),
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn blobs_are_the_same_by_one_thread_and_by_several() {
        let one = make(weights(9), 1, Keys::Content).unwrap();
        assert_eq!(one, make(weights(9), 3, Keys::Content).unwrap());
        assert!(one.iter().all(|(_, data)| data.as_ptr().addr().is_multiple_of(64) && data.len() == 400));
        assert_eq!(one[2].1[4..8], 2f32.to_le_bytes());
        assert!(one[2].0.starts_with("rushlight.cpu/w2/"), "{}", one[2].0);
        let placed = make(weights(9), 2, Keys::Place).unwrap();
        assert!(placed.iter().zip(&one).all(|((key, data), (other, same))| key != other && data == same));
    }

    #[test]
    fn errors_of_packing_come_back() {
        let fail =
            Weights { name: "w".into(), content: Content::Packed(1, Precision::F32, Box::new(|_| Err(error("no")))) };
        let mut all = weights(3);
        all.push(fail);
        assert!(make(all, 2, Keys::Content).is_err());
    }
}
