//! NumPy's `.npy` and `.npz` files (NEP 1, format versions 1 to 3).

use std::fmt;
use std::io::{Cursor, Read, Seek, Write};

use rushlight::{ScalarType, Tensor};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Maximum bytes of the arrays of a compressed archive, unless [`MAX_RATIO`] allows more.
pub const MAX_EXPANDED: u64 = 256 << 20;

/// Maximum ratio of the arrays' bytes to those of the archive, for larger archives.
pub const MAX_RATIO: u64 = 64;

/// The reason why a `.npy` or `.npz` file could not be read or written.
#[derive(Debug)]
pub enum NpyError {
    /// The bytes violate the format; the text says how.
    Malformed(String),
    /// An element type or byte order that tensors do not support.
    UnsupportedType(String),
    Io(std::io::Error),
    Tensor(rushlight::Error),
}

impl fmt::Display for NpyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "not a well-formed array file: {what}"),
            Self::UnsupportedType(descr) => write!(f, "arrays of type {descr} are not supported"),
            Self::Io(error) => error.fmt(f),
            Self::Tensor(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NpyError {}

impl From<std::io::Error> for NpyError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rushlight::Error> for NpyError {
    fn from(error: rushlight::Error) -> Self {
        Self::Tensor(error)
    }
}

fn malformed<T>(what: impl Into<String>) -> Result<T, NpyError> {
    Err(NpyError::Malformed(what.into()))
}

/// Reads one array. Fortran order is converted to row-major.
pub fn read(bytes: &[u8]) -> Result<Tensor, NpyError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else { return malformed("it does not start with \\x93NUMPY") };
    let Some((&[major, _minor], rest)) = rest.split_first_chunk::<2>() else {
        return malformed("it ends in the header");
    };
    let (len, rest) = match (major, rest) {
        (1, [a, b, rest @ ..]) => (u16::from_le_bytes([*a, *b]) as usize, rest),
        (2 | 3, [a, b, c, d, rest @ ..]) => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return malformed(format!("format version {major} is unknown")),
    };
    let Some((header, data)) = rest.split_at_checked(len) else { return malformed("it ends in the header") };
    let Ok(header) = std::str::from_utf8(header) else { return malformed("the header is not text") };
    let Header { descr, fortran_order: fortran, shape } = match Header::parse(header) {
        Ok(header) => header,
        Err(expected) => {
            return malformed(format!("the header is not a dictionary as NumPy writes it: expected {expected}"));
        }
    };
    let Some(dtype) = dtype_of(descr) else { return Err(NpyError::UnsupportedType(descr.to_owned())) };
    let nbytes = shape.iter().try_fold(dtype.size(), |n, &size| n.checked_mul(size));
    let Some(data) = nbytes.and_then(|n| data.get(..n)) else { return malformed("it ends in the data") };
    if !fortran {
        return Ok(Tensor::from_bytes(dtype, &shape, data)?);
    }
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1usize;
    for &size in &shape {
        strides.push(stride);
        stride = stride.saturating_mul(size);
    }
    let view = rushlight::TensorView::strided(dtype, &shape, &strides, data).map_err(rushlight::Error::from)?;
    Ok(Tensor::copy_of(&view)?)
}

