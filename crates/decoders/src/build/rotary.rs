//! Rotary position embeddings of queries and keys.

use std::sync::Arc;

use rushlight_format::ScalarType;

use rushlight_graph::operators::aten;
use rushlight_graph::{Constant, ConstantData, Error, Expr, TensorType, ValueId};

use super::Build;
use crate::rope::Table;

/// The cosines and sines that rotate the positions of a call, `[1, T, columns]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    pub cos: ValueId,
    pub sin: ValueId,
    pub columns: usize,
}

impl Build<'_> {
    /// Adds the cosines and sines of a call's positions, for each kind of RoPE.
    pub(super) fn rotations(&mut self) -> Result<Vec<Rotation>, Error> {
        // Extra rows, which no position uses, keep the slice inside of the table for every start and length.
        let rows = self.limits.context + self.limits.seq_len;
        let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
        let end = start.add(length);
        let mut rotations = Vec::with_capacity(self.decoder.ropes.len());
        for (number, rope) in self.decoder.ropes.iter().enumerate() {
            let columns = rope.columns();
            let ty = TensorType::of(ScalarType::Float, &[rows as i64, columns as i64]);
            let mut rows_of = |is_sine: bool| {
                let data = ConstantData::Computed(Arc::new(Table { rope: rope.clone(), rows, is_sine }));
                let name = format!("rope.{number}.{}", if is_sine { "sin" } else { "cos" });
                let table = self.constant(Constant { name, ty: ty.clone(), data });
                let mut builder = self.builder("rope");
                let args = vec![table.into(), 0.into(), start.clone().into(), end.clone().into()];
                let rows = builder.one(aten::SLICE_COPY_TENSOR, args)?;
                builder.one(aten::UNSQUEEZE_COPY, vec![rows.into(), 1.into()])
            };
            rotations.push(Rotation { cos: rows_of(false)?, sin: rows_of(true)?, columns });
        }
        Ok(rotations)
    }

    /// Rotates the first columns of heads `[1, T, heads, columns]`: each of the first half with its counterpart in the
    /// second half.
    pub(super) fn rotated(&mut self, x: ValueId, rotation: Rotation) -> Result<ValueId, Error> {
        let Rotation { cos, sin, columns } = rotation;
        let width = self.decoder.head_dim;
        let (turning, kept) = if columns < width {
            let [turning, kept] = self.split(x, [columns, width - columns])?;
            (turning, Some(kept))
        } else {
            (x, None)
        };
        let [first, second] = self.split(turning, [columns / 2; 2])?;
        let second = self.call("", aten::NEG, vec![second.into()])?;
        let swapped = self.call("", aten::CAT, vec![vec![second, first].into(), (-1).into()])?;
        let straight = self.call("", aten::MUL_TENSOR, vec![turning.into(), cos.into()])?;
        let swapped = self.call("", aten::MUL_TENSOR, vec![swapped.into(), sin.into()])?;
        let turned = self.call("", aten::ADD_TENSOR, vec![straight.into(), swapped.into()])?;
        match kept {
            Some(kept) => self.call("", aten::CAT, vec![vec![turned, kept].into(), (-1).into()]),
            None => Ok(turned),
        }
    }
}
