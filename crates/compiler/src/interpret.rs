//! Runs a compiled program in the reference runtime, to fold constants and to trace accuracy.

use rushlight_format::ScalarType;
use rushlight_runtime::{HeapBlock, Input, LoadOptions, Memory, Method, Output, Program, Registry, TensorView};

use rushlight_graph::{Error, ErrorKind};

/// An input or result of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    Tensor(TensorData),
    Int(i64),
    Float(f64),
    Bool(bool),
    None,
}

/// A tensor with its elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorData {
    pub dtype: ScalarType,
    pub sizes: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Runs a method of a program file once, with the reference operators.
///
/// # Errors
/// The runtime's error for the program or the inputs.
pub fn run(file: &[u8], method: &str, inputs: &[Datum]) -> Result<Vec<Datum>, Error> {
    try_run(file, method, inputs).map_err(|error| failed(&error))
}

/// As [`run`], with the runtime's own error.
pub(crate) fn try_run(file: &[u8], method: &str, inputs: &[Datum]) -> Result<Vec<Datum>, rushlight_runtime::Error> {
    // Programs are read in place, and their tensors need alignment.
    let mut aligned = HeapBlock::new(file.len())?;
    aligned.bytes_mut().copy_from_slice(file);
    let program = Program::parse(aligned.bytes_mut())?;
    let options = LoadOptions::new(Registry::new(rushlight_kernels::ALL));
    let mut method = Method::load(&program, method, Memory::heap(), &options)?;
    let inputs = inputs.iter().map(Datum::as_input).collect::<Result<Vec<_>, _>>()?;
    let outputs = method.execute(&inputs)?;
    (0..outputs.len()).map(|index| outputs.get(index).map(Datum::from)).collect()
}

fn failed(error: &rushlight_runtime::Error) -> Error {
    Error::new(ErrorKind::InvalidProgram, format!("the program does not run: {error}"))
}

impl Datum {
    fn as_input(&self) -> Result<Input<'_>, rushlight_runtime::Error> {
        Ok(match self {
            Self::Tensor(TensorData { dtype, sizes, bytes }) => Input::Tensor(TensorView::new(*dtype, sizes, bytes)?),
            Self::Int(int) => Input::Int(*int),
            Self::Float(float) => Input::Double(*float),
            Self::Bool(bool) => Input::Bool(*bool),
            Self::None => Input::None,
        })
    }
}

impl From<Output<'_>> for Datum {
    fn from(output: Output<'_>) -> Self {
        match output {
            Output::Tensor(tensor) => {
                let mut bytes = vec![0; tensor.numel() * tensor.dtype().size()];
                let view = TensorView::from(tensor);
                view.copy_to_row_major(&mut bytes);
                Self::Tensor(TensorData { dtype: view.dtype(), sizes: view.sizes().to_vec(), bytes })
            }
            Output::Int(int) => Self::Int(int),
            Output::Double(float) => Self::Float(float),
            Output::Bool(bool) => Self::Bool(bool),
            Output::String(_) | Output::None => Self::None,
        }
    }
}
