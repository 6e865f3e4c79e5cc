//! The alias check of every instruction, made once at load.
//!
//! A program plans tensors as byte ranges of shared buffers, moves handles between values, and makes views. For each
//! instruction, a written argument and any other argument must not share memory. The memory that a value may use
//! follows from the byte range of its tensor, at the upper bound of its size, and from two kinds of edges:
//!
//! - A view also uses the memory of its base.
//! - The target of a move becomes a handle on the tensor of the source.
//!
//! If the output of a view is such a handle, the view changes the source, too. In a program with such a view, the edges of
//! moves therefore have both directions. That is conservative: it allows for more sharing than happens.

use core::slice;

use crate::error::Role;
use crate::fault::{Checked, Fault, Report};
use crate::memory::Bump;
use crate::step::{Delegates, Step};
use crate::tensor::Access;
use crate::value::{ABSENT, EValue, Values, tensor, value};

/// Checks every instruction, and drops operators that copy a tensor onto itself. Sets `input_written` for each input
/// that an instruction writes.
#[inline(never)]
pub(crate) fn check<'m>(
    scratch: &mut Bump<'_>,
    values: Values<'m>,
    steps: &mut [Step<'m>],
    delegates: &Delegates<'m>,
    inputs: &[u32],
    input_written: &mut [bool],
    report: &mut Report,
) -> Checked<()> {
    let edges = Edges::collect(scratch, values, steps)?;
    let written = scratch.zeros(values.len())?;
    let nodes = edges.heads.len();
    let sets = [scratch.zeros(nodes)?, scratch.zeros(nodes)?];
    let mut checker = Checker { values, edges, written, sets, budget: Budget { left: Budget::TOTAL, report } };
    for (i, step) in steps.iter_mut().enumerate() {
        let (call, operator) = match *step {
            Step::Kernel { op, arguments } => {
                let arguments = arguments.get(..op.arity as usize).unwrap_or(arguments);
                let call =
                    CallAccess { arguments, writes: op.writes, outputs: 0, is_view: op.is_view, copies: op.copies };
                (call, Some(op.name))
            }
            Step::Delegate { delegate, arguments } => {
                let outputs = delegates.outputs(delegate);
                (CallAccess { arguments, writes: 0, outputs, is_view: false, copies: false }, None)
            }
            _ => continue,
        };
        match checker.check(&call) {
            Ok(Verdict::Disjoint) => {}
            Ok(Verdict::SelfCopy) => *step = Step::Nothing,
            Err(_) => return Err(checker.budget.report.instruction(i, operator)),
        }
    }
    for (flag, &value) in input_written.iter_mut().zip(inputs) {
        *flag = checker.written.get(value as usize) == Some(&true);
    }
    Ok(())
}

/// The output and the base of an instruction that makes a view.
pub(crate) fn view(step: &Step<'_>) -> Option<(u32, u32)> {
    match *step {
        Step::Kernel { op, arguments } if op.is_view => {
            Some((*arguments.get(op.writes.trailing_zeros() as usize)?, *arguments.first()?))
        }
        _ => None,
    }
}

/// The reads and writes of an instruction.
struct CallAccess<'m> {
    arguments: &'m [u32],
    /// Bit `i` is set if argument `i` is written.
    writes: u32,
    /// Number of arguments at the end of the list that are written, too: the outputs of a delegate.
    outputs: usize,
    is_view: bool,
    copies: bool,
}

impl CallAccess<'_> {
    fn writes(&self, argument: usize) -> bool {
        argument >= self.arguments.len() - self.outputs
            || self.writes.checked_shr(argument as u32).unwrap_or(0) & 1 != 0
    }
}

enum Verdict {
    Disjoint,
    /// The instruction would copy a tensor onto itself.
    SelfCopy,
}

/// For each value, a linked list of the values whose memory it may use.
struct Edges<'s> {
    /// Index into `links` plus one; 0 ends the list.
    heads: &'s mut [u32],
    /// Target value, and the rest of the list.
    links: &'s mut [[u32; 2]],
    used: usize,
    /// The last search that reached each value.
    stamps: &'s mut [u32],
    stamp: u32,
}

impl<'s> Edges<'s> {
    #[inline(never)]
    fn collect(scratch: &mut Bump<'s>, values: Values<'_>, steps: &[Step<'_>]) -> Checked<Self> {
        let mut count = 0;
        for step in steps {
            count += match step {
                Step::Move { .. } => 2,
                Step::Kernel { op, .. } if op.is_view => 1,
                _ => 0,
            };
        }
        let nodes = if count == 0 { 0 } else { values.len() };
        let heads = scratch.zeros(nodes)?;
        let links = scratch.zeros(count)?;
        let mut edges = Self { heads, links, used: 0, stamps: scratch.zeros(nodes)?, stamp: 1 };
        for step in steps {
            if let Step::Move { from, to } = *step {
                edges.add(to, from);
                if let Some(stamp) = edges.stamps.get_mut(to as usize) {
                    *stamp = edges.stamp;
                }
            }
        }
        let mut view_changes_handle = false;
        for (view, base) in steps.iter().filter_map(view) {
            edges.add(view, base);
            view_changes_handle |= edges.stamps.get(view as usize) == Some(&edges.stamp);
        }
        for step in steps.iter().filter(|_| view_changes_handle) {
            if let Step::Move { from, to } = *step {
                edges.add(from, to);
            }
        }
        Ok(edges)
    }

    fn add(&mut self, from: u32, to: u32) {
        if let (Some(head), Some(link)) = (self.heads.get_mut(from as usize), self.links.get_mut(self.used)) {
            *link = [to, *head];
            self.used += 1;
            *head = self.used as u32;
        }
    }

    /// The first link of a value; 0 if there is none.
    fn head(&self, value: u32) -> u32 {
        self.heads.get(value as usize).copied().unwrap_or(0)
    }

    /// Returns `start` and every value whose memory it may use, collected in `set`.
    fn reach<'x>(&mut self, start: &'x u32, set: &'x mut [u32], budget: &mut Budget<'_>) -> Checked<&'x [u32]> {
        if self.head(*start) == 0 {
            return Ok(slice::from_ref(start));
        }
        self.stamp += 1;
        let mut count = 0;
        self.visit(*start, set, &mut count);
        let mut next = 0;
        while let Some(&value) = set.get(next).filter(|_| next < count) {
            next += 1;
            let mut link = self.head(value);
            while let Some(&[target, rest]) = self.links.get((link as usize).wrapping_sub(1)) {
                budget.spend(1)?;
                self.visit(target, set, &mut count);
                link = rest;
            }
        }
        Ok(set.get(..count).unwrap_or_default())
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

/// Bounds the work that a hostile program can cause.
struct Budget<'a> {
    left: usize,
    report: &'a mut Report,
}

