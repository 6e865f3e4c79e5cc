//! Constants: tensors with content that is known at compile time.

mod quantized;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rushlight_format::Make;

use crate::Bytes;
use crate::Error;
use crate::gather::{self, gather};
use crate::types::TensorType;

pub use quantized::QuantizedConstant;
pub(crate) use quantized::integers;

/// A tensor with its content.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The name of the parameter or buffer in the PyTorch module, or of the one that this constant was computed from.
    pub name: String,
    /// The type, which is static. The content is contiguous.
    pub ty: TensorType,
    pub data: ConstantData,
}

/// The content of a constant. Strided content is gathered only when it is read.
#[derive(Clone)]
pub enum ConstantData {
    /// All elements are zero bytes.
    Zeros,
    /// The elements in row-major order.
    Dense(Bytes),
    /// Elements of a block of memory: element `[i, j, …]` is at `offset + i * strides[0] + j * strides[1] …`, counted
    /// in elements. PyTorch stores views this way. A transposed weight needs no copy.
    Strided { storage: Bytes, offset: usize, strides: Vec<usize> },
    /// Computed when it is read.
    Computed(Arc<dyn Computed>),
}

/// Content that is computed when it is needed and not kept. Large folded weights need no memory until they are written.
pub trait Computed: Send + Sync {
    /// Replaces the contents of `to` by the elements in row-major order.
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error>;

    /// Returns the content of a range of the first dimension, so that the rest need not be computed. `None` if only the
    /// whole can be computed.
    fn rows(&self, _rows: Range<usize>) -> Option<Arc<dyn Computed>> {
        None
    }

    /// Passes content of `f32` to `see`, a few whole rows of the first dimension at a time, so that it need not all be
    /// in memory.
    ///
    /// # Errors
    /// Those of [`compute`](Self::compute).
    fn for_floats(&self, see: &mut dyn FnMut(&[f32])) -> Result<(), Error> {
        let mut bytes = Vec::new();
        self.compute(&mut bytes)?;
        see(&floats_of(&bytes));
        Ok(())
    }

    /// The integers, if this is a quantized constant.
    fn quantized(&self) -> Option<&QuantizedConstant> {
        None
    }

    /// True if [`quantized`](Self::quantized) returns integers. Does not prepare them; preparing them may still fail.
    fn is_quantized(&self) -> bool {
        self.quantized().is_some()
    }

    /// Returns the constant that this content permutes, and the order of its dimensions.
    fn permuted(&self) -> Option<(&Constant, &[usize])> {
        None
    }
}

/// Reads bytes as `f32` elements.
fn floats_of(bytes: &[u8]) -> Cow<'_, [f32]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(floats) if cfg!(target_endian = "little") => Cow::Borrowed(floats),
        _ => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    }
}

/// Computed content with permuted dimensions.
struct Permuted {
    constant: Constant,
    dims: Vec<usize>,
    quantized: OnceLock<Option<QuantizedConstant>>,
}

impl Computed for Permuted {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        let Constant { name, ty, .. } = &self.constant;
        let dense = Constant { name: name.clone(), ty: ty.clone(), data: ConstantData::Dense(self.constant.read()?) };
        let permuted = dense.permuted(&self.dims);
        permuted.ok_or_else(|| Error::invalid(format!("`{name}` has other dimensions")))?.read_into(to)
    }

    fn quantized(&self) -> Option<&QuantizedConstant> {
        self.quantized.get_or_init(|| self.constant.quantized()?.in_order(&self.dims)).as_ref()
    }

    fn is_quantized(&self) -> bool {
        self.constant.is_quantized()
    }

    fn permuted(&self) -> Option<(&Constant, &[usize])> {
        Some((&self.constant, &self.dims))
    }
}

impl std::fmt::Debug for ConstantData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Zeros => f.write_str("Zeros"),
            Self::Dense(bytes) => write!(f, "Dense({} bytes)", bytes.len()),
            Self::Strided { strides, .. } => write!(f, "Strided({strides:?})"),
            Self::Computed(_) => f.write_str("Computed"),
        }
    }
}

