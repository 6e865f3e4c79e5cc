//! Constant folding: computes nodes that depend only on constants at compile time.
//!
//! Views of constants cost nothing, because they are other shapes of the same bytes. The reference operators compute
//! everything else. Small results are computed at once. Large results are computed when the file is written, so that they
//! do not occupy memory until then.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::emit::{EmitOptions, emit};
use crate::interpret::{Datum, TensorData, run};
use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::quantization;
use rushlight_graph::{
    Arg, Block, Computed, Constant, ConstantData, Def, Expr, Graph, Model, Node, NodeId, Op, Origin, Schemas,
    TensorType, Type, ValueId, row_major_strides,
};

use super::check::has_kernel;
use super::functionalise::{StridedLayout, layouts};
use rushlight_graph::Pass;

/// Replaces nodes by constants if all of their arguments are constant. A node stays if its result would need many more
/// bytes in the file than its arguments. The replaced nodes are left dead.
#[derive(Clone, Copy, Debug)]
pub struct FoldConstants {
    /// Results of up to this many bytes may be larger than the arguments.
    pub small: usize,
    /// Number of bytes by which all results together may exceed all constants.
    pub allowance: usize,
    /// True if a dequantize node of constant integers becomes a constant that keeps the integers, for backends with int8
    /// kernels. Otherwise the node stays.
    pub dequantize: bool,
}

impl Default for FoldConstants {
    fn default() -> Self {
        Self { small: 1 << 16, allowance: 1 << 22, dequantize: false }
    }
}

/// Maximum bytes of a result that is computed at once. Larger ones are computed when they are written.
const MAX_EAGER: usize = 1 << 18;
/// Maximum depth of computed constants that depend on each other.
const MAX_DEPTH: u32 = 16;
/// Maximum number of operations of one constant. Each reader of a computed constant computes it again, so its
/// operations count for each reader. Lower under the fuzzer, whose executions must be short.
const MAX_WORK: u64 = if cfg!(fuzzing) { 1 << 18 } else { 1 << 33 };
/// Allowed operations for each byte of all constants, so that large models fold as much as small ones.
const WORK_OF_BYTE: u64 = 64;

impl Pass for FoldConstants {
    fn name(&self) -> &'static str {
        "fold-constants"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let lens = model.constants.iter().map(|(_, constant)| constant.len().unwrap_or(0));
        let budget = lens.fold(self.allowance, usize::saturating_add);
        let work = MAX_WORK.saturating_add(WORK_OF_BYTE.saturating_mul(budget as u64));
        let Model { methods, constants, schemas, .. } = model;
        let (small, dequantize) = (self.small, self.dequantize);
        let mut folder = Folder { small, budget, work, dequantize, schemas, lazy: FxHashMap::default() };
        for graph in methods.values_mut() {
            let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
            for block in graph.live_blocks() {
                let Block { nodes, .. } = graph.blocks[block].clone();
                for id in nodes {
                    let inputs = constant_inputs(graph, &graph.nodes[id], &replaced);
                    let Some(inputs) = inputs else { continue };
                    let inputs: Vec<(ValueId, Constant)> = inputs
                        .into_iter()
                        .filter_map(|(value, constant)| Some((value, constants[graph.constant_of(constant)?].clone())))
                        .collect();
                    let Some(results) = folder.fold(graph, id, &inputs) else { continue };
                    for (value, constant) in graph.nodes[id].results.clone().into_iter().zip(results) {
                        let folded = graph.constant(constants.push(constant), constants);
                        replaced.insert(value, folded);
                    }
                }
            }
            if !replaced.is_empty() {
                graph.replace_uses(&replaced);
            }
        }
        Ok(())
    }
}

