//! The aliasing of every instruction, settled once at load.
//!
//! A program plans tensors as byte ranges of shared buffers, moves handles between values, and makes views. For each
//! instruction, a written argument and any other argument must not share memory. What memory a value may use is
//! found from the tensors' upper-bound ranges, following two kinds of edges: a view uses its base's memory too, and a
//! move makes its target a handle on its source's tensor. Only a view whose output is such a handle changes the source
//! in turn: in a program with one, moves count in both directions, which is more than happens.

use core::cell::Cell;

use crate::error::{Code, Detail, Error, Result, Role};
use crate::load::{LoadedDelegate, Step};
use crate::memory::Bump;
use crate::tensor::{Access, TensorState};
use crate::value::{ABSENT, Value, Values};

/// Checks every instruction, and drops operators that copy a tensor onto itself. Notes in `input_written` for each
/// input whether an instruction writes to it.
pub(crate) fn check<'m>(
    scratch: &mut Bump<'_>,
    values: Values<'m>,
    steps: &mut [Step<'m>],
    delegates: &[Option<LoadedDelegate<'m>>],
    inputs: &[u32],
    input_written: &mut [bool],
) -> Result<()> {
    let edges = Edges::collect(scratch, values, steps)?;
    let written = scratch.slice(values.len(), |_| false)?;
    let nodes = edges.heads.len();
    let sets = [scratch.slice(nodes, |_| 0)?, scratch.slice(nodes, |_| 0)?];
    let mut checker = Checker { values, edges, written, sets, budget: Budget(Budget::TOTAL) };
    for (i, step) in steps.iter_mut().enumerate() {
        match *step {
            Step::Kernel { op, arguments } => {
                let arguments = arguments.get(..op.arity as usize).unwrap_or(arguments);
                let verdict = checker.instruction(arguments, |i| op.writes_argument(i), op.is_view, op.copies);
                match verdict.map_err(|e| e.instruction(i, Some(op.name)))? {
                    Verdict::Disjoint => {}
                    Verdict::SelfCopy => *step = Step::Nothing,
                }
            }
            Step::Delegate { delegate, arguments } => {
                let outputs = delegates.get(delegate as usize).and_then(Option::as_ref).map_or(0, |d| d.outputs);
                if outputs > 128 || outputs > arguments.len() {
                    let detail =
                        Detail::Count { what: "outputs of the delegate", expected: arguments.len(), got: outputs };
                    return Err(Error::new(Code::InvalidProgram, detail).instruction(i, None));
                }
                let first = arguments.len() - outputs;
                checker.instruction(arguments, |i| i >= first, false, false).map_err(|e| e.instruction(i, None))?;
            }
            _ => {}
        }
    }
    for (flag, &value) in input_written.iter_mut().zip(inputs) {
        *flag = checker.written.get(value as usize).copied().unwrap_or(false);
    }
    Ok(())
}

/// The output and the base of an instruction that makes a view.
fn view(step: &Step<'_>) -> Option<(u32, u32)> {
    match *step {
        Step::Kernel { op, arguments } if op.is_view => {
            let output = (0..op.arity as usize).find(|&i| op.writes_argument(i))?;
            Some((*arguments.get(output)?, *arguments.first()?))
        }
        _ => None,
    }
}

enum Verdict {
    Disjoint,
    /// The instruction would copy a tensor onto itself.
    SelfCopy,
}

/// Which other values' memory a value may use, as a linked list for each value.
struct Edges<'s> {
    /// Index into `links` plus one; 0 ends the list.
    heads: &'s mut [u32],
    /// Target value, and the rest of the list.
    links: &'s mut [(u32, u32)],
    used: usize,
    /// The last search that reached each value.
    stamps: &'s mut [u32],
    stamp: u32,
}