impl Constant {
    /// Makes a constant of elements in row-major order.
    ///
    /// # Errors
    /// `InvalidProgram` unless the number of bytes is that of the type.
    pub fn dense(name: impl Into<String>, ty: TensorType, bytes: impl Into<Bytes>) -> Result<Self, Error> {
        let (name, bytes) = (name.into(), bytes.into());
        let constant = Self { name, ty, data: ConstantData::Zeros };
        if constant.len()? != bytes.len() {
            return Err(Error::invalid(format!("constant `{}` has the wrong size", constant.name))
                .expected(format!("{} bytes", constant.len()?))
                .got(format!("{} bytes", bytes.len())));
        }
        Ok(Self { data: ConstantData::Dense(bytes), ..constant })
    }

    /// The integers and their quantization, if it is a quantized constant.
    pub fn quantized(&self) -> Option<&QuantizedConstant> {
        match &self.data {
            ConstantData::Computed(computed) => computed.quantized(),
            _ => None,
        }
    }

    /// True if [`quantized`](Self::quantized) returns integers. Does not prepare them; preparing them may still fail.
    pub fn is_quantized(&self) -> bool {
        matches!(&self.data, ConstantData::Computed(computed) if computed.is_quantized())
    }

    /// The sizes.
    pub fn sizes(&self) -> Result<Vec<usize>, Error> {
        let sizes =
            self.ty.static_sizes().and_then(|sizes| sizes.into_iter().map(|size| usize::try_from(size).ok()).collect());
        sizes.ok_or_else(|| Error::invalid(format!("constant `{}` has no fixed size", self.name)))
    }

    /// Number of bytes.
    pub fn len(&self) -> Result<usize, Error> {
        let too_large = || Error::invalid(format!("constant `{}` is too large", self.name));
        let elements = self.sizes()?.iter().try_fold(1usize, |n, size| n.checked_mul(*size)).ok_or_else(too_large)?;
        elements.checked_mul(self.ty.dtype.size()).filter(|len| isize::try_from(*len).is_ok()).ok_or_else(too_large)
    }