/// Returns the argument values of a node, each with the value of its constant: itself, or the one in `replaced`. `None`
/// if an argument is not constant, a size is dynamic, or the node is not deterministic.
fn constant_inputs(
    graph: &Graph,
    node: &Node,
    replaced: &FxHashMap<ValueId, ValueId>,
) -> Option<Vec<(ValueId, ValueId)>> {
    let Op::Call(schema) = &node.op else { return None };
    let is_static = |value: &ValueId| graph.ty(*value).as_tensor().is_some_and(|ty| ty.static_sizes().is_some());
    if schema.flags.random || node.results.is_empty() || !node.results.iter().all(is_static) {
        return None;
    }
    let (mut inputs, mut all_constant): (Vec<(ValueId, ValueId)>, bool) = (Vec::new(), true);
    for arg in &node.args {
        arg.for_each_expr(&mut |expr| all_constant &= expr.is_static());
        arg.for_each_value(&mut |value| {
            let constant = replaced.get(&value).copied().unwrap_or(value);
            all_constant &= matches!(graph.values[constant].def, Def::Constant(_));
            if inputs.iter().all(|(known, _)| *known != value) {
                inputs.push((value, constant));
            }
        });
    }
    all_constant.then_some(inputs)
}

struct Folder<'s> {
    small: usize,
    /// Remaining bytes for results.
    budget: usize,
    /// Number of operations that may still be computed.
    work: u64,
    dequantize: bool,
    schemas: &'s Arc<Schemas>,
    /// For each computed constant: the depth of its computation, and the sum of its operations.
    lazy: FxHashMap<usize, (u32, u64)>,
}

impl Folder<'_> {
    /// Returns the results of a node with constant arguments; `None` if the node should stay.
    fn fold(&mut self, graph: &Graph, id: NodeId, inputs: &[(ValueId, Constant)]) -> Option<Vec<Constant>> {
        let node = &graph.nodes[id];
        let results: Vec<(&str, &TensorType)> = node
            .results
            .iter()
            .map(|value| Some((graph.values[*value].name.as_str(), graph.ty(*value).as_tensor()?)))
            .collect::<Option<_>>()?;
        // The result of a single constant keeps its name: users select weights for `.ptd` files by name.
        let source = if let [(_, only)] = inputs { Some(only.name.as_str()) } else { None };
        let unfilled = |(name, ty): &(&str, &TensorType)| Constant {
            name: source.unwrap_or(name).into(),
            ty: TensorType::clone(ty),
            data: ConstantData::Zeros,
        };
        let mut results: Vec<Constant> = results.iter().map(unfilled).collect();
        if let [result] = results.as_slice() {
            let name = node.op.name();
            if quantization::is_dequantize(name) {
                let constant = |value| inputs.iter().find(|(known, _)| *known == value).map(|(_, constant)| constant);
                let folded = if self.dequantize { quantization::folded(node, result, constant) } else { None };
                return folded.map(|folded| vec![folded]);
            }
            if let ([(_, input)], aten::PERMUTE_COPY) = (inputs, node.op.name())
                && input.is_quantized()
                && let Some(permuted) = permutation(node).and_then(|dims| input.permuted(&dims))
            {
                return Some(vec![Constant { data: permuted.data, ..result.clone() }]);
            }
        }
        let input_bytes = total(inputs.iter().map(|(_, input)| input))?;
        let result_bytes = total(results.iter())?;
        if result_bytes > input_bytes.max(self.small) || result_bytes > self.budget {
            return None;
        }
        if !fill_as_views(graph, node, inputs, &mut results) {
            self.compute(graph, node, inputs, &mut results, result_bytes.max(input_bytes))?;
        }
        self.budget -= result_bytes;
        Some(results)
    }

    /// Fills the results by a call of the operator, at once or lazily. `bytes` is the larger of the sizes of the inputs and
    /// the results. `None` if the operator has no kernel or costs too much.
    fn compute(
        &mut self,
        graph: &Graph,
        node: &Node,
        inputs: &[(ValueId, Constant)],
        results: &mut [Constant],
        bytes: usize,
    ) -> Option<()> {
        let schema = node.op.schema()?;
        schema.out_variant.as_deref().is_some_and(has_kernel).then_some(())?;
        let lazy_inputs = inputs.iter().filter_map(|(_, input)| self.lazy.get(&address(&input.data)?));
        let (depth, work) = lazy_inputs.fold((0, work_of(node, inputs, results)), |(depth, work), (of_input, more)| {
            (depth.max(*of_input), work.saturating_add(*more))
        });
        (work <= MAX_WORK).then_some(())?;
        self.work = self.work.checked_sub(work)?;
        let call = Call::new(graph, node, inputs, self.schemas).ok()?;
        if bytes <= MAX_EAGER {
            let contents = call.run().ok()?;
            for (result, content) in results.iter_mut().zip(contents) {
                *result = Constant::dense(result.name.clone(), result.ty.clone(), content).ok()?;
            }
            return Some(());
        }
        let depth = depth + 1;
        (depth <= MAX_DEPTH).then_some(())?;
        let call = Arc::new(call);
        for (index, result) in results.iter_mut().enumerate() {
            result.data = ConstantData::Computed(Arc::new(ResultOf { call: call.clone(), index }));
            self.lazy.insert(address(&result.data)?, (depth, work));
        }
        Some(())
    }
}

