//! The declarations of a program's methods, available before anything is loaded.

use rushlight_format::pte::{self, Instruction, Plan, ShapeDynamism, TensorSpec, TensorStorage};
use rushlight_format::shapes::{Place, Rule};
use rushlight_format::signature::Signature;
use rushlight_runtime::ScalarType;

/// Inputs, outputs and requirements of a method.
#[derive(Clone, Debug)]
pub struct MethodMeta {
    pub name: String,
    pub inputs: Vec<ValueInfo>,
    pub outputs: Vec<ValueInfo>,
    /// Parameters and buffers that the program names.
    pub attributes: Vec<TensorInfo>,
    /// Bytes of each planned buffer; the first has memory id 1.
    pub planned_buffers: Vec<u64>,
    /// The operators that the method's instructions call.
    pub operators: Vec<OperatorUse>,
    /// Ids of the backends that the method delegates to, one for each delegate.
    pub backends: Vec<String>,
    pub num_instructions: usize,
    /// The nesting of the exported function's arguments and results, in ExecuTorch's notation.
    pub input_encoding: String,
    pub output_encoding: String,
    /// The names and nesting of the inputs and outputs in the exported function, if the program has them. ExecuTorch's do not.
    pub signature: Option<Signature>,
    /// A name for each input, as [`Signature::input_names`] has them; empty without a signature.
    pub input_names: Vec<String>,
    /// A name for each output, as [`Signature::output_names`] has them; empty without a signature.
    pub output_names: Vec<String>,
}

/// Kind of an input or output, with its value if the export fixed it.
#[derive(Clone, Debug)]
pub enum ValueInfo {
    Tensor(TensorInfo),
    Int(i64),
    Double(f64),
    Bool(bool),
    String(String),
    None,
    /// A list; methods of ExecuTorch do not take or return one.
    List,
}

/// A tensor as the program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub dtype: ScalarType,
    /// Sizes; upper bounds if the shape is dynamic.
    pub sizes: Vec<usize>,
    /// Dimensions from the outermost to the innermost in memory.
    pub dim_order: Vec<u8>,
    pub is_dynamic: bool,
    /// Range of each dimension's size, for dynamic inputs of programs from Rushlight's compiler. Empty otherwise:
    /// ExecuTorch's programs have upper bounds only.
    pub ranges: Vec<SizeRange>,
    /// True if the program planned memory for it.
    pub is_memory_planned: bool,
    /// Bytes at the upper bound.
    pub nbytes: u64,
    /// The name of an input or output, or of a parameter or buffer in the exported module, if the program records it.
    pub name: Option<String>,
}

/// The sizes that a dimension may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The minimum size. If it is 1, empty tensors are accepted too.
    pub min: u64,
    /// The maximum size.
    pub max: u64,
    /// `(unit, offset)`: the size minus `offset` is a multiple of `unit`, such as `(2, 1)` for odd sizes.
    pub step: (u64, u64),
    /// The expression of other sizes that it must equal, such as `2*x.size()[0]`.
    pub expression: Option<String>,
}

impl SizeRange {
    /// True if a size is in the range. Ignores the expression.
    pub fn allows(&self, size: u64) -> bool {
        let (unit, offset) = self.step;
        let is_step = size.checked_sub(offset).is_some_and(|above| above.is_multiple_of(unit.max(1)));
        (size >= self.min || (size == 0 && self.min == 1)) && size <= self.max && is_step
    }
}

impl core::fmt::Display for SizeRange {
    /// `8`, `1..=8`, `2..=16 step 2`, or `2*x.size()[0]`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(expression) = &self.expression {
            return f.write_str(expression);
        }
        if self.min == self.max {
            return write!(f, "{}", self.min);
        }
        write!(f, "{}..={}", self.min, self.max)?;
        if self.step.0 > 1 { write!(f, " step {}", self.step.0) } else { Ok(()) }
    }
}

/// An operator of a method, with the number of instructions that call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorUse {
    /// Full name, such as `aten::add.out`.
    pub name: String,
    pub calls: usize,
    /// The first instruction that calls it.
    pub first_instruction: usize,
}

impl MethodMeta {
    /// Reads the plan of a parsed program.
    pub fn of(plan: &Plan<'_>) -> Self {
        Self::with_signature(plan, plan.signature().ok().flatten())
    }