impl<'s> Edges<'s> {
    fn collect(scratch: &mut Bump<'s>, values: Values<'_>, steps: &[Step<'_>]) -> Result<Self> {
        let count: usize = steps
            .iter()
            .map(|step| match step {
                Step::Move { .. } => 2,
                Step::Kernel { op, .. } if op.is_view => 1,
                _ => 0,
            })
            .sum();
        let nodes = if count == 0 { 0 } else { values.len() };
        let heads = scratch.slice(nodes, |_| 0)?;
        let links = scratch.slice(count, |_| (0, 0))?;
        let mut edges = Self { heads, links, used: 0, stamps: scratch.slice(nodes, |_| 0)?, stamp: 0 };
        for step in steps {
            match *step {
                Step::Move { from, to } => edges.add(to, from),
                Step::Kernel { .. } => {
                    if let Some((view, base)) = view(step) {
                        edges.add(view, base);
                    }
                }
                _ => {}
            }
        }
        edges.stamp += 1;
        for step in steps {
            if let Step::Move { to, .. } = *step
                && let Some(stamp) = edges.stamps.get_mut(to as usize)
            {
                *stamp = edges.stamp;
            }
        }
        let is_moved_to = |value: u32| edges.stamps.get(value as usize) == Some(&edges.stamp);
        if steps.iter().filter_map(view).any(|(view, _)| is_moved_to(view)) {
            for step in steps {
                if let Step::Move { from, to } = *step {
                    edges.add(from, to);
                }
            }
        }
        Ok(edges)
    }

    fn add(&mut self, from: u32, to: u32) {
        if let (Some(head), Some(link)) = (self.heads.get_mut(from as usize), self.links.get_mut(self.used)) {
            *link = (to, *head);
            self.used += 1;
            *head = self.used as u32;
        }
    }

    fn has_none(&self, value: u32) -> bool {
        self.heads.get(value as usize).is_none_or(|&head| head == 0)
    }

    /// Fills the start of `reached` with `start` and every value whose memory it may use. Returns how many they are.
    fn reach(&mut self, start: u32, reached: &mut [u32], budget: &mut Budget) -> Result<usize> {
        self.stamp += 1;
        let mut count = 0;
        self.visit(start, reached, &mut count);
        let mut next = 0;
        while let Some(&value) = reached.get(next).filter(|_| next < count) {
            next += 1;
            let mut link = self.heads.get(value as usize).copied().unwrap_or(0);
            while let Some(&(target, rest)) = (link as usize).checked_sub(1).and_then(|i| self.links.get(i)) {
                budget.spend(1)?;
                self.visit(target, reached, &mut count);
                link = rest;
            }
        }
        Ok(count)
    }

    fn visit(&mut self, value: u32, reached: &mut [u32], count: &mut usize) {
        if let Some(seen) = self.stamps.get_mut(value as usize)
            && *seen != self.stamp
            && let Some(slot) = reached.get_mut(*count)
        {
            *seen = self.stamp;
            *slot = value;
            *count += 1;
        }
    }
}

/// Bounds the work that a hostile program can ask for.
struct Budget(u32);

impl Budget {
    /// Far more than real programs need; a fraction of a second.
    const TOTAL: u32 = 1 << 26;

    fn spend(&mut self, work: usize) -> Result<()> {
        match u32::try_from(work).ok().and_then(|work| self.0.checked_sub(work)) {
            Some(rest) => {
                self.0 = rest;
                Ok(())
            }
            None => Err(Error::program("the program has too many values that may share memory")),
        }
    }
}

struct Checker<'m, 's> {
    values: Values<'m>,
    edges: Edges<'s>,
    /// For each value: true if an instruction writes memory that it may use.
    written: &'s mut [bool],
    /// Room for two sets of values.
    sets: [&'s mut [u32]; 2],
    budget: Budget,
}

impl<'m> Checker<'m, '_> {
    fn instruction(
        &mut self,
        arguments: &[u32],
        writes: impl Fn(usize) -> bool,
        is_view: bool,
        copies: bool,
    ) -> Result<Verdict> {
        for (w, &written) in arguments.iter().enumerate().filter(|(i, _)| writes(*i)) {
            for written in self.tensors_of(written) {
                self.mark_written(written, is_view).map_err(|e| e.arg(w))?;
                for (r, &other) in arguments.iter().enumerate() {
                    // A pair of written arguments is looked at once; a view shares its base's memory.
                    if r == w && !self.is_list(other) || (writes(r) && r < w) || (is_view && r == 0) {
                        continue;
                    }
                    let mut same = 0;
                    for other in self.tensors_of(other) {
                        if r == w && other == written {
                            same += 1;
                            if same < 2 {
                                continue;
                            }
                        }
                        if self.overlap(written, other)? {
                            if copies && self.is_same(written, other) {
                                return Ok(Verdict::SelfCopy);
                            }
                            return Err(Detail::Overlap { argument: w as u32, other: r as u32 }.into());
                        }
                    }
                }
            }
        }
        Ok(Verdict::Disjoint)
    }

