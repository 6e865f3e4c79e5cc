//! Attention.

use rushlight_cpu_payload::{Attention, KeyValueFormat, Size};
use rushlight_engine::{
    AttentionInputs, Engine, Strides, attention_supports_bf16_input, attention_supports_bf16_output,
};
use rushlight_runtime::Result;

use super::RunStep;
use crate::bf16_choice::{Choice, fixed};
use crate::error::Unfit;
use crate::memory::{StepContext, done};
use crate::shapes::product;

impl RunStep for Attention {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader, scratch) = cx.split_float_slice(self.y)?;
        let size = |size: Size| reader.shapes.size(size);
        let strides = |[batch, head, row]: [Size; 3]| -> Result<Strides> {
            Ok(Strides { batch: size(batch)?, head: size(head)?, row: size(row)? })
        };
        let [q, k, v, y_strides] = self.strides;
        let (batch, heads, rows, keys) = (size(self.batch)?, size(self.heads)?, size(self.rows)?, size(self.keys)?);
        let mask = self.mask.map(|mask| mask_strides(reader.dims(mask), [batch, heads, rows, keys])).transpose()?;
        let attention = rushlight_engine::Attention {
            batch,
            heads,
            kv_heads: size(self.groups)?,
            rows,
            keys,
            depth: size(self.depth)?,
            value_depth: size(self.value_depth)?,
            scale: self.scale,
            causal: self.causal.map(size).transpose()?,
            q: strides(q)?,
            k: strides(k)?,
            v: strides(v)?,
            y: strides(y_strides)?,
            mask,
        };
        let [k, v] = reader.key_values(self)?;
        let inputs = AttentionInputs { q: reader.float_slice(self.q)?, k, v, mask: reader.optional(self.mask)? };
        done(rushlight_engine::attention(engine, &attention, inputs, y, scratch))
    }

    /// Queries, keys and values have one type, which is multiplied as it is, since there are no bf16 weights that would say that
    /// f32 may be rounded.
    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        if self.format != KeyValueFormat::Floats {
            return choice.refuse_all(self);
        }
        let inputs = [self.q, self.k, self.v];
        let mut changed = inputs.iter().fold(false, |changed, input| choice.read(*input) | changed);
        changed |= self.mask.is_some_and(|mask| choice.refuse(mask));
        let may_read = fixed(self.depth).is_some_and(attention_supports_bf16_input);
        if !may_read || !inputs.iter().all(|input| choice.may(*input)) {
            changed |= inputs.iter().fold(false, |changed, input| choice.refuse(*input) | changed);
        }
        if !fixed(self.keys).is_some_and(attention_supports_bf16_output) || !choice.may(self.q) {
            changed |= choice.refuse(self.y);
        }
        changed
    }
}

/// Returns the strides of a mask `[batch or 1, heads or 1, rows or 1, keys]`, with 0 for what is repeated.
fn mask_strides(dims: &[usize], wholes: [usize; 4]) -> Result<Strides> {
    let [b, h, r, n] = dims else { return Err(Unfit::Rank { expected: "4", got: dims.len() }.into()) };
    for (dim, (own, whole)) in dims.iter().zip(wholes).enumerate() {
        if *own != whole && (*own != 1 || dim == 3) {
            return Err(Unfit::Size { dim, expected: whole, got: *own }.into());
        }
    }
    let stride = |own: usize, sizes: &[usize]| if own == 1 { Ok(0) } else { product(Some(sizes)) };
    Ok(Strides { batch: stride(*b, &[*h, *r, *n])?, head: stride(*h, &[*r, *n])?, row: stride(*r, &[*n])? })
}
