//! Checks of scales and zero points at import: such mistakes of observers, calibrations and tools would be
//! NaN, or all zeros, long after.

use std::ops::RangeInclusive;

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::torchao;
use crate::{Arena, Arg, Constant, Graph, Node};

use super::folded::numbers;
use super::parameters::{blocks, is_dequantize, is_quantize};

/// Checks all nodes that quantize or dequantize with parameters that are known.
///
/// # Errors
/// Names the node with a scale that is not above zero and finite, a zero point or range that its integers do not have, or
/// groups that do not divide the tensor or have not one scale each.
pub fn check(graph: &Graph, constants: &Arena<Constant>) -> Result<(), Error> {
    let mut found = Ok(());
    graph.for_each_node(graph.body, &mut |id| {
        let node = &graph.nodes[id];
        let name = node.op.name();
        if found.is_ok() && (is_quantize(name) || is_dequantize(name)) {
            let affine = AffineNode { graph, constants, node };
            found = affine.check().map_err(|error| graph.locate(error, id));
        }
    });
    found
}

/// A node that quantizes or dequantizes.
struct AffineNode<'a> {
    graph: &'a Graph,
    constants: &'a Arena<Constant>,
    node: &'a Node,
}

impl AffineNode<'_> {
    fn check(&self) -> Result<(), Error> {
        let scales = self.numbers(&["scale", "scales"]);
        let zero_points = self.numbers(&["zero_point", "zero_points"]);
        for (at, scale) in scales.iter().flatten().enumerate() {
            // Runtimes compute with `f32`, and multiply by its inverse.
            let narrow = *scale as f32;
            if !(narrow > 0.0 && narrow.is_finite() && (1.0 / narrow).is_finite()) {
                return Err(Error::invalid("a scale that no number can be quantized with")
                    .expected("finite numbers above zero")
                    .got(place(*scale, at, scales.as_deref()))
                    .help("an observer that saw no input, or NaN, gives such scales: calibrate again"));
            }
        }
        if let Some(range) = self.dtype().and_then(integers) {
            let expected = || format!("{} to {}", range.start(), range.end());
            for (at, zero) in zero_points.iter().flatten().enumerate() {
                if !(*range.start() as f64..=*range.end() as f64).contains(zero) {
                    return Err(Error::invalid("a zero point that the integers do not have")
                        .expected(expected())
                        .got(place(*zero, at, zero_points.as_deref())));
                }
            }
            let bound = |name: &str| self.numbers(&[name])?.first().map(|bound| *bound as i64);
            let low = bound("quant_min").unwrap_or(*range.start());
            let high = bound("quant_max").unwrap_or(*range.end());
            if low > high || !range.contains(&low) || !range.contains(&high) {
                return Err(Error::invalid("a range that the integers do not have")
                    .expected(format!("quant_min <= quant_max, both in {}", expected()))
                    .got(format!("{low} to {high}")));
            }
        }
        self.check_groups(&[scales, zero_points])
    }

    /// Checks the scales of channels, groups of the last dimension, or blocks.
    fn check_groups(&self, parameters: &[Option<Vec<f64>>]) -> Result<(), Error> {
        let input = self.node.arg("input").and_then(Arg::as_value);
        let Some(sizes) = input.and_then(|input| self.graph.tensor(input).ok()?.static_sizes()) else { return Ok(()) };
        let Some(groups) = blocks(self.node, &sizes)? else { return Ok(()) };
        let mut count: i64 = 1;
        for (dim, (group, size)) in groups.iter().zip(&sizes).enumerate() {
            if *group < 1 || size % group != 0 {
                return Err(Error::invalid("groups that do not divide the tensor")
                    .expected(format!("a divisor of {size}, the size of dimension {dim}"))
                    .got(group));
            }
            count *= size / group;
        }
        match parameters.iter().flatten().find(|given| given.len() as i64 != count) {
            Some(given) => Err(Error::invalid("not one scale and zero point for each group")
                .expected(count)
                .got(given.len())
                .help("an observer that saw no input gives one for all: calibrate before converting")),
            None => Ok(()),
        }
    }

    /// The first of these arguments, if it is known.
    fn numbers(&self, names: &[&str]) -> Option<Vec<f64>> {
        match names.iter().find_map(|name| self.node.arg(name))? {
            Arg::Float(float) => Some(vec![*float]),
            Arg::Int(expr) => Some(vec![expr.as_int()? as f64]),
            Arg::Value(value) => numbers(&self.constants[self.graph.constant_of(*value)?]),
            _ => None,
        }
    }

    /// That of the integers.
    fn dtype(&self) -> Option<ScalarType> {
        let name = match self.node.op.name() {
            torchao::QUANTIZE_AFFINE => "output_dtype",
            torchao::DEQUANTIZE_AFFINE => "input_dtype",
            _ => "dtype",
        };
        match self.node.arg(name)? {
            Arg::DType(dtype) => Some(*dtype),
            _ => None,
        }
    }
}

