//! The memory map as text.

use super::{ArenaMap, MemoryMap};
use crate::units::bytes;

/// Rows of a drawing.
const ROWS: u64 = 12;
/// The shades of a cell, from empty to full.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// Draws each arena with time from left to right in at most `width` columns, and offsets from the bottom to the top. A
/// cell's shade is the fraction of it that is in use. The tensors in use at the peak are listed below.
pub fn text(map: &MemoryMap, width: usize) -> String {
    let mut out = format!("method {}\n", map.method);
    if map.arenas.is_empty() {
        out.push_str("no planned memory\n");
    }
    for arena in &map.arenas {
        draw(map, arena, width.max(1), &mut out);
    }
    out
}

fn draw(map: &MemoryMap, arena: &ArenaMap, width: usize, out: &mut String) {
    let (peak_at, peak) = arena.peak();
    let best = arena.best.map_or_else(String::new, |best| format!(", planned anew {}", bytes(best)));
    out.push_str(&format!(
        "arena {}    {} in the file, {} tensors; {} are in use at most{best}\n",
        arena.memory_id,
        bytes(arena.bytes),
        arena.tensors.len(),
        bytes(peak),
    ));
    if arena.bytes == 0 {
        return;
    }
    let columns = width.min(map.steps.len().max(1));
    let cells = cells(arena, map.steps.len().max(1), columns);
    for (row, cells) in cells.iter().enumerate().rev() {
        let top = (u128::from(arena.bytes) * (row as u128 + 1) / u128::from(ROWS)) as u64;
        let label = if row % 3 == 2 { bytes(top) } else { String::new() };
        let line: String = cells.iter().map(|&part| shade(part)).collect();
        out.push_str(format!("{label:>10} │{line}").trim_end());
        out.push('\n');
    }
    out.push_str(&format!("{:>10} └{}\n", "0 B", "─".repeat(columns)));
    out.push_str(&format!("in use at instruction {peak_at} ({}):\n", map.step(peak_at)));
    for tensor in arena.at_peak() {
        let lifetime = format!("{}..{}", tensor.first, tensor.last);
        out.push_str(&format!("{:>10}  {lifetime:<12} {}\n", bytes(tensor.bytes), tensor.label));
    }
}

/// The fraction of each cell's bytes and time that is in use, from 0 to 1, by row from the bottom and column.
fn cells(arena: &ArenaMap, instructions: usize, columns: usize) -> Vec<Vec<f64>> {
    let mut cells = vec![vec![0.0; columns]; ROWS as usize];
    let per_column = instructions as f64 / columns as f64;
    let per_row = arena.bytes as f64 / ROWS as f64;
    for tensor in &arena.tensors {
        let (first, after) = (tensor.first as f64 / per_column, (tensor.last + 1) as f64 / per_column);
        let (low, high) = (tensor.offset as f64 / per_row, (tensor.offset + tensor.bytes) as f64 / per_row);
        for (row, cells) in cells.iter_mut().enumerate().take(high.ceil() as usize).skip(low as usize) {
            for (column, cell) in cells.iter_mut().enumerate().take(after.ceil() as usize).skip(first as usize) {
                *cell += covered(row, low, high) * covered(column, first, after);
            }
        }
    }
    cells
}

/// The fraction of the unit interval from `index` that is between `from` and `to`.
fn covered(index: usize, from: f64, to: f64) -> f64 {
    (to.min(index as f64 + 1.0) - from.max(index as f64)).max(0.0)
}

/// The shade of a fraction. Any use is visible.
fn shade(part: f64) -> char {
    let steps = (SHADES.len() - 1) as f64;
    let at = if part <= 0.0 { 0.0 } else { (part * steps).round().clamp(1.0, steps) };
    SHADES.get(at as usize).copied().unwrap_or(' ')
}
