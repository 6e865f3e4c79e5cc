//! Assigns the dim order in which nodes compute.
//!
//! Graphs are row-major. Channels-last inputs and outputs are copied from and to that order, although convolutions and
//! the operators around them can usually compute in either. The nodes that compute in channels-last order are one side
//! of a cut through the graph. The price of the cut is the number of bytes copied at its edges.

use rustc_hash::{FxHashMap, FxHashSet};

use rushlight_graph::Error;
use rushlight_graph::operators::{aten, dim_order_ops};
use rushlight_graph::{
    Arg, Def, Graph, Model, NodeId, Op, Origin, OriginId, Schemas, TensorType, Type, Value, ValueId, bind,
};

use super::cut::{Network, SINK, SOURCE, UNLIMITED};
use super::reorder::bytes_in_use;
use rushlight_graph::Pass;

/// Lets nodes compute in channels-last order if fewer bytes are then copied between the orders, and no more are in use
/// at a time. Runs at the end of the pipeline, because most passes, and backends, expect row-major tensors.
///
/// A node has one order, for its images and its results, because ExecuTorch's kernels demand it. Weights keep their
/// order.
#[derive(Clone, Copy, Debug, Default)]
pub struct AssignDimOrders;

impl Pass for AssignDimOrders {
    fn name(&self) -> &'static str {
        "dim-orders"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        for graph in model.methods.values_mut() {
            let images = Images::of(graph);
            if images.copies.is_empty() {
                continue;
            }
            let assigned = images.assign(graph, &model.schemas)?;
            if bytes_in_use(&assigned) <= bytes_in_use(graph) {
                *graph = assigned;
            }
        }
        Ok(())
    }
}

const CHANNELS_LAST: [u8; 4] = [0, 2, 3, 1];

const COPY: &str = dim_order_ops::_TO_DIM_ORDER_COPY;

/// Operators whose first argument is an image, and whose results are images.
const OF_ONE_IMAGE: &[&str] =
    &[aten::CONVOLUTION, aten::MAX_POOL2D_WITH_INDICES, aten::UPSAMPLE_BILINEAR2D_VEC, aten::UPSAMPLE_NEAREST2D_VEC];

/// Elementwise operators. Tensors of the same shape may have any common order. ExecuTorch's kernels do not broadcast in
/// other orders.
const ELEMENTWISE: &[&str] = &[
    aten::ABS,
    aten::ADD_SCALAR,
    aten::ADD_TENSOR,
    aten::CLAMP,
    aten::DIV_SCALAR,
    aten::DIV_TENSOR,
    aten::ELU,
    aten::ERF,
    aten::EXP,
    aten::GELU,
    aten::HARDTANH,
    aten::LEAKY_RELU,
    aten::LOG,
    aten::MAXIMUM,
    aten::MINIMUM,
    aten::MUL_SCALAR,
    aten::MUL_TENSOR,
    aten::NEG,
    aten::POW_TENSOR_SCALAR,
    aten::RECIPROCAL,
    aten::RELU,
    aten::RSQRT,
    aten::RSUB_SCALAR,
    aten::SIGMOID,
    aten::SQRT,
    aten::SUB_SCALAR,
    aten::SUB_TENSOR,
    aten::TANH,
];

/// The images of a method's body: the nodes that compute on them, and copies between dim orders.
#[derive(Default)]
struct Images {
    /// Nodes that only copy an image to another order.
    copies: FxHashSet<NodeId>,
    /// By copy: the image that was copied, which is not itself a copy.
    originals: FxHashMap<ValueId, ValueId>,
    /// Nodes that can compute in either order, with their vertices in the network.
    either: FxHashMap<NodeId, usize>,
}

/// A reader of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ImageReader {
    /// A node that can compute in either order.
    Either(NodeId),
    /// A reader that needs the image in the order that it has: channels-last or row-major.
    Fixed { channels_last: bool },
}

impl Images {
    fn of(graph: &Graph) -> Self {
        let mut this = Self::default();
        for id in &graph.blocks[graph.body].nodes {
            if let Some((from, to)) = copied(graph, *id) {
                this.copies.insert(*id);
                this.originals.insert(to, this.original(from));
            }
        }
        this
    }

    fn original(&self, value: ValueId) -> ValueId {
        self.originals.get(&value).copied().unwrap_or(value)
    }

