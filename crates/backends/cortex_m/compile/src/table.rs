//! Tables of activations: the int8 result of each int8 value.

use rushlight_graph::Call;
use rushlight_graph::operators::aten;

use crate::affine::Affine;

/// The results for -128 to 127.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table(pub [i8; 256]);

impl Table {
    /// The table of a unary operator.
    ///
    /// # Errors
    /// The reason if the operator has no table.
    pub fn of(call: &Call<'_>, from: Affine, to: Affine) -> Result<Self, String> {
        let function = function(call).ok_or_else(|| format!("`{}` has no int8 kernel", call.name()))?;
        Self::new(function, from, to).ok_or_else(|| "it is undefined for all values of its input".to_owned())
    }

    /// The table that maps integers of one scale to those of another.
    pub fn of_requantization(from: Affine, to: Affine) -> Option<Self> {
        Self::new(|x| x, from, to)
    }

    /// The table of a function, as ExecuTorch computes it: in f64, with halves rounded away from zero. A value for which the
    /// function is undefined has the result of the nearest value with one. `None` if the function is undefined for all values.
    fn new(function: impl Fn(f64) -> f64, from: Affine, to: Affine) -> Option<Self> {
        let result = |q: i32| {
            let y = function(f64::from(q - from.zero_point) * from.scale);
            let scaled = if y.is_finite() { y / to.scale + f64::from(to.zero_point) } else { y };
            let (min, max) = to.range;
            // `f64::round` rounds halves away from zero; infinities saturate.
            (!scaled.is_nan()).then(|| scaled.round().clamp(f64::from(min), f64::from(max)) as i8)
        };
        let results: Vec<Option<i8>> = (-128..=127).map(result).collect();
        let mut table = [0; 256];
        for (at, slot) in table.iter_mut().enumerate() {
            // The first of two that are equally near.
            let defined = results.iter().enumerate().filter_map(|(index, result)| Some((index, (*result)?)));
            *slot = defined.min_by_key(|(index, _)| index.abs_diff(at))?.1;
        }
        Some(Self(table))
    }
}

/// The minimum and the maximum of an operator that clamps its input. `None` for other operators, and for unknown bounds.
pub(crate) fn bounds(call: &Call<'_>) -> Option<(Option<f64>, Option<f64>)> {
    let bound = |name: &str| match call.arg(name) {
        None => Some(None),
        Some(_) => call.number(name).map(Some),
    };
    match call.name() {
        aten::RELU => Some((Some(0.0), None)),
        aten::RELU6 => Some((Some(0.0), Some(6.0))),
        aten::HARDTANH => Some((bound("min_val")?, bound("max_val")?)),
        aten::CLAMP => Some((bound("min")?, bound("max")?)),
        _ => None,
    }
}

/// The function of a unary operator.
fn function(call: &Call<'_>) -> Option<Box<dyn Fn(f64) -> f64>> {
    if let Some((low, high)) = bounds(call) {
        return Some(Box::new(move |x| x.max(low.unwrap_or(f64::NEG_INFINITY)).min(high.unwrap_or(f64::INFINITY))));
    }
    let number = |name: &str, default: f64| if call.arg(name).is_some() { call.number(name) } else { Some(default) };
    Some(match call.name() {
        aten::SIGMOID => Box::new(sigmoid),
        aten::TANH => Box::new(libm::tanh),
        aten::SILU => Box::new(|x| x * sigmoid(x)),
        aten::GELU if call.text("approximate") == Some("tanh") => Box::new(gelu_tanh),
        aten::GELU => Box::new(|x| 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2))),
        aten::LOG => Box::new(libm::log),
        aten::LOG2 => Box::new(libm::log2),
        aten::LOG10 => Box::new(libm::log10),
        aten::LOG1P => Box::new(libm::log1p),
        aten::SQRT => Box::new(f64::sqrt),
        aten::RSQRT => Box::new(|x| 1.0 / x.sqrt()),
        aten::EXP => Box::new(libm::exp),
        aten::ABS => Box::new(f64::abs),
        aten::NEG => Box::new(|x: f64| -x),
        aten::HARDSIGMOID => Box::new(hardsigmoid),
        aten::HARDSWISH => Box::new(|x| x * hardsigmoid(x)),
        aten::LEAKY_RELU => {
            let slope = number("negative_slope", 0.01)?;
            Box::new(move |x| if x > 0.0 { x } else { x * slope })
        }
        aten::ELU => {
            let (alpha, scale, input_scale) =
                (number("alpha", 1.0)?, number("scale", 1.0)?, number("input_scale", 1.0)?);
            Box::new(move |x| if x > 0.0 { scale * x } else { scale * alpha * libm::expm1(input_scale * x) })
        }
        aten::MUL_SCALAR => {
            let other = call.number("other")?;
            Box::new(move |x| x * other)
        }
        aten::ADD_SCALAR => {
            let other = call.number("other")? * number("alpha", 1.0)?;
            Box::new(move |x| x + other)
        }
        _ => return None,
    })
}

/// The logistic function, without overflow of the exponential.
fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        return 1.0 / (1.0 + libm::exp(-x));
    }
    let e = libm::exp(x);
    e / (1.0 + e)
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + libm::tanh(inner))
}

fn hardsigmoid(x: f64) -> f64 {
    (x / 6.0 + 0.5).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALVES: Affine = Affine { scale: 0.5, zero_point: 0, range: (-128, 127) };

    #[test]
    fn results_round_halves_away_from_zero_and_saturate() {
        let Table(table) = Table::new(|x| x * 3.0, HALVES, Affine { scale: 1.0, ..HALVES }).unwrap();
        assert_eq!([127, 128, 129, 255, 0].map(|at| table[at]), [-2, 0, 2, 127, -128]);
    }

    #[test]
    fn undefined_results_continue_the_nearest_defined_one() {
        let Table(table) = Table::new(libm::log, HALVES, HALVES).unwrap();
        // The logarithm of 0 is a pole.
        assert_eq!((table[0], table[127], table[128]), (-128, -128, -128));
        assert!(table[128..].is_sorted());
        assert_eq!(Table::new(|_| f64::NAN, HALVES, HALVES), None);
    }
}
