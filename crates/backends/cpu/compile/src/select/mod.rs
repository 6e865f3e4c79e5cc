//! Selects how each node of a legalized method is computed.
//!
//! This is the only place that decides by an operator's name, types and arguments. A node that is not refused here is
//! claimed. Fusion, lowering and the report read the [`Selection`]s. A selection has all arguments that its step needs,
//! so every selected node can be lowered.

mod data_movement;
mod delta_rule;
mod dynamic;
mod elementwise;
mod gemm;
mod normalization;
mod pooling;
mod positions;
mod reason;

use rushlight_cpu_payload::Affine;
use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, llama, rushlight};
use rushlight_graph::quantization;
use rushlight_graph::{Call, Def, Error, Graph, Model, NodeId, Op, SymbolId, Type, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::storage::{affine_of, is_stored_as_byte, is_stored_as_float};

pub(crate) use data_movement::DataMovement;
pub(crate) use delta_rule::DeltaRule;
pub(crate) use dynamic::{Dynamic, NibbleQuantize, Parameters, RowDequantize};
pub(crate) use elementwise::{Elementwise, Operand, activation};
pub(crate) use gemm::{BatchedGemm, Convolution, Embedding, Experts, Gemm, GemmWeights, Int8, has_bias};
pub(crate) use normalization::{Attention, Norm, Softmax, TopK};
pub(crate) use pooling::{Pooling, Reduction, Resize};
pub(crate) use positions::{GatherElements, Range, Scatter};
pub(crate) use reason::Reason;

/// The kind of step that computes a node, with the decisions about it.
#[derive(Debug)]
pub(crate) enum Selection {
    Convolution(Convolution),
    Gemm(Gemm),
    BatchedGemm(BatchedGemm),
    Experts(Experts),
    TopK(TopK),
    GatherElements(GatherElements),
    Attention(Attention),
    DeltaRule(DeltaRule),
    Pooling(Pooling<2>),
    VolumePooling(Pooling<3>),
    Reduction(Reduction),
    Resize(Resize),
    Softmax(Softmax),
    Norm(Norm),
    Embedding(Embedding),
    Elementwise(Elementwise),
    DataMovement(DataMovement),
    /// Quantizes floats with a known scale.
    Quantize {
        input: ValueId,
        affine: Affine,
    },
    /// Dequantizes integers with a known scale. The bytes stay as they are.
    Dequantize {
        input: ValueId,
        affine: Affine,
    },
    Dynamic(Dynamic),
    RowDequantize(RowDequantize),
    NibbleQuantize(NibbleQuantize),
    Range(Range),
    Scatter(Scatter),
    /// Reads a number from a tensor of i64 that a part is given. It is a size or a position from then on.
    Number {
        input: ValueId,
        symbol: SymbolId,
    },
}

impl Selection {
    /// True if the node is computed element by element, and can share a step with other elementwise nodes.
    pub fn is_elementwise(&self) -> bool {
        matches!(self, Self::Elementwise(_) | Self::Quantize { .. })
    }

    /// Returns how a GEMM or a convolution multiplies integers, if it does.
    pub fn int8(&self) -> Option<Int8> {
        match self {
            Self::Convolution(convolution) => convolution.int8,
            Self::Gemm(Gemm { weights: GemmWeights::Int8(_, int8), .. }) => Some(*int8),
            _ => None,
        }
    }

    /// True if the step can produce truth values, 1 and 0.
    fn gives_truth(&self) -> bool {
        match self {
            Self::Elementwise(elementwise) => elementwise.gives_truth(),
            // Reductions and data movement that cannot are refused when they are selected.
            Self::Reduction(_) | Self::DataMovement(_) => true,
            _ => false,
        }
    }

    /// Returns the operand whose quantized elements the result holds unchanged, so that it shares their scale. `None`
    /// if the node computes new elements.
    fn unchanged_operand(&self) -> Option<ValueId> {
        match self {
            Self::DataMovement(operator) => operator.moved_value(),
            Self::Pooling(pooling) if pooling.is_max() => Some(pooling.input),
            Self::Resize(resize) if resize.is_nearest() => Some(resize.input),
            _ => None,
        }
    }
}

/// A method whose nodes are selected in the order of computation, with the storage of the values so far.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub graph: &'a Graph,
    pub model: &'a Model,
    /// Values that are stored as `u8`: dequantized values, and their rearrangements.
    quantized: FxHashMap<ValueId, Affine>,
    /// Values that are stored as `u8` with scales that are computed at run time.
    dynamic: FxHashMap<ValueId, Parameters>,
    /// Values of 8 bits that are stored as bytes, besides states and the inputs of a part.
    bytes: FxHashSet<ValueId>,
    /// Symbols that the inputs of the method define.
    given: FxHashSet<SymbolId>,
    /// Results of selected nodes. Their sizes follow from the sizes of the part's inputs.
    computed: FxHashSet<ValueId>,
    /// Views of integers that a part is given.
    integers: FxHashSet<ValueId>,
    /// Inputs of i64 that are positions.
    position_inputs: FxHashSet<ValueId>,
    /// Computed integers, with the bounds of their absolute values.
    positions: FxHashMap<ValueId, i64>,
}

