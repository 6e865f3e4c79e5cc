//! Several vectors at a time.

use super::Arithmetic;

/// Arithmetic with `N` vectors, each operation on all of them before the next one: a processor that looks ahead over a few
/// hundred instructions always finds some that wait for nothing, where a long chain of them for one vector would not let it.
#[derive(Clone, Copy)]
pub(crate) struct Several<S, const N: usize>(pub(crate) S);

/// A function of a vector, or of several at a time.
pub(crate) trait Function: Copy {
    /// Must be `#[inline(always)]`.
    fn of<S: Arithmetic>(self, s: S, x: S::V) -> S::V;
}

/// Methods from vectors to a vector.
macro_rules! each {
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

impl<S: Arithmetic, const N: usize> Arithmetic for Several<S, N> {
    type V = [S::V; N];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [self.0.splat(x); N]
    }

    each! {
        add(a, b);
        sub(a, b);
        mul(a, b);
        div(a, b);
        fma(a, b, c);
        max(bound, v);
        min(bound, v);
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
