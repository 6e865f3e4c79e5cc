//! Elementwise operators, many in one step.

use std::collections::HashMap;

use rushlight_cpu_payload::{
    Activation, Binary, Elementwise, Instruction, MAX_OPERANDS, Operand, REGISTERS, Register, Step, Unary,
};
use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::quantization;
use rushlight_graph::{Expr, NodeId, ValueId};

use super::super::call::Call;
use super::super::{constants, error, held_as_float};
use super::{Lowering, affine_of};

/// Whether an operator is computed here.
pub(in super::super) fn takes(call: &Call<'_>) -> bool {
    match call.name() {
        "aten::add.Tensor" | "aten::sub.Tensor" => call.number("alpha").is_some() || call.arg("alpha").is_none(),
        "aten::add.Scalar" | "aten::sub.Scalar" => call.number("alpha").is_some() && call.number("other").is_some(),
        "aten::mul.Scalar" | "aten::div.Scalar" => call.number("other").is_some(),
        "aten::mul.Tensor" | "aten::div.Tensor" | "aten::maximum" | "aten::minimum" | "aten::pow.Tensor_Tensor" => true,
        "aten::where.self" | "aten::_to_copy" => true,
        name if quantization::is_quantize(name) => true,
        "aten::masked_fill.Scalar" => call.number("value").is_some(),
        "aten::clamp.Tensor" => call.optional("min").or(call.optional("max")).is_some(),
        "aten::pow.Tensor_Scalar" => call.number("exponent").is_some(),
        "aten::clamp" => ["min", "max"].iter().all(|name| call.arg(name).is_none() || call.number(name).is_some()),
        name => match comparison(name) {
            Some(_) => call.optional("other").is_some() || call.number("other").is_some(),
            None => activation(call).is_some() || unary(name).is_some() || logic(name).is_some(),
        },
    }
}

/// Functions that give truth values.
fn comparison(name: &str) -> Option<Binary> {
    let (base, overload) = name.split_once('.')?;
    if !matches!(overload, "Tensor" | "Scalar") {
        return None;
    }
    Some(match base {
        "aten::eq" => Binary::Eq,
        "aten::ne" => Binary::Ne,
        "aten::lt" => Binary::Lt,
        "aten::le" => Binary::Le,
        "aten::gt" => Binary::Gt,
        "aten::ge" => Binary::Ge,
        _ => return None,
    })
}

/// Functions of two truth values. The bitwise ones are only taken where their operands are that.
fn logic(name: &str) -> Option<Binary> {
    Some(match name {
        "aten::logical_and" | "aten::bitwise_and.Tensor" => Binary::And,
        "aten::logical_or" | "aten::bitwise_or.Tensor" => Binary::Or,
        "aten::logical_xor" | "aten::bitwise_xor.Tensor" => Binary::Ne,
        _ => return None,
    })
}

/// Whether an operator computes truth values: of floats, or of truth values where `of_truth`.
pub(in super::super) fn gives_truth(name: &str, of_truth: bool) -> bool {
    match name {
        "aten::isnan" | "aten::where.self" | "aten::_to_copy" | "aten::logical_not" => true,
        "aten::bitwise_not" => of_truth,
        name => comparison(name).is_some() || (of_truth && logic(name).is_some()),
    }
}

/// The activation that a node is, if it is one.
pub(in super::super) fn activation(call: &Call<'_>) -> Option<Activation> {
    let bound = |name: &str, default: f32| match call.arg(name) {
        None => Some(default),
        Some(_) => call.number(name).map(|number| number as f32),
    };
    Some(match call.name() {
        "aten::relu" => Activation::Clamp { min: 0.0, max: f32::INFINITY },
        "aten::hardtanh" => Activation::Clamp { min: bound("min_val", -1.0)?, max: bound("max_val", 1.0)? },
        "aten::clamp" => {
            let (min, max) = (bound("min", f32::NEG_INFINITY)?, bound("max", f32::INFINITY)?);
            if min.is_nan() || max.is_nan() || min > max {
                return None;
            }
            Activation::Clamp { min, max }
        }
        "aten::elu"
            if [("scale", 1.0), ("input_scale", 1.0)].iter().all(|(name, one)| call.number(name) == Some(*one)) =>
        {
            Activation::Elu { alpha: call.number("alpha")? as f32 }
        }
        "aten::leaky_relu" => Activation::LeakyRelu { slope: call.number("negative_slope")? as f32 },
        "aten::hardswish" => Activation::HardSwish,
        "aten::hardsigmoid" => Activation::HardSigmoid,
        "aten::sigmoid" => Activation::Sigmoid,
        "aten::silu" => Activation::Silu,
        "aten::tanh" => Activation::Tanh,
        "aten::gelu" if call.text("approximate") == Some("tanh") => Activation::GeluTanh,
        "aten::gelu" => Activation::GeluErf,
        _ => return None,
    })
}

