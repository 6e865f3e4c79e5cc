//! Tables, and what their fields point at.

use core::cell::Cell;

use crate::error::{ErrorKind, FormatError};
use crate::schema::FILE_SIZE;

use super::vector::{Element, Vector};

/// A field of a schema: the number of its table, and its slot in the table's vtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field(u16);

impl Field {
    /// `slot` is below 16.
    pub const fn new(table: u16, slot: u16) -> Self {
        Self(table << 4 | slot)
    }

    pub const fn slot(self) -> u16 {
        self.0 & 15
    }

    /// An error of this field, found at byte `offset`.
    pub fn error(self, kind: ErrorKind, offset: u64) -> FormatError {
        FormatError::new(self, kind, offset)
    }
}

/// A fault was found, and is in the [`Context`]. Errors are too large to hand from call to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported;

pub(crate) type Read<T> = Result<T, Reported>;

/// A flatbuffer being read: its bytes, the fault found in it, and how much of it may still be read.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    buf: &'a [u8],
    fault: Cell<Option<FormatError>>,
    budget: Cell<u64>,
}

/// Offsets to vtables are signed 32-bit numbers, which bounds a flatbuffer.
const MAX_LEN: usize = i32::MAX as usize;

/// How often all of a flatbuffer may be read. Flatbuffers may share tables and strings, so that a small file can
/// describe a huge program; what writers do share stays below a small factor.
const BUDGET_FACTOR: u64 = 16;

impl<'a> Context<'a> {
    #[inline]
    pub fn new(buf: &'a [u8]) -> Self {
        let budget = (buf.len() as u64).saturating_mul(BUDGET_FACTOR);
        Self { buf, fault: Cell::new(None), budget: Cell::new(budget) }
    }