/// The selections of all nodes of a method, or the reasons why they are refused.
#[derive(Debug)]
pub(crate) struct Selections {
    nodes: FxHashMap<NodeId, Result<Selection, Reason>>,
    quantized: FxHashMap<ValueId, Affine>,
}

impl Selections {
    /// Selects all nodes of a legalized method of a model.
    pub fn of(graph: &Graph, model: &Model) -> Self {
        Self::with(Context::new(graph, model))
    }

    /// Selects all nodes of a legalized part.
    pub fn of_part(graph: &Graph, model: &Model) -> Self {
        Self::with(Context::of_part(graph, model))
    }

    fn with(mut cx: Context<'_>) -> Self {
        let graph = cx.graph;
        let mut nodes = FxHashMap::default();
        for block in graph.live_blocks() {
            for node in &graph.blocks[block].nodes {
                if matches!(graph.nodes[*node].op, Op::Call(_)) {
                    let selected = select(&cx, *node);
                    if let Ok(selection) = &selected {
                        cx.note(*node, selection);
                    }
                    nodes.insert(*node, selected);
                }
            }
        }
        Self { nodes, quantized: cx.quantized }
    }

    /// Returns the selection of a node; `None` if it is refused.
    pub fn get(&self, node: NodeId) -> Option<&Selection> {
        self.nodes.get(&node)?.as_ref().ok()
    }

    /// True for a node that reads or reshapes integers that a part is given. Each part that needs it has a copy of its
    /// own.
    pub fn is_copied(&self, graph: &Graph, node: NodeId) -> bool {
        let is_of_integers = |value: &ValueId| match graph.ty(*value) {
            Type::Tensor(ty) => is_integer(ty.dtype),
            Type::Int(_) => true,
            _ => false,
        };
        let is_computed_again = self.get(node).is_some_and(|selection| !matches!(selection, Selection::Scatter(_)));
        is_computed_again && graph.nodes[node].results.first().is_some_and(is_of_integers)
    }

    /// Returns the reason why a node is refused, if it is.
    pub fn refusal(&self, node: NodeId) -> Option<&Reason> {
        self.nodes.get(&node)?.as_ref().err()
    }

    /// Returns the selection of a node of a part. All nodes of a part were claimed.
    ///
    /// # Errors
    /// `Unsupported`, with the reason, if the node is refused.
    pub fn require(&self, node: NodeId) -> Result<&Selection, Error> {
        match self.nodes.get(&node) {
            Some(Ok(selection)) => Ok(selection),
            Some(Err(reason)) => Err(Error::unsupported(reason.to_string())),
            None => Err(Error::unsupported("a node that is no call of an operator")),
        }
    }

    /// Returns the affine of a value that is always stored as `u8`.
    pub fn quantized(&self, value: ValueId) -> Option<Affine> {
        self.quantized.get(&value).copied()
    }

