//! Samples of distributions whose parameters are tensors.
//!
//! The numbers come from the generator of `random`, Philox4x32-10, which `set_seed` seeds. They are not those of PyTorch for the same
//! seed; their distributions are.

use rushlight_runtime::{Detail, Element, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use crate::special::gamma::lgamma;
use crate::support::number::Number;
use crate::support::random::Random;
use crate::support::shape::{Dims, Walk, broadcast, broadcast_strides};

/// `multinomial.out(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None,
/// Tensor(a!) out)`: the indices of elements, which
/// are drawn with probabilities in proportion to them, of each row.
pub const MULTINOMIAL_OUT: Op = Op::new("aten::multinomial.out", 5, multinomial).temp(|cx| {
    let input = cx.tensor(0)?;
    Ok(input.sizes().last().copied().unwrap_or(0).saturating_mul(8).saturating_add(64))
});
/// `poisson.out(Tensor self, Generator? generator=None, *, Tensor(a!) out)`, where elements are the means.
pub const POISSON_OUT: Op = Op::new("aten::poisson.out", 3, |cx| of_each(cx, poisson));
/// `_standard_gamma.out(Tensor self, Generator? generator=None, *, Tensor(a!) out)`, where elements are the shapes.
pub const STANDARD_GAMMA_OUT: Op = Op::new("aten::_standard_gamma.out", 3, |cx| of_each(cx, gamma));
/// `binomial.out(Tensor count, Tensor prob, Generator? generator=None, *, Tensor(a!) out)`
pub const BINOMIAL_OUT: Op = Op::new("aten::binomial.out", 4, binomial_out);

pub const OPS: OpGroup = &[MULTINOMIAL_OUT, POISSON_OUT, STANDARD_GAMMA_OUT, BINOMIAL_OUT];

fn multinomial(cx: &KernelContext<'_>) -> Result<()> {
    let (input, count, replacement, mut out) = (cx.tensor(0)?, cx.int(1)?, cx.bool(2)?, cx.out(4)?);
    let fault = |detail: Detail, argument: usize| Err(Error::from(detail).arg(argument));
    let (&[ref rows @ .., categories], true) = (input.sizes(), input.rank() <= 2) else {
        return fault(Detail::Rank { expected: "1 or 2", got: input.rank() }, 0);
    };
    let expected = "at least 1, and at most the number of categories unless they are replaced";
    let wanted = usize::try_from(count).ok().filter(|&n| n > 0 && (replacement || n <= categories));
    let Some(wanted) = wanted else {
        return fault(Detail::Value { what: "num_samples", expected, got: count }, 1);
    };
    if out.dtype() != ScalarType::Long {
        return fault(Detail::ElementType { expected: ScalarType::Long, got: out.dtype() }, 4);
    }
    let mut sizes = Dims::from_slice(rows)?;
    sizes.push(wanted)?;
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    let rows = rows.first().copied().unwrap_or(1);
    let (down, across) = steps(input.strides());
    let (out_down, out_across) = steps(out.strides());
    let weights = cx.temp::<f64>(categories)?;
    let out = out.as_mut_slice::<i64>()?;
    let mut random = Random::next();
    for row in 0..rows {
        let mut total = 0.0;
        for (category, weight) in weights.iter_mut().enumerate() {
            *weight = read(&input, row * down + category * across).map_err(|e: Error| e.arg(0))?;
            if !(0.0..f64::INFINITY).contains(weight) {
                return Err(Error::invalid("a probability is negative, infinite or not a number").arg(0));
            }
            total += *weight;
        }
        let possible = weights.iter().filter(|weight| **weight > 0.0).count();
        if possible == 0 || (!replacement && possible < wanted) {
            return Err(Error::invalid("fewer probabilities than samples are positive").arg(0));
        }
        for sample in 0..wanted {
            let chosen = draw(weights, random.double() * total);
            if let Some(slot) = out.get_mut(row * out_down + sample * out_across) {
                *slot = chosen as i64;
            }
            if !replacement && let Some(weight) = weights.get_mut(chosen) {
                *weight = 0.0;
                // Repeated subtraction would accumulate rounding errors.
                total = weights.iter().sum();
            }
        }
    }
    Ok(())
}

/// Strides of rows, if there are any, and of their elements.
fn steps(strides: &[usize]) -> (usize, usize) {
    match *strides {
        [down, across] => (down, across),
        [across] => (0, across),
        _ => (0, 0),
    }
}

/// The element whose share of the sum `target` falls on; never one that is zero.
fn draw(weights: &[f64], target: f64) -> usize {
    let (mut rest, mut last) = (target, 0);
    for (at, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        if rest < weight {
            return at;
        }
        rest -= weight;
        last = at;
    }
    last
}

/// One element in double precision.
fn read(tensor: &Tensor<'_>, at: usize) -> Result<f64> {
    dispatch!(FLOATHBF16, tensor.dtype(), T => Ok(tensor.as_slice::<T>()?.get(at).map_or(0.0, |x| x.to_f64())))
}

fn of_each(cx: &KernelContext<'_>, sample: fn(&mut Random, f64) -> f64) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(2)?);
    samples(&[input, input], &mut out, 2, |random, [x, _]| sample(random, x))
}

fn binomial_out(cx: &KernelContext<'_>) -> Result<()> {
    let (count, probability, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(3)?);
    samples(&[count, probability], &mut out, 3, |random, [count, p]| binomial(random, count, p))
}

/// A sample for each pair of elements, in the order of the shape that they broadcast to.
fn samples(
    inputs: &[Tensor<'_>; 2],
    out: &mut TensorMut<'_>,
    argument: usize,
    sample: impl Fn(&mut Random, [f64; 2]) -> f64,
) -> Result<()> {
    let [a, b] = inputs;
    for (at, got) in [(1, b.dtype()), (argument, out.dtype())] {
        if got != a.dtype() {
            return Err(Error::from(Detail::ElementType { expected: a.dtype(), got }).arg(at));
        }
    }
    let sizes = broadcast(a.sizes(), b.sizes()).map_err(|e| e.arg(1))?;
    out.resize(&sizes).map_err(|e| e.arg(argument))?;
    if out.numel() == 0 {
        return Ok(());
    }
    let strides =
        [broadcast_strides(a.sizes(), a.strides(), &sizes)?, broadcast_strides(b.sizes(), b.strides(), &sizes)?];
    let own = Dims::from_slice(out.strides())?;
    let mut walk = Walk::new(&sizes, [&strides[0], &strides[1], &own])?;
    let mut random = Random::next();
    loop {
        let [first, second, to] = walk.offsets;
        let value = sample(&mut random, [read(a, first)?, read(b, second)?]);
        dispatch!(FLOATHBF16, out.dtype(), T => store::<T>(out, to, value))?;
        if !walk.next() {
            return Ok(());
        }
    }
}

fn store<T: Number + Element>(out: &mut TensorMut<'_>, at: usize, value: f64) -> Result<()> {
    if let Some(slot) = out.as_mut_slice::<T>()?.get_mut(at) {
        *slot = T::from_f64(value);
    }
    Ok(())
}

/// Maximum number of tries for a sample, after which the last try is used. Practically no sample needs that many.
const TRIES: usize = 1 << 16;

/// By products of uniform numbers for small means, else by transformed rejection (Hörmann, "The Transformed Rejection Method for
/// Generating Poisson Random Variables", 1993).
fn poisson(random: &mut Random, mean: f64) -> f64 {
    if !(0.0..1e300).contains(&mean) {
        return f64::NAN;
    }
    if mean < 10.0 {
        let (limit, mut product, mut count) = (libm::exp(-mean), 1.0, -1.0);
        for _ in 0..TRIES {
            product *= random.double();
            count += 1.0;
            if product <= limit {
                break;
            }
        }
        return if mean == 0.0 { 0.0 } else { count };
    }
    let (log, root) = (libm::log(mean), libm::sqrt(mean));
    let b = 0.931 + 2.53 * root;
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let squeeze = 0.9277 - 3.6224 / (b - 2.0);
    for _ in 0..TRIES {
        let (u, v) = (random.double() - 0.5, random.double());
        let distance = 0.5 - u.abs();
        let k = libm::floor((2.0 * a / distance + b) * u + mean + 0.43);
        if distance >= 0.07 && v <= squeeze {
            return k;
        }
        if k < 0.0 || (distance < 0.013 && v > distance) {
            continue;
        }
        let bound = libm::log(v) + libm::log(inverse_alpha) - libm::log(a / (distance * distance) + b);
        if bound <= k * log - mean - lgamma(k + 1.0) {
            return k;
        }
    }
    libm::floor(mean)
}

/// Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables" (2000). Shapes below 1 take one more and a power.
fn gamma(random: &mut Random, shape: f64) -> f64 {
    if shape.is_nan() || shape <= 0.0 {
        return if shape == 0.0 { 0.0 } else { f64::NAN };
    }
    let (shape, scale) =
        if shape < 1.0 { (shape + 1.0, libm::pow(1.0 - random.double(), 1.0 / shape)) } else { (shape, 1.0) };
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    for _ in 0..TRIES {
        let [x, _] = random.double_normals();
        let y = 1.0 + c * x;
        if y <= 0.0 {
            continue;
        }
        let v = y * y * y;
        let u = 1.0 - random.double();
        let square = x * x;
        if u < 1.0 - 0.0331 * square * square || libm::log(u) < 0.5 * square + d * (1.0 - v + libm::log(v)) {
            return scale * d * v;
        }
    }
    scale * d
}

/// By waiting times for few successes, else by transformed rejection (Hörmann, "The Generation of Binomial Random Variates", 1993).
fn binomial(random: &mut Random, count: f64, p: f64) -> f64 {
    let count = libm::floor(count);
    if count.is_nan() || count.is_infinite() || p.is_nan() {
        return f64::NAN;
    }
    if count <= 0.0 || p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return count;
    }
    if p > 0.5 {
        return count - binomial(random, count, 1.0 - p);
    }
    if count * p < 10.0 {
        let (log, mut sum, mut successes) = (libm::log1p(-p), 0.0, 0.0);
        for _ in 0..TRIES {
            sum += libm::ceil(libm::log(1.0 - random.double()) / log).max(1.0);
            if sum > count {
                break;
            }
            successes += 1.0;
        }
        return successes;
    }
    let deviation = libm::sqrt(count * p * (1.0 - p));
    let b = 1.15 + 2.53 * deviation;
    let a = -0.0873 + 0.0248 * b + 0.01 * p;
    let center = count * p + 0.5;
    let squeeze = 0.92 - 4.2 / b;
    let odds = libm::log(p / (1.0 - p));
    let alpha = (2.83 + 5.1 / b) * deviation;
    let mode = libm::floor((count + 1.0) * p);
    let log_factorial = |k: f64| lgamma(k + 1.0);
    let top = log_factorial(mode) + log_factorial(count - mode);
    for _ in 0..TRIES {
        let (u, v) = (random.double() - 0.5, random.double());
        let distance = 0.5 - u.abs();
        let k = libm::floor((2.0 * a / distance + b) * u + center);
        if !(0.0..=count).contains(&k) {
            continue;
        }
        if distance >= 0.07 && v <= squeeze {
            return k;
        }
        let v = libm::log(v * alpha / (a / (distance * distance) + b));
        if v <= top - log_factorial(k) - log_factorial(count - k) + (k - mode) * odds {
            return k;
        }
    }
    mode
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: usize = 20_000;

    /// Mean and variance are within six standard errors; `fourth` is the fourth central moment.
    fn check(name: &str, mean: f64, variance: f64, fourth: f64, sample: impl Fn(&mut Random) -> f64) {
        let mut random = Random::with_key([3, 14]);
        let count = SAMPLES as f64;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..SAMPLES {
            let x = sample(&mut random) - mean;
            sum += x;
            squares += x * x;
        }
        let (off, got) = (sum / count, squares / count);
        assert!(off.abs() <= 6.0 * libm::sqrt(variance / count), "{name}: the mean is off by {off}");
        let error = libm::sqrt((fourth - variance * variance) / count);
        assert!((got - variance).abs() <= 6.0 * error, "{name}: the variance is {got}, not {variance}");
    }

    #[test]
    fn moments_of_poisson() {
        for mean in [0.1, 1.0, 5.0, 9.9, 10.1, 40.0, 1e4] {
            check("poisson", mean, mean, mean * (1.0 + 3.0 * mean), |random| poisson(random, mean));
        }
    }

    #[test]
    fn moments_of_gamma() {
        for shape in [0.05, 0.5, 1.0, 2.5, 30.0] {
            check("gamma", shape, shape, 3.0 * shape * shape + 6.0 * shape, |random| gamma(random, shape));
        }
    }

    #[test]
    fn moments_of_binomial() {
        for (count, p) in [(1.0, 0.3), (10.0, 0.5), (10.0, 0.9), (40.0, 0.26), (100.0, 0.4), (1e5, 0.7)] {
            let variance = count * p * (1.0 - p);
            let fourth = variance * (1.0 + 3.0 * (count - 2.0) * p * (1.0 - p));
            check("binomial", count * p, variance, fourth, |random| binomial(random, count, p));
        }
    }

    /// Counts of outcomes against their probabilities: Pearson's statistic stays below its mean and ten deviations.
    fn chi_square(name: &str, probabilities: &[f64], sample: impl Fn(&mut Random) -> usize) {
        let mut random = Random::with_key([2, 71]);
        let mut counts = [0.0; 64];
        for _ in 0..SAMPLES {
            counts[sample(&mut random).min(63)] += 1.0;
        }
        let expected = probabilities.iter().map(|p| p * SAMPLES as f64);
        let statistic = counts
            .iter()
            .zip(expected)
            .filter(|(_, expected)| *expected > 5.0)
            .fold(0.0, |sum, (got, expected)| sum + (got - expected) * (got - expected) / expected);
        let freedom = probabilities.len() as f64;
        assert!(statistic < freedom + 10.0 * libm::sqrt(2.0 * freedom), "{name}: {statistic} of {freedom}");
    }

    #[test]
    fn frequencies_are_the_probabilities() {
        let weights = [0.0, 1.0, 2.0, 0.0, 4.0, 0.5];
        let total: f64 = weights.iter().sum();
        let probabilities = weights.map(|weight| weight / total);
        chi_square("multinomial", &probabilities, |random| draw(&weights, random.double() * total));
        for mean in [3.0, 12.0] {
            let term = |k: usize| libm::exp(k as f64 * libm::log(mean) - mean - lgamma(k as f64 + 1.0));
            let probabilities: [f64; 40] = core::array::from_fn(term);
            chi_square("poisson", &probabilities, |random| poisson(random, mean) as usize);
        }
        for p in [0.1, 0.45] {
            let term = |k: usize| {
                let (k, n) = (k as f64, 40.0);
                let ways = lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0);
                libm::exp(ways + k * libm::log(p) + (n - k) * libm::log(1.0 - p))
            };
            let probabilities: [f64; 41] = core::array::from_fn(term);
            chi_square("binomial", &probabilities, |random| binomial(random, 40.0, p) as usize);
        }
    }

    #[test]
    fn what_is_no_parameter_gives_no_number() {
        let random = &mut Random::with_key([1, 1]);
        for x in [f64::NAN, -1.0] {
            assert!(poisson(random, x).is_nan() && gamma(random, x).is_nan());
        }
        assert!(binomial(random, f64::NAN, 0.5).is_nan() && binomial(random, 3.0, f64::NAN).is_nan());
        assert_eq!((poisson(random, 0.0), binomial(random, 5.0, 0.0), binomial(random, 5.0, 1.0)), (0.0, 0.0, 5.0));
    }
}
