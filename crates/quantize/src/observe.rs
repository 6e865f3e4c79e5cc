//! Histograms of the values that tensors have in a calibration, and the ranges that are chosen from them.

use rushlight_engine::{Engine, FiniteRange, finite_range};

use rushlight_compiler::quantization::ActivationSpec;

use super::settings::Observer;

/// Bins of a histogram.
const BINS: usize = 2048;
/// Number of elements of an input from which only one chunk in [`PART`] is counted.
const MANY: usize = 1 << 16;
const PART: usize = 4;
/// Elements whose range is found, and which are then counted, at a time.
const BLOCK: usize = 1 << 13;
/// Elements that are sampled together: all of them are counted or none.
const CHUNK: usize = 8;
/// Number of separate counts for neighbouring elements. Two increments of the same bin in a row would wait for each
/// other.
const APART: usize = 4;
/// Places of a count, a power of two, so that a place is quick to compute.
const PLACES: usize = 2 * BINS;
/// Weight of the latest input in the moving average, as in PyTorch's observers.
const NEWEST: f32 = 0.01;
/// Fraction of the elements that a percentile leaves out.
const LEFT_OUT: f64 = 1e-4;

/// The distribution of a tensor's values.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Lower end of the first bin.
    origin: f32,
    /// Width of a bin; 0 before the first element.
    width: f32,
    counts: Vec<u64>,
    min: f32,
    max: f32,
    average: Option<(f32, f32)>,
    /// Number of elements that are NaN or infinite.
    wild: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Makes an empty histogram.
    pub fn new() -> Self {
        let (min, max) = (f32::INFINITY, f32::NEG_INFINITY);
        Self { origin: 0.0, width: 0.0, counts: vec![0; BINS], min, max, average: None, wild: 0 }
    }

    /// True if no element was added.
    pub fn is_empty(&self) -> bool {
        self.min > self.max
    }

    /// Number of elements that were NaN or infinite.
    pub fn wild(&self) -> u64 {
        self.wild
    }

    /// Adds the elements of one input.
    pub fn add(&mut self, engine: &Engine, numbers: &[f32]) {
        if self.width == 0.0 {
            let FiniteRange { min, max, .. } = finite_range(engine, numbers);
            if min <= max {
                self.reach(min, max);
            }
        }
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        let mut tally = Tally::of(numbers.len());
        // A block is still in the cache when it is counted.
        for block in numbers.chunks(BLOCK) {
            let FiniteRange { min, max, count: finite } = finite_range(engine, block);
            self.wild += (block.len() - finite) as u64;
            if min > max {
                continue;
            }
            (low, high) = (low.min(min), high.max(max));
            if !self.reaches(min, max) {
                tally.empty_into(&mut self.counts);
                self.reach(min, max);
            }
            if finite < block.len() {
                let tame: Vec<f32> = block.iter().copied().filter(|number| number.is_finite()).collect();
                tally.count(&tame, self.origin, self.width);
            } else {
                tally.count(block, self.origin, self.width);
            }
        }
        tally.empty_into(&mut self.counts);
        if low > high {
            return;
        }
        self.average = Some(match self.average {
            None => (low, high),
            Some((min, max)) => (min + (low - min) * NEWEST, max + (high - max) * NEWEST),
        });
        self.min = self.min.min(low);
        self.max = self.max.max(high);
    }

    /// Adds another histogram, as if its elements were in the middle of their bins.
    pub fn absorb(&mut self, other: &Self) {
        self.wild += other.wild;
        if other.is_empty() {
            return;
        }
        self.average = match (self.average, other.average) {
            (Some(one), Some(two)) => Some((one.0.min(two.0), one.1.max(two.1))),
            (one, two) => one.or(two),
        };
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.reach(other.min, other.max);
        for (bin, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let middle = other.middle(bin).clamp(other.min, other.max);
            let bin = ((middle - self.origin) / self.width) as usize;
            self.counts[bin.min(BINS - 1)] += count;
        }
    }

    /// True if the bins cover a range.
    fn reaches(&self, min: f32, max: f32) -> bool {
        min >= self.origin && max < self.origin + self.width * BINS as f32
    }

    /// Doubles the width of the bins until they cover a range.
    fn reach(&mut self, min: f32, max: f32) {
        if self.width == 0.0 {
            // The margins on both sides are for later inputs with a larger range.
            let size = (max - min).max(max.abs().max(min.abs()) * 1e-3).max(f32::MIN_POSITIVE * 1e6);
            self.width = size * 1.25 / BINS as f32;
            self.origin = min - size * 0.125;
        }
        while !self.reaches(min, max) {
            // Merges pairs of bins, and frees the half on the side where the range grows.
            let grows_down = min < self.origin;
            let pairs: Vec<u64> = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            let from = if grows_down { BINS / 2 } else { 0 };
            self.counts.fill(0);
            self.counts[from..from + BINS / 2].copy_from_slice(&pairs);
            if grows_down {
                self.origin -= self.width * BINS as f32;
            }
            self.width *= 2.0;
        }
    }

    /// The range to quantize; `None` before the first element. It includes zero.
    pub fn range(&self, observer: Observer, spec: &ActivationSpec) -> Option<(f32, f32)> {
        if self.is_empty() {
            return None;
        }
        let (low, high) = match observer {
            Observer::MinMax => (self.min, self.max),
            Observer::Average => self.average.unwrap_or((self.min, self.max)),
            Observer::Percentile => self.percentile(),
            Observer::Histogram | Observer::Best => self.least_error(false, spec),
            Observer::SquaredError => self.least_error(true, spec),
        };
        Some((low.min(0.0), high.max(0.0)))
    }

    /// The middle of a bin.
    fn middle(&self, bin: usize) -> f32 {
        self.origin + (bin as f32 + 0.5) * self.width
    }

    fn percentile(&self) -> (f32, f32) {
        let total: u64 = self.counts.iter().sum();
        let limit = (total as f64 * LEFT_OUT / 2.0) as u64;
        let reached = |bins: &mut dyn Iterator<Item = usize>| -> Option<usize> {
            let mut sum = 0;
            for bin in bins {
                sum += self.counts[bin];
                if sum > limit {
                    return Some(bin);
                }
            }
            None
        };
        let low = reached(&mut (0..BINS)).map_or(self.min, |bin| self.origin + bin as f32 * self.width);
        let high = reached(&mut (0..BINS).rev()).map_or(self.max, |bin| self.origin + (bin + 1) as f32 * self.width);
        (low.max(self.min), high.min(self.max))
    }

    /// The range with the smallest expected squared error if it is divided into the steps of the integers. If `is_both`, both
    /// ends move together, as they do in symmetric ranges.
    fn least_error(&self, is_both: bool, spec: &ActivationSpec) -> (f32, f32) {
        const STEPS: usize = 100;
        let seen: Vec<(f32, u64)> =
            (0..BINS).filter(|bin| self.counts[*bin] > 0).map(|bin| (self.middle(bin), self.counts[bin])).collect();
        let (mut min, mut max) = (self.min.min(0.0), self.max.max(0.0));
        if spec.is_symmetric {
            (min, max) = spec.symmetric((min, max));
        }
        let is_both = is_both || spec.is_symmetric;
        let error = |low: f32, high: f32| -> f64 {
            let step = f64::from((high - low) / spec.steps());
            // Rounding errors are uniform in a step. A clipped number also has its distance from the range.
            let rounding = step * step / 12.0;
            let each = |&(number, count): &(f32, u64)| {
                let away = f64::from((low - number).max(number - high).max(0.0));
                count as f64 * (rounding + away * away)
            };
            seen.iter().map(each).sum()
        };
        let part = |index: usize| 1.0 - index as f32 / STEPS as f32;
        let mut best = (error(min, max), min, max);
        let mut offer = |low: f32, high: f32| {
            let found = error(low, high);
            if found < best.0 {
                best = (found, low, high);
            }
        };
        for index in 1..STEPS {
            if is_both {
                offer(min * part(index), max * part(index));
            } else {
                offer(min, max * part(index));
            }
        }
        if !is_both {
            let high = best.2;
            let mut offer = |low: f32, high: f32| {
                let found = error(low, high);
                if found < best.0 {
                    best = (found, low, high);
                }
            };
            (1..STEPS).for_each(|index| offer(min * part(index), high));
        }
        (best.1, best.2)
    }
}