    /// Returns the selection of the node whose first result is a value.
    pub fn of_value(&self, graph: &Graph, value: ValueId) -> Option<&Selection> {
        match graph.values[value].def {
            Def::Result(node, 0) => self.get(node),
            _ => None,
        }
    }
}

impl<'a> Context<'a> {
    pub fn new(graph: &'a Graph, model: &'a Model) -> Self {
        let params = graph.blocks[graph.body].params.iter();
        let given = params.flat_map(|param| given_symbols(graph, *param)).collect();
        Self {
            graph,
            model,
            quantized: FxHashMap::default(),
            dynamic: FxHashMap::default(),
            bytes: FxHashSet::default(),
            given,
            computed: FxHashSet::default(),
            integers: FxHashSet::default(),
            position_inputs: positions::inputs(graph),
            positions: FxHashMap::default(),
        }
    }

    /// Makes the context of a part. All of its integer inputs may be positions, because nodes with other integers were
    /// not claimed.
    fn of_part(graph: &'a Graph, model: &'a Model) -> Self {
        let position_inputs = graph.blocks[graph.body].params.iter().copied().collect();
        Self { position_inputs, ..Self::new(graph, model) }
    }

    /// Records the storage of a node's first result, and that a part has the sizes of its results.
    fn note(&mut self, node: NodeId, selection: &Selection) {
        self.computed.extend(&self.graph.nodes[node].results);
        let Some(result) = self.graph.nodes[node].results.first().copied() else { return };
        if let (Selection::TopK(TopK { columns, .. }), Some(indices)) =
            (selection, self.graph.nodes[node].results.get(1))
        {
            self.positions.insert(*indices, *columns);
        }
        let is_given = matches!(selection, Selection::DataMovement(movement)
            if movement.moved_value().is_some_and(|input| self.is_given(input)));
        if let Some(bound) =
            positions::computed_bound(self, &Call::new(self.graph, node), selection).filter(|_| !is_given)
        {
            self.positions.insert(result, bound);
        }
        let affine = match selection {
            Selection::Dequantize { affine, .. } => Some(*affine),
            other => other.unchanged_operand().and_then(|source| self.quantized.get(&source).copied()),
        };
        if let Some(affine) = affine {
            self.quantized.insert(result, affine);
        }
        if matches!(
            selection,
            Selection::Dynamic(Dynamic::Quantize { .. } | Dynamic::ZeroPoints { .. })
                | Selection::NibbleQuantize(_)
                | Selection::Scatter(_)
                | Selection::DataMovement(DataMovement::SliceScatter { .. })
        ) {
            let is_byte = |value: &&ValueId| self.graph.tensor(**value).is_ok_and(|ty| is_stored_as_byte(ty.dtype));
            self.bytes.extend(self.graph.nodes[node].results.iter().filter(is_byte));
        }
        match selection {
            Selection::Number { symbol, .. } => {
                self.given.insert(*symbol);
            }
            Selection::DataMovement(_)
                if is_given && self.graph.tensor(result).is_ok_and(|ty| is_integer(ty.dtype)) =>
            {
                self.integers.insert(result);
            }
            Selection::Dynamic(Dynamic::Dequantize { parameters, .. }) => {
                self.dynamic.insert(result, *parameters);
            }
            Selection::Dynamic(Dynamic::Reshape { input }) => {
                if let Some(parameters) = self.dynamic.get(input).copied() {
                    self.dynamic.insert(result, parameters);
                }
            }
            _ => {}
        }
    }

    /// Returns the affine of a value that is stored as `u8`.
    fn quantized(&self, value: ValueId) -> Option<Affine> {
        self.quantized.get(&value).copied()
    }

    /// True for values of 8 bits that are stored as bytes: a quantized cache, and the rows that are written to it.
    fn is_byte(&self, value: ValueId) -> bool {
        let is_given = matches!(self.graph.values[value].def, Def::Param(_) | Def::State(_));
        let is_byte = self.graph.tensor(value).is_ok_and(|ty| is_stored_as_byte(ty.dtype));
        is_byte && (is_given || self.bytes.contains(&value))
    }