    pub fn buf(&self) -> &'a [u8] {
        self.buf
    }

    /// The root table, whose offset is the first word.
    pub fn root(&self, field: Field) -> Read<Table<'_, 'a>> {
        if self.buf.len() > MAX_LEN {
            return Err(self.report(field, ErrorKind::TooLarge { size: self.buf.len() as u64 }, 0));
        }
        match read::<u32>(self.buf, 0) {
            Some(pos) => Table::at(self, pos, field),
            None => Err(self.truncated(field, 0, 4)),
        }
    }

    /// A vector of tables that was found before.
    #[inline]
    pub fn tables(&self, list: TableList) -> Tables<'_, 'a> {
        Tables { ctx: self, list }
    }

    /// A table that was found before.
    pub fn table(&self, pos: u32, field: Field) -> Read<Table<'_, 'a>> {
        Table::at(self, pos, field)
    }

    /// The result of a reading, with the fault if there was one.
    pub fn explain<T>(&self, result: Read<T>) -> Result<T, FormatError> {
        result.map_err(|Reported| self.fault.get().unwrap_or(FILE_SIZE.error(ErrorKind::TooComplex, 0)))
    }

    #[cold]
    #[inline(never)]
    pub fn report(&self, field: Field, kind: ErrorKind, pos: u32) -> Reported {
        self.fault.set(Some(field.error(kind, u64::from(pos))));
        Reported
    }

    /// Attributes the fault to entry `index` of the list being read, unless an inner list has claimed it.
    #[cold]
    #[inline(never)]
    pub fn at_index(&self, index: usize) -> Reported {
        if let Some(mut fault) = self.fault.get() {
            fault.index = fault.index.or(u32::try_from(index).ok());
            self.fault.set(Some(fault));
        }
        Reported
    }

    #[cold]
    #[inline(never)]
    fn missing(&self, field: Field, pos: u32) -> Reported {
        self.report(field, ErrorKind::Missing, pos)
    }

    #[cold]
    #[inline(never)]
    fn unknown(&self, field: Field, tag: u8, pos: u32) -> Reported {
        self.report(field, ErrorKind::UnknownTag { tag: u32::from(tag) }, pos)
    }

    #[cold]
    #[inline(never)]
    fn out_of_range(&self, field: Field, value: u64, limit: u64, pos: u32) -> Reported {
        self.report(field, ErrorKind::OutOfRange { value, limit }, pos)
    }

    #[cold]
    #[inline(never)]
    fn too_short(&self, field: Field, needed: u64, available: u64, pos: u32) -> Reported {
        self.report(field, ErrorKind::Truncated { needed, available }, pos)
    }

    #[cold]
    #[inline(never)]
    fn truncated(&self, field: Field, pos: u32, size: u32) -> Reported {
        self.too_short(field, u64::from(pos) + u64::from(size), self.buf.len() as u64, pos)
    }

    #[cold]
    #[inline(never)]
    fn exhausted(&self, pos: u32) -> Reported {
        self.report(FILE_SIZE, ErrorKind::TooComplex, pos)
    }

    /// Says why [`Table::open`] refused a position.
    #[cold]
    #[inline(never)]
    fn broken_table(&self, pos: u32, field: Field) -> Reported {
        let Some(distance) = read::<i32>(self.buf, pos) else { return self.truncated(field, pos, 4) };
        let start = pos.wrapping_sub(distance as u32);
        let Some(head) = read::<u32>(self.buf, start) else { return self.truncated(field, start, 4) };
        let vtable_len = head & 0xffff;
        if vtable_len < 4 {
            self.report(field, ErrorKind::BadVtable, start)
        } else if u64::from(start) + u64::from(vtable_len) > self.buf.len() as u64 {
            self.truncated(field, start, vtable_len)
        } else {
            self.truncated(field, pos, head >> 16)
        }
    }

    /// Says why [`Table::extent`] refused a vector.
    #[cold]
    #[inline(never)]
    fn broken_vector(&self, pos: u32, size: usize, field: Field) -> Reported {
        let len = read::<u32>(self.buf, pos).unwrap_or(0);
        self.truncated(field, pos.saturating_add(4), len.saturating_mul(size as u32))
    }

    /// The error of a field that its vtable places behind the end of the table.
    #[cold]
    #[inline(never)]
    fn outside(&self, field: Field, pos: u32, at: u32, body_len: usize) -> Reported {
        self.out_of_range(field, u64::from(at), body_len as u64, pos)
    }
}

/// The `len` bytes at `pos`.
#[inline]
fn slice(buf: &[u8], pos: u32, len: usize) -> Option<&[u8]> {
    let pos = pos as usize;
    buf.get(pos..pos.checked_add(len)?)
}

#[inline]
fn read<T: Element>(buf: &[u8], pos: u32) -> Option<T> {
    T::read(slice(buf, pos, T::SIZE)?)
}

/// A table whose vtable and body lie inside the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'c, 'a> {
    ctx: &'c Context<'a>,
    pos: u32,
    vtable: &'a [u8],
    body: &'a [u8],
}

impl<'c, 'a> Table<'c, 'a> {
    #[inline]
    fn at(ctx: &'c Context<'a>, pos: u32, field: Field) -> Read<Self> {
        match Self::open(ctx, pos) {
            Some(table) => Ok(table),
            None => Err(ctx.broken_table(pos, field)),
        }
    }

    #[inline]
    fn open(ctx: &'c Context<'a>, pos: u32) -> Option<Self> {
        // A start before the buffer wraps to one behind `MAX_LEN`.
        let start = pos.wrapping_sub(read::<i32>(ctx.buf, pos)? as u32);
        let head = read::<u32>(ctx.buf, start)?;
        let (vtable_len, body_len) = ((head & 0xffff) as usize, (head >> 16) as usize);
        if vtable_len < 4 {
            return None;
        }
        let (vtable, body) = (slice(ctx.buf, start, vtable_len)?, slice(ctx.buf, pos, body_len)?);
        Some(Self { ctx, pos, vtable, body })
    }

