//! Passes over the logits of a whole vocabulary: argmax, thresholds and sums of softmax, in blocks that compilers vectorize.

use rushlight::kernels::elementwise;

/// Tokens this far below the most likely one, in units of the temperature, have no weight in double precision sums of
/// probabilities, however many they are.
pub(super) const NEGLIGIBLE: f32 = 60.0;

const BLOCK: usize = 64;

/// The argmax of logits, the lower of equal tokens; `None` if no logit is a number above negative infinity.
pub(crate) fn most_likely(logits: &[f32]) -> Option<u32> {
    let mut best = None;
    let mut most = f32::NEG_INFINITY;
    for (index, block) in logits.chunks(BLOCK).enumerate() {
        let max = block_max(block);
        if max > most {
            (best, most) = (Some(index), max);
        }
    }
    let first = best? * BLOCK;
    let within = logits.get(first..)?.iter().position(|logit| *logit == most)?;
    u32::try_from(first + within).ok()
}

/// The largest number of a block; negative infinity if there is none.
fn block_max(block: &[f32]) -> f32 {
    // In this form NaN is left out, and a lane of a vector has a maximum of its own.
    let greater = |most: f32, logit: f32| if logit > most { logit } else { most };
    let mut lanes = [f32::NEG_INFINITY; 8];
    let mut parts = block.chunks_exact(lanes.len());
    for part in &mut parts {
        lanes.iter_mut().zip(part).for_each(|(most, logit)| *most = greater(*most, *logit));
    }
    lanes.iter().chain(parts.remainder()).fold(f32::NEG_INFINITY, |most, logit| greater(most, *logit))
}

/// The tokens whose logits are `least` or more, with those.
pub(crate) fn at_least(logits: &[f32], least: f32) -> impl Iterator<Item = (u32, f32)> {
    let blocks = (0..).step_by(BLOCK).zip(logits.chunks(BLOCK)).filter(move |(_, block)| block_max(block) >= least);
    let tokens = blocks.flat_map(|(first, block)| (first..).zip(block.iter().copied()));
    tokens.filter(move |(_, logit)| *logit >= least)
}

/// A lower bound of the `count`-th largest logit: the `count`-th largest maximum of a block. Negative infinity if there are fewer
/// blocks.
pub(crate) fn top_k_threshold(logits: &[f32], count: usize) -> f32 {
    let mut maxima: Vec<f32> = logits.chunks(BLOCK).map(block_max).collect();
    if !(1..=maxima.len()).contains(&count) {
        return f32::NEG_INFINITY;
    }
    *maxima.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a)).1
}

/// Weights of all tokens, relative to that of the most likely one, as sums of blocks.
pub(crate) struct Weights<'a> {
    logits: &'a [f32],
    most: f32,
    temperature: f32,
    sums: Vec<f64>,
    total: f64,
}

impl<'a> Weights<'a> {
    /// `most` is the maximum of the logits, and `temperature` more than 0.
    pub fn of(logits: &'a [f32], most: f32, temperature: f32) -> Self {
        let mut weights =
            Self { logits, most, temperature, sums: Vec::with_capacity(logits.len() / BLOCK + 1), total: 0.0 };
        for block in logits.chunks(BLOCK) {
            let block = weights.of_block(block);
            let mut lanes = [0.0; 8];
            for part in block.chunks_exact(lanes.len()) {
                lanes.iter_mut().zip(part).for_each(|(sum, weight)| *sum += f64::from(*weight));
            }
            let sum = lanes.iter().sum();
            weights.sums.push(sum);
            weights.total += sum;
        }
        weights
    }

    pub fn total(&self) -> f64 {
        self.total
    }

    /// The token at which the sum of weights, in the order of tokens, exceeds this probability, with its own.
    pub fn at_cumulative(&self, probability: f64) -> Option<(u32, f64)> {
        let mut left = probability * self.total;
        let mut found = None;
        for (index, (block, sum)) in self.logits.chunks(BLOCK).zip(&self.sums).enumerate() {
            // Rounding may leave a little of the whole: then it is the last token that has a weight.
            if *sum > 0.0 {
                found = Some((index, block, left));
            }
            if left < *sum {
                break;
            }
            left -= sum;
        }
        let (index, block, mut left) = found?;
        let mut chosen = None;
        for (within, weight) in self.of_block(block).into_iter().take(block.len()).enumerate() {
            if weight > 0.0 {
                chosen = Some((within, weight));
            }
            left -= f64::from(weight);
            if left < 0.0 {
                break;
            }
        }
        let (within, weight) = chosen?;
        Some((u32::try_from(index * BLOCK + within).ok()?, f64::from(weight) / self.total))
    }

    /// Weights of a block, and zeros after a shorter one.
    fn of_block(&self, block: &[f32]) -> [f32; BLOCK] {
        let mut weights = [-2.0 * NEGLIGIBLE; BLOCK];
        for (weight, logit) in weights.iter_mut().zip(block) {
            let scaled = (logit - self.most) / self.temperature;
            // In this form NaN has no weight.
            *weight = if scaled > -NEGLIGIBLE { scaled } else { -2.0 * NEGLIGIBLE };
        }
        elementwise::functions::exp(&mut weights);
        weights
    }
}

/// Gives each item the exponential of its logit.
pub(super) fn set_exponentials<T>(items: &mut [T], logit: impl Fn(&T) -> f32, mut set: impl FnMut(&mut T, f64)) {
    for items in items.chunks_mut(BLOCK) {
        let mut values = [0.0; BLOCK];
        values.iter_mut().zip(&*items).for_each(|(value, item)| *value = logit(item));
        elementwise::functions::exp(&mut values);
        items.iter_mut().zip(values).for_each(|(item, value)| set(item, f64::from(value)));
    }
}
