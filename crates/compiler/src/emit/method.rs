//! Emits one method: its values and instructions.

use rustc_hash::{FxHashMap, FxHashSet};

use rushlight_format::pte::ShapeDynamism;
use rushlight_format::pte::{
    DelegateModel, FrameModel, InstructionModel, PlanModel, StorageModel, TensorModel, ValueModel,
};

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{
    Arg, BlockId, Constant, ConstantData, Def, Graph, Input, Model, NodeId, Op, Origin, StateId, Target, TensorType,
    Type, ValueId,
};

use super::lifetimes;
use super::options::EmitOptions;
use super::pools::{Pools, sizes};
use super::storage::{ARENA, SHARED_ARENA, SharedStates, Slot, SlotInfo, Slots};
use crate::debug_map::{InstructionOrigin, MethodMap};

/// A method while it is emitted.
pub(super) struct Method<'m> {
    pub model: &'m Model,
    pub graph: &'m Graph,
    pools: &'m mut Pools,
    pub options: &'m EmitOptions,
    shared: &'m SharedStates,
    pub plan: PlanModel<'static>,
    /// By value of the graph: its value of the program.
    values: FxHashMap<ValueId, u32>,
    states: FxHashMap<StateId, u32>,
    delegates: FxHashMap<rushlight_graph::DelegateId, u32>,
    /// Literals that were already emitted.
    literals: FxHashMap<Literal, u32>,
    pub slots: Slots,
    /// The slot of each value of the program; `None` if it is not a tensor.
    slot_of: Vec<Option<Slot>>,
    origins: Vec<Option<InstructionOrigin>>,
    frames: Vec<Vec<FrameModel>>,
    /// The node that is being emitted.
    node: Option<NodeId>,
}

/// A literal as a key. Floats are compared by their bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Literal {
    None,
    Int(i64),
    Bool(bool),
    Double(u64),
    Str(String),
}

impl<'m> Method<'m> {
    pub fn new(
        model: &'m Model,
        graph: &'m Graph,
        pools: &'m mut Pools,
        options: &'m EmitOptions,
        shared: &'m SharedStates,
    ) -> Self {
        Self {
            model,
            graph,
            pools,
            options,
            shared,
            plan: PlanModel::new(""),
            values: FxHashMap::default(),
            states: FxHashMap::default(),
            delegates: FxHashMap::default(),
            literals: FxHashMap::default(),
            slots: Slots::default(),
            slot_of: Vec::new(),
            origins: Vec::new(),
            frames: Vec::new(),
            node: None,
        }
    }

    /// Finishes the method.
    pub fn finish(mut self, name: &str) -> Result<(PlanModel<'static>, MethodMap), Error> {
        self.plan.name = name.into();
        self.plan.input_encoding.clone_from(&self.graph.input_encoding);
        self.plan.output_encoding.clone_from(&self.graph.output_encoding);
        for input in &self.graph.inputs {
            let value = match input {
                Input::Value(value) => self.input(*value)?,
                Input::Literal(arg) => self.argument(arg)?,
            };
            self.plan.inputs.push(value);
        }
        self.block(self.graph.body)?;
        self.node = None;
        let mut outputs = self.graph.outputs.iter().map(|arg| self.argument(arg)).collect::<Result<Vec<_>, _>>()?;
        self.write_back(&mut outputs)?;
        if self.options.separate_outputs {
            self.separate(&mut outputs)?;
        }
        // The inputs that a call writes come first, as in ExecuTorch's programs: the caller's own memory does not
        // change.
        outputs.splice(0..0, self.written_inputs()?);
        if !self.options.plan_outputs {
            self.unplan_outputs(&outputs);
        }
        self.plan.outputs = outputs;
        self.slot_of.resize(self.plan.values.len(), None);
        let Self { mut plan, slots, slot_of, options, frames, origins, .. } = self;
        lifetimes::place(&mut plan, &slots, &slot_of, options.alignment, options.keep_results)?;
        if options.stack_traces {
            plan.stacktrace = frames;
        }
        Ok((plan, MethodMap { method: name.into(), instructions: origins }))
    }

    /// Emits the nodes of a block.
    pub fn block(&mut self, block: BlockId) -> Result<(), Error> {
        let graph = self.graph;
        let mut rest = graph.blocks[block].nodes.as_slice();
        while let [node, after @ ..] = rest {
            rest = after;
            let outer = self.node.replace(*node);
            if block == graph.body {
                self.update_in_place(&graph.nodes[*node], rest)?;
            }
            self.node(*node).map_err(|error| graph.locate(error, *node))?;
            self.node = outer;
        }
        Ok(())
    }

