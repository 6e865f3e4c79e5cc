//! The inputs that a program was exported with, which its archive may hold.

use super::error::{Error, ErrorKind};
use super::pickle::{self, PickleFault, PickleValue};
use rushlight_graph::Bytes;

/// Arguments of a call, in their nested structure: tensors and literals.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleInputs {
    pub args: Vec<PickleValue>,
    pub kwargs: Vec<(String, PickleValue)>,
}

impl SampleInputs {
    /// Reads a file of `torch.save` with (arguments, keyword arguments).
    pub(super) fn parse(file: Bytes, entry: &str) -> Result<Self, Error> {
        let wrong = || {
            let function = "sample inputs".to_owned();
            let expected = "a tuple of arguments and a dictionary of keyword arguments";
            Error::new(entry, ErrorKind::Pickle(PickleFault::Call { function, expected }))
        };
        let PickleValue::Tuple(parts) = pickle::load(file, entry)? else { return Err(wrong()) };
        let Ok([args, kwargs]) = <[PickleValue; 2]>::try_from(parts) else { return Err(wrong()) };
        let (PickleValue::Tuple(args) | PickleValue::List(args), PickleValue::Dict(kwargs)) = (args, kwargs) else {
            return Err(wrong());
        };
        let kwargs = kwargs.into_iter().map(|(key, value)| match key {
            PickleValue::String(key) => Ok((key.to_string(), value)),
            _ => Err(wrong()),
        });
        Ok(Self { args, kwargs: kwargs.collect::<Result<_, _>>()? })
    }

    /// Tensors and literals in the order of the program's inputs: positional arguments, then keyword arguments.
    pub fn leaves(&self) -> Vec<&PickleValue> {
        let mut leaves = Vec::new();
        self.args.iter().chain(self.kwargs.iter().map(|(_, value)| value)).for_each(|value| value.leaves(&mut leaves));
        leaves
    }
}

impl PickleValue {
    fn leaves<'v>(&'v self, leaves: &mut Vec<&'v Self>) {
        match self {
            Self::Tuple(items) | Self::List(items) => items.iter().for_each(|item| item.leaves(leaves)),
            Self::Dict(entries) => entries.iter().for_each(|(_, value)| value.leaves(leaves)),
            leaf => leaves.push(leaf),
        }
    }
}
