//! Lifts one method by a walk through its instructions.

use std::collections::HashMap;

use rushlight_format::pte::{InstructionModel, PlanModel, ShapeDynamism, StorageModel, TensorModel, ValueModel};
use rushlight_format::shapes::{Rule, SHAPES_KEY, Shapes};

use rushlight_graph::Error;
use rushlight_graph::operators::{aten, dim_order_ops};
use rushlight_graph::{
    Arg, BlockId, ConstantId, DelegateId, Expr, Graph, Input, Model, Op, Origin, OriginId, SourceFrame, StateId,
    Symbol, SymbolId, Target, TensorType, Type, Update, ValueId, bind,
};

use super::accesses::{Access, accesses, operator_name};
use super::regions::Regions;
use super::scope::{Content, Place, Scope};
use super::sources::{Sources, static_type};

/// Maximum number of sizes that views settle.
const MAX_ROUNDS: usize = 64;

/// Limit of the work for each instruction and value of a method, beyond a fixed allowance. Nested jumps make the walk
/// visit instructions again.
const STEPS_EACH: u64 = 2_000;
const STEPS_ALWAYS: u64 = 1_000_000;

/// A method while it is lifted.
pub(super) struct Method<'a, 'f> {
    pub plan: &'a PlanModel<'f>,
    pub sources: &'a mut Sources<'f>,
    pub model: &'a mut Model,
    pub graph: Graph,
    /// The block that nodes are added to.
    pub block: BlockId,
    pub origin: OriginId,
    pub scope: Scope,
    pub accesses: Vec<Access>,
    pub regions: Regions,
    /// Tensors that are state, with their values at the start of a call.
    states: Vec<(u32, StateId, ValueId)>,
    /// The inputs that are tensors, with their positions.
    inputs: Vec<(u32, u32, ValueId)>,
    pub delegates: HashMap<u32, DelegateId>,
    constants: HashMap<u32, Option<ConstantId>>,
    /// Expressions by the symbols that they replace.
    settled: HashMap<SymbolId, Expr>,
    steps: u64,
}

impl<'a, 'f> Method<'a, 'f> {
    pub fn new(plan: &'a PlanModel<'f>, sources: &'a mut Sources<'f>, model: &'a mut Model) -> Result<Self, Error> {
        let mut graph = Graph::new();
        graph.input_encoding.clone_from(&plan.input_encoding);
        graph.output_encoding.clone_from(&plan.output_encoding);
        let origin = graph.origins.push(Origin::default());
        let accesses = accesses(plan, &model.schemas, |index| sources.arguments(&plan.name, index));
        let size = (plan.instructions.len() + plan.values.len()) as u64;
        let mut method = Self {
            plan,
            sources,
            model,
            block: graph.body,
            graph,
            origin,
            scope: Scope::default(),
            accesses,
            regions: Regions::default(),
            states: Vec::new(),
            inputs: Vec::new(),
            delegates: HashMap::new(),
            constants: HashMap::new(),
            settled: HashMap::new(),
            steps: STEPS_ALWAYS.saturating_add(size.saturating_mul(STEPS_EACH)),
        };
        // A tensor that gets the handle of another value has no place in the plan.
        for instruction in &plan.instructions {
            if let InstructionModel::Move { to, .. } = instruction {
                method.scope.handles.insert(*to, Place::Own(*to));
            }
        }
        method.regions = Regions::find(plan, |steps| method.spend(steps as u64))?;
        Ok(method)
    }

    pub fn lift(mut self) -> Result<Graph, Error> {
        self.begin()?;
        self.run(0, self.plan.instructions.len())?;
        self.end()?;
        self.settle_views()?;
        Ok(self.graph)
    }

    /// Counts work, and fails above the limit.
    pub fn spend(&mut self, steps: u64) -> Result<(), Error> {
        let left = self.steps.checked_sub(steps);
        self.steps = left.ok_or_else(|| Error::unsupported("too many jumps over too many instructions"))?;
        Ok(())
    }