    fn node(&mut self, id: NodeId) -> Result<(), Error> {
        let node = &self.graph.nodes[id];
        match &node.op {
            Op::Call(schema) => self.call(schema, node),
            Op::Cond => self.cond(node),
            Op::While => self.while_loop(node),
            Op::Scan => self.scan(node),
            Op::Delegate(delegate) => {
                let index = self.delegate(*delegate);
                let mut args = node.args.iter().map(|arg| self.argument(arg)).collect::<Result<Vec<_>, _>>()?;
                for result in &node.results {
                    args.push(self.value(*result)?);
                }
                self.emit(InstructionModel::Delegate { delegate: index, args });
                Ok(())
            }
        }
    }

    /// Adds an instruction, and records its origin.
    pub fn emit(&mut self, instruction: InstructionModel) {
        self.plan.instructions.push(instruction);
        let origin = self.node.map(|node| {
            let node = &self.graph.nodes[node];
            let of = |op: &str, origin: &Origin| InstructionOrigin {
                op: op.into(),
                node: origin.node.clone(),
                module: origin.module.clone(),
                source: origin.line(),
                ..InstructionOrigin::default()
            };
            let nodes = match node.op {
                Op::Delegate(id) => self.model.delegates[id].nodes.iter(),
                _ => [].iter(),
            };
            InstructionOrigin {
                results: node.results.iter().map(|result| self.graph.values[*result].name.clone()).collect(),
                nodes: nodes.map(|node| of(&node.op, &node.origin)).collect(),
                ..of(node.op.name(), &self.graph.origins[node.origin])
            }
        });
        if self.options.stack_traces {
            self.frames.push(self.node.map_or_else(Vec::new, |node| frames(self.graph, node)));
        }
        self.origins.push(origin);
    }

    /// Adds a call of a runtime operator, such as `aten::add.out`.
    pub fn kernel(&mut self, name: &str, args: Vec<u32>) {
        let (base, overload) = name.split_once('.').unwrap_or((name, ""));
        let operator = self.plan.operator(base, overload);
        self.emit(InstructionModel::Kernel { operator, args });
    }

    /// Returns the index of the next instruction.
    pub fn here(&self) -> usize {
        self.plan.instructions.len()
    }

    /// Returns the program's value of a value of the graph. Adds it on first use.
    pub fn value(&mut self, id: ValueId) -> Result<u32, Error> {
        if let Some(index) = self.values.get(&id) {
            return Ok(*index);
        }
        let value = &self.graph.values[id];
        let index = match (&value.def, &value.ty) {
            (Def::Constant(constant), _) => {
                let tensor = self.pools.tensor(&self.model.constants[*constant])?;
                let info = SlotInfo { bytes: 0, memory_id: 0, fixed: None, whole_call: false, elsewhere: true };
                let slot = self.slots.push(info);
                self.push_tensor(tensor, slot)
            }
            (Def::State(state), _) => self.state(*state)?,
            (_, Type::Tensor(ty)) => {
                let (tensor, bytes) = self.tensor_model(ty, &value.name)?;
                let slot = self.slots.computed(bytes);
                self.push_tensor(tensor, slot)
            }
            (_, Type::Int(_)) => self.push(ValueModel::Int(0)),
            (_, Type::Float) => self.push(ValueModel::Double(0.0)),
            (_, Type::Bool) => self.push(ValueModel::Bool(false)),
        };
        self.values.insert(id, index);
        Ok(index)
    }

    /// Returns the index in the program of a value of the graph, if it has been emitted.
    pub fn emitted(&self, id: ValueId) -> Option<u32> {
        self.values.get(&id).copied()
    }

    /// Makes `id` another name of a value of the program.
    pub fn alias(&mut self, id: ValueId, index: u32) {
        self.values.insert(id, index);
    }

    /// Adds a tensor in the memory of another, with its own type.
    pub fn view(&mut self, id: ValueId, base: u32) -> Result<u32, Error> {
        let value = &self.graph.values[id];
        let (mut tensor, _) = self.tensor_model(self.graph.tensor(id)?, &value.name)?;
        if let Some(ValueModel::Tensor(base)) = self.plan.values.get(base as usize) {
            // State is initialized once.
            tensor.storage = match base.storage {
                StorageModel::PlannedInit { memory_id, offset, .. } => StorageModel::Planned { memory_id, offset },
                storage => storage,
            };
        }
        let slot = self.slot(base).unwrap_or_else(|| self.slots.computed(0));
        let index = self.push_tensor(tensor, slot);
        self.values.insert(id, index);
        Ok(index)
    }

