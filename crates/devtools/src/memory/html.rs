//! The memory map as a web page without any other file.

use super::{ArenaMap, MemoryMap};
use crate::markup::escaped;
use crate::units::bytes;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; max-width: 80rem; }
svg { width: 100%; height: 26rem; border: 1px solid #8888; display: block; }
.tensor { stroke: #fff8; stroke-width: 1px; vector-effect: non-scaling-stroke; }
.tensor:hover { filter: brightness(1.25); stroke: currentColor; }
.peak { stroke: #d33; stroke-width: 2px; stroke-dasharray: 6 4; vector-effect: non-scaling-stroke; }
.live { fill: none; stroke: currentColor; stroke-width: 1.5px; vector-effect: non-scaling-stroke; }
td, th { padding: 0 1rem 0 0; text-align: left; font-weight: normal; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.axis { display: flex; justify-content: space-between; opacity: 0.7; }
";

/// A page with a drawing of each arena of the methods: a rectangle for each tensor, time from left to right, offsets
/// from the bottom to the top. Pointing at one shows which it is. The line is the sum of the bytes in use.
pub fn html(title: &str, methods: &[MemoryMap]) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Memory of {title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n\
         <p>A rectangle is a tensor: from left to right the instructions that need it, from bottom to top its place in memory. Tensors of one \
         operator have one colour. The line is the sum of all, and the dashed line is the peak.</p>\n"
    );
    for map in methods {
        page.push_str(&format!("<h2>Method {}</h2>\n", escaped(&map.method)));
        if map.arenas.is_empty() {
            page.push_str("<p>No planned memory.</p>\n");
        }
        for arena in &map.arenas {
            draw(map, arena, &mut page);
        }
    }
    page.push_str("</html>\n");
    page
}

fn draw(map: &MemoryMap, arena: &ArenaMap, page: &mut String) {
    let (peak_at, peak) = arena.peak();
    let best = arena.best.map_or_else(String::new, |best| format!("; planned anew: {}", bytes(best)));
    page.push_str(&format!(
        "<h3>Arena {}</h3>\n<p>{} in the file, {} tensors. In use at most: {}, at instruction {peak_at} \
         <code>{}</code>{best}.</p>\n",
        arena.memory_id,
        bytes(arena.bytes),
        arena.tensors.len(),
        bytes(peak),
        escaped(map.step(peak_at)),
    ));
    let (time, height) = (map.steps.len().max(1), arena.bytes.max(1));
    // The vertical axis is turned, so that offset 0 is at the bottom; its unit is a ten-thousandth of the arena.
    let y = |offset: u64| (1.0 - offset as f64 / height as f64) * 1e4;
    page.push_str(&format!("<svg viewBox=\"0 0 {time} 10000\" preserveAspectRatio=\"none\">\n"));
    for tensor in arena.tensors.iter().filter(|tensor| tensor.bytes > 0) {
        let writer = map.step(tensor.first);
        page.push_str(&format!(
            "<rect class=\"tensor\" x=\"{}\" y=\"{:.2}\" width=\"{}\" height=\"{:.2}\" fill=\"hsl({} 55% 55%)\">\
             <title>{}\n{} at {}\ninstructions {} ({}) to {} ({})</title></rect>\n",
            tensor.first,
            y(tensor.offset + tensor.bytes),
            tensor.last - tensor.first + 1,
            y(tensor.offset) - y(tensor.offset + tensor.bytes),
            hue(writer),
            escaped(&tensor.label),
            bytes(tensor.bytes),
            bytes(tensor.offset),
            tensor.first,
            escaped(writer),
            tensor.last,
            escaped(map.step(tensor.last)),
        ));
    }
    let mut line = String::new();
    let mut sum = 0;
    for &(at, live) in &arena.live.steps {
        line.push_str(&format!("{at},{:.2} {at},{:.2} ", y(sum), y(live)));
        sum = live;
    }
    let middle = peak_at as f64 + 0.5;
    page.push_str(&format!(
        "<polyline class=\"live\" points=\"{}\"/>\n\
         <line class=\"peak\" x1=\"{middle}\" x2=\"{middle}\" y1=\"0\" y2=\"10000\"/>\n</svg>\n\
         <div class=\"axis\"><span>instruction 0</span><span>{}</span></div>\n\
         <table><tr><th>size<th>offset<th>instructions<th>in use at the peak</tr>\n",
        line.trim_end(),
        time - 1,
    ));
    for tensor in arena.at_peak() {
        page.push_str(&format!(
            "<tr><td class=\"n\">{}<td class=\"n\">{}<td>{} to {}<td>{}</tr>\n",
            bytes(tensor.bytes),
            bytes(tensor.offset),
            tensor.first,
            tensor.last,
            escaped(&tensor.label),
        ));
    }
    page.push_str("</table>\n");
}

/// The same colour for the same operator.
fn hue(operator: &str) -> u32 {
    operator.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte))) % 360
}