    /// True for integers that a part is given, and views of them.
    fn is_given(&self, value: ValueId) -> bool {
        self.integers.contains(&value) || matches!(self.graph.values[value].def, Def::Param(_))
    }
}

/// Selects how a node is computed.
///
/// # Errors
/// The reason, if the backend does not compute it.
pub(crate) fn select(cx: &Context<'_>, node: NodeId) -> Result<Selection, Reason> {
    let call = Call::new(cx.graph, node);
    let name = call.name();
    if quantization::is_per_tensor_quantize(name) || quantization::is_per_tensor_dequantize(name) {
        return quantization_of(&call);
    }
    if let Some(role) = dynamic::role(name) {
        let selected = dynamic::select(cx.graph, node, role).map(Selection::Dynamic);
        let selected = selected.or_else(|| dynamic::rows(cx, &call).map(Selection::RowDequantize));
        return selected.ok_or(Reason::DynamicScales);
    }
    if let Some(parameter) = dynamic::parameter(cx.graph, node) {
        return Ok(Selection::Dynamic(parameter));
    }
    if let Some(selection) = written_bytes(cx, &call).or_else(|| dynamic::nibbles(cx, &call)) {
        check_sizes(cx, &call, node)?;
        return Ok(selection);
    }
    if name == aten::TOPK
        && let Some(selection) = normalization::top_k(&call).map(Selection::TopK)
    {
        check_sizes(cx, &call, node)?;
        return Ok(selection);
    }
    if let Some(selected) = integers(cx, &call) {
        let selection = selected?;
        check_sizes(cx, &call, node)?;
        return Ok(selection);
    }
    if let Some(selection) = positions::select(cx, &call) {
        check_sizes(cx, &call, node)?;
        return Ok(selection);
    }
    check_operands(cx, &call)?;
    check_sizes(cx, &call, node)?;
    let used = used_results(cx.graph, node);
    let dtype = |value: &ValueId| cx.graph.tensor(*value).map(|ty| ty.dtype).ok();
    if !used.iter().all(|value| dtype(value).is_some_and(is_stored_as_float)) {
        return Err(Reason::Result);
    }
    let selection = selection_of(cx, &call, &used)?;
    let reads_integers = matches!(
        selection,
        Selection::Elementwise(_)
            | Selection::Scatter(_)
            | Selection::GatherElements(_)
            | Selection::Experts(_)
            | Selection::Embedding(_)
            | Selection::DataMovement(DataMovement::IndexSelect { .. })
    );
    if let Some(dtype) = call.operands().iter().filter_map(dtype).find(|dtype| is_integer(*dtype) && !reads_integers) {
        return Err(Reason::Input(dtype));
    }
    if used.iter().any(|value| dtype(value) == Some(ScalarType::Bool)) && !selection.gives_truth() {
        return Err(Reason::Truth { op: name.into() });
    }
    if let Some(input) = dynamic::keeps_rows(&call)
        && cx.dynamic.contains_key(&input)
    {
        return Ok(Selection::Dynamic(Dynamic::Reshape { input }));
    }
    Ok(selection)
}

/// True for the integer types of positions and indices.
const fn is_integer(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::Long | ScalarType::Int)
}

/// Returns the selection of a node that reads a number from integers that a part is given, or reshapes them. `None` for
/// other nodes.
fn integers(cx: &Context<'_>, call: &Call<'_>) -> Option<Result<Selection, Reason>> {
    let input = call.optional("self")?;
    let ty = cx.graph.tensor(input).ok().filter(|ty| is_integer(ty.dtype))?;
    let is_number = call.name() == aten::_LOCAL_SCALAR_DENSE;
    let is_view = matches!(
        call.name(),
        aten::SELECT_COPY_INT
            | aten::SLICE_COPY_TENSOR
            | aten::VIEW_COPY
            | aten::UNSQUEEZE_COPY
            | aten::SQUEEZE_COPY_DIMS
            | aten::SQUEEZE_COPY_DIM
            | aten::SQUEEZE_COPY
            | aten::ALIAS_COPY
    );
    if !is_number && !is_view {
        return None;
    }
    if !cx.is_given(input) {
        // Computed positions can be reshaped, but not read as numbers.
        return is_number.then(|| Err(Reason::Arguments { op: call.name().into() }));
    }
    let selection = if is_number {
        let symbol = call.node.results.first().and_then(|result| cx.graph.ty(*result).symbol());
        let is_one = ty.dtype == ScalarType::Long && ty.shape.iter().all(|size| size.is(1));
        symbol.filter(|_| is_one).map(|symbol| Selection::Number { input, symbol })
    } else {
        data_movement::select(cx, call).map(Selection::DataMovement)
    };
    Some(selection.ok_or_else(|| Reason::Arguments { op: call.name().into() }))
}

