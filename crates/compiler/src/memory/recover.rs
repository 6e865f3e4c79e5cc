//! Recovers the sizes and lifetimes behind the memory plan of a finished program, by following the reads and writes of
//! its instructions. Drawings use it, and comparisons with other plans of the same buffers.

use std::collections::{BTreeMap, HashMap};

use rushlight_format::pte::{Instruction, Plan, TensorSpec, TensorStorage, ValueSpec};
use rushlight_kernels as kernels;
use rushlight_runtime::{Op, Registry};

use super::{Buffer, DEFAULT_ALIGNMENT, MemoryPlan};

/// The buffers of a method and where its file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The contents of planned memory, each from a write to its last read. A method without instructions has one buffer
    /// that lasts for instruction 0.
    pub buffers: Vec<Buffer>,
    /// The tensor of each buffer: the index of the value that wrote it first.
    pub values: Vec<u32>,
    /// The offsets in the file, and its arenas.
    pub plan: MemoryPlan,
}

/// Finds the buffers of a method's planned memory.
///
/// Inputs are in use from the start, and outputs to the end. Initialized state, and other state that persists, is in
/// use throughout. An operator that works in place, and a view, continue the buffer that they find. A value that a loop
/// carries is in use for the whole loop. Both sides of a branch count, one after the other. A value that the first side
/// hands on ends with that side, because the second side may reuse its memory and hands on a value of the same size.
pub fn recover(method: &Plan<'_>) -> Recovered {
    let mut trace = Trace::new(method);
    trace.inputs();
    trace.run();
    trace.finish()
}

/// A range of bytes of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    memory_id: u32,
    start: u64,
    end: u64,
}

/// One content of planned memory, from its write to its last read.
#[derive(Clone, Copy, Debug)]
struct PlannedValue {
    span: Span,
    value: u32,
    /// The instruction that wrote it; `None` if it was there at the start.
    written: Option<usize>,
    first: usize,
    last: usize,
}

/// A condition with two sides.
#[derive(Clone, Copy, Debug)]
struct Branch {
    /// First and last instruction of the first side.
    side: (usize, usize),
    /// The first instruction after the second side.
    join: usize,
}

struct Trace<'p, 'a> {
    method: &'p Plan<'a>,
    instructions: Vec<Instruction<'a>>,
    operators: Vec<Option<&'static Op>>,
    /// The planned tensors by value.
    spans: Vec<Option<Span>>,
    /// The contents that a value became a handle of, by moves and views.
    handles: HashMap<u32, Vec<usize>>,
    /// True for values that have data: initial data, or data that an instruction wrote.
    known: Vec<bool>,
    /// Remaining steps.
    budget: usize,
    contents: Vec<PlannedValue>,
    /// The content by the instruction and output that wrote it. So the second pass of a loop finds the content of the
    /// first.
    by_site: HashMap<(usize, usize), usize>,
    /// The contents of memory, which are disjoint. By arena and start: the end, and the content.
    current: BTreeMap<(u32, u64), (u64, usize)>,
    /// First and last instruction of each loop.
    loops: Vec<(usize, usize)>,
    branches: Vec<Branch>,
    end: usize,
}

/// Maximum number of steps for each instruction and argument; at least the number below is allowed. Only malicious
/// files exceed it. Loops are traced twice, so that the second pass reads the values that the first one wrote.
const STEPS_PER_OPERAND: usize = 64;
const MIN_STEPS: usize = 1_000_000;

impl<'p, 'a> Trace<'p, 'a> {
    fn new(method: &'p Plan<'a>) -> Self {
        let registry = Registry::new(kernels::ALL);
        let operators = (0..method.num_operators()).map(|index| {
            let operator = method.operator(index)?;
            registry.find(operator.name, operator.overload)
        });
        let instructions: Vec<Instruction<'a>> = method.instructions().collect();
        let operands: usize = instructions.iter().map(operands).sum();
        let backwards = |(at, instruction): (usize, &Instruction<'_>)| match *instruction {
            Instruction::JumpFalse { destination, .. } if destination as usize <= at => {
                Some((destination as usize, at))
            }
            _ => None,
        };
        Self {
            method,
            operators: operators.collect(),
            loops: instructions.iter().enumerate().filter_map(backwards).collect(),
            branches: branches(&instructions),
            end: instructions.len().saturating_sub(1),
            instructions,
            spans: method.values().map(|value| span(&value)).collect(),
            handles: HashMap::new(),
            known: method.values().map(|value| has_data(&value)).collect(),
            budget: MIN_STEPS.max(STEPS_PER_OPERAND * operands),
            contents: Vec::new(),
            by_site: HashMap::new(),
            current: BTreeMap::new(),
        }
    }

