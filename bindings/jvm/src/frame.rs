//! The frame of a call: a direct buffer in which Java stores the inputs and Rust the outputs of a method, so that a call makes one JNI
//! transition. `Frame.java` is the other side.
//!
//! Its words are i64. The first is the interrupt of the call; [`Frame`] has the others: the number of values; address and size of the
//! memory for outputs, then how much of it is used; and the values one after the other. A value is its tag and what the tag says:
//! nothing, the number, the bits of the number, or the index of the string. A tensor is its element type, its place, its size in
//! bytes, its rank and its sizes: the place of an input is an address, that of an output an offset in the memory for outputs, or the
//! index of an object, counted from -1 downwards.

use rushlight::runtime::{Output, Outputs, Tensor};
use rushlight::{Code, Input, ScalarType, TensorView};

use crate::error::{Problem, Result};

/// Words before the values, without the interrupt.
const HEAD: usize = 3;

/// The tags of values, which are those of ExecuTorch.
mod tag {
    pub const NONE: i64 = 0;
    pub const TENSOR: i64 = 1;
    pub const STRING: i64 = 2;
    pub const DOUBLE: i64 = 3;
    pub const INT: i64 = 4;
    pub const BOOL: i64 = 5;
}

/// Outputs begin at multiples of this many bytes.
const ALIGNMENT: usize = 16;

/// A tensor that Java described.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    pub address: i64,
    pub nbytes: usize,
}

/// A part of memory that Java lends for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    address: usize,
    bytes: usize,
}

impl Region {
    /// A region that can be borrowed as elements of a size, at whose multiple it begins: an address for what has bytes, and an end
    /// that no pointer passes.
    ///
    /// # Errors
    /// `Internal` for any other.
    pub fn new(address: i64, bytes: usize, alignment: usize) -> Result<Self> {
        // Pointers use all bits of a word.
        let region = Self { address: address as usize, bytes };
        let is_empty = bytes == 0;
        let has_end = isize::try_from(bytes).is_ok() && region.address.checked_add(bytes).is_some();
        let is_aligned = region.address.is_multiple_of(alignment);
        if is_empty || region.address != 0 && has_end && is_aligned { Ok(region) } else { Err(broken()) }
    }

    /// The words of a frame with its interrupt.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for fewer words than every frame has.
    pub fn of_frame(address: i64, words: usize) -> Result<Self> {
        let bytes = words.checked_mul(size_of::<i64>()).ok_or_else(broken)?;
        if words > HEAD { Self::new(address, bytes, align_of::<i64>()) } else { Err(broken()) }
    }

    /// Fails if the regions have a byte in common, so that one could be written while the other is read.
    ///
    /// # Errors
    /// `Internal`.
    pub fn apart_from(self, other: Self) -> Result<()> {
        let ends_before = |a: Self, b: Self| a.address.saturating_add(a.bytes) <= b.address;
        let is_empty = self.bytes == 0 || other.bytes == 0;
        if is_empty || ends_before(self, other) || ends_before(other, self) { Ok(()) } else { Err(broken()) }
    }
}

/// All words but that of the interrupt.
#[derive(Debug)]
pub struct Frame<'f>(pub &'f mut [i64]);

fn broken() -> Problem {
    Problem::new(Code::Internal, "the frame of a call contradicts itself")
}

fn size(word: i64) -> Result<usize> {
    usize::try_from(word).map_err(|_| broken())
}

