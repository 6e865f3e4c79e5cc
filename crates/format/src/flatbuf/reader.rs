//! Tables and the targets of their fields.

use core::cell::Cell;

use crate::error::{ErrorKind, FormatError};
use crate::schema::{FILE_SIZE, Field};

use super::vector::{Element, Vector};

/// A flatbuffer that is being read: its bytes, the first fault, and the budget of bytes that may still be read.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    buf: &'a [u8],
    fault: Cell<Option<FormatError>>,
    budget: Cell<usize>,
}

/// Maximum length of a flatbuffer, because offsets to vtables are signed 32-bit numbers.
const MAX_LEN: usize = i32::MAX as usize;

/// Limit of the bytes read, as a multiple of the flatbuffer's size. Flatbuffers may share tables and strings, so that a
/// small file can describe a huge program. The sharing of real writers stays below a small factor.
const BUDGET_FACTOR: usize = 16;

impl<'a> Context<'a> {
    #[inline]
    pub fn new(buf: &'a [u8]) -> Self {
        Self { buf, fault: Cell::new(None), budget: Cell::new(buf.len().saturating_mul(BUDGET_FACTOR)) }
    }

    /// Restricts reading to the first `len` bytes of the buffer.
    pub fn limit(&mut self, len: usize) {
        let limited = Self::new(self.buf.get(..len).unwrap_or(self.buf));
        (self.buf, self.budget) = (limited.buf, limited.budget);
    }

    /// The number at a position outside of any table; 0 if a fault was reported.
    pub fn number<T: Element>(&self, pos: u32, field: Field) -> T {
        read(self.buf, pos as usize).unwrap_or_else(|| {
            self.truncated(field, pos, T::SIZE as u32);
            T::default()
        })
    }