    #[inline]
    pub fn context(&self) -> &'c Context<'a> {
        self.ctx
    }

    /// Where the table stands in the buffer.
    #[inline]
    pub fn position(&self) -> u32 {
        self.pos
    }

    /// Reports a fault of one of this table's fields.
    #[inline]
    pub fn report(&self, field: Field, kind: ErrorKind) -> Reported {
        self.ctx.report(field, kind, self.pos)
    }

    /// Reports that a required field is absent.
    #[inline]
    pub fn missing(&self, field: Field) -> Reported {
        self.ctx.missing(field, self.pos)
    }

    /// Reports a code that the schema does not define.
    #[inline]
    pub fn unknown(&self, field: Field, tag: u8) -> Reported {
        self.ctx.unknown(field, tag, self.pos)
    }

    /// Reports an index or count that is not below, or not at most, `limit`.
    #[inline]
    pub fn out_of_range(&self, field: Field, value: u64, limit: usize) -> Reported {
        self.ctx.out_of_range(field, value, limit as u64, self.pos)
    }

    /// Checks that `needed` bytes of what the field describes are `available`.
    #[inline]
    pub fn fits(&self, field: Field, needed: u64, available: u64) -> Read<()> {
        if needed <= available { Ok(()) } else { Err(self.ctx.too_short(field, needed, available, self.pos)) }
    }

    /// Pays for having read `bytes`, so that shared data is not read without end.
    #[inline]
    pub fn spend(&self, bytes: usize) -> Read<()> {
        match self.ctx.budget.get().checked_sub(bytes as u64) {
            Some(left) => {
                self.ctx.budget.set(left);
                Ok(())
            }
            None => Err(self.ctx.exhausted(self.pos)),
        }
    }

    /// Offset of a field in the body, 0 when it is absent.
    #[inline]
    fn slot(&self, field: Field) -> u32 {
        read::<u16>(self.vtable, 4 + 2 * u32::from(field.slot())).map_or(0, u32::from)
    }

    /// A number, or `default` when the field is absent.
    #[inline]
    pub fn scalar<T: Element>(&self, field: Field, default: T) -> Read<T> {
        let at = self.slot(field);
        if at == 0 {
            return Ok(default);
        }
        match read(self.body, at) {
            Some(value) => Ok(value),
            None => Err(self.ctx.outside(field, self.pos, at, self.body.len())),
        }
    }

    /// Position of what an offset field points at.
    #[inline]
    fn target(&self, field: Field) -> Read<Option<u32>> {
        let at = self.slot(field);
        if at == 0 {
            return Ok(None);
        }
        match read::<u32>(self.body, at) {
            // A sum of valid positions and offsets saturates behind `MAX_LEN`.
            Some(offset) => Ok(Some((self.pos + at).saturating_add(offset))),
            None => Err(self.ctx.outside(field, self.pos, at, self.body.len())),
        }
    }

    #[inline]
    pub fn table(&self, field: Field) -> Read<Option<Self>> {
        match self.target(field)? {
            Some(pos) => Self::at(self.ctx, pos, field).map(Some),
            None => Ok(None),
        }
    }

    #[inline]
    pub fn required_table(&self, field: Field) -> Read<Self> {
        match self.target(field)? {
            Some(pos) => Self::at(self.ctx, pos, field),
            None => Err(self.missing(field)),
        }
    }

    /// The bytes of a vector's elements, and the position of the first.
    #[inline]
    fn extent(&self, field: Field, size: usize) -> Read<Option<(&'a [u8], u32)>> {
        let Some(pos) = self.target(field)? else { return Ok(None) };
        let bytes = read::<u32>(self.ctx.buf, pos)
            .and_then(|len| (len as usize).checked_mul(size))
            .and_then(|len| slice(self.ctx.buf, pos + 4, len));
        match bytes {
            Some(bytes) => Ok(Some((bytes, pos + 4))),
            None => Err(self.ctx.broken_vector(pos, size, field)),
        }
    }