/// Returns the selection of a node that writes integers of 8 bits to a cache; `None` for other nodes.
fn written_bytes(cx: &Context<'_>, call: &Call<'_>) -> Option<Selection> {
    let source = match call.name() {
        aten::SLICE_SCATTER => call.optional("src")?,
        aten::INDEX_PUT => call.optional("values")?,
        _ => return None,
    };
    if !cx.is_byte(call.optional("self")?) || !cx.is_byte(source) {
        return None;
    }
    if call.name() == aten::INDEX_PUT {
        return positions::scatter(cx, call).map(Selection::Scatter);
    }
    data_movement::select(cx, call).map(Selection::DataMovement)
}

/// Returns the selection of a node whose inputs and results are stored as floats.
fn selection_of(cx: &Context<'_>, call: &Call<'_>, used: &[ValueId]) -> Result<Selection, Reason> {
    let arguments = || Reason::Arguments { op: call.name().into() };
    let is_first_only = used.iter().all(|value| Some(value) == call.node.results.first());
    match call.name() {
        aten::CONVOLUTION => return gemm::convolution(cx, call).map(Selection::Convolution),
        rushlight::EXPERTS_MM => return gemm::experts(cx, call).map(Selection::Experts),
        aten::EMBEDDING => return gemm::embedding(cx, call).map(Selection::Embedding),
        _ => {}
    }
    let selected = match call.name() {
        aten::ADDMM | aten::MM => gemm::gemm(cx, call).map(Selection::Gemm),
        aten::INDEX_TENSOR => positions::rows(cx, call).map(Selection::Embedding),
        aten::INDEX_PUT => positions::scatter(cx, call).map(Selection::Scatter),
        aten::GATHER => positions::elements(cx, call).map(Selection::GatherElements),
        aten::BMM => gemm::batched(call).map(Selection::BatchedGemm),
        aten::_SOFTMAX | aten::_LOG_SOFTMAX => normalization::softmax(call).map(Selection::Softmax),
        aten::NATIVE_LAYER_NORM if is_first_only => normalization::layer_norm(call).map(Selection::Norm),
        aten::RMS_NORM => normalization::rms_norm(call).map(Selection::Norm),
        aten::SCALED_DOT_PRODUCT_ATTENTION => normalization::attention(call).map(Selection::Attention),
        llama::GATED_DELTA_RULE | llama::CHANNELWISE_GATED_DELTA_RULE => {
            delta_rule::select(call).map(Selection::DeltaRule)
        }
        llama::CUSTOM_SDPA => normalization::cached_attention(call).map(Selection::Attention),
        aten::MAX_POOL2D_WITH_INDICES if is_first_only => pooling::pooling(call).map(Selection::Pooling),
        aten::AVG_POOL2D => pooling::pooling(call).map(Selection::Pooling),
        aten::MAX_POOL3D_WITH_INDICES if is_first_only => pooling::pooling(call).map(Selection::VolumePooling),
        aten::AVG_POOL3D => pooling::pooling(call).map(Selection::VolumePooling),
        aten::_ADAPTIVE_AVG_POOL2D | aten::_ADAPTIVE_AVG_POOL3D => pooling::adaptive(call),
        aten::UPSAMPLE_BILINEAR2D_VEC | aten::UPSAMPLE_NEAREST2D_VEC => pooling::resize(call).map(Selection::Resize),
        _ => pooling::reduction(call)
            .map(Selection::Reduction)
            .or_else(|| elementwise::select(call).map(Selection::Elementwise))
            .or_else(|| data_movement::select(cx, call).map(Selection::DataMovement)),
    };
    selected.ok_or_else(arguments)
}