    /// Adds a tensor of this type that is not a value of the graph.
    pub fn temporary(&mut self, ty: &TensorType) -> Result<u32, Error> {
        let (tensor, bytes) = self.tensor_model(ty, "temporary")?;
        let slot = self.slots.computed(bytes);
        Ok(self.push_tensor(tensor, slot))
    }

    /// Returns the slot of a tensor of the program.
    pub fn slot(&self, index: u32) -> Option<Slot> {
        self.slot_of.get(index as usize).copied().flatten()
    }

    /// Adds a value of the program that instructions may write.
    pub fn push(&mut self, value: ValueModel) -> u32 {
        self.plan.push(value)
    }

    /// Adds a number, truth value or text that is only read.
    fn literal(&mut self, key: Literal) -> u32 {
        let plan = &mut self.plan;
        *self.literals.entry(key).or_insert_with_key(|key| {
            plan.push(match key {
                Literal::None => ValueModel::None,
                Literal::Int(int) => ValueModel::Int(*int),
                Literal::Bool(bool) => ValueModel::Bool(*bool),
                Literal::Double(bits) => ValueModel::Double(f64::from_bits(*bits)),
                Literal::Str(text) => ValueModel::String(text.clone()),
            })
        })
    }

    pub fn none(&mut self) -> u32 {
        self.literal(Literal::None)
    }

    pub fn int(&mut self, int: i64) -> u32 {
        self.literal(Literal::Int(int))
    }

    pub fn bool(&mut self, bool: bool) -> u32 {
        self.literal(Literal::Bool(bool))
    }

    pub fn double(&mut self, double: f64) -> u32 {
        self.literal(Literal::Double(double.to_bits()))
    }

    pub fn text(&mut self, text: &str) -> u32 {
        self.literal(Literal::Str(text.into()))
    }

    /// Lets a tensor change its sizes, up to its planned sizes. ExecuTorch's stacks grow row by row.
    pub fn make_dynamic(&mut self, index: u32) {
        if let Some(ValueModel::Tensor(tensor)) = self.plan.values.get_mut(index as usize) {
            tensor.shape_dynamism = ShapeDynamism::DynamicBound;
        }
    }

    /// Copies a tensor into another of the same shape and dtype, also if the shape is dynamic.
    pub fn copy(&mut self, from: u32, to: u32) {
        let none = self.none();
        self.kernel(aten::CLONE_OUT, vec![from, none, to, to]);
    }

    fn input(&mut self, id: ValueId) -> Result<u32, Error> {
        let value = &self.graph.values[id];
        let Type::Tensor(ty) = &value.ty else { return self.value(id) };
        let (tensor, bytes) = self.tensor_model(ty, &value.name)?;
        let elsewhere = !self.options.plan_inputs;
        let slot = self.slots.push(SlotInfo { bytes, memory_id: ARENA, fixed: None, whole_call: false, elsewhere });
        let index = self.push_tensor(tensor, slot);
        self.values.insert(id, index);
        Ok(index)
    }

    /// Returns the tensor of the program that holds a state.
    pub fn state(&mut self, id: StateId) -> Result<u32, Error> {
        if let Some(index) = self.states.get(&id) {
            return Ok(*index);
        }
        let state = &self.model.states[id];
        let (mut tensor, bytes) = self.tensor_model(&state.ty, &state.name)?;
        let (memory_id, fixed) = match self.shared.offsets.get(&id) {
            Some(offset) => (SHARED_ARENA, Some(*offset)),
            None => (ARENA, None),
        };
        let initial = Constant { name: state.name.clone(), ty: state.ty.clone(), data: state.initial.clone() };
        tensor.storage = StorageModel::Planned { memory_id, offset: 0 };
        if !matches!(initial.data, ConstantData::Zeros) {
            let data = initial.read()?;
            // Memory is initialized with zeros.
            if data.iter().any(|byte| *byte != 0) {
                let initial = Constant { data: ConstantData::Dense(data), ..initial };
                let index = self.pools.initial_values.insert(&initial)?;
                tensor.storage = StorageModel::PlannedInit { memory_id, offset: 0, index };
            }
        }
        tensor.fully_qualified_name = Some(state.name.clone());
        let slot = self.slots.push(SlotInfo { bytes, memory_id, fixed, whole_call: true, elsewhere: false });
        let index = self.push_tensor(tensor, slot);
        self.states.insert(id, index);
        Ok(index)
    }

