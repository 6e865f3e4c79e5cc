//! The tails of products of bytes.

use rushlight_cpu_payload::{Affine, Int8Epilogue};

use rushlight_graph::Error;
use rushlight_graph::{Constant, NodeId};

use super::super::call::Call;
use super::super::integer::scales;
use super::super::view::View;
use super::super::{constants, error};
use super::Lowering;

/// Greater biases, in units of a sum, are added as floats.
const MOST_BIAS: f64 = (1u32 << 30) as f64;

impl Lowering<'_> {
    /// What follows a product of bytes of `x`, whose result lies in memory in some order (row-major if `None`), and
    /// what the result is held as. `sums` are those of the weights of each column; each phase of a transposed
    /// convolution has its own.
    pub(super) fn integer_tail(
        &mut self,
        id: NodeId,
        order: Option<&[usize]>,
        x: &View,
        weight: &Constant,
        columns: usize,
        sums: &[i64],
    ) -> Result<(Int8Epilogue, Option<Affine>), Error> {
        let call = Call::new(self.graph, id);
        let from = x.affine.ok_or_else(|| error("a product of bytes without a scale"))?;
        let scales: Vec<f32> = scales(weight, columns)?.into_iter().map(|scale| scale * from.scale()).collect();
        let bias = call.optional(if call.name() == "aten::addmm" { "self" } else { "bias" });
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
        let is_whole = whole.iter().flatten().all(|units| units.abs() <= MOST_BIAS);
        let mut own_bias = None;
        let mut offsets: Vec<i64> = sums.iter().map(|sum| -sum * i64::from(from.zero)).collect();
        match (whole, bias) {
            (Some(whole), _) if is_whole && whole.len() == columns => {
                offsets.iter_mut().zip(whole.iter().cycle()).for_each(|(offset, units)| *offset += *units as i64);
            }
            (_, Some(bias)) => {
                let bias = self.dense(bias)?;
                own_bias = Some(self.plan.tensor(&bias)?);
            }
            _ => {}
        }
        let nodes = self.fusion.tails.get(&id).ok_or_else(|| error("a product without its tail"))?;
        let (residual, fake_quantize, to, activation) = (nodes.residual, nodes.inner, nodes.to, nodes.activation);
        let offsets = self.plan.vector("offsets", &bits_of(&offsets))?;
        let scales = self.plan.vector("scales", &scales)?;
        let residual = match residual {
            Some(residual) => {
                let residual = match order {
                    Some(order) => self.held_in_order(residual, order)?,
                    None => self.held_dense(residual)?,
                };
                Some(self.plan.tensor(&residual)?)
            }
            None => None,
        };
        let bias = own_bias;
        Ok((Int8Epilogue::Static { offsets, scales, bias, fake_quantize, residual, activation }, to))
    }
}

/// Sums as the bits of `i32`. They wrap around in between; what comes out of a product fits.
pub(super) fn bits_of(sums: &[i64]) -> Vec<f32> {
    sums.iter().map(|sum| f32::from_bits(*sum as u32)).collect()
}
