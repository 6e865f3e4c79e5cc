//! Random numbers without an operating system: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
//! 1, 2, 3", SC 2011), a function of a key and a counter.
//!
//! Not for cryptography. The key is [`set_seed`]'s; every call of a random operator takes the next stream, so a
//! process that runs the same calls in the same order after start (or after `set_seed`) gets the same numbers. On
//! targets without compare-and-swap two threads may draw the same stream.

use core::sync::atomic::{AtomicU32, Ordering};

use super::math;

static SEED: AtomicU32 = AtomicU32::new(0x5EED_1DEA);
static STREAM: AtomicU32 = AtomicU32::new(0);

/// Sets the seed of all random operators for all threads and restarts their streams.
pub fn set_seed(seed: u32) {
    SEED.store(seed, Ordering::Relaxed);
    STREAM.store(0, Ordering::Relaxed);
}

fn next_stream() -> u32 {
    #[cfg(target_has_atomic = "32")]
    return STREAM.fetch_add(1, Ordering::Relaxed);
    #[cfg(not(target_has_atomic = "32"))]
    {
        let stream = STREAM.load(Ordering::Relaxed);
        STREAM.store(stream.wrapping_add(1), Ordering::Relaxed);
        stream
    }
}

/// Samples that [`Random::normals`] makes at a time.
pub(crate) const NORMALS: usize = 64;

/// One stream of random numbers.
pub(crate) struct Random {
    key: [u32; 2],
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Random {
    /// The next stream of the process.
    pub(crate) fn next() -> Self {
        Self::with_key([SEED.load(Ordering::Relaxed), next_stream()])
    }

    pub(crate) fn with_key(key: [u32; 2]) -> Self {
        Self { key, block: 0, words: [0; 4], used: 4 }
    }

    #[inline]
    pub(crate) fn word(&mut self) -> u32 {
        if self.used == 4 {
            self.words = philox([self.block as u32, (self.block >> 32) as u32, 0, 0], self.key);
            self.block += 1;
            self.used = 0;
        }
        let word = self.words[self.used & 3];
        self.used += 1;
        word
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    /// Uniform on [0, 1), in steps of 2^-24.
    #[inline]
    pub(crate) fn single(&mut self) -> f32 {
        (self.word() >> 8) as f32 / 16_777_216.0
    }

    /// Uniform on [0, 1), in steps of 2^-53.
    #[inline]
    pub(crate) fn double(&mut self) -> f64 {
        (self.long() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Uniform on `0..bound` (for a `bound` other than 0), with a bias below 2^-64 times the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.long()) * u128::from(bound)) >> 64) as u64
    }

    /// Independent samples of the standard normal distribution (Box and Muller, 1958).
    pub(crate) fn normals(&mut self) -> [f32; NORMALS] {
        const HALF: usize = NORMALS / 2;
        let (mut radius, mut angle, mut normals) = ([0.0; HALF], [0.0; HALF], [0.0; NORMALS]);
        radius.fill_with(|| 1.0 - self.single());
        angle.fill_with(|| core::f32::consts::TAU * self.single());
        let squares = radius.map(|x| -2.0 * math::log(x));
        math::sqrt(&squares, &mut radius);
        let (cos, sin) = normals.split_at_mut(HALF);
        math::cos(&angle, cos);
        math::sin(&angle, sin);
        for half in [cos, sin] {
            half.iter_mut().zip(&radius).for_each(|(x, radius)| *x *= radius);
        }
        normals
    }

    /// Two in double precision.
    pub(crate) fn double_normals(&mut self) -> [f64; 2] {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.double()));
        let (sin, cos) = libm::sincos(core::f64::consts::TAU * self.double());
        [radius * cos, radius * sin]
    }
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the reference implementation (Random123, kat_vectors).
    #[test]
    fn philox_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn streams_differ() {
        let draw = |mut random: Random| core::array::from_fn::<u32, 8, _>(|_| random.word());
        assert_ne!(draw(Random::with_key([1, 0])), draw(Random::with_key([1, 1])));
        assert_eq!(draw(Random::with_key([1, 0])), draw(Random::with_key([1, 0])));
    }

    #[test]
    fn normals_have_the_right_moments() {
        let mut random = Random::with_key([7, 7]);
        let (mut sum, mut squares) = (0.0, 0.0);
        let count = 1600 * NORMALS;
        for x in (0..1600).flat_map(|_| random.normals()).map(f64::from) {
            sum += x;
            squares += x * x;
        }
        let (mean, variance) = (sum / count as f64, squares / count as f64);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
    }
}
