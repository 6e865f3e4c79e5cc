//! Lowers the nodes of a part to steps.

mod caches;
mod data_movement;
mod delta_rule;
mod dynamic;
mod elementwise;
mod experts;
mod gemm;
mod int8_epilogue;
mod normalization;
mod pooling;
mod positions;
mod precision;
mod states;

use rushlight_cpu_payload::{
    Affine, Convert, ConvertedType, Copy, CpuProgram, Direction, Elementwise, Gather, Instruction, Operand, Size, Step,
    TableFormat, TensorId, Unary,
};
use rushlight_format::{Blob, ScalarType};
use rustc_hash::{FxHashMap, FxHashSet};

use rushlight_compiler::partition::Part;
use rushlight_graph::Error;
use rushlight_graph::{Call, Constant, ConstantData, Def, Expr, Graph, Input, Model, NodeId, SymbolId, ValueId};

use crate::error::error;
use crate::fuse::Fusion;
use crate::plan::Plan;
use crate::select::{Embedding, Selection, Selections};
use crate::settings::Settings;
use crate::storage::{integral, is_stored_as_byte, is_stored_as_float};
use crate::view::View;
use crate::weights::constants;

use caches::CachedRows;
use dynamic::DynamicRows;
pub(crate) use precision::Rank;

/// A part as a program of the CPU backend.
pub(crate) struct Lowered {
    pub program: CpuProgram,
    /// The blobs that the program names.
    pub named_data: Vec<(String, Blob<'static>)>,
    /// The precision of nodes that differs from the types of their results.
    pub precisions: Vec<(NodeId, (Rank, String))>,
}

/// Lowers a legalized part.
///
/// # Errors
/// `Unsupported` for a node that is refused, or sizes without bounds.
pub(crate) fn lower(part: &Part, settings: Settings) -> Result<Lowered, Error> {
    let graph = part.graph()?;
    let nodes = &graph.blocks[graph.body].nodes;
    let selections = Selections::of_part(graph, &part.model);
    for node in nodes {
        selections.require(*node).map_err(|error| graph.locate(error, *node))?;
    }
    let mut lowering = Lowering {
        model: &part.model,
        graph,
        selections: &selections,
        plan: Plan::new(&graph.symbols, settings.precision),
        views: FxHashMap::default(),
        integer_inputs: FxHashMap::default(),
        positions: FxHashMap::default(),
        by_dim_order: FxHashMap::default(),
        bytes_by_dim_order: FxHashMap::default(),
        rows: FxHashMap::default(),
        cached: FxHashMap::default(),
        scales: FxHashMap::default(),
        fusion: Fusion::of(graph, &selections),
        rounded: FxHashSet::default(),
        in_place: states::in_place(graph, &selections),
        threads: settings.threads,
    };
    for input in &graph.inputs {
        let Input::Value(value) = input else { return Err(error("an input that is fixed")) };
        let ty = graph.tensor(*value)?;
        let view = lowering.plan.input(ty);
        let is_integer = matches!(ty.dtype, ScalarType::Long | ScalarType::Int);
        let views = if is_integer { &mut lowering.integer_inputs } else { &mut lowering.views };
        views.insert(*value, view);
    }
    // Sizes are known once all inputs are added.
    for input in &graph.inputs {
        if let Input::Value(value) = input {
            lowering.enter(*value)?;
        }
    }
    lowering.states()?;
    for node in nodes {
        lowering.node(*node).map_err(|error| graph.locate(error, *node))?;
    }
    let mut outputs = Vec::with_capacity(graph.outputs.len());
    for output in &graph.outputs {
        let value = output.as_value().ok_or_else(|| error("an output that is no tensor"))?;
        let dtype = graph.tensor(value)?.dtype;
        let view = if is_stored_as_byte(dtype) { lowering.stored_dense(value)? } else { lowering.dense(value)? };
        outputs.push((view, dtype));
    }
    for (view, dtype) in &outputs {
        // An output that shares its buffer with another is copied.
        let alone = outputs.iter().filter(|(other, _)| other.buffer == view.buffer).count() == 1;
        lowering.plan.output(view, *dtype, alone)?;
    }
    lowering.update_states()?;
    let precisions = nodes.iter().filter_map(|node| Some((*node, lowering.precision(*node)?))).collect();
    let (program, named_data) = lowering.plan.finish(&settings, &part.progress)?;
    Ok(Lowered { program, named_data, precisions })
}

/// A part being lowered.
struct Lowering<'a> {
    model: &'a Model,
    graph: &'a Graph,
    selections: &'a Selections,
    plan: Plan<'a>,
    /// The views of computed values. Quantized tensors and integers are bytes.
    views: FxHashMap<ValueId, View>,
    /// The caller's integers in their own type, and views of them.
    integer_inputs: FxHashMap<ValueId, View>,
    /// By buffer of the caller's integers, the buffer that holds them as floats.
    positions: FxHashMap<usize, usize>,
    /// Constants, and copies of computed values, by their dim order.
    by_dim_order: FxHashMap<(ValueId, Vec<usize>), View>,
    /// As above, for elements of 8 bits.
    bytes_by_dim_order: FxHashMap<(ValueId, Vec<usize>), View>,
    /// Dynamically quantized values.
    rows: FxHashMap<ValueId, DynamicRows>,
    /// Rows of caches that are stored in other types than f32, by the dequantized value.
    cached: FxHashMap<ValueId, CachedRows>,
    /// Scales and zero points that are computed at run time, by the value of the scales.
    scales: FxHashMap<ValueId, View>,
    fusion: Fusion,
    /// GEMMs and convolutions whose weights were rounded to 16 bits.
    rounded: FxHashSet<NodeId>,
    /// Scatters that write a state in place.
    in_place: FxHashSet<NodeId>,
    /// The number of threads that read weights.
    threads: usize,
}

