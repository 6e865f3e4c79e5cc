//! Checks that a lowered program has the interface that the file declares.

use rushlight_format::pte::Plan;
use rushlight_runtime::{Code, Program};

use crate::error::Error;
use crate::meta::{MethodMeta, TensorInfo, ValueInfo};

/// Returns two flags: true if the file's methods plan the memory of all inputs, and of all outputs.
pub(super) fn planned(program: &Program<'_>) -> (bool, bool) {
    let (mut inputs, mut outputs) = (true, true);
    for plan in program.parsed().methods() {
        let MethodMeta { inputs: takes, outputs: gives, .. } = MethodMeta::of(&plan);
        inputs &= takes.iter().all(is_planned);
        outputs &= gives.iter().all(is_planned);
    }
    (inputs, outputs)
}

/// True if no output of a method is also one of its inputs, or another output.
pub(super) fn has_separate_outputs(program: &Program<'_>) -> bool {
    program.parsed().methods().all(|plan| aliases(&plan).iter().all(Option::is_none))
}

fn is_planned(value: &ValueInfo) -> bool {
    value.as_tensor().is_none_or(|info| info.is_memory_planned)
}

/// Checks that the methods have the same inputs and outputs.
///
/// # Errors
/// The difference.
pub(super) fn check(file: &Program<'_>, lowered: &Program<'_>) -> Result<(), Error> {
    let (parsed, lowered) = (file.parsed(), lowered.parsed());
    for plan in parsed.methods() {
        let name = plan.name();
        let Some(other) = lowered.method_named(name) else {
            return Err(differs(format!("the method `{name}`"), "none"));
        };
        if aliases(&plan) != aliases(&other) {
            return Err(differs(
                format!("the outputs of `{name}` in the memory that the file has them in"),
                "other memory",
            ));
        }
        let (file, lowered) = (MethodMeta::of(&plan), MethodMeta::of(&other));
        for (what, file, lowered, fits) in [
            ("input", &file.inputs, &lowered.inputs, same as fn(&ValueInfo, &ValueInfo) -> bool),
            ("output", &file.outputs, &lowered.outputs, fits),
        ] {
            if file.len() != lowered.len() {
                return Err(differs(format!("{} {what}s of `{name}`", file.len()), &lowered.len().to_string()));
            }
            for (index, (file, lowered)) in file.iter().zip(lowered).enumerate() {
                if !fits(file, lowered) {
                    return Err(differs(
                        format!("{what} {index} of `{name}` as {}", describe(file)),
                        &describe(lowered),
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Returns for each output the index of the equal input or earlier output, if there is one. Outputs are counted after
/// inputs.
fn aliases(plan: &Plan<'_>) -> Vec<Option<usize>> {
    let known: Vec<u32> = plan.inputs().iter().chain(plan.outputs().iter()).collect();
    let inputs = plan.inputs().len();
    plan.outputs()
        .iter()
        .enumerate()
        .map(|(at, output)| known[..inputs + at].iter().position(|k| *k == output))
        .collect()
}

/// True for equal values, and for an output whose upper bounds are within those of the file: a file may declare larger bounds than
/// follow from its operators.
fn fits(file: &ValueInfo, lowered: &ValueInfo) -> bool {
    let (ValueInfo::Tensor(file), ValueInfo::Tensor(lowered)) = (file, lowered) else { return same(file, lowered) };
    let is_within = file.is_dynamic
        && file.sizes.len() == lowered.sizes.len()
        && lowered.sizes.iter().zip(&file.sizes).all(|(size, limit)| size <= limit);
    let sizes = if is_within { file.sizes.clone() } else { lowered.sizes.clone() };
    same(&ValueInfo::Tensor(file.clone()), &ValueInfo::Tensor(TensorInfo { sizes, ..lowered.clone() }))
}

fn same(file: &ValueInfo, lowered: &ValueInfo) -> bool {
    match (file, lowered) {
        (ValueInfo::Tensor(file), ValueInfo::Tensor(lowered)) => {
            file.dtype == lowered.dtype
                && file.sizes == lowered.sizes
                && file.dim_order == lowered.dim_order
                && file.is_dynamic == lowered.is_dynamic
                && file.is_memory_planned == lowered.is_memory_planned
        }
        (ValueInfo::Int(a), ValueInfo::Int(b)) => a == b,
        (ValueInfo::Double(a), ValueInfo::Double(b)) => a.to_bits() == b.to_bits(),
        (ValueInfo::Bool(a), ValueInfo::Bool(b)) => a == b,
        (ValueInfo::String(a), ValueInfo::String(b)) => a == b,
        (ValueInfo::None, ValueInfo::None) => true,
        _ => false,
    }
}

fn describe(value: &ValueInfo) -> String {
    match value.as_tensor() {
        Some(info) => {
            let place = if info.is_memory_planned { "" } else { ", in the caller's memory" };
            format!("{info} in the order {:?}{place}", info.dim_order)
        }
        None => value.to_string(),
    }
}

fn differs(expected: String, got: &str) -> Error {
    Error::new(Code::NotSupported, "the lowered program would differ from the file").expected(expected).got(got.into())
}

#[cfg(test)]
mod tests {
    use rushlight_runtime::ScalarType;

    use super::*;

    #[test]
    fn outputs_may_have_smaller_upper_bounds() {
        let tensor = |sizes: &[usize], is_dynamic| {
            ValueInfo::Tensor(TensorInfo {
                dtype: ScalarType::Float,
                sizes: sizes.to_vec(),
                dim_order: (0..sizes.len() as u8).collect(),
                is_dynamic,
                ranges: Vec::new(),
                is_memory_planned: true,
                nbytes: 0,
                name: None,
            })
        };
        let file = tensor(&[100, 5000, 15], true);
        assert!(fits(&file, &tensor(&[100, 100, 15], true)));
        assert!(!same(&file, &tensor(&[100, 100, 15], true)));
        for other in [tensor(&[100, 5001, 15], true), tensor(&[100, 15], true), tensor(&[100, 100, 15], false)] {
            assert!(!fits(&file, &other));
        }
        assert!(!fits(&tensor(&[4], false), &tensor(&[3], false)));
        assert!(!fits(&ValueInfo::Int(1), &ValueInfo::Int(2)));
    }
}
