//! Files of `torch.save`: a zip archive with a pickle and the storages that it refers to.
//!
//! A pickle is a program, and an untrusted one may do anything to Python. This interpreter knows only the instructions
//! that `torch.save` uses, and only the functions and classes in `globals`. Those build tensors and containers; no code
//! of the archive is ever run. Any other name in a pickle is refused, with that name in the error.

mod fault;
mod globals;
mod machine;

use std::sync::Arc;

use super::error::Error;
use super::stored_tensor::StoredTensor;
use super::zip::Zip;
use rushlight_graph::Bytes;

pub use fault::PickleFault;

pub(super) const PICKLE: &str = "data.pkl";

/// A value of a pickle.
#[derive(Clone, Debug, PartialEq)]
pub enum PickleValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(Arc<str>),
    Tuple(Vec<Self>),
    List(Vec<Self>),
    /// A dictionary, ordered or not, in the order in which it was written.
    Dict(Vec<(Self, Self)>),
    Tensor(Box<StoredTensor>),
    /// A constant of torch, such as `torch.float32` or `torch.strided`.
    Torch(Arc<str>),
    /// `torch.device`: its type, and its index if it has one.
    Device(Arc<str>, Option<i64>),
    Subclass(Box<Subclass>),
    Object(Box<Object>),
}

/// A tensor of a class that wraps other tensors, such as a quantized weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Subclass {
    /// With its module: `torchao.quantization.IntxUnpackedToInt8Tensor`.
    pub class: Arc<str>,
    /// The element type that it reports: `torch.float32`.
    pub dtype: Arc<str>,
    pub sizes: Vec<i64>,
    /// The tensors and settings within, by name.
    pub attributes: Vec<(Arc<str>, PickleValue)>,
}

/// An instance of an allowed class, with the arguments that it was made from. No code of the class is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// With its module.
    pub class: Arc<str>,
    pub arguments: Vec<PickleValue>,
    pub state: Option<PickleValue>,
}

impl Subclass {
    /// Finds an attribute, as `torch.ops.export.access_subclass_inner_tensor` does.
    pub fn attribute(&self, name: &str) -> Option<&PickleValue> {
        self.attributes.iter().find(|(key, _)| &**key == name).map(|(_, value)| value)
    }
}

/// Reads a file of `torch.save`. `entry` names it in errors and in the names of storages.
pub fn load(file: Bytes, entry: &str) -> Result<PickleValue, Error> {
    let load = || {
        let zip = Zip::parse(file)?;
        zip.check_byte_order()?;
        machine::run(&zip.get_checked(PICKLE)?, &zip, entry)
    };
    load().map_err(|error: Error| error.within(entry))
}

/// Reads a bare pickle, without storages to refer to.
pub fn load_bare(pickle: &[u8]) -> Result<PickleValue, Error> {
    machine::run(pickle, &Zip::empty(), "")
}