    /// Lifts the inputs of the method and the initial state.
    fn begin(&mut self) -> Result<(), Error> {
        let plan = self.plan;
        let fixed = self.fixed_sizes();
        for (position, index) in plan.inputs.iter().enumerate() {
            match plan.values.get(*index as usize) {
                Some(ValueModel::Tensor(tensor)) => {
                    let mut ty = self.tensor_type(tensor, &format!("s{position}_"));
                    // The sizes of a static tensor are its own, whatever a rule says.
                    let is_dynamic = tensor.shape_dynamism != ShapeDynamism::Static;
                    for (dim, (size, bound)) in ty.shape.iter_mut().zip(&tensor.sizes).enumerate() {
                        let is_possible = |known: &&i64| is_dynamic && **known <= i64::from(*bound);
                        if let Some(known) = fixed.get(&(position, dim)).filter(is_possible) {
                            *size = Expr::Int(*known);
                        }
                    }
                    let order = TensorType { dim_order: tensor.dim_order.clone(), ..ty.clone() };
                    let param = self.graph.input(&format!("input_{position}"), Type::Tensor(order.clone()));
                    let value = if order.is_contiguous() { param } else { self.reorder(param, ty)? };
                    self.write(*index, value);
                    self.inputs.push((*index, position as u32, value));
                }
                _ => {
                    let literal = self.literal(*index)?;
                    self.graph.inputs.push(Input::Literal(literal));
                }
            }
        }
        let mut states: Vec<u32> = Vec::new();
        let tensors = || {
            plan.values.iter().enumerate().filter_map(|(index, value)| match value {
                ValueModel::Tensor(tensor) => Some((index as u32, tensor)),
                _ => None,
            })
        };
        let has_init =
            |storage| matches!(storage, StorageModel::PlannedInit { .. } | StorageModel::ExternalPlanned { .. });
        let is_named = |tensor: &TensorModel| {
            matches!(tensor.storage, StorageModel::Planned { .. }) && tensor.fully_qualified_name.is_some()
        };
        states.extend(tensors().filter(|(_, tensor)| has_init(tensor.storage)).map(|(index, _)| index));
        states.extend(tensors().filter(|(_, tensor)| is_named(tensor)).map(|(index, _)| index));
        states.extend(self.read_before_written());
        for index in states {
            let Some(ValueModel::Tensor(tensor)) = plan.values.get(index as usize) else { continue };
            let Some(place) = self.place(index)? else { continue };
            if tensor.shape_dynamism != ShapeDynamism::Static || self.scope.is_taken(place, tensor.nbytes()) {
                continue;
            }
            let state = self.sources.state(tensor, self.model)?;
            let value = self.graph.state(state, &self.model.states);
            self.write(index, value);
            self.states.push((index, state, value));
        }
        Ok(())
    }

    /// Finds planned tensors that are read before anything wrote to their place.
    fn read_before_written(&self) -> Vec<u32> {
        let mut seen = self.scope.clone();
        let mut found = Vec::new();
        let anything = ValueId::new(0);
        for access in &self.accesses {
            for value in access.reads.iter().chain(&access.writes).chain(&access.stack) {
                let Some(ValueModel::Tensor(tensor)) = self.plan.values.get(*value as usize) else { continue };
                let StorageModel::Planned { memory_id, offset } = tensor.storage else { continue };
                let (place, len) = (Place::Planned { memory_id, offset }, tensor.nbytes());
                if len > 0 && !seen.is_taken(place, len) {
                    if access.reads.contains(value) {
                        found.push(*value);
                    }
                    seen.write(place, Content { len, value: anything, by: *value });
                }
            }
        }
        found
    }