    /// Adds the initial contents of memory: inputs and initialized state.
    fn inputs(&mut self) {
        for value in self.method.inputs() {
            self.mark_known(value);
            for span in self.spans_of(value) {
                self.begin(span, value, None, 0);
            }
        }
        for (value, index) in self.method.values().zip(0..) {
            if let ValueSpec::Tensor(TensorSpec {
                storage: TensorStorage::PlannedInit { .. } | TensorStorage::ExternalPlanned { .. },
                ..
            }) = value
                && let Some(Some(span)) = self.spans.get(index as usize).copied()
            {
                self.last_throughout(span, index);
            }
        }
    }

    fn run(&mut self) {
        let mut repeated = vec![false; self.instructions.len()];
        let mut at = 0;
        while let Some(&instruction) = self.instructions.get(at) {
            if self.budget == 0 {
                return;
            }
            self.spend(1);
            match instruction {
                Instruction::Kernel { operator, args } => {
                    let op = self.operators.get(operator as usize).copied().flatten();
                    let args: Vec<u32> = args.iter().collect();
                    self.call(at, op, &args);
                }
                Instruction::Delegate { args, .. } => self.call(at, None, &args.iter().collect::<Vec<u32>>()),
                Instruction::Move { from, to } => self.moves(at, from, to),
                Instruction::Free { .. } => {}
                Instruction::JumpFalse { destination, .. } => {
                    if destination as usize <= at
                        && let Some(repeated) = repeated.get_mut(at).filter(|repeated| !**repeated)
                    {
                        *repeated = true;
                        at = destination as usize;
                        continue;
                    }
                }
            }
            at += 1;
        }
    }

    /// Traces a call of an operator, of a delegate, or of an operator of another library. A delegate and an unknown
    /// operator write the arguments that were not written before, and the last argument.
    fn call(&mut self, at: usize, op: Option<&Op>, args: &[u32]) {
        let args = op.map_or(args, |op| args.get(..op.arity as usize).unwrap_or(args));
        let count = args.len();
        let is_output = |trace: &Self, index: usize, value: u32| match op {
            Some(op) => op.writes_argument(index),
            None => index + 1 == count || !trace.is_known(value),
        };
        // Out arguments come last. Arguments that an operator writes before them are updated in place.
        let updates = |index: usize| {
            op.is_some_and(|op| op.name.contains("_.") || (index + 1..count).any(|later| !op.writes_argument(later)))
        };
        // The rows of a map's result are written one by one. The first write finds no content.
        let fills = op.is_some_and(|op| op.name == kernels::prim::copy_index::ET_COPY_INDEX_TENSOR.name);
        let outputs: Vec<bool> = args.iter().enumerate().map(|(i, &value)| is_output(self, i, value)).collect();
        for (index, (&value, &is_output)) in args.iter().zip(&outputs).enumerate() {
            let finds = updates(index) && (self.is_known(value) || !fills);
            if !is_output || finds || self.handles.contains_key(&value) {
                self.read(at, value);
            }
        }
        if op.is_some_and(|op| op.is_view) {
            let output = args.iter().zip(&outputs).find(|(_, is_output)| **is_output);
            if let (Some((&view, _)), Some(&base)) = (output, args.first()) {
                let contents = self.contents_of(base);
                self.handles.insert(view, contents);
                self.mark_known(view);
            }
            return;
        }
        let mut site = 0;
        for (&value, _) in args.iter().zip(&outputs).filter(|(_, is_output)| **is_output) {
            for span in self.spans_of(value) {
                self.write((at, site), span, value);
                site += 1;
            }
            self.mark_known(value);
        }
    }

    fn is_known(&self, value: u32) -> bool {
        self.known.get(value as usize) == Some(&true)
    }