    fn delegate(&mut self, id: rushlight_graph::DelegateId) -> u32 {
        let (plan, model) = (&mut self.plan, self.model);
        *self.delegates.entry(id).or_insert_with(|| {
            plan.delegates.push(delegate(model, id));
            plan.delegates.len() as u32 - 1
        })
    }

    /// Returns the inputs that the call writes.
    fn written_inputs(&mut self) -> Result<Vec<u32>, Error> {
        let mut written = Vec::new();
        for update in &self.graph.updates {
            if let Target::Input(position) = update.target {
                written.push(self.input_at(position)?);
            }
        }
        Ok(written)
    }

    fn input_at(&mut self, position: u32) -> Result<u32, Error> {
        match self.graph.inputs.get(position as usize) {
            Some(Input::Value(value)) => self.value(*value),
            _ => Err(Error::invalid("an update of an input that is not there")),
        }
    }

    /// Stores the new contents of states and inputs. Saves old contents that a later store or an output still reads.
    fn write_back(&mut self, outputs: &mut [u32]) -> Result<(), Error> {
        let mut stores = Vec::new();
        for update in &self.graph.updates {
            let to = match update.target {
                Target::State(state) => self.state(state)?,
                Target::Input(position) => self.input_at(position)?,
            };
            stores.push((self.value(update.value)?, to, update.value));
        }
        stores.retain(|(from, to, _)| !self.shares_slot(*from, *to));
        let targets: Vec<u32> = stores.iter().map(|(_, to, _)| *to).collect();
        let is_overwritten = |method: &Self, value| targets.iter().any(|target| method.shares_slot(value, *target));
        for (from, _, value) in &mut stores {
            if is_overwritten(self, *from) {
                *from = self.save(*from, *value)?;
            }
        }
        for (output, arg) in outputs.iter_mut().zip(&self.graph.outputs) {
            if let (true, Some(value)) = (is_overwritten(self, *output), arg.as_value()) {
                *output = self.save(*output, value)?;
            }
        }
        let non_blocking = self.bool(false);
        for (from, to, _) in stores {
            self.kernel(aten::COPY_, vec![to, from, non_blocking, to]);
        }
        Ok(())
    }

    /// Copies each output that is an input or an earlier output.
    fn separate(&mut self, outputs: &mut [u32]) -> Result<(), Error> {
        let mut taken: FxHashSet<u32> = self.plan.inputs.iter().copied().collect();
        for (output, arg) in outputs.iter_mut().zip(&self.graph.outputs) {
            if let (false, Some(value)) = (taken.insert(*output), arg.as_value()) {
                *output = self.save(*output, value)?;
            }
        }
        Ok(())
    }

    /// True if two tensors of the program share memory.
    pub fn shares_slot(&self, a: u32, b: u32) -> bool {
        matches!((self.slot(a), self.slot(b)), (Some(a), Some(b)) if self.slots.find(a) == self.slots.find(b))
    }

    /// Leaves the memory of outputs that the method computes to the caller.
    fn unplan_outputs(&mut self, outputs: &[u32]) {
        for output in outputs {
            let Some(slot) = self.slot(*output) else { continue };
            let info = self.slots.get(slot);
            let is_input = self.plan.inputs.contains(output);
            if !info.whole_call && !is_input {
                self.slots.get_mut(slot).elsewhere = true;
            }
        }
    }

    fn push_tensor(&mut self, tensor: TensorModel, slot: Slot) -> u32 {
        let index = self.push(ValueModel::Tensor(tensor));
        self.slot_of.resize(index as usize + 1, None);
        self.slot_of[index as usize] = Some(slot);
        index
    }

