//! The checksum of zip archives.

/// A table for each of the bytes that are processed at once ("slicing", Kounavis and Berry, 2005), the last byte first, for
/// the reflected polynomial 0xedb88320 of ITU-T V.42.
static TABLES: [[u32; 256]; 16] = tables();

#[expect(clippy::indexing_slicing, reason = "constant bounds, at compile time")]
const fn tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
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
    while table < 16 {
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

/// CRC-32 of `bytes`.
#[expect(clippy::indexing_slicing, reason = "a byte indexes 256 entries")]
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let [last, ..] = &TABLES;
    let (blocks, rest) = bytes.as_chunks::<16>();
    let crc = blocks.iter().fold(!0u32, |crc, block| {
        let mut block = *block;
        for (byte, crc) in block.iter_mut().zip(crc.to_le_bytes()) {
            *byte ^= crc;
        }
        block.iter().zip(TABLES.iter().rev()).fold(0, |crc, (&byte, table)| crc ^ table[usize::from(byte)])
    });
    !rest.iter().fold(crc, |crc, &byte| (crc >> 8) ^ last[usize::from(byte ^ crc as u8)])
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
