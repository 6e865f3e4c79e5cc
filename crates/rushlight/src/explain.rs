//! Turns the runtime's errors, which carry numbers, into errors that carry names.

use rushlight_format::pte::{Device, Instruction, Plan, TensorStorage, ValueSpec};
use rushlight_format::shapes::Rule;
use rushlight_kernels as kernels;
use rushlight_runtime::{self as runtime, Code, Detail, Fault, Input, Registry, Role, Stop};

use crate::error::{Error, MissingOperator};
use crate::meta::{MethodMeta, SizeRange, TensorInfo, ValueInfo, full_name};

/// Explains an error from loading or executing the method of `plan`.
pub(crate) fn explain(error: &runtime::Error, plan: &Plan<'_>, registry: &Registry<'_>) -> Error {
    let meta = || MethodMeta::of(plan);
    let method = plan.name();
    let result = match error.detail {
        Detail::Fault(Fault::MissingOperators, ..) => return missing_operators(plan, registry),
        Detail::Fault(Fault::Overlap, argument, other) => {
            Error::new(error.code, "the program is invalid: an operator would overwrite what it reads")
                .expected(format!("argument {argument} in memory of its own"))
                .got(format!("memory shared with argument {other}"))
                .help("the file was damaged, or written by a compiler with a faulty memory plan")
        }
        Detail::Fault(Fault::UnalignedProgram | Fault::UnalignedBuffer | Fault::UnalignedData, needed, _) => {
            Error::new(error.code, error.detail.to_string())
                .help(format!("keep the file's bytes at an address that is a multiple of {}", needed.max(16)))
        }
        Detail::Fault(Fault::SizeRule, rule, _) if error.site.role == Role::None => {
            let message = format!("the sizes of the inputs of `{method}` do not go together");
            let result = Error::new(error.code, message)
                .help("`torch.export` checked the model for such sizes only; export it with other dynamic shapes");
            return match size_rule(plan, rule) {
                Some(Rule::Guard { text, .. } | Rule::Condition { text, .. }) => result.expected(text.to_owned()),
                _ => result,
            };
        }
        Detail::Stopped { stop: Stop::TimeLimit { .. }, .. } => Error::new(error.code, error.detail.to_string())
            .help("allow more time, or give it less to compute; the method can be called again"),
        Detail::Index { index, size } => Error::new(error.code, error.detail.to_string())
            .expected(if size == 0 { "no index: the dimension is empty".into() } else { format!("0 to {}", size - 1) })
            .got(index.to_string()),
        Detail::Count { what, expected, got } if error.site.step.is_some() => {
            Error::new(error.code, format!("{what} of a step do not fit"))
                .expected(expected.to_string())
                .got(got.to_string())
        }
        Detail::Work { operations, limit } => {
            Error::new(error.code, "a step would do more than its tensors have elements for")
                .expected(format!("at most {limit} operations"))
                .got(if operations == u64::MAX { "more than 2^64".into() } else { operations.to_string() })
        }
        _ => Error::new(error.code, error.detail.to_string()),
    };
    let result = match error.code {
        // These errors come from Rushlight's own backends; other backends have other files.
        Code::DelegateInvalidCompatibility
            if error.site.step.is_some() || matches!(error.detail, Detail::Payload { .. }) =>
        {
            result.help("the file was damaged, or written by another version of Rushlight: compile the model again")
        }
        _ => result,
    };
    match error.site.role {
        Role::Input => {
            let index = error.site.index as usize;
            input_error(error, plan, &meta(), index)
        }
        Role::Output => {
            let index = error.site.index as usize;
            let meta = meta();
            let info = meta.outputs.get(index).map(ToString::to_string);
            let result = result.site(format!("{} of `{method}`", meta.output_label(index)));
            if let Some(info) = info { result.expected(info) } else { result }
        }
        Role::Delegate => delegate_error(result, plan, error.site.index as usize),
        Role::Value => result.site(value_site(plan, error.site.index as usize)),
        Role::None | Role::Argument => match (error.site.instruction, error.site.operator) {
            (Some(_), _) => result.site(instruction_site(error, plan)),
            (None, _) => result.site(format!("method `{method}`")),
        },
    }
}

