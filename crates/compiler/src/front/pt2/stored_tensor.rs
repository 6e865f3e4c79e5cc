//! Tensors whose elements are in the archive.

use rushlight_format::ScalarType;

use super::error::ErrorKind;
use rushlight_graph::Bytes;

/// More dimensions than PyTorch's own limit are an attack.
pub(super) const MAX_RANK: usize = 64;

/// A strided tensor over a storage that others may share. Every element is within the storage.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTensor {
    pub dtype: ScalarType,
    pub sizes: Vec<usize>,
    /// In elements, one for each size; 0 repeats an element, so that a small storage can hold a large tensor.
    pub strides: Vec<usize>,
    /// In elements, from the start of the storage.
    pub storage_offset: usize,
    pub storage: Storage,
}

/// The bytes under one or several tensors, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    /// The entry of the archive. Tensors with the same name share their memory.
    pub name: String,
    pub data: StorageData,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StorageData {
    Bytes(Bytes),
    /// Saved without values ("fake"); all elements are zero.
    Zeros,
}

impl StoredTensor {
    /// Checks that every element is within the storage, and that the number of bytes of all elements can be addressed.
    pub(super) fn new(
        dtype: ScalarType,
        sizes: &[i64],
        strides: &[i64],
        storage_offset: i64,
        storage: Storage,
    ) -> Result<Self, ErrorKind> {
        if sizes.len() != strides.len() || sizes.len() > MAX_RANK {
            return Err(ErrorKind::Rank { sizes: sizes.len(), strides: strides.len() });
        }
        let overflow = ErrorKind::Overflow { what: "the size of the tensor" };
        let sizes = sizes.iter().map(|&size| unsigned("a size", size)).collect::<Result<Vec<_>, _>>()?;
        let strides = strides.iter().map(|&stride| unsigned("a stride", stride)).collect::<Result<Vec<_>, _>>()?;
        let storage_offset = unsigned("a storage offset", storage_offset)?;
        let nbytes = sizes.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size.max(1)));
        if nbytes.is_none_or(|nbytes| isize::try_from(nbytes).is_err()) {
            return Err(overflow);
        }
        if let StorageData::Bytes(bytes) = &storage.data
            && !sizes.contains(&0)
        {
            let last = sizes
                .iter()
                .zip(&strides)
                .try_fold(storage_offset, |last, (&size, &stride)| last.checked_add(stride.checked_mul(size - 1)?));
            let needed = last.and_then(|last| last.checked_add(1)?.checked_mul(dtype.size())).ok_or(overflow)?;
            if needed > bytes.len() {
                return Err(ErrorKind::OutOfStorage { needed: needed as u64, available: bytes.len() as u64 });
            }
        }
        Ok(Self { dtype, sizes, strides, storage_offset, storage })
    }

    pub fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Bytes of all elements; those of the storage may be fewer or more.
    pub fn nbytes(&self) -> usize {
        self.numel() * self.dtype.size()
    }

    /// True if the elements are contiguous in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.numel() == 0
            || self.sizes.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
                let fits = size == 1 || stride == expected;
                expected *= size;
                fits
            })
    }

    /// Borrows the elements, if they are contiguous in row-major order.
    pub fn contiguous_bytes(&self) -> Option<Bytes> {
        match &self.storage.data {
            StorageData::Bytes(bytes) if self.is_contiguous() => {
                let start = if self.numel() == 0 { 0 } else { self.storage_offset * self.dtype.size() };
                bytes.slice(start..start + self.nbytes())
            }
            _ => None,
        }
    }

    /// Copies the elements in row-major order. A tensor with strides of 0 gets its full size.
    pub fn to_contiguous(&self) -> Vec<u8> {
        let bytes = match &self.storage.data {
            StorageData::Zeros => return vec![0; self.nbytes()],
            StorageData::Bytes(bytes) => bytes,
        };
        let item = self.dtype.size();
        let mut elements = Vec::with_capacity(self.nbytes());
        if self.numel() == 0 {
            return elements;
        }
        let mut index = vec![0; self.sizes.len()];
        let mut at = self.storage_offset;
        loop {
            elements.extend_from_slice(bytes.get(at * item..(at + 1) * item).unwrap_or_default());
            // Counts up like an odometer, the last dimension first.
            let mut dimensions = index.iter_mut().zip(&self.sizes).zip(&self.strides).rev();
            loop {
                let Some(((position, &size), &stride)) = dimensions.next() else { return elements };
                if *position + 1 < size {
                    *position += 1;
                    at += stride;
                    break;
                }
                at -= *position * stride;
                *position = 0;
            }
        }
    }
}

fn unsigned(what: &'static str, value: i64) -> Result<usize, ErrorKind> {
    usize::try_from(value).map_err(|_| match value {
        ..0 => ErrorKind::Negative { what, value },
        _ => ErrorKind::Overflow { what },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(len: u8) -> Storage {
        Storage { name: "weight_0".to_owned(), data: StorageData::Bytes(Bytes::from((0..len).collect::<Vec<_>>())) }
    }

    fn bytes(sizes: &[i64], strides: &[i64], offset: i64) -> Result<StoredTensor, ErrorKind> {
        StoredTensor::new(ScalarType::Byte, sizes, strides, offset, storage(12))
    }

    #[test]
    fn views_read_their_elements() {
        let transposed = bytes(&[4, 3], &[1, 4], 0);
        assert_eq!(transposed.map(|t| t.to_contiguous()), Ok(vec![0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]));
        assert!(bytes(&[4, 3], &[1, 4], 0).is_ok_and(|t| t.contiguous_bytes().is_none()));
        let rows = bytes(&[2, 3], &[3, 1], 6);
        assert!(rows.is_ok_and(|t| t.contiguous_bytes().as_deref() == Some(&[6, 7, 8, 9, 10, 11])));
        let expanded = bytes(&[2, 2], &[0, 5], 1);
        assert_eq!(expanded.map(|t| t.to_contiguous()), Ok(vec![1, 6, 1, 6]));
        assert_eq!(bytes(&[], &[], 3).map(|t| t.to_contiguous()), Ok(vec![3]));
        assert_eq!(bytes(&[0, 5], &[5, 1], 99).map(|t| t.to_contiguous()), Ok(vec![]));
    }

    #[test]
    fn elements_outside_of_the_storage_are_refused() {
        assert_eq!(bytes(&[4, 3], &[3, 1], 1), Err(ErrorKind::OutOfStorage { needed: 13, available: 12 }));
        assert_eq!(bytes(&[2], &[12], 0), Err(ErrorKind::OutOfStorage { needed: 13, available: 12 }));
        assert_eq!(bytes(&[-1], &[1], 0), Err(ErrorKind::Negative { what: "a size", value: -1 }));
        assert_eq!(bytes(&[2], &[i64::MAX], 0), Err(ErrorKind::OutOfStorage { needed: 1 << 63, available: 12 }));
        assert!(matches!(bytes(&[4], &[i64::MAX], 0), Err(ErrorKind::Overflow { .. })));
        assert!(matches!(bytes(&[1 << 32, 1 << 32], &[0, 0], 0), Err(ErrorKind::Overflow { .. })));
        assert!(matches!(bytes(&[1], &[1, 1], 0), Err(ErrorKind::Rank { sizes: 1, strides: 2 })));
    }
}