/// The counts of one input, before they are added to the histogram.
struct Tally {
    /// Counts by place. Places below [`BINS`] are bins; the first place after them counts elements just above the bins,
    /// and the last place elements just below.
    counts: Box<[[u32; PLACES]; APART]>,
    /// True if one chunk in [`PART`] is counted.
    is_part: bool,
    chance: u32,
}

impl Tally {
    /// Makes the counts for an input of `count` elements.
    fn of(count: usize) -> Self {
        Self { counts: bytemuck::allocation::zeroed_box(), is_part: count >= MANY, chance: 1 }
    }

    /// Counts finite elements that the bins cover.
    fn count(&mut self, numbers: &[f32], origin: f32, width: f32) {
        /// Floats from 2^23 on are integers, and their low bits hold that integer. This is the largest float below.
        const BEFORE: f32 = 8_388_607.5;
        let per_width = 1.0 / width;
        // Rounding may place an element at the edge one bin outside.
        let place = |number: f32| ((number - origin) * per_width + BEFORE).to_bits();
        let (chunks, rest) = numbers.as_chunks::<CHUNK>();
        if !self.is_part {
            chunks.iter().for_each(|chunk| self.add(chunk.map(place)));
            rest.iter().for_each(|number| self.counts[0][place(*number) as usize % PLACES] += 1);
            return;
        }
        // The counted chunks are chosen at random: at a fixed step they could all be of the same channels.
        let (parts, rest) = chunks.as_chunks::<PART>();
        for part in parts {
            let chunk = part[self.chance() % PART];
            self.add(chunk.map(place));
        }
        if !rest.is_empty() {
            let chunk = rest[self.chance() % rest.len()];
            self.add(chunk.map(place));
        }
    }

