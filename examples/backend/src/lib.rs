//! A backend that uses nothing but Rushlight's public interface: it takes additions, multiplications and ReLUs of `f32`
//! tensors of one shape, and runs a whole chain of them element by element, without intermediate tensors.
//!
//! [`Chain`] is the ahead-of-time half, and [`ChainRuntime`] the run-time half. They agree on a [`Payload`].
//! [`DeviceRuntime`] runs the same payloads on a [`Device`], which is simulated: it has memory of its own, works while the host
//! does something else, and keeps running sums. It shows every feature of a backend beyond host slices.
//!
//! [`ScaleAdd`] is a backend of another kind: it gives operators instead of payloads, and has no run-time half. [`Shift`] has a
//! quantization policy of its own.
#![forbid(unsafe_code)]

mod device;
mod device_runtime;
mod payload;
mod runtime;
mod scale_add;
mod shift;

use std::collections::HashMap;

use rushlight::ScalarType;
use rushlight::compiler::partition::{self, Backend, Compiled, Offer, Part};
use rushlight::graph::operators::aten;
use rushlight::graph::{Arg, Def, Graph, Input, NodeId, TensorType, ValueId};
use rushlight::graph::{Error, ErrorKind};

pub use device::Device;
pub use device_runtime::DeviceRuntime;
pub use payload::{Payload, Step, Sum};
pub use runtime::ChainRuntime;
pub use scale_add::{SCALE_ADD_OPS, ScaleAdd};
pub use shift::{SHIFT8, SHIFT16, Shift};

/// The name that both halves go by.
pub const NAME: &str = "ChainBackend";

/// The ahead-of-time half.
#[derive(Debug)]
pub struct Chain {
    name: String,
    operators: &'static [&'static str],
}

/// Everything that the backend can run.
const OPERATORS: &[&str] = &[aten::ADD_TENSOR, aten::MUL_TENSOR, aten::RELU];

impl Chain {
    /// The backend with all its operators.
    pub fn new() -> Self {
        Self { name: NAME.into(), operators: OPERATORS }
    }

    /// The backend under another name and with fewer operators, to see how several work together.
    pub fn only(name: &str, operators: &'static [&'static str]) -> Self {
        Self { name: name.into(), operators }
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Chain {
    fn name(&self) -> &str {
        &self.name
    }

    fn offer(&self, graph: &Graph, node: NodeId) -> Offer {
        let node = &graph.nodes[node];
        if !self.operators.contains(&node.op.name()) {
            return Offer::Leave(format!("`{}` is not one of {}", node.op.name(), self.operators.join(", ")));
        }
        let Some(result) = node.result().and_then(|result| graph.tensor(result).ok()) else {
            return Offer::Leave("no tensor results".into());
        };
        let fits =
            |ty: &TensorType| ty.dtype == ScalarType::Float && ty.shape == result.shape && ty.static_sizes().is_some();
        let tensors = node.args.iter().filter_map(Arg::as_value);
        if !fits(result) || !tensors.map(|value| graph.tensor(value)).all(|ty| ty.is_ok_and(fits)) {
            return Offer::Leave("only f32 tensors of one fixed shape".into());
        }
        match node.arg("alpha") {
            Some(Arg::Int(alpha)) if !alpha.is(1) => Offer::Leave("a factor `alpha` other than 1".into()),
            Some(Arg::Float(_)) => Offer::Leave("a factor `alpha` other than 1".into()),
            _ => Offer::Take,
        }
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        let graph = part.graph()?;
        let unknown = || Error::new(ErrorKind::Backend, "a value that nothing defines");
        let mut payload = Payload::default();
        // Registers hold one element each: inputs first, then constants, then results.
        let mut registers: HashMap<ValueId, u32> = HashMap::new();
        for input in &graph.inputs {
            let Input::Value(value) = input else { return Err(unknown()) };
            registers.insert(*value, registers.len() as u32);
        }
        payload.inputs = registers.len() as u32;
        for (value, definition) in graph.values.iter() {
            if let Def::Constant(constant) = definition.def {
                let bytes = part.model.constants[constant].read()?;
                let elements = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                payload.constants.push(elements.collect());
                registers.insert(value, registers.len() as u32);
            }
        }
        for node in &graph.blocks[graph.body].nodes {
            let node = &graph.nodes[*node];
            let operand = |index: usize| {
                node.args.get(index).and_then(Arg::as_value).and_then(|value| registers.get(&value)).copied()
            };
            let (a, b) = (operand(0).ok_or_else(unknown)?, operand(1));
            payload.steps.push(match node.op.name() {
                aten::ADD_TENSOR => Step::Add(a, b.ok_or_else(unknown)?),
                aten::MUL_TENSOR => Step::Mul(a, b.ok_or_else(unknown)?),
                _ => Step::Relu(a),
            });
            registers.insert(node.result().ok_or_else(unknown)?, registers.len() as u32);
        }
        for output in &graph.outputs {
            let register = output.as_value().and_then(|value| registers.get(&value));
            payload.outputs.push(*register.ok_or_else(unknown)?);
        }
        let compiled = partition::Payload {
            data: payload.to_bytes().into(),
            compile_specs: Vec::new(),
            named_data: Vec::new(),
            precisions: Vec::new(),
        };
        Ok(compiled.into())
    }
}
