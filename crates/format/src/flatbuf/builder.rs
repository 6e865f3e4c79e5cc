//! Builds a flatbuffer from its leaves to its root.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::schema::Field;

/// An object that is already built. Its position counts from the end of the buffer, because that end is fixed while
/// building.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset(u32);

/// The value of a table's field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldValue {
    /// Little-endian bytes of a number and its size. 0 is the default of every field and is left out.
    Number {
        bytes: [u8; 8],
        size: u8,
    },
    Offset(Option<Offset>),
}

macro_rules! number_fields {
    ($($t:ty),*) => {$(
        impl From<$t> for FieldValue {
            fn from(value: $t) -> Self {
                let mut bytes = [0; 8];
                let number = value.to_le_bytes();
                bytes[..number.len()].copy_from_slice(&number);
                Self::Number { bytes, size: number.len() as u8 }
            }
        }
    )*};
}

number_fields!(u8, i8, i32, u32, i64, u64, f64);

impl From<bool> for FieldValue {
    fn from(value: bool) -> Self {
        u8::from(value).into()
    }
}

impl From<Offset> for FieldValue {
    fn from(offset: Offset) -> Self {
        Self::Offset(Some(offset))
    }
}

impl From<Option<Offset>> for FieldValue {
    fn from(offset: Option<Offset>) -> Self {
        Self::Offset(offset)
    }
}

impl FieldValue {
    fn size(self) -> usize {
        match self {
            Self::Number { size, .. } => size as usize,
            Self::Offset(_) => 4,
        }
    }

    fn is_default(self) -> bool {
        match self {
            Self::Number { bytes, .. } => bytes == [0; 8],
            Self::Offset(offset) => offset.is_none(),
        }
    }
}

/// A flatbuffer that grows towards its front. Equal strings and equal vtables are stored once.
#[derive(Debug)]
pub(crate) struct Builder {
    /// The finished bytes are `buf[head..]`.
    buf: Vec<u8>,
    head: usize,
    alignment: usize,
    strings: BTreeMap<String, Offset>,
    vtables: BTreeMap<Vec<u8>, Offset>,
}

impl Builder {
    /// Makes a builder whose buffer will start at a multiple of `alignment`, a power of two of at least 8.
    pub fn new(alignment: usize) -> Self {
        let alignment = alignment.max(8);
        Self { buf: Vec::new(), head: 0, alignment, strings: BTreeMap::new(), vtables: BTreeMap::new() }
    }

    pub fn len(&self) -> usize {
        self.buf.len() - self.head
    }

    pub fn string(&mut self, text: &str) -> Offset {
        if let Some(offset) = self.strings.get(text) {
            return *offset;
        }
        // The terminating zero is not part of the length.
        self.align(4, text.len() + 1);
        self.push(&[0]);
        self.push(text.as_bytes());
        let offset = self.push_len(text.len());
        self.strings.insert(text.into(), offset);
        offset
    }

    /// Bytes that start at a multiple of `alignment`, which may not exceed the builder's.
    pub fn bytes(&mut self, bytes: &[u8], alignment: usize) -> Offset {
        self.align(alignment.clamp(4, self.alignment), bytes.len());
        self.push(bytes);
        self.push_len(bytes.len())
    }

    /// A vector of numbers, each given as its little-endian bytes.
    pub fn numbers<const N: usize>(&mut self, numbers: impl DoubleEndedIterator<Item = [u8; N]>) -> Offset {
        let bytes: Vec<u8> = numbers.flatten().collect();
        self.align(N.max(4), bytes.len());
        self.push(&bytes);
        self.push_len(bytes.len() / N)
    }

    /// A vector of tables or strings.
    pub fn offsets(&mut self, offsets: &[Offset]) -> Offset {
        self.align(4, 4 * offsets.len());
        for offset in offsets.iter().rev() {
            self.push_offset(*offset);
        }
        self.push_len(offsets.len())
    }