    fn mark_known(&mut self, value: u32) {
        if let Some(known) = self.known.get_mut(value as usize) {
            *known = true;
        }
    }

    fn spend(&mut self, steps: usize) {
        self.budget = self.budget.saturating_sub(steps);
    }

    fn moves(&mut self, at: usize, from: u32, to: u32) {
        self.read(at, from);
        let contents = self.contents_of(from);
        let handles = self.handles.entry(to).or_default();
        handles.extend(contents);
        handles.sort_unstable();
        handles.dedup();
        let count = handles.len();
        self.spend(count);
        self.mark_known(to);
    }

    fn read(&mut self, at: usize, value: u32) {
        let contents = self.contents_of(value);
        if contents.is_empty() {
            // State that starts as zeros and persists: no instruction wrote it.
            for span in self.spans_of(value) {
                self.last_throughout(span, value);
            }
        }
        for index in contents {
            self.used(index, at);
        }
    }

    /// Records a use, and extends the lifetime over loops.
    fn used(&mut self, index: usize, at: usize) {
        let Some(content) = self.contents.get(index).copied().filter(|_| self.budget > 0) else { return };
        self.spend(self.loops.len() + self.branches.len());
        let is_left = |branch: &Branch| {
            content.written.is_some_and(|written| contains(branch.side, written)) && at >= branch.join
        };
        if self.branches.iter().any(is_left) {
            return;
        }
        self.extend(index, at, at);
        for number in 0..self.loops.len() {
            let Some((first, last)) = self.loops.get(number).copied().filter(|range| contains(*range, at)) else {
                continue;
            };
            match content.written {
                // Written in one pass, and read in the next.
                Some(written) if contains((first, last), written) && written >= at => self.extend(index, first, last),
                Some(written) if contains((first, last), written) => {}
                // Every pass reads a content from before the loop.
                _ => self.extend(index, at, last),
            }
        }
    }

    fn write(&mut self, site: (usize, usize), span: Span, value: u32) {
        let at = site.0;
        // An instruction that reads and writes the same memory works in place.
        if let Some(&(end, index)) = self.current.get(&(span.memory_id, span.start))
            && let Some(content) = self.contents.get_mut(index)
            && content.last >= at
            && content.first <= at
        {
            if end < span.end {
                content.span.end = content.span.end.max(span.end);
                self.occupy(span, index);
            }
            return;
        }
        let known = self.by_site.get(&site).copied();
        let index = known.unwrap_or_else(|| self.begin(span, value, Some(at), at));
        self.by_site.insert(site, index);
        self.occupy(span, index);
    }

    /// Adds a new content of `span`.
    fn begin(&mut self, span: Span, value: u32, written: Option<usize>, at: usize) -> usize {
        let index = self.contents.len();
        self.contents.push(PlannedValue { span, value, written, first: at, last: at });
        self.occupy(span, index);
        index
    }

    fn last_throughout(&mut self, span: Span, value: u32) {
        // An input may also be state.
        let contents = self.contents_in(span);
        let index = contents.first().copied().unwrap_or_else(|| self.begin(span, value, None, 0));
        self.extend(index, 0, self.end);
    }

    fn extend(&mut self, index: usize, first: usize, last: usize) {
        if let Some(content) = self.contents.get_mut(index) {
            content.first = content.first.min(first);
            content.last = content.last.max(last);
        }
    }

    /// Puts a content in its place. Cuts the contents that it overlaps.
    fn occupy(&mut self, span: Span, index: usize) {
        for (key, end) in self.pieces(span) {
            let Some((_, other)) = self.current.remove(&key) else { continue };
            if key.1 < span.start {
                self.current.insert(key, (span.start, other));
            }
            if end > span.end {
                self.current.insert((key.0, span.end), (end, other));
            }
        }
        if span.start < span.end {
            self.current.insert((span.memory_id, span.start), (span.end, index));
        }
    }

    /// Returns the keys and ends of the contents in `span`.
    fn pieces(&self, span: Span) -> Vec<((u32, u64), u64)> {
        let Span { memory_id, start, end } = span;
        let below = self.current.range((memory_id, 0)..(memory_id, start)).next_back();
        let below = below.filter(|(_, (end, _))| *end > start);
        let inside = self.current.range((memory_id, start)..(memory_id, end.max(start)));
        below.into_iter().chain(inside).map(|(key, (end, _))| (*key, *end)).collect()
    }

