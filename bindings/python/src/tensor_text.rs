//! Writes the elements of a tensor as Python's nested lists.

use std::fmt::Debug;

use rushlight::runtime::{Bool8, Element};
use rushlight::{ScalarType, TensorView};

/// Maximum number of elements that are all written. Of larger tensors only the ends of each dimension are written, as
/// for NumPy's arrays.
const MAX_ELEMENTS: usize = 1000;

/// Number of elements at each end.
const EDGE: usize = 3;

/// Writes `[[0.5, 1.0], [1.5, 2.0]]`, with a line for each row. Rows after the first are indented by `indent` spaces.
/// `None` for elements that are not numbers in Python.
pub fn of(tensor: &TensorView<'_>, indent: usize) -> Option<String> {
    fn with<T: Element>(tensor: &TensorView<'_>, indent: usize, show: impl Fn(T) -> String) -> Option<String> {
        let elements = tensor.as_slice::<T>().ok()?;
        // Rows without elements are written, too.
        let shown = tensor.sizes().iter().fold(1, |count: usize, &size| count.saturating_mul(size.max(1)));
        let edge = if shown > MAX_ELEMENTS { EDGE } else { usize::MAX };
        let mut text =
            Text { shown: String::new(), indent, edge, element: |at: usize| elements.get(at).map(|&e| show(e)) };
        text.write(tensor.sizes(), 0, elements.len(), 0);
        Some(text.shown)
    }
    match tensor.dtype() {
        ScalarType::Bool => with(tensor, indent, |v: Bool8| if v.get() { "True" } else { "False" }.to_owned()),
        ScalarType::Byte => with(tensor, indent, |v: u8| v.to_string()),
        ScalarType::Char => with(tensor, indent, |v: i8| v.to_string()),
        ScalarType::Short => with(tensor, indent, |v: i16| v.to_string()),
        ScalarType::Int => with(tensor, indent, |v: i32| v.to_string()),
        ScalarType::Long => with(tensor, indent, |v: i64| v.to_string()),
        ScalarType::UInt16 => with(tensor, indent, |v: u16| v.to_string()),
        ScalarType::UInt32 => with(tensor, indent, |v: u32| v.to_string()),
        ScalarType::UInt64 => with(tensor, indent, |v: u64| v.to_string()),
        ScalarType::Float => with(tensor, indent, float::<f32>),
        ScalarType::Double => with(tensor, indent, float::<f64>),
        ScalarType::Half => with(tensor, indent, |v: rushlight::f16| float(v.to_f32())),
        ScalarType::BFloat16 => with(tensor, indent, |v: rushlight::bf16| float(v.to_f32())),
        _ => None,
    }
}

/// Writes the shortest decimal that reads back as the same number, as Python does.
fn float<T: Debug>(number: T) -> String {
    format!("{number:?}").to_lowercase()
}

struct Text<F> {
    shown: String,
    /// Spaces before each line but the first.
    indent: usize,
    /// Number of elements at each end of a dimension; `...` replaces the rest.
    edge: usize,
    element: F,
}

impl<F: Fn(usize) -> Option<String>> Text<F> {
    /// Writes `count` elements of the shape `shape` from the element `start` on, `depth` dimensions below the whole.
    fn write(&mut self, shape: &[usize], start: usize, count: usize, depth: usize) {
        let Some((&size, inner)) = shape.split_first() else {
            self.shown.push_str(&(self.element)(start).unwrap_or_default());
            return;
        };
        let each = count.checked_div(size).unwrap_or(0);
        let separator =
            if inner.is_empty() { ", ".to_owned() } else { format!(",\n{:1$}", "", self.indent + depth + 1) };
        self.shown.push('[');
        let mut at = 0;
        while at < size {
            if at > 0 {
                self.shown.push_str(&separator);
            }
            if at >= self.edge && at.saturating_add(self.edge) < size {
                self.shown.push_str("...");
                self.shown.push_str(&separator);
                at = size - self.edge;
            }
            self.write(inner, start + at * each, each, depth + 1);
            at += 1;
        }
        self.shown.push(']');
    }
}
