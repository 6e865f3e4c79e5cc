//! Rows of a cache that is not of `f32`: attention reads them where they are, other steps what they stand for.

use rushlight_cpu_payload::{
    ChooseQparams, Convert, ConvertedType, Direction, Half, PackNibbles, QuantizeRows, RowQparams, Step, UnpackNibbles,
    ZeroPointRule,
};

use rushlight_format::ScalarType;
use rushlight_graph::{Call, Error, Expr, ValueId};

use crate::error::error;
use crate::select::{Elementwise, NibbleQuantize, RowDequantize};
use crate::storage::integral;
use crate::view::View;

use super::Lowering;

/// Rows of a cache.
#[derive(Clone, Debug)]
pub(super) struct CachedRows {
    /// Of 16-bit floats or bytes.
    pub(super) elements: View,
    /// The scales and zero points of bytes, one of each for a row, or for a group of it.
    qparams: Option<[View; 2]>,
    /// True if a byte has two integers.
    pub(super) are_nibbles: bool,
}

/// Dense rows by their groups, each of which has a scale.
fn groups_of(rows: &View, scales: &View) -> Result<View, Error> {
    let (Some(width), Some(groups)) = (rows.shape.last(), scales.shape.last()) else {
        return Err(error("rows without elements"));
    };
    let shape = [Expr::product(&scales.shape), width.floor_div(groups.clone())];
    rows.reshaped(&shape).ok_or_else(|| error("dense rows that cannot be reshaped"))
}

impl CachedRows {
    /// The same rows with their dimensions in another order, of which the last one stays.
    pub(super) fn permuted(&self, dims: &[usize]) -> Self {
        let qparams = self.qparams.as_ref().map(|views| views.each_ref().map(|view| view.permuted(dims)));
        Self { elements: self.elements.permuted(dims), qparams, ..*self }
    }

    /// The type of the elements.
    pub(super) const fn type_name(&self) -> &'static str {
        match (self.elements.half, self.are_nibbles) {
            (Some(Half::F16), _) => "f16",
            (Some(Half::Bf16), _) => "bf16",
            (None, true) => "int4",
            (None, false) => "int8",
        }
    }

    /// True if both are stored in one way.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let of = |rows: &Self| (rows.elements.half, rows.qparams.is_some(), rows.are_nibbles);
        of(self) == of(other)
    }

    /// True if elements of a row are neighbours, and scales and zero points are arranged as the rows are.
    fn is_readable(&self) -> bool {
        let Self { elements, qparams, .. } = self;
        let Some(((width, sizes), (step, strides))) = elements.shape.split_last().zip(elements.strides.split_last())
        else {
            return false;
        };
        let is_alike = |parameters: &View| {
            let rows = sizes.iter().zip(strides).zip(&parameters.strides);
            let groups = parameters.shape.last().cloned().unwrap_or(Expr::Int(1));
            rows.into_iter()
                .all(|((size, stride), own)| size.is(1) || own.mul(width.clone()) == stride.mul(groups.clone()))
        };
        step.is(1) && qparams.iter().flatten().all(is_alike)
    }
}

