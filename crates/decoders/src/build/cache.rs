//! The KV cache of a layer: written rows, positions of its slots, and the mask of the keys that each query sees.

use rushlight_format::ScalarType;

use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, ConstantData, Error, Expr, State, StateId, Target, TensorType, Update, ValueId};

use super::Build;
use crate::decoder::{Decoder, Layer};
use crate::options::Limits;

/// The cache of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    /// Number of positions that it holds.
    pub capacity: usize,
    /// True for a ring buffer: position `p` is in slot `p % capacity`.
    pub is_ring: bool,
}

impl Build<'_> {
    /// Chooses the cache of a layer. With a sliding window it is a ring buffer of `window + seq_len - 1` slots: the
    /// positions that the first query of the longest call sees, and that call. A ring is used if it takes at most half
    /// of the context. A larger ring would save too little memory to make up for its limit that a session cannot go
    /// back.
    pub(super) fn cache_of(&self, window: Option<usize>) -> Cache {
        let Limits { seq_len, context } = self.limits;
        let ring = window.map(|window| window + seq_len - 1).filter(|capacity| *capacity <= context / 2);
        ring.map_or(Cache { capacity: context, is_ring: false }, |capacity| Cache { capacity, is_ring: true })
    }

    /// Writes rows `[1, T, heads, columns]` at the position of the call into a cache, and returns the cache.
    pub(super) fn cached(&mut self, rows: ValueId, cache: Cache, index: usize, what: &str) -> Result<ValueId, Error> {
        let Decoder { kv_heads, head_dim, .. } = *self.decoder;
        let sizes = [1, cache.capacity as i64, kv_heads as i64, head_dim as i64];
        let ty = TensorType::of(ScalarType::Float, &sizes);
        let (state, before) = self.state(&format!("layers.{index}.{what}"), ty);
        let after = if cache.is_ring {
            let slots = self.ring_slots(cache)?;
            let indices = Arg::List(vec![Arg::None, slots.into()]);
            self.call("", aten::INDEX_PUT, vec![before.into(), indices, rows.into()])?
        } else {
            let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
            let end = start.add(length);
            let args = vec![before.into(), rows.into(), 1.into(), start.into(), end.into(), 1.into()];
            self.call("", aten::SLICE_SCATTER, args)?
        };
        self.graph.updates.push(Update { target: Target::State(state), value: after });
        Ok(after)
    }

    /// Returns the mask `[T, S]`: true where the query of the row sees the key of the column.
    pub(super) fn mask(&mut self, cache: Cache, window: Option<usize>) -> Result<ValueId, Error> {
        let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
        let end = start.add(length);
        let keys = self.key_positions(cache, end.clone())?;
        let queries = self.positions(start, end)?;
        let queries = self.call("", aten::UNSQUEEZE_COPY, vec![queries.into(), 1.into()])?;
        let mut seen = self.call("", aten::LE_TENSOR, vec![keys.into(), queries.into()])?;
        if let Some(window) = window {
            let first = self.sub(aten::SUB_SCALAR, queries, (window as i64).into())?;
            let near = self.call("", aten::GT_TENSOR, vec![keys.into(), first.into()])?;
            seen = self.call("", aten::LOGICAL_AND, vec![seen.into(), near.into()])?;
        }
        if cache.is_ring {
            let written = self.call("", aten::GE_SCALAR, vec![keys.into(), 0.into()])?;
            seen = self.call("", aten::LOGICAL_AND, vec![seen.into(), written.into()])?;
        }
        Ok(seen)
    }

    /// Returns the positions in the slots of a cache after a call that ends before `end`; negative for empty slots.
    fn key_positions(&mut self, cache: Cache, end: Expr) -> Result<ValueId, Error> {
        let capacity = cache.capacity as i64;
        let slots = self.positions(0.into(), capacity.into())?;
        if !cache.is_ring {
            return Ok(slots);
        }
        let last = self.positions(end.add(-1), end)?;
        let ahead = self.sub(aten::SUB_TENSOR, last, slots.into())?;
        let age = self.call("", aten::REMAINDER_SCALAR, vec![ahead.into(), capacity.into()])?;
        self.sub(aten::SUB_TENSOR, last, age.into())
    }

    /// Returns the slots of a ring buffer that a call writes. A call must not overwrite positions that its first query
    /// sees. It would, if it begins more than `seq_len` before the end of the earlier calls. Its slots are then out of
    /// bounds, so that it fails.
    fn ring_slots(&mut self, cache: Cache) -> Result<ValueId, Error> {
        let capacity = cache.capacity as i64;
        let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
        let positions = self.positions(start.clone(), start.add(length))?;
        let slots = self.call("", aten::REMAINDER_SCALAR, vec![positions.into(), capacity.into()])?;
        let Some((_, written)) = self.written else {
            return Err(Error::invalid("a ring without the end of its positions"));
        };
        let first = self.positions(start.clone(), start.add(1))?;
        let back = self.sub(aten::SUB_TENSOR, written, first.into())?;
        let mut is_lost = self.call("", aten::GT_SCALAR, vec![back.into(), (self.limits.seq_len as i64).into()])?;
        for (value, bound) in [(written, capacity), (first, 0)] {
            let exceeds = self.call("", aten::GT_SCALAR, vec![value.into(), bound.into()])?;
            is_lost = self.call("", aten::LOGICAL_AND, vec![is_lost.into(), exceeds.into()])?;
        }
        let dtype = [("dtype", ScalarType::Long.into())];
        let is_lost = self.builder("").one_with(aten::_TO_COPY, vec![is_lost.into()], &dtype)?;
        let beyond = self.call("", aten::MUL_SCALAR, vec![is_lost.into(), capacity.into()])?;
        self.builder("").one_with(aten::ADD_TENSOR, vec![slots.into(), beyond.into()], &[("alpha", 1.into())])
    }

    /// Adds a state with the end of the positions that earlier calls wrote, if a layer has a ring buffer.
    pub(super) fn written_positions(&mut self) -> Option<(StateId, ValueId)> {
        let has_ring = self.decoder.layers.iter().any(|layer| match layer {
            Layer::Attention { window, .. } => self.cache_of(*window).is_ring,
            Layer::Conv { .. } | Layer::DeltaNet => false,
        });
        has_ring.then(|| self.state("written_positions", TensorType::of(ScalarType::Long, &[1])))
    }

    /// Stores the end of this call's positions.
    pub(super) fn update_written_positions(&mut self) -> Result<(), Error> {
        let Some((state, before)) = self.written else { return Ok(()) };
        let end = Expr::Symbol(self.start).add(Expr::Symbol(self.length));
        let end = self.positions(end.clone(), end.add(1))?;
        let index = Arg::List(vec![self.positions(0.into(), 1.into())?.into()]);
        let value = self.call("", aten::INDEX_PUT, vec![before.into(), index, end.into()])?;
        self.graph.updates.push(Update { target: Target::State(state), value });
        Ok(())
    }

    /// Adds the integers `start..end` as a tensor.
    fn positions(&mut self, start: Expr, end: Expr) -> Result<ValueId, Error> {
        let args = vec![start.into(), end.into(), 1.into()];
        self.builder("").one_with(aten::ARANGE_START_STEP, args, &[("dtype", ScalarType::Long.into())])
    }

    fn sub(&mut self, op: &str, a: ValueId, b: Arg) -> Result<ValueId, Error> {
        self.builder("").one_with(op, vec![a.into(), b], &[("alpha", 1.into())])
    }

    /// Adds a state of zeros. Returns it with its value at the start of a call.
    pub(super) fn state(&mut self, name: &str, ty: TensorType) -> (StateId, ValueId) {
        let state = *self.named.states.entry(name.to_owned()).or_insert_with(|| {
            self.model.states.push(State { name: name.to_owned(), ty, initial: ConstantData::Zeros })
        });
        (state, self.graph.state(state, &self.model.states))
    }
}