/// The dictionary before the elements of an array.
struct Header<'a> {
    descr: &'a str,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl<'a> Header<'a> {
    /// Parses a Python literal with exactly the three keys, each once, as NumPy demands.
    ///
    /// # Errors
    /// The expected text.
    fn parse(text: &'a str) -> Result<Self, &'static str> {
        let mut literal = Literal { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        literal.expect('{', "`{`")?;
        while !literal.eat('}') {
            let key = literal.string()?;
            literal.expect(':', "`:` after a key")?;
            let is_first = match key {
                "descr" => descr.replace(literal.descr()?).is_none(),
                "fortran_order" => fortran_order.replace(literal.bool()?).is_none(),
                "shape" => shape.replace(literal.sizes()?).is_none(),
                _ => return Err("the keys descr, fortran_order and shape"),
            };
            if !is_first {
                return Err("each key once");
            }
            if !literal.eat(',') {
                literal.expect('}', "`,` or `}`")?;
                break;
            }
        }
        literal.spaces();
        if !literal.rest.is_empty() {
            return Err("nothing behind the dictionary");
        }
        let header = descr.zip(fortran_order).zip(shape);
        let ((descr, fortran_order), shape) = header.ok_or("the keys descr, fortran_order and shape")?;
        Ok(Self { descr, fortran_order, shape })
    }
}

/// Parser of Python literals; `rest` is the unread text.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: char) -> bool {
        self.spaces();
        self.rest.strip_prefix(token).map(|rest| self.rest = rest).is_some()
    }

    fn expect(&mut self, token: char, what: &'static str) -> Result<(), &'static str> {
        if self.eat(token) { Ok(()) } else { Err(what) }
    }

    /// A string without escapes.
    fn string(&mut self) -> Result<&'a str, &'static str> {
        self.spaces();
        let quote = self.rest.chars().next().filter(|quote| matches!(quote, '\'' | '"')).ok_or("a string")?;
        let (text, rest) = self.rest.get(1..).and_then(|rest| rest.split_once(quote)).ok_or("the end of a string")?;
        self.rest = rest;
        if text.contains('\\') { Err("a string without escapes") } else { Ok(text) }
    }

    /// Parses the element type: a string. A list of fields is returned as text, which is not a supported type.
    fn descr(&mut self) -> Result<&'a str, &'static str> {
        self.spaces();
        if !self.rest.starts_with('[') {
            return self.string();
        }
        let end = self.rest.rfind(']').ok_or("the end of a list")?;
        let (fields, rest) = self.rest.split_at_checked(end + 1).ok_or("the end of a list")?;
        self.rest = rest;
        Ok(fields)
    }

    fn word(&mut self) -> &'a str {
        self.spaces();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or_default();
        self.rest = rest;
        word
    }

    fn bool(&mut self) -> Result<bool, &'static str> {
        match self.word() {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err("True or False"),
        }
    }

    fn sizes(&mut self) -> Result<Vec<usize>, &'static str> {
        let mut sizes = Vec::new();
        self.expect('(', "a tuple of sizes")?;
        while !self.eat(')') {
            // Python 2 wrote long integers with the suffix L.
            let size = self.word();
            sizes.push(size.strip_suffix('L').unwrap_or(size).parse().map_err(|_| "a tuple of sizes")?);
            if !self.eat(',') {
                // A number in parentheses without a comma is not a tuple.
                if sizes.len() == 1 {
                    return Err("`,` after a single size");
                }
                self.expect(')', "`,` or `)`")?;
                break;
            }
        }
        Ok(sizes)
    }
}

fn dtype_of(descr: &str) -> Option<ScalarType> {
    Some(match descr {
        "|b1" => ScalarType::Bool,
        "|u1" => ScalarType::Byte,
        "|i1" => ScalarType::Char,
        "<i2" => ScalarType::Short,
        "<i4" => ScalarType::Int,
        "<i8" => ScalarType::Long,
        "<u2" => ScalarType::UInt16,
        "<u4" => ScalarType::UInt32,
        "<u8" => ScalarType::UInt64,
        "<f2" => ScalarType::Half,
        "<f4" => ScalarType::Float,
        "<f8" => ScalarType::Double,
        "<c8" => ScalarType::ComplexFloat,
        "<c16" => ScalarType::ComplexDouble,
        _ => return None,
    })
}

/// NumPy's name of an element type. bfloat16, which NumPy lacks, is written as the `uint16` with the same bits.
fn descr_of(dtype: ScalarType) -> Option<&'static str> {
    Some(match dtype {
        ScalarType::Bool => "|b1",
        ScalarType::Byte => "|u1",
        ScalarType::Char => "|i1",
        ScalarType::Short => "<i2",
        ScalarType::Int => "<i4",
        ScalarType::Long => "<i8",
        ScalarType::UInt16 | ScalarType::BFloat16 => "<u2",
        ScalarType::UInt32 => "<u4",
        ScalarType::UInt64 => "<u8",
        ScalarType::Half => "<f2",
        ScalarType::Float => "<f4",
        ScalarType::Double => "<f8",
        ScalarType::ComplexFloat => "<c8",
        ScalarType::ComplexDouble => "<c16",
        _ => return None,
    })
}

