//! Lifts jumps to `cond`, `while_loop` and `scan`.
//!
//! A forward jump is a condition. It has two branches if it skips past another jump that never falls through. A
//! backward jump is a loop. If it always jumps, the loop repeats until a jump inside leaves it. If it depends on a
//! counter over the rows of tensors, the loop is a scan. A loop carries the values that it writes and then reads in the
//! next round, and those that are read after it.

use std::collections::{BTreeMap, BTreeSet};

use rushlight_format::pte::{InstructionModel, ValueModel};

use rushlight_graph::Error;
use rushlight_graph::operators::{aten, executorch_prim};
use rushlight_graph::{Arg, Block, BlockId, Expr, Op, TensorType, Type, ValueId};

use super::accesses::operator_name;
use super::liveness::Live;
use super::method::Method;
use super::regions::Region;
use super::scope::{Content, Place, Scope};

/// Values that a loop carries from one iteration to the next.
#[derive(Debug, Default)]
struct Carried {
    /// Places, each with the program's value that is written there and the initial content.
    tensors: Vec<(Place, u32, ValueId)>,
    numbers: Vec<(u32, Arg)>,
}

/// A loop over the rows of tensors.
struct Count {
    index: u32,
    length: u32,
    done: u32,
    /// The instruction that increments the counter.
    at: usize,
}

/// A loop over rows, with the rows that it reads and writes.
struct RowLoop {
    /// Its first instruction.
    start: usize,
    /// The jump back to the first instruction.
    back: usize,
    count: Count,
    /// Tensors that are read row by row, each with the value of its row.
    sequences: Vec<(u32, u32)>,
    /// Tensors that are written row by row, each with the value of its row and the instruction that writes the row.
    stacks: Vec<(u32, u32, usize)>,
    /// The values of rows by the instruction that reads them.
    rows: BTreeMap<usize, u32>,
    /// Number of iterations.
    length: Expr,
}

impl Method<'_, '_> {
    /// Lifts the condition that the jump at `at` begins, and returns the instruction after it.
    pub(super) fn lift_cond(&mut self, at: usize, end: usize) -> Result<usize, Error> {
        let plan = self.plan;
        let Some(InstructionModel::JumpFalse { cond, destination }) = plan.instructions.get(at) else {
            return Err(Error::invalid("no jump"));
        };
        let otherwise = *destination as usize;
        if otherwise <= at || otherwise > end {
            return Err(unknown_jump(at, otherwise));
        }
        let (then_end, after) = match plan.instructions.get(otherwise - 1) {
            Some(InstructionModel::JumpFalse { cond, destination })
                if otherwise - 1 > at && self.is_never(*cond) && *destination as usize >= otherwise =>
            {
                (otherwise - 1, *destination as usize)
            }
            _ => (otherwise, otherwise),
        };
        if after > end {
            return Err(unknown_jump(at, after));
        }
        let predicate = if let Some(ValueModel::Tensor(_)) = plan.values.get(*cond as usize) {
            self.read(*cond)?.into()
        } else {
            self.number(*cond)?
        };
        if !matches!(predicate, Arg::Value(_) | Arg::Bool(_)) {
            return Err(Error::invalid("a jump on what is no truth value"));
        }
        let live = self.live_after(at, after)?;
        let symbols = self.graph.symbols.len();
        let entry = self.snapshot()?;
        let then_block = self.graph.blocks.push(Block::default());
        let else_block = self.graph.blocks.push(Block::default());
        let first = self.inside(then_block, |method| method.run(at + 1, then_end))?;
        self.scope = entry.clone();
        let second = self.inside(else_block, |method| method.run(otherwise, after))?;
        self.merge(at, predicate, &entry, [(then_block, first), (else_block, second)], &live, symbols)?;
        Ok(after)
    }

