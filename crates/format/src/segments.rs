//! Data segments after the flatbuffer of a `.pte` or `.ptd` file.

use crate::error::{ErrorKind, Feature};
use crate::flatbuf::{Table, TableList};
use crate::schema::*;

/// The segments of a file. Each was checked to lie inside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments<'a> {
    file: &'a [u8],
    /// Bytes of the flatbuffer that describes them, at the start of the file.
    buf_len: u32,
    /// Base of the offsets; 0 when the file has no room for segments.
    base: u64,
    list: TableList,
}

impl<'a> Segments<'a> {
    /// Reads the field of `root` that lists the segments; refuses one that is not inside `file`.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn parse(root: Table<'_, 'a>, field: Field, file: &'a [u8], base: u64) -> Self {
        let segments = Self { file, buf_len: root.context().buf().len() as u32, base, list: root.tables(field) };
        root.context().each(segments.list, field, |table| {
            segments.bytes(table);
        });
        segments
    }

    /// All bytes of the file.
    pub fn file(&self) -> &'a [u8] {
        self.file
    }

    /// The flatbuffer that describes the segments.
    #[cfg_attr(target_os = "none", inline(never))]
    pub fn buf(&self) -> &'a [u8] {
        self.file.get(..self.buf_len as usize).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.list.entry(self.buf(), index, |table| self.bytes(table))
    }

    /// The segment that `field` of `table` names.
    pub fn of(&self, table: Table<'_, 'a>, field: Field) -> &'a [u8] {
        let index = table.scalar(field, 0u32);
        self.get(index as usize).unwrap_or_else(|| {
            table.out_of_range(field, u64::from(index), self.len());
            &[]
        })
    }

    /// An empty segment may lie anywhere.
    fn bytes(&self, table: Table<'_, 'a>) -> &'a [u8] {
        let size = table.scalar(SEGMENT_SIZE, 0u64);
        if size == 0 {
            return &[];
        }
        if self.base == 0 {
            table.report(SEGMENT_SIZE, ErrorKind::Unsupported { what: Feature::SegmentWithoutHeader });
            return &[];
        }
        let start = self.base.checked_add(table.scalar(SEGMENT_OFFSET, 0u64));
        let Some((start, end)) = start.and_then(|start| Some((start, start.checked_add(size)?))) else {
            table.report(SEGMENT_OFFSET, ErrorKind::Overflow);
            return &[];
        };
        let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
            table.report(SEGMENT_OFFSET, ErrorKind::TooLarge { size: end });
            return &[];
        };
        table.fits(SEGMENT_OFFSET, end, self.file.len() as u64);
        self.file.get(from..to).unwrap_or_default()
    }
}