    /// True if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len().is_ok_and(|len| len == 0)
    }

    /// The elements in row-major order. Shares memory if the content is already in that order.
    pub fn read(&self) -> Result<Bytes, Error> {
        if let Some(bytes) = self.in_place() {
            return Ok(bytes);
        }
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Replaces the contents of `to` by the elements in row-major order.
    fn read_into(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        match &self.data {
            ConstantData::Zeros => {
                to.clear();
                to.resize(self.len()?, 0);
            }
            ConstantData::Dense(bytes) => {
                to.clear();
                to.extend_from_slice(bytes);
            }
            ConstantData::Computed(computed) => computed.compute(to)?,
            ConstantData::Strided { storage, offset, strides } => {
                gather(storage, *offset, strides, &self.sizes()?, self.ty.dtype.size(), to)
                    .ok_or_else(|| Error::invalid(format!("constant `{}` reaches beyond its storage", self.name)))?;
            }
        }
        Ok(())
    }

    /// The elements of an `f32` constant in row-major order.
    pub fn floats(&self) -> Result<Vec<f32>, Error> {
        Ok(floats_of(&self.read()?).into_owned())
    }

    /// Passes the elements of an `f32` constant to `see` in row-major order, a few whole rows of the first dimension at
    /// a time.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn for_floats(&self, see: &mut dyn FnMut(&[f32])) -> Result<(), Error> {
        /// Elements that are passed at a time, if a row has fewer.
        const SHOWN: usize = 1 << 14;
        if let ConstantData::Computed(computed) = &self.data {
            return computed.for_floats(see);
        }
        let count = self.sizes()?.first().copied().unwrap_or(1);
        let row = (self.len()? / size_of::<f32>()).checked_div(count).unwrap_or(0);
        let step = SHOWN.checked_div(row).unwrap_or(count).max(1);
        for start in (0..count).step_by(step) {
            match self.rows(start..count.min(start + step)) {
                Some(rows) => see(&floats_of(&rows.read()?)),
                None => {
                    // The constant has no first dimension.
                    see(&floats_of(&self.read()?));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns a range of the first dimension as a constant, without a copy. `None` if the range is out of bounds or
    /// only the whole can be computed.
    pub fn rows(&self, rows: Range<usize>) -> Option<Self> {
        let sizes = self.sizes().ok()?;
        let first = *sizes.first()?;
        if rows.start > rows.end || rows.end > first {
            return None;
        }
        let mut ty = self.ty.clone();
        *ty.shape.first_mut()? = (rows.len() as i64).into();
        let strided = |storage: &Bytes, offset: usize, strides: Vec<usize>| {
            let offset = rows.start.checked_mul(*strides.first()?)?.checked_add(offset)?;
            Some(ConstantData::Strided { storage: storage.clone(), offset, strides })
        };
        let data = match &self.data {
            ConstantData::Zeros => ConstantData::Zeros,
            ConstantData::Dense(bytes) => strided(bytes, 0, row_major_strides(&sizes))?,
            ConstantData::Strided { storage, offset, strides } => strided(storage, *offset, strides.clone())?,
            ConstantData::Computed(computed) => ConstantData::Computed(computed.rows(rows)?),
        };
        Some(Self { name: self.name.clone(), ty, data })
    }

    /// Borrows the elements, if they are already stored in row-major order.
    pub fn in_place(&self) -> Option<Bytes> {
        match &self.data {
            ConstantData::Dense(bytes) => Some(bytes.clone()),
            ConstantData::Strided { storage, .. } => storage.slice(self.dense_range()?),
            ConstantData::Zeros | ConstantData::Computed(_) => None,
        }
    }

    /// Range of a strided constant's elements in its storage, if they are stored in row-major order.
    fn dense_range(&self) -> Option<Range<usize>> {
        let ConstantData::Strided { offset, strides, .. } = &self.data else { return None };
        let start = offset.checked_mul(self.ty.dtype.size())?;
        let range = start..start.checked_add(self.len().ok()?)?;
        is_row_major(&self.sizes().ok()?, strides).then_some(range)
    }

    /// Number of rows of a strided constant that are gathered at a time, and the bytes of a row; `None` if the constant
    /// is not strided or has no rows.
    fn rows_of_pieces(&self) -> Option<(usize, usize)> {
        /// Pieces of about this size are still in the caches when they are written.
        const PIECE: usize = 1 << 20;
        let sizes = self.sizes().ok().filter(|_| matches!(self.data, ConstantData::Strided { .. }))?;
        let row = self.len().ok()?.checked_div(*sizes.first()?)?.max(1);
        Some((PIECE.div_ceil(row).next_multiple_of(gather::TILE), row))
    }

    /// Returns the constant with permuted dimensions, without a copy; `None` if `dims` are not its dimensions.
    pub fn permuted(&self, dims: &[usize]) -> Option<Self> {
        let sizes = self.sizes().ok()?;
        let (storage, offset, strides) = match &self.data {
            ConstantData::Zeros => (None, 0, row_major_strides(&sizes)),
            ConstantData::Dense(bytes) => (Some(bytes.clone()), 0, row_major_strides(&sizes)),
            ConstantData::Strided { storage, offset, strides } => (Some(storage.clone()), *offset, strides.clone()),
            ConstantData::Computed(computed) => return self.permuted_later(computed.permuted(), dims),
        };
        let shape = dims.iter().map(|dim| self.ty.shape.get(*dim).cloned()).collect::<Option<Vec<_>>>()?;
        let strides = dims.iter().map(|dim| strides.get(*dim).copied()).collect::<Option<Vec<_>>>()?;
        let data = match storage {
            Some(storage) => ConstantData::Strided { storage, offset, strides },
            None => ConstantData::Zeros,
        };
        Some(Self { name: self.name.clone(), ty: TensorType::new(self.ty.dtype, shape), data })
    }

    /// Permutes the dimensions of computed content. `inner` is set if that content is itself a permutation.
    fn permuted_later(&self, inner: Option<(&Self, &[usize])>, dims: &[usize]) -> Option<Self> {
        let (constant, dims) = match inner {
            None => (self, dims.to_vec()),
            Some((constant, before)) => {
                (constant, dims.iter().map(|dim| before.get(*dim).copied()).collect::<Option<_>>()?)
            }
        };
        if dims.iter().copied().eq(0..constant.ty.rank()) {
            return Some(Self { name: self.name.clone(), ..constant.clone() });
        }
        let shape = dims.iter().map(|dim| constant.ty.shape.get(*dim).cloned()).collect::<Option<Vec<_>>>()?;
        let ty = TensorType::new(self.ty.dtype, shape);
        let data =
            ConstantData::Computed(Arc::new(Permuted { constant: constant.clone(), dims, quantized: OnceLock::new() }));
        Some(Self { name: self.name.clone(), ty, data })
    }
}

impl Make for Constant {
    fn size(&self) -> u64 {
        self.len().map_or(0, |len| len as u64)
    }

    fn in_place(&self) -> Option<&[u8]> {
        match &self.data {
            ConstantData::Dense(bytes) => Some(bytes),
            ConstantData::Strided { storage, .. } => storage.get(self.dense_range()?),
            ConstantData::Zeros | ConstantData::Computed(_) => None,
        }
    }

    fn pieces(&self) -> u64 {
        let rows = self.rows_of_pieces().map_or(0, |(rows, row)| rows.saturating_mul(row) as u64);
        Make::size(self).checked_div(rows).map_or(1, |_| Make::size(self).div_ceil(rows).max(1))
    }

    fn piece_size(&self, piece: u64) -> u64 {
        let Some((rows, row)) = self.rows_of_pieces() else { return Make::size(self) };
        let each = rows.saturating_mul(row) as u64;
        Make::size(self).saturating_sub(piece.saturating_mul(each)).min(each)
    }

    fn make(&self, piece: u64, buffer: &mut Vec<u8>) -> Option<()> {
        let (ConstantData::Strided { storage, offset, strides }, Some((rows, _))) = (&self.data, self.rows_of_pieces())
        else {
            return self.read_into(buffer).ok();
        };
        let first = usize::try_from(piece).ok()?.checked_mul(rows)?;
        let mut sizes = self.sizes().ok()?;
        let size = sizes.first_mut()?;
        *size = size.checked_sub(first)?.min(rows);
        let offset = first.checked_mul(*strides.first()?)?.checked_add(*offset)?;
        gather(storage, offset, strides, &sizes, self.ty.dtype.size(), buffer)
    }
}

/// The strides of a row-major tensor, in elements.
pub fn row_major_strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    let mut stride = 1usize;
    for (slot, size) in strides.iter_mut().zip(sizes).rev() {
        *slot = stride;
        stride = stride.saturating_mul((*size).max(1));
    }
    strides
}

fn is_row_major(sizes: &[usize], strides: &[usize]) -> bool {
    let dense = row_major_strides(sizes);
    // The stride of a dimension of size 1 is never used.
    sizes.iter().zip(strides).zip(&dense).all(|((size, stride), dense)| *size <= 1 || stride == dense)
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;

    use super::*;

    fn constant(sizes: &[i64], data: ConstantData) -> Constant {
        Constant { name: "c".into(), ty: TensorType::of(ScalarType::Short, sizes), data }
    }

    fn storage() -> Bytes {
        (0u8..24).collect::<Vec<u8>>().into()
    }

    #[test]
    fn views_are_copied_together_in_row_major_order() {
        let view = constant(&[3, 2], ConstantData::Strided { storage: storage(), offset: 1, strides: vec![1, 4] });
        assert_eq!(&*view.read().unwrap(), [2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]);
        let row_major =
            constant(&[2, 1, 2], ConstantData::Strided { storage: storage(), offset: 2, strides: vec![2, 9, 1] });
        assert_eq!(&*row_major.read().unwrap(), [4, 5, 6, 7, 8, 9, 10, 11]);
        let scalar = constant(&[], ConstantData::Strided { storage: storage(), offset: 3, strides: vec![] });
        assert_eq!(&*scalar.read().unwrap(), [6, 7]);
        let expanded = constant(&[2, 2], ConstantData::Strided { storage: storage(), offset: 0, strides: vec![0, 1] });
        assert_eq!(&*expanded.read().unwrap(), [0, 1, 2, 3, 0, 1, 2, 3]);
        let outside = constant(&[2, 2], ConstantData::Strided { storage: storage(), offset: 10, strides: vec![1, 1] });
        assert!(outside.read().is_err());
        assert_eq!(constant(&[0, 5], ConstantData::Zeros).read().unwrap().len(), 0);
    }

    #[test]
    fn permuting_copies_nothing_and_moves_elements() {
        let dense = Constant::dense("c", TensorType::of(ScalarType::Short, &[3, 4]), storage()).unwrap();
        let transposed = dense.permuted(&[1, 0]).unwrap();
        assert_eq!(transposed.ty.static_sizes(), Some(vec![4, 3]));
        assert_eq!(transposed.read().unwrap()[..6], [0, 1, 8, 9, 16, 17]);
        assert_eq!(transposed.permuted(&[1, 0]).unwrap().read().unwrap(), storage());
    }

    /// Counts up when it is computed.
    struct Counted;

    impl Computed for Counted {
        fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
            to.clear();
            to.extend(0u8..24);
            Ok(())
        }
    }

    #[test]
    fn permuting_computed_content_is_as_permuting_it_when_it_is_there() {
        let ty = TensorType::of(ScalarType::Short, &[2, 3, 2]);
        let dense = Constant::dense("c", ty.clone(), storage()).unwrap();
        let computed = Constant { name: "c".into(), ty, data: ConstantData::Computed(Arc::new(Counted)) };
        let both = |dims: &[usize]| [&dense, &computed].map(|constant| constant.permuted(dims).unwrap());
        let [expected, found] = both(&[2, 0, 1]);
        assert_eq!((&found.ty, found.read().unwrap()), (&expected.ty, expected.read().unwrap()));
        let again = found.permuted(&[0, 2, 1]).unwrap();
        assert_eq!(again.read().unwrap(), expected.permuted(&[0, 2, 1]).unwrap().read().unwrap());
        // The inverse permutation returns the original content.
        let back = found.permuted(&[1, 2, 0]).unwrap();
        assert!(matches!(&back.data, ConstantData::Computed(data) if data.permuted().is_none()));
        assert_eq!(back.read().unwrap(), storage());
        assert!(computed.permuted(&[0, 1, 3]).is_none());
    }

    #[test]
    fn floats_are_shown_by_whole_rows() {
        let floats: Vec<f32> = (0..30_000).map(|at| at as f32).collect();
        let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        let dense = Constant::dense("c", TensorType::of(ScalarType::Float, &[30, 1000]), bytes).unwrap();
        for constant in [&dense, &dense.permuted(&[1, 0]).unwrap()] {
            let (mut shown, mut calls) = (Vec::new(), 0);
            let row = constant.sizes().unwrap()[1];
            constant
                .for_floats(&mut |floats| {
                    assert!(floats.len().is_multiple_of(row));
                    shown.extend_from_slice(floats);
                    calls += 1;
                })
                .unwrap();
            assert_eq!(shown, constant.floats().unwrap());
            assert!(calls > 1);
        }
    }

    #[test]
    fn rows_share_the_content() {
        let dense = Constant::dense("c", TensorType::of(ScalarType::Short, &[3, 4]), storage()).unwrap();
        let rows = dense.rows(1..3).unwrap();
        assert_eq!(rows.ty.static_sizes(), Some(vec![2, 4]));
        assert_eq!(*rows.read().unwrap(), storage()[8..]);
        let transposed = dense.permuted(&[1, 0]).unwrap();
        assert_eq!(transposed.rows(1..2).unwrap().read().unwrap()[..], transposed.read().unwrap()[6..12]);
        assert!(dense.rows(2..2).unwrap().read().unwrap().is_empty());
        assert!(dense.rows(1..4).is_none());
        assert!(constant(&[], ConstantData::Zeros).rows(0..0).is_none());
    }

    #[test]
    fn the_size_of_the_content_is_checked() {
        assert!(Constant::dense("c", TensorType::of(ScalarType::Short, &[3, 5]), storage()).is_err());
        assert!(constant(&[i64::MAX, 2], ConstantData::Zeros).read().is_err());
    }
}