fn unary(name: &str) -> Option<Unary> {
    Some(match name {
        "aten::neg" => Unary::Neg,
        "aten::abs" => Unary::Abs,
        "aten::sqrt" => Unary::Sqrt,
        "aten::rsqrt" => Unary::Rsqrt,
        "aten::reciprocal" => Unary::Reciprocal,
        "aten::exp" => Unary::Exp,
        "aten::log" => Unary::Log,
        "aten::log1p" => Unary::Log1p,
        "aten::expm1" => Unary::Expm1,
        "aten::sin" => Unary::Sin,
        "aten::cos" => Unary::Cos,
        "aten::erf" => Unary::Erf,
        "aten::floor" => Unary::Floor,
        "aten::ceil" => Unary::Ceil,
        "aten::round" => Unary::Round,
        "aten::trunc" => Unary::Trunc,
        "aten::isnan" => Unary::IsNan,
        "aten::logical_not" | "aten::bitwise_not" => Unary::Not,
        _ => return None,
    })
}

impl Lowering<'_> {
    /// A node with what is computed with it.
    pub(super) fn elementwise(&mut self, id: NodeId) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let result = call.result()?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let order = self.order_of_group(id, &shape)?;
        let mut group = Group::new();
        if self.emit(id, &mut group).is_err() {
            // More registers than there are: the inner nodes become steps of their own.
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
        let y =
            self.plan.ordered_as(shape, order, affine_of(&call).filter(|_| quantization::is_quantize(call.name())))?;
        let step = Elementwise { operands, y: self.plan.tensor(&y)?, instructions: group.instructions };
        self.plan.step(self.label(&call), Step::Elementwise(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// The nodes that are computed with a node, the later ones first.
    fn members(&self, id: NodeId, found: &mut Vec<NodeId>) {
        for arg in &self.graph.nodes[id].args {
            arg.for_each_value(&mut |value| {
                if let rushlight_graph::Def::Result(node, _) = self.graph.values[value].def
                    && self.fusion.inner.contains(&node)
                {
                    found.retain(|other| *other != node);
                    found.push(node);
                    self.members(node, found);
                }
            });
        }
    }

    /// The order in memory that the first operand of full size has, if there is one.
    fn order_of_group(&mut self, id: NodeId, shape: &[Expr]) -> Result<Vec<usize>, Error> {
        let mut nodes = vec![id];
        self.members(id, &mut nodes);
        for node in nodes {
            let mut values = Vec::new();
            self.graph.nodes[node].args.iter().for_each(|arg| arg.for_each_value(&mut |value| values.push(value)));
            for value in values {
                if let Some(view) = self.views.get(&value).filter(|view| view.shape == shape)
                    && self.fill_of(value).is_none()
                {
                    return Ok(view.order.clone());
                }
            }
        }
        Ok((0..shape.len()).collect())
    }

    /// The tensor of an operand: as many dimensions as the result has, in the same order.
    fn operand(&mut self, value: ValueId, shape: &[Expr], order: &[usize]) -> Result<u32, Error> {
        let rank = self.graph.tensor(value)?.rank();
        let missing =
            shape.len().checked_sub(rank).ok_or_else(|| error("an operand with more dimensions than the result"))?;
        let own: Vec<usize> = order.iter().filter(|dim| **dim >= missing).map(|dim| dim - missing).collect();
        let view = self.held_in_order(value, &own)?;
        let dims: Vec<Expr> = order
            .iter()
            .map(|dim| dim.checked_sub(missing).map_or(Expr::Int(1), |dim| view.shape[dim].clone()))
            .collect();
        self.plan.window(&view, &dims)
    }

    /// The instructions of a node, after those of the nodes that are computed with it. Fails without registers.
    fn emit(&self, id: NodeId, group: &mut Group) -> Result<Operand, Error> {
        let mut uses: HashMap<ValueId, usize> = HashMap::new();
        let mut nodes = vec![id];
        self.members(id, &mut nodes);
        for node in &nodes {
            self.graph.nodes[*node].args.iter().for_each(|arg| {
                arg.for_each_value(&mut |value| *uses.entry(value).or_default() += 1);
            });
        }
        group.uses = uses;
        self.emit_node(id, group)
    }

    fn emit_node(&self, id: NodeId, group: &mut Group) -> Result<Operand, Error> {
        let call = Call::new(self.graph, id);
        let result = call.result()?;
        let operand = self.instructions(&call, group)?;
        if let Operand::Register(register) = operand {
            group.held.insert(result, register);
        }
        Ok(operand)
    }

    /// A value in a register, or where it is.
    fn read(&self, value: ValueId, group: &mut Group) -> Result<Operand, Error> {
        if let Some(register) = group.held.get(&value) {
            return Ok(Operand::Register(*register));
        }
        if let rushlight_graph::Def::Result(node, 0) = self.graph.values[value].def
            && self.fusion.inner.contains(&node)
        {
            return self.emit_node(node, group);
        }
        if let Some(number) = self.number(value).or_else(|| self.fill_of(value)) {
            return Ok(Operand::Number(number));
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

    /// The value of a constant of one element.
    fn number(&self, value: ValueId) -> Option<f32> {
        let constant = self.constant_of(value)?;
        if !held_as_float(constant.ty.dtype) || constant.ty.rank() != 0 {
            return None;
        }
        constants::floats(constant).ok()?.first().copied()
    }

    /// The number that all elements of a value are.
    fn fill_of(&self, value: ValueId) -> Option<f32> {
        let rushlight_graph::Def::Result(node, 0) = self.graph.values[value].def else { return None };
        super::shapes::filled_with(&Call::new(self.graph, node))
    }

    fn instructions(&self, call: &Call<'_>, group: &mut Group) -> Result<Operand, Error> {
        let value = |name: &str| call.value(name);
        let number =
            |name: &str| call.number(name).map(|number| number as f32).ok_or_else(|| call.missing(name, "a number"));
        if let Some(activation) = activation(call) {
            let name = if call.optional("self").is_some() { "self" } else { "input" };
            let source = value(name)?;
            let x = self.read(source, group)?;
            group.done(source);
            let to = group.register()?;
            group.instructions.push(Instruction::Activate { to, activation, x });
            return Ok(Operand::Register(to));
        }
        if let Some(function) = unary(call.name()) {
            return self.unary_step(function, value("self")?, group);
        }
        if quantization::is_quantize(call.name()) {
            // What is stored last is rounded to bytes.
            let source = value("input")?;
            return match self.read(source, group)? {
                Operand::Register(register) => Ok(Operand::Register(register)),
                _ => self.unary_step(Unary::Identity, source, group),
            };
        }
        match call.name() {
            "aten::where.self" => {
                return self.select(value("condition")?, [Ok(value("self")?), Ok(value("other")?)], group);
            }
            "aten::masked_fill.Scalar" => {
                return self.select(value("mask")?, [Err(number("value")?), Ok(value("self")?)], group);
            }
            "aten::_to_copy" => {
                let (from, to) = (self.graph.tensor(value("self")?)?.dtype, self.graph.tensor(call.result()?)?.dtype);
                if to == ScalarType::Bool && from != to {
                    return self.binary_step(Binary::Ne, value("self")?, Err(0.0), 1.0, group);
                }
                let round = |dtype| match dtype {
                    ScalarType::Half => Unary::RoundF16,
                    ScalarType::BFloat16 => Unary::RoundBf16,
                    _ => Unary::Identity,
                };
                if from == to {
                    return self.unary_step(Unary::Identity, value("self")?, group);
                }
                // What is held as floats is rounded to its own type first.
                let held = self.unary_step(round(from), value("self")?, group)?;
                if round(to) == Unary::Identity {
                    return Ok(held);
                }
                let Operand::Register(register) = held else { return Ok(held) };
                let rounding = Instruction::Unary { to: register, function: round(to), x: held };
                group.instructions.push(rounding);
                return Ok(held);
            }
            "aten::clamp.Tensor" => return self.clamp(call, group),
            _ => {}
        }
        if let Some(function) = comparison(call.name()).or_else(|| logic(call.name())) {
            let other = call.optional("other").map_or_else(|| number("other").map(Err), |other| Ok(Ok(other)))?;
            return self.binary_step(function, value("self")?, other, 1.0, group);
        }
        let base = call.name().split('.').next().unwrap_or_default();
        let function = match base {
            "aten::add" => Binary::Add,
            "aten::sub" => Binary::Sub,
            "aten::mul" => Binary::Mul,
            "aten::div" => Binary::Div,
            "aten::maximum" => Binary::Max,
            "aten::minimum" => Binary::Min,
            "aten::pow" => Binary::Pow,
            // Bounds in the wrong order: the upper one wins, as in PyTorch.
            "aten::clamp" => {
                let x = self.read(value("self")?, group)?;
                group.done(value("self")?);
                let to = group.register()?;
                let b = Operand::Number(number("min")?);
                group.instructions.push(Instruction::Binary { to, function: Binary::Max, a: x, b });
                let (a, b) = (Operand::Register(to), Operand::Number(number("max")?));
                group.instructions.push(Instruction::Binary { to, function: Binary::Min, a, b });
                return Ok(Operand::Register(to));
            }
            _ => return Err(error(format!("`{}` is not elementwise", call.name()))),
        };
        if function == Binary::Pow && call.number("exponent").is_some() {
            return self.power(value("self")?, number("exponent")?, group);
        }
        let other = if function == Binary::Pow { "exponent" } else { "other" };
        let second = call.optional(other).map_or_else(|| number(other).map(Err), |second| Ok(Ok(second)))?;
        let is_scaled = matches!(function, Binary::Add | Binary::Sub);
        let alpha = call.number("alpha").filter(|_| is_scaled).unwrap_or(1.0) as f32;
        self.binary_step(function, value("self")?, second, alpha, group)
    }

    /// A function of a value and of another one or a number, which is multiplied by `alpha` first.
    fn binary_step(
        &self,
        function: Binary,
        first: ValueId,
        second: Result<ValueId, f32>,
        alpha: f32,
        group: &mut Group,
    ) -> Result<Operand, Error> {
        let a = self.read(first, group)?;
        let mut b = match second {
            Ok(second) => self.read(second, group)?,
            Err(number) => Operand::Number(number),
        };
        let mut scaled = None;
        if alpha != 1.0 {
            let to = group.register()?;
            let factor = Operand::Number(alpha);
            group.instructions.push(Instruction::Binary { to, function: Binary::Mul, a: b, b: factor });
            b = Operand::Register(to);
            scaled = Some(to);
        }
        group.done(first);
        if let Ok(second) = second {
            group.done(second);
        }
        group.free.extend(scaled);
        let to = group.register()?;
        group.instructions.push(Instruction::Binary { to, function, a, b });
        Ok(Operand::Register(to))
    }

    /// The first choice where the condition holds, else the second; each is a value or a number.
    fn select(
        &self,
        condition: ValueId,
        choices: [Result<ValueId, f32>; 2],
        group: &mut Group,
    ) -> Result<Operand, Error> {
        let sources = [Ok(condition), choices[0], choices[1]];
        let mut operands = [Operand::Number(0.0); 3];
        for (operand, source) in operands.iter_mut().zip(sources) {
            *operand = match source {
                Ok(value) => self.read(value, group)?,
                Err(number) => Operand::Number(number),
            };
        }
        sources.into_iter().flatten().for_each(|value| group.done(value));
        let (to, [condition, a, b]) = (group.register()?, operands);
        group.instructions.push(Instruction::Select { to, condition, a, b });
        Ok(Operand::Register(to))
    }

    /// Bounds that are tensors: the upper one wins.
    fn clamp(&self, call: &Call<'_>, group: &mut Group) -> Result<Operand, Error> {
        let source = call.value("self")?;
        let x = self.read(source, group)?;
        let mut bounds = Vec::with_capacity(2);
        for (name, function) in [("min", Binary::Max), ("max", Binary::Min)] {
            if let Some(bound) = call.optional(name) {
                bounds.push((function, bound, self.read(bound, group)?));
            }
        }
        // What is written first may lie where an operand does that is read later.
        let to = group.register()?;
        group.done(source);
        let mut at = x;
        for (function, bound, b) in bounds {
            group.done(bound);
            group.instructions.push(Instruction::Binary { to, function, a: at, b });
            at = Operand::Register(to);
        }
        Ok(at)
    }

    fn unary_step(&self, function: Unary, source: ValueId, group: &mut Group) -> Result<Operand, Error> {
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
                let b = Operand::Number(exponent);
                let is_cube = exponent == 3.0;
                if is_cube {
                    // `to` may be where `a` is, so that the square needs a place of its own.
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
        self.unary_step(function, source, group)
    }
}

/// Instructions being made.
struct Group {
    operands: Vec<ValueId>,
    instructions: Vec<Instruction>,
    /// How often each value is still read.
    uses: HashMap<ValueId, usize>,
    held: HashMap<ValueId, Register>,
    free: Vec<Register>,
}

impl Group {
    fn new() -> Self {
        Self {
            operands: Vec::new(),
            instructions: Vec::new(),
            uses: HashMap::new(),
            held: HashMap::new(),
            free: (0..REGISTERS).rev().collect(),
        }
    }

    fn register(&mut self) -> Result<Register, Error> {
        self.free.pop().ok_or_else(|| error("an elementwise step needs more registers than there are"))
    }

    /// A value was read once more; its register is free after the last time.
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