    /// Merges the scopes at the end of a condition's two branches. Contents that differ and are read later become
    /// results.
    fn merge(
        &mut self,
        at: usize,
        predicate: Arg,
        entry: &Scope,
        branches: [(BlockId, Scope); 2],
        live: &Live,
        symbols: usize,
    ) -> Result<(), Error> {
        let [(then_block, first), (else_block, second)] = branches;
        self.origin = self.origin_of(at);
        let mut merged = entry.emptied();
        let mut results: Vec<(Arg, Arg, Type)> = Vec::new();
        let (mut tensors, mut numbers) = (Vec::new(), Vec::new());
        for (handle, place) in &first.handles {
            if second.handles.get(handle) == Some(place) {
                merged.handles.insert(*handle, *place);
            }
        }
        for (place, a) in first.contents() {
            let Some(b) = second.get(place) else { continue };
            if a.value == b.value {
                merged.write(place, a);
            } else if live.places.contains(&place)
                && let Some(ty) = self.common_type(a.value, b.value, symbols)
            {
                results.push((a.value.into(), b.value.into(), Type::Tensor(ty)));
                tensors.push((place, Content { len: a.len.max(b.len), ..a }));
            }
        }
        let changed: BTreeSet<u32> = first.numbers.keys().chain(second.numbers.keys()).copied().collect();
        let of_branch = |method: &mut Self, scope| {
            method.scope = scope;
            changed.iter().map(|number| method.number(*number)).collect::<Result<Vec<_>, _>>()
        };
        let (of_first, of_second) = (of_branch(self, first)?, of_branch(self, second)?);
        for (number, (a, b)) in changed.iter().copied().zip(of_first.into_iter().zip(of_second)) {
            if a == b {
                merged.numbers.insert(number, a);
            } else if live.numbers.contains(&number) {
                let ty = self.number_type(number)?;
                results.push((a, b, ty));
                numbers.push(number);
            }
        }
        self.scope = merged;
        let mut types = Vec::with_capacity(results.len());
        for (a, b, ty) in results {
            self.graph.blocks[then_block].results.push(a);
            self.graph.blocks[else_block].results.push(b);
            types.push(ty);
        }
        let args = vec![predicate, Arg::Block(then_block), Arg::Block(else_block)];
        let values = self.push_results(Op::Cond, args, types);
        let (of_tensors, of_numbers) = values.split_at_checked(tensors.len()).unwrap_or_default();
        for ((place, content), value) in tensors.into_iter().zip(of_tensors) {
            self.scope.write(place, Content { value: *value, ..content });
        }
        for (number, value) in numbers.into_iter().zip(of_numbers) {
            let arg = self.as_number(*value);
            self.scope.numbers.insert(number, arg);
        }
        Ok(())
    }

    /// Lifts a loop, and returns the instruction after it.
    pub(super) fn lift_loop(&mut self, region: Region) -> Result<usize, Error> {
        let Region { start, end, .. } = region;
        let back = end - 1;
        let Some(InstructionModel::JumpFalse { cond, .. }) = self.plan.instructions.get(back) else {
            return Err(Error::invalid("no jump"));
        };
        if self.is_never(*cond) {
            self.lift_while(start, back)?;
        } else {
            self.lift_scan(start, back, *cond)?;
        }
        Ok(end)
    }

    fn lift_while(&mut self, start: usize, back: usize) -> Result<(), Error> {
        let plan = self.plan;
        let leaves = |at: &usize| {
            matches!(plan.instructions.get(*at), Some(InstructionModel::JumpFalse { destination, .. })
                if *destination as usize == back + 1)
        };
        let exit = (start..back).find(leaves).ok_or_else(|| Error::unsupported("a loop without an end"))?;
        let Some(InstructionModel::JumpFalse { cond: verdict, .. }) = plan.instructions.get(exit) else {
            return Err(Error::invalid("no jump"));
        };
        let live = self.live_after(start, back + 1)?;
        let carried = self.carried(start, back, &live, &[])?;
        let entry = self.snapshot()?;
        let (condition, body) = (self.graph.blocks.push(Block::default()), self.graph.blocks.push(Block::default()));
        self.begin_round(&carried, condition, start, back)?;
        self.scope = {
            let mut verdict_of = Arg::None;
            self.inside(condition, |method| {
                method.run(start, exit)?;
                verdict_of = method.truth(*verdict)?;
                Ok(())
            })?;
            self.graph.blocks[condition].results.push(verdict_of);
            entry.clone()
        };
        self.begin_round(&carried, body, start, back)?;
        let mut next = Vec::new();
        self.inside(body, |method| {
            // Values of the loop's condition may be used again.
            method.run(start, exit)?;
            method.run(exit + 1, back)?;
            next = method.next_round(&carried)?;
            Ok(())
        })?;
        self.graph.blocks[body].results = next;
        self.scope = entry;
        self.origin = self.origin_of(start);
        let (initial, types) = self.initial(&carried)?;
        let args = vec![Arg::Block(condition), Arg::Block(body), Arg::List(initial)];
        let results = self.push_results(Op::While, args, types);
        self.end_loop(&carried, &results, start, back)
    }

