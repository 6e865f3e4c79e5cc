//! Histograms.

use half::{bf16, f16};
use rushlight_runtime::{Detail, Element, Error, KernelContext, Op, OpGroup, Result, Scalar, ScalarType, TensorMut};

/// `histc.out(Tensor self, int bins=100, Scalar min=0, Scalar max=0, *, Tensor(a!) out)`
///
/// Counts the elements from `min` to `max` in bins of the same width, of which the last one includes `max`. Elements outside,
/// and NaN, are not counted. Where `min` is `max`, the range is that of the elements; where they are all one number, it is that
/// number and 1 to either side. Positions are computed in the type of the elements, as in PyTorch.
pub const HISTC_OUT: Op = Op::new("aten::histc.out", 5, histc_out);

pub const OPS: OpGroup = &[HISTC_OUT];

fn histc_out(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let (bins, min, max) = (cx.int(1)?, cx.scalar(2)?, cx.scalar(3)?);
    let mut out = cx.out(4)?;
    let Some(count) = usize::try_from(bins).ok().filter(|bins| *bins > 0) else {
        return Err(Error::invalid("a histogram needs at least one bin").arg(1));
    };
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(4));
    }
    out.resize(&[count]).map_err(|e| e.arg(4))?;
    match input.dtype() {
        ScalarType::Float => count_in_bins::<f32>(input.as_slice()?, min, max, &mut out),
        ScalarType::Double => count_in_bins::<f64>(input.as_slice()?, min, max, &mut out),
        ScalarType::Half => count_in_bins::<f16>(input.as_slice()?, min, max, &mut out),
        ScalarType::BFloat16 => count_in_bins::<bf16>(input.as_slice()?, min, max, &mut out),
        got => Err(Error::from(Detail::Dtype { expected: "a floating-point type", got }).arg(0)),
    }
}

fn count_in_bins<T: HistogramElement>(elements: &[T], min: Scalar, max: Scalar, out: &mut TensorMut<'_>) -> Result<()> {
    let counts = out.as_mut_slice::<T>()?;
    counts.fill(T::ZERO);
    let (mut min, mut max) = (T::of(min.to_f64()), T::of(max.to_f64()));
    let not_finite = || Error::invalid("the range of a histogram is not finite").arg(2);
    if min == max && !elements.is_empty() {
        (min, max) = extrema(elements).ok_or_else(not_finite)?;
    }
    if min == max {
        (min, max) = (min - T::ONE, max + T::ONE);
    }
    if !min.is_finite() || !max.is_finite() {
        return Err(not_finite());
    }
    if min > max {
        return Err(Error::invalid("the range of a histogram ends before it begins").arg(3));
    }
    let bins = T::of(counts.len() as f64);
    for x in elements.iter().filter(|x| **x >= min && **x <= max) {
        let at = ((*x - min) * bins / (max - min)).index().min(counts.len() - 1);
        if let Some(count) = counts.get_mut(at) {
            *count = *count + T::ONE;
        }
    }
    Ok(())
}

/// Returns the minimum and the maximum; `None` without elements, or where one of them is infinite or NaN.
fn extrema<T: HistogramElement>(elements: &[T]) -> Option<(T, T)> {
    let first = *elements.first()?;
    elements.iter().try_fold((first, first), |(min, max), &x| {
        x.is_finite().then_some((if x < min { x } else { min }, if x > max { x } else { max }))
    })
}

/// Element types of a histogram.
trait HistogramElement:
    Element
    + PartialOrd
    + core::ops::Add<Output = Self>
    + core::ops::Sub<Output = Self>
    + core::ops::Mul<Output = Self>
    + core::ops::Div<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;

    fn of(number: f64) -> Self;

    fn is_finite(self) -> bool;

    /// The integer part of a number that is not negative; 0 for NaN.
    fn index(self) -> usize;
}

macro_rules! histogram_element {
    ($($float:ident: $zero:expr, $one:expr, $number:ident => $of:expr, $x:ident => $index:expr;)*) => { $(
        impl HistogramElement for $float {
            const ZERO: Self = $zero;
            const ONE: Self = $one;

            fn of($number: f64) -> Self {
                $of
            }

            fn is_finite(self) -> bool {
                Self::is_finite(self)
            }

            fn index(self) -> usize {
                let $x = self;
                $index
            }
        }
    )* };
}

histogram_element! {
    f32: 0.0, 1.0, number => number as f32, x => x as usize;
    f64: 0.0, 1.0, number => number, x => x as usize;
    f16: f16::ZERO, f16::ONE, number => f16::from_f32(number as f32), x => x.to_f32() as usize;
    bf16: bf16::ZERO, bf16::ONE, number => bf16::from_f32(number as f32), x => x.to_f32() as usize;
}

#[cfg(test)]
mod tests {
    use super::extrema;

    #[test]
    fn the_range_of_elements_that_are_not_finite_is_none() {
        assert_eq!(extrema(&[5.0_f32, -1.0, 3.0]), Some((-1.0, 5.0)));
        for elements in [&[5.0, f32::NAN, 2.0, 3.0][..], &[f32::NAN], &[1.0, f32::INFINITY], &[]] {
            assert_eq!(extrema(elements), None, "{elements:?}");
        }
    }
}
