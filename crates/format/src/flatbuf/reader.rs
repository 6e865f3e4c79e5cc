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
    pub fn error(&'static self, kind: ErrorKind, offset: u64) -> FormatError {
        FormatError { kind, table: self.table, field: self.name, index: None, offset }
    }
}

/// Offsets to vtables are signed 32-bit numbers, which bounds a flatbuffer.
const MAX_LEN: usize = i32::MAX as usize;

/// The `len` bytes at `pos`. Sums of a position and 32-bit offsets do not overflow 64 bits.
#[cfg_attr(not(target_os = "none"), inline(always))]
fn slice(buf: &[u8], pos: u64, len: usize) -> Option<&[u8]> {
    let pos = usize::try_from(pos).ok()?;
    buf.get(pos..pos.checked_add(len)?)
}

#[cfg_attr(not(target_os = "none"), inline(always))]
fn read<T: Element>(buf: &[u8], pos: u64) -> Option<T> {
    T::read(slice(buf, pos, T::SIZE)?)
}

#[cold]
#[inline(never)]
fn truncated(field: &'static Field, pos: u64, size: u64, available: usize) -> FormatError {
    let needed = pos.saturating_add(size);
    field.error(ErrorKind::Truncated { needed, available: available as u64 }, pos)
}

/// Says why [`Table::open`] refused a position.
#[cold]
#[inline(never)]
fn broken_table(buf: &[u8], pos: u64, field: &'static Field) -> FormatError {
    let Some(distance) = read::<i32>(buf, pos) else { return truncated(field, pos, 4, buf.len()) };
    let start = pos.wrapping_sub(distance as u64);
    let Some(head) = read::<u32>(buf, start) else { return truncated(field, start, 4, buf.len()) };
    let vtable_len = u64::from(head & 0xffff);
    if vtable_len < 4 {
        field.error(ErrorKind::BadVtable, start)
    } else if start + vtable_len > buf.len() as u64 {
        truncated(field, start, vtable_len, buf.len())
    } else {
        truncated(field, pos, u64::from(head >> 16), buf.len())
    }
}

/// The error of a field that its vtable places behind the end of the table.
#[cold]
#[inline(never)]
fn outside(field: &'static Field, pos: u32, at: u64, body_len: usize) -> FormatError {
    field.error(ErrorKind::OutOfRange { value: at, limit: body_len as u64 }, u64::from(pos))
}

/// Says why [`Table::extent`] refused a vector.
#[cold]
#[inline(never)]
fn broken_vector(buf: &[u8], pos: u64, size: usize, field: &'static Field) -> FormatError {
    let len = read::<u32>(buf, pos).map_or(0, |len| u64::from(len) * size as u64);
    truncated(field, pos + 4, len, buf.len())
}

#[inline(never)]
fn utf8<'a>(bytes: &'a [u8], pos: u64, field: &'static Field) -> Result<&'a str, FormatError> {
    core::str::from_utf8(bytes).map_err(|_| field.error(ErrorKind::InvalidUtf8, pos))
}