impl Budget<'_> {
    /// Far more than real programs need; takes a fraction of a second.
    const TOTAL: usize = 1 << 26;

    fn spend(&mut self, work: usize) -> Checked<()> {
        match self.left.checked_sub(work) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.report.plain(Fault::TooEntangled)),
        }
    }
}

struct Checker<'m, 's, 'a> {
    values: Values<'m>,
    edges: Edges<'s>,
    /// For each value: true if an instruction writes memory that it may use.
    written: &'s mut [bool],
    /// Memory for two sets of values.
    sets: [&'s mut [u32]; 2],
    budget: Budget<'a>,
}

impl<'m> Checker<'m, '_, '_> {
    #[inline(never)]
    fn check(&mut self, call: &CallAccess<'m>) -> Checked<Verdict> {
        let arguments = call.arguments;
        if call.outputs > arguments.len() {
            return Err(self.budget.report.fault(Fault::DelegateOutputs, arguments.len(), call.outputs));
        }
        for (w, argument) in arguments.iter().enumerate().filter(|(w, _)| call.writes(*w)) {
            for &written in self.tensors_of(argument) {
                if written == ABSENT {
                    continue;
                }
                // A delegate may write any number of tensors. Arguments of other types take time, too.
                self.budget.spend(arguments.len())?;
                // A view does not write its base's memory; it makes its output a handle on it.
                if !call.is_view {
                    self.mark_written(written)?;
                }
                for (r, other) in arguments.iter().enumerate() {
                    // A pair of written arguments is checked once; a view may share its base's memory.
                    if (r < w && call.writes(r)) || (r == 0 && call.is_view) {
                        continue;
                    }
                    // An argument matches itself once.
                    let mut is_itself = r == w;
                    for &other in self.tensors_of(other) {
                        if is_itself && other == written {
                            is_itself = false;
                        } else if other != ABSENT && self.overlap(written, other)? {
                            if call.copies && self.is_same(written, other) {
                                return Ok(Verdict::SelfCopy);
                            }
                            return Err(self.budget.report.fault(Fault::Overlap, w, r));
                        }
                    }
                }
            }
        }
        Ok(Verdict::Disjoint)
    }

    /// The tensor values of an argument: itself, or the entries of its list, which may be [`ABSENT`].
    fn tensors_of(&self, argument: &'m u32) -> &'m [u32] {
        match value(self.values, *argument) {
            EValue::Tensor(_) => slice::from_ref(argument),
            EValue::TensorList(items) | EValue::OptionalTensorList(items) => items,
            _ => &[],
        }
    }

    #[inline(never)]
    fn mark_written(&mut self, value: u32) -> Checked<()> {
        let [set, _] = &mut self.sets;
        for &value in self.edges.reach(&value, set, &mut self.budget)? {
            if let Some(written) = self.written.get_mut(value as usize) {
                *written = true;
            }
            if tensor(self.values, value).is_some_and(|tensor| tensor.access == Access::ReadOnly) {
                self.budget.report.plain(Fault::WrittenConstant);
                return Err(self.budget.report.at(Role::Value, value as usize));
            }
        }
        Ok(())
    }

    /// True if the two values may use common memory, or be handles on the same tensor.
    #[inline(never)]
    fn overlap(&mut self, a: u32, b: u32) -> Checked<bool> {
        let [set_a, set_b] = &mut self.sets;
        let set_a = self.edges.reach(&a, set_a, &mut self.budget)?;
        let set_b = self.edges.reach(&b, set_b, &mut self.budget)?;
        self.budget.spend(set_a.len().saturating_mul(set_b.len()))?;
        for &a in set_a {
            for &b in set_b {
                if a == b || overlaps(self.values, a, b) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// True if both values are always the same memory, byte for byte.
    fn is_same(&self, a: u32, b: u32) -> bool {
        if self.edges.head(a) != 0 || self.edges.head(b) != 0 {
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

/// True if the tensors' own memory overlaps. Unplanned inputs and outputs overlap nothing, because the caller's borrows
/// keep them apart.
fn overlaps(values: Values<'_>, a: u32, b: u32) -> bool {
    match (range(values, a), range(values, b)) {
        (Some((start_a, end_a)), Some((start_b, end_b))) => start_a < end_b && start_b < end_a,
        _ => false,
    }
}

/// Addresses of the tensor's memory, at its upper bound.
fn range(values: Values<'_>, value: u32) -> Option<(usize, usize)> {
    let tensor = tensor(values, value)?;
    let (start, _) = tensor.memory()?;
    Some((start.addr().get(), start.addr().get() + tensor.bound))
}
