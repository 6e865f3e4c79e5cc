//! Rows of a quantized cache: attention reads them where they are, other steps what they stand for.

use rushlight_cpu_payload::RowQparams;

use rushlight_graph::{Error, Expr, ValueId};

use crate::error::error;
use crate::select::RowDequantize;
use crate::view::View;

use super::Lowering;

/// Rows of int8, each with a scale and a zero point.
#[derive(Clone, Debug)]
pub(super) struct CachedRows {
    pub(super) bytes: View,
    /// With one element for each row.
    pub(super) scales: View,
    pub(super) zeros: View,
}

impl CachedRows {
    /// The same rows with their dimensions in another order, of which the last one stays.
    pub(super) fn permuted(&self, dims: &[usize]) -> Self {
        let [bytes, scales, zeros] = [&self.bytes, &self.scales, &self.zeros].map(|view| view.permuted(dims));
        Self { bytes, scales, zeros }
    }

    /// True if elements of a row are neighbours, and scales and zero points are arranged as the rows are.
    fn is_readable(&self) -> bool {
        let Self { bytes, scales, zeros } = self;
        let Some(((width, sizes), (step, strides))) = bytes.shape.split_last().zip(bytes.strides.split_last()) else {
            return false;
        };
        let is_alike = |parameters: &View| {
            let rows = sizes.iter().zip(strides).zip(&parameters.strides);
            rows.into_iter().all(|((size, stride), own)| size.is(1) || own.mul(width.clone()) == *stride)
        };
        step.is(1) && is_alike(scales) && is_alike(zeros)
    }
}

impl Lowering<'_> {
    /// Notes rows that are dequantized where they are read.
    pub(super) fn dequantize_rows(&mut self, result: ValueId, rows: &RowDequantize) -> Result<(), Error> {
        let [bytes, scales, zeros] = [self.view(rows.input)?, self.view(rows.scales)?, self.view(rows.zero_points)?];
        self.cached.insert(result, CachedRows { bytes, scales, zeros });
        Ok(())
    }

    /// The rows of a cache that attention can read where they are; `None` if it has to read floats.
    pub(super) fn cached_rows(&self, value: ValueId) -> Option<CachedRows> {
        let is_read_as_floats = self.views.contains_key(&value);
        self.cached.get(&value).filter(|rows| !is_read_as_floats && rows.is_readable()).cloned()
    }

    /// Scales and zero points as attention reads them.
    pub(super) fn row_qparams(&mut self, rows: &CachedRows) -> Result<RowQparams, Error> {
        let CachedRows { scales, zeros, .. } = rows;
        Ok(RowQparams {
            scales: self.plan.window(scales, &[scales.span()])?,
            zeros: self.plan.window(zeros, &[zeros.span()])?,
        })
    }

    /// Dequantizes the rows of a cache.
    pub(super) fn dequantized_cache(&mut self, rows: &CachedRows) -> Result<View, Error> {
        let bytes = self.in_rows(&rows.bytes)?;
        let (scales, zeros) = (self.in_rows(&rows.scales)?, self.in_rows(&rows.zeros)?);
        let (_, outer) = bytes.shape.split_last().ok_or_else(|| error("rows without elements"))?;
        let count = Expr::product(outer);
        self.dequantize_with(&bytes, [&scales, &zeros], count)
    }
}