    /// Returns the tensor with its largest sizes, and its size in bytes.
    fn tensor_model(&self, ty: &TensorType, name: &str) -> Result<(TensorModel, u64), Error> {
        let symbols = &self.graph.symbols;
        let unbounded = |size: &rushlight_graph::Expr| {
            let mut is_of_data = false;
            size.for_each_symbol(&mut |symbol| is_of_data |= symbols[symbol].name.starts_with('u'));
            Error::unsupported(format!("`{name}` has a size without an upper bound: {}", size.display(symbols))).help(
                if is_of_data {
                    "the size depends on data; bound it in the model, behind the operator that has it as its result: \
                     torch._check(x.shape[0] <= 100)"
                } else {
                    "export with a bound: torch.export.Dim(\"name\", max=…)"
                },
            )
        };
        let bound =
            |size: &rushlight_graph::Expr| size.upper_bound(symbols).ok_or_else(|| unbounded(size)).map(Into::into);
        let largest = ty.shape.iter().map(bound).collect::<Result<Vec<rushlight_graph::Expr>, _>>()?;
        let mut tensor = TensorModel::new(ty.dtype, &sizes(&largest, name)?).ordered(&ty.dim_order);
        if ty.static_sizes().is_none() {
            tensor.shape_dynamism = ShapeDynamism::DynamicBound;
        }
        let bytes = tensor.nbytes();
        Ok((tensor, bytes))
    }

    /// Adds an argument, by its kind.
    pub fn argument(&mut self, arg: &Arg) -> Result<u32, Error> {
        Ok(match arg {
            Arg::None => self.none(),
            Arg::Value(value) => self.value(*value)?,
            Arg::Int(expr) => match expr.as_int() {
                Some(int) => self.int(int),
                None => return Err(Error::invalid("a size was not lowered").got(expr.display(&self.graph.symbols))),
            },
            Arg::Float(float) => self.double(*float),
            Arg::Bool(bool) => self.bool(*bool),
            Arg::Str(text) => self.text(text),
            Arg::DType(dtype) => self.int(i64::from(dtype.code())),
            Arg::MemoryFormat(format) => self.int(format.code()),
            // c10's code for strided tensors.
            Arg::Layout(_) => self.int(0),
            Arg::Device(_) => self.none(),
            Arg::Complex(..) => return Err(Error::unsupported("programs hold no complex numbers")),
            Arg::Block(_) => return Err(Error::invalid("a block is no value")),
            Arg::List(items) => self.list(items)?,
        })
    }

    /// Adds a list, by the kind of its items.
    fn list(&mut self, items: &[Arg]) -> Result<u32, Error> {
        let is_tensor =
            |arg: &Arg| matches!(arg, Arg::Value(value) if matches!(self.graph.ty(*value), Type::Tensor(_)));
        let value = if items.iter().any(is_tensor) {
            if items.iter().any(Arg::is_none) {
                let item = |arg: &Arg| if arg.is_none() { Ok(None) } else { self.argument(arg).map(Some) };
                ValueModel::OptionalTensorList(items.iter().map(item).collect::<Result<_, _>>()?)
            } else {
                ValueModel::TensorList(items.iter().map(|item| self.argument(item)).collect::<Result<_, _>>()?)
            }
        } else if !items.is_empty() && items.iter().all(|item| matches!(item, Arg::Bool(_))) {
            ValueModel::BoolList(items.iter().map(|item| matches!(item, Arg::Bool(true))).collect())
        } else if items.iter().any(|item| matches!(item, Arg::Float(_))) {
            let float = |item: &Arg| match item {
                Arg::Float(float) => Ok(*float),
                Arg::Int(expr) => expr.as_int().map(|int| int as f64).ok_or(()),
                _ => Err(()),
            };
            let floats = items.iter().map(float).collect::<Result<_, _>>();
            ValueModel::DoubleList(floats.map_err(|()| Error::unsupported("a list of numbers of several kinds"))?)
        } else {
            ValueModel::IntList(items.iter().map(|item| self.argument(item)).collect::<Result<_, _>>()?)
        };
        Ok(self.push(value))
    }
}

fn frames(graph: &Graph, node: NodeId) -> Vec<FrameModel> {
    let frame = |frame: &rushlight_graph::SourceFrame| FrameModel {
        filename: frame.file.clone(),
        lineno: i32::try_from(frame.line).unwrap_or(i32::MAX),
        name: frame.function.clone(),
        context: frame.code.clone(),
    };
    graph.origins[graph.nodes[node].origin].frames.iter().map(frame).collect()
}

/// Builds the model of a delegate with its payload.
fn delegate(model: &Model, id: rushlight_graph::DelegateId) -> DelegateModel<'static> {
    let delegate = &model.delegates[id];
    DelegateModel {
        id: delegate.backend.clone(),
        data: delegate.payload.to_vec().into(),
        compile_specs: delegate.compile_specs.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect(),
    }
}
