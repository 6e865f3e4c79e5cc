//! Attention and the delta rule.

use rushlight_cpu_payload::{Attention, DeltaRule, Half, KeyValueFormat, RowQparams, Size, Step};
use rushlight_engine::Strides;

use super::Maker;
use super::tensors::len;

impl Maker<'_, '_> {
    pub(super) fn attention(&mut self) -> Step {
        let (batch, groups) = (self.source.size(2), self.source.size(2));
        let heads = groups * self.source.size(2);
        let (rows, keys) = (self.source.size(20), if self.source.once_in(4) { 250 } else { 1 } * self.source.size(3));
        let (depth, value_depth) = (self.source.size(20), self.source.size(20));
        // Heads outside of rows, or rows outside of heads.
        let mut laid_out = |heads: u64, rows: u64, width: u64| {
            let strides = if self.source.once_in(2) {
                [heads * rows * width, rows * width, width]
            } else {
                [rows * heads * width, width, heads * width]
            };
            strides.map(|stride| if self.source.once_in(16) { 0 } else { stride })
        };
        let strides = [
            laid_out(heads, rows, depth),
            laid_out(groups, keys, depth),
            laid_out(groups, keys, value_depth),
            laid_out(heads, rows, value_depth),
        ];
        let q = self.floats(&[batch * heads * rows * depth]);
        let (key_sizes, value_sizes) = ([batch * groups * keys, depth], [batch * groups * keys, value_depth]);
        let (are_quantized, are_nibbles) = (self.source.once_in(3), self.source.once_in(2));
        let [(k, k_qparams), (v, v_qparams)] = if are_quantized {
            [key_sizes, value_sizes].map(|[rows, width]| {
                let bytes = self.bytes(&[rows * width]);
                let (scales, zeros) = (self.floats(&[rows]), self.bytes(&[rows]));
                let bytes = if are_nibbles { self.nibbles(bytes, rows * width / 2) } else { bytes };
                (bytes, Some(RowQparams { scales, zeros }))
            })
        } else if self.source.once_in(3) {
            let half = self.source.one_of(&[Half::F16, Half::Bf16]);
            [key_sizes, value_sizes].map(|sizes| (self.halves(&[len(&sizes)], half), None))
        } else {
            [key_sizes, value_sizes].map(|sizes| (self.floats(&[len(&sizes)]), None))
        };
        let mask = if self.source.once_in(3) {
            let own = [batch, heads, rows].map(|size| if self.source.once_in(2) { 1 } else { size });
            Some(self.floats(&[own[0], own[1], own[2], keys]))
        } else {
            None
        };
        let none = Strides { batch: 0, head: 0, row: 0 };
        let sizes = rushlight_engine::Attention {
            batch: batch as usize,
            heads: heads as usize,
            kv_heads: groups as usize,
            rows: rows as usize,
            keys: keys as usize,
            depth: depth as usize,
            value_depth: value_depth as usize,
            scale: 1.0,
            causal: None,
            q: none,
            k: none,
            v: none,
            y: none,
            mask: None,
        };
        self.scratch(sizes.scratch_per_thread());
        let [batch, heads, groups, rows, keys, depth, value_depth] =
            [batch, heads, groups, rows, keys, depth, value_depth].map(Size::Fixed);
        let y = [sizes.batch * sizes.heads * sizes.rows * sizes.value_depth].map(|size| size as u64);
        Step::Attention(Attention {
            q,
            k,
            v,
            mask,
            format: match k_qparams.zip(v_qparams) {
                Some((k, v)) if are_nibbles => KeyValueFormat::Int4([k, v]),
                Some((k, v)) => KeyValueFormat::Int8([k, v]),
                None => KeyValueFormat::Floats,
            },
            y: self.output(&y),
            batch,
            heads,
            groups,
            rows,
            keys,
            depth,
            value_depth,
            scale: self.source.float(),
            causal: self.source.once_in(2).then_some(Size::Fixed(0)),
            strides: strides.map(|list| list.map(Size::Fixed)),
        })
    }

    pub(super) fn delta_rule(&mut self) -> Step {
        let (batch, tokens, groups) = (self.source.size(2), self.source.size(5), self.source.size(3));
        let (heads, rows, columns) = (groups * self.source.size(2), self.source.size(20), self.source.size(80));
        let all = [batch, tokens, groups, rows];
        let decay = if self.source.once_in(2) { &all[..] } else { &all[..3] };
        let results = batch * tokens * heads * columns;
        Step::DeltaRule(DeltaRule {
            q: self.floats(&[batch, tokens, heads, rows]),
            k: self.floats(&all),
            v: self.floats(&[batch, tokens, groups, columns]),
            decay: self.floats(decay),
            beta: self.floats(&all[..3]),
            state: self.floats(&[batch, groups, rows, columns]),
            y: self.output(&[results + batch * groups * rows * columns]),
        })
    }
}
