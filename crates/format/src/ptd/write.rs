//! Writes `.ptd` files.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::ScalarType;
use crate::blob::Blob;
use crate::error::FormatError;
use crate::flatbuf::{Builder, Offset};
use crate::image::{Image, Piece, SEGMENT_ALIGNMENT, SegmentList, check_len};

use super::*;

/// Alignment of the flatbuffer, to which the header is padded.
const ALIGNMENT: usize = 16;

/// A `.ptd` file as an owned, editable value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlatTensorModel<'a> {
    /// In the file's order; keys should differ.
    pub entries: Vec<NamedTensorModel<'a>>,
}

/// An entry; see [`NamedTensor`].
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensorModel<'a> {
    pub key: String,
    pub layout: Option<LayoutModel>,
    pub data: Blob<'a>,
}

/// A layout; see [`TensorLayout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutModel {
    pub scalar_type: ScalarType,
    pub sizes: Vec<i32>,
    pub dim_order: Vec<u8>,
}

impl<'a> FlatTensorModel<'a> {
    /// The content of a parsed file. Data is borrowed from it.
    pub fn from_flat_tensor(flat_tensor: &FlatTensor<'a>) -> Self {
        let entry = |(key, tensor): (&str, NamedTensor<'a>)| NamedTensorModel {
            key: key.to_string(),
            layout: tensor.layout.map(LayoutModel::from),
            data: tensor.data.into(),
        };
        Self { entries: flat_tensor.entries().map(entry).collect() }
    }

    /// The model as a file. Equal blobs are stored once, and equal models give equal files. Data that are made when they
    /// are written count as equal if one object makes them.
    ///
    /// # Errors
    /// `TooLarge` when the part outside of segments exceeds 2 GiB.
    pub fn write(&self, segment_alignment: u64) -> Result<Image<'_>, FormatError> {
        let mut builder = Builder::new(ALIGNMENT);
        let mut segments = SegmentList::default();
        let mut blobs = BTreeMap::new();
        let mut named = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let data = &entry.data;
            let segment = || segments.push(segment_alignment, [(0, Piece::Blob(data))]);
            let segment = *blobs.entry(Content::of(data)).or_insert_with(segment);
            let layout = entry.layout.as_ref().map(|model| layout(&mut builder, model));
            let key = builder.string(&entry.key);
            let fields =
                [(ENTRY_KEY, key.into()), (ENTRY_SEGMENT_INDEX, segment.into()), (ENTRY_LAYOUT, layout.into())];
            named.push(builder.table(&fields));
        }
        let named = builder.offsets(&named);
        let tables = segments.build(&mut builder);
        let root = builder.table(&[
            (FLAT_VERSION, 0u32.into()),
            (FLAT_SEGMENTS, tables.into()),
            (FLAT_NAMED_DATA, named.into()),
        ]);

        // The header is padded, and the padding belongs to it.
        let mut header = [0; (HEADER_LEN as usize).next_multiple_of(ALIGNMENT)];
        let size = (builder.len() + 8 + header.len()).next_multiple_of(ALIGNMENT);
        check_len(size, FLAT_ROOT)?;
        // Without data nothing follows the flatbuffer, and segments start at its very end.
        let alignment = if segments.size() == 0 { 1 } else { segment_alignment.max(1) };
        let base = (size as u64).next_multiple_of(alignment);
        let flatbuffer_size = (size - header.len()) as u64;
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&HEADER_LEN.to_le_bytes());
        let numbers = [header.len() as u64, flatbuffer_size, base, segments.size()];
        for (field, number) in header[8..].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        Ok(Image::new(builder.finish(root, IDENTIFIER, &header), base, &segments))
    }

    /// The bytes of the file, with the usual alignment.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.write(SEGMENT_ALIGNMENT)?.to_vec()
    }
}

/// The identity of a blob.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Content<'m> {
    Bytes(&'m [u8]),
    Made(usize),
}

impl<'m> Content<'m> {
    fn of(data: &'m Blob<'_>) -> Self {
        match data {
            Blob::Bytes(bytes) => Self::Bytes(bytes),
            Blob::Made(made) => Self::Made(Arc::as_ptr(made).addr()),
        }
    }
}

impl From<TensorLayout<'_>> for LayoutModel {
    fn from(layout: TensorLayout<'_>) -> Self {
        Self {
            scalar_type: layout.scalar_type,
            sizes: layout.sizes.iter().collect(),
            dim_order: layout.dim_order.to_vec(),
        }
    }
}

fn layout(builder: &mut Builder, model: &LayoutModel) -> Offset {
    let sizes = builder.numbers(model.sizes.iter().map(|size| size.to_le_bytes()));
    let dim_order = builder.bytes(&model.dim_order, 4);
    builder.table(&[
        (LAYOUT_SCALAR_TYPE, model.scalar_type.code().into()),
        (LAYOUT_SIZES, sizes.into()),
        (LAYOUT_DIM_ORDER, dim_order.into()),
    ])
}
