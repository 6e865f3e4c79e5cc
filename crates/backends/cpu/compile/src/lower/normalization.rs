//! Softmax, layer norms, RMS norms and attention.

use rushlight_cpu_payload::{
    Attention as AttentionStep, Elementwise, Instruction, KeyValueFormat, Normalization, Operand, Size,
    Softmax as SoftmaxStep, Step,
};
use rushlight_engine::Strides;
use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::{Call, Expr, ValueId};

use crate::select::{Attention, Norm, Softmax};
use crate::view::View;

use super::Lowering;
use super::caches::CachedRows;

impl Lowering<'_> {
    /// Softmax over a dimension, which is made the innermost one; of bytes, if the result is quantized.
    pub(super) fn softmax(&mut self, call: &Call<'_>, softmax: Softmax) -> Result<(), Error> {
        let (Softmax { input, dim, log }, result) = (softmax, call.result()?);
        let View { mut order, .. } = self.view(input)?;
        order.retain(|other| *other != dim);
        order.push(dim);
        let (x, affine, result) = if log {
            (self.in_order(input, &order)?, None, result)
        } else {
            self.quantized_with(input, &order, result)?
        };
        let y = self.plan.ordered_as(x.shape.clone(), order, affine)?;
        let step = SoftmaxStep { x: self.plan.tensor(&x)?, y: self.plan.tensor(&y)?, log };
        self.plan.step(self.label(call), Step::Softmax(step));
        self.views.insert(result, y);
        Ok(())
    }

    pub(super) fn norm(&mut self, call: &Call<'_>, norm: Norm) -> Result<(), Error> {
        let (Norm { input, dims, eps, .. }, result) = (norm, call.result()?);
        let x = self.rows(input, dims)?;
        let y = self.plan.ordered(x.shape.clone(), x.order.clone())?;
        let mut scale = |value: Option<ValueId>| -> Result<Option<u32>, Error> {
            match value {
                Some(value) => {
                    let view = self.dense(value)?;
                    self.plan.tensor(&view).map(Some)
                }
                None => Ok(None),
            }
        };
        let (weight, bias) = (scale(norm.weight)?, scale(norm.bias)?);
        let step = Normalization {
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            weight,
            bias,
            dims: dims as u32,
            eps,
            centered: norm.is_centered,
        };
        self.plan.step(self.label(call), Step::Normalization(step));
        self.views.insert(result, y);
        Ok(())
    }

    pub(super) fn attention(&mut self, call: &Call<'_>, attention: &Attention) -> Result<(), Error> {
        let result = call.result()?;
        // As [batch, head, position, depth], wherever these are in memory.
        let by_head = |view: View| if attention.has_positions_first { view.permuted(&[0, 2, 1, 3]) } else { view };
        let q = by_head(self.heads(attention.query)?);
        let cached = self.cached_keys_and_values(attention.key, attention.value).map(|[k, v]| {
            let by_head = |rows: CachedRows| {
                if attention.has_positions_first { rows.permuted(&[0, 2, 1, 3]) } else { rows }
            };
            [by_head(k), by_head(v)]
        });
        let (k, v) = match &cached {
            Some([k, v]) => (k.elements.clone(), v.elements.clone()),
            None => (by_head(self.heads(attention.key)?), by_head(self.heads(attention.value)?)),
        };
        let mut shape = self.graph.tensor(result)?.shape.clone();
        if attention.has_positions_first {
            shape.swap(1, 2);
        }
        // Heads side by side in each row, as the GEMM that follows reads them.
        let y = self.plan.ordered(shape.clone(), vec![0, 2, 1, 3])?;
        let mask = match attention.mask {
            Some(mask) => {
                let missing = 4usize.saturating_sub(self.graph.tensor(mask)?.rank());
                let mut view = self.dense(mask)?;
                if self.graph.tensor(mask)?.dtype == ScalarType::Bool {
                    view = self.summand(&view)?;
                }
                let mut dims = vec![Expr::Int(1); missing];
                dims.extend(view.shape.iter().cloned());
                Some(self.plan.window(&view, &dims)?)
            }
            None => None,
        };
        let depth = q.shape[3].clone();
        let max_size = |size: &Expr| self.plan.max_size(size);
        let none = Strides { batch: 0, head: 0, row: 0 };
        let largest = rushlight_engine::Attention {
            batch: max_size(&shape[0])?,
            heads: max_size(&shape[1])?,
            kv_heads: max_size(&k.shape[1])?,
            rows: max_size(&shape[2])?,
            keys: max_size(&k.shape[2])?,
            depth: max_size(&depth)?,
            value_depth: max_size(&shape[3])?,
            scale: 1.0,
            causal: None,
            q: none,
            k: none,
            v: none,
            y: none,
            mask: None,
        };
        self.plan.scratch(largest.scratch_per_thread());
        let qparams = match &cached {
            Some([k, v]) => self.row_qparams(k)?.zip(self.row_qparams(v)?).map(<[_; 2]>::from),
            None => None,
        };
        let plan = &mut self.plan;
        let mut strides = [[Size::Fixed(0); 3]; 4];
        // Strides of packed integers count integers.
        let are_nibbles = cached.as_ref().is_some_and(|[k, _]| k.are_nibbles);
        let per_byte = if are_nibbles { 2 } else { 1 };
        for (list, (view, each)) in strides.iter_mut().zip([(&q, 1), (&k, per_byte), (&v, per_byte), (&y, 1)]) {
            for (slot, stride) in list.iter_mut().zip(&view.strides) {
                *slot = plan.size(&stride.mul(each))?;
            }
        }
        let step = AttentionStep {
            q: plan.window(&q, &[q.span()])?,
            k: plan.window(&k, &[k.span()])?,
            v: plan.window(&v, &[v.span()])?,
            mask,
            format: match qparams {
                Some(qparams) if are_nibbles => KeyValueFormat::Int4(qparams),
                Some(qparams) => KeyValueFormat::Int8(qparams),
                None => KeyValueFormat::Floats,
            },
            y: plan.tensor(&y)?,
            batch: plan.size(&shape[0])?,
            heads: plan.size(&shape[1])?,
            groups: plan.size(&k.shape[1])?,
            rows: plan.size(&shape[2])?,
            keys: plan.size(attention.keys.as_ref().unwrap_or(&k.shape[2]))?,
            depth: plan.size(&depth)?,
            value_depth: plan.size(&shape[3])?,
            scale: attention.scale,
            causal: attention.causal.as_ref().map(|before| plan.size(before)).transpose()?,
            strides,
        };
        self.plan.step(self.label(call), Step::Attention(step));
        self.views.insert(result, by_head(y));
        Ok(())
    }

    /// A mask of truth values as what is added to scores: 0 where it is true, and -inf elsewhere.
    fn summand(&mut self, mask: &View) -> Result<View, Error> {
        let y = self.plan.dense(mask.shape.clone())?;
        let (a, b) = (Operand::Constant(0.0), Operand::Constant(f32::NEG_INFINITY));
        let select = Instruction::Select { to: 0, condition: Operand::Tensor(0), a, b };
        let operands = vec![self.plan.tensor(mask)?];
        let step = Elementwise { operands, y: self.plan.tensor(&y)?, instructions: vec![select] };
        self.plan.step("mask", Step::Elementwise(step));
        Ok(y)
    }

    /// A value of four dimensions whose last one is the innermost, its elements next to each other, and whose rows do not
    /// overlap: what a payload does is bounded by the elements of its tensors.
    fn heads(&mut self, value: ValueId) -> Result<View, Error> {
        let view = self.floats(value)?;
        let overlap = match (view.shape.as_slice(), view.strides.as_slice()) {
            ([_, _, rows, _], _) if rows.is(1) => false,
            ([.., width], [_, _, stride, _]) => {
                stride.is(0) || stride.as_int().zip(width.as_int()).is_some_and(|(stride, width)| stride < width)
            }
            _ => true,
        };
        if !overlap && view.strides.last().is_some_and(|stride| stride.is(1)) {
            return Ok(view);
        }
        self.dense(value)
    }

    /// A value whose last dimensions are the innermost ones in memory; the others may be in any order.
    fn rows(&mut self, value: ValueId, dims: usize) -> Result<View, Error> {
        let rank = self.graph.tensor(value)?.rank();
        let view = self.non_overlapping_dense(value)?;
        let first = rank.saturating_sub(dims);
        let tail: Vec<usize> = (first..rank).collect();
        if view.order.ends_with(&tail) {
            return Ok(view);
        }
        let mut order: Vec<usize> = view.order.iter().copied().filter(|dim| *dim < first).collect();
        order.extend(tail);
        self.in_order(value, &order)
    }
}
