use alloc::vec::Vec;

use super::{Builder, Context, Table};
use crate::schema::Field;
use crate::{ErrorKind, FormatError};

const ROOT: Field = Field::new(60, 0);
const BYTE: Field = Field::new(60, 0);
const WORD: Field = Field::new(60, 1);
const LONG: Field = Field::new(60, 2);
const TEXT: Field = Field::new(60, 3);
const LIST: Field = Field::new(60, 4);
const CHILD: Field = Field::new(60, 5);
const CHILDREN: Field = Field::new(60, 6);
const BLOB: Field = Field::new(60, 9);

fn build(fill: impl FnOnce(&mut Builder) -> super::Offset) -> Vec<u8> {
    let mut builder = Builder::new(32);
    let root = fill(&mut builder);
    builder.finish(root, *b"TEST", &[])
}

/// Reads the root table with `read`.
fn root<T>(buf: &[u8], read: impl FnOnce(Table<'_, '_>) -> T) -> Result<T, FormatError> {
    let ctx = Context::new(buf);
    ctx.explain(ctx.root(ROOT).map(read))
}

/// A hand-made buffer: root offset, identifier, then a vtable with one field and its table.
fn small(vtable: [u16; 3], distance: i32, field: u32) -> Vec<u8> {
    let mut buf = Vec::new();
    buf.extend_from_slice(&16u32.to_le_bytes());
    buf.extend_from_slice(b"TEST");
    for entry in vtable {
        buf.extend_from_slice(&entry.to_le_bytes());
    }
    buf.extend_from_slice(&[0; 2]);
    buf.extend_from_slice(&distance.to_le_bytes());
    buf.extend_from_slice(&field.to_le_bytes());
    buf
}

#[test]
fn fields_come_back() {
    let buf = build(|b| {
        let text = b.string("größe");
        let list = b.numbers([1u64, u64::MAX].iter().map(|n| n.to_le_bytes()));
        let blob = b.bytes(&[1, 2, 3], 32);
        let first = b.table(&[(WORD, 1u32.into())]);
        let second = b.table(&[(WORD, 2u32.into())]);
        let children = b.offsets(&[first, second]);
        b.table(&[
            (BYTE, true.into()),
            (WORD, 7u32.into()),
            (LONG, (-9i64).into()),
            (TEXT, text.into()),
            (LIST, list.into()),
            (CHILD, first.into()),
            (CHILDREN, children.into()),
            (BLOB, blob.into()),
        ])
    });
    assert_eq!(buf.len() % 32, 0);
    let ctx = Context::new(&buf);
    let table = ctx.root(ROOT).unwrap();
    assert!(table.scalar(BYTE, false));
    assert_eq!(table.scalar(WORD, 0u32), 7);
    assert_eq!(table.scalar(LONG, 0i64), -9);
    assert_eq!(table.string(TEXT), Some("größe"));
    let list = table.required_vector::<u64>(LIST);
    assert_eq!(list.iter().collect::<Vec<_>>(), [1, u64::MAX]);
    assert_eq!((list.len(), list.get(1), list.get(2)), (2, Some(u64::MAX), None));
    let children = table.tables(CHILDREN);
    let mut words = Vec::new();
    ctx.each(children, CHILDREN, |child| words.push(child.scalar(WORD, 0u32)));
    assert_eq!((ctx.has_fault(), words), (false, alloc::vec![1, 2]));
    assert_eq!(children.entry(&buf, 1, |child| child.scalar(WORD, 0u32)), Some(2));
    assert_eq!(children.entry(&buf, 2, |child| child.scalar(WORD, 0u32)), None);
    let child = table.required_table(CHILD).unwrap();
    assert_eq!(child.scalar(WORD, 0u32), 1);
    assert_eq!(child.scalar(LONG, 5i64), 5, "an absent field has its default");
    assert_eq!(child.tables(CHILDREN).len(), 0);
    let blob = table.required_vector::<u8>(BLOB).as_bytes();
    let at = blob.as_ptr() as usize - buf.as_ptr() as usize;
    assert_eq!((at % 32, blob), (0, [1, 2, 3].as_slice()));
    assert!(!ctx.has_fault());
    assert!(ctx.entry(children, 2, CHILDREN).is_none());
    assert!(ctx.has_fault());
}