impl Lowering<'_> {
    /// Notes rows that are dequantized where they are read.
    pub(super) fn dequantize_rows(&mut self, result: ValueId, rows: &RowDequantize) -> Result<(), Error> {
        let (elements, scales, zeros) = (self.view(rows.input)?, self.view(rows.scales)?, self.view(rows.zero_points)?);
        self.cached
            .insert(result, CachedRows { elements, qparams: Some([scales, zeros]), are_nibbles: rows.are_nibbles });
        Ok(())
    }

    /// Quantizes rows to integers of 4 bits: their groups as rows, two integers a byte.
    pub(super) fn quantize_nibbles(&mut self, call: &Call<'_>, rows: NibbleQuantize) -> Result<(), Error> {
        let [packed, scales, zero_points] = call.node.results[..] else {
            return Err(error("rows of 4 bits without scales and zero points"));
        };
        let x = self.dense(rows.input)?;
        let shape = |value: ValueId| self.graph.tensor(value).map(|ty| ty.shape.clone());
        let (packed_shape, scales_shape) = (shape(packed)?, shape(scales)?);
        let count = Expr::product(&scales_shape);
        let groups = [count.clone(), Expr::Int(rows.group)];
        let (range, bytes) = ([0, 15], integral(ScalarType::Byte));
        let qparams = self.plan.dense(vec![Expr::Int(2), count])?;
        let integers = self.plan.ordered_as(x.shape.clone(), x.order.clone(), Some(bytes))?;
        let order = (0..packed_shape.len()).collect();
        let to = self.plan.ordered_as(packed_shape, order, Some(bytes))?;
        let plan = &mut self.plan;
        let (x, qparams_id) = (plan.window(&x, &groups)?, plan.tensor(&qparams)?);
        let rule = ZeroPointRule::FromMin { eps: f32::EPSILON };
        let choose = ChooseQparams { x, y: qparams_id, rule, per_tensor: false, range };
        let quantize = QuantizeRows { x, qparams: qparams_id, y: plan.window(&integers, &groups)?, range };
        let pack = PackNibbles { x: plan.tensor(&integers)?, y: plan.tensor(&to)? };
        for step in [Step::ChooseQparams(choose), Step::QuantizeRows(quantize), Step::PackNibbles(pack)] {
            let label = self.label(call);
            self.plan.step(label, step);
        }
        let zeros = qparams.sliced(0, &Expr::Int(1), &Expr::Int(1));
        let of_groups = View::dense(qparams.buffer, scales_shape);
        let zeros = self.converted("zero points", &View { offset: zeros.offset, ..of_groups.clone() }, Some(bytes))?;
        self.views.extend([(packed, to), (scales, of_groups), (zero_points, zeros)]);
        Ok(())
    }

    /// Notes a value that is stored in 16 bits.
    pub(super) fn store_half(&mut self, value: ValueId, elements: View) {
        self.cached.insert(value, CachedRows { elements, qparams: None, are_nibbles: false });
    }

    /// Returns the view of a value that is stored in 16 bits; `None` for other values.
    pub(super) fn half_view(&self, value: ValueId) -> Option<View> {
        let rows = self.cached.get(&value)?;
        rows.elements.half.map(|_| rows.elements.clone())
    }

    /// Returns the view that a scatter writes, in the element type of the state.
    pub(super) fn place(&mut self, value: ValueId) -> Result<View, Error> {
        self.half_view(value).map_or_else(|| self.view(value), Ok)
    }

    /// Notes the view that a value is stored in.
    pub(super) fn store_at(&mut self, value: ValueId, view: View) {
        match view.half {
            Some(_) => self.store_half(value, view),
            None => drop(self.views.insert(value, view)),
        }
    }

    /// Returns the view of rows in 16 bits that an operator only widens; `None` for other operators.
    pub(super) fn widened_rows(&self, elementwise: &Elementwise) -> Option<View> {
        match elementwise {
            Elementwise::Cast { x, to: ScalarType::Float, .. } => self.half_view(*x),
            _ => None,
        }
    }

    /// A value as it is written to a place, which may be of 16 bits.
    pub(super) fn written_to(&mut self, value: ValueId, to: &View) -> Result<View, Error> {
        if to.half.is_none() {
            return self.held_as(value, to.affine);
        }
        let from = self.non_overlapping_dense(value)?;
        self.narrowed(&from, to)
    }

    /// Floats that fill memory, rounded to the 16 bits of a place.
    pub(super) fn narrowed(&mut self, from: &View, place: &View) -> Result<View, Error> {
        let half = place.half.ok_or_else(|| error("floats of 16 bits for another place"))?;
        let to = self.plan.half_tensor(from.shape.clone(), from.order.clone(), half)?;
        let (x, y) = (self.plan.tensor(from)?, self.plan.tensor(&to)?);
        let step = Convert { x, y, element: ConvertedType::Half(half), direction: Direction::Leave };
        self.plan.step("narrow", Step::Convert(step));
        Ok(to)
    }

    /// The rows of a cache that attention can read where they are; `None` if it has to read floats.
    pub(super) fn cached_rows(&self, value: ValueId) -> Option<CachedRows> {
        let is_read_as_floats = self.views.contains_key(&value);
        self.cached.get(&value).filter(|rows| !is_read_as_floats && rows.is_readable()).cloned()
    }

    /// The keys and values of caches that attention can read where they are; `None` if it has to read floats.
    pub(super) fn cached_keys_and_values(&self, key: ValueId, value: ValueId) -> Option<[CachedRows; 2]> {
        let (keys, values) = (self.cached_rows(key)?, self.cached_rows(value)?);
        keys.is_as(&values).then_some([keys, values])
    }

    /// Scales and zero points as attention reads them.
    pub(super) fn row_qparams(&mut self, rows: &CachedRows) -> Result<Option<RowQparams>, Error> {
        let Some([scales, zeros]) = &rows.qparams else { return Ok(None) };
        Ok(Some(RowQparams {
            scales: self.plan.window(scales, &[scales.span()])?,
            zeros: self.plan.window(zeros, &[zeros.span()])?,
        }))
    }

    /// The rows of a cache as floats.
    pub(super) fn floats_of_cache(&mut self, rows: &CachedRows) -> Result<View, Error> {
        let CachedRows { elements, qparams, are_nibbles } = rows;
        let Some([scales, zeros]) = qparams else {
            let half = elements.half.ok_or_else(|| error("a cache of bytes without scales"))?;
            let to = self.plan.ordered(elements.shape.clone(), elements.order.clone())?;
            let (x, y) = (self.plan.tensor(elements)?, self.plan.tensor(&to)?);
            let step = Convert { x, y, element: ConvertedType::Half(half), direction: Direction::Enter };
            self.plan.step("widen", Step::Convert(step));
            return Ok(to);
        };
        let mut bytes = self.in_rows(elements)?;
        let (scales, zeros) = (self.in_rows(scales)?, self.in_rows(zeros)?);
        if *are_nibbles {
            let packed = bytes;
            let mut shape = packed.shape.clone();
            if let Some(width) = shape.last_mut() {
                *width = width.mul(2);
            }
            bytes = self.plan.ordered_as(shape.clone(), (0..shape.len()).collect(), packed.affine)?;
            let step = UnpackNibbles { x: self.plan.tensor(&packed)?, y: self.plan.tensor(&bytes)? };
            self.plan.step("unpack", Step::UnpackNibbles(step));
            let floats =
                self.dequantize_with(&groups_of(&bytes, &scales)?, [&scales, &zeros], Expr::product(&scales.shape))?;
            return floats.reshaped(&shape).ok_or_else(|| error("groups that cannot be reshaped"));
        }
        let (_, outer) = bytes.shape.split_last().ok_or_else(|| error("rows without elements"))?;
        let count = Expr::product(outer);
        self.dequantize_with(&bytes, [&scales, &zeros], count)
    }
}