    /// Returns the graph with the orders of nodes that copy the fewest bytes.
    fn assign(mut self, graph: &Graph, schemas: &Schemas) -> Result<Graph, Error> {
        let mut network = Network::new();
        for id in &graph.blocks[graph.body].nodes {
            if can_be_either(graph, *id) {
                self.either.insert(*id, network.vertex());
            }
        }
        let mut readers = self.readers(graph);
        readers.sort_unstable();
        readers.dedup();
        for group in readers.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((original, _)) = group.first() else { continue };
            let maker = match graph.values[*original].def {
                Def::Result(node, _) => self.either.get(&node).copied(),
                _ => None,
            };
            let maker = maker.unwrap_or_else(|| fixed(order(graph, *original) == Some(true)));
            let price = price(graph, *original);
            // The image is copied once for all readers that need the other order.
            let (row_major, channels_last) = (network.vertex(), network.vertex());
            network.edge(maker, row_major, price);
            network.edge(channels_last, maker, price);
            for (_, reader) in group {
                let reader = match reader {
                    ImageReader::Either(node) => self.either[node],
                    ImageReader::Fixed { channels_last } => fixed(*channels_last),
                };
                network.edge(row_major, reader, UNLIMITED);
                network.edge(reader, channels_last, UNLIMITED);
            }
        }
        let side = network.source_side();
        let chosen = self.either.into_iter().map(|(node, vertex)| (node, side[vertex])).collect();
        let assignment = Assignment { before: graph, copies: self.copies, originals: self.originals, chosen };
        assignment.carry_out(schemas)
    }

    /// Returns images with their readers. A copy counts as the image that it was made from.
    fn readers(&self, graph: &Graph) -> Vec<(ValueId, ImageReader)> {
        let mut readers = Vec::new();
        let mut note = |value: ValueId, reader: Option<NodeId>| {
            let Some(channels_last) = order(graph, value) else { return };
            let reader = reader.map_or(ImageReader::Fixed { channels_last }, ImageReader::Either);
            readers.push((self.original(value), reader));
        };
        for block in graph.live_blocks() {
            for id in &graph.blocks[block].nodes {
                if self.copies.contains(id) {
                    continue;
                }
                let either = self.either.contains_key(id).then_some(*id);
                for (at, arg) in graph.nodes[*id].args.iter().enumerate() {
                    let reader = either.filter(|_| takes_image(graph, *id, at));
                    arg.for_each_value(&mut |value| note(value, reader));
                }
            }
            graph.blocks[block].results.iter().for_each(|arg| arg.for_each_value(&mut |value| note(value, None)));
        }
        graph.outputs.iter().for_each(|arg| arg.for_each_value(&mut |value| note(value, None)));
        graph.updates.iter().for_each(|update| note(update.value, None));
        readers
    }
}

/// The order of each node that can compute in either, with the graph to apply it to.
struct Assignment<'g> {
    before: &'g Graph,
    copies: FxHashSet<NodeId>,
    originals: FxHashMap<ValueId, ValueId>,
    /// True if a node computes in channels-last order.
    chosen: FxHashMap<NodeId, bool>,
}

/// A graph while copies are inserted.
struct Copying<'a> {
    graph: Graph,
    assignment: &'a Assignment<'a>,
    schemas: &'a Schemas,
    /// The copies so far, by image and order; true for channels-last.
    made: FxHashMap<(ValueId, bool), ValueId>,
}