    /// Lifts the outputs of the method and the updates of its state.
    fn end(&mut self) -> Result<(), Error> {
        let mut updates = Vec::new();
        for (index, position, initial) in self.inputs.clone() {
            let Some(content) = self.place(index)?.and_then(|place| self.scope.get(place)) else { continue };
            // The memory of an input may be reused for another tensor. Only writes to the input itself are updates.
            if content.by == index && content.value != initial {
                updates.push((index, Update { target: Target::Input(position), value: content.value }));
            }
        }
        // Programs return the inputs that they write before all other outputs. In the graph these are updates.
        let mut leading = 0;
        for index in &self.plan.outputs {
            let place = self.tensor_model(*index).ok().and_then(|_| self.place(*index).ok().flatten());
            let mut rest = updates.iter().skip(leading);
            let Some(found) = rest.position(|(input, _)| place.is_some() && self.place(*input).ok() == Some(place))
            else {
                break;
            };
            updates.swap(leading, leading + found);
            leading += 1;
        }
        for index in self.plan.outputs.iter().skip(leading) {
            let output = match self.plan.values.get(*index as usize) {
                Some(ValueModel::Tensor(tensor)) => {
                    let value = self.read(*index)?;
                    let ty = self.graph.tensor(value)?.clone();
                    if tensor.dim_order.is_sorted() || ty.rank() != tensor.dim_order.len() {
                        value.into()
                    } else {
                        self.reorder(value, TensorType { dim_order: tensor.dim_order.clone(), ..ty })?.into()
                    }
                }
                _ => self.literal(*index)?,
            };
            self.graph.outputs.push(output);
        }
        for (index, state, initial) in self.states.clone() {
            let Some(content) = self.place(index)?.and_then(|place| self.scope.get(place)) else { continue };
            if content.value != initial {
                let value = self.read(index)?;
                self.graph.updates.push(Update { target: Target::State(state), value });
            }
        }
        self.graph.updates.extend(updates.into_iter().map(|(_, update)| update));
        Ok(())
    }

    /// Lifts the instructions of a range.
    pub fn run(&mut self, start: usize, end: usize) -> Result<(), Error> {
        let mut at = start;
        while at < end {
            self.spend(1)?;
            at = self.step(at, end).map_err(|error| self.locate(error, at))?;
        }
        Ok(())
    }

    /// Lifts an instruction, or the control flow that begins there. Returns the next instruction.
    fn step(&mut self, at: usize, end: usize) -> Result<usize, Error> {
        self.origin = self.origin_of(at);
        if let Some(region) = self.regions.loop_at(at, end) {
            return self.lift_loop(region);
        }
        let plan = self.plan;
        match plan.instructions.get(at) {
            Some(InstructionModel::Kernel { operator, args }) => {
                self.call(&operator_name(plan, *operator), args)?;
            }
            Some(InstructionModel::Delegate { delegate, args }) => self.delegate(*delegate, args, at)?,
            Some(InstructionModel::Move { from, to }) => self.move_value(*from, *to)?,
            Some(InstructionModel::JumpFalse { .. }) => return self.lift_cond(at, end),
            Some(InstructionModel::Free { .. }) | None => {}
        }
        Ok(at + 1)
    }

    /// Moves the handle of a value to another.
    fn move_value(&mut self, from: u32, to: u32) -> Result<(), Error> {
        if matches!(self.plan.values.get(from as usize), Some(ValueModel::Tensor(_))) {
            let value = self.read(from)?;
            self.write(to, value);
            Ok(())
        } else {
            let number = self.number(from)?;
            self.set_number(to, number)
        }
    }

    fn locate(&self, error: Error, at: usize) -> Error {
        let name = match self.plan.instructions.get(at) {
            Some(InstructionModel::Kernel { operator, .. }) => operator_name(self.plan, *operator),
            Some(InstructionModel::Delegate { .. }) => "delegate".into(),
            Some(InstructionModel::Move { .. }) => "move".into(),
            Some(InstructionModel::JumpFalse { .. }) => "jump".into(),
            Some(InstructionModel::Free { .. }) | None => "free".into(),
        };
        let error = error.at(format!("method `{}`, instruction {at} ({name})", self.plan.name));
        error.from_line(self.graph.origins.get(self.origin).and_then(Origin::line).as_deref())
    }