    fn lift_scan(&mut self, start: usize, back: usize, done: u32) -> Result<(), Error> {
        let count = self.count(start, back, done)?;
        let plan = self.plan;
        if !self.number(count.index)?.eq(&Arg::from(0)) {
            return Err(Error::unsupported("a loop that does not count from 0"));
        }
        let (mut sequences, mut stacks, mut rows) = (Vec::new(), Vec::new(), BTreeMap::new());
        for at in start..count.at {
            let Some(access) = self.accesses.get(at) else { continue };
            if !access.reads.contains(&count.index) {
                if access.stack.is_some() || access.writes.contains(&count.index) {
                    return Err(Error::unsupported("a loop that counts in several ways"));
                }
                continue;
            }
            let Some(InstructionModel::Kernel { operator, args }) = plan.instructions.get(at) else {
                return Err(Error::unsupported("a loop that uses its count"));
            };
            match (operator_name(plan, *operator).as_str(), args.as_slice()) {
                (aten::SELECT_COPY_INT_OUT, [of, dim, index, row, ..]) if *index == count.index => {
                    if !self.int(*dim)?.is(0) {
                        return Err(Error::unsupported("a loop over another dimension than the first"));
                    }
                    sequences.push((*of, *row));
                    rows.insert(at, *row);
                }
                (executorch_prim::ET_COPY_INDEX_TENSOR, [stack, row, index, ..])
                    if *index == count.index && self.regions.runs_with(at, start) =>
                {
                    stacks.push((*stack, *row, at));
                }
                _ => return Err(Error::unsupported("a loop that uses its count")),
            }
        }
        let Some((first, _)) = sequences.first() else { return Err(Error::unsupported("a loop over no tensor")) };
        let first = self.read(*first)?;
        let length = self.graph.tensor(first)?.shape.first().cloned();
        let length = length.ok_or_else(|| Error::invalid("a loop over a tensor without dimensions"))?;
        if self.int(count.length)? != length {
            return Err(Error::unsupported("a loop over some rows of a tensor"));
        }
        self.scan(RowLoop { start, back, count, sequences, stacks, rows, length })
    }

