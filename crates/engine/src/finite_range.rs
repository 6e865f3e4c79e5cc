//! Minimum and maximum of the finite elements of a slice.

use crate::Engine;
use crate::arch::{Kernel, LANES, Simd};

/// Minimum, maximum and count of the finite elements; `min` is infinity and `max` -infinity if there are none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FiniteRange {
    pub min: f32,
    pub max: f32,
    pub count: usize,
}

/// Computes the range of the finite elements of `x`, on the calling thread.
pub fn finite_range(engine: &Engine, x: &[f32]) -> FiniteRange {
    if let Some([min, max]) = engine.dispatch.run(MinMax { x }) {
        return FiniteRange { min, max, count: x.len() };
    }
    let none = FiniteRange { min: f32::INFINITY, max: f32::NEG_INFINITY, count: 0 };
    x.iter().filter(|x| x.is_finite()).fold(none, |all, x| FiniteRange {
        min: all.min.min(*x),
        max: all.max.max(*x),
        count: all.count + 1,
    })
}

/// Independent accumulators, to hide latency.
const ACCUMULATORS: usize = 2;

/// Minimum and maximum; `None` if an element is not finite.
struct MinMax<'a> {
    x: &'a [f32],
}

impl Kernel for MinMax<'_> {
    type Out = Option<[f32; 2]>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        let zero = s.splat(0.0);
        let mut min = [s.splat(f32::INFINITY); ACCUMULATORS];
        let mut max = [s.splat(f32::NEG_INFINITY); ACCUMULATORS];
        // Stays zero as long as all elements are finite.
        let mut non_finite = [zero; ACCUMULATORS];
        let (blocks, rest) = self.x.as_chunks::<{ ACCUMULATORS * LANES }>();
        for block in blocks {
            for i in 0..ACCUMULATORS {
                let v = s.load_slice(&block[i * LANES..]);
                min[i] = s.min(min[i], v);
                max[i] = s.max(max[i], v);
                non_finite[i] = s.fma(v, zero, non_finite[i]);
            }
        }
        for rest in rest.chunks(LANES) {
            let mut lanes = [rest[0]; LANES];
            lanes[..rest.len()].copy_from_slice(rest);
            let v = s.load_slice(&lanes);
            min[0] = s.min(min[0], v);
            max[0] = s.max(max[0], v);
            non_finite[0] = s.fma(v, zero, non_finite[0]);
        }
        let is_non_finite = s.to_array(s.add(non_finite[0], non_finite[1])).into_iter().any(|sum| sum != 0.0);
        let min = s.to_array(s.min(min[0], min[1])).into_iter().fold(f32::INFINITY, f32::min);
        let max = s.to_array(s.max(max[0], max[1])).into_iter().fold(f32::NEG_INFINITY, f32::max);
        (!is_non_finite).then_some([min, max])
    }
}
