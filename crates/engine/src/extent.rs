//! What numbers range over.

use crate::Engine;
use crate::arch::{Job, LANES, Simd};

/// The least and the greatest of the numbers that are finite, and how many are. Without any, the least is the greater.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extent {
    pub least: f32,
    pub greatest: f32,
    pub finite: usize,
}

/// The extent of `x`, by the calling thread alone.
pub fn extent(engine: &Engine, x: &[f32]) -> Extent {
    if let Some([least, greatest]) = engine.level.run(Ends { x }) {
        return Extent { least, greatest, finite: x.len() };
    }
    let none = Extent { least: f32::INFINITY, greatest: f32::NEG_INFINITY, finite: 0 };
    x.iter().filter(|x| x.is_finite()).fold(none, |all, x| Extent {
        least: all.least.min(*x),
        greatest: all.greatest.max(*x),
        finite: all.finite + 1,
    })
}

/// Vectors that are looked at side by side, so that none waits for the one before.
const SIDE: usize = 2;

/// The least and the greatest number; `None` if not all are finite.
struct Ends<'a> {
    x: &'a [f32],
}

impl Job for Ends<'_> {
    type Out = Option<[f32; 2]>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        let zero = s.splat(0.0);
        let mut least = [s.splat(f32::INFINITY); SIDE];
        let mut greatest = [s.splat(f32::NEG_INFINITY); SIDE];
        // Zeros as long as all are finite.
        let mut wild = [zero; SIDE];
        let (blocks, rest) = self.x.as_chunks::<{ SIDE * LANES }>();
        for block in blocks {
            for i in 0..SIDE {
                let v = s.read(&block[i * LANES..]);
                least[i] = s.min(least[i], v);
                greatest[i] = s.max(greatest[i], v);
                wild[i] = s.fma(v, zero, wild[i]);
            }
        }
        for rest in rest.chunks(LANES) {
            let mut lanes = [rest[0]; LANES];
            lanes[..rest.len()].copy_from_slice(rest);
            let v = s.read(&lanes);
            least[0] = s.min(least[0], v);
            greatest[0] = s.max(greatest[0], v);
            wild[0] = s.fma(v, zero, wild[0]);
        }
        let is_wild = s.lanes(s.add(wild[0], wild[1])).into_iter().any(|sum| sum != 0.0);
        let least = s.lanes(s.min(least[0], least[1])).into_iter().fold(f32::INFINITY, f32::min);
        let greatest = s.lanes(s.max(greatest[0], greatest[1])).into_iter().fold(f32::NEG_INFINITY, f32::max);
        (!is_wild).then_some([least, greatest])
    }
}