    #[inline]
    fn chance(&mut self) -> usize {
        self.chance = self.chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.chance >> 16) as usize
    }

    #[inline]
    fn add(&mut self, places: [u32; CHUNK]) {
        for (at, place) in places.into_iter().enumerate() {
            self.counts[at % APART][place as usize % PLACES] += 1;
        }
    }

    /// Adds the counts to bins, and resets them.
    fn empty_into(&mut self, bins: &mut [u64]) {
        let part = if self.is_part { PART as u64 } else { 1 };
        for counts in self.counts.iter_mut() {
            let (seen, outside) = counts.split_at(BINS);
            for (sum, count) in bins.iter_mut().zip(seen) {
                *sum += u64::from(*count) * part;
            }
            let [first, .., last] = bins else { return };
            let ([after, ..], [.., before]) = (outside, outside) else { return };
            *first += u64::from(*before) * part;
            *last += u64::from(*after) * part;
            counts.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &ActivationSpec = &ActivationSpec::INT8;

    /// Evenly spaced numbers between -1 and 1.
    fn even(count: usize) -> Vec<f32> {
        (0..count).map(|at| at as f32 / (count - 1) as f32 * 2.0 - 1.0).collect()
    }

    #[test]
    fn ranges_of_even_numbers_are_all_of_them() {
        let (engine, mut histogram) = (Engine::new(1), Histogram::new());
        assert!(Observer::ALL.iter().all(|observer| histogram.range(*observer, SPEC).is_none()));
        histogram.add(&engine, &even(100_001));
        for observer in Observer::ALL {
            let (low, high) = histogram.range(observer, SPEC).unwrap();
            assert!((low + 1.0).abs() < 0.02 && (high - 1.0).abs() < 0.02, "{observer:?}: {low} to {high}");
        }
    }

    #[test]
    fn what_lies_far_outside_is_cut_off() {
        let (engine, mut histogram) = (Engine::new(1), Histogram::new());
        histogram.add(&engine, &even(1_000_000));
        histogram.add(&engine, &[8.0, f32::NAN, f32::INFINITY]);
        assert_eq!(histogram.wild(), 2);
        assert_eq!(histogram.range(Observer::MinMax, SPEC), Some((-1.0, 8.0)));
        for observer in [Observer::Percentile, Observer::Histogram] {
            let (_, high) = histogram.range(observer, SPEC).unwrap();
            assert!((0.9..3.5).contains(&high), "{observer:?}: {high}");
        }
    }

    #[test]
    fn bins_grow_to_both_sides_and_lose_nothing() {
        let (engine, mut histogram) = (Engine::new(1), Histogram::new());
        for scale in [0.001, 1.0, 30.0, 0.5, 1000.0] {
            histogram.add(&engine, &even(1001).iter().map(|number| number * scale).collect::<Vec<_>>());
        }
        assert_eq!(histogram.counts.iter().sum::<u64>(), 5 * 1001);
        assert_eq!(histogram.range(Observer::MinMax, SPEC), Some((-1000.0, 1000.0)));
        let mut sum = Histogram::new();
        sum.add(&engine, &even(9));
        sum.absorb(&histogram);
        sum.absorb(&Histogram::new());
        assert_eq!(sum.counts.iter().sum::<u64>(), 5 * 1001 + 9);
        assert_eq!(sum.range(Observer::MinMax, SPEC), Some((-1000.0, 1000.0)));
        let mut constant = Histogram::new();
        constant.add(&engine, &[0.0; 7]);
        assert_eq!(constant.range(Observer::Histogram, SPEC), Some((0.0, 0.0)));
    }
}