    pub fn buf(&self) -> &'a [u8] {
        self.buf
    }

    /// The root table, whose offset is the first word; `None` if a fault was reported here or before.
    pub fn root(&self, field: Field) -> Option<Table<'_, 'a>> {
        if self.has_fault() {
            return None;
        }
        if self.buf.len() > MAX_LEN {
            self.report(field, ErrorKind::TooLarge { size: self.buf.len() as u64 }, 0);
            return None;
        }
        Table::at(self, self.number::<u32>(0, field) as usize, field)
    }

    /// Table `index` of a list, which `field` holds.
    #[cfg_attr(target_os = "none", inline(never))]
    #[cfg_attr(not(target_os = "none"), inline)]
    pub fn entry(&self, list: TableList, index: usize, field: Field) -> Option<Table<'_, 'a>> {
        let start = list.start;
        if index >= list.len() {
            self.out_of_range(field, index as u64, u64::from(list.len), start);
            return None;
        }
        // The vector is inside the buffer, and so is this entry.
        let entry = start + 4 * index as u32;
        Table::at(self, ahead(entry, self.number(entry, field)), field)
    }

    /// Visits the tables of a list in order, stops at the first refused one, and attributes the fault to its index.
    #[inline]
    pub fn each<'c>(&'c self, list: TableList, field: Field, mut visit: impl FnMut(Table<'c, 'a>)) {
        self.walk(list, field, &mut visit);
    }

    /// Does the work of [`each`](Self::each): inlined where speed matters, a single copy where size matters.
    #[cfg_attr(target_os = "none", inline(never))]
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn walk<'c>(&'c self, list: TableList, field: Field, visit: &mut dyn FnMut(Table<'c, 'a>)) {
        if self.has_fault() {
            return;
        }
        // One walk through the offsets saves a check for each; microcontrollers go without that code.
        let offsets = slice(self.buf, list.start as usize, 4 * list.len()).unwrap_or_default();
        let mut offsets = Vector::<u32>::new(offsets).iter();
        for index in 0..list.len() {
            let table = match offsets.next() {
                Some(offset) if !cfg!(target_os = "none") => {
                    Table::at(self, ahead(list.start + 4 * index as u32, offset), field)
                }
                _ => self.entry(list, index, field),
            };
            if let Some(table) = table {
                visit(table);
            }
            if self.has_fault() {
                self.at_index(index);
                return;
            }
        }
    }

    /// A table that was found before.
    pub fn table(&self, pos: u32, field: Field) -> Option<Table<'_, 'a>> {
        Table::at(self, pos as usize, field)
    }

    /// Returns the result of a reading, or the fault if one was found.
    pub fn explain<T>(&self, result: Option<T>) -> Result<T, FormatError> {
        match result {
            Some(value) if !self.has_fault() => Ok(value),
            _ => Err(self.fault()),
        }
    }

    /// True if a fault was found. Unreadable numbers and vectors are reported and then have their defaults, so the
    /// values read so far are right only if this is false.
    #[inline]
    pub fn has_fault(&self) -> bool {
        self.fault.get().is_some()
    }

    /// The fault that was found.
    #[cold]
    #[inline(never)]
    pub fn fault(&self) -> FormatError {
        self.fault.get().unwrap_or(FILE_SIZE.error(ErrorKind::TooComplex, 0))
    }

    #[cold]
    #[inline(never)]
    pub fn report(&self, field: Field, kind: ErrorKind, pos: u32) {
        // A later fault may be a consequence of the first.
        if !self.has_fault() {
            self.fault.set(Some(field.error(kind, u64::from(pos))));
        }
    }

    /// Attributes the fault to entry `index` of the list being read, unless an inner list has claimed it.
    #[cold]
    #[inline(never)]
    pub fn at_index(&self, index: usize) {
        if let Some(mut fault) = self.fault.get() {
            fault.index = fault.index.or(u32::try_from(index).ok());
            self.fault.set(Some(fault));
        }
    }

    #[cold]
    #[inline(never)]
    fn missing(&self, field: Field, pos: u32) {
        self.report(field, ErrorKind::Missing, pos);
    }

    #[cold]
    #[inline(never)]
    fn unknown(&self, field: Field, tag: u8, pos: u32) {
        self.report(field, ErrorKind::UnknownTag { tag: u32::from(tag) }, pos);
    }

    #[cold]
    #[inline(never)]
    fn out_of_range(&self, field: Field, value: u64, limit: u64, pos: u32) {
        self.report(field, ErrorKind::OutOfRange { value, limit }, pos);
    }

    #[cold]
    #[inline(never)]
    fn too_short(&self, field: Field, needed: u64, available: u64, pos: u32) {
        self.report(field, ErrorKind::Truncated { needed, available }, pos);
    }

    #[cold]
    #[inline(never)]
    fn truncated(&self, field: Field, pos: u32, size: u32) {
        self.too_short(field, u64::from(pos) + u64::from(size), self.buf.len() as u64, pos);
    }

    #[cold]
    #[inline(never)]
    fn exhausted(&self, pos: u32) {
        self.report(FILE_SIZE, ErrorKind::TooComplex, pos);
    }

    /// Reports the reason why [`Table::open`] refused a position.
    #[cold]
    #[inline(never)]
    fn broken_table(&self, pos: usize, field: Field) {
        let pos = u32::try_from(pos).unwrap_or(u32::MAX);
        let Some(distance) = read::<i32>(self.buf, pos as usize) else { return self.truncated(field, pos, 4) };
        let start = pos.wrapping_sub(distance as u32);
        let Some(vtable_len) = read::<u16>(self.buf, start as usize) else { return self.truncated(field, start, 4) };
        if vtable_len < 4 {
            self.report(field, ErrorKind::BadVtable, start);
        } else {
            self.truncated(field, start, u32::from(vtable_len));
        }
    }

    /// Reports the reason why [`Table::extent`] refused a vector.
    #[cold]
    #[inline(never)]
    fn broken_vector(&self, pos: usize, size: usize, field: Field) {
        let pos = u32::try_from(pos).unwrap_or(u32::MAX);
        let len = read::<u32>(self.buf, pos as usize).unwrap_or(0);
        self.truncated(field, pos.saturating_add(4), len.saturating_mul(size as u32));
    }
}

/// Target of the offset at `pos`, which may be beyond the buffer.
#[inline(always)]
fn ahead(pos: u32, offset: u32) -> usize {
    let pos = pos as usize;
    // Cannot overflow in 64 bits, which the compiler knows. On narrower targets the sum saturates above `MAX_LEN`.
    if usize::BITS > 32 { pos.wrapping_add(offset as usize) } else { pos.saturating_add(offset as usize) }
}

/// The `len` bytes at `pos`.
#[inline]
fn slice(buf: &[u8], pos: usize, len: usize) -> Option<&[u8]> {
    buf.get(pos..pos.checked_add(len)?)
}

#[inline]
fn read<T: Element>(buf: &[u8], pos: usize) -> Option<T> {
    T::read(slice(buf, pos, T::SIZE)?)
}

/// A table that begins inside the buffer, as does its vtable. Its length is not known: builders may share a vtable
/// between tables of different sizes. Each field is therefore bounded by the buffer alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'c, 'a> {
    ctx: &'c Context<'a>,
    pos: u32,
    /// The position of both parts. Microcontrollers compute it again for each field, because a table in two registers
    /// makes for less code.
    #[cfg(not(target_os = "none"))]
    parts: TableParts<'a>,
}

/// The vtable of a table, and the buffer from the table on.
#[derive(Clone, Copy, Debug)]
struct TableParts<'a> {
    vtable: &'a [u8],
    rest: &'a [u8],
}