    /// Reads the plan, given its signature.
    pub(crate) fn with_signature(plan: &Plan<'_>, signature: Option<Signature>) -> Self {
        let infos = |list: rushlight_format::Vector<'_, u32>| -> Vec<ValueInfo> {
            list.iter().map(|index| ValueInfo::of(&plan.value(index as usize))).collect()
        };
        let attributes = plan.values().filter_map(|value| match value {
            pte::ValueSpec::Tensor(spec) if spec.fully_qualified_name.is_some() => Some(TensorInfo::of(&spec)),
            _ => None,
        });
        let mut inputs = infos(plan.inputs());
        if let Ok(Some(shapes)) = plan.input_shapes() {
            shapes.rules().for_each(|rule| add_range(&mut inputs, &rule));
        }
        let mut outputs = infos(plan.outputs());
        let input_names = signature.as_ref().map(Signature::input_names).unwrap_or_default();
        let output_names = signature.as_ref().map(Signature::output_names).unwrap_or_default();
        add_names(&mut inputs, &input_names);
        add_names(&mut outputs, &output_names);
        Self {
            name: plan.name().to_owned(),
            inputs,
            outputs,
            attributes: attributes.collect(),
            planned_buffers: (1..plan.num_buffers()).map(|id| plan.buffer_size(id as u32)).collect(),
            operators: operators(plan),
            backends: (0..plan.num_delegates())
                .filter_map(|i| plan.delegate(i))
                .map(|delegate| delegate.id.to_owned())
                .collect(),
            num_instructions: plan.num_instructions(),
            input_encoding: plan.input_encoding().to_owned(),
            output_encoding: plan.output_encoding().to_owned(),
            signature,
            input_names,
            output_names,
        }
    }
}

/// Adds the names of tensors. A tensor that is the only output of a function has none.
pub(crate) fn add_names(infos: &mut [ValueInfo], names: &[String]) {
    for (info, name) in infos.iter_mut().zip(names).filter(|(_, name)| !name.is_empty()) {
        if let ValueInfo::Tensor(info) = info {
            info.name = Some(name.clone());
        }
    }
}

/// Sets the range of the dimension that a rule constrains.
pub(crate) fn add_range(inputs: &mut [ValueInfo], rule: &Rule<'_>) {
    let Some(Place { input, dim }) = rule.place() else { return };
    let Some(ValueInfo::Tensor(info)) = inputs.get_mut(usize::from(input)) else { return };
    let rank = info.sizes.len();
    let Some(bound) = info.sizes.get(usize::from(dim)).map(|size| *size as u64) else { return };
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    let max = |max: Option<i64>| max.map_or(bound, |max| unsigned(max).min(bound));
    let range = match *rule {
        Rule::Fixed { size, .. } => SizeRange { min: size, max: size, step: (1, 0), expression: None },
        Rule::Range { unit, offset, min, max: upper, .. } => {
            let unit = unit.max(1);
            let step = (unsigned(unit), unsigned(offset.rem_euclid(unit)));
            let upper = max(upper);
            // The smallest size, at least the minimum and not 0, that differs from the offset by a multiple of the
            // step.
            let min = unsigned(min).max(1);
            let ahead = (i128::from(step.1) - i128::from(min)).rem_euclid(i128::from(step.0));
            let min = min.saturating_add(u64::try_from(ahead).unwrap_or(0)).min(upper);
            SizeRange { min, max: upper, step, expression: None }
        }
        Rule::Computed { min, max: upper, text, .. } => {
            let upper = max(upper);
            let min = unsigned(min).max(1).min(upper);
            SizeRange { min, max: upper, step: (1, 0), expression: Some(text.to_owned()) }
        }
        Rule::Guard { .. } | Rule::Condition { .. } => return,
    };
    // A dimension without a rule has the tensor's upper bound.
    while info.ranges.len() < rank {
        let max = info.sizes.get(info.ranges.len()).map_or(0, |size| *size as u64);
        info.ranges.push(SizeRange { min: max.min(1), max, step: (1, 0), expression: None });
    }
    if let Some(slot) = info.ranges.get_mut(usize::from(dim)) {
        *slot = range;
    }
}

