//! Feed-forward layers that route each token to a few experts.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, Scalar, Tensor};

use super::packed_weights::{BLOCK, PackedWeights};
use crate::support::math::exp;

/// `llama::quantized_moe_ffn.out(Tensor x, Tensor gate_weight, Tensor expert_bias, Tensor packed_w13,
/// Tensor packed_w2, int num_activated_experts, int num_experts, int hidden_dim, int dim, int group_size,
/// int weight_nbit, str score_func, float route_scale, *, Tensor(a!) out) -> Tensor(a!)`
///
/// f32. Each row of `x [T, D]` goes through the experts with the highest scores `x @ gate_weight^T`, and their results
/// are summed with weights. With `score_func` "softmax" the weights are the softmax of the chosen scores; with
/// "sigmoid" they are the sigmoids, divided by their sum, times `route_scale`, and `expert_bias`, unless empty, is
/// added for the choice only. An expert is `w2 @ (silu(w1 @ x) * (w3 @ x))` with 4-bit or 8-bit weights in torchao's
/// universal packing, w1 and w3 stacked.
pub const QUANTIZED_MOE_FFN_OUT: Op = Op::new("llama::quantized_moe_ffn.out", 14, quantized_moe_ffn).temp(temp_bytes);

/// `llama::_quantized_moe_ffn_active() -> bool`: that this build has the operator above, which is so.
pub const QUANTIZED_MOE_FFN_ACTIVE: Op =
    Op::new("llama::_quantized_moe_ffn_active", 1, |cx| cx.set(0, Scalar::Bool(true)));

pub const OPS: &[Op] = &[QUANTIZED_MOE_FFN_OUT, QUANTIZED_MOE_FFN_ACTIVE];

/// A score for each expert, the chosen ones with their weights, and the hidden row of one expert. Impossible sizes
/// are left for the call to report, so bounds of the tensors limit them here.
fn temp_bytes(cx: &KernelContext<'_>) -> Result<usize> {
    let size = |index: usize, bound: usize| Ok::<_, Error>(usize::try_from(cx.int(index)?).unwrap_or(0).min(bound));
    let gate = cx.tensor(1)?;
    let experts = gate.size(0).min(gate.numel());
    let chosen = size(5, experts)?;
    let hidden = size(7, cx.tensor(4)?.numel())?;
    Ok((experts + chosen + hidden) * 4 + chosen * 8 + 4 * 16)
}

fn quantized_moe_ffn(cx: &KernelContext<'_>) -> Result<()> {
    let (x, gate, bias) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let [chosen, experts, hidden, dim, group_size, bits] = dims(cx)?;
    let (w13, w2) = (cx.tensor(3)?, cx.tensor(4)?);
    let tokens = x.size(0);
    for (index, tensor, sizes) in [(0, &x, [tokens, dim]), (1, &gate, [experts, dim])] {
        check(tensor, &sizes).map_err(|e| e.arg(index))?;
    }
    let sigmoid = match cx.string(11)? {
        "sigmoid" => true,
        "softmax" => false,
        _ => return Err(Error::invalid("the score function must be sigmoid or softmax").arg(11)),
    };
    let bias = if bias.numel() > 0 {
        check(&bias, &[experts]).map_err(|e| e.arg(2))?;
        if !sigmoid {
            return Err(Error::invalid("an expert bias needs the score function sigmoid").arg(2));
        }
        Some(bias.as_slice::<f32>()?)
    } else {
        None
    };
    for (index, tensor) in [(3, &w13), (4, &w2)] {
        let sizes = tensor.sizes();
        if sizes.len() != 2 || sizes[0] != experts || !tensor.is_contiguous() {
            return Err(Error::invalid("packed weights must be contiguous, one row for each expert").arg(index));
        }
        tensor.as_slice::<u8>().map_err(|e| e.arg(index))?;
    }
    let mut out = cx.out(13)?;
    out.resize(&[tokens, dim]).map_err(|e| e.arg(13))?;
    check(&out.as_tensor(), &[tokens, dim]).map_err(|e| e.arg(13))?;
    let (x, gate, out) = (x.as_slice::<f32>()?, gate.as_slice::<f32>()?, out.as_mut_slice::<f32>()?);

    let route_scale = cx.double(12)? as f32;
    let scores = cx.temp::<f32>(experts)?;
    let mut router =
        Router { sigmoid, bias, route_scale, chosen: cx.temp::<i64>(chosen)?, weights: cx.temp::<f32>(chosen)? };
    let middle = cx.temp::<f32>(hidden)?;
    for (x, out) in x.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
        for (score, row) in scores.iter_mut().zip(gate.chunks_exact(dim)) {
            *score = row.iter().zip(x).map(|(&w, &x)| w * x).sum();
        }
        router.route(scores);
        out.fill(0.0);
        for (&expert, &weight) in router.chosen.iter().zip(&*router.weights) {
            let expert = expert as usize;
            let packed = |tensor: &Tensor<'_>| expert * tensor.size(1)..(expert + 1) * tensor.size(1);
            let up = PackedWeights::new(&w13.bytes()[packed(&w13)], 2 * hidden, dim, group_size, bits)
                .map_err(|e| e.arg(3))?;
            let down =
                PackedWeights::new(&w2.bytes()[packed(&w2)], dim, hidden, group_size, bits).map_err(|e| e.arg(4))?;
            for (block, middle) in middle.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                let gated = up.multiply(hidden / BLOCK + block, x);
                for ((m, h), g) in middle.iter_mut().zip(up.multiply(block, x)).zip(gated) {
                    *m = h * logistic(h) * g;
                }
            }
            for (block, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                for (out, y) in out.iter_mut().zip(down.multiply(block, middle)) {
                    *out += weight * y;
                }
            }
        }
    }
    Ok(())
}