/// A number, and where it stands if it is one of several.
fn place(number: f64, at: usize, all: Option<&[f64]>) -> String {
    match all {
        Some([_]) | None => format!("{number}"),
        Some(all) => format!("{number}, number {at} of {}", all.len()),
    }
}

/// The integers of a dtype.
fn integers(dtype: ScalarType) -> Option<RangeInclusive<i64>> {
    Some(match dtype {
        ScalarType::Byte => 0..=255,
        ScalarType::Char => -128..=127,
        ScalarType::UInt16 => 0..=65_535,
        ScalarType::Short => -32_768..=32_767,
        ScalarType::Int => i64::from(i32::MIN)..=i64::from(i32::MAX),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::operators::quantized_decomposed;
    use rushlight_format::ScalarType;

    use super::check;
    use crate::ErrorKind;
    use crate::testing::{Method, float};
    use crate::{Arena, Arg};

    /// The error of `dequantize_per_tensor(quantize_per_tensor(x, …), …)`, if there is one.
    fn of_tensor(scale: f64, zero_point: i64, [low, high]: [i64; 2]) -> Option<String> {
        let mut method = Method::new();
        let x = method.graph().input("x", float(&[2, 3]));
        let args = [Arg::Float(scale), zero_point.into(), low.into(), high.into(), Arg::DType(ScalarType::Char)];
        method.calls(quantized_decomposed::QUANTIZE_PER_TENSOR, [vec![x.into()], args.to_vec()].concat());
        let error = check(method.graph(), &Arena::default()).err()?;
        assert_eq!(error.kind(), ErrorKind::InvalidProgram);
        Some(error.to_string())
    }

    #[test]
    fn scales_zero_points_and_ranges() {
        assert_eq!(of_tensor(0.5, -128, [-128, 127]), None);
        assert_eq!(of_tensor(f64::from(f32::MIN_POSITIVE), 127, [-127, 127]), None);
        for scale in [0.0, -0.5, f64::NAN, f64::INFINITY, 1e-42, 1e300] {
            let error = of_tensor(scale, 0, [-128, 127]).unwrap();
            assert!(error.contains("a scale") && error.contains("quantize_per_tensor"), "{error}");
        }
        for zero_point in [-129, 128, 1 << 40] {
            let error = of_tensor(0.5, zero_point, [-128, 127]).unwrap();
            assert!(error.contains("-128 to 127") && error.contains(&zero_point.to_string()), "{error}");
        }
        for range in [[1, 0], [-129, 127], [0, 255]] {
            assert!(of_tensor(0.5, 0, range).unwrap().contains("a range"));
        }
    }

    #[test]
    fn groups() {
        let of = |shape: &[i64], group: i64| {
            let mut method = Method::new();
            let x = method.graph().input("x", float(shape));
            let scales = method.graph().input("scales", float(&[2, 2]));
            let mut args = vec![x.into(), scales.into(), scales.into()];
            args.extend([(-8).into(), 7.into(), Arg::DType(ScalarType::Char), group.into()]);
            let result = float(shape);
            method.call(quantized_decomposed::QUANTIZE_PER_CHANNEL_GROUP, args, result);
            check(method.graph(), &Arena::default()).err().map(|error| error.to_string())
        };
        assert_eq!(of(&[2, 64], 32), None);
        for group in [0, -1, 7, 128] {
            let error = of(&[2, 64], group).unwrap();
            assert!(error.contains("a divisor of 64, the size of dimension 1"), "{error}");
        }
    }
}