    /// The origin of an instruction.
    pub fn origin_of(&mut self, at: usize) -> OriginId {
        let known = self.sources.maps.iter().find(|map| map.method == self.plan.name);
        if let Some(origin) = known.and_then(|map| map.instructions.get(at)?.as_ref()) {
            let frames = origin.source.as_deref().and_then(SourceFrame::parse).into_iter().collect();
            let (node, module) = (origin.node.clone(), origin.module.clone());
            let origin = Origin { node, module, frames, metadata: None };
            return self.graph.origins.push(origin);
        }
        let frames = self.plan.stacktrace.get(at).map(Vec::as_slice).unwrap_or_default();
        let frames = frames.iter().map(|frame| SourceFrame {
            file: frame.filename.clone(),
            line: u32::try_from(frame.lineno).unwrap_or(0),
            function: frame.name.clone(),
            code: frame.context.clone(),
        });
        let frames = frames.collect();
        self.graph.origins.push(Origin { node: format!("instruction {at}"), frames, ..Origin::default() })
    }

    /// Returns the place of a tensor's elements in memory; `None` for a constant.
    pub fn place(&self, value: u32) -> Result<Option<Place>, Error> {
        if let Some(place) = self.scope.handles.get(&value) {
            return Ok(Some(*place));
        }
        let tensor = self.tensor_model(value)?;
        Ok(match tensor.storage {
            StorageModel::Constant { .. } | StorageModel::External => None,
            _ if tensor.nbytes() == 0 => Some(Place::Own(value)),
            StorageModel::Planned { memory_id, offset }
            | StorageModel::PlannedInit { memory_id, offset, .. }
            | StorageModel::ExternalPlanned { memory_id, offset } => Some(Place::Planned { memory_id, offset }),
            StorageModel::Unplanned => Some(Place::Own(value)),
        })
    }