    fn scan(&mut self, found: RowLoop) -> Result<(), Error> {
        let RowLoop { start, back, count, sequences, stacks, rows, length } = found;
        let mut apart: Vec<u32> = stacks.iter().map(|(stack, ..)| *stack).collect();
        apart.extend([count.index, count.done]);
        let live = self.live_after(start, back + 1)?;
        let carried = self.carried(start, back, &live, &apart)?;
        let mut given = Vec::new();
        for (of, _) in &sequences {
            given.push(self.read(*of)?);
        }
        let entry = self.snapshot()?;
        let body = self.graph.blocks.push(Block::default());
        self.begin_round(&carried, body, start, back)?;
        let mut slices = Vec::new();
        for value in &given {
            let ty = self.graph.tensor(*value)?;
            let (dtype, shape) = (ty.dtype, ty.shape.get(1..).unwrap_or_default().to_vec());
            let name = format!("row_{}", self.graph.values.len());
            slices.push(self.graph.param(body, &name, Type::Tensor(TensorType::new(dtype, shape))));
        }
        let mut results = Vec::new();
        self.inside(body, |method| {
            let mut next_slice = slices.iter();
            let mut at = start;
            let mut pushed = Vec::new();
            // Instructions between the reads and writes of rows are lifted as usual.
            let cuts: BTreeSet<usize> = rows.keys().copied().chain(stacks.iter().map(|(.., at)| *at)).collect();
            for cut in cuts {
                method.run(at, cut)?;
                if let Some(row) = rows.get(&cut) {
                    let slice = next_slice.next().ok_or_else(|| Error::invalid("a loop over no tensor"))?;
                    method.write(*row, *slice);
                }
                if let Some((_, row, _)) = stacks.iter().find(|(.., at)| *at == cut) {
                    pushed.push(Arg::Value(method.read(*row)?));
                }
                at = cut + 1;
            }
            method.run(at, count.at)?;
            results = method.next_round(&carried)?;
            results.extend(pushed);
            Ok(())
        })?;
        self.scope = entry;
        self.origin = self.origin_of(start);
        let (initial, mut types) = self.initial(&carried)?;
        for result in results.iter().skip(initial.len()) {
            let value = result.as_value().ok_or_else(|| Error::invalid("a row of no tensor"))?;
            let ty = self.graph.tensor(value)?;
            let shape = std::iter::once(length.clone()).chain(ty.shape.iter().cloned()).collect();
            types.push(Type::Tensor(TensorType::new(ty.dtype, shape)));
        }
        self.graph.blocks[body].results = results;
        let given = given.into_iter().map(Arg::Value).collect();
        let args = vec![Arg::Block(body), Arg::List(initial), Arg::List(given)];
        let values = self.push_results(Op::Scan, args, types);
        self.end_loop(&carried, &values, start, back)?;
        let carried_count = carried.tensors.len() + carried.numbers.len();
        let of_stacks = values.get(carried_count..).unwrap_or_default();
        for ((stack, ..), value) in stacks.iter().zip(of_stacks) {
            self.write(*stack, *value);
        }
        self.scope.numbers.insert(count.index, Arg::Int(length));
        self.scope.numbers.insert(count.done, Arg::Bool(true));
        Ok(())
    }

    /// Finds the instructions at the end of a loop that count its rounds.
    fn count(&self, start: usize, back: usize, done: u32) -> Result<Count, Error> {
        let plan = self.plan;
        let kernel = |at: usize| match plan.instructions.get(at) {
            Some(InstructionModel::Kernel { operator, args }) => Some((operator_name(plan, *operator), args)),
            _ => None,
        };
        let unknown = || Error::unsupported("a loop that does not count the rows of a tensor");
        let at = back.checked_sub(2).filter(|at| *at >= start).ok_or_else(unknown)?;
        let (add, added) = kernel(at).ok_or_else(unknown)?;
        let (compare, compared) = kernel(at + 1).ok_or_else(unknown)?;
        let is_count = matches!(add.as_str(), executorch_prim::ADD_SCALAR | executorch_prim::ADD_INT)
            && matches!(compare.as_str(), executorch_prim::EQ_SCALAR | executorch_prim::EQ_INT);
        match (added.as_slice(), compared.as_slice()) {
            ([from, step, index], [left, length, verdict])
                if is_count && from == index && left == index && *verdict == done && self.is_one(*step) =>
            {
                Ok(Count { index: *index, length: *length, done, at })
            }
            _ => Err(unknown()),
        }
    }

    fn is_one(&self, index: u32) -> bool {
        matches!(self.plan.values.get(index as usize), Some(ValueModel::Int(1)))
            && !self.scope.numbers.contains_key(&index)
    }

    /// True if a conditional jump on this value always jumps.
    fn is_never(&self, index: u32) -> bool {
        let is_false = matches!(self.plan.values.get(index as usize), Some(ValueModel::Bool(false)));
        is_false && self.accesses.iter().all(|access| !access.writes.contains(&index))
    }

