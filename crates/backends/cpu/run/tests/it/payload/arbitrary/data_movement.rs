//! Copies, and steps that read or write by index.

use rushlight_cpu_payload::{Copy, Gather, GatherElements, Scatter, Size, Step, TableFormat};
use rushlight_format::ScalarType;

use super::Maker;
use crate::payload::fixed;

impl Maker<'_, '_> {
    pub(super) fn copy(&mut self) -> Step {
        let sizes = self.dims(4, 12);
        // The dimensions have one order in `x`, and another in `y`.
        let mut strides = || {
            let mut order: Vec<usize> = (0..sizes.len()).collect();
            let turn = self.source.below(sizes.len().max(1));
            order.rotate_left(turn.min(sizes.len()));
            let mut strides = vec![0; sizes.len()];
            let mut step = if self.source.once_in(4) { 2 } else { 1 };
            for at in order {
                strides[at] = if self.source.once_in(8) { 0 } else { step };
                step *= sizes[at].max(1);
            }
            let span: u64 = sizes.iter().zip(&strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
            (strides, span + 1)
        };
        let ((x_strides, from), (y_strides, to)) = (strides(), strides());
        let (x_offset, y_offset) = (self.source.below(4) as u64, self.source.below(4) as u64);
        let fill = if self.source.once_in(3) { Some(self.source.float()) } else { None };
        let (x_dims, y_dims) = ([from + x_offset], [to + y_offset]);
        let (x, y) = if self.source.once_in(3) {
            let (x, affine) = (self.bytes(&x_dims), self.affine());
            (x, self.payload.arena(y_dims[0].div_ceil(4), ScalarType::Byte, &y_dims, Some(affine)))
        } else {
            (self.floats(&x_dims), self.output(&y_dims))
        };
        Step::Copy(Copy {
            x,
            y,
            sizes: fixed(&sizes),
            x_offset: Size::Fixed(x_offset),
            x_strides: fixed(&x_strides),
            y_offset: Size::Fixed(y_offset),
            y_strides: fixed(&y_strides),
            fill,
        })
    }

    /// A scatter of rows to integer positions, of which a few are one past the last row.
    pub(super) fn scatter(&mut self) -> Step {
        let (count, rows, width) = (self.source.size(6), self.source.size(9), self.source.size(40));
        let reach = if self.source.once_in(8) { rows + 2 } else { rows };
        let place = |byte: u8| (u64::from(byte) % (2 * reach).max(1)) as f32 - reach as f32;
        let places: Vec<f32> = (0..count).map(|_| place(self.source.byte())).collect();
        let indices = self.payload.inline(&[count], &places);
        Step::Scatter(Scatter {
            x: self.floats(&[count, width]),
            y: self.output(&[rows, width]),
            indices,
            dim_size: Size::Fixed(rows),
            sizes: fixed(&[width]),
            x_offset: Size::Fixed(0),
            x_step: Size::Fixed(width),
            x_strides: fixed(&[1]),
            y_offset: Size::Fixed(0),
            y_step: Size::Fixed(width),
            y_strides: fixed(&[1]),
        })
    }

    pub(super) fn gather(&mut self) -> Step {
        let (rows, width, count) = (self.source.size(20), self.source.size(40), self.source.size(9));
        let dtype = self.source.one_of(&[ScalarType::Long, ScalarType::Int]);
        let indices = self.payload.input(dtype, &[count]);
        let (table, format) = if self.source.once_in(2) {
            let (table, format) = self.integers(width, rows);
            (table, TableFormat::Quantized { format, rows: rows as u32 })
        } else {
            (self.floats(&[rows, width]), TableFormat::F32)
        };
        Step::Gather(Gather { table, format, indices, y: self.output(&[count, width]) })
    }

    pub(super) fn gather_elements(&mut self) -> Step {
        let (rows, columns, k) = (self.source.size(9), self.source.size(40), self.source.size(9));
        let index = self.floats(&[rows, k]);
        Step::GatherElements(GatherElements { x: self.floats(&[rows, columns]), index, y: self.output(&[rows, k]) })
    }
}