    fn contents_in(&mut self, span: Span) -> Vec<usize> {
        if self.budget == 0 {
            return Vec::new();
        }
        let pieces = self.pieces(span);
        self.spend(pieces.len());
        let mut contents: Vec<usize> = pieces.iter().filter_map(|(key, _)| Some(self.current.get(key)?.1)).collect();
        contents.dedup();
        contents
    }

    /// Returns the contents of a value, or of a list's elements.
    fn contents_of(&mut self, value: u32) -> Vec<usize> {
        let mut contents = Vec::new();
        for value in self.elements_of(value) {
            if let Some(handles) = self.handles.get(&value) {
                contents.extend(handles);
                let count = handles.len();
                self.spend(count);
            } else if let Some(Some(span)) = self.spans.get(value as usize).copied() {
                contents.extend(self.contents_in(span));
            }
        }
        contents
    }

    /// Returns the planned memory of a value, or of a list's elements; none for handles.
    fn spans_of(&mut self, value: u32) -> Vec<Span> {
        let mut elements = self.elements_of(value);
        elements.retain(|value| !self.handles.contains_key(value));
        elements.into_iter().filter_map(|value| self.spans.get(value as usize).copied().flatten()).collect()
    }

    /// The elements of a list, or the value itself.
    fn elements_of(&mut self, value: u32) -> Vec<u32> {
        if self.budget == 0 {
            return Vec::new();
        }
        let elements = match self.method.value(value as usize) {
            ValueSpec::TensorList(items) => items.iter().collect(),
            ValueSpec::OptionalTensorList(items) => items.iter().flatten().collect(),
            _ => vec![value],
        };
        self.spend(elements.len());
        elements
    }

    fn finish(mut self) -> Recovered {
        for value in self.method.outputs() {
            for index in self.contents_of(value) {
                self.used(index, self.instructions.len());
            }
        }
        let mut recovered = Recovered::default();
        for id in 1..self.method.num_buffers() as u32 {
            recovered.plan.arenas.insert(id, self.method.buffer_size(id));
        }
        for content in &self.contents {
            let Span { memory_id, start, end } = content.span;
            recovered.buffers.push(Buffer {
                // The file does not store the alignment that its planner used.
                alignment: if start % DEFAULT_ALIGNMENT == 0 { DEFAULT_ALIGNMENT } else { 1 },
                ..Buffer::new(end - start, content.first, content.last.min(self.end)).in_arena(memory_id)
            });
            recovered.values.push(content.value);
            recovered.plan.offsets.push(start);
        }
        recovered
    }
}

fn contains((first, last): (usize, usize), at: usize) -> bool {
    (first..=last).contains(&at)
}

