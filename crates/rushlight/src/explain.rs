//! From the runtime's errors, which carry numbers, to errors that carry names.

use rushlight_format::pte::{Instruction, Plan, TensorStorage, Value};
use rushlight_kernels as kernels;
use rushlight_runtime::{self as runtime, Code, Detail, Fault, Input, Registry, Role};

use crate::error::{Error, MissingOperator};
use crate::meta::{MethodMeta, TensorInfo, ValueInfo, full_name};

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
        _ => Error::new(error.code, error.detail.to_string()),
    };
    match error.site.role {
        Role::Input => {
            let index = error.site.index as usize;
            input_error(error, method, index, meta().inputs.get(index))
        }
        Role::Output => {
            let index = error.site.index;
            let info = meta().outputs.get(index as usize).map(ToString::to_string);
            let result = result.site(format!("output {index} of `{method}`"));
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

/// Explains why the caller's input does not fit, with what came.
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
    if let Detail::Fault(Fault::Inputs, expected, got) = error.detail {
        let meta = MethodMeta::of(plan);
        let inputs: Vec<String> = meta.inputs.iter().map(ToString::to_string).collect();
        let name = plan.name();
        return Error::new(error.code, format!("`{name}` takes {expected} inputs, got {got}"))
            .expected(inputs.join("; "))
            .got(format!("{got} inputs"));
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

fn input_error(error: &runtime::Error, method: &str, index: usize, info: Option<&ValueInfo>) -> Error {
    let what = match error.detail {
        Detail::ElementType { .. } => "has the wrong element type",
        Detail::Size { .. } | Detail::Bound { .. } => "has the wrong shape",
        Detail::Fault(Fault::InputRank, ..) => "has the wrong rank",
        Detail::Kind { .. } => "is of the wrong kind",
        Detail::Fault(Fault::FixedInput, ..) => "differs from the value that was fixed at export",
        _ => "cannot be used",
    };
    let name = info.and_then(ValueInfo::as_tensor).and_then(|info| info.name.clone());
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    let result =
        Error::new(error.code, format!("input {index}{name} of `{method}` {what}")).got(error.detail.to_string());
    let result = match info {
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
        Detail::ElementType { expected, .. } => result.help(format!("convert the input to {expected}")),
        Detail::Fault(Fault::WrittenInput | Fault::InputStrides, ..) => result.help(error.detail.to_string()),
        _ => result,
    }
}

fn expected_tensor(info: &TensorInfo) -> String {
    if !info.is_dynamic {
        return info.to_string();
    }
    let sizes: Vec<String> = info.sizes.iter().map(|size| format!("..={size}")).collect();
    format!("{} [{}]   (the shape is dynamic; these are the upper bounds)", info.dtype, sizes.join(", "))
}

fn delegate_error(result: Error, plan: &Plan<'_>, index: usize) -> Error {
    let id = plan.delegate(index).map_or("", |delegate| delegate.id);
    let site = format!("delegate {index} of `{}`", plan.name());
    if result.code() == Code::NotFound {
        return Error::new(Code::NotFound, format!("the program needs the backend `{id}`, which is not registered"))
            .site(site)
            .help(
                "register it (`ModuleBuilder::backend`, in Python `rushlight.register_backend`), or export the model \
                 without its partitioner",
            );
    }
    result.site(format!("{site}, backend `{id}`"))
}

fn value_site(plan: &Plan<'_>, index: usize) -> String {
    let name = match plan.value(index) {
        Value::Tensor(spec) => match spec.storage {
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

/// File and line of the model's source that an instruction comes from, if the program records it.
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