/// Explains why the caller's input does not fit, with the actual value.
pub(crate) fn explain_inputs(
    error: &runtime::Error,
    plan: &Plan<'_>,
    registry: &Registry<'_>,
    inputs: &[Input<'_>],
) -> Error {
    let result = explain(error, plan, registry);
    if error.site.role == Role::Input
        && let Some(input) = inputs.get(error.site.index as usize)
    {
        return result.got(describe(input));
    }
    if let Detail::Fault(Fault::SizeRule, ..) = error.detail {
        return result.got(inputs.iter().map(describe).collect::<Vec<_>>().join("; "));
    }
    if let Detail::Fault(Fault::Inputs, expected, got) = error.detail {
        let meta = MethodMeta::of(plan);
        let shown = |(index, info): (usize, &ValueInfo)| match meta.input_names.get(index) {
            Some(name) => format!("{name}: {info}"),
            None => info.to_string(),
        };
        let inputs: Vec<String> = meta.inputs.iter().enumerate().map(shown).collect();
        let name = plan.name();
        let s = |count: usize| if count == 1 { "" } else { "s" };
        return Error::new(error.code, format!("`{name}` takes {expected} input{}, got {got}", s(expected)))
            .expected(inputs.join("; "))
            .got(format!("{got} input{}", s(got)));
    }
    result
}

fn describe(input: &Input<'_>) -> String {
    match input {
        Input::Tensor(view) => format!("{view:?}"),
        Input::TensorMut(_) => "a mutable tensor".to_owned(),
        Input::Int(v) => format!("int {v}"),
        Input::Double(v) => format!("double {v}"),
        Input::Bool(v) => format!("bool {v}"),
        Input::String(v) => format!("string {v:?}"),
        Input::None => "None".to_owned(),
    }
}

/// Finds a rule about the sizes of the inputs.
fn size_rule<'a>(plan: &Plan<'a>, index: usize) -> Option<Rule<'a>> {
    plan.input_shapes().ok()??.rules().nth(index)
}

fn input_error(error: &runtime::Error, plan: &Plan<'_>, meta: &MethodMeta, index: usize) -> Error {
    let method = plan.name();
    let what = match error.detail {
        Detail::ElementType { .. } => "has the wrong element type",
        Detail::Size { .. } | Detail::Bound { .. } | Detail::Fault(Fault::SizeRule, ..) => "has the wrong shape",
        Detail::Fault(Fault::InputRank, ..) => "has the wrong rank",
        Detail::Kind { .. } => "is of the wrong kind",
        Detail::Fault(Fault::FixedInput, ..) => "differs from the value that was fixed at export",
        _ => "cannot be used",
    };
    let label = meta.input_label(index);
    let result = Error::new(error.code, format!("{label} of `{method}` {what}")).got(error.detail.to_string());
    let result = match meta.inputs.get(index) {
        Some(ValueInfo::Tensor(info)) => result.expected(expected_tensor(info)),
        Some(info) => result.expected(info.to_string()),
        None => result,
    };
    match error.detail {
        Detail::Bound { dim, bound, got } => result.help(format!(
            "dimension {dim} may be at most {bound}; export with a larger bound, such as Dim(\"dim{dim}\", max={got})"
        )),
        Detail::Size { dim, .. } => result
            .help(format!("the shape was fixed at export; export with dimension {dim} dynamic to pass other sizes")),
        Detail::Fault(Fault::InputRank, expected, got) => {
            let missing = if got + 1 == expected { "; one for the batch may be missing" } else { "" };
            result.help(format!("the rank was fixed at export: give {expected} dimensions{missing}"))
        }
        Detail::Fault(Fault::SizeRule, rule, got) => match size_rule(plan, rule).and_then(|rule| rule_help(&rule, got))
        {
            Some(help) => result.help(help),
            None => result,
        },
        Detail::ElementType { expected, .. } => {
            let long = expected.long_name();
            result.help(format!(
                "convert the input to {expected}; in Python `x.astype(\"{long}\")` of NumPy, `x.to(torch.{long})` of PyTorch"
            ))
        }
        Detail::Fault(Fault::WrittenInput | Fault::InputStrides, ..) => result.help(error.detail.to_string()),
        _ => result,
    }
}

/// Returns the hint for a size that breaks a rule.
fn rule_help(rule: &Rule<'_>, got: usize) -> Option<String> {
    let (Rule::Range { place, min, max, .. } | Rule::Computed { place, min, max, .. }) = *rule else { return None };
    let dim = place.dim;
    let got = i64::try_from(got).unwrap_or(i64::MAX);
    Some(match (rule, max) {
        _ if got < min => format!(
            "dimension {dim} must be at least {min}; export with a smaller bound, such as Dim(\"dim{dim}\", min={got})"
        ),
        (_, Some(max)) if got > max => format!(
            "dimension {dim} may be at most {max}; export with a larger bound, such as Dim(\"dim{dim}\", max={got})"
        ),
        (Rule::Computed { text, .. }, _) => {
            format!(
                "dimension {dim} must be {text}, as in the export, where the other sizes of the inputs say what that is"
            )
        }
        (Rule::Range { unit, offset, .. }, _) => match offset.rem_euclid((*unit).max(1)) {
            0 => format!("dimension {dim} must be a multiple of {unit}"),
            rest => format!("dimension {dim} must be {rest} more than a multiple of {unit}"),
        },
        _ => return None,
    })
}

fn expected_tensor(info: &TensorInfo) -> String {
    if !info.is_dynamic {
        return info.to_string();
    }
    if !info.ranges.is_empty() {
        let dynamic = info.ranges.iter().enumerate().filter(|(_, range)| range.min != range.max);
        let described: Vec<String> = dynamic.map(|(dim, range)| describe_range(dim, range)).collect();
        return format!("{info}   ({})", described.join("; "));
    }
    let sizes: Vec<String> = info.sizes.iter().map(|size| format!("..={size}")).collect();
    format!("{} [{}]   (the shape is dynamic; these are the upper bounds)", info.dtype, sizes.join(", "))
}

