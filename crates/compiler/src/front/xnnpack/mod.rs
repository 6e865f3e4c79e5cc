//! Turns what ExecuTorch lowered for XNNPACK back into operators, so that it is compiled with the program around it.
//!
//! XNNPACK's images are in the order batch, height, width, channels, and the payload has transpositions where the model's
//! are not. Both become permutations: those of the payload, and one on each side of every operator that wants channels
//! second. Where they meet, later passes cancel them.
//!
//! Sizes of the payload are those that it was exported with; only its constants' are used. All others follow from the
//! inputs.

mod arithmetic;
mod images;
mod node;
mod shapes;
mod values;

use rushlight_format::xnnpack::Payload;

use rushlight_graph::Bytes;
use rushlight_graph::{Arg, Constant, TensorType, ValueId};
use rushlight_graph::{Error, ErrorKind};

use node::Nodes;
use values::Values;

/// ExecuTorch's name of the delegate.
pub const BACKEND: &str = "XnnpackBackend";

/// The call of the delegate, which the nodes replace.
pub(super) trait Site {
    /// The argument at a position, in its order in memory.
    fn input(&self, position: u32) -> Option<ValueId>;

    /// Data that the program keeps under a name.
    fn named(&self, key: &str) -> Option<Bytes>;

    /// Begins a node of the payload.
    fn begin(&mut self, node: &str);

    /// The type of a value.
    fn tensor(&self, value: ValueId) -> Result<&TensorType, Error>;

    /// Adds a constant.
    fn constant(&mut self, constant: Constant) -> ValueId;

    /// Calls an operator, with the first arguments in order and some of the others by name.
    fn call(&mut self, name: &str, args: Vec<Arg>, named: &[(&str, Arg)]) -> Result<Vec<ValueId>, Error>;

    /// Calls an operator with one result.
    fn one(&mut self, name: &str, args: Vec<Arg>) -> Result<ValueId, Error> {
        self.one_with(name, args, &[])
    }

    /// As [`one`](Self::one), with arguments by name.
    fn one_with(&mut self, name: &str, args: Vec<Arg>, named: &[(&str, Arg)]) -> Result<ValueId, Error> {
        match self.call(name, args, named)?.as_slice() {
            [value] => Ok(*value),
            values => Err(Error::new(ErrorKind::Verification, format!("`{name}` has {} results", values.len()))),
        }
    }
}

/// The split of a call's arguments into inputs and outputs, as far as the payload tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments {
    /// The number of arguments up to the last that it reads.
    pub inputs: usize,
    /// The first argument that it writes.
    pub first_output: Option<usize>,
}

impl Arguments {
    /// Reads the split from a payload. `None` if it cannot be parsed.
    pub fn of(payload: &[u8]) -> Option<Self> {
        let parsed = Payload::parse(payload).ok()?;
        let inputs = parsed.values().filter_map(|tensor| tensor.input).max();
        let outputs = parsed.values().filter_map(|tensor| tensor.output).min();
        let inputs = inputs.map_or(0, |last| (last as usize).saturating_add(1));
        Some(Self { inputs, first_output: outputs.map(|first| first as usize) })
    }
}

/// The values that a payload writes. Their dimensions are in the order of the payload.
#[derive(Debug)]
pub(super) struct Written {
    /// Positions of arguments with their values.
    pub outputs: Vec<(u32, ValueId)>,
    /// Tensors that nodes write, that no node reads and that are not outputs.
    pub unread: Vec<ValueId>,
}

/// Adds the nodes of a payload, and returns the values that it writes.
///
/// # Errors
/// `Input` for a damaged payload, `InvalidProgram` for one that contradicts itself or its inputs, and `Unsupported` for
/// quantized tensors and what else has no translation, with the node. Some nodes may have been added then.
pub(super) fn inline(site: &mut dyn Site, payload: &Bytes) -> Result<Written, Error> {
    let damaged = |error| Error::new(ErrorKind::Input, format!("the payload of {BACKEND} cannot be read: {error}"));
    let parsed = Payload::parse(payload).map_err(damaged)?;
    let mut values = Values::new(payload, parsed, site)?;
    for (index, node) in parsed.nodes().enumerate() {
        let name = format!("{} {index}", node.name());
        site.begin(&name);
        Nodes { site, values: &mut values }.add(&node).map_err(|error| error.at(name))?;
    }
    Ok(Written { outputs: values.outputs()?, unread: values.unread() })
}
