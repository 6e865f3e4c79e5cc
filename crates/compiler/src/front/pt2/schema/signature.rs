//! The signature of a graph: the role of its inputs and outputs.

use serde::Deserialize;

use super::graph::{Argument, CustomObjArgument, TensorArgument, TokenArgument};
use super::text::{Float, Text};
use super::union::union;

/// One specification for each input and output of the graph, in the same order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GraphSignature<'a> {
    #[serde(borrow)]
    pub input_specs: Vec<InputSpec<'a>>,
    pub output_specs: Vec<OutputSpec<'a>>,
}

union! {
    pub enum InputSpec {
        "parameter" => Parameter(ParameterSpec<'a>),
        "buffer" => Buffer(BufferSpec<'a>),
        "tensor_constant" => TensorConstant(TensorConstantSpec<'a>),
        "custom_obj" => CustomObj(CustomObjSpec<'a>),
        "token" => Token(TokenSpec<'a>),
        "user_input" => UserInput(UserInputSpec<'a>),
        "constant_input" => ConstantInput(ConstantInputSpec<'a>),
    }
}

union! {
    pub enum OutputSpec {
        "user_output" => UserOutput(UserOutputSpec<'a>),
        "loss_output" => LossOutput(LossOutputSpec<'a>),
        "buffer_mutation" => BufferMutation(BufferMutationSpec<'a>),
        "parameter_mutation" => ParameterMutation(ParameterSpec<'a>),
        "user_input_mutation" => UserInputMutation(UserInputMutationSpec<'a>),
        "gradient_to_parameter" => GradientToParameter(ParameterSpec<'a>),
        "gradient_to_user_input" => GradientToUserInput(UserInputMutationSpec<'a>),
        "token" => Token(TokenSpec<'a>),
    }
}

union! {
    /// A literal input of the export, which is part of the program now.
    pub enum ConstantValue {
        "as_none" => None,
        "as_int" => Int(i64),
        "as_float" => Float(f64; Float),
        "as_string" => String(Text<'a>),
        "as_bool" => Bool(bool),
    }
}

/// A parameter as an input, or the new value or gradient of one as an output.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ParameterSpec<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    /// Its path in the model; a key of the weights.
    pub parameter_name: Text<'a>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BufferSpec<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    /// Its path in the model; a key of the weights, or of the constants if it is not persistent.
    pub buffer_name: Text<'a>,
    #[serde(default = "persistent")]
    pub persistent: bool,
}

fn persistent() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TensorConstantSpec<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    /// A key of the constants.
    pub tensor_constant_name: Text<'a>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CustomObjSpec<'a> {
    #[serde(borrow)]
    pub arg: CustomObjArgument<'a>,
    pub custom_obj_name: Text<'a>,
}

/// The order of side effects, as a value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TokenSpec<'a> {
    #[serde(borrow)]
    pub arg: TokenArgument<'a>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct UserInputSpec<'a> {
    #[serde(borrow)]
    pub arg: Argument<'a>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ConstantInputSpec<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub value: ConstantValue<'a>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct UserOutputSpec<'a> {
    #[serde(borrow)]
    pub arg: Argument<'a>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LossOutputSpec<'a> {
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BufferMutationSpec<'a> {
    /// The new value.
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    pub buffer_name: Text<'a>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct UserInputMutationSpec<'a> {
    /// The new value, or the gradient.
    #[serde(borrow)]
    pub arg: TensorArgument<'a>,
    /// The name of the input in the graph.
    pub user_input_name: Text<'a>,
}