    /// A table of the given fields; those that hold their default take no space.
    pub fn table(&mut self, fields: &[(Field, FieldValue)]) -> Offset {
        // Four-byte fields come first, since they follow the four bytes of the vtable's offset.
        let mut placed: Vec<(usize, u16, FieldValue)> = Vec::with_capacity(fields.len());
        let (mut end, mut alignment) = (4usize, 4);
        for size in [4, 8, 2, 1] {
            for (field, slot) in fields.iter().filter(|(_, slot)| slot.size() == size && !slot.is_default()) {
                let at = end.next_multiple_of(size);
                placed.push((at, field.slot(), *slot));
                end = at + size;
                alignment = alignment.max(size);
            }
        }
        let slots = placed.iter().map(|(_, slot, _)| usize::from(*slot) + 1).max().unwrap_or(0);
        let mut vtable = vec![0u8; 4 + 2 * slots];
        vtable[..2].copy_from_slice(&(4 + 2 * slots as u16).to_le_bytes());
        vtable[2..4].copy_from_slice(&(end as u16).to_le_bytes());
        for (at, slot, _) in &placed {
            let entry = 4 + 2 * usize::from(*slot);
            vtable[entry..entry + 2].copy_from_slice(&(*at as u16).to_le_bytes());
        }
        self.align(alignment, end);
        let table = self.len() + end;
        let mut body = vec![0u8; end];
        for (at, _, slot) in placed {
            match slot {
                FieldValue::Number { bytes, size } => {
                    body[at..at + size as usize].copy_from_slice(&bytes[..size as usize]);
                }
                FieldValue::Offset(offset) => {
                    let distance = (table - at) as u32 - offset.map_or(0, |offset| offset.0);
                    body[at..at + 4].copy_from_slice(&distance.to_le_bytes());
                }
            }
        }
        // A new vtable is directly before the table, an earlier one after it.
        let known = self.vtables.get(&vtable).copied();
        let vtable_at = known.map_or(table + vtable.len(), |offset| offset.0 as usize);
        body[..4].copy_from_slice(&((vtable_at as i64 - table as i64) as i32).to_le_bytes());
        self.push(&body);
        if known.is_none() {
            self.push(&vtable);
            self.vtables.insert(vtable, Offset(vtable_at as u32));
        }
        Offset(table as u32)
    }

    /// Completes the buffer: root offset, identifier, `header`, and then all built objects.
    pub fn finish(mut self, root: Offset, identifier: [u8; 4], header: &[u8]) -> Vec<u8> {
        self.align(self.alignment, header.len() + 8);
        self.push(header);
        self.push(&identifier);
        self.push_offset(root);
        self.buf.drain(..self.head);
        self.buf
    }

    /// Pads, so that the start of the next `len` bytes is a multiple of `alignment` from the end.
    fn align(&mut self, alignment: usize, len: usize) {
        let end = self.len() + len;
        let padding = end.next_multiple_of(alignment) - end;
        self.reserve(padding);
        self.head -= padding;
    }

    fn push(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.head -= bytes.len();
        self.buf[self.head..self.head + bytes.len()].copy_from_slice(bytes);
    }

    fn push_len(&mut self, len: usize) -> Offset {
        self.push(&(len as u32).to_le_bytes());
        Offset(self.len() as u32)
    }

    fn push_offset(&mut self, target: Offset) {
        let distance = self.len() as u32 + 4 - target.0;
        self.push(&distance.to_le_bytes());
    }

    /// Makes room for `more` zero bytes at the front.
    fn reserve(&mut self, more: usize) {
        if more <= self.head {
            return;
        }
        let used = self.len();
        let capacity = (used + more).max(2 * self.buf.len()).max(256);
        let mut buf = vec![0; capacity];
        buf[capacity - used..].copy_from_slice(&self.buf[self.head..]);
        self.head = capacity - used;
        self.buf = buf;
    }
}
