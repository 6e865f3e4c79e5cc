//! Tables, and what their fields point at.

use crate::error::{ErrorKind, FormatError};

use super::vector::{Element, Vector};

/// A field of a schema: its slot in the vtable, and its names for error messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub slot: u16,
    pub table: &'static str,
    pub name: &'static str,
}

impl Field {
    pub const fn new(slot: u16, table: &'static str, name: &'static str) -> Self {
        Self { slot, table, name }
    }

    /// An error of this field, found at byte `offset`.
    #[cold]
    #[inline(never)]
    pub fn error(&'static self, kind: ErrorKind, offset: usize) -> FormatError {
        FormatError { kind, table: self.table, field: self.name, index: None, offset: offset as u64 }
    }
}

/// Offsets to vtables are signed 32-bit numbers, which bounds a flatbuffer.
const MAX_LEN: usize = i32::MAX as usize;

#[inline]
fn read<T: Element>(buf: &[u8], pos: usize) -> Option<T> {
    T::read(buf.get(pos..)?)
}

#[cold]
#[inline(never)]
fn truncated(field: &'static Field, pos: usize, size: usize, available: usize) -> FormatError {
    let needed = (pos as u64).saturating_add(size as u64);
    field.error(ErrorKind::Truncated { needed, available: available as u64 }, pos)
}

/// A table whose vtable and body lie inside the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    buf: &'a [u8],
    pos: usize,
    vtable: &'a [u8],
    body: &'a [u8],
}

impl<'a> Table<'a> {
    /// The root table of a flatbuffer, whose offset is its first word.
    pub fn root(buf: &'a [u8], field: &'static Field) -> Result<Self, FormatError> {
        if buf.len() > MAX_LEN {
            return Err(field.error(ErrorKind::TooLarge { size: buf.len() as u64 }, 0));
        }
        let Some(pos) = read::<u32>(buf, 0) else { return Err(truncated(field, 0, 4, buf.len())) };
        Self::at(buf, pos as usize, field)
    }

    #[inline]
    fn at(buf: &'a [u8], pos: usize, field: &'static Field) -> Result<Self, FormatError> {
        let Some(distance) = read::<i32>(buf, pos) else { return Err(truncated(field, pos, 4, buf.len())) };
        // A wrapped position is beyond `MAX_LEN` and fails the next read.
        let start = pos.wrapping_sub(distance as usize);
        let Some(head) = read::<u32>(buf, start) else { return Err(truncated(field, start, 4, buf.len())) };
        let (vtable_len, body_len) = ((head & 0xffff) as usize, (head >> 16) as usize);
        if vtable_len < 4 || vtable_len % 2 != 0 || body_len < 4 {
            return Err(field.error(ErrorKind::BadVtable, start));
        }
        let Some(vtable) = buf.get(start..).and_then(|b| b.get(..vtable_len)) else {
            return Err(truncated(field, start, vtable_len, buf.len()));
        };
        let Some(body) = buf.get(pos..).and_then(|b| b.get(..body_len)) else {
            return Err(truncated(field, pos, body_len, buf.len()));
        };
        Ok(Self { buf, pos, vtable, body })
    }

    /// Where the table stands in the buffer.
    #[inline]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// An error of one of this table's fields.
    #[cold]
    pub fn error(&self, field: &'static Field, kind: ErrorKind) -> FormatError {
        field.error(kind, self.pos)
    }

    /// Offset of a field in the body, 0 when it is absent.
    #[inline]
    fn slot(&self, field: &'static Field) -> usize {
        read::<u16>(self.vtable, 4 + 2 * field.slot as usize).map_or(0, usize::from)
    }

    /// A number, or `default` when the field is absent.
    #[inline]
    pub fn scalar<T: Element>(&self, field: &'static Field, default: T) -> Result<T, FormatError> {
        match self.slot(field) {
            0 => Ok(default),
            at => read(self.body, at).ok_or_else(|| truncated(field, at, T::SIZE, self.body.len())),
        }
    }

    /// Position of what an offset field points at.
    #[inline]
    fn target(&self, field: &'static Field) -> Result<Option<usize>, FormatError> {
        let at = self.slot(field);
        if at == 0 {
            return Ok(None);
        }
        match read::<u32>(self.body, at).and_then(|offset| (self.pos + at).checked_add(offset as usize)) {
            Some(pos) => Ok(Some(pos)),
            None => Err(truncated(field, at, 4, self.body.len())),
        }
    }