/// Finds conditions with two sides: a forward jump to the second side, with a jump over the second side just before it.
fn branches(instructions: &[Instruction<'_>]) -> Vec<Branch> {
    let jump = |at: usize| match instructions.get(at) {
        Some(Instruction::JumpFalse { destination, .. }) if *destination as usize > at => Some(*destination as usize),
        _ => None,
    };
    let branch = |at: usize| {
        let second = jump(at)?;
        let join = jump(second - 1).filter(|join| *join > second && second - 1 > at)?;
        Some(Branch { side: (at + 1, second - 1), join })
    };
    (0..instructions.len()).filter_map(branch).collect()
}

/// True if a value has data before the first instruction. Planned memory may have some, but need not.
fn has_data(value: &ValueSpec<'_>) -> bool {
    let ValueSpec::Tensor(tensor) = value else { return true };
    !matches!(tensor.storage, TensorStorage::Planned { .. } | TensorStorage::Unplanned)
}

/// Cost of an instruction: the number of values that it names, and one.
fn operands(instruction: &Instruction<'_>) -> usize {
    match instruction {
        Instruction::Kernel { args, .. } | Instruction::Delegate { args, .. } => 1 + args.len(),
        _ => 2,
    }
}

/// The planned memory of a value. The parser has checked that it is inside its arena.
fn span(value: &ValueSpec<'_>) -> Option<Span> {
    let ValueSpec::Tensor(tensor) = value else { return None };
    match tensor.storage {
        TensorStorage::Planned { memory_id, offset }
        | TensorStorage::PlannedInit { memory_id, offset, .. }
        | TensorStorage::ExternalPlanned { memory_id, offset, .. } => {
            Some(Span { memory_id, start: offset, end: offset.saturating_add(tensor.nbytes as u64) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rushlight_format::pte::{InstructionModel, PlanModel, ProgramModel, StorageModel, TensorModel};
    use rushlight_format::{Program, ScalarType};
    use rushlight_graph::operators::aten;

    use super::*;

    fn at(offset: u64) -> TensorModel {
        TensorModel::new(ScalarType::Float, &[4]).stored(StorageModel::Planned { memory_id: 1, offset })
    }

    /// Offset, first and last instruction of each buffer, in the order of their offsets.
    fn lifetimes(method: PlanModel<'_>) -> Vec<(u64, usize, usize)> {
        let mut program = ProgramModel::new();
        program.methods.push(PlanModel { buffer_sizes: vec![0, 256], ..method });
        let file = program.to_bytes().unwrap();
        let recovered = recover(&Program::parse(&file).unwrap().method(0).unwrap());
        let mut found: Vec<_> =
            recovered.plan.offsets.iter().zip(&recovered.buffers).map(|(o, b)| (*o, b.first, b.last)).collect();
        found.sort_unstable();
        found
    }

    fn relu(method: &mut PlanModel<'_>, from: u32, to: u32) {
        method.call(aten::RELU, "out", &[from, to, to]);
    }

    #[test]
    fn memory_that_is_used_again_is_another_buffer() {
        let mut method = PlanModel::new("forward");
        let (x, a) = (method.input(at(0)), method.push(at(16)));
        let y = method.output(at(0));
        relu(&mut method, x, a);
        relu(&mut method, a, y);
        relu(&mut method, y, y);
        assert_eq!(lifetimes(method), [(0, 0, 0), (0, 1, 2), (16, 0, 1)]);
    }

    #[test]
    fn state_that_is_read_before_it_is_written_lasts_throughout() {
        let mut method = PlanModel::new("forward");
        let (x, state, y) = (method.input(at(0)), method.push(at(16)), method.output(at(32)));
        relu(&mut method, x, y);
        relu(&mut method, state, y);
        let no = method.push(false);
        method.call(aten::COPY_, "", &[state, y, no, state]);
        assert_eq!(lifetimes(method), [(0, 0, 0), (16, 0, 2), (32, 0, 0), (32, 1, 2)]);
    }

    #[test]
    fn a_loop_keeps_what_its_next_pass_reads() {
        let mut method = PlanModel::new("forward");
        let (x, carried, again, inside) =
            (method.input(at(0)), method.push(at(16)), method.push(at(16)), method.push(at(32)));
        let y = method.output(at(48));
        let cond = method.push(false);
        relu(&mut method, x, carried);
        // The loop reads the input and the value that it carries, and has an intermediate result.
        relu(&mut method, x, inside);
        relu(&mut method, again, inside);
        relu(&mut method, inside, again);
        method.instructions.push(InstructionModel::JumpFalse { cond, destination: 1 });
        relu(&mut method, again, y);
        assert_eq!(lifetimes(method), [(0, 0, 4), (16, 0, 5), (32, 1, 1), (32, 2, 3), (48, 5, 5)]);
    }

    #[test]
    fn the_sides_of_a_branch_share_memory() {
        let mut method = PlanModel::new("forward");
        let (x, one, two) = (method.input(at(0)), method.push(at(16)), method.push(at(16)));
        let (result, y) = (method.push(at(64)), method.output(at(32)));
        let (cond, no) = (method.push(true), method.push(false));
        method.instructions.push(InstructionModel::JumpFalse { cond, destination: 4 });
        relu(&mut method, x, one);
        method.instructions.push(InstructionModel::Move { from: one, to: result });
        method.instructions.push(InstructionModel::JumpFalse { cond: no, destination: 6 });
        relu(&mut method, x, two);
        method.instructions.push(InstructionModel::Move { from: two, to: result });
        relu(&mut method, result, y);
        assert_eq!(lifetimes(method), [(0, 0, 4), (16, 1, 2), (16, 4, 6), (32, 6, 6)]);
    }
}
