//! Blobs of weights: packed by several threads when all of a program is known, or left where the file has them.

mod block;
pub(crate) mod constants;
pub(crate) mod int8;
pub(crate) mod packed_matrix;
pub(crate) mod quantized_weights;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use half::f16;
use rushlight_engine::{Half, pack};
use rushlight_format::Blob;
use rustc_hash::{FxBuildHasher, FxHasher};

use rushlight_engine::parallel_map;
use rushlight_graph::{Bytes, Error, Progress};

use crate::error::error;
use crate::precision::Precision;
use crate::settings::{Keys, Settings};

use block::Block;
use packed_matrix::PackedMatrix;

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
    /// Integers.
    Matrix(Arc<PackedMatrix>),
    /// Those of another blob, by its number.
    Same(usize),
}

/// A blob with its key.
#[derive(Debug, PartialEq)]
pub(super) enum Made {
    Data(String, Blob<'static>),
    /// Another blob, by its number.
    Same(usize),
}

/// Bytes of packed matrices that are kept until they are written, although they could be packed again.
const KEPT: usize = 128 << 20;

impl Content<'_> {
    /// About the number of bytes.
    fn size(&self) -> usize {
        match self {
            Self::Ready(bytes) => bytes.len(),
            Self::Packed(len, ..) => len.saturating_mul(size_of::<f32>()),
            Self::Matrix(matrix) => matrix.len().unwrap_or(usize::MAX),
            Self::Same(_) => 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Ready(bytes) => bytes.is_empty(),
            Self::Packed(len, ..) => *len == 0,
            Self::Matrix(matrix) => matrix.len() == Some(0),
            Self::Same(_) => false,
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

/// Makes blobs, in their order.
pub(super) fn make(weights: Vec<Weights<'_>>, settings: &Settings, progress: &Progress) -> Result<Vec<Made>, Error> {
    let kept = AtomicUsize::new(0);
    let (done, total) = (AtomicU64::new(0), weights.iter().map(|weights| weights.content.size() as u64).sum());
    // The largest come first, so that threads end together.
    let mut order: Vec<(usize, Weights<'_>)> = weights.into_iter().enumerate().collect();
    order.sort_by_key(|(_, weights)| std::cmp::Reverse(weights.content.size()));
    let make = |(index, weights): (usize, Weights<'_>)| {
        progress.check()?;
        let size = weights.content.size() as u64;
        let made = weights.make(settings, &kept)?;
        progress.report("packing weights", done.fetch_add(size, Ordering::Relaxed) + size, total)?;
        Ok((index, made))
    };
    let mut made = parallel_map(order, settings.threads, make).into_iter().collect::<Result<Vec<_>, Error>>()?;
    made.sort_unstable_by_key(|(index, _)| *index);
    Ok(made.into_iter().map(|(_, made)| made).collect())
}

impl Weights<'_> {
    /// Makes a blob. `kept` counts the bytes of packed matrices that are kept.
    fn make(self, settings: &Settings, kept: &AtomicUsize) -> Result<Made, Error> {
        let name = &self.name;
        let data = match self.content {
            Content::Same(index) => return Ok(Made::Same(index)),
            Content::Ready(bytes) => bytes,
            Content::Packed(len, precision, pack) => packed(name, len, precision, pack)?,
            Content::Matrix(matrix) => {
                let len = matrix.len().ok_or_else(|| error("weights beyond all memory"))?;
                let is_late = settings.packs_late && kept.fetch_add(len, Ordering::Relaxed) + len > KEPT;
                if is_late {
                    kept.fetch_sub(len, Ordering::Relaxed);
                    let mut hash = ContentHash::default();
                    matrix.for_parts(|part| hash.update(part))?;
                    let key = format!("rushlight.cpu/{name}/{:016x}", hash.finish());
                    return Ok(Made::Data(key, Blob::Made(matrix)));
                }
                let mut block = Block::new(len.div_ceil(size_of::<f32>()));
                matrix.pack(bytemuck::cast_slice_mut(block.floats_mut()))?;
                Bytes::new(block).slice(0..len).ok_or_else(|| error("packed weights lost their end"))?
            }
        };
        if !data.len().is_multiple_of(size_of::<f32>()) {
            return Err(error(format!("the weights `{name}` are no whole floats"))
                .expected("a multiple of 4 bytes")
                .got(format!("{} bytes", data.len())));
        }
        let identity = match settings.keys {
            Keys::Content => {
                let mut hash = ContentHash::default();
                hash.update(&data);
                format!("{:016x}", hash.finish())
            }
            Keys::Place => format!("{:x}+{:x}", data.as_ptr().addr(), data.len()),
        };
        Ok(Made::Data(format!("rushlight.cpu/{name}/{identity}"), data.into()))
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

/// A hash of bytes that come in parts. Blobs with the same key are compared by the caller, so that a collision is no danger.
#[derive(Default)]
struct ContentHash {
    lanes: [FxHasher; 4],
    /// The first bytes of a chunk, which the next part continues.
    rest: Vec<u8>,
    len: usize,
}

impl ContentHash {
    const CHUNK: usize = 32;

    fn update(&mut self, part: &[u8]) {
        self.len += part.len();
        let missing = if self.rest.is_empty() { 0 } else { (Self::CHUNK - self.rest.len()).min(part.len()) };
        let (first, part) = part.split_at(missing);
        self.rest.extend_from_slice(first);
        if self.rest.len() == Self::CHUNK {
            let rest = std::mem::take(&mut self.rest);
            self.chunks(&rest);
        }
        let (chunks, rest) = part.split_at(part.len() - part.len() % Self::CHUNK);
        self.chunks(chunks);
        self.rest.extend_from_slice(rest);
    }

    fn chunks(&mut self, chunks: &[u8]) {
        for chunk in chunks.as_chunks::<{ Self::CHUNK }>().0 {
            for (lane, word) in self.lanes.iter_mut().zip(chunk.as_chunks().0) {
                lane.write_u64(u64::from_le_bytes(*word));
            }
        }
    }

    fn finish(self) -> u64 {
        let mut last = FxBuildHasher.build_hasher();
        last.write(&self.rest);
        self.lanes.iter().for_each(|lane| last.write_u64(lane.finish()));
        last.write_usize(self.len);
        last.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rushlight_graph::{ErrorKind, ProgressListener};

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

    fn settings(threads: usize, keys: Keys) -> Settings {
        Settings { threads, keys, packs_late: false, precision: Precision::F32 }
    }

    fn made(weights: Vec<Weights<'_>>, settings: &Settings) -> Vec<(String, Bytes)> {
        let data = |made| match made {
            Made::Data(key, blob) => (key, Bytes::of_blob(&blob).unwrap()),
            Made::Same(_) => unreachable!("no blob is another one"),
        };
        make(weights, settings, &Progress::default()).unwrap().into_iter().map(data).collect()
    }

    #[test]
    fn blobs_are_the_same_by_one_thread_and_by_several() {
        let one = made(weights(9), &settings(1, Keys::Content));
        assert_eq!(one, made(weights(9), &settings(3, Keys::Content)));
        assert!(one.iter().all(|(_, data)| data.as_ptr().addr().is_multiple_of(64) && data.len() == 400));
        assert_eq!(one[2].1[4..8], 2f32.to_le_bytes());
        assert!(one[2].0.starts_with("rushlight.cpu/w2/"), "{}", one[2].0);
        let placed = made(weights(9), &settings(2, Keys::Place));
        assert!(placed.iter().zip(&one).all(|((key, data), (other, same))| key != other && data == same));
    }

    #[test]
    fn parts_have_the_hash_of_the_whole() {
        let bytes: Vec<u8> = (0..1000).map(|at| (at * 7 % 256) as u8).collect();
        let hash = |cuts: &[usize]| {
            let (mut hash, mut start) = (ContentHash::default(), 0);
            for end in cuts.iter().chain([&bytes.len()]) {
                hash.update(&bytes[start..*end]);
                start = *end;
            }
            hash.finish()
        };
        let whole = hash(&[]);
        for cuts in [&[1, 2, 40][..], &[16, 48, 64, 64, 999], &[31, 33], &[500]] {
            assert_eq!(hash(cuts), whole, "{cuts:?}");
        }
    }

    /// A listener that records every report, and cancels after `cancels_after` of them.
    struct Reports {
        seen: Mutex<Vec<(u64, u64)>>,
        cancels_after: usize,
    }

    impl ProgressListener for Reports {
        fn report(&self, stage: &'static str, done: u64, total: u64) {
            assert_eq!(stage, "packing weights");
            self.seen.lock().unwrap().push((done, total));
        }

        fn is_cancelled(&self) -> bool {
            self.seen.lock().unwrap().len() >= self.cancels_after
        }
    }

    #[test]
    fn bytes_are_reported_and_packing_is_cancelled_between_blobs() {
        let reports = |cancels_after| Arc::new(Reports { seen: Mutex::default(), cancels_after });
        let (whole, cut) = (reports(usize::MAX), reports(3));
        make(weights(9), &settings(2, Keys::Content), &Progress::new(whole.clone())).unwrap();
        let mut seen = whole.seen.lock().unwrap().clone();
        seen.sort_unstable();
        assert_eq!(seen, (1..=9).map(|blobs| (400 * blobs, 3600)).collect::<Vec<_>>());
        let error = make(weights(9), &settings(1, Keys::Content), &Progress::new(cut.clone())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(cut.seen.lock().unwrap().len(), 3);
    }

    #[test]
    fn errors_of_packing_come_back() {
        let fail =
            Weights { name: "w".into(), content: Content::Packed(1, Precision::F32, Box::new(|_| Err(error("no")))) };
        let mut all = weights(3);
        all.push(fail);
        assert!(make(all, &settings(2, Keys::Content), &Progress::default()).is_err());
    }
}