impl<'a> Lowering<'a> {
    /// Converts an input whose type in the arena differs from the caller's.
    fn enter(&mut self, value: ValueId) -> Result<(), Error> {
        let ty = self.graph.tensor(value)?;
        let affine = match ty.dtype {
            dtype if is_stored_as_byte(dtype) => Some(integral(dtype)),
            ScalarType::Float => return Ok(()),
            dtype if !is_stored_as_float(dtype) => return Ok(()),
            _ => None,
        };
        let from = self.view(value)?;
        let order = (0..ty.shape.len()).collect();
        let to = self.plan.ordered_as(ty.shape.clone(), order, affine)?;
        let x = self.plan.window_of(&from, &from.dims(), ty.dtype)?;
        let element = ConvertedType::of(ty.dtype).ok_or_else(|| error("an input of a type that is not held"))?;
        let step = Convert { x, y: self.plan.tensor(&to)?, element, direction: Direction::Enter };
        self.plan.step(self.graph.values[value].name.clone(), Step::Convert(step));
        self.views.insert(value, to);
        Ok(())
    }

    fn node(&mut self, id: NodeId) -> Result<(), Error> {
        if self.fusion.inner.contains(&id) || self.fusion.absorbed.contains(&id) {
            return Ok(());
        }
        // A GEMM is computed at the node that ends its epilogue.
        let id = self.fusion.ends.get(&id).copied().unwrap_or(id);
        let call = Call::new(self.graph, id);
        match self.selections.require(id)? {
            Selection::Convolution(convolution) => self.convolution(id, convolution),
            Selection::Gemm(gemm) => self.gemm(id, gemm),
            Selection::BatchedGemm(gemm) => self.batched(&call, *gemm),
            Selection::Experts(experts) => self.experts(id, experts),
            Selection::TopK(top) => self.top_k(&call, *top),
            Selection::GatherElements(gather) => self.gather_elements(&call, *gather),
            Selection::Attention(attention) => self.attention(&call, attention),
            Selection::DeltaRule(rule) => self.delta_rule(&call, *rule),
            Selection::Pooling(pooling) => self.pool(&call, *pooling),
            Selection::VolumePooling(pooling) => self.pool_volume(&call, *pooling),
            Selection::Reduction(reduction) => self.reduce(&call, reduction),
            Selection::Resize(resize) => self.resize(&call, *resize),
            Selection::Softmax(softmax) => self.softmax(&call, *softmax),
            Selection::Norm(norm) => self.norm(&call, *norm),
            Selection::Embedding(embedding) => self.embedding(&call, embedding),
            Selection::Elementwise(elementwise) => match self.widened_rows(elementwise) {
                Some(rows) => {
                    self.store_half(call.result()?, rows);
                    Ok(())
                }
                None => self.elementwise(id),
            },
            Selection::DataMovement(operator) => self.data_movement(&call, operator),
            Selection::Quantize { input, affine } => self.quantize(id, *input, *affine),
            Selection::Dequantize { input, affine } => self.dequantize(&call, *input, *affine),
            Selection::Dynamic(dynamic) => self.dynamic(&call, dynamic),
            Selection::NibbleQuantize(rows) => self.quantize_nibbles(&call, *rows),
            Selection::RowDequantize(rows) => self.dequantize_rows(call.result()?, rows),
            Selection::Range(range) => self.range(&call, range),
            Selection::Scatter(scatter) => self.scatter(id, *scatter),
            Selection::Number { input, symbol } => self.read_number(*input, *symbol),
        }
    }