/// Writes one array in format version 1, row-major. bfloat16 becomes `uint16` with the same bits.
pub fn write(tensor: &Tensor, out: &mut impl Write) -> Result<(), NpyError> {
    let Some(descr) = descr_of(tensor.dtype()) else {
        return Err(NpyError::UnsupportedType(tensor.dtype().name().to_owned()));
    };
    let mut shape = String::new();
    for size in tensor.shape() {
        shape.push_str(&format!("{size}, "));
    }
    let shape = if tensor.shape().len() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data starts at a multiple of 64 bytes; the header ends with a line feed.
    let padding = 63 - (MAGIC.len() + 4 + header.len()) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    out.write_all(tensor.bytes())?;
    Ok(())
}

/// Reads every array of an `.npz` archive, with its name, in the archive's order. Compressed arrays may take
/// [`MAX_EXPANDED`] bytes together, or [`MAX_RATIO`] times the bytes of the archive.
pub fn read_archive(bytes: &[u8]) -> Result<Vec<(String, Tensor)>, NpyError> {
    read_archive_within(bytes, MAX_EXPANDED.max(MAX_RATIO.saturating_mul(bytes.len() as u64)))
}

/// Reads an archive whose arrays take at most `limit` bytes together.
fn read_archive_within(bytes: &[u8], limit: u64) -> Result<Vec<(String, Tensor)>, NpyError> {
    let zip = |error: zip::result::ZipError| NpyError::Malformed(error.to_string());
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(zip)?;
    // An archive keeps one entry of each name; the others would be lost silently.
    if entry_count(bytes).is_some_and(|count| count != archive.len()) {
        return malformed("several entries have the same name");
    }
    let mut arrays = Vec::new();
    let mut left = limit;
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(zip)?;
        let name = entry.name().map_err(zip)?.trim_end_matches(".npy").to_owned();
        let mut data = Vec::new();
        // The size in the directory may be wrong.
        (&mut entry).take(left.saturating_add(1)).read_to_end(&mut data)?;
        left = left.checked_sub(data.len() as u64).ok_or_else(|| {
            let got = format!("`{name}` takes the arrays beyond {limit} bytes");
            NpyError::Malformed(format!("{got}, from {} compressed ones: save it by numpy.savez", bytes.len()))
        })?;
        arrays.push((name, read(&data)?));
    }
    Ok(arrays)
}

/// Reads the number of entries from the end record of an archive; `None` if it is missing or in the Zip64 record.
fn entry_count(bytes: &[u8]) -> Option<usize> {
    const END: &[u8] = b"PK\x05\x06";
    let tail = bytes.get(bytes.len().saturating_sub(usize::from(u16::MAX) + 22)..)?;
    let at = tail.windows(END.len()).rposition(|window| window == END)?;
    let count = u16::from_le_bytes(*tail.get(at + 10..)?.first_chunk()?);
    (count != u16::MAX).then_some(count.into())
}