impl<'a> TableParts<'a> {
    /// Finds the parts; `None` if they are not inside `buf`.
    #[cfg_attr(not(target_os = "none"), inline)]
    fn find(buf: &'a [u8], pos: usize) -> Option<Self> {
        // A start before the buffer wraps to one above `MAX_LEN`.
        let start = (pos as u32).wrapping_sub(read::<i32>(buf, pos)? as u32) as usize;
        let vtable_len = usize::from(read::<u16>(buf, start)?);
        if vtable_len < 4 {
            return None;
        }
        Some(Self { vtable: slice(buf, start, vtable_len)?, rest: buf.get(pos..)? })
    }
}

impl<'c, 'a> Table<'c, 'a> {
    #[inline]
    fn at(ctx: &'c Context<'a>, pos: usize, field: Field) -> Option<Self> {
        // A position inside the buffer is below `MAX_LEN`.
        match TableParts::find(ctx.buf, pos) {
            #[cfg(not(target_os = "none"))]
            Some(parts) => Some(Self { ctx, pos: pos as u32, parts }),
            #[cfg(target_os = "none")]
            Some(_) => Some(Self { ctx, pos: pos as u32 }),
            None => {
                ctx.broken_table(pos, field);
                None
            }
        }
    }

    #[inline]
    fn parts(&self) -> TableParts<'a> {
        #[cfg(not(target_os = "none"))]
        return self.parts;
        #[cfg(target_os = "none")]
        TableParts::find(self.ctx.buf, self.pos as usize).unwrap_or(TableParts { vtable: &[], rest: &[] })
    }

    #[inline]
    pub fn context(&self) -> &'c Context<'a> {
        self.ctx
    }

    /// Position of the table in the buffer.
    #[inline]
    pub fn position(&self) -> u32 {
        self.pos
    }

    /// Reports a fault of one of this table's fields.
    #[inline]
    pub fn report(&self, field: Field, kind: ErrorKind) {
        self.ctx.report(field, kind, self.pos);
    }

    /// Reports that a required field is absent.
    #[inline]
    pub fn missing(&self, field: Field) {
        self.ctx.missing(field, self.pos);
    }

    /// Reports a code that the schema does not define.
    #[inline]
    pub fn unknown(&self, field: Field, tag: u8) {
        self.ctx.unknown(field, tag, self.pos);
    }

    /// Reports an index or count that is not below, or not at most, `limit`.
    #[inline]
    pub fn out_of_range(&self, field: Field, value: u64, limit: usize) {
        self.ctx.out_of_range(field, value, limit as u64, self.pos);
    }

    /// Checks that the `needed` bytes of a field's data are `available`.
    #[inline]
    pub fn fits(&self, field: Field, needed: u64, available: u64) {
        if needed > available {
            self.ctx.too_short(field, needed, available, self.pos);
        }
    }

    /// Deducts `bytes` from the budget, so that shared data is not read without end.
    #[inline]
    pub fn spend(&self, bytes: usize) {
        match self.ctx.budget.get().checked_sub(bytes) {
            Some(left) => self.ctx.budget.set(left),
            None => {
                self.ctx.exhausted(self.pos);
            }
        }
    }

    /// The `size` bytes of a field and their position; `None` if the field is absent, or outside of the buffer, which
    /// is reported.
    #[inline(always)]
    fn locate(&self, field: Field, size: usize) -> Option<(u32, &'a [u8])> {
        let TableParts { vtable, rest } = self.parts();
        let at = u32::from(read::<u16>(vtable, 4 + 2 * usize::from(field.slot()))?);
        if at == 0 {
            return None;
        }
        // Tables begin below `MAX_LEN`, therefore the sum cannot overflow.
        let bytes = slice(rest, at as usize, size);
        if bytes.is_none() {
            self.ctx.truncated(field, self.pos + at, size as u32);
        }
        Some((self.pos + at, bytes?))
    }

    /// [`locate`](Self::locate) without the bytes, and with 0 for `None`: a single function, for microcontrollers.
    #[inline(never)]
    fn position_of(&self, field: Field, size: usize) -> u32 {
        self.locate(field, size).map_or(0, |(pos, _)| pos)
    }

    /// A number, or `default` if the field is absent or has a fault.
    #[inline]
    pub fn scalar<T: Element>(&self, field: Field, default: T) -> T {
        if cfg!(target_os = "none") {
            return match self.position_of(field, T::SIZE) {
                0 => default,
                at => read(self.ctx.buf, at as usize).unwrap_or(default),
            };
        }
        match self.locate(field, T::SIZE) {
            Some((_, bytes)) => T::read(bytes).unwrap_or(default),
            None => default,
        }
    }

    /// Position of an offset field's target; `None` if the field is absent or has a fault.
    #[cfg_attr(target_os = "none", inline(never))]
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn target(&self, field: Field) -> Option<usize> {
        if cfg!(target_os = "none") {
            return match self.position_of(field, 4) {
                0 => None,
                at => Some(ahead(at, read(self.ctx.buf, at as usize)?)),
            };
        }
        let (at, offset) = self.locate(field, 4)?;
        Some(ahead(at, u32::read(offset)?))
    }

    /// A table; `None` if it is absent or has a fault.
    #[inline]
    pub fn table(&self, field: Field) -> Option<Self> {
        Self::at(self.ctx, self.target(field)?, field)
    }

    #[inline]
    pub fn required_table(&self, field: Field) -> Option<Self> {
        let table = self.table(field);
        if table.is_none() {
            // Has no effect if a fault was reported.
            self.missing(field);
        }
        table
    }

    /// The bytes of a vector's elements, and the position of the first. The position is 0 if the vector is absent or
    /// has a fault.
    #[cfg_attr(target_os = "none", inline(never))]
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn extent(&self, field: Field, size: usize) -> (&'a [u8], u32) {
        let Some(pos) = self.target(field) else { return (&[], 0) };
        let bytes = read::<u32>(self.ctx.buf, pos)
            .and_then(|len| (len as usize).checked_mul(size))
            .and_then(|len| slice(self.ctx.buf, pos + 4, len));
        match bytes {
            Some(bytes) => (bytes, pos as u32 + 4),
            None => {
                self.ctx.broken_vector(pos, size, field);
                (&[], 0)
            }
        }
    }

    /// [`extent`](Self::extent) of a required vector.
    #[cfg_attr(target_os = "none", inline(never))]
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn required_extent(&self, field: Field, size: usize) -> (&'a [u8], u32) {
        let extent = self.extent(field, size);
        if extent.1 == 0 {
            self.missing(field);
        }
        extent
    }

    /// A vector of numbers; empty if it is absent or has a fault.
    #[inline]
    pub fn vector<T: Element>(&self, field: Field) -> Vector<'a, T> {
        Vector::new(self.extent(field, T::SIZE).0)
    }

    #[inline]
    pub fn required_vector<T: Element>(&self, field: Field) -> Vector<'a, T> {
        Vector::new(self.required_extent(field, T::SIZE).0)
    }

    #[inline]
    pub fn string(&self, field: Field) -> Option<&'a str> {
        match self.extent(field, 1) {
            (_, 0) => None,
            (bytes, pos) => Some(utf8(self.ctx, bytes, pos, field)),
        }
    }

    #[inline]
    pub fn required_string(&self, field: Field) -> &'a str {
        let (bytes, pos) = self.required_extent(field, 1);
        utf8(self.ctx, bytes, pos, field)
    }

    /// Checks a string that is not used now, and returns its length in bytes; 0 if it is absent or has a fault. Most
    /// strings are ASCII, which is quicker to check; microcontrollers have the code of one check only.
    #[inline]
    pub fn string_len(&self, field: Field) -> usize {
        if cfg!(target_os = "none") {
            return self.string(field).map_or(0, str::len);
        }
        let (bytes, pos) = self.extent(field, 1);
        self.checked_len(bytes, pos, field)
    }

    #[inline]
    pub fn required_string_len(&self, field: Field) -> usize {
        if cfg!(target_os = "none") {
            return self.required_string(field).len();
        }
        let (bytes, pos) = self.required_extent(field, 1);
        self.checked_len(bytes, pos, field)
    }

    #[inline]
    fn checked_len(&self, bytes: &[u8], pos: u32, field: Field) -> usize {
        if bytes.is_ascii() { bytes.len() } else { utf8(self.ctx, bytes, pos, field).len() }
    }

    /// A vector of tables; empty if it is absent or has a fault.
    #[inline]
    pub fn tables(&self, field: Field) -> TableList {
        let (offsets, start) = self.extent(field, 4);
        TableList { start, len: (offsets.len() / 4) as u32 }
    }
}

#[inline(never)]
fn utf8<'a>(ctx: &Context<'_>, bytes: &'a [u8], pos: u32, field: Field) -> &'a str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => {
            ctx.report(field, ErrorKind::InvalidUtf8, pos);
            ""
        }
    }
}

/// A vector of tables, whose offsets are inside the buffer. Each table is checked when it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableList {
    start: u32,
    len: u32,
}

impl TableList {
    pub const EMPTY: Self = Self { start: 0, len: 0 };

    #[inline]
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Entry `index` of a list in `buf` whose entries have been checked; `None` past its end.
    #[inline]
    pub fn entry<'a, T>(
        self,
        buf: &'a [u8],
        index: usize,
        decode: impl for<'c> FnOnce(Table<'c, 'a>) -> T,
    ) -> Option<T> {
        // Neither faults nor the budget matter: the entries were checked before.
        let ctx = Context { buf, fault: Cell::new(None), budget: Cell::new(usize::MAX) };
        ctx.entry(self, index, FILE_SIZE).map(decode)
    }
}
