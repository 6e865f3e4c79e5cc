//! Reads recordings.

use std::error::Error;

/// Returns the samples of a WAV file of 16 bits from -1 to 1, the mean of its channels.
pub fn read(path: &str, rate: u32) -> Result<Vec<f32>, Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let cut = || format!("{path}: not a WAV file");
    if bytes.get(..4) != Some(b"RIFF") || bytes.get(8..12) != Some(b"WAVE") {
        return Err(cut().into());
    }
    let (mut format, mut at) = (None, 12);
    loop {
        let head = bytes.get(at..at + 8).ok_or_else(cut)?;
        let size = u32::from_le_bytes(head[4..].try_into()?) as usize;
        let body = bytes.get(at + 8..).ok_or_else(cut)?;
        let body = &body[..size.min(body.len())];
        match (&head[..4], format) {
            (b"fmt ", _) if size >= 16 => {
                let short = |at: usize| u16::from_le_bytes([body[at], body[at + 1]]);
                let found = (u32::from_le_bytes(body[4..8].try_into()?), short(14));
                if found != (rate, 16) {
                    return Err(format!("{path}: expected 16 bits at {rate} Hz, got {} bits at {} Hz", found.1, found.0).into());
                }
                format = Some(short(2).max(1) as usize);
            }
            (b"data", Some(channels)) => {
                let sum = |frame: &[u8]| frame.chunks_exact(2).map(|two| f32::from(i16::from_le_bytes([two[0], two[1]]))).sum::<f32>();
                return Ok(body.chunks_exact(2 * channels).map(|frame| sum(frame) / channels as f32 / 32768.0).collect());
            }
            _ => {}
        }
        at += 8 + size + size % 2;
    }
}