/// A table whose vtable and body lie inside the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    buf: &'a [u8],
    pos: u32,
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
        Self::at(buf, u64::from(pos), field)
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn at(buf: &'a [u8], pos: u64, field: &'static Field) -> Result<Self, FormatError> {
        match Self::open(buf, pos) {
            Some(table) => Ok(table),
            None => Err(broken_table(buf, pos, field)),
        }
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn open(buf: &'a [u8], pos: u64) -> Option<Self> {
        // A start before the buffer wraps to one far behind it.
        let start = pos.wrapping_sub(read::<i32>(buf, pos)? as u64);
        let head = read::<u32>(buf, start)?;
        let (vtable_len, body_len) = ((head & 0xffff) as usize, (head >> 16) as usize);
        if vtable_len < 4 {
            return None;
        }
        let (vtable, body) = (slice(buf, start, vtable_len)?, slice(buf, pos, body_len)?);
        Some(Self { buf, pos: pos as u32, vtable, body })
    }

    /// Where the table stands in the buffer.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn position(&self) -> u64 {
        u64::from(self.pos)
    }

    /// An error of one of this table's fields.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn error(&self, field: &'static Field, kind: ErrorKind) -> FormatError {
        // By value: a reference to `self` would force every table into memory.
        field.error(kind, self.position())
    }

    /// Offset of a field in the body, 0 when it is absent.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn slot(&self, field: &'static Field) -> u64 {
        read::<u16>(self.vtable, 4 + 2 * u64::from(field.slot)).map_or(0, u64::from)
    }

    /// A number, or `default` when the field is absent.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn scalar<T: Element>(&self, field: &'static Field, default: T) -> Result<T, FormatError> {
        let at = self.slot(field);
        if at == 0 {
            return Ok(default);
        }
        match read(self.body, at) {
            Some(value) => Ok(value),
            None => Err(outside(field, self.pos, at, self.body.len())),
        }
    }

    /// Position of what an offset field points at.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn target(&self, field: &'static Field) -> Result<Option<u64>, FormatError> {
        let at = self.slot(field);
        if at == 0 {
            return Ok(None);
        }
        match read::<u32>(self.body, at) {
            Some(offset) => Ok(Some(self.position() + at + u64::from(offset))),
            None => Err(outside(field, self.pos, at, self.body.len())),
        }
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn table(&self, field: &'static Field) -> Result<Option<Self>, FormatError> {
        match self.target(field)? {
            Some(pos) => Self::at(self.buf, pos, field).map(Some),
            None => Ok(None),
        }
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn required_table(&self, field: &'static Field) -> Result<Self, FormatError> {
        match self.target(field)? {
            Some(pos) => Self::at(self.buf, pos, field),
            None => Err(self.error(field, ErrorKind::Missing)),
        }
    }

    /// The bytes of a vector's elements, and the position of the first.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn extent(&self, field: &'static Field, size: usize) -> Result<Option<(&'a [u8], u64)>, FormatError> {
        let Some(pos) = self.target(field)? else { return Ok(None) };
        let bytes = read::<u32>(self.buf, pos)
            .and_then(|len| usize::try_from(u64::from(len) * size as u64).ok())
            .and_then(|len| slice(self.buf, pos + 4, len));
        match bytes {
            Some(bytes) => Ok(Some((bytes, pos + 4))),
            None => Err(broken_vector(self.buf, pos, size, field)),
        }
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn vector<T: Element>(&self, field: &'static Field) -> Result<Option<Vector<'a, T>>, FormatError> {
        Ok(self.extent(field, T::SIZE)?.map(|(bytes, _)| Vector::new(bytes)))
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn required_vector<T: Element>(&self, field: &'static Field) -> Result<Vector<'a, T>, FormatError> {
        match self.extent(field, T::SIZE)? {
            Some((bytes, _)) => Ok(Vector::new(bytes)),
            None => Err(self.error(field, ErrorKind::Missing)),
        }
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn string(&self, field: &'static Field) -> Result<Option<&'a str>, FormatError> {
        match self.extent(field, 1)? {
            Some((bytes, pos)) => utf8(bytes, pos, field).map(Some),
            None => Ok(None),
        }
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn required_string(&self, field: &'static Field) -> Result<&'a str, FormatError> {
        match self.extent(field, 1)? {
            Some((bytes, pos)) => utf8(bytes, pos, field),
            None => Err(self.error(field, ErrorKind::Missing)),
        }
    }

    /// A vector of tables; an absent one is empty.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn tables(&self, field: &'static Field) -> Result<Tables<'a>, FormatError> {
        let (offsets, start) = self.extent(field, 4)?.unwrap_or((&[], 0));
        Ok(Tables { buf: self.buf, offsets: Vector::new(offsets), start: start as u32, field })
    }
}

/// A vector of tables. Its offsets lie inside the buffer; each table is checked when it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'a> {
    buf: &'a [u8],
    offsets: Vector<'a, u32>,
    start: u32,
    field: &'static Field,
}

impl<'a> Tables<'a> {
    pub fn empty(field: &'static Field) -> Self {
        Self { buf: &[], offsets: Vector::default(), start: 0, field }
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Where the vector stands in the buffer.
    pub fn position(&self) -> u64 {
        u64::from(self.start)
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn get(&self, index: usize) -> Result<Table<'a>, FormatError> {
        let Some(offset) = self.offsets.get(index) else {
            let kind = ErrorKind::OutOfRange { value: index as u64, limit: self.len() as u64 };
            return Err(self.field.error(kind, self.position()));
        };
        self.resolve(index, offset)
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn resolve(&self, index: usize, offset: u32) -> Result<Table<'a>, FormatError> {
        let pos = self.position() + 4 * index as u64 + u64::from(offset);
        Table::at(self.buf, pos, self.field)
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn iter(self) -> impl ExactSizeIterator<Item = Result<Table<'a>, FormatError>> {
        self.offsets.iter().enumerate().map(move |(index, offset)| self.resolve(index, offset))
    }
}