    /// Finds the values that a loop writes and then reads in the next round, or that are read after it.
    fn carried(&mut self, start: usize, back: usize, live: &Live, apart: &[u32]) -> Result<Carried, Error> {
        self.spend((back - start) as u64)?;
        let mut written: BTreeMap<Place, u32> = BTreeMap::new();
        let mut numbers: BTreeSet<u32> = BTreeSet::new();
        let mut needed = Live { places: live.places.clone(), numbers: live.numbers.clone() };
        for at in start..back {
            let Some(access) = self.accesses.get(at) else { break };
            for value in access.reads.iter().filter(|value| !apart.contains(value)) {
                match self.plan.values.get(*value as usize) {
                    Some(ValueModel::Tensor(_)) => {
                        if let Some(place) = self.place(*value)?
                            && !written.contains_key(&place)
                        {
                            needed.places.insert(place);
                        }
                    }
                    _ if !numbers.contains(value) => {
                        needed.numbers.insert(*value);
                    }
                    _ => {}
                }
            }
            // An instruction that may be skipped in a round leaves the old content, which is then needed.
            let always = self.regions.runs_with(at, start);
            for value in access.writes.iter().filter(|value| !apart.contains(value)) {
                match self.plan.values.get(*value as usize) {
                    Some(ValueModel::Tensor(_)) => {
                        if let Some(place) = self.place(*value)? {
                            if !always && !written.contains_key(&place) && live.places.contains(&place) {
                                needed.places.insert(place);
                            }
                            written.insert(place, *value);
                        }
                    }
                    _ => {
                        numbers.insert(*value);
                    }
                }
            }
        }
        let mut carried = Carried::default();
        for (place, by) in written {
            let Some(content) = self.scope.get(place).filter(|_| needed.places.contains(&place)) else { continue };
            let tensor = self.tensor_model(by)?;
            let ty = self.graph.tensor(content.value)?;
            let same = ty.dtype == tensor.scalar_type && ty.rank() == tensor.sizes.len();
            let fits = |(size, planned): (&Expr, &i32)| size.as_int().is_none_or(|size| size == i64::from(*planned));
            if same && ty.shape.iter().zip(&tensor.sizes).all(fits) {
                carried.tensors.push((place, by, content.value));
            }
        }
        for number in numbers {
            if needed.numbers.contains(&number) {
                let initial = self.number(number)?;
                carried.numbers.push((number, initial));
            }
        }
        Ok(carried)
    }

    /// Gives a block of a loop its parameters, and drops contents that other rounds may have overwritten.
    fn begin_round(&mut self, carried: &Carried, block: BlockId, start: usize, back: usize) -> Result<(), Error> {
        self.forget_written(start, back)?;
        for (place, by, initial) in &carried.tensors {
            let ty = self.graph.ty(*initial).clone();
            let name = format!("carried_{}", self.graph.values.len());
            let value = self.graph.param(block, &name, ty);
            let len = self.tensor_model(*by)?.nbytes();
            self.scope.write(*place, Content { len, value, by: *by });
        }
        for (number, _) in &carried.numbers {
            let ty = self.number_type(*number)?;
            let name = format!("carried_{}", self.graph.values.len());
            let value = self.graph.param(block, &name, ty);
            let arg = self.as_number(value);
            self.scope.numbers.insert(*number, arg);
        }
        Ok(())
    }

