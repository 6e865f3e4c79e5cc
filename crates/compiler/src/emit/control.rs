//! Control flow as jumps.
//!
//! A branch's result becomes the whole's by moving its handle, where the branch computed it for nothing else, and by a
//! copy otherwise. Loops carry tensors in memory of their own, written by copies at the end of a round: a moved handle
//! would leave the next round writing what it reads.

use rushlight_format::pte::{InstructionModel, ValueModel};

use rushlight_graph::Error;
use rushlight_graph::operators::{aten, executorch_prim};
use rushlight_graph::{Arg, BlockId, Def, Node, Type, ValueId};

use super::calls::is_tensor;
use super::method::Method;

/// The arguments of a node with blocks, by their role.
struct ControlFlowArgs<'n> {
    blocks: Vec<BlockId>,
    lists: Vec<&'n [Arg]>,
}

impl<'n> ControlFlowArgs<'n> {
    fn of(node: &'n Node) -> Self {
        let lists = node.args.iter().filter_map(|arg| match arg {
            Arg::List(items) => Some(items.as_slice()),
            _ => None,
        });
        Self { blocks: node.blocks().collect(), lists: lists.collect() }
    }

    fn block(&self, index: usize) -> Result<BlockId, Error> {
        self.blocks.get(index).copied().ok_or_else(|| Error::invalid("control flow without a block"))
    }

    fn list(&self, index: usize) -> &'n [Arg] {
        self.lists.get(index).copied().unwrap_or_default()
    }
}

