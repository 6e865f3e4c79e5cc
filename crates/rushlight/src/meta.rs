//! What a program says about its methods, before anything is loaded.

use rushlight_format::pte::{self, Instruction, Plan, ShapeDynamism, TensorSpec, TensorStorage};
use rushlight_runtime::ScalarType;

/// Inputs, outputs and needs of a method.
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
    /// How the exported function's arguments and results nest, in ExecuTorch's notation.
    pub input_encoding: String,
    pub output_encoding: String,
}

/// Kind of an input or output, with the value where the export fixed one.
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
    /// True if the program planned memory for it.
    pub is_memory_planned: bool,
    /// Bytes at the upper bound.
    pub nbytes: u64,
    /// Its name in the exported module, if the program records it.
    pub name: Option<String>,
}

/// An operator of a method and how often its instructions call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorUse {
    /// Full name, such as `aten::add.out`.
    pub name: String,
    pub calls: usize,
    /// The first instruction that calls it.
    pub first_instruction: usize,
}

impl MethodMeta {
    /// From the plan of a parsed program.
    pub fn of(plan: &Plan<'_>) -> Self {
        let infos = |list: rushlight_format::Vector<'_, u32>| -> Vec<ValueInfo> {
            list.iter().map(|index| ValueInfo::of(&plan.value(index as usize))).collect()
        };
        let attributes = plan.values().filter_map(|value| match value {
            pte::Value::Tensor(spec) if spec.fully_qualified_name.is_some() => Some(TensorInfo::of(&spec)),
            _ => None,
        });
        Self {
            name: plan.name().to_owned(),
            inputs: infos(plan.inputs()),
            outputs: infos(plan.outputs()),
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
        }
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
    fn of(value: &pte::Value<'_>) -> Self {
        match value {
            pte::Value::None => Self::None,
            pte::Value::Int(v) => Self::Int(*v),
            pte::Value::Double(v) => Self::Double(*v),
            pte::Value::Bool(v) => Self::Bool(*v),
            pte::Value::String(v) => Self::String((*v).to_owned()),
            pte::Value::Tensor(spec) => Self::Tensor(TensorInfo::of(spec)),
            pte::Value::IntList(_)
            | pte::Value::DoubleList(_)
            | pte::Value::BoolList(_)
            | pte::Value::TensorList(_)
            | pte::Value::OptionalTensorList(_) => Self::List,
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
    pub(crate) fn of(spec: &TensorSpec<'_>) -> Self {
        Self {
            dtype: spec.scalar_type,
            sizes: spec.sizes.iter().map(|size| usize::try_from(size).unwrap_or(0)).collect(),
            dim_order: spec.dim_order.to_vec(),
            is_dynamic: spec.shape_dynamism != ShapeDynamism::Static,
            is_memory_planned: !matches!(spec.storage, TensorStorage::Unplanned),
            nbytes: spec.nbytes as u64,
            name: spec.fully_qualified_name.map(str::to_owned),
        }
    }
}

impl core::fmt::Display for TensorInfo {
    /// `f32 [1, 3, 224, 224]`; `up to` where the shape is dynamic.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let bound = if self.is_dynamic { "up to " } else { "" };
        write!(f, "{} {bound}{:?}", self.dtype, self.sizes)
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
