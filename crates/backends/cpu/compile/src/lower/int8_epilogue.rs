//! The epilogues of int8 GEMM and convolutions.

use rushlight_cpu_payload::{Affine, Int8Epilogue};

use rushlight_graph::Error;
use rushlight_graph::{Constant, NodeId, ValueId};

use crate::error::error;
use crate::view::View;
use crate::weights::constants;
use crate::weights::quantized_weights::scales;

use super::Lowering;

/// Maximum bias in units of an accumulator; larger ones are added as floats.
const MAX_BIAS: f64 = (1u32 << 30) as f64;

/// The weights of an int8 GEMM or convolution, as its epilogue needs them.
#[derive(Clone, Copy)]
pub(super) struct Int8Columns<'c> {
    pub weight: &'c Constant,
    /// The number of output columns.
    pub count: usize,
    /// The sum of the weights of each column; each phase of a transposed convolution has its own.
    pub sums: &'c [i64],
}

impl Lowering<'_> {
    /// The epilogue of an int8 GEMM or convolution of `x`, whose result is stored in some order (row-major if `None`), and the
    /// affine of the result.
    pub(super) fn int8_epilogue(
        &mut self,
        id: NodeId,
        bias: Option<ValueId>,
        order: Option<&[usize]>,
        x: &View,
        columns: Int8Columns<'_>,
    ) -> Result<(Int8Epilogue, Option<Affine>), Error> {
        let Int8Columns { weight, count: columns, sums } = columns;
        let from = x.affine.ok_or_else(|| error("an int8 GEMM of an input without a scale"))?;
        let scales: Vec<f32> = scales(weight, columns)?.into_iter().map(|scale| scale * from.scale()).collect();
        let floats = match bias.and_then(|bias| self.constant_of(bias)) {
            Some(constant) => {
                let floats = constants::floats(constant)?;
                let one = floats.first().copied().filter(|_| floats.len() == 1);
                Some(if let Some(one) = one { vec![one; columns] } else { floats })
            }
            None => None,
        };
        let units = |(bias, scale): (&f32, &f32)| (f64::from(*bias) / f64::from(*scale)).round_ties_even();
        let whole: Option<Vec<f64>> = floats.as_ref().map(|floats| floats.iter().zip(&scales).map(units).collect());
        let is_whole = whole.iter().flatten().all(|units| units.abs() <= MAX_BIAS);
        let mut float_bias = None;
        let mut offsets: Vec<i64> = sums.iter().map(|sum| -sum * i64::from(from.zero)).collect();
        match (whole, bias) {
            (Some(whole), _) if is_whole && whole.len() == columns => {
                offsets.iter_mut().zip(whole.iter().cycle()).for_each(|(offset, units)| *offset += *units as i64);
            }
            (_, Some(bias)) => {
                let bias = self.dense(bias)?;
                float_bias = Some(self.plan.tensor(&bias)?);
            }
            _ => {}
        }
        let nodes = self.fusion.epilogues.get(&id).ok_or_else(|| error("a GEMM without its epilogue"))?;
        let (residual, fake_quantize, to, activation) = (nodes.residual, nodes.inner, nodes.to, nodes.activation);
        let offsets = self.plan.vector("offsets", &bits_of(&offsets))?;
        let scales = self.plan.vector("scales", &scales)?;
        let residual = match residual {
            Some(residual) => {
                let residual = match order {
                    Some(order) => self.stored_in_order(residual, order)?,
                    None => self.stored_dense(residual)?,
                };
                Some(self.plan.tensor(&residual)?)
            }
            None => None,
        };
        let bias = float_bias;
        Ok((Int8Epilogue::Static { offsets, scales, bias, fake_quantize, residual, activation }, to))
    }
}

/// Sums as the bits of `i32`. They wrap around in between; the results of a GEMM fit.
pub(super) fn bits_of(sums: &[i64]) -> Vec<f32> {
    sums.iter().map(|sum| f32::from_bits(*sum as u32)).collect()
}
