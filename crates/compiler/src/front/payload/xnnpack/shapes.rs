//! Nodes that move elements.

use rushlight_format::Vector;

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, ValueId};

use super::node::Nodes;

impl Nodes<'_, '_> {
    pub(super) fn concatenate(&mut self, axis: u32, inputs: &[Option<u32>]) -> Result<ValueId, Error> {
        let mut items = Vec::with_capacity(inputs.len());
        for input in inputs.iter().flatten() {
            items.push(match items.first() {
                Some(first) => self.read_like(*input, *first)?,
                None => self.read(*input)?,
            });
        }
        self.site.one(aten::CAT, vec![items.into(), i64::from(axis).into()])
    }

    pub(super) fn reshape(&mut self, shape: Vector<'_, u32>, input: u32) -> Result<ValueId, Error> {
        let input = self.read(input)?;
        let sizes: Vec<i64> = shape.iter().map(|size| if size == 0 { -1 } else { i64::from(size) }).collect();
        self.site.one(aten::VIEW_COPY, vec![input.into(), Arg::from(sizes.as_slice())])
    }

    pub(super) fn transpose(&mut self, perm: Vector<'_, u32>, input: u32) -> Result<ValueId, Error> {
        let input = self.read(input)?;
        let order: Vec<i64> = perm.iter().map(i64::from).collect();
        self.site.one(aten::PERMUTE_COPY, vec![input.into(), Arg::from(order.as_slice())])
    }

    /// A slice of each dimension. A size of 0 is the rest after the offset.
    pub(super) fn slice(
        &mut self,
        offsets: Vector<'_, u32>,
        sizes: Vector<'_, u32>,
        input: u32,
    ) -> Result<ValueId, Error> {
        let mut value = self.read(input)?;
        let shape = self.site.tensor(value)?.shape.clone();
        if (offsets.len(), sizes.len()) != (shape.len(), shape.len()) {
            let got = format!("{} and {}", offsets.len(), sizes.len());
            return Err(Error::invalid("a slice has another number of dimensions").expected(shape.len()).got(got));
        }
        for (dim, ((offset, size), whole)) in offsets.iter().zip(sizes).zip(&shape).enumerate() {
            let (start, size) = (i64::from(offset), i64::from(size));
            if start == 0 && (size == 0 || whole.is(size)) {
                continue;
            }
            if let Some(whole) = whole.as_int()
                && start + size > whole
            {
                return Err(Error::invalid("a slice reaches beyond its tensor").expected(whole).got(start + size));
            }
            let end = if size == 0 { Arg::None } else { Arg::from(start + size) };
            value =
                self.site.one(aten::SLICE_COPY_TENSOR, vec![value.into(), (dim as i64).into(), start.into(), end])?;
        }
        Ok(value)
    }

    pub(super) fn pad(
        &mut self,
        before: Vector<'_, u32>,
        after: Vector<'_, u32>,
        value: f64,
        input: u32,
    ) -> Result<ValueId, Error> {
        let input = self.read(input)?;
        let rank = self.site.tensor(input)?.rank();
        if (before.len(), after.len()) != (rank, rank) {
            let got = format!("{} and {}", before.len(), after.len());
            return Err(Error::invalid("a padding has another number of dimensions").expected(rank).got(got));
        }
        // Operators take the pairs from the last dimension to the first, and leading dimensions may be left out.
        let pairs = before.iter().zip(after).rev().flat_map(|(before, after)| [before, after].map(i64::from));
        let mut pairs: Vec<i64> = pairs.collect();
        while pairs.ends_with(&[0, 0]) {
            pairs.truncate(pairs.len() - 2);
        }
        if pairs.is_empty() {
            return Ok(input);
        }
        self.site.one(aten::CONSTANT_PAD_ND, vec![input.into(), Arg::from(pairs.as_slice()), value.into()])
    }
}
