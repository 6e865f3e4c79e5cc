//! NumPy's `.npy` and `.npz` files (NEP 1, format versions 1 to 3).

use std::fmt;
use std::io::{Cursor, Read, Seek, Write};

use rushlight::{ScalarType, Tensor};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Why a `.npy` or `.npz` file could not be read or written.
#[derive(Debug)]
pub enum NpyError {
    /// The bytes are not what the format says: what was wrong.
    Malformed(String),
    /// An element type or byte order that tensors do not have.
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
    let descr = field(header, "'descr':").map(|text| text.trim_start().trim_start_matches(['\'', '"']));
    let Some(descr) = descr.and_then(|text| text.split(['\'', '"']).next()) else { return malformed("no descr") };
    let fortran = field(header, "'fortran_order':").is_some_and(|text| text.trim_start().starts_with("True"));
    let shape = field(header, "'shape':").and_then(|text| text.trim_start().strip_prefix('('));
    let Some(shape) = shape.and_then(|text| text.split(')').next()) else { return malformed("no shape") };
    let shape: Result<Vec<usize>, _> =
        shape.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse::<usize>).collect();
    let Ok(shape) = shape else { return malformed("the shape is not a tuple of sizes") };
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

fn field<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    header.find(key).and_then(|at| header.get(at + key.len()..))
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

/// Reads every array of an `.npz` archive, with its name, in the archive's order.
pub fn read_archive(bytes: &[u8]) -> Result<Vec<(String, Tensor)>, NpyError> {
    let zip = |error: zip::result::ZipError| NpyError::Malformed(error.to_string());
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(zip)?;
    let mut arrays = Vec::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(zip)?;
        let name = entry.name().map_err(zip)?.trim_end_matches(".npy").to_owned();
        let mut data = Vec::new();
        entry.read_to_end(&mut data)?;
        arrays.push((name, read(&data)?));
    }
    Ok(arrays)
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