impl Frame<'_> {
    /// Address and size of the memory for outputs.
    pub fn room(&self) -> Result<(i64, usize)> {
        match *self.0 {
            [_, address, size, ..] => Ok((address, self::size(size)?)),
            _ => Err(broken()),
        }
    }

    /// Reads the inputs. `bytes` gives the memory of tensors, `dims` keeps their sizes.
    pub fn inputs<'a>(
        &self,
        texts: &'a [String],
        dims: &'a mut Vec<usize>,
        bytes: impl Fn(Lent) -> Result<&'a [u8]>,
    ) -> Result<Vec<Input<'a>>> {
        dims.clear();
        let mut words = Words(self.0);
        let count = size(words.next()?)?;
        words.skip(HEAD - 1)?;
        let mut values = words;
        for _ in 0..count {
            if words.next()? == tag::TENSOR {
                words.skip(3)?;
                let rank = size(words.next()?)?;
                for _ in 0..rank {
                    dims.push(size(words.next()?)?);
                }
            } else {
                words.skip(1)?;
            }
        }
        let mut dims = &dims[..];
        let mut inputs = Vec::with_capacity(count);
        for _ in 0..count {
            let (tag, word) = (values.next()?, values.next()?);
            inputs.push(match tag {
                tag::NONE => Input::None,
                tag::INT => Input::Int(word),
                tag::DOUBLE => Input::Double(f64::from_bits(word.cast_unsigned())),
                tag::BOOL => Input::Bool(word != 0),
                tag::STRING => Input::String(texts.get(size(word)?).ok_or_else(broken)?),
                tag::TENSOR => {
                    let dtype = u8::try_from(word)
                        .ok()
                        .and_then(ScalarType::from_code)
                        .ok_or_else(|| Problem::new(Code::InvalidType, format!("there is no element type {word}")))?;
                    let lent = Lent { address: values.next()?, nbytes: size(values.next()?)? };
                    let rank = size(values.next()?)?;
                    values.skip(rank)?;
                    let sizes = dims.split_off(..rank).ok_or_else(broken)?;
                    TensorView::new(dtype, sizes, bytes(lent)?)?.into()
                }
                _ => return Err(broken()),
            });
        }
        Ok(inputs)
    }

    /// Writes the outputs: tensors that fit to `room`, the others and strings by `keep`, which returns the index of an object.
    pub fn write(
        &mut self,
        outputs: &Outputs<'_, '_>,
        room: &mut [u8],
        mut keep: impl FnMut(Kept<'_>) -> Result<usize>,
    ) -> Result<()> {
        let [count, _, used, values @ ..] = &mut *self.0 else { return Err(broken()) };
        *count = i64::try_from(outputs.len()).map_err(|_| broken())?;
        let mut end = 0;
        let mut values = values.iter_mut();
        let mut put = |word: i64| -> Result<()> {
            *values.next().ok_or_else(broken)? = word;
            Ok(())
        };
        for index in 0..outputs.len() {
            let (tag, word) = match outputs.get(index)? {
                Output::None => (tag::NONE, 0),
                Output::Int(value) => (tag::INT, value),
                Output::Double(value) => (tag::DOUBLE, value.to_bits().cast_signed()),
                Output::Bool(value) => (tag::BOOL, value.into()),
                Output::String(text) => (tag::STRING, keep(Kept::Text(index, text))? as i64),
                Output::Tensor(tensor) => {
                    let nbytes = tensor.numel() * tensor.dtype().size();
                    let place = match room.get_mut(end..).and_then(|room| room.get_mut(..nbytes)) {
                        Some(room) => {
                            copy(&tensor, room)?;
                            let place = end as i64;
                            end += nbytes.next_multiple_of(ALIGNMENT);
                            place
                        }
                        None => -1 - keep(Kept::Tensor(index, &tensor, nbytes))? as i64,
                    };
                    put(tag::TENSOR)?;
                    put(tensor.dtype().code().into())?;
                    put(place)?;
                    put(nbytes as i64)?;
                    put(tensor.rank() as i64)?;
                    for size in tensor.sizes() {
                        put(*size as i64)?;
                    }
                    continue;
                }
            };
            put(tag)?;
            put(word)?;
        }
        *used = end.min(room.len()) as i64;
        Ok(())
    }
}

/// An output that becomes an object, with its index.
#[derive(Debug)]
pub enum Kept<'a> {
    Text(usize, &'a str),
    /// A tensor with its bytes.
    Tensor(usize, &'a Tensor<'a>, usize),
}

/// Copies a tensor of any strides, row-major.
pub fn copy(tensor: &Tensor<'_>, to: &mut [u8]) -> Result<()> {
    if tensor.is_contiguous() {
        to.copy_from_slice(tensor.bytes());
    } else {
        TensorView::strided(tensor.dtype(), tensor.sizes(), tensor.strides(), tensor.bytes())?.copy_to_row_major(to);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Words<'a>(&'a [i64]);

impl Words<'_> {
    fn next(&mut self) -> Result<i64> {
        self.0.split_off_first().copied().ok_or_else(broken)
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        self.0.split_off(..count).map(|_| ()).ok_or_else(broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_no_buffer_has_are_refused() {
        for (address, bytes, alignment) in
            [(0, 1, 1), (4, 8, 8), (-4, 8, 4), (16, usize::MAX, 1), (8, isize::MAX as usize + 1, 8)]
        {
            assert!(Region::new(address, bytes, alignment).is_err(), "{address} {bytes} {alignment}");
        }
        assert!(Region::new(0, 0, 8).is_ok() && Region::new(16, 8, 8).is_ok());
        assert!(Region::of_frame(16, HEAD).is_err() && Region::of_frame(16, HEAD + 1).is_ok());
        assert!(Region::of_frame(16, usize::MAX).is_err() && Region::of_frame(12, HEAD + 1).is_err());
    }

    #[test]
    fn regions_that_overlap_are_refused() {
        let region = |address, bytes| Region::new(address, bytes, 1).unwrap();
        for (other, is_apart) in [((8, 8), true), ((8, 9), false), ((20, 1), false), ((24, 4), true), ((16, 0), true)] {
            let other = region(other.0, other.1);
            assert_eq!(region(16, 8).apart_from(other).is_ok(), is_apart, "{other:?}");
            assert_eq!(other.apart_from(region(16, 8)).is_ok(), is_apart, "{other:?}");
        }
    }

    /// Words of any values are inputs or an error.
    #[test]
    fn frames_of_any_words_are_read_or_refused() {
        let texts = ["a".to_owned()];
        for seed in 0..20_000_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 33) % below
            };
            let mut words: Vec<i64> = (0..next(24))
                .map(|_| match next(8) {
                    0 => i64::MIN,
                    1 => i64::MAX,
                    2 => -1,
                    _ => next(7) as i64,
                })
                .collect();
            let frame = Frame(&mut words);
            let _ = frame.room();
            let _ = frame.inputs(&texts, &mut Vec::new(), |lent| {
                Region::new(lent.address, lent.nbytes, 1)?;
                Ok(&[])
            });
        }
    }
}
