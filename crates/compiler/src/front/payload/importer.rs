//! The interface of importers: their functions, the call of the delegate, and the named data of its program.

use std::sync::Arc;

use rushlight_format::pte::TensorModel;
use rushlight_graph::{Arg, Bytes, Constant, Delegate, Error, ErrorKind, Schema, TensorType, ValueId};

/// Translates the payloads of one delegate.
#[derive(Clone, Copy, Debug)]
pub struct Importer {
    /// The id of the delegate's backend in programs, such as `XnnpackBackend`.
    pub backend: &'static str,
    /// The order in which payloads have the dimensions of the call's tensors.
    pub axes: Axes,
    /// Reads the split of a call's arguments from a payload. `None` if the payload does not tell it.
    pub arguments: fn(&Delegate, &dyn NamedData) -> Option<Arguments>,
    /// Adds the nodes of a payload at the place of its call, and returns the values that it writes.
    ///
    /// # Errors
    /// `Input` for a damaged payload, `InvalidProgram` for one that contradicts itself or its inputs, and `Unsupported`
    /// for one without a translation, with its node. Some nodes may have been added then; the caller removes them.
    pub inline: fn(&mut dyn Site, &Delegate) -> Result<Vec<Written>, Error>,
}

/// The order in which a payload has the dimensions of the call's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axes {
    /// As the program, whatever the layout of a tensor.
    Program,
    /// As they are stored, outermost first: a channels-last image is `[N, H, W, C]`.
    Memory,
}

/// The split of a call's arguments into inputs and outputs, as far as a payload tells it.
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// The number of arguments up to the last that it reads.
    pub inputs: usize,
    /// The first argument that it writes.
    pub first_output: Option<usize>,
}

/// The value of an output: the position of the call's argument, and the tensor, with its dimensions in the order of [`Axes`], or
/// the integer.
pub type Written = (u32, Arg);

/// The named data of a program and of the `.ptd` files with it, where payloads keep their constants.
pub trait NamedData {
    /// Returns the data of a key, which shares the memory of its file.
    fn named(&self, key: &str) -> Option<Bytes>;
}

/// Returns the named data of a constant.
///
/// # Errors
/// `InvalidProgram` if it is missing.
pub(super) fn constant_data(named: &(impl NamedData + ?Sized), key: &str) -> Result<Bytes, Error> {
    named.named(key).ok_or_else(|| {
        Error::invalid(format!("the data `{key}` of the delegate is missing"))
            .help("give the .ptd file that was saved with the program")
    })
}

/// The call of a delegate, which the nodes of its payload replace.
pub trait Site: NamedData {
    /// The arguments that the call reads, from its first. Tensors have their dimensions in the order of [`Axes`]; integers
    /// may be sizes of other inputs.
    fn inputs(&self) -> &[Arg];

    /// The outputs of the call, which follow the inputs: tensors as the program declares them, and `None` for integers.
    fn outputs(&self) -> &[Option<&TensorModel>];

    /// Begins a node of the payload: the next nodes of the graph have its name as their origin.
    fn begin(&mut self, node: &str);

    /// The type of a value.
    ///
    /// # Errors
    /// `Type` for a value that is not a tensor.
    fn tensor(&self, value: ValueId) -> Result<&TensorType, Error>;

    /// The schema of an operator.
    ///
    /// # Errors
    /// For an operator that is not known.
    fn schema(&self, name: &str) -> Result<Arc<Schema>, Error>;

    /// Adds a constant.
    fn constant(&mut self, constant: Constant) -> ValueId;

    /// Calls an operator, with the first arguments in order and some of the others by name.
    ///
    /// # Errors
    /// The errors of the operator's schema and of the inference of its result types.
    fn call(&mut self, name: &str, args: Vec<Arg>, named: &[(&str, Arg)]) -> Result<Vec<ValueId>, Error>;

    /// Calls an operator with one result.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    fn one(&mut self, name: &str, args: Vec<Arg>) -> Result<ValueId, Error> {
        self.one_with(name, args, &[])
    }

    /// As [`one`](Self::one), with arguments by name.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    fn one_with(&mut self, name: &str, args: Vec<Arg>, named: &[(&str, Arg)]) -> Result<ValueId, Error> {
        match self.call(name, args, named)?.as_slice() {
            [value] => Ok(*value),
            values => Err(Error::new(ErrorKind::Verification, format!("`{name}` has {} results", values.len()))),
        }
    }
}