#[test]
fn numbers_and_tables_are_aligned() {
    let buf = build(|b| {
        b.string("x");
        let list = b.numbers([1.5f64].iter().map(|n| n.to_le_bytes()));
        b.string("four");
        b.table(&[(BYTE, 1u8.into()), (LONG, 3u64.into()), (LIST, list.into())])
    });
    let ctx = Context::new(&buf);
    let table = ctx.root(ROOT).unwrap();
    let start = table.position() as usize;
    let distance = i32::from_le_bytes(buf[start..start + 4].try_into().unwrap());
    let vtable = (start as i64 - i64::from(distance)) as usize;
    let long = usize::from(u16::from_le_bytes(buf[vtable + 8..vtable + 10].try_into().unwrap()));
    assert_eq!(((start + long) % 8, start % 4, vtable % 2), (0, 0, 0));
    let list = table.required_vector::<f64>(LIST);
    assert_eq!(list.get(0), Some(1.5));
}

#[test]
fn equal_strings_and_vtables_are_shared() {
    let size = |n: usize| {
        build(|b| {
            let tables: Vec<_> = (0..n)
                .map(|_| {
                    let text = b.string("a rather long string that is repeated");
                    b.table(&[(TEXT, text.into())])
                })
                .collect();
            b.offsets(&tables);
            b.table(&[])
        })
        .len()
    };
    // A table of one field and its entry in the vector.
    assert_eq!(size(65) - size(1), 64 * 12);
}

#[test]
fn tables_outside_the_buffer_are_refused() {
    let kind = |buf: &[u8]| root(buf, |_| ()).unwrap_err().kind;
    let good = small([6, 8, 4], 8, 5);
    assert_eq!(root(&good, |table| table.scalar(BYTE, 0u32)), Ok(5));
    assert_eq!(kind(&[]), ErrorKind::Truncated { needed: 4, available: 0 });
    assert_eq!(kind(&[0xff; 8]), ErrorKind::Truncated { needed: 0xffff_ffff + 4, available: 8 });
    for distance in [17, -8, i32::MAX, i32::MIN] {
        let refused = kind(&small([6, 8, 4], distance, 5));
        assert!(matches!(refused, ErrorKind::Truncated { available: 24, .. }), "{distance}: {refused:?}");
    }
    assert_eq!(kind(&small([2, 8, 4], 8, 5)), ErrorKind::BadVtable);
    assert_eq!(kind(&small([200, 8, 4], 8, 5)), ErrorKind::Truncated { needed: 208, available: 24 });
}

/// Builders may share a vtable between tables of different inline sizes, so that the size that it says is too small, or
/// reaches beyond the buffer.
#[test]
fn the_size_of_a_table_in_its_vtable_bounds_no_field() {
    for size in [0, 4, 8, 9, 0xffff] {
        let buf = small([6, size, 4], 8, 5);
        assert_eq!(root(&buf, |table| table.scalar(BYTE, 0u32)), Ok(5), "{size}");
    }
    let children = |b: &mut Builder| {
        let text = b.string("text");
        let list = b.numbers([7u64].iter().map(|n| n.to_le_bytes()));
        let small = b.table(&[(WORD, 1u32.into())]);
        let fields = [
            (BYTE, 3u8.into()),
            (WORD, 9u32.into()),
            (LONG, 5u64.into()),
            (TEXT, text.into()),
            (LIST, list.into()),
            (CHILD, small.into()),
        ];
        (fields, small)
    };
    // All subsets of the fields, with every size that is too small for them.
    for subset in 0..64u32 {
        let buf = build(|b| {
            let (fields, _) = children(b);
            let chosen: Vec<_> = fields.into_iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1).collect();
            b.table(&chosen.into_iter().map(|(_, field)| field).collect::<Vec<_>>())
        });
        let seen = |buf: &[u8]| {
            root(buf, |table| {
                let list: Vec<u64> = table.vector::<u64>(LIST).iter().collect();
                let child = table.table(CHILD).map(|child| child.scalar(WORD, 0u32));
                let text = table.string(TEXT).map(alloc::string::String::from);
                (table.scalar(BYTE, 0u8), table.scalar(WORD, 0u32), table.scalar(LONG, 0u64), text, list, child)
            })
        };
        let expected = seen(&buf).unwrap();
        let at = u32::from_le_bytes(buf[..4].try_into().unwrap()) as usize;
        let distance = i32::from_le_bytes(buf[at..at + 4].try_into().unwrap());
        let vtable = (at as i64 - i64::from(distance)) as usize;
        let size = u16::from_le_bytes(buf[vtable + 2..vtable + 4].try_into().unwrap());
        for smaller in 0..size {
            let mut shared = buf.clone();
            shared[vtable + 2..vtable + 4].copy_from_slice(&smaller.to_le_bytes());
            assert_eq!(seen(&shared).as_ref(), Ok(&expected), "{subset:b} {smaller}");
        }
    }
}