/// The dimensions of a permutation.
fn permutation(node: &Node) -> Option<Vec<usize>> {
    let Arg::List(dims) = node.arg("dims")? else { return None };
    let rank = dims.len() as i64;
    let dim = |arg: &Arg| match arg {
        Arg::Int(expr) => expr.as_int().and_then(|dim| usize::try_from(if dim < 0 { dim + rank } else { dim }).ok()),
        _ => None,
    };
    dims.iter().map(dim).collect()
}

/// Returns the sum of the constants' bytes.
fn total<'c>(mut constants: impl Iterator<Item = &'c Constant>) -> Option<usize> {
    constants.try_fold(0usize, |sum, constant| sum.checked_add(constant.len().ok()?))
}

/// Estimates the operations of a node: one for each element, M * N * K for a GEMM or convolution. For the listed pooling
/// and attention operators, an element of the result reads at most the whole input.
fn work_of(node: &Node, inputs: &[(ValueId, Constant)], results: &[Constant]) -> u64 {
    let elements =
        |constant: &Constant| (constant.len().unwrap_or(usize::MAX) / constant.ty.dtype.size().max(1)) as u64;
    let mut read: Vec<u64> = inputs.iter().map(|(_, input)| elements(input)).collect();
    // A value that is multiplied by itself is listed once.
    if let [only] = read[..] {
        read.push(only);
    }
    read.sort_unstable_by(|a, b| b.cmp(a));
    let written = results.iter().map(elements).fold(0, u64::saturating_add);
    let all = read.iter().fold(written, |all, elements| all.saturating_add(*elements));
    let largest = read.first().copied().unwrap_or(0);
    let name = node.op.schema().map_or("", |schema| schema.base_name());
    match name {
        aten::MM
        | aten::BMM
        | aten::ADDMM
        | aten::BADDBMM
        | aten::LINEAR
        | aten::CONVOLUTION
        | aten::ADDMV
        | aten::MV
        | aten::DOT => {
            let product = read.iter().take(2).fold(written as f64, |product, elements| product * *elements as f64);
            // sqrt(|A| |B| |C|) = sqrt(MK * KN * MN) = M N K.
            all.max(product.sqrt() as u64)
        }
        aten::AVG_POOL1D
        | aten::AVG_POOL2D
        | aten::AVG_POOL3D
        | aten::AVG_POOL2D_BACKWARD
        | aten::_ADAPTIVE_AVG_POOL2D
        | aten::_ADAPTIVE_AVG_POOL2D_BACKWARD
        | aten::_ADAPTIVE_AVG_POOL3D
        | aten::ADAPTIVE_AVG_POOL1D
        | aten::MAX_POOL2D_WITH_INDICES
        | aten::MAX_POOL3D_WITH_INDICES
        | aten::MAX_POOL2D_WITH_INDICES_BACKWARD
        | aten::_CDIST_FORWARD
        | aten::SCALED_DOT_PRODUCT_ATTENTION
        | aten::_SCALED_DOT_PRODUCT_ATTENTION_MATH
        | aten::_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU => all.max(largest.saturating_mul(written)),
        _ => all,
    }
}