    fn is_list(&self, value: u32) -> bool {
        matches!(self.value(value), Value::TensorList(_) | Value::OptionalTensorList(_))
    }

    fn value(&self, index: u32) -> Value<'m> {
        self.values.get(index as usize).map_or(Value::None, Cell::get)
    }

    /// The tensor values behind an argument: itself or the entries of the list.
    fn tensors_of(&self, argument: u32) -> impl Iterator<Item = u32> + use<'m> {
        let (one, list): (Option<u32>, &'m [u32]) = match self.value(argument) {
            Value::Tensor(_) => (Some(argument), &[]),
            Value::TensorList(items) | Value::OptionalTensorList(items) => (None, items),
            _ => (None, &[]),
        };
        one.into_iter().chain(list.iter().copied().filter(|&item| item != ABSENT))
    }

    /// A view does not write its base's memory, but makes its output a handle on it.
    fn mark_written(&mut self, value: u32, is_view: bool) -> Result<()> {
        if is_view {
            return Ok(());
        }
        let one = [value];
        let reached = if self.edges.has_none(value) {
            &one[..]
        } else {
            let [set, _] = &mut self.sets;
            let count = self.edges.reach(value, set, &mut self.budget)?;
            set.get(..count).unwrap_or_default()
        };
        for &value in reached {
            if let Some(written) = self.written.get_mut(value as usize) {
                *written = true;
            }
            if tensor(self.values, value).is_some_and(|tensor| tensor.access == Access::ReadOnly) {
                return Err(Error::program("an instruction writes to a constant").at(Role::Value, value as usize));
            }
        }
        Ok(())
    }

    /// True if the two values may use common memory, or be handles on the same tensor.
    fn overlap(&mut self, a: u32, b: u32) -> Result<bool> {
        let values = self.values;
        self.budget.spend(1)?;
        if self.edges.has_none(a) && self.edges.has_none(b) {
            return Ok(a == b || overlaps(values, a, b));
        }
        let [set_a, set_b] = &mut self.sets;
        let count_a = self.edges.reach(a, set_a, &mut self.budget)?;
        let count_b = self.edges.reach(b, set_b, &mut self.budget)?;
        self.budget.spend(count_a.saturating_mul(count_b))?;
        let (set_a, set_b) = (set_a.get(..count_a).unwrap_or_default(), set_b.get(..count_b).unwrap_or_default());
        Ok(set_a.iter().any(|&a| set_b.iter().any(|&b| a == b || overlaps(values, a, b))))
    }

    /// True if the two values are always exactly the same memory.
    fn is_same(&self, a: u32, b: u32) -> bool {
        if !self.edges.has_none(a) || !self.edges.has_none(b) {
            return a == b;
        }
        match (tensor(self.values, a), tensor(self.values, b)) {
            (Some(x), Some(y)) => {
                core::ptr::eq(x, y) || (x.memory() == y.memory() && x.dtype == y.dtype && x.sizes() == y.sizes())
            }
            _ => false,
        }
    }
}

fn tensor<'m>(values: Values<'m>, value: u32) -> Option<&'m TensorState<'m>> {
    match values.get(value as usize).map(Cell::get) {
        Some(Value::Tensor(tensor)) => Some(tensor),
        _ => None,
    }
}

/// True if the tensors' own memory overlaps. Unplanned inputs and outputs are apart from everything: the caller's
/// borrows keep them so.
fn overlaps(values: Values<'_>, a: u32, b: u32) -> bool {
    let range = |value| {
        let tensor = tensor(values, value)?;
        let (start, _) = tensor.memory()?;
        Some((start.addr().get(), start.addr().get() + tensor.bound))
    };
    match (range(a), range(b)) {
        (Some((start_a, end_a)), Some((start_b, end_b))) => start_a < end_b && start_b < end_a,
        _ => false,
    }
}