/// Arguments 5 to 10: activated experts, experts, hidden size, size, group size and bits.
fn dims(cx: &KernelContext<'_>) -> Result<[usize; 6]> {
    let mut dims = [0; 6];
    for (index, dim) in (5..).zip(&mut dims) {
        let got = cx.int(index)?;
        *dim = usize::try_from(got).ok().filter(|&dim| dim > 0 && i32::try_from(dim).is_ok()).ok_or_else(|| {
            Error::from(Detail::Value { what: "size", expected: "a positive 32-bit value", got }).arg(index)
        })?;
    }
    let [chosen, experts, hidden, dim, group_size, bits] = dims;
    let error = |index: usize, what, expected, got: usize| {
        Err(Error::from(Detail::Value { what, expected, got: got as i64 }).arg(index))
    };
    if chosen > experts {
        return error(5, "activated experts", "at most the number of experts", chosen);
    }
    if !group_size.is_multiple_of(16) {
        return error(9, "group_size", "a multiple of 16", group_size);
    }
    for (index, size) in [(7, hidden), (8, dim)] {
        if !size.is_multiple_of(group_size) {
            return error(index, "size", "a multiple of group_size", size);
        }
    }
    if bits != 4 && bits != 8 {
        return error(10, "weight_nbit", "4 or 8", bits);
    }
    Ok(dims)
}

fn check(tensor: &Tensor<'_>, sizes: &[usize]) -> Result<()> {
    tensor.as_slice::<f32>()?;
    if tensor.sizes() != sizes || !tensor.is_contiguous() {
        return Err(Error::invalid("the tensor must be contiguous and have the sizes that the other arguments give"));
    }
    Ok(())
}

fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Chooses experts.
struct Router<'a> {
    sigmoid: bool,
    bias: Option<&'a [f32]>,
    route_scale: f32,
    chosen: &'a mut [i64],
    weights: &'a mut [f32],
}

impl Router<'_> {
    fn route(&mut self, scores: &mut [f32]) {
        if self.sigmoid {
            for score in scores.iter_mut() {
                *score = logistic(*score);
            }
        }
        for place in 0..self.chosen.len() {
            let (before, rest) = self.chosen.split_at_mut(place);
            // NaN is less than everything; the first of equals wins.
            let mut best: Option<(usize, f32)> = None;
            for (expert, &score) in scores.iter().enumerate() {
                let score = score + self.bias.and_then(|bias| bias.get(expert)).copied().unwrap_or(0.0);
                let score = if score.is_nan() { f32::NEG_INFINITY } else { score };
                if !before.contains(&(expert as i64)) && best.is_none_or(|(_, best)| score > best) {
                    best = Some((expert, score));
                }
            }
            let (expert, _) = best.unwrap_or_default();
            rest[0] = expert as i64;
            self.weights[place] = scores[expert];
        }
        if self.sigmoid {
            let sum: f32 = self.weights.iter().sum();
            let factor = self.route_scale / if sum < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { sum };
            for weight in self.weights.iter_mut() {
                *weight *= factor;
            }
        } else {
            let max = self.weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for weight in self.weights.iter_mut() {
                *weight = exp(*weight - max);
            }
            let sum: f32 = self.weights.iter().sum();
            for weight in self.weights.iter_mut() {
                *weight /= sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(sigmoid: bool, bias: Option<&[f32]>, mut scores: [f32; 4]) -> ([i64; 2], [f32; 2]) {
        let (mut chosen, mut weights) = ([0; 2], [0.0; 2]);
        let mut router = Router { sigmoid, bias, route_scale: 3.0, chosen: &mut chosen, weights: &mut weights };
        router.route(&mut scores);
        (chosen, weights)
    }

    #[test]
    fn the_highest_scores_win() {
        let (chosen, weights) = route(false, None, [0.0, 2.0, f32::NAN, 2.0]);
        assert_eq!((chosen, weights), ([1, 3], [0.5, 0.5]));
        let (chosen, weights) = route(true, Some(&[0.0, 0.0, 9.0, 0.0]), [0.0, 1.0, 0.0, -1.0]);
        assert_eq!(chosen, [2, 1]);
        assert!((weights[0] + weights[1] - 3.0).abs() < 1e-6 && weights[0] < weights[1]);
        assert_eq!(route(false, None, [f32::NAN; 4]).0, [0, 1]);
    }
}