fn operators(plan: &Plan<'_>) -> Vec<OperatorUse> {
    let mut uses: Vec<OperatorUse> = (0..plan.num_operators())
        .map(|i| {
            let name = plan.operator(i).map_or_else(String::new, |op| full_name(op.name, op.overload));
            OperatorUse { name, calls: 0, first_instruction: 0 }
        })
        .collect();
    for (i, instruction) in plan.instructions().enumerate() {
        if let Instruction::Kernel { operator, .. } = instruction
            && let Some(op) = uses.get_mut(operator as usize)
        {
            if op.calls == 0 {
                op.first_instruction = i;
            }
            op.calls += 1;
        }
    }
    uses
}

/// `name.overload`, or the name alone.
pub(crate) fn full_name(name: &str, overload: &str) -> String {
    if overload.is_empty() { name.to_owned() } else { format!("{name}.{overload}") }
}

impl ValueInfo {
    fn of(value: &pte::ValueSpec<'_>) -> Self {
        match value {
            pte::ValueSpec::None => Self::None,
            pte::ValueSpec::Int(v) => Self::Int(*v),
            pte::ValueSpec::Double(v) => Self::Double(*v),
            pte::ValueSpec::Bool(v) => Self::Bool(*v),
            pte::ValueSpec::String(v) => Self::String((*v).to_owned()),
            pte::ValueSpec::Tensor(spec) => Self::Tensor(TensorInfo::of(spec)),
            pte::ValueSpec::IntList(_)
            | pte::ValueSpec::DoubleList(_)
            | pte::ValueSpec::BoolList(_)
            | pte::ValueSpec::TensorList(_)
            | pte::ValueSpec::OptionalTensorList(_) => Self::List,
        }
    }

    /// The tensor's declaration, if it is a tensor.
    pub fn as_tensor(&self) -> Option<&TensorInfo> {
        match self {
            Self::Tensor(info) => Some(info),
            _ => None,
        }
    }
}

impl TensorInfo {
    /// True if a dimension may have this size, regardless of the others.
    pub fn allows(&self, dim: usize, size: usize) -> bool {
        match (self.ranges.get(dim), self.sizes.get(dim)) {
            (Some(range), _) => range.allows(size as u64),
            (None, Some(&bound)) => size == bound || (self.is_dynamic && size < bound),
            (None, None) => false,
        }
    }

    pub(crate) fn of(spec: &TensorSpec<'_>) -> Self {
        Self {
            dtype: spec.scalar_type,
            sizes: spec.sizes.iter().map(|size| usize::try_from(size).unwrap_or(0)).collect(),
            dim_order: spec.dim_order.to_vec(),
            is_dynamic: spec.shape_dynamism != ShapeDynamism::Static,
            ranges: Vec::new(),
            is_memory_planned: !matches!(spec.storage, TensorStorage::Unplanned),
            nbytes: spec.nbytes as u64,
            name: spec.fully_qualified_name.map(str::to_owned),
        }
    }
}

impl core::fmt::Display for TensorInfo {
    /// Writes `f32 [1, 3, 224, 224]` or `f32 [1..=8, 3, 224, 224]`; `up to` marks dynamic sizes with known upper bounds
    /// only.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if !self.ranges.is_empty() {
            let ranges: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
            return write!(f, "{} [{}]", self.dtype, ranges.join(", "));
        }
        let bound = if self.is_dynamic { "up to " } else { "" };
        write!(f, "{} {bound}{:?}", self.dtype, self.sizes)
    }
}

impl ValueInfo {
    /// Describes an output. Only the kind of a value other than a tensor is shown, because the program computes it.
    pub fn as_output(&self) -> String {
        match self {
            Self::Int(_) => "int".to_owned(),
            Self::Double(_) => "double".to_owned(),
            Self::Bool(_) => "bool".to_owned(),
            Self::String(_) => "string".to_owned(),
            other => other.to_string(),
        }
    }
}

impl core::fmt::Display for ValueInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tensor(info) => info.fmt(f),
            Self::Int(v) => write!(f, "int, always {v}"),
            Self::Double(v) => write!(f, "double, always {v}"),
            Self::Bool(v) => write!(f, "bool, always {v}"),
            Self::String(v) => write!(f, "string, always {v:?}"),
            Self::None => f.write_str("None"),
            Self::List => f.write_str("list"),
        }
    }
}
