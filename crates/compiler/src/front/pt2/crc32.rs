//! The checksum of zip archives.

/// The tables of the eight bytes that are taken at once ("slicing by 8", Kounavis and Berry, 2005), for the reflected
/// polynomial 0xedb88320 of ITU-T V.42.
const TABLES: [[u32; 256]; 8] = tables();

#[expect(clippy::indexing_slicing, reason = "constant bounds, at compile time")]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[table - 1][byte];
            tables[table][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[expect(clippy::indexing_slicing, reason = "a byte indexes 256 entries")]
fn lookup(table: usize, byte: u8) -> u32 {
    TABLES[table][byte as usize]
}

/// CRC-32 of `bytes`.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0;
    let (blocks, rest) = bytes.as_chunks::<8>();
    for [a, b, c, d, e, f, g, h] in blocks {
        let [w, x, y, z] = (u32::from_le_bytes([*a, *b, *c, *d]) ^ crc).to_le_bytes();
        crc = lookup(7, w)
            ^ lookup(6, x)
            ^ lookup(5, y)
            ^ lookup(4, z)
            ^ lookup(3, *e)
            ^ lookup(2, *f)
            ^ lookup(1, *g)
            ^ lookup(0, *h);
    }
    for &byte in rest {
        crc = (crc >> 8) ^ lookup(0, byte ^ crc as u8);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
    }
}