#[test]
fn fields_outside_the_buffer_are_refused() {
    // The table begins at 16 of 24 bytes.
    for at in [5, 8, 0xffff] {
        let buf = small([6, 8, at], 8, 5);
        let error = root(&buf, |table| table.scalar(BYTE, 0u32)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Truncated { needed: 16 + u64::from(at) + 4, available: 24 });
        assert_eq!(error, BYTE.error(error.kind, 16 + u64::from(at)));
        assert!(
            root(&buf, |table| table.required_table(BYTE).is_some()).is_err()
                && root(&buf, |table| table.string(BYTE).is_some()).is_err()
        );
    }
    let buf = small([6, 8, 0], 8, 5);
    assert_eq!(root(&buf, |table| table.required_vector::<u8>(BYTE).len()).unwrap_err().kind, ErrorKind::Missing);
}

#[test]
fn vectors_outside_the_buffer_are_refused() {
    for offset in [1, 100, u32::MAX] {
        let buf = small([6, 8, 4], 8, offset);
        assert!(root(&buf, |table| table.vector::<u64>(BYTE).len()).is_err(), "{offset}");
        assert!(root(&buf, |table| table.tables(BYTE).len()).is_err(), "{offset}");
        assert!(root(&buf, |table| table.string(BYTE).is_some()).is_err(), "{offset}");
    }
    let mut buf = small([6, 8, 4], 8, 4);
    for (len, fits) in [(0u32, true), (1, false), (0x2000_0001, false), (u32::MAX, false)] {
        buf.truncate(24);
        buf.extend_from_slice(&len.to_le_bytes());
        assert_eq!(root(&buf, |table| table.vector::<u64>(BYTE).len()).is_ok(), fits, "{len}");
        assert_eq!(root(&buf, |table| table.tables(BYTE).len()).is_ok(), fits, "{len}");
    }
}

#[test]
fn a_table_may_refer_to_itself_without_harm() {
    // The field's offset leads from byte 20 back to the table at 16 by wrapping, which is refused;
    let buf = small([6, 8, 4], 8, 4u32.wrapping_neg());
    assert!(root(&buf, |table| table.table(BYTE).is_some()).is_err());
    // and a vector whose only element is the table that holds it is a table like any other.
    let mut buf = small([6, 8, 4], 8, 4);
    buf[0..4].copy_from_slice(&24u32.to_le_bytes());
    buf.extend_from_slice(&[0; 16]);
    assert!(root(&buf, |_| ()).is_err());
}

#[test]
fn text_must_be_utf8() {
    let mut buf = build(|b| {
        let text = b.string("abcd");
        b.table(&[(TEXT, text.into())])
    });
    let at = buf.windows(4).position(|w| w == b"abcd").unwrap();
    buf[at] = 0xff;
    let error = root(&buf, |table| table.string(TEXT).is_some()).unwrap_err();
    assert_eq!((error.kind, error.offset), (ErrorKind::InvalidUtf8, at as u64));
}
