//! `.ptd` files: tensors and blobs by name, outside of any program.

#[cfg(feature = "alloc")]
mod write;

use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::{Context, Read, Table, TableList};
use crate::header::{self, check_identifier};
use crate::layout::LayoutFields;
use crate::schema::*;
use crate::segments::Segments;

pub use crate::layout::TensorLayout;
#[cfg(feature = "alloc")]
pub use write::{FlatTensorModel, LayoutModel, NamedTensorModel};

/// A `.ptd` file. [`parse`](Self::parse) has checked all of it; this is a view of its bytes and cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct FlatTensor<'a> {
    buf: &'a [u8],
    version: u32,
    segments: Segments<'a>,
    named_data: TableList,
}

/// An entry of a `.ptd` file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedTensor<'a> {
    /// Absent for a blob that only its user understands.
    pub layout: Option<TensorLayout<'a>>,
    /// At least the bytes that the layout asks for.
    pub data: &'a [u8],
}

const IDENTIFIER: [u8; 4] = *b"FT01";
const MAGIC: [u8; 4] = *b"FH01";
/// Length of the header that every generation has.
const HEADER_LEN: u32 = 40;

const LAYOUT: LayoutFields =
    LayoutFields { scalar_type: LAYOUT_SCALAR_TYPE, sizes: LAYOUT_SIZES, dim_order: LAYOUT_DIM_ORDER };

impl<'a> FlatTensor<'a> {
    /// Parses a file and checks all of it; tensor data is not read. `file` needs no alignment.
    ///
    /// # Errors
    /// The first fault found. See [`ErrorKind`].
    pub fn parse(file: &'a [u8]) -> Result<Self, FormatError> {
        let (len, base) = parse_header(file)?;
        let buf = file.get(..len).unwrap_or(file);
        let ctx = Context::new(buf);
        ctx.explain(Self::decode(&ctx, file, base))
    }

    fn decode(ctx: &Context<'a>, file: &'a [u8], base: u64) -> Read<Self> {
        let root = ctx.root(FLAT_ROOT)?;
        let flat_tensor = Self {
            buf: ctx.buf(),
            version: root.scalar(FLAT_VERSION, 0)?,
            segments: Segments::parse(root, FLAT_SEGMENTS, file, base)?,
            named_data: root.tables(FLAT_NAMED_DATA)?.list(),
        };
        ctx.tables(flat_tensor.named_data).each(|table| {
            let (key, _) = flat_tensor.entry(table)?;
            table.spend(16 + key.len())
        })?;
        Ok(flat_tensor)
    }

    /// Version of the schema; 0 in every file so far.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.named_data.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries in the file's order.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, NamedTensor<'a>)> + use<'a> {
        let flat_tensor = *self;
        (0..self.len()).filter_map(move |index| {
            flat_tensor.named_data.entry(flat_tensor.buf, index, |table| flat_tensor.entry(table))
        })
    }

    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.entries().map(|(key, _)| key)
    }

    /// The first entry with this key.
    pub fn get(&self, key: &str) -> Option<NamedTensor<'a>> {
        self.entries().find(|(k, _)| *k == key).map(|(_, tensor)| tensor)
    }

    fn entry(&self, table: Table<'_, 'a>) -> Read<(&'a str, NamedTensor<'a>)> {
        let key = table.required_string(ENTRY_KEY)?;
        let data = self.segments.of(table, ENTRY_SEGMENT_INDEX)?;
        let layout = match table.table(ENTRY_LAYOUT)? {
            Some(layout) => Some(TensorLayout::decode(layout, LAYOUT)?),
            None => None,
        };
        let needed = layout.map_or(0, |layout| layout.nbytes());
        table.fits(ENTRY_SEGMENT_INDEX, needed, data.len() as u64)?;
        Ok((key, NamedTensor { layout, data }))
    }
}

/// Bytes of the flatbuffer, counted from the start of the file, and where segments start.
fn parse_header(file: &[u8]) -> Result<(usize, u64), FormatError> {
    check_identifier(file, IDENTIFIER)?;
    let got = header::word(file, 8).unwrap_or_default();
    if got != MAGIC {
        return Err(header::error(HEADER_MAGIC, 8, ErrorKind::BadMagic { expected: MAGIC, got }));
    }
    let len = header::number::<4>(file, 12, HEADER_LENGTH)? as u32;
    if len < HEADER_LEN {
        let kind = ErrorKind::Truncated { needed: u64::from(HEADER_LEN), available: u64::from(len) };
        return Err(header::error(HEADER_LENGTH, 12, kind));
    }
    let available = file.len() as u64;
    let flatbuffer_end = header::number::<8>(file, 16, HEADER_FLATBUFFER_OFFSET)?.saturating_add(header::number::<8>(
        file,
        24,
        HEADER_FLATBUFFER_SIZE,
    )?);
    let base = header::number::<8>(file, 32, HEADER_SEGMENT_BASE)?;
    let segments_end = base.saturating_add(header::number::<8>(file, 40, HEADER_SEGMENT_SIZE)?);
    for (field, at, needed) in [(HEADER_FLATBUFFER_SIZE, 24, flatbuffer_end), (HEADER_SEGMENT_SIZE, 40, segments_end)] {
        if needed > available {
            return Err(header::error(field, at, ErrorKind::Truncated { needed, available }));
        }
    }
    // It is at most the length of the file, which is a `usize`.
    Ok((flatbuffer_end as usize, base))
}