fn describe_range(dim: usize, range: &SizeRange) -> String {
    let SizeRange { min, max, .. } = range;
    if *min > 1 {
        format!("dimension {dim} is dynamic, from {min} to {max}")
    } else {
        format!("dimension {dim} is dynamic, at most {max}")
    }
}

fn delegate_error(result: Error, plan: &Plan<'_>, index: usize) -> Error {
    let id = plan.delegate(index).map_or("", |delegate| delegate.id);
    let site = format!("delegate {index} of `{}`", plan.name());
    if result.code() == Code::NotFound {
        let missing =
            Error::new(Code::NotFound, format!("the program needs the backend `{id}`, which is not registered"));
        let ids = 1..u32::try_from(plan.num_buffers()).unwrap_or(u32::MAX);
        let device = ids.map(|id| plan.buffer_device(id)).find(|device| *device != Device::default());
        let missing = match device {
            Some(Device { kind, index }) => missing.got(format!("memory that is planned on device {kind:?} {index}")),
            None => missing,
        };
        return missing.site(site).help(
            "register it (`ModuleBuilder::backend`, in Python `rushlight.register_backend`), or export the model \
                 without its partitioner",
        );
    }
    result.site(format!("{site}, backend `{id}`"))
}

/// The origin of a delegate's step.
#[cfg(feature = "_backends")]
pub(crate) struct StepOrigin {
    pub step: crate::backends::StepInfo,
    /// The operator, the module and the line of the source in the debug map.
    pub operator: Option<String>,
    pub module: Option<String>,
    pub source: Option<String>,
}

/// Adds the place in the model to an error in a step of a delegate.
#[cfg(feature = "_backends")]
pub(crate) fn explain_step(result: Error, error: &runtime::Error, step: u32, origin: &StepOrigin) -> Error {
    let argument = origin.step.indices.filter(|_| matches!(error.detail, Detail::Index { .. }));
    let argument = argument.map_or_else(String::new, |argument| format!("`{argument}` of "));
    let operator = origin.operator.as_deref().unwrap_or(origin.step.kind);
    let mut known: Vec<String> = Vec::new();
    if !origin.step.value.is_empty() {
        known.push(format!("node `{}`", origin.step.value));
    }
    known.extend(origin.module.as_ref().filter(|module| !module.is_empty()).map(|module| format!("module `{module}`")));
    known.extend(origin.source.clone());
    let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
    let rest = result.location().map_or_else(|| format!("step {step}"), str::to_owned);
    result.site(format!("{argument}{operator}{known}, {rest}"))
}

fn value_site(plan: &Plan<'_>, index: usize) -> String {
    let name = match plan.value(index) {
        ValueSpec::Tensor(spec) => match spec.storage {
            TensorStorage::External { name } | TensorStorage::ExternalPlanned { name, .. } => Some(name),
            _ => spec.fully_qualified_name,
        },
        _ => None,
    };
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    format!("value {index}{name} of `{}`", plan.name())
}

fn instruction_site(error: &runtime::Error, plan: &Plan<'_>) -> String {
    let index = error.site.instruction.unwrap_or(0) as usize;
    let source = source_of(plan, index).map_or_else(String::new, |source| format!(" ({source})"));
    let delegate = match plan.instruction(index) {
        Some(Instruction::Delegate { delegate, .. }) => plan.delegate(delegate as usize),
        _ => None,
    };
    let backend = delegate.map_or_else(String::new, |delegate| format!(", backend `{}`", delegate.id));
    format!("{} of `{}`{source}{backend}", error.site, plan.name())
}

/// Returns the file and line of the model's source for an instruction, if the program records it.
fn source_of(plan: &Plan<'_>, instruction: usize) -> Option<String> {
    plan.frames(instruction).last().map(|frame| format!("{}:{}", frame.filename, frame.lineno))
}

fn missing_operators(plan: &Plan<'_>, registry: &Registry<'_>) -> Error {
    let mut missing = Vec::new();
    for (i, used) in MethodMeta::of(plan).operators.into_iter().enumerate() {
        let Some(op) = plan.operator(i) else { continue };
        if registry.find(op.name, op.overload).is_some() {
            continue;
        }
        let set = kernels::ALL.iter().find(|set| Registry::new(&[*set]).find(op.name, op.overload).is_some());
        missing.push(MissingOperator {
            name: full_name(op.name, op.overload),
            uses: used.calls,
            first_instruction: used.first_instruction,
            source: source_of(plan, used.first_instruction),
            set: set.map(|set| set.name),
        });
    }
    let count = missing.len();
    let (operators, are) = if count == 1 { ("operator", "is") } else { ("operators", "are") };
    let message = format!("{count} {operators} of `{}` {are} not in this build", plan.name());
    Error::new(Code::OperatorMissing, message).missing(missing)
}