/// Writes an `.npz` archive, uncompressed as `numpy.savez` does.
pub fn write_archive<'a>(
    arrays: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    out: impl Write + Seek,
) -> Result<(), NpyError> {
    let zip = |error: zip::result::ZipError| NpyError::Io(error.into());
    let mut archive = zip::ZipWriter::new(out);
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, tensor) in arrays {
        archive.start_file(format!("{name}.npy"), options).map_err(zip)?;
        write(tensor, &mut archive)?;
    }
    archive.finish().map_err(zip)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_survive_a_round_trip() {
        for shape in [&[][..], &[3], &[2, 3], &[0, 4], &[1, 2, 3]] {
            let count = shape.iter().product::<usize>();
            let values: Vec<f32> = (0..count).map(|i| i as f32 - 0.5).collect();
            let tensor = Tensor::of(shape, &values).expect("the shape fits");
            let mut file = Vec::new();
            write(&tensor, &mut file).expect("memory can be written");
            assert_eq!((file.len() - tensor.bytes().len()) % 64, 0);
            let back = read(&file).expect("it was just written");
            assert_eq!((back.shape(), back.dtype(), back.bytes()), (shape, ScalarType::Float, tensor.bytes()));
        }
    }

    #[test]
    fn fortran_order_is_converted() {
        let header = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n";
        let mut file = [&MAGIC[..], &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
        file.extend([1i16, 4, 2, 5, 3, 6].iter().flat_map(|v| v.to_le_bytes()));
        let tensor = read(&file).expect("well-formed");
        assert_eq!(tensor.as_slice::<i16>().expect("shorts"), [1, 2, 3, 4, 5, 6]);
    }

    /// A deflated archive with an entry for each name and content.
    fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        for (name, content) in entries {
            archive.start_file(*name, options).expect("a new entry");
            archive.write_all(content).expect("memory can be written");
        }
        archive.finish().expect("memory can be written").into_inner()
    }

    #[test]
    fn compressed_arrays_take_a_bounded_amount_of_memory() {
        let mut file = Vec::new();
        write(&Tensor::of(&[50_000], &vec![0f32; 50_000]).expect("fits"), &mut file).expect("memory can be written");
        let bytes = archive(&[("a.npy", &file), ("b.npy", &file)]);
        assert!(bytes.len() < 5000);
        assert_eq!(read_archive(&bytes).expect("within the limit").len(), 2);
        let limit = 2 * file.len() as u64;
        assert!(read_archive_within(&bytes, limit).is_ok());
        let error = read_archive_within(&bytes, limit - 1).expect_err("beyond the limit").to_string();
        assert!(error.contains("`b`") && error.contains("numpy.savez"), "{error}");
    }

    #[test]
    fn entries_of_one_name_are_refused() {
        let mut file = Vec::new();
        write(&Tensor::of(&[1], &[1f32]).expect("fits"), &mut file).expect("memory can be written");
        let mut bytes = archive(&[("a.npy", &file), ("b.npy", &file)]);
        for at in 0..bytes.len() - 4 {
            if &bytes[at..at + 5] == b"b.npy" {
                bytes[at] = b'a';
            }
        }
        let error = read_archive(&bytes).expect_err("two arrays of one name").to_string();
        assert!(error.contains("same name"), "{error}");
    }

    #[test]
    fn headers_are_read_as_numpy_does() {
        let file = |header: &str| {
            let len = (header.len() as u16).to_le_bytes();
            read(&[&MAGIC[..], &[1, 0], &len, header.as_bytes(), &[0; 64]].concat())
        };
        let good = [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }",
            "{\"shape\":(2,),'fortran_order':True,'descr':\"<f4\"}  \n",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,)}",
        ];
        for header in good {
            assert_eq!(file(header).expect(header).bytes().len(), 8, "{header}");
        }
        let bad = [
            "{'descr': '<f4', 'descr': '<i8', 'fortran_order': False, 'shape': (1,)}",
            "{'x': \"'descr': '<f4'\", 'descr': '<i8', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} ()",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
            "{'descr': '<f\\x34', 'fortran_order': False, 'shape': (1,)}",
        ];
        for header in bad {
            assert!(matches!(file(header), Err(NpyError::Malformed(_))), "{header}");
        }
        let fields = file("{'descr': [('a', '<f4'), ('b', '<i8')], 'fortran_order': False, 'shape': (1,)}");
        assert!(fields.is_err_and(|error| error.to_string().contains("[('a', '<f4'), ('b', '<i8')]")));
    }

    #[test]
    fn broken_files_are_errors() {
        let mut file = Vec::new();
        write(&Tensor::of(&[4], &[1i64, 2, 3, 4]).expect("fits"), &mut file).expect("memory can be written");
        for len in 0..file.len() {
            assert!(read(&file[..len]).is_err(), "{len} bytes");
        }
        assert!(matches!(read(&[MAGIC, &[9, 0, 0, 0][..]].concat()), Err(NpyError::Malformed(_))));
    }
}
