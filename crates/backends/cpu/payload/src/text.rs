//! A text form of payloads, for tests and tools. It is not read back.
//!
//! ```text
//!   t0 : Float[128] in Inline { offset: 0, len: 128 }
//!   t1 : Float[3, 8] in Input(0)
//!   t2 : Float[3, 4] in Output(0)
//!   inputs t1
//!     0  Matmul { a: 1, b: 0, y: 2, kind: Packed { format: F32, epilogue: Epilogue {} } }  # linear
//!   output t2 [3, 4]
//!   arena 0 f32, scratch 0 f32 a thread
//! ```

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::{CpuProgram, Size, State, Tensor};

/// Sizes that are computed, tensors with their place in memory, and steps. Fields of steps that are absent or false are left
/// out; `x`, `y` and the like are numbers of tensors.
impl fmt::Display for CpuProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, size) in self.sizes.iter().enumerate() {
            writeln!(f, "  s{index} = {size:?}")?;
        }
        for State { key, len, initial, .. } in &self.states {
            match initial {
                0 => writeln!(f, "  state {key} : {len} f32")?,
                initial => writeln!(f, "  state {key} : {len} f32 of {initial:#010x}")?,
            }
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            writeln!(f, "  t{index} : {}", self.tensor(tensor))?;
        }
        writeln!(f, "  inputs {}", tensors(&self.inputs))?;
        for (index, step) in self.steps.iter().enumerate() {
            let name = self.names.get(index).map(String::as_str).unwrap_or_default();
            writeln!(f, "  {index:>3}  {}  # {name}", brief(&format!("{step:?}")))?;
        }
        for (output, sizes) in self.outputs.iter().zip(&self.output_sizes) {
            writeln!(f, "  output t{output} {}", dims(sizes))?;
        }
        writeln!(f, "  arena {} f32, scratch {} f32 a thread", self.arena, self.scratch)
    }
}

impl CpuProgram {
    fn tensor(&self, tensor: &Tensor) -> String {
        let Tensor { dtype, buffer, offset, dims: sizes, affine } = tensor;
        let place = self.buffers.get(*buffer as usize).map_or_else(String::new, |buffer| format!(" in {buffer:?}"));
        let offset = match offset {
            Size::Fixed(0) => String::new(),
            offset => format!(" from {}", size(*offset)),
        };
        let affine = affine.map_or_else(String::new, |affine| format!(" {affine:?}"));
        format!("{dtype:?}{}{place}{offset}{affine}", dims(sizes))
    }
}

fn size(size: Size) -> String {
    match size {
        Size::Fixed(size) => format!("{size}"),
        Size::Computed(index) => format!("s{index}"),
    }
}

fn dims(sizes: &[Size]) -> String {
    let sizes: Vec<String> = sizes.iter().map(|dim| size(*dim)).collect();
    format!("[{}]", sizes.join(", "))
}

fn tensors(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("t{id}")).collect::<Vec<_>>().join(", ")
}

/// Shortens the debug form of a step: `Matmul(Matmul { a: 0, bias: None })` becomes `Matmul { a: 0 }`.
fn brief(debug: &str) -> String {
    // `Some(…)` holds a number, or a structure.
    let mut text = unwrapped(debug, "Some(");
    for absent in [": None", ": false"] {
        while let Some(end) = text.find(absent) {
            let (before, after) = text.split_at(end);
            let after = after.strip_prefix(absent).unwrap_or(after);
            let before = before.trim_end_matches(|char: char| char.is_alphanumeric() || char == '_');
            text = match after.strip_prefix(", ") {
                Some(after) => format!("{before}{after}"),
                None => format!("{}{after}", before.trim_end_matches(", ")),
            };
        }
    }
    text = unwrapped(&text, "Fixed(");
    text = unwrapped(&text.replace("Computed(", "sFixed("), "Fixed(");
    text = text.replace("{  }", "{}");
    // A variant with a structure of its own name.
    match text.split_once('(') {
        Some((variant, inner)) if inner.starts_with(variant) => inner.strip_suffix(')').unwrap_or(inner).to_owned(),
        _ => text,
    }
}

/// Removes each `open` with the parenthesis that closes it.
fn unwrapped(text: &str, open: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // For each parenthesis that is open, true if it goes.
    let mut going = Vec::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix(open) {
            going.push(true);
            rest = after;
            continue;
        }
        rest = rest.strip_prefix(char).unwrap_or_default();
        match char {
            '(' => going.push(false),
            ')' if going.pop() == Some(true) => continue,
            _ => {}
        }
        out.push(char);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shortened() {
        let long =
            "Matmul(Matmul { a: 0, c: None, packed: true, t: false, tail: Tail { bias: Some(4), last: false } })";
        assert_eq!(brief(long), "Matmul { a: 0, packed: true, tail: Tail { bias: 4 } }");
        assert_eq!(brief("Copy(Copy { sizes: [Fixed(2), Computed(1)], fill: None })"), "Copy { sizes: [2, s1] }");
        assert_eq!(brief("Softmax { x: 0, y: 1, log: false }"), "Softmax { x: 0, y: 1 }");
        assert_eq!(
            brief("E(E { i: [Binary { a: Tensor(0), b: Number(2.0) }] })"),
            "E { i: [Binary { a: Tensor(0), b: Number(2.0) }] }"
        );
        assert_eq!(brief("T { empty: None, tail: Tail { bias: None } }"), "T { tail: Tail {} }");
    }
}
