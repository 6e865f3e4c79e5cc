//! Pooling, reductions, normalization and resizing.

use rushlight_cpu_payload::{
    AveragePool, Normalization, PoolKind, Pooling, Reduce, Reduction, Resize, ResizeMode, Softmax, Step, TopK,
};
use rushlight_format::ScalarType;

use super::Maker;
use super::tensors::len;

impl Maker<'_, '_> {
    pub(super) fn pooling(&mut self) -> Step {
        let [batch, in_h, in_w, out_h, out_w] = [2, 9, 9, 7, 7].map(|largest| self.source.size(largest));
        let channels = self.source.size(70);
        let mut pair = |largest| [self.source.size(largest) as u32, self.source.size(largest) as u32];
        let [kernel, stride, dilation, before, after] = [pair(4), pair(3), pair(3), pair(2), pair(2)];
        let x = self.either(&[batch, in_h, in_w, channels]);
        let count_include_pad = self.source.once_in(2);
        let divisor_override = if self.source.once_in(3) { Some(u32::from(self.source.byte())) } else { None };
        let average = AveragePool { count_include_pad, divisor_override };
        Step::Pooling(Pooling {
            kind: self.source.one_of(&[PoolKind::Max, PoolKind::Average(average)]),
            x,
            y: self.any_output(&[batch, out_h, out_w, channels]),
            kernel,
            stride,
            padding: [[before[0], after[0]], [before[1], after[1]]],
            dilation,
        })
    }

    pub(super) fn reduction(&mut self) -> Step {
        let dims = self.dims(4, 12);
        let first = self.source.below(dims.len() + 1);
        let count = self.source.below(dims.len() - first + 1);
        let mut y = dims.clone();
        y.drain(first..first + count);
        let x = self.either(&dims);
        let op = self.source.one_of(&[Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min]);
        Step::Reduce(Reduce { op, x, y: self.any_output(&y), first: first as u32, count: count as u32 })
    }

    pub(super) fn softmax(&mut self) -> Step {
        let dims = self.dims(3, 40);
        if self.source.once_in(2) {
            return Step::Softmax(Softmax {
                x: self.floats(&dims),
                y: self.output(&dims),
                log: self.source.once_in(2),
            });
        }
        let (x, affine) = (self.bytes(&dims), self.affine());
        let y = self.payload.arena(len(&dims).div_ceil(4), ScalarType::Byte, &dims, Some(affine));
        Step::Softmax(Softmax { x, y, log: false })
    }

    pub(super) fn normalisation(&mut self) -> Step {
        let dims = self.dims(3, 40);
        let count = self.source.below(dims.len() + 1);
        let columns = [len(&dims[dims.len() - count..])];
        let weight = if self.source.once_in(2) { Some(self.floats(&columns)) } else { None };
        let bias = if self.source.once_in(2) { Some(self.floats(&columns)) } else { None };
        let (x, y) = (self.floats(&dims), self.output(&dims));
        let (eps, centered) = (self.source.float(), self.source.once_in(2));
        Step::Normalization(Normalization { x, y, weight, bias, dims: count as u32, eps, centered })
    }

    pub(super) fn resize(&mut self) -> Step {
        let [batch, in_h, in_w, out_h, out_w, channels] = [2, 9, 9, 9, 9, 40].map(|largest| self.source.size(largest));
        let (from, to) = ([batch, in_h, in_w, channels], [batch, out_h, out_w, channels]);
        let (x, y) = if self.source.once_in(2) {
            let (x, affine) = (self.bytes(&from), self.affine());
            (x, self.payload.arena(len(&to).div_ceil(4), ScalarType::Byte, &to, Some(affine)))
        } else {
            (self.floats(&from), self.output(&to))
        };
        let mode = self.source.one_of(&[ResizeMode::Nearest, ResizeMode::Bilinear]);
        let scales = [(); 2].map(|()| if self.source.once_in(3) { Some(self.source.float()) } else { None });
        Step::Resize(Resize { x, y, mode, align_corners: self.source.once_in(2), scales })
    }

    pub(super) fn top_k(&mut self) -> Step {
        let (rows, columns) = (self.source.size(9), self.source.size(40));
        let k = self.source.size(columns.max(1) + 1);
        Step::TopK(TopK { x: self.floats(&[rows, columns]), y: self.output(&[2, rows, k]) })
    }
}