    #[inline]
    pub fn table(&self, field: &'static Field) -> Result<Option<Self>, FormatError> {
        match self.target(field)? {
            Some(pos) => Self::at(self.buf, pos, field).map(Some),
            None => Ok(None),
        }
    }

    #[inline]
    pub fn required_table(&self, field: &'static Field) -> Result<Self, FormatError> {
        match self.target(field)? {
            Some(pos) => Self::at(self.buf, pos, field),
            None => Err(self.error(field, ErrorKind::Missing)),
        }
    }

    /// Length of a vector field and the position of its first element, checked to lie inside.
    #[inline]
    fn extent(&self, field: &'static Field, size: usize) -> Result<Option<(&'a [u8], usize)>, FormatError> {
        let Some(pos) = self.target(field)? else { return Ok(None) };
        let Some((len, rest)) = self.buf.get(pos..).and_then(|b| b.split_first_chunk::<4>()) else {
            return Err(truncated(field, pos, 4, self.buf.len()));
        };
        let len = u32::from_le_bytes(*len) as usize;
        match len.checked_mul(size).and_then(|n| rest.get(..n)) {
            Some(bytes) => Ok(Some((bytes, pos + 4))),
            None => Err(truncated(field, pos + 4, len.saturating_mul(size), self.buf.len())),
        }
    }

    #[inline]
    pub fn vector<T: Element>(&self, field: &'static Field) -> Result<Option<Vector<'a, T>>, FormatError> {
        Ok(self.extent(field, T::SIZE)?.map(|(bytes, _)| Vector::new(bytes)))
    }

    #[inline]
    pub fn required_vector<T: Element>(&self, field: &'static Field) -> Result<Vector<'a, T>, FormatError> {
        match self.extent(field, T::SIZE)? {
            Some((bytes, _)) => Ok(Vector::new(bytes)),
            None => Err(self.error(field, ErrorKind::Missing)),
        }
    }

    pub fn string(&self, field: &'static Field) -> Result<Option<&'a str>, FormatError> {
        match self.extent(field, 1)? {
            Some((bytes, pos)) => match core::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(field.error(ErrorKind::InvalidUtf8, pos)),
            },
            None => Ok(None),
        }
    }

    pub fn required_string(&self, field: &'static Field) -> Result<&'a str, FormatError> {
        match self.string(field)? {
            Some(text) => Ok(text),
            None => Err(self.error(field, ErrorKind::Missing)),
        }
    }

    /// A vector of tables; an absent one is empty.
    #[inline]
    pub fn tables(&self, field: &'static Field) -> Result<Tables<'a>, FormatError> {
        let (offsets, start) = self.extent(field, 4)?.unwrap_or((&[], 0));
        Ok(Tables { buf: self.buf, offsets: Vector::new(offsets), start, field })
    }
}

/// A vector of tables. Its offsets lie inside the buffer; each table is checked when it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'a> {
    buf: &'a [u8],
    offsets: Vector<'a, u32>,
    start: usize,
    field: &'static Field,
}

impl<'a> Tables<'a> {
    pub fn empty(field: &'static Field) -> Self {
        Self { buf: &[], offsets: Vector::default(), start: 0, field }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Where the vector stands in the buffer.
    pub fn position(&self) -> usize {
        self.start
    }

    #[inline]
    pub fn get(&self, index: usize) -> Result<Table<'a>, FormatError> {
        let Some(offset) = self.offsets.get(index) else {
            let kind = ErrorKind::OutOfRange { value: index as u64, limit: self.len() as u64 };
            return Err(self.field.error(kind, self.start));
        };
        self.resolve(index, offset)
    }

    #[inline]
    fn resolve(&self, index: usize, offset: u32) -> Result<Table<'a>, FormatError> {
        let pos = (self.start + 4 * index).saturating_add(offset as usize);
        Table::at(self.buf, pos, self.field)
    }

    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = Result<Table<'a>, FormatError>> {
        self.offsets.iter().enumerate().map(move |(index, offset)| self.resolve(index, offset))
    }
}