impl Assignment<'_> {
    fn carry_out(&self, schemas: &Schemas) -> Result<Graph, Error> {
        let mut to = Copying { graph: self.before.clone(), assignment: self, schemas, made: FxHashMap::default() };
        let body = to.graph.body;
        for id in std::mem::take(&mut to.graph.blocks[body].nodes) {
            if self.copies.contains(&id) {
                continue;
            }
            let chosen = self.chosen.get(&id).copied();
            for at in 0..to.graph.nodes[id].args.len() {
                let chosen = chosen.filter(|_| takes_image(self.before, id, at));
                let mut arg = std::mem::replace(&mut to.graph.nodes[id].args[at], Arg::None);
                to.arrange(&mut arg, chosen)?;
                to.graph.nodes[id].args[at] = arg;
            }
            let inner: Vec<_> = to.graph.nodes[id].blocks().flat_map(|block| to.graph.blocks_within(block)).collect();
            for block in inner {
                for id in to.graph.blocks[block].nodes.clone() {
                    let mut args = std::mem::take(&mut to.graph.nodes[id].args);
                    args.iter_mut().try_for_each(|arg| to.arrange(arg, None))?;
                    to.graph.nodes[id].args = args;
                }
                let mut results = std::mem::take(&mut to.graph.blocks[block].results);
                results.iter_mut().try_for_each(|arg| to.arrange(arg, None))?;
                to.graph.blocks[block].results = results;
            }
            if chosen == Some(true) {
                for result in to.graph.nodes[id].results.clone() {
                    if let Type::Tensor(ty) = &mut to.graph.values[result].ty {
                        ty.dim_order = CHANNELS_LAST.to_vec();
                    }
                }
            }
            to.graph.blocks[body].nodes.push(id);
        }
        let mut outputs = std::mem::take(&mut to.graph.outputs);
        outputs.iter_mut().try_for_each(|arg| to.arrange(arg, None))?;
        to.graph.outputs = outputs;
        for at in 0..to.graph.updates.len() {
            let value = to.graph.updates[at].value;
            to.graph.updates[at].value = to.arranged(value, None)?;
        }
        Ok(to.graph)
    }
}

impl Copying<'_> {
    fn arrange(&mut self, arg: &mut Arg, chosen: Option<bool>) -> Result<(), Error> {
        match arg {
            Arg::Value(value) => *value = self.arranged(*value, chosen)?,
            Arg::List(items) => items.iter_mut().try_for_each(|item| self.arrange(item, chosen))?,
            _ => {}
        }
        Ok(())
    }

    /// Returns a value in the order of its reader, or in its former order if the reader has none.
    fn arranged(&mut self, value: ValueId, chosen: Option<bool>) -> Result<ValueId, Error> {
        let Some(had) = order(self.assignment.before, value) else { return Ok(value) };
        let original = self.assignment.originals.get(&value).copied().unwrap_or(value);
        let wanted = chosen.unwrap_or(had);
        if order(&self.graph, original) == Some(wanted) {
            return Ok(original);
        }
        if let Some(copy) = self.made.get(&(original, wanted)) {
            return Ok(*copy);
        }
        let Value { name, ty, def } = self.graph.values[original].clone();
        let Type::Tensor(ty) = ty else { return Ok(value) };
        let dim_order = if wanted { CHANNELS_LAST.to_vec() } else { vec![0, 1, 2, 3] };
        let numbers: Vec<i64> = dim_order.iter().map(|dim| i64::from(*dim)).collect();
        let schema = self.schemas.expect(COPY)?;
        let args = bind(&schema, vec![original.into()], &[("dim_order", Arg::from(numbers.as_slice()))])?;
        // The copy that took its place before, or else the node that defines it.
        let origin = match (self.graph.values[value].def, def) {
            (Def::Result(node, _), _) | (_, Def::Result(node, _)) => self.graph.nodes[node].origin,
            _ => self.graph.origins.push(Origin::default()),
        };
        let copy =
            self.push(Op::Call(schema), args, origin, (format!("{name}_ordered"), TensorType { dim_order, ..ty }));
        self.made.insert((original, wanted), copy);
        Ok(copy)
    }

    fn push(&mut self, op: Op, args: Vec<Arg>, origin: OriginId, (name, ty): (String, TensorType)) -> ValueId {
        let result = ValueId::new(self.graph.values.len() as u32);
        self.graph.push_node(self.graph.body, op, args, origin, [(name, Type::Tensor(ty))]);
        result
    }
}

/// The side of the cut of nodes with a fixed order.
const fn fixed(channels_last: bool) -> usize {
    if channels_last { SOURCE } else { SINK }
}

/// True if an image is in channels-last order; `None` for tensors that are not images or have another order.
fn order(graph: &Graph, value: ValueId) -> Option<bool> {
    let ty = graph.ty(value).as_tensor().filter(|ty| ty.rank() == CHANNELS_LAST.len())?;
    if ty.is_contiguous() { Some(false) } else { (ty.dim_order == CHANNELS_LAST).then_some(true) }
}

/// Cost of copying an image: its bytes, and a small constant for the instruction.
fn price(graph: &Graph, value: ValueId) -> u64 {
    let bytes = graph.ty(value).as_tensor().and_then(|ty| ty.max_bytes(&graph.symbols));
    bytes.unwrap_or(u64::MAX).min(1 << 40) + 1
}

