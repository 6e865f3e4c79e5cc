//! The container of llama.cpp: metadata, the table of tensors, and their data, which stays in the mapped file.

use std::ops::Range;

use indexmap::IndexMap;

use rushlight_graph::{Bytes, Error};

use crate::blocks::Block;
use crate::tensors::{Encoding, Tensor, Tensors, damaged};

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    /// A list of numbers or truth values.
    Numbers(Vec<f64>),
    /// A list of texts, such as a vocabulary. Bytes that are no UTF-8 are U+FFFD.
    Texts(Vec<String>),
}

/// Values by their keys, in the order of the file.
pub type Metadata = IndexMap<String, Value>;

/// Reads the metadata of a file, of which `bytes` are the beginning at least: the vocabulary is there, and no weights are needed.
///
/// # Errors
/// `Input` for a file that is damaged or cut off before the end of the metadata, `Unsupported` for other versions.
pub fn read_metadata(bytes: &[u8]) -> Result<Metadata, Error> {
    let mut cursor = Cursor { bytes, at: 0 };
    cursor.header().map(|(metadata, _)| metadata)
}

/// The key of the vocabulary.
const VOCABULARY: &str = "tokenizer.ggml.tokens";

/// The metadata of a file as one without tensors, which tokenizers are read from; `None` if there is no vocabulary.
///
/// # Errors
/// As [`read_metadata`].
pub fn vocabulary(bytes: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut cursor = Cursor { bytes, at: 0 };
    let (metadata, _) = cursor.header()?;
    if !metadata.contains_key(VOCABULARY) {
        return Ok(None);
    }
    let mut file = bytes.get(..cursor.at).unwrap_or_default().to_vec();
    if let Some(tensors) = file.get_mut(TENSOR_COUNT) {
        tensors.fill(0);
    }
    Ok(Some(file))
}

/// The bytes of the header with the number of tensors.
const TENSOR_COUNT: Range<usize> = 8..16;

/// A parsed file.
#[derive(Debug)]
pub struct Gguf {
    pub metadata: Metadata,
    pub tensors: Tensors,
}

/// Maximum number of dimensions of a tensor.
const MAX_DIMS: u32 = 4;
/// Maximum bytes of a name.
const MAX_NAME: u64 = 1 << 16;
/// Alignment of tensors, unless the file has another.
const ALIGNMENT: u64 = 32;

/// A tensor as the table has it.
struct TensorEntry {
    name: String,
    /// The first varies slowest.
    sizes: Vec<usize>,
    encoding: Encoding,
    offset: u64,
}

impl Gguf {
    /// Parses a file.
    ///
    /// # Errors
    /// `Input` for a file that is damaged, `Unsupported` for other versions and types.
    pub fn parse(bytes: &Bytes) -> Result<Self, Error> {
        let mut cursor = Cursor { bytes, at: 0 };
        let (metadata, tensors) = cursor.header()?;
        let mut entries = Vec::new();
        for _ in 0..tensors {
            entries.push(cursor.entry()?);
        }
        let alignment = match metadata.get("general.alignment") {
            None => ALIGNMENT,
            Some(Value::Int(given)) => u64::try_from(*given).unwrap_or(0),
            Some(_) => 0,
        };
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            return Err(damaged("`general.alignment` is no power of two up to 2^20"));
        }
        let start = (cursor.at as u64).next_multiple_of(alignment);
        Ok(Self { metadata, tensors: place(entries, bytes, start, alignment)? })
    }
}

/// The tensors with their data, which begins at `start`.
fn place(mut entries: Vec<TensorEntry>, bytes: &Bytes, start: u64, alignment: u64) -> Result<Tensors, Error> {
    entries.sort_by_key(|entry| entry.offset);
    let mut tensors = Tensors::default();
    let mut end = 0;
    for TensorEntry { name, sizes, encoding, offset } in entries {
        let elements = sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        let size = elements.and_then(|elements| encoding.bytes(elements)).map(|size| size as u64);
        let last = size.and_then(|size| offset.checked_add(size));
        let (Some(last), true) = (last, offset.is_multiple_of(alignment) && offset >= end) else {
            return Err(damaged(format!("tensor `{name}` lies where none can"))
                .expected(format!("a multiple of {alignment} from {end} on, and whole blocks"))
                .got(format!("byte {offset}, sizes {sizes:?}")));
        };
        let place = |at: u64| usize::try_from(start.checked_add(at)?).ok();
        let data = place(offset).zip(place(last)).and_then(|(from, to)| bytes.slice(from..to));
        let Some(data) = data else {
            return Err(damaged(format!("tensor `{name}` is cut off"))
                .expected(format!("a file of at least {} bytes", start.saturating_add(last)))
                .got(format!("{} bytes", bytes.len()))
                .help("copy or download the file again"));
        };
        tensors.add(Tensor::new(name, sizes, encoding, data)?)?;
        end = last;
    }
    Ok(tensors)
}