    /// Binds a symbol to a number that the step reads from an input.
    fn read_number(&mut self, input: ValueId, symbol: SymbolId) -> Result<(), Error> {
        let view = self.integer_inputs.get(&input).cloned();
        let view = view.ok_or_else(|| Error::unsupported("a number from a tensor that is no input"))?;
        let index = view.offset.as_int().and_then(|index| u32::try_from(index).ok());
        let index = index.ok_or_else(|| Error::unsupported("a number at a computed place of a tensor"))?;
        self.plan.bind_element(&view, index, symbol)
    }

    /// Names a step in profiles: by the node that it computes, or by the value if there is no node.
    fn label(&self, call: &Call<'_>) -> String {
        let origin = &self.graph.origins[call.node.origin];
        if !origin.node.is_empty() {
            return origin.node.clone();
        }
        let name = call.result().map(|result| self.graph.values[result].name.clone());
        name.unwrap_or_else(|_| call.name().to_owned())
    }

    fn constant_of(&self, value: ValueId) -> Option<&'a Constant> {
        match self.graph.values[value].def {
            Def::Constant(id) => Some(&self.model.constants[id]),
            _ => None,
        }
    }

    /// Returns the view of a value; its elements may be bytes.
    fn view(&mut self, value: ValueId) -> Result<View, Error> {
        if let Some(view) = self.views.get(&value) {
            return Ok(view.clone());
        }
        if self.constant_of(value).is_some() {
            return self.dense(value);
        }
        if let Some(view) = self.integer_inputs.get(&value).cloned() {
            let view = self.as_positions(value, view)?;
            self.views.insert(value, view.clone());
            return Ok(view);
        }
        let view = if let Some(rows) = self.rows.get(&value).cloned() {
            match self.graph.tensor(value)?.dtype {
                ScalarType::Char => Some(self.in_rows(&rows.bytes)?.with_affine(Some(integral(ScalarType::Char)))),
                _ => Some(self.dequantized_rows(&rows)?),
            }
        } else if let Some(rows) = self.cached.get(&value).cloned() {
            Some(self.floats_of_cache(&rows)?)
        } else {
            None
        };
        if let Some(view) = view {
            self.views.insert(value, view.clone());
            return Ok(view);
        }
        Err(error(format!("`{}` is used before it is computed", self.graph.values[value].name)))
    }

    /// Stores a constant in the given dim order.
    fn store(&mut self, constant: &Constant, order: &[usize]) -> Result<View, Error> {
        let permuted = match &constant.data {
            // A computed constant is computed once and then shared.
            ConstantData::Computed(_) => {
                Constant::dense(&constant.name, constant.ty.clone(), constant.read()?)?.permuted(order)
            }
            _ => constant.permuted(order),
        };
        let permuted = permuted.ok_or_else(|| error(format!("`{}` has other dimensions", constant.name)))?;
        let buffer = match permuted.in_place() {
            Some(bytes) if constant.ty.dtype == ScalarType::Float && constants::stays(&bytes) => {
                self.plan.constant_in_place(&constant.name, bytes)
            }
            _ => self.plan.constant(&constant.name, &constants::floats(&permuted)?),
        };
        Ok(View::ordered(buffer, constant.ty.shape.clone(), order.to_vec()))
    }

    /// Returns a value as floats in row-major order.
    fn dense(&mut self, value: ValueId) -> Result<View, Error> {
        let rank = self.graph.tensor(value)?.rank();
        self.in_order(value, &(0..rank).collect::<Vec<_>>())
    }

    /// Returns a value in row-major order in its own storage, floats or bytes.
    fn stored_dense(&mut self, value: ValueId) -> Result<View, Error> {
        let rank = self.graph.tensor(value)?.rank();
        self.stored_in_order(value, &(0..rank).collect::<Vec<_>>())
    }

    /// Returns a value in the given dim order in its own storage, floats or bytes.
    fn stored_in_order(&mut self, value: ValueId, order: &[usize]) -> Result<View, Error> {
        let is_constant = self.constant_of(value).is_some();
        if is_constant || self.view(value)?.affine.is_none() {
            return self.in_order(value, order);
        }
        let key = (value, order.to_vec());
        if let Some(view) = self.bytes_by_dim_order.get(&key) {
            return Ok(view.clone());
        }
        let view = self.view(value)?;
        let view = self.reordered(&view, order)?;
        self.bytes_by_dim_order.insert(key, view.clone());
        Ok(view)
    }

    /// Returns a value as floats in the given dim order.
    fn in_order(&mut self, value: ValueId, order: &[usize]) -> Result<View, Error> {
        let key = (value, order.to_vec());
        if let Some(view) = self.by_dim_order.get(&key) {
            return Ok(view.clone());
        }
        let view = match self.constant_of(value) {
            Some(constant) => self.store(constant, order)?,
            None if self.view(value)?.affine.is_some() => {
                let bytes = self.stored_in_order(value, order)?;
                self.converted("dequantize", &bytes, None)?
            }
            None => {
                let view = self.view(value)?;
                self.reordered(&view, order)?
            }
        };
        self.by_dim_order.insert(key, view.clone());
        Ok(view)
    }

    /// Returns a view in the given dim order. Copies it if its order differs.
    fn reordered(&mut self, view: &View, order: &[usize]) -> Result<View, Error> {
        if view.is_in(order) {
            return Ok(View { order: order.to_vec(), ..view.clone() });
        }
        let to = self.plan.ordered_as(view.shape.clone(), order.to_vec(), view.affine)?;
        self.copy("reorder", view, &to, None)?;
        Ok(to)
    }

    /// Converts a view that covers its whole buffer to floats, or to bytes if there is an affine.
    fn converted(&mut self, name: &str, from: &View, affine: Option<Affine>) -> Result<View, Error> {
        let to = self.plan.ordered_as(from.shape.clone(), from.order.clone(), affine)?;
        let x = self.plan.tensor(from)?;
        self.broadcast(name, x, &to)?;
        Ok(to)
    }

    /// Writes a tensor to a view, element by element; sizes of 1 broadcast.
    fn broadcast(&mut self, name: &str, x: TensorId, to: &View) -> Result<(), Error> {
        let identity = Instruction::Unary { to: 0, function: Unary::Identity, x: Operand::Tensor(0) };
        let y = self.plan.tensor(to)?;
        self.plan.step(name, Step::Elementwise(Elementwise { operands: vec![x], y, instructions: vec![identity] }));
        Ok(())
    }

    /// Returns a value as floats in any dim order.
    fn floats(&mut self, value: ValueId) -> Result<View, Error> {
        let view = self.view(value)?;
        if view.affine.is_none() { Ok(view) } else { self.in_order(value, &view.order) }
    }

    /// Dequantizes integers. The bytes stay as they are.
    fn dequantize(&mut self, call: &Call<'_>, input: ValueId, affine: Affine) -> Result<(), Error> {
        let view = match self.constant_of(input) {
            Some(constant) => self.integers(constant)?,
            None => self.view(input)?,
        };
        self.views.insert(call.result()?, view.with_affine(Some(affine)));
        Ok(())
    }

    /// Stores constant integers as bytes of the arena.
    fn integers(&mut self, constant: &Constant) -> Result<View, Error> {
        let dtype = constant.ty.dtype;
        let numbers: Vec<f32> = match dtype {
            ScalarType::Char => constant.read()?.iter().map(|byte| f32::from(byte.cast_signed())).collect(),
            ScalarType::Byte => constant.read()?.iter().map(|byte| f32::from(*byte)).collect(),
            _ => return Err(error(format!("`{}` has no integers of 8 bits", constant.name))),
        };
        let view = View::dense(self.plan.constant(&constant.name, &numbers), constant.ty.shape.clone());
        self.converted("quantize", &view, Some(integral(dtype)))
    }

    /// Quantizes floats. A value that is stored as the same bytes stays as it is.
    fn quantize(&mut self, id: NodeId, input: ValueId, affine: Affine) -> Result<(), Error> {
        let result = Call::new(self.graph, id).result()?;
        if self.views.contains_key(&result) {
            // The input was already computed as bytes.
            return Ok(());
        }
        if let Some(view) = self.views.get(&input)
            && view.affine == Some(affine)
        {
            let view = view.clone();
            self.views.insert(result, view);
            return Ok(());
        }
        self.elementwise(id)
    }

    /// Returns the affine and the result of the node that quantizes a value, if it is the only user. The value is then
    /// computed as bytes.
    fn quantized_result(&self, value: ValueId) -> Option<(Affine, ValueId)> {
        let node = self.fusion.quantized.get(&value)?;
        match self.selections.get(*node)? {
            Selection::Quantize { affine, .. } => Some((*affine, *self.graph.nodes[*node].results.first()?)),
            _ => None,
        }
    }

    /// Returns the input of a step, the affine of its result, and the value that the step writes. If both the input and
    /// the result are quantized, the input stays as it is stored; otherwise it is read as floats.
    fn quantized_with(
        &mut self,
        input: ValueId,
        order: &[usize],
        result: ValueId,
    ) -> Result<(View, Option<Affine>, ValueId), Error> {
        match self.quantized_result(result) {
            Some((affine, quantized)) if self.view(input)?.affine.is_some() => {
                Ok((self.stored_in_order(input, order)?, Some(affine), quantized))
            }
            _ => Ok((self.in_order(input, order)?, None, result)),
        }
    }

    /// Returns a value without gaps, in its own dim order.
    fn non_overlapping_dense(&mut self, value: ValueId) -> Result<View, Error> {
        let order = self.view(value)?.order;
        self.in_order(value, &order)
    }

    /// Copies the elements of one view to another of the same shape. `fill` goes to the rest of the destination's
    /// buffer.
    fn copy(&mut self, name: &str, from: &View, to: &View, fill: Option<f32>) -> Result<(), Error> {
        let plan = &mut self.plan;
        // The dims are in the order of the destination.
        let mut dims: Vec<usize> = to.order.clone();
        dims.retain(|dim| !to.shape[*dim].is(1));
        let all = |plan: &mut Plan<'_>, exprs: &[Expr]| {
            dims.iter().map(|dim| plan.size(&exprs[*dim])).collect::<Result<Vec<_>, _>>()
        };
        let whole = plan.whole(to)?;
        let copy = Copy {
            x: plan.window(from, &[from.span()])?,
            y: plan.window(&whole, &whole.shape)?,
            sizes: all(plan, &to.shape)?,
            x_offset: Size::Fixed(0),
            x_strides: all(plan, &from.strides)?,
            y_offset: plan.size(&to.offset)?,
            y_strides: all(plan, &to.strides)?,
            fill,
        };
        plan.step(name, Step::Copy(copy));
        Ok(())
    }

    /// Looks up rows of a constant table.
    fn embedding(&mut self, call: &Call<'_>, embedding: &'a Embedding) -> Result<(), Error> {
        let result = call.result()?;
        let constant = &self.model.constants[embedding.table];
        let (table, format) = match &embedding.quantized {
            Some(weights) => {
                let format = TableFormat::Quantized { format: weights.format(), rows: weights.matrix.n as u32 };
                (self.weight_only(&constant.name, weights)?, format)
            }
            None => {
                let table = self.store(constant, &[0, 1])?;
                (self.plan.tensor(&table)?, TableFormat::F32)
            }
        };
        let indices = embedding.indices;
        let dtype = self.graph.tensor(indices)?.dtype;
        let given = self.integer_inputs.get(&indices).filter(|view| view.is_dense()).cloned();
        let indices = match given {
            Some(view) => self.plan.window_of(&view, &view.dims(), dtype)?,
            None => {
                let computed = self.dense(indices)?;
                self.plan.tensor(&computed)?
            }
        };
        let to = self.plan.dense(self.graph.tensor(result)?.shape.clone())?;
        let y = self.plan.tensor(&to)?;
        self.plan.step(self.label(call), Step::Gather(Gather { table, format, indices, y }));
        self.views.insert(result, to);
        Ok(())
    }
}