/// Source and result of a node that only copies an image into another dim order.
fn copied(graph: &Graph, node: NodeId) -> Option<(ValueId, ValueId)> {
    let node = &graph.nodes[node];
    let (Some(Arg::Value(from)), Some(to)) = (node.args.first(), node.result()) else { return None };
    order(graph, *from).zip(order(graph, to))?;
    let same_dtype = graph.tensor(*from).ok()?.dtype == graph.tensor(to).ok()?.dtype;
    (node.op.name() == COPY && same_dtype).then_some((*from, to))
}

/// True if a node can compute in either order.
fn can_be_either(graph: &Graph, id: NodeId) -> bool {
    let node = &graph.nodes[id];
    let is_elementwise = ELEMENTWISE.contains(&node.op.name());
    if !is_elementwise && !OF_ONE_IMAGE.contains(&node.op.name()) {
        return false;
    }
    let Some(result) = node.result().and_then(|result| graph.tensor(result).ok()) else { return false };
    let mut fits = node.results.iter().all(|result| order(graph, *result) == Some(false));
    for (_, arg) in node.args.iter().enumerate().filter(|(at, _)| takes_image(graph, id, *at)) {
        let ty = arg.as_value().and_then(|value| graph.ty(value).as_tensor());
        fits &= ty.is_some_and(|ty| ty.is_contiguous() && ty.rank() == CHANNELS_LAST.len());
        fits &= !is_elementwise || ty.is_some_and(|ty| ty.shape == result.shape);
    }
    fits
}