impl Method<'_> {
    /// Runs one of two blocks.
    pub fn cond(&mut self, node: &Node) -> Result<(), Error> {
        let parts = ControlFlowArgs::of(node);
        let predicate = node.args.first().cloned().unwrap_or(Arg::None);
        let predicate = self.argument(&predicate)?;
        let to_else = self.jump_if_false(predicate);
        self.branch(parts.block(0)?, node)?;
        let never = self.bool(false);
        let to_end = self.jump_if_false(never);
        self.land(to_else);
        self.branch(parts.block(1)?, node)?;
        self.land(to_end);
        Ok(())
    }

    fn branch(&mut self, block: BlockId, node: &Node) -> Result<(), Error> {
        self.block(block)?;
        let results = &self.graph.blocks[block].results;
        for (arg, result) in results.iter().zip(&node.results) {
            let from = self.argument(arg)?;
            let to = self.value(*result)?;
            let alone = arg.as_value().is_some_and(|value| {
                let twice = results.iter().filter(|other| other.as_value() == Some(value)).count() > 1;
                self.is_computed_in(value, block) && !twice
            });
            if !is_tensor(self.graph.ty(*result)) {
                self.emit(InstructionModel::Move { from, to });
            } else if let (true, Some(a), Some(b)) = (alone, self.slot(to), self.slot(from)) {
                self.slots.join(a, b);
                self.emit(InstructionModel::Move { from, to });
            } else {
                self.copy(from, to);
            }
        }
        Ok(())
    }

    /// True if a node of this block makes the value in memory of its own.
    fn is_computed_in(&self, value: ValueId, block: BlockId) -> bool {
        let Def::Result(node, _) = self.graph.values[value].def else { return false };
        let is_view = self.graph.nodes[node].op.name() == aten::VIEW_COPY;
        !is_view && self.graph.blocks[block].nodes.contains(&node)
    }

    /// Runs a block as long as another says so.
    pub fn while_loop(&mut self, node: &Node) -> Result<(), Error> {
        let parts = ControlFlowArgs::of(node);
        let (condition, body) = (parts.block(0)?, parts.block(1)?);
        let carried = self.begin_carry(parts.list(0), &node.results)?;
        for block in [condition, body] {
            for (param, value) in self.graph.blocks[block].params.iter().zip(&carried) {
                self.alias(*param, *value);
            }
        }
        let start = self.here();
        self.block(condition)?;
        let verdict = self.graph.blocks[condition].results.first().cloned().unwrap_or(Arg::None);
        let verdict = self.argument(&verdict)?;
        let to_end = self.jump_if_false(verdict);
        self.block(body)?;
        let next = self.graph.blocks[body].results.clone();
        self.carry(&next, &carried, &node.results)?;
        self.jump_back(start);
        self.land(to_end);
        Ok(())
    }

    /// Runs a block for each slice of some tensors, and stacks its results.
    pub fn scan(&mut self, node: &Node) -> Result<(), Error> {
        let parts = ControlFlowArgs::of(node);
        let body = parts.block(0)?;
        let count = parts.list(0).len();
        let (last, stacks) =
            node.results.split_at_checked(count).ok_or_else(|| Error::invalid("a scan loses state"))?;
        let sequences = parts.list(1).iter().map(|arg| self.argument(arg)).collect::<Result<Vec<_>, _>>()?;
        let carried = self.begin_carry(parts.list(0), last)?;
        let zero = self.int(0);
        let one = self.int(1);
        let index = self.push(ValueModel::Int(0));
        self.emit(InstructionModel::Move { from: zero, to: index });
        let length = self.push(ValueModel::Int(0));
        let first = *sequences.first().ok_or_else(|| Error::invalid("a scan of no sequences"))?;
        self.kernel(aten::SYM_SIZE_INT, vec![first, zero, length]);
        let params = self.graph.blocks[body].params.clone();
        for (param, value) in params.iter().zip(&carried) {
            self.alias(*param, *value);
        }
        let start = self.here();
        for (param, sequence) in params.iter().skip(count).zip(&sequences) {
            let slice = self.value(*param)?;
            self.kernel(aten::SELECT_COPY_INT_OUT, vec![*sequence, zero, index, slice, slice]);
        }
        self.block(body)?;
        let results = self.graph.blocks[body].results.clone();
        let (next, slices) = results.split_at_checked(count).ok_or_else(|| Error::invalid("a scan loses state"))?;
        for (slice, stack) in slices.iter().zip(stacks) {
            let (slice, stack) = (self.argument(slice)?, self.value(*stack)?);
            self.make_dynamic(stack);
            self.kernel(executorch_prim::ET_COPY_INDEX_TENSOR, vec![stack, slice, index]);
        }
        self.carry(next, &carried, last)?;
        self.kernel(executorch_prim::ADD_SCALAR, vec![index, one, index]);
        let done = self.push(ValueModel::Bool(false));
        self.kernel(executorch_prim::EQ_SCALAR, vec![index, length, done]);
        self.emit(InstructionModel::JumpFalse { cond: done, destination: start as u32 });
        Ok(())
    }

    /// Memory for the carried values of a loop, with their first values.
    fn begin_carry(&mut self, initial: &[Arg], results: &[ValueId]) -> Result<Vec<u32>, Error> {
        let mut carried = Vec::with_capacity(results.len());
        for (arg, result) in initial.iter().zip(results) {
            let (from, to) = (self.argument(arg)?, self.value(*result)?);
            self.transfer(from, to, *result);
            carried.push(to);
        }
        Ok(carried)
    }

    /// Stores the values with which the next iteration begins.
    fn carry(&mut self, next: &[Arg], carried: &[u32], results: &[ValueId]) -> Result<(), Error> {
        let mut stores = Vec::new();
        for ((arg, to), result) in next.iter().zip(carried).zip(results) {
            let mut from = self.argument(arg)?;
            if from == *to {
                continue;
            }
            // A carried value that is stored somewhere else is saved before it is overwritten.
            let is_carried = carried.iter().any(|other| *other == from || self.shares_memory(*other, from));
            if is_carried {
                from = self.save(from, *result)?;
            }
            stores.push((from, *to, *result));
        }
        for (from, to, result) in stores {
            self.transfer(from, to, result);
        }
        Ok(())
    }

    fn shares_memory(&self, a: u32, b: u32) -> bool {
        matches!((self.slot(a), self.slot(b)), (Some(a), Some(b)) if self.slots.find(a) == self.slots.find(b))
    }

    /// A copy of a value, for when its memory is written again.
    pub fn save(&mut self, from: u32, like: ValueId) -> Result<u32, Error> {
        let graph = self.graph;
        let copy = match graph.ty(like) {
            Type::Tensor(ty) => self.temporary(ty)?,
            Type::Int(_) => self.push(ValueModel::Int(0)),
            Type::Float => self.push(ValueModel::Double(0.0)),
            Type::Bool => self.push(ValueModel::Bool(false)),
        };
        self.transfer(from, copy, like);
        Ok(copy)
    }

    /// Copies a tensor, or a number.
    fn transfer(&mut self, from: u32, to: u32, like: ValueId) {
        if is_tensor(self.graph.ty(like)) {
            self.copy(from, to);
        } else {
            self.emit(InstructionModel::Move { from, to });
        }
    }

    /// Adds a jump for when `condition` is false, whose destination [`land`](Self::land) sets. Returns its index.
    fn jump_if_false(&mut self, condition: u32) -> usize {
        let at = self.here();
        self.emit(InstructionModel::JumpFalse { cond: condition, destination: 0 });
        at
    }

    /// Makes a jump lead here.
    fn land(&mut self, jump: usize) {
        let here = self.here() as u32;
        if let Some(InstructionModel::JumpFalse { destination, .. }) = self.plan.instructions.get_mut(jump) {
            *destination = here;
        }
    }

    fn jump_back(&mut self, start: usize) {
        let never = self.bool(false);
        self.emit(InstructionModel::JumpFalse { cond: never, destination: start as u32 });
    }
}