/// Returns the address of computed content, which identifies it.
fn address(data: &ConstantData) -> Option<usize> {
    match data {
        ConstantData::Computed(computed) => Some(Arc::as_ptr(computed).addr()),
        _ => None,
    }
}

/// Makes the results views of the only input's bytes. Returns false if the operator is not a view.
fn fill_as_views(graph: &Graph, node: &Node, inputs: &[(ValueId, Constant)], results: &mut [Constant]) -> bool {
    let [(_, input)] = inputs else { return false };
    let name = node.op.schema().map_or("", |schema| schema.base_name());
    // A clone may change the dim order, which a constant does not have.
    if matches!(name, aten::CLONE) {
        for result in results {
            result.data = input.data.clone();
        }
        return true;
    }
    let Ok(sizes) = input.sizes() else { return false };
    let (storage, offset, strides) = match &input.data {
        ConstantData::Zeros => (None, 0, row_major_strides(&sizes)),
        ConstantData::Dense(bytes) => (Some(bytes), 0, row_major_strides(&sizes)),
        ConstantData::Strided { storage, offset, strides } => (Some(storage), *offset, strides.clone()),
        ConstantData::Computed(_) => return false,
    };
    let strides = strides.into_iter().map(|stride| Expr::Int(stride as i64)).collect();
    let Some(layouts) = layouts(node, graph, &StridedLayout { strides, offset: Expr::Int(offset as i64) }) else {
        return false;
    };
    let known = |expr: &Expr| usize::try_from(expr.as_int()?).ok();
    for (result, StridedLayout { strides, offset }) in results.iter_mut().zip(layouts) {
        let places = known(&offset).zip(strides.iter().map(known).collect::<Option<Vec<_>>>());
        let (Some((offset, strides)), Some(dtype)) = (places, Some(result.ty.dtype)) else { return false };
        if dtype != input.ty.dtype {
            return false;
        }
        if let Some(storage) = storage {
            result.data = ConstantData::Strided { storage: storage.clone(), offset, strides };
        }
    }
    true
}

/// A call of an operator on constants, as a program of its own.
struct Call {
    file: Vec<u8>,
    inputs: Vec<Constant>,
}

impl Call {
    fn new(graph: &Graph, node: &Node, inputs: &[(ValueId, Constant)], schemas: &Arc<Schemas>) -> Result<Self, Error> {
        let mut alone = Graph::new();
        let mut params: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        for (value, input) in inputs {
            let ty = TensorType::new(input.ty.dtype, input.ty.shape.clone());
            params.insert(*value, alone.input("x", Type::Tensor(ty)));
        }
        let mut args = node.args.clone();
        for arg in &mut args {
            arg.map_values(&mut |value| params.get(&value).copied().unwrap_or(value));
        }
        let origin = alone.origins.push(Origin::default());
        let results = node.results.iter().map(|value| ("y".to_owned(), graph.ty(*value).clone()));
        let id = alone.push_node(alone.body, node.op.clone(), args, origin, results);
        alone.outputs = alone.nodes[id].results.iter().map(|value| Arg::Value(*value)).collect();
        let mut model = Model { schemas: schemas.clone(), ..Model::default() };
        model.add_method("forward", alone);
        let options = EmitOptions { plan_inputs: false, ..EmitOptions::default() };
        let file = emit(&model, &options)?.program.to_bytes();
        let file = file.map_err(|error| Error::invalid(format!("a constant cannot be computed: {error}")))?;
        Ok(Self { file, inputs: inputs.iter().map(|(_, input)| input.clone()).collect() })
    }

