//! The exponential of matrices, by scaling, Padé's approximant of degree 13 and squaring (Higham, "The Scaling and Squaring Method for
//! the Matrix Exponential Revisited", 2005).

use rushlight_runtime::{KernelContext, Op, OpGroup, Result};

use super::batch::{Source, Target, area, each, temp};
use super::lu;

/// `linalg_matrix_exp.out(Tensor self, *, Tensor(a!) out)`
pub const LINALG_MATRIX_EXP_OUT: Op = Op::new("aten::linalg_matrix_exp.out", 2, matrix_exp)
    .temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_mul(7).saturating_add(n)));

pub const OPS: OpGroup = &[LINALG_MATRIX_EXP_OUT];

/// The norm up to which the approximant has the precision of `f64`.
const REACH: f64 = 5.371_920_351_148_152;

/// Coefficients of the approximant, from degree 0.
const PADE: [f64; 14] = [
    64_764_752_532_480_000.0,
    32_382_376_266_240_000.0,
    7_771_770_303_897_600.0,
    1_187_353_796_428_800.0,
    129_060_195_264_000.0,
    10_559_470_521_600.0,
    670_442_572_800.0,
    33_522_128_640.0,
    1_323_241_920.0,
    40_840_800.0,
    960_960.0,
    16_380.0,
    182.0,
    1.0,
];

fn matrix_exp(cx: &KernelContext<'_>) -> Result<()> {
    let a = Source::square(cx.tensor(0)?, 0)?;
    let [n, _] = a.shape;
    let mut out = Target::new(cx, 1, a.dtype(), &a.sizes, &a.shape)?;
    let mut work = Work {
        n,
        x: cx.temp(n * n)?,
        x2: cx.temp(n * n)?,
        x4: cx.temp(n * n)?,
        x6: cx.temp(n * n)?,
        odd: cx.temp(n * n)?,
        even: cx.temp(n * n)?,
        spare: cx.temp(n * n)?,
    };
    let pivots = cx.temp::<i64>(n)?;
    let strides = out.strides;
    each(&a.sizes, [&a.strides, &strides], |[from, to]| {
        a.load(from, work.x)?;
        work.exponentiate(pivots);
        out.store(to, work.odd)
    })
}

/// Matrices of `n` rows.
struct Work<'a> {
    n: usize,
    x: &'a mut [f64],
    x2: &'a mut [f64],
    x4: &'a mut [f64],
    x6: &'a mut [f64],
    odd: &'a mut [f64],
    even: &'a mut [f64],
    spare: &'a mut [f64],
}

impl Work<'_> {
    /// Leaves the exponential of `x` in `odd`.
    fn exponentiate(&mut self, pivots: &mut [i64]) {
        if let ([x], [odd]) = (&*self.x, &mut *self.odd) {
            *odd = libm::exp(*x);
            return;
        }
        let n = self.n;
        let columns =
            (0..n).map(|column| self.x.iter().skip(column).step_by(n.max(1)).fold(0.0, |sum, x| sum + x.abs()));
        let norm = columns.fold(0.0, |max: f64, sum| if sum.is_nan() { sum } else { max.max(sum) });
        let mut halvings = 0;
        let mut scaled = norm;
        // With more halvings the result is not finite.
        while scaled > REACH && halvings < 1100 {
            scaled *= 0.5;
            halvings += 1;
        }
        (0..halvings).for_each(|_| self.x.iter_mut().for_each(|x| *x *= 0.5));
        multiply(self.x, self.x, self.x2, n);
        multiply(self.x2, self.x2, self.x4, n);
        multiply(self.x4, self.x2, self.x6, n);
        // The parts of odd and even degree: x6 times the upper coefficients, and the lower ones.
        self.combine([PADE[13], PADE[11], PADE[9], 0.0]);
        multiply(self.x6, self.spare, self.even, n);
        self.combine([PADE[7], PADE[5], PADE[3], PADE[1]]);
        self.even.iter_mut().zip(self.spare.iter()).for_each(|(to, x)| *to += x);
        multiply(self.x, self.even, self.odd, n);
        self.combine([PADE[12], PADE[10], PADE[8], 0.0]);
        multiply(self.x6, self.spare, self.even, n);
        self.combine([PADE[6], PADE[4], PADE[2], PADE[0]]);
        self.even.iter_mut().zip(self.spare.iter()).for_each(|(to, x)| *to += x);
        // (even - odd) result = even + odd
        for (odd, even) in self.odd.iter_mut().zip(self.even.iter_mut()) {
            (*odd, *even) = (*even + *odd, *even - *odd);
        }
        lu::factor(self.even, [n, n], pivots);
        lu::solve(self.even, n, pivots, self.odd, n, false);
        for _ in 0..halvings {
            multiply(self.odd, self.odd, self.spare, n);
            self.odd.copy_from_slice(self.spare);
        }
    }

    /// `spare = a x6 + b x4 + c x2 + d`.
    fn combine(&mut self, [a, b, c, d]: [f64; 4]) {
        let powers = self.x6.iter().zip(self.x4.iter()).zip(self.x2.iter());
        for (to, ((x6, x4), x2)) in self.spare.iter_mut().zip(powers) {
            *to = a * x6 + b * x4 + c * x2;
        }
        self.spare.iter_mut().step_by(self.n + 1).for_each(|x| *x += d);
    }
}

fn multiply(a: &[f64], b: &[f64], to: &mut [f64], n: usize) {
    to.fill(0.0);
    for (row, to) in a.chunks_exact(n.max(1)).zip(to.chunks_exact_mut(n.max(1))) {
        for (&x, b) in row.iter().zip(b.chunks_exact(n.max(1))) {
            to.iter_mut().zip(b).for_each(|(to, b)| *to += x * b);
        }
    }
}
