//! Graphs: nodes, the values between them, and the arguments of nodes.

use indexmap::IndexMap;
use serde::Deserialize;

use super::tensor::{Device, Layout, MemoryFormat, ScalarCode, SymBool, SymFloat, SymInt, TensorMeta};
use super::text::{Float, Floats, RawText, Text};
use super::union::union;

/// A graph. Values have names, and each name is defined once in a graph. Nodes are in the order in which they run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Graph<'a> {
    #[serde(borrow)]
    pub inputs: Vec<Argument<'a>>,
    pub outputs: Vec<Argument<'a>>,
    pub nodes: Vec<Node<'a>>,
    #[serde(default)]
    pub tensor_values: IndexMap<Text<'a>, TensorMeta<'a>>,
    #[serde(default)]
    pub sym_int_values: IndexMap<Text<'a>, SymInt<'a>>,
    #[serde(default)]
    pub sym_bool_values: IndexMap<Text<'a>, SymBool<'a>>,
    #[serde(default)]
    pub sym_float_values: IndexMap<Text<'a>, SymFloat<'a>>,
    #[serde(default)]
    pub custom_obj_values: IndexMap<Text<'a>, CustomObjArgument<'a>>,
    /// True for a graph that a higher-order operator calls and that returns a tensor itself, not a tuple of one.
    #[serde(default)]
    pub is_single_tensor_return: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Node<'a> {
    /// `torch.ops.aten.linear.default`, `_operator.add`, `torch.ops.higher_order.cond`, …
    #[serde(borrow)]
    pub target: Text<'a>,
    /// Arguments that have their default values may be missing.
    #[serde(default)]
    pub inputs: Vec<NamedArgument<'a>>,
    /// One for each value that the schema of the operator returns.
    #[serde(default)]
    pub outputs: Vec<Argument<'a>>,
    #[serde(default)]
    pub metadata: Metadata<'a>,
    #[serde(default)]
    pub is_hop_single_tensor_return: Option<bool>,
    #[serde(default)]
    pub name: Option<Text<'a>>,
}

/// The origin of a node. The texts are long and many, and are decoded on demand.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Metadata<'a> {
    /// Lines of a Python stack trace, the innermost call last.
    #[serde(borrow, default)]
    pub stack_trace: Option<RawText<'a>>,
    /// `key,path,class` for each module around the node, from the outermost, separated by `;`.
    #[serde(default)]
    pub nn_module_stack: Option<RawText<'a>>,
    /// `name;kind.function`.
    #[serde(default)]
    pub torch_fn: Option<RawText<'a>>,
    #[serde(default)]
    pub source_fn_stack: Option<RawText<'a>>,
    /// JSON that the model's author attached.
    #[serde(default)]
    pub custom: Option<RawText<'a>>,
    /// JSON with the passes that made the node, and the nodes that they made it from.
    #[serde(default)]
    pub from_node: Option<RawText<'a>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct NamedArgument<'a> {
    /// The name in the schema of the operator; empty for higher-order operators, whose arguments go by position.
    #[serde(borrow, default)]
    pub name: Text<'a>,
    pub arg: Argument<'a>,
    /// Kind of argument: 1 by position, 2 by keyword.
    #[serde(default)]
    pub kind: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TensorArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TokenArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
}

/// A graph as an argument of a higher-order operator.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GraphArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub graph: Graph<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CustomObjArgument<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub class_fqn: Text<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct ComplexValue {
    #[serde(deserialize_with = "float")]
    pub real: f64,
    #[serde(deserialize_with = "float")]
    pub imag: f64,
}

fn float<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Float::deserialize(deserializer).map(f64::from)
}

union! {
    /// An argument or result of a node or of the whole graph. An empty list may come with the tag
    /// of any list.
    pub enum Argument {
        "as_tensor" => Tensor(TensorArgument<'a>),
        "as_none" => None,
        "as_int" => Int(i64),
        "as_ints" => Ints(Vec<i64>),
        "as_float" => Float(f64; Float),
        "as_floats" => Floats(Vec<f64>; Floats),
        "as_bool" => Bool(bool),
        "as_bools" => Bools(Vec<bool>),
        "as_string" => String(Text<'a>),
        "as_strings" => Strings(Vec<Text<'a>>),
        "as_tensors" => Tensors(Vec<TensorArgument<'a>>),
        "as_optional_tensor" => OptionalTensor(OptionalTensorArgument<'a>),
        "as_optional_tensors" => OptionalTensors(Vec<OptionalTensorArgument<'a>>),
        "as_nested_tensors" => NestedTensors(Vec<Vec<TensorArgument<'a>>>),
        "as_sym_int" => SymInt(SymIntArgument<'a>),
        "as_sym_ints" => SymInts(Vec<SymIntArgument<'a>>),
        "as_sym_float" => SymFloat(SymFloatArgument<'a>),
        "as_sym_floats" => SymFloats(Vec<SymFloatArgument<'a>>),
        "as_sym_bool" => SymBool(SymBoolArgument<'a>),
        "as_sym_bools" => SymBools(Vec<SymBoolArgument<'a>>),
        "as_scalar_type" => ScalarType(ScalarCode),
        "as_memory_format" => MemoryFormat(MemoryFormat),
        "as_layout" => Layout(Layout),
        "as_device" => Device(Device<'a>),
        "as_graph" => Graph(Box<GraphArgument<'a>>),
        "as_custom_obj" => CustomObj(CustomObjArgument<'a>),
        "as_operator" => Operator(Text<'a>),
        "as_complex" => Complex(ComplexValue),
        "as_int_lists" => IntLists(Vec<Vec<i64>>),
        "as_float_lists" => FloatLists(Vec<Vec<f64>>; FloatLists),
        "as_string_to_argument" => StringToArgument(Box<IndexMap<Text<'a>, Argument<'a>>>),
    }
}

union! {
    /// A tensor, or nothing in its place.
    pub enum OptionalTensorArgument {
        "as_tensor" => Tensor(TensorArgument<'a>),
        "as_none" => None,
    }
}

union! {
    /// The name of a symbolic integer, or a number.
    pub enum SymIntArgument {
        "as_name" => Name(Text<'a>),
        "as_int" => Int(i64),
    }
}

union! {
    /// The name of a symbolic floating-point number, or a number.
    pub enum SymFloatArgument {
        "as_name" => Name(Text<'a>),
        "as_float" => Float(f64; Float),
    }
}

union! {
    /// The name of a symbolic condition, or a constant.
    pub enum SymBoolArgument {
        "as_name" => Name(Text<'a>),
        "as_bool" => Bool(bool),
    }
}

#[derive(Deserialize)]
struct FloatLists(Vec<Floats>);

impl From<FloatLists> for Vec<Vec<f64>> {
    fn from(lists: FloatLists) -> Self {
        lists.0.into_iter().map(Vec::from).collect()
    }
}
