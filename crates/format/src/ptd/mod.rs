//! `.ptd` files: tensors and blobs by name, outside of any program.

#[cfg(feature = "alloc")]
mod write;

use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::{Context, Table, TableList};
use crate::header::check_identifier;
use crate::layout::LayoutFields;
use crate::schema::*;
use crate::segments::Segments;

pub use crate::layout::TensorLayout;
#[cfg(feature = "alloc")]
pub use write::{FlatTensorModel, LayoutModel, NamedTensorModel};

/// A `.ptd` file. [`parse`](Self::parse) has checked all of it; this is a view of its bytes and cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct FlatTensor<'a> {
    version: u32,
    segments: Segments<'a>,
    named_data: TableList,
    /// Tensors apart from the named data, which files of ExecuTorch 0.6 have.
    tensors: TableList,
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

/// The layout of a tensor of ExecuTorch 0.6.
const METADATA: LayoutFields =
    LayoutFields { scalar_type: METADATA_SCALAR_TYPE, sizes: METADATA_SIZES, dim_order: METADATA_DIM_ORDER };

impl<'a> FlatTensor<'a> {
    /// Parses a file and checks all of it; tensor data is not read. `file` needs no alignment.
    ///
    /// # Errors
    /// The first fault found. See [`ErrorKind`].
    pub fn parse(file: &'a [u8]) -> Result<Self, FormatError> {
        let mut ctx = Context::new(file);
        let flat_tensor = Self::decode(&mut ctx);
        ctx.explain(flat_tensor)
    }

    fn decode(ctx: &mut Context<'a>) -> Option<Self> {
        let file = ctx.buf();
        let (len, base) = read_header(ctx);
        ctx.limit(len);
        let root = ctx.root(FLAT_ROOT)?;
        // ExecuTorch 0.6 had an alignment in the second slot and tensors in the third. Later files end there.
        let is_first = root.scalar(FIRST_SEGMENTS, 0u32) != 0;
        let (segments, named_data, tensors) = if is_first {
            (FIRST_SEGMENTS, FIRST_NAMED_DATA, root.tables(FIRST_TENSORS))
        } else {
            (FLAT_SEGMENTS, FLAT_NAMED_DATA, TableList::EMPTY)
        };
        let flat_tensor = Self {
            version: root.scalar(FLAT_VERSION, 0),
            segments: Segments::parse(root, segments, file, base),
            named_data: root.tables(named_data),
            tensors,
        };
        ctx.each(flat_tensor.named_data, named_data, |table| {
            let (key, _) = flat_tensor.entry(table);
            table.spend(16 + key.len());
        });
        ctx.each(flat_tensor.tensors, FIRST_TENSORS, |table| {
            let (key, _) = flat_tensor.tensor(table);
            table.spend(16 + key.len());
        });
        Some(flat_tensor)
    }

    /// Version of the schema; 0 in every file so far.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.named_data.len() + self.tensors.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries in the file's order.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, NamedTensor<'a>)> + use<'a> {
        let (file, buf) = (*self, self.segments.buf());
        let named = (0..self.named_data.len())
            .filter_map(move |index| file.named_data.entry(buf, index, |table| file.entry(table)));
        let tensors =
            (0..self.tensors.len()).filter_map(move |index| file.tensors.entry(buf, index, |table| file.tensor(table)));
        named.chain(tensors)
    }

    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.entries().map(|(key, _)| key)
    }

    /// The first entry with this key.
    pub fn get(&self, key: &str) -> Option<NamedTensor<'a>> {
        self.entries().find(|(k, _)| *k == key).map(|(_, tensor)| tensor)
    }

    fn entry(&self, table: Table<'_, 'a>) -> (&'a str, NamedTensor<'a>) {
        let key = table.required_string(ENTRY_KEY);
        let data = self.segments.of(table, ENTRY_SEGMENT_INDEX);
        let layout = table.table(ENTRY_LAYOUT).map(|layout| TensorLayout::decode(layout, LAYOUT));
        let needed = layout.map_or(0, |layout| layout.nbytes());
        table.fits(ENTRY_SEGMENT_INDEX, needed as u64, data.len() as u64);
        (key, NamedTensor { layout, data })
    }

    /// A tensor of ExecuTorch 0.6, which lies somewhere in a segment.
    fn tensor(&self, table: Table<'_, 'a>) -> (&'a str, NamedTensor<'a>) {
        let key = table.required_string(METADATA_NAME);
        let layout = TensorLayout::decode(table, METADATA);
        let segment = self.segments.of(table, METADATA_SEGMENT_INDEX);
        let offset: u64 = table.scalar(METADATA_OFFSET, 0);
        let data = usize::try_from(offset).ok().and_then(|offset| segment.get(offset..));
        if data.is_none() {
            table.out_of_range(METADATA_OFFSET, offset, segment.len());
        }
        let data = data.unwrap_or_default();
        table.fits(METADATA_OFFSET, layout.nbytes() as u64, data.len() as u64);
        (key, NamedTensor { layout: Some(layout), data: data.get(..layout.nbytes()).unwrap_or_default() })
    }
}

/// Bytes of the flatbuffer, counted from the start of the file, and where segments start.
fn read_header(ctx: &Context<'_>) -> (usize, u64) {
    check_identifier(ctx, IDENTIFIER);
    let got = ctx.number::<u32>(8, HEADER_MAGIC).to_le_bytes();
    if got != MAGIC {
        ctx.report(HEADER_MAGIC, ErrorKind::BadMagic { expected: MAGIC, got }, 8);
    }
    let len: u32 = ctx.number(12, HEADER_LENGTH);
    if len < HEADER_LEN {
        let kind = ErrorKind::Truncated { needed: u64::from(HEADER_LEN), available: u64::from(len) };
        ctx.report(HEADER_LENGTH, kind, 12);
    }
    let offset: u64 = ctx.number(16, HEADER_FLATBUFFER_OFFSET);
    let flatbuffer_end = offset.saturating_add(ctx.number(24, HEADER_FLATBUFFER_SIZE));
    let base: u64 = ctx.number(32, HEADER_SEGMENT_BASE);
    let segments_end = base.saturating_add(ctx.number(40, HEADER_SEGMENT_SIZE));
    let available = ctx.buf().len() as u64;
    for (field, at, needed) in [(HEADER_FLATBUFFER_SIZE, 24, flatbuffer_end), (HEADER_SEGMENT_SIZE, 40, segments_end)] {
        if needed > available {
            ctx.report(field, ErrorKind::Truncated { needed, available }, at);
        }
    }
    // It is at most the length of the file, which is a `usize`.
    (flatbuffer_end as usize, base)
}