    /// A vector of numbers; an absent one is empty.
    #[inline]
    pub fn vector<T: Element>(&self, field: Field) -> Read<Vector<'a, T>> {
        Ok(self.extent(field, T::SIZE)?.map(|(bytes, _)| Vector::new(bytes)).unwrap_or_default())
    }

    #[inline]
    pub fn required_vector<T: Element>(&self, field: Field) -> Read<Vector<'a, T>> {
        match self.extent(field, T::SIZE)? {
            Some((bytes, _)) => Ok(Vector::new(bytes)),
            None => Err(self.missing(field)),
        }
    }

    #[inline]
    pub fn string(&self, field: Field) -> Read<Option<&'a str>> {
        match self.extent(field, 1)? {
            Some((bytes, pos)) => utf8(self.ctx, bytes, pos, field).map(Some),
            None => Ok(None),
        }
    }

    #[inline]
    pub fn required_string(&self, field: Field) -> Read<&'a str> {
        match self.extent(field, 1)? {
            Some((bytes, pos)) => utf8(self.ctx, bytes, pos, field),
            None => Err(self.missing(field)),
        }
    }

    /// A vector of tables; an absent one is empty.
    #[inline]
    pub fn tables(&self, field: Field) -> Read<Tables<'c, 'a>> {
        let (offsets, start) = self.extent(field, 4)?.unwrap_or((&[], 0));
        let list = TableList { start, len: (offsets.len() / 4) as u32, field };
        Ok(Tables { ctx: self.ctx, list })
    }
}

#[inline(never)]
fn utf8<'a>(ctx: &Context<'_>, bytes: &'a [u8], pos: u32, field: Field) -> Read<&'a str> {
    core::str::from_utf8(bytes).map_err(|_| ctx.report(field, ErrorKind::InvalidUtf8, pos))
}

/// A vector of tables, whose offsets lie inside the buffer, apart from the [`Context`] it was read in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableList {
    start: u32,
    len: u32,
    field: Field,
}

impl TableList {
    pub const fn empty(field: Field) -> Self {
        Self { start: 0, len: 0, field }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Entry `index`, if there are so many, of a list in `buf` whose entries have been checked.
    #[inline]
    pub fn entry<'a, T>(
        self,
        buf: &'a [u8],
        index: usize,
        decode: impl for<'c> FnOnce(Table<'c, 'a>) -> Read<T>,
    ) -> Option<T> {
        let ctx = Context::new(buf);
        ctx.tables(self).get(index).and_then(decode).ok()
    }
}

/// A vector of tables. Each is checked when it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'c, 'a> {
    ctx: &'c Context<'a>,
    list: TableList,
}

impl<'c, 'a> Tables<'c, 'a> {
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub fn list(&self) -> TableList {
        self.list
    }

    #[inline]
    pub fn get(&self, index: usize) -> Read<Table<'c, 'a>> {
        let TableList { start, len, field } = self.list;
        if index >= len as usize {
            return Err(self.ctx.out_of_range(field, index as u64, u64::from(len), start));
        }
        // The vector lies inside the buffer, and so does this entry.
        let entry = start + 4 * index as u32;
        match read::<u32>(self.ctx.buf, entry) {
            Some(offset) => Table::at(self.ctx, entry.saturating_add(offset), field),
            None => Err(self.ctx.truncated(field, entry, 4)),
        }
    }

    /// Visits the tables in order until one is refused, and attributes the fault to its index.
    #[inline]
    pub fn each(&self, mut visit: impl FnMut(Table<'c, 'a>) -> Read<()>) -> Read<()> {
        for index in 0..self.len() {
            if self.get(index).and_then(&mut visit).is_err() {
                return Err(self.ctx.at_index(index));
            }
        }
        Ok(())
    }
}