    pub fn tensor_model(&self, value: u32) -> Result<&'a TensorModel, Error> {
        match self.plan.values.get(value as usize) {
            Some(ValueModel::Tensor(tensor)) => Ok(tensor),
            _ => Err(Error::invalid(format!("value {value} is not a tensor"))),
        }
    }

    /// Returns the graph's value that a tensor of the program holds at this point.
    pub fn read(&mut self, index: u32) -> Result<ValueId, Error> {
        let tensor = self.tensor_model(index)?;
        let Some(place) = self.place(index)? else {
            let id = match self.constants.get(&index) {
                Some(known) => *known,
                None => {
                    let id = self.sources.constant(tensor, self.model)?;
                    self.constants.insert(index, id);
                    id
                }
            };
            let id = id.ok_or_else(|| Error::invalid(format!("value {index} has no data")))?;
            return Ok(self.graph.constant(id, &self.model.constants));
        };
        match self.scope.get(place) {
            Some(content) => self.viewed(content, index),
            None if tensor.sizes.contains(&0) && tensor.shape_dynamism == ShapeDynamism::Static => {
                let constant = rushlight_graph::Constant::dense("empty", static_type(tensor), Vec::new())?;
                let id = self.model.constants.push(constant);
                Ok(self.graph.constant(id, &self.model.constants))
            }
            None => Err(Error::invalid(format!("value {index} is read where nothing has written it"))),
        }
    }

    /// Returns the content of a place with the type of a tensor of the program.
    fn viewed(&mut self, content: Content, index: u32) -> Result<ValueId, Error> {
        if content.by == index {
            return Ok(content.value);
        }
        if let Some(view) = self.scope.views.get(&(content.value, index)) {
            return Ok(*view);
        }
        let tensor = self.tensor_model(index)?;
        let held = self.graph.tensor(content.value)?.clone();
        let other = |what: &str| {
            Error::unsupported(format!("value {index} reads memory that value {} wrote with {what}", content.by))
        };
        if held.dtype != tensor.scalar_type {
            return Err(other("another dtype"));
        }
        let view = if tensor.shape_dynamism == ShapeDynamism::Static {
            let shape = static_type(tensor).shape;
            if held.shape == shape {
                content.value
            } else {
                let ordered = |index| self.tensor_model(index).is_ok_and(|tensor| tensor.dim_order.is_sorted());
                if !ordered(index) || !ordered(content.by) {
                    return Err(other("its dimensions in another order"));
                }
                if held.numel().as_int().is_some_and(|count| !Expr::product(&shape).is(count)) {
                    return Err(other("another number of elements"));
                }
                self.one(aten::VIEW_COPY, vec![content.value.into(), shape.into()])?
            }
        } else if held.rank() == tensor.sizes.len() {
            content.value
        } else {
            return Err(other("another number of dimensions, which change with the inputs"));
        };
        self.scope.views.insert((content.value, index), view);
        Ok(view)
    }

    /// Sets the value that a tensor of the program holds from here on.
    pub fn write(&mut self, index: u32, value: ValueId) {
        let Ok(Some(place)) = self.place(index) else { return };
        let len = self.tensor_model(index).map_or(0, TensorModel::nbytes);
        self.scope.write(place, Content { len, value, by: index });
    }

    /// Returns a number of the program, or another literal that is not a tensor or a list.
    pub fn number(&mut self, index: u32) -> Result<Arg, Error> {
        self.literal(index)
    }

    /// Returns a literal of the program, unless an instruction changed it.
    fn literal(&mut self, index: u32) -> Result<Arg, Error> {
        if let Some(number) = self.scope.numbers.get(&index) {
            let mut number = number.clone();
            self.resolve(&mut number);
            return Ok(number);
        }
        Ok(match self.plan.values.get(index as usize) {
            Some(ValueModel::None) => Arg::None,
            Some(ValueModel::Int(int)) => Arg::from(*int),
            Some(ValueModel::Bool(bool)) => Arg::Bool(*bool),
            Some(ValueModel::Double(double)) => Arg::Float(*double),
            Some(ValueModel::String(text)) => Arg::Str(text.clone()),
            _ => return Err(Error::invalid(format!("value {index} is not a number"))),
        })
    }

    /// Returns an integer, which may depend on symbols.
    pub fn int(&mut self, index: u32) -> Result<Expr, Error> {
        match self.number(index)? {
            Arg::Int(expr) => Ok(expr),
            Arg::Bool(bool) => Ok(Expr::Int(i64::from(bool))),
            _ => Err(Error::invalid(format!("value {index} is not an integer"))),
        }
    }

    pub fn set_number(&mut self, index: u32, number: Arg) -> Result<(), Error> {
        match self.plan.values.get(index as usize) {
            Some(ValueModel::Tensor(_)) | None => Err(Error::invalid(format!("value {index} holds no number"))),
            Some(_) => {
                self.scope.numbers.insert(index, number);
                Ok(())
            }
        }
    }

    /// Returns the sizes that the program's rules fix in inputs with dynamic dimensions, by input and dimension.
    fn fixed_sizes(&self) -> HashMap<(usize, usize), i64> {
        let blob =
            self.model.named_data.iter().find(|(key, _)| key == SHAPES_KEY).and_then(|(_, blob)| blob.in_place());
        let shapes = blob.and_then(|blob| Shapes::of(blob, &self.plan.name).ok().flatten());
        let rules = shapes.iter().flat_map(Shapes::rules);
        rules
            .filter_map(|rule| match rule {
                Rule::Fixed { place, size } => {
                    Some(((place.input.into(), place.dim.into()), i64::try_from(size).ok()?))
                }
                _ => None,
            })
            .collect()
    }

    /// A new symbol.
    pub fn fresh(&mut self, prefix: &str, min: i64, max: Option<i64>) -> Expr {
        let name = format!("{prefix}{}", self.graph.symbols.len());
        Expr::Symbol(self.graph.symbols.push(Symbol { name, min, max }))
    }

    /// Returns the type that the program plans for, with symbols for dynamic sizes.
    pub fn tensor_type(&mut self, tensor: &TensorModel, prefix: &str) -> TensorType {
        if tensor.shape_dynamism == ShapeDynamism::Static {
            return static_type(tensor);
        }
        // A bound of 0 allows only the size 0.
        let mut dimension = |size: &i32| match *size {
            0 => Expr::Int(0),
            bound => self.fresh(prefix, 0, Some(i64::from(bound))),
        };
        let shape = tensor.sizes.iter().map(&mut dimension).collect();
        TensorType::new(tensor.scalar_type, shape)
    }

    /// Makes two sizes equal by replacing a symbol.
    pub fn equal(&mut self, a: &Expr, b: &Expr) -> Result<(), Error> {
        let (a, b) = (self.resolved(a), self.resolved(b));
        match (&a, &b) {
            _ if a == b => Ok(()),
            (Expr::Symbol(x), Expr::Symbol(y)) if x > y => self.substitute(*x, &b),
            (_, Expr::Symbol(y)) => self.substitute(*y, &a),
            (Expr::Symbol(x), _) => self.substitute(*x, &b),
            _ => Ok(()),
        }
    }

    /// An expression with replaced symbols substituted.
    fn resolved(&self, expr: &Expr) -> Expr {
        if self.settled.is_empty() {
            return expr.clone();
        }
        expr.substitute(&|symbol| self.settled.get(&symbol).cloned().unwrap_or(Expr::Symbol(symbol)))
    }

    /// As [`resolved`](Self::resolved), for the expressions of an argument.
    pub fn resolve(&self, arg: &mut Arg) {
        substitute(arg, &|symbol| self.settled.get(&symbol).cloned().unwrap_or(Expr::Symbol(symbol)));
    }

    /// As [`resolved`](Self::resolved), for the sizes of a type.
    pub fn resolve_type(&self, ty: &mut Type) {
        match ty {
            Type::Tensor(tensor) => tensor.shape.iter_mut().for_each(|size| *size = self.resolved(size)),
            Type::Int(expr) => *expr = self.resolved(expr),
            Type::Float | Type::Bool => {}
        }
    }

    /// Returns the program's values that are kept when a call ends: states and inputs.
    pub fn kept(&self) -> impl Iterator<Item = u32> + '_ {
        self.states.iter().map(|(index, ..)| *index).chain(self.inputs.iter().map(|(index, ..)| *index))
    }

    /// Makes the operand and the result of each view have the same number of elements. If only one value of a size
    /// satisfies this, the size becomes that value. The view would fail with any other, whatever the sizes of inputs.
    fn settle_views(&mut self) -> Result<(), Error> {
        let views = |graph: &Graph| -> Vec<(Vec<Expr>, Vec<Expr>)> {
            let shape = |value: ValueId| graph.tensor(value).map(|ty| ty.shape.clone()).ok();
            let nodes = graph.nodes.ids().map(|id| &graph.nodes[id]).filter(|node| node.op.name() == aten::VIEW_COPY);
            nodes
                .filter_map(|node| Some((shape(node.args.first()?.as_value()?)?, shape(*node.results.first()?)?)))
                .filter(|(from, to)| Expr::product(from) != Expr::product(to))
                .collect()
        };
        // A size that one view settles may settle another view.
        for _ in 0..MAX_ROUNDS {
            let found = views(&self.graph)
                .iter()
                .find_map(|(from, to)| self.solved(from, to).or_else(|| self.solved(to, from)));
            let Some((symbol, size)) = found else { break };
            self.substitute(symbol, &size)?;
        }
        Ok(())
    }

    /// Finds a symbol among `sizes`, and the value for which their product equals that of `others`.
    fn solved(&self, sizes: &[Expr], others: &[Expr]) -> Option<(SymbolId, Expr)> {
        let total = Expr::product(others);
        sizes.iter().enumerate().find_map(|(at, size)| {
            let Expr::Symbol(symbol) = size else { return None };
            let rest = sizes.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, size)| size);
            let rest = Some(Expr::product(rest)).filter(|rest| !rest.is(0))?;
            let solution = total.exact_div(&rest)?;
            let mut is_known = true;
            solution.for_each_symbol(&mut |other| is_known &= other < *symbol);
            // A size that no input can have is left for the view to refuse.
            let (lower, upper) = solution.range(&self.graph.symbols);
            let known = &self.graph.symbols[*symbol];
            let is_possible = upper.is_none_or(|upper| upper >= known.min)
                && known.max.is_none_or(|max| lower.is_some_and(|lower| lower <= max));
            (is_known && is_possible).then_some((*symbol, solution))
        })
    }

    /// Replaces a symbol by an expression everywhere.
    fn substitute(&mut self, symbol: SymbolId, by: &Expr) -> Result<(), Error> {
        let mut is_inside = false;
        by.for_each_symbol(&mut |other| is_inside |= other == symbol);
        if is_inside {
            return Ok(());
        }
        self.spend((self.graph.values.len() + self.graph.nodes.len()) as u64)?;
        let of = |id: SymbolId| if id == symbol { by.clone() } else { Expr::Symbol(id) };
        for id in self.graph.values.ids() {
            match &mut self.graph.values[id].ty {
                Type::Tensor(tensor) => tensor.shape.iter_mut().for_each(|size| *size = size.substitute(&of)),
                Type::Int(expr) => *expr = expr.substitute(&of),
                Type::Float | Type::Bool => {}
            }
        }
        for id in self.graph.nodes.ids() {
            self.graph.nodes[id].args.iter_mut().for_each(|arg| substitute(arg, &of));
        }
        self.scope.numbers.values_mut().for_each(|number| substitute(number, &of));
        self.settled.values_mut().for_each(|expr| *expr = expr.substitute(&of));
        self.settled.insert(symbol, by.clone());
        Ok(())
    }

    /// Adds a node with one result.
    pub fn push_node(&mut self, op: Op, args: Vec<Arg>, types: Vec<Type>) -> Result<ValueId, Error> {
        let results = self.push_results(op, args, types);
        results.first().copied().ok_or_else(|| Error::invalid("a node without a result"))
    }

    pub fn push_results(&mut self, op: Op, args: Vec<Arg>, types: Vec<Type>) -> Vec<ValueId> {
        let stem = op.schema().map_or(op.name(), |schema| schema.base_name()).rsplit("::").next().unwrap_or_default();
        let first = self.graph.values.len();
        let results: Vec<_> =
            types.into_iter().enumerate().map(|(index, ty)| (format!("{stem}_{}", first + index), ty)).collect();
        let node = self.graph.push_node(self.block, op, args, self.origin, results);
        self.graph.nodes[node].results.clone()
    }

    /// Calls an operator with one result.
    pub fn one(&mut self, name: &str, args: Vec<Arg>) -> Result<ValueId, Error> {
        let Model { constants, schemas, .. } = &mut *self.model;
        rushlight_graph::Builder::new(&mut self.graph, constants, schemas, self.block, self.origin).one(name, args)
    }

    /// Casts a tensor to another dtype.
    pub fn cast(&mut self, value: ValueId, dtype: rushlight_format::ScalarType) -> Result<ValueId, Error> {
        let Model { constants, schemas, .. } = &mut *self.model;
        let mut builder = rushlight_graph::Builder::new(&mut self.graph, constants, schemas, self.block, self.origin);
        builder.one_with(aten::_TO_COPY, vec![value.into()], &[("dtype", dtype.into())])
    }

    /// Copies a tensor to another dim order.
    fn reorder(&mut self, value: ValueId, to: TensorType) -> Result<ValueId, Error> {
        let schema = self.model.schemas.expect(dim_order_ops::_TO_DIM_ORDER_COPY)?;
        let order: Vec<i64> = to.dim_order.iter().map(|dim| i64::from(*dim)).collect();
        let args = bind(&schema, vec![value.into()], &[("dim_order", Arg::from(order.as_slice()))])?;
        self.push_node(Op::Call(schema), args, vec![Type::Tensor(to)])
    }
}

fn substitute(arg: &mut Arg, of: &impl Fn(SymbolId) -> Expr) {
    match arg {
        Arg::Int(expr) => *expr = expr.substitute(of),
        Arg::List(items) => items.iter_mut().for_each(|item| substitute(item, of)),
        _ => {}
    }
}
