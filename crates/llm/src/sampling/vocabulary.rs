//! Passes over the logits of a whole vocabulary: argmax, thresholds and sums of softmax, in blocks that compilers vectorize.

use rushlight::kernels::elementwise;

/// The distance from the largest logit, in units of the temperature, from which on tokens count as impossible. Even all
/// of them together do not change a sum of probabilities in double precision.
pub(super) const NEGLIGIBLE: f32 = 60.0;

const BLOCK: usize = 64;

/// The argmax of logits, the lower of equal tokens; `None` if no logit is a number above negative infinity.
pub(crate) fn most_likely(logits: &[f32]) -> Option<u32> {
    let mut best = None;
    let mut max_logit = f32::NEG_INFINITY;
    for (index, block) in logits.chunks(BLOCK).enumerate() {
        let max = block_max(block);
        if max > max_logit {
            (best, max_logit) = (Some(index), max);
        }
    }
    let first = best? * BLOCK;
    let within = logits.get(first..)?.iter().position(|logit| *logit == max_logit)?;
    u32::try_from(first + within).ok()
}

/// The maximum of a block without its NaNs; negative infinity if it is empty.
fn block_max(block: &[f32]) -> f32 {
    // This comparison skips NaN. Separate maxima of eight lanes let the compiler vectorize.
    let greater = |max_logit: f32, logit: f32| if logit > max_logit { logit } else { max_logit };
    let mut lanes = [f32::NEG_INFINITY; 8];
    let mut parts = block.chunks_exact(lanes.len());
    for part in &mut parts {
        lanes.iter_mut().zip(part).for_each(|(max_logit, logit)| *max_logit = greater(*max_logit, *logit));
    }
    lanes.iter().chain(parts.remainder()).fold(f32::NEG_INFINITY, |max_logit, logit| greater(max_logit, *logit))
}

/// Returns the tokens whose logits are at least `min`, with their logits.
pub(crate) fn at_least(logits: &[f32], min: f32) -> impl Iterator<Item = (u32, f32)> {
    let blocks = (0..).step_by(BLOCK).zip(logits.chunks(BLOCK)).filter(move |(_, block)| block_max(block) >= min);
    let tokens = blocks.flat_map(|(first, block)| (first..).zip(block.iter().copied()));
    tokens.filter(move |(_, logit)| *logit >= min)
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
    max_logit: f32,
    temperature: f32,
    sums: Vec<f64>,
    total: f64,
}

impl<'a> Weights<'a> {
    /// `max_logit` is the maximum of the logits, and `temperature` more than 0.
    pub fn of(logits: &'a [f32], max_logit: f32, temperature: f32) -> Self {
        let mut weights =
            Self { logits, max_logit, temperature, sums: Vec::with_capacity(logits.len() / BLOCK + 1), total: 0.0 };
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

    /// Returns the token at which the cumulative probability, in the order of tokens, exceeds `probability`, and the token's
    /// own probability.
    pub fn at_cumulative(&self, probability: f64) -> Option<(u32, f64)> {
        let mut left = probability * self.total;
        let mut found = None;
        for (index, (block, sum)) in self.logits.chunks(BLOCK).zip(&self.sums).enumerate() {
            // Rounding may leave a rest after the last block. The choice is then the last token that has a weight.
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

    /// Weights of a block; zeros after the end of a shorter one.
    fn of_block(&self, block: &[f32]) -> [f32; BLOCK] {
        let mut weights = [-2.0 * NEGLIGIBLE; BLOCK];
        for (weight, logit) in weights.iter_mut().zip(block) {
            let scaled = (logit - self.max_logit) / self.temperature;
            // This comparison gives NaN no weight.
            *weight = if scaled > -NEGLIGIBLE { scaled } else { -2.0 * NEGLIGIBLE };
        }
        elementwise::functions::exp(&mut weights);
        weights
    }
}

/// Calls `set` for each item with the exponential of its logit.
pub(super) fn set_exponentials<T>(items: &mut [T], logit: impl Fn(&T) -> f32, mut set: impl FnMut(&mut T, f64)) {
    for items in items.chunks_mut(BLOCK) {
        let mut values = [0.0; BLOCK];
        values.iter_mut().zip(&*items).for_each(|(value, item)| *value = logit(item));
        elementwise::functions::exp(&mut values);
        items.iter_mut().zip(values).for_each(|(item, value)| set(item, f64::from(value)));
    }
}