/// True if an argument of a node is an image. Every tensor of an elementwise operator is one.
fn takes_image(graph: &Graph, id: NodeId, at: usize) -> bool {
    let node = &graph.nodes[id];
    let is_tensor = |arg: &Arg| arg.as_value().is_some_and(|value| graph.ty(value).as_tensor().is_some());
    match node.args.get(at) {
        Some(arg) if ELEMENTWISE.contains(&node.op.name()) => is_tensor(arg),
        _ => at == 0,
    }
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;

    use super::*;
    use crate::emit::{EmitOptions, emit};
    use crate::interpret::{Datum, TensorData, run};
    use crate::passes::EliminateDeadCode;
    use rushlight_graph::Constant;
    use rushlight_graph::testing::Method;

    const ROW_MAJOR: [u8; 4] = [0, 1, 2, 3];

    fn image(sizes: &[i64], dim_order: [u8; 4]) -> Type {
        Type::Tensor(TensorType { dim_order: dim_order.to_vec(), ..TensorType::of(ScalarType::Float, sizes) })
    }

    fn sizes(m: &mut Method, value: ValueId) -> Vec<i64> {
        m.graph().tensor(value).unwrap().static_sizes().unwrap()
    }

    fn copy(m: &mut Method, from: ValueId, dim_order: [u8; 4]) -> ValueId {
        let order = Arg::List(dim_order.map(|dim| i64::from(dim).into()).to_vec());
        let args = vec![from.into(), Arg::None, Arg::None, Arg::None, Arg::None, Arg::Bool(false), order];
        let sizes = sizes(m, from);
        m.call(COPY, args, image(&sizes, dim_order))
    }

    /// Adds an input in channels-last order, and its copy in row-major order.
    fn input(m: &mut Method, sizes: &[i64]) -> ValueId {
        let x = m.graph().input("x", image(sizes, CHANNELS_LAST));
        copy(m, x, ROW_MAJOR)
    }

    /// Adds a convolution of stride 1 with this padding.
    fn convolution(m: &mut Method, x: ValueId, weight: [i64; 4], padding: i64, transposed: bool) -> ValueId {
        let count = weight.iter().product::<i64>();
        let bytes: Vec<u8> = (0..count).flat_map(|at| ((at % 11) as f32 * 0.25 - 1.0).to_le_bytes()).collect();
        let weight = Constant::dense("weight", TensorType::of(ScalarType::Float, &weight), bytes).unwrap();
        let id = m.model.constants.push(weight);
        let Model { methods, constants, .. } = &mut m.model;
        let weight = methods["forward"].constant(id, constants);
        let args =
            vec![x.into(), weight.into(), Arg::None, Arg::from([1, 1]), Arg::from([padding; 2]), Arg::from([1, 1])];
        let args = [args, vec![transposed.into(), Arg::from([0, 0]), Arg::from(1)]].concat();
        m.calls(aten::CONVOLUTION, args)[0]
    }

    /// Returns the outputs for inputs that count up.
    fn results(m: &mut Method) -> Vec<Vec<f32>> {
        let emitted = emit(&m.model, &EmitOptions::default()).unwrap();
        let file = emitted.program.to_bytes().unwrap();
        let body = m.graph().body;
        let params = m.graph().blocks[body].params.clone();
        let counting = params.into_iter().map(|param| {
            let sizes: Vec<usize> = sizes(m, param).into_iter().map(|size| size as usize).collect();
            let count = sizes.iter().product::<usize>();
            let bytes = (0..count).flat_map(|at| ((at * 7 % 23) as f32 - 9.0).to_le_bytes()).collect();
            Datum::Tensor(TensorData { dtype: ScalarType::Float, sizes, bytes })
        });
        let inputs: Vec<Datum> = counting.collect();
        let outputs = run(&file, "forward", &inputs).unwrap().into_iter().map(|output| match output {
            Datum::Tensor(tensor) => {
                tensor.bytes.as_chunks::<4>().0.iter().map(|element| f32::from_le_bytes(*element)).collect()
            }
            other => panic!("{other:?}"),
        });
        outputs.collect()
    }

    #[test]
    fn random_networks_compute_what_they_did() {
        let mut seed = 1u32;
        let mut below = |bound: usize| {
            seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            (seed >> 16) as usize % bound
        };
        let mut fewer = 0;
        for _ in 0..40 {
            let mut m = Method::new();
            let row_major = m.graph().input("r", image(&[1, 4, 6, 5], ROW_MAJOR));
            let mut images = vec![row_major, input(&mut m, &[1, 4, 6, 5]), input(&mut m, &[1, 4, 6, 5])];
            let mut outputs: Vec<Arg> = Vec::new();
            for _ in 0..12 {
                let x = images[below(images.len())];
                let pool = vec![x.into(), Arg::from([3, 3]), Arg::from([1, 1]), Arg::from([1, 1])];
                images.push(match below(10) {
                    0 => m.calls([aten::NEG, aten::RELU][below(2)], vec![x.into()])[0],
                    1 => m.calls(aten::HARDTANH, vec![x.into(), Arg::Float(-8.0), Arg::Float(7.5)])[0],
                    2 => m.calls(aten::MAX_POOL2D_WITH_INDICES, pool)[0],
                    // This operator takes row-major images only.
                    3 => m.calls(aten::AVG_POOL2D, pool)[0],
                    4 => convolution(&mut m, x, [4, 4, 3, 3], 1, below(2) == 0),
                    5 => {
                        let ordered = copy(&mut m, x, CHANNELS_LAST);
                        outputs.push(ordered.into());
                        copy(&mut m, ordered, ROW_MAJOR)
                    }
                    6 => {
                        let args = vec![x.into(), Arg::from([6, 5]), Arg::Bool(true), Arg::None];
                        m.calls(aten::UPSAMPLE_BILINEAR2D_VEC, args)[0]
                    }
                    7 => m.calls(aten::MUL_SCALAR, vec![x.into(), Arg::Float(0.5)])[0],
                    _ => {
                        let y = images[below(images.len())];
                        m.calls(aten::ADD_TENSOR, vec![x.into(), y.into()])[0]
                    }
                });
            }
            let last = images[images.len() - 1];
            let last = if below(3) == 0 { last } else { copy(&mut m, last, CHANNELS_LAST) };
            outputs.push(last.into());
            m.graph().outputs = outputs;
            let copies = |names: &[String]| names.iter().filter(|name| *name == COPY).count();
            let before = copies(&m.after(&EliminateDeadCode));
            let expected = results(&mut m);
            let after = copies(&m.after(&AssignDimOrders));
            fewer += usize::from(after < before);
            assert!(after <= before, "{after} copies of {before}");
            for (got, expected) in results(&mut m).iter().flatten().zip(expected.iter().flatten()) {
                assert!((got - expected).abs() <= expected.abs().max(1.0) * 1e-4, "{got} for {expected}");
            }
        }
        assert!(fewer > 10, "only {fewer} networks copy less");
    }
}
