//! Elementwise operators, many in one step.

use rushlight_cpu_payload::{
    Binary, Elementwise as ElementwiseStep, Instruction, MAX_OPERANDS, Operand, REGISTERS, Register, Step, Unary,
};
use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use rushlight_graph::Error;
use rushlight_graph::{Call, Def, Expr, NodeId, ValueId};

use crate::error::error;
use crate::select::{self, DataMovement, Elementwise, Selection};
use crate::storage::is_stored_as_float;
use crate::weights::constants;

use super::Lowering;

impl Lowering<'_> {
    /// Lowers a node and the nodes that are fused with it to one step.
    pub(super) fn elementwise(&mut self, id: NodeId) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let result = call.result()?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let order = self.order_of_group(id, &shape)?;
        let mut group = Group::new();
        if self.emit(id, &mut group).is_err() {
            // There are too few registers, so the inner nodes become steps of their own.
            let mut inner = Vec::new();
            self.members(id, &mut inner);
            for node in inner.into_iter().rev() {
                self.fusion.inner.remove(&node);
                self.elementwise(node)?;
            }
            group = Group::new();
            self.emit(id, &mut group)?;
        }
        let mut operands = Vec::with_capacity(group.operands.len());
        for value in &group.operands {
            operands.push(self.operand(*value, &shape, &order)?);
        }
        let affine = match self.selections.require(id)? {
            Selection::Quantize { affine, .. } => Some(*affine),
            _ => None,
        };
        let y = self.plan.ordered_as(shape, order, affine)?;
        let step = ElementwiseStep { operands, y: self.plan.tensor(&y)?, instructions: group.instructions };
        self.plan.step(self.label(&call), Step::Elementwise(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// Collects the nodes that are fused with a node, the last first.
    fn members(&self, id: NodeId, found: &mut Vec<NodeId>) {
        for arg in &self.graph.nodes[id].args {
            arg.for_each_value(&mut |value| {
                if let Def::Result(node, _) = self.graph.values[value].def
                    && self.fusion.inner.contains(&node)
                {
                    found.retain(|other| *other != node);
                    found.push(node);
                    self.members(node, found);
                }
            });
        }
    }

    /// Returns the dim order of the first operand of the full shape that is not filled with one number; row-major if
    /// there is none.
    fn order_of_group(&mut self, id: NodeId, shape: &[Expr]) -> Result<Vec<usize>, Error> {
        let mut nodes = vec![id];
        self.members(id, &mut nodes);
        for node in nodes {
            for value in Call::new(self.graph, node).operands() {
                if let Some(view) = self.views.get(&value).filter(|view| view.shape == shape)
                    && self.fill_of(value).is_none()
                {
                    return Ok(view.order.clone());
                }
            }
        }
        Ok((0..shape.len()).collect())
    }

    /// Returns the tensor of an operand with the rank and the dim order of the result.
    fn operand(&mut self, value: ValueId, shape: &[Expr], order: &[usize]) -> Result<u32, Error> {
        let rank = self.graph.tensor(value)?.rank();
        let missing =
            shape.len().checked_sub(rank).ok_or_else(|| error("an operand with more dimensions than the result"))?;
        let own: Vec<usize> = order.iter().filter(|dim| **dim >= missing).map(|dim| dim - missing).collect();
        let view = self.stored_in_order(value, &own)?;
        let dims: Vec<Expr> = order
            .iter()
            .map(|dim| dim.checked_sub(missing).map_or(Expr::Int(1), |dim| view.shape[dim].clone()))
            .collect();
        self.plan.window(&view, &dims)
    }

    /// Emits the instructions of a node, after those of the nodes that are fused with it. Fails if registers run out.
    fn emit(&self, id: NodeId, group: &mut Group) -> Result<Operand, Error> {
        let mut uses: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut nodes = vec![id];
        self.members(id, &mut nodes);
        for node in &nodes {
            let operands = Call::new(self.graph, *node).operands();
            operands.into_iter().for_each(|value| *uses.entry(value).or_default() += 1);
        }
        group.uses = uses;
        self.emit_node(id, group)
    }

    fn emit_node(&self, id: NodeId, group: &mut Group) -> Result<Operand, Error> {
        let result = Call::new(self.graph, id).result()?;
        let operand = match self.selections.require(id)? {
            Selection::Elementwise(elementwise) => self.instructions(elementwise, group)?,
            // The last operator of a group may quantize its result.
            Selection::Quantize { input, .. } => match self.read(*input, group)? {
                Operand::Register(register) => Operand::Register(register),
                _ => self.unary(Unary::Identity, *input, group)?,
            },
            _ => return Err(error("a node that is not elementwise")),
        };
        if let Operand::Register(register) = operand {
            group.held.insert(result, register);
        }
        Ok(operand)
    }

    /// Returns a value as a register, or as the operand that is read from memory.
    fn read(&self, value: ValueId, group: &mut Group) -> Result<Operand, Error> {
        if let Some(register) = group.held.get(&value) {
            return Ok(Operand::Register(*register));
        }
        if let Def::Result(node, 0) = self.graph.values[value].def
            && self.fusion.inner.contains(&node)
        {
            return self.emit_node(node, group);
        }
        if let Some(number) = self.number(value).or_else(|| self.fill_of(value)) {
            return Ok(Operand::Constant(number));
        }
        let at = group.operands.iter().position(|known| *known == value);
        let at = at.unwrap_or_else(|| {
            group.operands.push(value);
            group.operands.len() - 1
        });
        if at >= MAX_OPERANDS {
            return Err(error("an elementwise step needs more operands than it may have"));
        }
        Ok(Operand::Tensor(at as u8))
    }

    /// Returns the value of a constant of one element.
    fn number(&self, value: ValueId) -> Option<f32> {
        let constant = self.constant_of(value)?;
        let is_number = is_stored_as_float(constant.ty.dtype) || constant.ty.dtype == ScalarType::Long;
        if !is_number || constant.ty.rank() != 0 {
            return None;
        }
        constants::floats(constant).ok()?.first().copied()
    }

    /// Returns the number that fills a value, if all of its elements are equal.
    fn fill_of(&self, value: ValueId) -> Option<f32> {
        match self.selections.of_value(self.graph, value)? {
            Selection::DataMovement(DataMovement::Fill(number)) => Some(*number),
            _ => None,
        }
    }

    fn instructions(&self, elementwise: &Elementwise, group: &mut Group) -> Result<Operand, Error> {
        match *elementwise {
            Elementwise::Activation { activation, x } => {
                let operand = self.read(x, group)?;
                group.done(x);
                let to = group.register()?;
                group.instructions.push(Instruction::Activate { to, activation, x: operand });
                Ok(Operand::Register(to))
            }
            Elementwise::Unary { function, x } => self.unary(function, x, group),
            Elementwise::Binary { function, a, b, alpha } => self.binary(function, a, b, alpha, group),
            Elementwise::Power { x, exponent } => self.power(x, exponent, group),
            Elementwise::Select { condition, choices } => self.choose(condition, choices, group),
            Elementwise::Clamp { x, min, max } => {
                let a = self.read(x, group)?;
                group.done(x);
                let to = group.register()?;
                let (min, max) = (Operand::Constant(min), Operand::Constant(max));
                group.instructions.push(Instruction::Binary { to, function: Binary::Max, a, b: min });
                let a = Operand::Register(to);
                group.instructions.push(Instruction::Binary { to, function: Binary::Min, a, b: max });
                Ok(a)
            }
            Elementwise::ClampTensor { x, ref bounds } => self.clamp(x, bounds, group),
            Elementwise::Cast { x, from, to } => self.cast(x, from, to, group),
            Elementwise::Remainder { x, divisor } => self.remainder(x, divisor, group),
        }
    }

    /// Computes `x - floor(x / divisor) * divisor`. For integers up to 2^24 the quotient is never rounded up to the
    /// next integer.
    fn remainder(&self, x: ValueId, divisor: f32, group: &mut Group) -> Result<Operand, Error> {
        let (a, b, to) = (self.read(x, group)?, Operand::Constant(divisor), group.register()?);
        let quotient = Operand::Register(to);
        group.instructions.push(Instruction::Binary { to, function: Binary::Div, a, b });
        group.instructions.push(Instruction::Unary { to, function: Unary::Floor, x: quotient });
        group.instructions.push(Instruction::Binary { to, function: Binary::Mul, a: quotient, b });
        group.instructions.push(Instruction::Binary { to, function: Binary::Sub, a, b: quotient });
        group.done(x);
        Ok(quotient)
    }

    fn cast(&self, x: ValueId, from: ScalarType, to: ScalarType, group: &mut Group) -> Result<Operand, Error> {
        if to == ScalarType::Bool && from != to {
            return self.binary(Binary::Ne, x, select::Operand::Constant(0.0), 1.0, group);
        }
        let round = |dtype| match dtype {
            ScalarType::Half => Unary::RoundF16,
            ScalarType::BFloat16 => Unary::RoundBf16,
            _ => Unary::Identity,
        };
        if from == to {
            return self.unary(Unary::Identity, x, group);
        }
        // A value that is stored as f32 is rounded to its own type first.
        let stored = self.unary(round(from), x, group)?;
        if let (Operand::Register(register), true) = (stored, round(to) != Unary::Identity) {
            group.instructions.push(Instruction::Unary { to: register, function: round(to), x: stored });
        }
        Ok(stored)
    }

    /// Emits a binary operator; its second operand is multiplied by `alpha` first.
    fn binary(
        &self,
        function: Binary,
        first: ValueId,
        second: select::Operand,
        alpha: f32,
        group: &mut Group,
    ) -> Result<Operand, Error> {
        let a = self.read(first, group)?;
        let mut b = match second {
            select::Operand::Value(second) => self.read(second, group)?,
            select::Operand::Constant(number) => Operand::Constant(number),
        };
        let mut scaled = None;
        if alpha != 1.0 {
            let to = group.register()?;
            let factor = Operand::Constant(alpha);
            group.instructions.push(Instruction::Binary { to, function: Binary::Mul, a: b, b: factor });
            b = Operand::Register(to);
            scaled = Some(to);
        }
        group.done(first);
        if let select::Operand::Value(second) = second {
            group.done(second);
        }
        group.free.extend(scaled);
        let to = group.register()?;
        group.instructions.push(Instruction::Binary { to, function, a, b });
        Ok(Operand::Register(to))
    }

    /// Emits a selection: the first choice where the condition holds, else the second.
    fn choose(&self, condition: ValueId, choices: [select::Operand; 2], group: &mut Group) -> Result<Operand, Error> {
        let sources = [select::Operand::Value(condition), choices[0], choices[1]];
        let mut operands = [Operand::Constant(0.0); 3];
        for (operand, source) in operands.iter_mut().zip(sources) {
            *operand = match source {
                select::Operand::Value(value) => self.read(value, group)?,
                select::Operand::Constant(number) => Operand::Constant(number),
            };
        }
        for source in sources {
            if let select::Operand::Value(value) = source {
                group.done(value);
            }
        }
        let (to, [condition, a, b]) = (group.register()?, operands);
        group.instructions.push(Instruction::Select { to, condition, a, b });
        Ok(Operand::Register(to))
    }

    /// Clamps to bounds that are tensors. The upper bound wins.
    fn clamp(&self, source: ValueId, bounds: &[(Binary, ValueId)], group: &mut Group) -> Result<Operand, Error> {
        let x = self.read(source, group)?;
        let mut read = Vec::with_capacity(bounds.len());
        for (function, bound) in bounds {
            read.push((*function, *bound, self.read(*bound, group)?));
        }
        // The first instruction must not overwrite an operand that a later one reads.
        let to = group.register()?;
        group.done(source);
        let mut at = x;
        for (function, bound, b) in read {
            group.done(bound);
            group.instructions.push(Instruction::Binary { to, function, a: at, b });
            at = Operand::Register(to);
        }
        Ok(at)
    }

    fn unary(&self, function: Unary, source: ValueId, group: &mut Group) -> Result<Operand, Error> {
        let x = self.read(source, group)?;
        group.done(source);
        let to = group.register()?;
        group.instructions.push(Instruction::Unary { to, function, x });
        Ok(Operand::Register(to))
    }

    fn power(&self, source: ValueId, exponent: f32, group: &mut Group) -> Result<Operand, Error> {
        let function = match exponent {
            1.0 => Unary::Identity,
            2.0 => Unary::Square,
            0.5 => Unary::Sqrt,
            -0.5 => Unary::Rsqrt,
            -1.0 => Unary::Reciprocal,
            _ => {
                let a = self.read(source, group)?;
                group.done(source);
                let to = group.register()?;
                let b = Operand::Constant(exponent);
                let is_cube = exponent == 3.0;
                if is_cube {
                    // `to` may be the register of `a`, so the square needs one of its own.
                    let square = group.register()?;
                    group.instructions.push(Instruction::Unary { to: square, function: Unary::Square, x: a });
                    let b = Operand::Register(square);
                    group.instructions.push(Instruction::Binary { to, function: Binary::Mul, a, b });
                    group.free.push(square);
                } else {
                    group.instructions.push(Instruction::Binary { to, function: Binary::Pow, a, b });
                }
                return Ok(Operand::Register(to));
            }
        };
        self.unary(function, source, group)
    }
}

/// The instructions of one step while they are emitted.
struct Group {
    operands: Vec<ValueId>,
    instructions: Vec<Instruction>,
    /// Number of reads of each value that are left.
    uses: FxHashMap<ValueId, usize>,
    held: FxHashMap<ValueId, Register>,
    free: Vec<Register>,
}

impl Group {
    fn new() -> Self {
        Self {
            operands: Vec::new(),
            instructions: Vec::new(),
            uses: FxHashMap::default(),
            held: FxHashMap::default(),
            free: (0..REGISTERS).rev().collect(),
        }
    }

    fn register(&mut self) -> Result<Register, Error> {
        self.free.pop().ok_or_else(|| error("an elementwise step needs more registers than there are"))
    }

    /// Records a read of a value. Frees its register after the last one.
    fn done(&mut self, value: ValueId) {
        let left = self.uses.get_mut(&value).map_or(0, |uses| {
            *uses = uses.saturating_sub(1);
            *uses
        });
        if left == 0
            && let Some(register) = self.held.remove(&value)
        {
            self.free.push(register);
        }
    }
}
