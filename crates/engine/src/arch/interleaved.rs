//! Software interleaving of independent vectors, to hide the latency of long dependency chains.

use super::Arithmetic;

/// Arithmetic on `N` vectors at a time: each operation is issued for all of them before the next one. A polynomial of
/// thirty dependent operations on one vector would leave most execution units idle.
#[derive(Clone, Copy)]
pub(crate) struct Interleaved<S, const N: usize>(pub(crate) S);

/// A function of one vector that is also valid for several interleaved ones.
pub(crate) trait VectorFn: Copy {
    /// Computes the function. Implementations must be `#[inline(always)]`.
    fn of<S: Arithmetic>(self, s: S, x: S::V) -> S::V;
}

/// Defines methods that apply an operation to each of the `N` vectors.
macro_rules! each_vector {
    ($($method:ident($($v:ident),+);)+) => {$(
        #[inline(always)]
        fn $method(self, $($v: Self::V),+) -> Self::V {
            let mut all = [self.0.splat(0.0); N];
            for i in 0..N {
                all[i] = self.0.$method($($v[i]),+);
            }
            all
        }
    )+};
}

impl<S: Arithmetic, const N: usize> Arithmetic for Interleaved<S, N> {
    type V = [S::V; N];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [self.0.splat(x); N]
    }

    each_vector! {
        add(a, b);
        sub(a, b);
        mul(a, b);
        div(a, b);
        fma(a, b, c);
        max(bound, v);
        min(bound, v);
        clamp(v, min, max);
        abs(v);
        copysign(v, sign);
        select_less(a, b, yes, no);
        select_equal(a, b, yes, no);
        sqrt(v);
        floor(v);
        ceil(v);
        trunc(v);
        round(v);
        ldexp(v, n);
        ldexp_down(v, n);
    }

    #[inline(always)]
    fn split(self, v: Self::V) -> (Self::V, Self::V) {
        let mut parts = [[self.0.splat(0.0); N]; 2];
        for i in 0..N {
            (parts[0][i], parts[1][i]) = self.0.split(v[i]);
        }
        (parts[0], parts[1])
    }
}