    fn forget_written(&mut self, start: usize, back: usize) -> Result<(), Error> {
        self.spend((back - start) as u64)?;
        for at in start..back {
            let Some(access) = self.accesses.get(at) else { break };
            for value in access.writes.clone() {
                match self.plan.values.get(value as usize) {
                    Some(ValueModel::Tensor(tensor)) => {
                        let len = tensor.nbytes();
                        if let Some(place) = self.place(value)? {
                            self.scope.forget(place, len);
                        }
                    }
                    _ => {
                        self.scope.numbers.remove(&value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the values with which the next round begins.
    fn next_round(&mut self, carried: &Carried) -> Result<Vec<Arg>, Error> {
        let mut next = Vec::new();
        for (place, by, _) in &carried.tensors {
            let content = self.scope.get(*place);
            let content = content.ok_or_else(|| Error::unsupported(format!("value {by} is lost in a loop")))?;
            next.push(content.value.into());
        }
        for (number, _) in &carried.numbers {
            next.push(self.number(*number)?);
        }
        Ok(next)
    }

    /// Returns the initial values of a loop, and the types of the carried values.
    fn initial(&mut self, carried: &Carried) -> Result<(Vec<Arg>, Vec<Type>), Error> {
        let (mut initial, mut types) = (Vec::new(), Vec::new());
        for (.., value) in &carried.tensors {
            initial.push(Arg::Value(*value));
            types.push(self.graph.ty(*value).clone());
        }
        for (number, arg) in &carried.numbers {
            initial.push(arg.clone());
            types.push(self.number_type(*number)?);
        }
        Ok((initial, types))
    }

    fn end_loop(&mut self, carried: &Carried, results: &[ValueId], start: usize, back: usize) -> Result<(), Error> {
        self.forget_written(start, back)?;
        let (tensors, numbers) = results.split_at_checked(carried.tensors.len()).unwrap_or_default();
        for ((place, by, _), value) in carried.tensors.iter().zip(tensors) {
            let len = self.tensor_model(*by)?.nbytes();
            self.scope.write(*place, Content { len, value: *value, by: *by });
        }
        for ((number, _), value) in carried.numbers.iter().zip(numbers) {
            let arg = self.as_number(*value);
            self.scope.numbers.insert(*number, arg);
        }
        Ok(())
    }

    /// Lifts a part of the method into another block. Returns the scope at its end.
    fn inside(&mut self, block: BlockId, walk: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<Scope, Error> {
        let outer = std::mem::replace(&mut self.block, block);
        let walked = walk(self);
        self.block = outer;
        walked?;
        Ok(std::mem::take(&mut self.scope))
    }

    fn snapshot(&mut self) -> Result<Scope, Error> {
        self.spend(self.scope.weight())?;
        Ok(self.scope.clone())
    }

    fn truth(&mut self, index: u32) -> Result<Arg, Error> {
        match self.plan.values.get(index as usize) {
            Some(ValueModel::Tensor(_)) => self.read(index).map(Arg::Value),
            _ => match self.number(index)? {
                arg @ (Arg::Value(_) | Arg::Bool(_)) => Ok(arg),
                _ => Err(Error::invalid("a jump on what is no truth value")),
            },
        }
    }

    /// Returns the common type of two branches' results; `None` if they are incompatible. Sizes that differ, or that
    /// only a branch defines, become symbols.
    fn common_type(&mut self, a: ValueId, b: ValueId, symbols: usize) -> Option<TensorType> {
        let (a, b) = (self.graph.tensor(a).ok()?.clone(), self.graph.tensor(b).ok()?.clone());
        if a.dtype != b.dtype || a.rank() != b.rank() {
            return None;
        }
        let mut shape = Vec::with_capacity(a.rank());
        for (a, b) in a.shape.iter().zip(&b.shape) {
            let mut is_known = a == b;
            a.for_each_symbol(&mut |symbol| is_known &= symbol.index() < symbols);
            if a.is_static() && b.is_static() && a != b {
                return None;
            }
            shape.push(if is_known {
                a.clone()
            } else {
                let bounds = (a.upper_bound(&self.graph.symbols), b.upper_bound(&self.graph.symbols));
                self.fresh("u", 0, bounds.0.zip(bounds.1).map(|(a, b)| a.max(b)))
            });
        }
        Some(TensorType::new(a.dtype, shape))
    }

    fn number_type(&mut self, index: u32) -> Result<Type, Error> {
        Ok(match self.plan.values.get(index as usize) {
            Some(ValueModel::Int(_)) => Type::Int(self.fresh("n", i64::MIN, None)),
            Some(ValueModel::Double(_)) => Type::Float,
            Some(ValueModel::Bool(_)) => Type::Bool,
            _ => return Err(Error::unsupported(format!("value {index} changes and is not a number"))),
        })
    }

    fn as_number(&self, value: ValueId) -> Arg {
        match self.graph.ty(value) {
            Type::Int(expr) => Arg::Int(expr.clone()),
            _ => Arg::Value(value),
        }
    }
}

fn unknown_jump(at: usize, destination: usize) -> Error {
    Error::unsupported(format!("the jump from instruction {at} to {destination} belongs to no condition and no loop"))
}