/// Refuses sizes and positions that no input of a part defines, such as a number that is read from a tensor.
fn check_sizes(cx: &Context<'_>, call: &Call<'_>, node: NodeId) -> Result<(), Reason> {
    let mut used = Vec::new();
    cx.graph.for_each_symbol_by(node, &mut |symbol| used.push(symbol));
    for result in &call.node.results {
        used.extend(symbols(cx.graph, *result));
    }
    used.retain(|symbol| !cx.given.contains(symbol));
    if used.is_empty() {
        return Ok(());
    }
    for value in call.operands() {
        let of_operand =
            if cx.computed.contains(&value) { symbols(cx.graph, value) } else { given_symbols(cx.graph, value) };
        used.retain(|symbol| !of_operand.contains(symbol));
    }
    used.first().map_or(Ok(()), |symbol| Err(Reason::Size { symbol: cx.graph.symbols[*symbol].name.clone() }))
}

/// Returns the symbols in the sizes of a tensor.
fn symbols(graph: &Graph, value: ValueId) -> Vec<SymbolId> {
    let mut symbols = Vec::new();
    if let Ok(ty) = graph.tensor(value) {
        ty.shape.iter().for_each(|size| size.for_each_symbol(&mut |symbol| symbols.push(symbol)));
    }
    symbols
}

/// Returns the symbols that a part can compute from the sizes of an input tensor.
fn given_symbols(graph: &Graph, value: ValueId) -> Vec<SymbolId> {
    let shape = graph.tensor(value).map_or(&[][..], |ty| &ty.shape);
    shape.iter().filter_map(|size| Some(size.linear()?.0)).collect()
}

/// Refuses inputs that are neither stored as floats, nor positions, nor the indices of a step that reads indices.
fn check_operands(cx: &Context<'_>, call: &Call<'_>) -> Result<(), Reason> {
    let indices = match call.name() {
        aten::EMBEDDING => call.optional("indices"),
        aten::INDEX_SELECT => call.optional("index"),
        _ => None,
    };
    for value in call.operands() {
        match call.graph.tensor(value) {
            Ok(ty) if is_stored_as_float(ty.dtype) => {}
            Ok(ty) if Some(value) == indices && is_integer(ty.dtype) => {}
            Ok(_) if positions::bound_of(cx, value).is_some() => {}
            Ok(ty) => return Err(Reason::Input(ty.dtype)),
            Err(_) => return Err(Reason::ComputedNumber),
        }
    }
    Ok(())
}

/// Returns the selection of a node that quantizes or dequantizes with a known scale.
fn quantization_of(call: &Call<'_>) -> Result<Selection, Reason> {
    let input = call.optional("input").ok_or(Reason::NoTensor)?;
    let result = call.result().map_err(|_| Reason::NoTensor)?;
    let dtype = |value: ValueId| call.graph.tensor(value).map(|ty| ty.dtype).map_err(|_| Reason::NoTensor);
    let (from, to) = (dtype(input)?, dtype(result)?);
    let is_quantize = quantization::is_per_tensor_quantize(call.name());
    let (float, integer) = if is_quantize { (from, to) } else { (to, from) };
    if !is_stored_as_byte(integer) {
        return Err(Reason::Integers(integer));
    }
    if float != ScalarType::Float {
        return Err(Reason::Quantized(float));
    }
    let affine = affine_of(call).ok_or(Reason::Affine)?;
    Ok(if is_quantize { Selection::Quantize { input, affine } } else { Selection::Dequantize { input, affine } })
}

/// Returns the results of a node that are used.
fn used_results(graph: &Graph, node: NodeId) -> Vec<ValueId> {
    let results = &graph.nodes[node].results;
    if results.len() == 1 {
        return results.clone();
    }
    let mut used = Vec::new();
    graph.for_each_use(&mut |value| {
        if results.contains(&value) && !used.contains(&value) {
            used.push(value);
        }
    });
    used
}