/// Reads one value after the other.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| {
            damaged("the GGUF file ends too early")
                .got(format!("{} bytes", self.bytes.len()))
                .help("copy or download the file again")
        })?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.take(N)?.try_into().map_err(|_| damaged("the GGUF file ends too early"))
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// The metadata, and the number of tensors.
    fn header(&mut self) -> Result<(Metadata, u64), Error> {
        if self.take(4)? != b"GGUF" {
            return Err(damaged("the file is no GGUF model"));
        }
        let version = self.u32()?;
        if !matches!(version, 2 | 3) {
            let big_endian = version.swap_bytes() <= 3;
            return Err(Error::unsupported(if big_endian {
                "a GGUF file of big-endian numbers".to_owned()
            } else {
                format!("version {version} of GGUF")
            })
            .expected("version 2 or 3, little-endian"));
        }
        let (tensors, values) = (self.u64()?, self.u64()?);
        let mut metadata = IndexMap::new();
        for _ in 0..values {
            let key = self.text(MAX_NAME)?;
            let kind = self.u32()?;
            let value = self.value(kind).map_err(|error| error.at(format!("metadata `{key}`")))?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(damaged(format!("the metadata has `{key}` twice")));
            }
        }
        Ok((metadata, tensors))
    }

    /// A text of at most `max` bytes.
    fn text(&mut self, max: u64) -> Result<String, Error> {
        let length = self.u64()?;
        let length = usize::try_from(length).ok().filter(|_| length <= max);
        let length = length.ok_or_else(|| damaged("a name of the GGUF file is too long").expected(max))?;
        let text = std::str::from_utf8(self.take(length)?);
        text.map(ToOwned::to_owned).map_err(|_| damaged("a name of the GGUF file is no UTF-8"))
    }

    fn value(&mut self, kind: u32) -> Result<Value, Error> {
        Ok(match kind {
            6 => Value::Float(f64::from(f32::from_le_bytes(self.array()?))),
            7 => Value::Bool(self.array::<1>()? != [0]),
            8 => Value::Text(self.text(u64::MAX)?),
            9 => self.list()?,
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            kind => Value::Int(self.integer(kind)?),
        })
    }

    fn integer(&mut self, kind: u32) -> Result<i64, Error> {
        Ok(match kind {
            0 => i64::from(u8::from_le_bytes(self.array()?)),
            1 => i64::from(i8::from_le_bytes(self.array()?)),
            2 => i64::from(u16::from_le_bytes(self.array()?)),
            3 => i64::from(i16::from_le_bytes(self.array()?)),
            4 => i64::from(self.u32()?),
            5 => i64::from(i32::from_le_bytes(self.array()?)),
            10 => i64::try_from(self.u64()?).map_err(|_| damaged("a number of the GGUF file is beyond 2^63"))?,
            11 => i64::from_le_bytes(self.array()?),
            other => return Err(damaged(format!("the GGUF file has a value of the unknown kind {other}"))),
        })
    }

    fn list(&mut self) -> Result<Value, Error> {
        let (kind, count) = (self.u32()?, self.u64()?);
        let width: u64 = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            8 => {
                let mut texts = Vec::new();
                for _ in 0..count {
                    let length = self.u64()?;
                    let length = usize::try_from(length).map_err(|_| damaged("a text of the GGUF file is too long"))?;
                    texts.push(String::from_utf8_lossy(self.take(length)?).into_owned());
                }
                return Ok(Value::Texts(texts));
            }
            other => return Err(damaged(format!("the GGUF file has a list of the kind {other}"))),
        };
        let left = (self.bytes.len() - self.at) as u64;
        if count.checked_mul(width).is_none_or(|bytes| bytes > left) {
            return Err(damaged("a list of the GGUF file is longer than the file"));
        }
        let number = |_| {
            Ok(match self.value(kind)? {
                Value::Int(int) => int as f64,
                Value::Float(float) => float,
                Value::Bool(bool) => f64::from(u8::from(bool)),
                _ => 0.0,
            })
        };
        (0..count).map(number).collect::<Result<_, _>>().map(Value::Numbers)
    }

    fn entry(&mut self) -> Result<TensorEntry, Error> {
        let name = self.text(MAX_NAME)?;
        let dims = self.u32()?;
        if dims > MAX_DIMS {
            return Err(damaged(format!("tensor `{name}` has {dims} dimensions")).expected(format!("up to {MAX_DIMS}")));
        }
        let mut sizes = Vec::new();
        for _ in 0..dims {
            let size = usize::try_from(self.u64()?).ok().filter(|size| isize::try_from(*size).is_ok());
            sizes.push(size.ok_or_else(|| damaged(format!("tensor `{name}` is too large")))?);
        }
        // The first dimension of ggml varies fastest.
        sizes.reverse();
        let encoding = match self.u32()? {
            0 => Encoding::F32,
            1 => Encoding::F16,
            2 => Encoding::Block(Block::Q4_0),
            3 => Encoding::Block(Block::Q4_1),
            6 => Encoding::Block(Block::Q5_0),
            7 => Encoding::Block(Block::Q5_1),
            8 => Encoding::Block(Block::Q8_0),
            12 => Encoding::Block(Block::Q4K),
            13 => Encoding::Block(Block::Q5K),
            14 => Encoding::Block(Block::Q6K),
            30 => Encoding::Bf16,
            other => {
                return Err(Error::unsupported(format!("tensor `{name}` is of ggml's type {other}"))
                    .expected("F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K"));
            }
        };
        Ok(TensorEntry { name, sizes, encoding, offset: self.u64()? })
    }
}