    /// Computes the results.
    fn run(&self) -> Result<Vec<Vec<u8>>, Error> {
        let input = |input: &Constant| {
            let (dtype, sizes, bytes) = (input.ty.dtype, input.sizes()?, input.read()?.to_vec());
            Ok(Datum::Tensor(TensorData { dtype, sizes, bytes }))
        };
        let inputs = self.inputs.iter().map(input).collect::<Result<Vec<_>, Error>>()?;
        let tensor = |datum| match datum {
            Datum::Tensor(TensorData { bytes, .. }) => Ok(bytes),
            _ => Err(Error::invalid("a folded operator returned a value that is not a tensor")),
        };
        run(&self.file, "forward", &inputs)?.into_iter().map(tensor).collect()
    }
}

/// One of the results of a call.
struct ResultOf {
    call: Arc<Call>,
    index: usize,
}

impl Computed for ResultOf {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        let result = self.call.run()?.into_iter().nth(self.index);
        *to = result.ok_or_else(|| Error::invalid("a constant is not among the results of its operator"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;

    use super::*;
    use crate::passes::EliminateDeadCode;
    use rushlight_graph::testing::Method;

    fn constant(m: &mut Method, sizes: &[i64]) -> ValueId {
        let count = sizes.iter().product::<i64>();
        let bytes: Vec<u8> = (0..count).flat_map(|at| (at as f32).to_le_bytes()).collect();
        let id = m.model.constants.push(Constant::dense("c", TensorType::of(ScalarType::Float, sizes), bytes).unwrap());
        let Model { methods, constants, .. } = &mut m.model;
        methods["forward"].constant(id, constants)
    }

    /// Returns the constant that an output has become.
    fn output(m: &mut Method, index: usize) -> Constant {
        let graph = m.graph();
        let id = graph.constant_of(graph.outputs[index].as_value().unwrap()).unwrap();
        m.model.constants[id].clone()
    }

    fn numbers(constant: &Constant) -> Vec<f32> {
        constant.read().unwrap().as_chunks::<4>().0.iter().map(|element| f32::from_le_bytes(*element)).collect()
    }

    fn fold(m: &mut Method) -> Vec<String> {
        m.after(&FoldConstants::default());
        m.after(&EliminateDeadCode)
    }

    #[test]
    fn views_of_constants_share_their_bytes() {
        let mut m = Method::new();
        let c = constant(&mut m, &[3, 4]);
        let t = m.calls(aten::PERMUTE_COPY, vec![c.into(), Arg::from([1, 0])])[0];
        let row = m.calls(aten::SELECT_COPY_INT, vec![t.into(), Arg::from(0), Arg::from(-1)])[0];
        let parts = m.calls(aten::SPLIT_WITH_SIZES_COPY, vec![c.into(), Arg::from([1, 3]), Arg::from(1)]);
        let wide = m.calls(aten::EXPAND_COPY, vec![row.into(), Arg::from([2, 3])])[0];
        m.graph().outputs = [t, row, parts[1], wide].map(Arg::Value).to_vec();
        assert!(fold(&mut m).is_empty());
        let is_view = |index| matches!(output(&mut m, index).data, ConstantData::Strided { .. });
        assert!([0, 1, 2, 3].into_iter().all(is_view));
    }

    #[test]
    fn small_results_are_computed_at_once_and_large_ones_when_they_are_read() {
        for (side, lazy) in [(4, false), (300, true)] {
            let mut m = Method::new();
            let c = constant(&mut m, &[side, side]);
            let sum = m.calls(aten::ADD_TENSOR, vec![c.into(), c.into()])[0];
            let negative = m.calls(aten::NEG, vec![sum.into()])[0];
            m.graph().outputs = vec![negative.into()];
            assert!(fold(&mut m).is_empty());
            let output = output(&mut m, 0);
            assert_eq!(matches!(output.data, ConstantData::Computed(_)), lazy);
            assert_eq!(numbers(&output)[..3], [0.0, -2.0, -4.0]);
        }
    }
}
