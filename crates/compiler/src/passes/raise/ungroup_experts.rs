//! Mixtures of experts that sort their rows.

use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::{aten, transformers};
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Action, Arg, Builder, Def, Expr, Graph, Model, Node, NodeId, Op, TensorType, ValueId};

use super::experts::{is_choice, linear, matrix_sizes};
use crate::passes::dce::EliminateDeadCode;

/// Finds rows that are sorted by their experts, multiplied by the matrix of each group and put in order again, as by transformers'
/// `grouped_mm`, and leaves them in order: `rushlight::experts_linear` takes the place of the grouped products.
#[derive(Clone, Copy, Debug)]
pub struct UngroupExperts {
    /// Experts whose outputs are no multiple of this many stay as they are.
    pub multiple: i64,
}

impl Default for UngroupExperts {
    fn default() -> Self {
        Self { multiple: 1 }
    }
}

impl Pass for UngroupExperts {
    fn name(&self) -> &'static str {
        "ungroup-experts"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let changed = model.rewrite(|builder, node| {
            let Some((rows, sort)) = restored(builder, node) else { return Ok(Action::Keep) };
            let mut plan = Plan { sort, multiple: self.multiple, steps: Vec::new(), places: FxHashMap::default() };
            if plan.add(builder.graph, rows, 0).is_none() {
                return Ok(Action::Keep);
            }
            let in_order = plan.build(builder)?.get(&rows).copied();
            Ok(in_order.map_or(Action::Keep, |rows| Action::Replace(vec![rows])))
        })?;
        if changed { EliminateDeadCode.run(model) } else { Ok(()) }
    }
}

/// Maximum number of operators one after the other between sorting and putting in order.
const MAX_DEPTH: usize = 64;

/// A sort of the experts of all rows.
#[derive(Clone, Debug)]
struct Sort {
    /// The expert of each row.
    experts: ValueId,
    sorted: ValueId,
    /// The row that comes to each place.
    order: ValueId,
    /// Number of rows.
    rows: Expr,
}

/// A value whose rows are sorted, computed without sorting them.
#[derive(Debug)]
enum Step {
    /// Unsorted rows, with the row count of the sorted ones.
    Rows(ValueId),
    /// Each row `times` times, one after the other.
    Repeated { rows: ValueId, times: i64 },
    /// Rows of a table by their experts.
    OfExperts(ValueId),
    /// Rows times the matrices of their experts.
    Linear { rows: ValueId, weight: ValueId, sizes: [i64; 3] },
    /// A node that computes each row by itself, with these operands that are sorted.
    Same { node: NodeId, sorted: Vec<ValueId> },
}

/// The nodes that compute some rows without sorting them.
struct Plan {
    sort: Sort,
    multiple: i64,
    /// Each with the first of its values, those that it uses before it.
    steps: Vec<(ValueId, Step)>,
    /// The values that the steps have.
    places: FxHashMap<ValueId, usize>,
}

impl Plan {
    /// Adds what computes a value whose rows are sorted; `None` if its rows are others.
    fn add(&mut self, graph: &Graph, value: ValueId, depth: usize) -> Option<()> {
        if self.places.contains_key(&value) {
            return Some(());
        }
        let Def::Result(id, _) = graph.values[value].def else { return None };
        let node = graph.nodes.get(id)?;
        let has_rows = |value: &ValueId| graph.tensor(*value).is_ok_and(|ty| ty.shape.first() == Some(&self.sort.rows));
        if depth > MAX_DEPTH || !node.results.iter().all(has_rows) {
            return None;
        }
        let step = match node.op.name() {
            aten::INDEX_TENSOR => self.selected(graph, node)?,
            transformers::GROUPED_MM_FALLBACK => {
                let (rows, weight) = (operand(node, "input")?, operand(node, "weight")?);
                let sizes = matrix_sizes(graph.tensor(weight).ok()?).filter(|_| is_known(graph, weight))?;
                let [count, _, outputs] = sizes;
                let fits = outputs.checked_rem(self.multiple) == Some(0)
                    && is_choice(graph, self.sort.experts, count)
                    && self.are_ends(graph, operand(node, "offs")?, count);
                self.add(graph, rows, depth + 1).filter(|()| fits)?;
                Step::Linear { rows, weight, sizes }
            }
            name if is_of_rows(graph, node, name) => {
                let rank = graph.tensor(value).ok()?.rank();
                let mut sorted = Vec::new();
                for arg in &node.args {
                    arg.for_each_value(&mut |value| sorted.push(value));
                }
                if sorted.len() > 1 {
                    // Others have no dimension of rows.
                    sorted.retain(|value| graph.tensor(*value).is_ok_and(|ty| ty.rank() >= rank));
                }
                sorted.iter().try_for_each(|value| self.add(graph, *value, depth + 1))?;
                Step::Same { node: id, sorted }
            }
            _ => return None,
        };
        let first = *node.results.first()?;
        self.places.extend(node.results.iter().map(|result| (*result, self.steps.len())));
        self.steps.push((first, step));
        Some(())
    }

    /// The rows that an index selects.
    fn selected(&self, graph: &Graph, node: &Node) -> Option<Step> {
        let (from, index) = (operand(node, "self")?, only_index(node)?);
        let rows = graph.tensor(from).ok()?.shape.first()?.clone();
        if index == self.sort.order && rows == self.sort.rows {
            return Some(Step::Rows(from));
        }
        if index == self.sort.sorted && rows.as_int().is_some_and(|count| is_choice(graph, self.sort.experts, count)) {
            return Some(Step::OfExperts(from));
        }
        let divided = graph.producer(index).filter(|node| node.op.name() == aten::DIV_SCALAR_MODE)?;
        let times = int(divided.arg("other"))?;
        let is_floor = divided.arg("rounding_mode") == Some(&Arg::Str("floor".to_owned()));
        let fits = is_floor && operand(divided, "self")? == self.sort.order && rows.mul(times) == self.sort.rows;
        (fits && times > 0).then_some(Step::Repeated { rows: from, times })
    }

    /// True for the ends of the groups of all experts: how many rows there are for them and those before.
    fn are_ends(&self, graph: &Graph, ends: ValueId, count: i64) -> bool {
        let of = |value: ValueId, name: &str| graph.producer(value).filter(|node| node.op.name() == name);
        let before_cast =
            |value: ValueId| of(value, aten::_TO_COPY).and_then(|node| operand(node, "self")).unwrap_or(value);
        let counted = || {
            let sum = of(before_cast(ends), aten::CUMSUM).filter(|sum| int(sum.arg("dim")) == Some(0))?;
            let counts = of(before_cast(operand(sum, "self")?), aten::HISTC)?;
            let range = ["bins", "min", "max"].map(|name| int(counts.arg(name)));
            let is_each = range == [Some(count), Some(0), Some(count - 1)];
            is_each.then(|| operand(counts, "self").map(before_cast))?
        };
        counted().is_some_and(|value| value == self.sort.sorted || value == self.sort.experts)
    }

    /// Adds the nodes; returns for each value the one whose rows are in order.
    fn build(&self, b: &mut Builder<'_>) -> Result<FxHashMap<ValueId, ValueId>, Error> {
        let mut in_order: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        for (value, step) in &self.steps {
            let of = |value: &ValueId| in_order.get(value).copied().unwrap_or(*value);
            let result = match step {
                Step::Rows(rows) => *rows,
                Step::Repeated { rows, times } => {
                    let shape = b.tensor(*rows)?.shape;
                    let (count, each) =
                        shape.split_first().ok_or_else(|| Error::invalid("rows without a dimension"))?;
                    let with = |sizes: &[Expr]| [sizes, each].concat();
                    let one = b.one(aten::VIEW_COPY, vec![(*rows).into(), with(&[count.clone(), 1.into()]).into()])?;
                    let sizes = with(&[count.clone(), (*times).into()]);
                    let repeated = b.one(aten::EXPAND_COPY, vec![one.into(), sizes.into()])?;
                    b.one(aten::VIEW_COPY, vec![repeated.into(), with(std::slice::from_ref(&self.sort.rows)).into()])?
                }
                Step::OfExperts(table) => {
                    let index = Arg::List(vec![self.sort.experts.into()]);
                    b.one(aten::INDEX_TENSOR, vec![(*table).into(), index])?
                }
                Step::Linear { rows, weight, sizes } => linear(b, of(rows), (*weight, *sizes), self.sort.experts, 0)?,
                Step::Same { node, sorted } => {
                    let Node { op, args, results, .. } = b.graph.nodes[*node].clone();
                    let mut args = args;
                    for arg in &mut args {
                        arg.map_values(&mut |value| if sorted.contains(&value) { of(&value) } else { value });
                    }
                    let types = results.iter().map(|result| b.graph.ty(*result).clone()).collect();
                    let again = b.push(op, args, types);
                    in_order.extend(results.into_iter().zip(again));
                    continue;
                }
            };
            in_order.insert(*value, result);
        }
        Ok(in_order)
    }
}

/// The rows that a node puts in order again after a sort, if it does.
fn restored(b: &Builder<'_>, node: NodeId) -> Option<(ValueId, Sort)> {
    let graph = &*b.graph;
    let node = graph.nodes.get(node).filter(|node| node.op.name() == aten::INDEX_TENSOR)?;
    let put = graph.producer(only_index(node)?).filter(|node| node.op.name() == aten::INDEX_PUT)?;
    let (order, places) = (only_index(put)?, operand(put, "values")?);
    let Def::Result(sort, 1) = graph.values[order].def else { return None };
    let sort = graph.nodes.get(sort).filter(|node| matches!(node.op.name(), aten::SORT | aten::SORT_STABLE))?;
    let (experts, sorted) = (operand(sort, "self")?, *sort.results.first()?);
    let [rows] = graph.tensor(experts).ok()?.shape.as_slice() else { return None };
    let all = [places, operand(put, "self")?].map(|value| graph.tensor(value).map(|ty| ty.shape.as_slice()));
    let fits = counts_up(b, places)
        && all.iter().all(|shape| shape.as_ref().is_ok_and(|shape| **shape == [rows.clone()]))
        && !matches!(put.arg("accumulate"), Some(Arg::Bool(true)))
        && !matches!(sort.arg("descending"), Some(Arg::Bool(true)));
    let sort = Sort { experts, sorted, order, rows: rows.clone() };
    fits.then_some((operand(node, "self")?, sort))
}

/// True for 0, 1, 2, ...
fn counts_up(b: &Builder<'_>, value: ValueId) -> bool {
    /// Maximum elements of a constant.
    const MAX_LEN: usize = 1 << 20;
    if let Some(constant) = b.graph.constant_of(value).and_then(|id| b.constants.get(id)) {
        let is_small = constant.ty.dtype == ScalarType::Long && constant.len().is_ok_and(|len| len <= 8 * MAX_LEN);
        let bytes = if is_small { constant.read().ok() } else { None };
        return bytes.is_some_and(|bytes| {
            (0i64..).zip(bytes.as_chunks().0).all(|(place, number)| i64::from_le_bytes(*number) == place)
        });
    }
    let range = |node: &&Node| matches!(node.op.name(), aten::ARANGE | aten::ARANGE_START_STEP);
    b.graph.producer(value).filter(range).is_some_and(|node| {
        [("start", 0), ("step", 1)].iter().all(|(name, expected)| match node.arg(name) {
            None | Some(Arg::None) => true,
            number => int(number) == Some(*expected),
        })
    })
}

/// The value of an argument.
fn operand(node: &Node, name: &str) -> Option<ValueId> {
    node.arg(name)?.as_value()
}

/// The index of the first dimension, if there is no other.
fn only_index(node: &Node) -> Option<ValueId> {
    match node.arg("indices")? {
        Arg::List(indices) => match indices[..] {
            [Arg::Value(index)] => Some(index),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number.
fn int(arg: Option<&Arg>) -> Option<i64> {
    match arg? {
        Arg::Int(int) => int.as_int(),
        Arg::Float(float) if float.fract() == 0.0 => Some(*float as i64),
        _ => None,
    }
}

/// True for constants and permutations of them.
fn is_known(graph: &Graph, value: ValueId) -> bool {
    match graph.producer(value) {
        Some(node) if node.op.name() == aten::PERMUTE_COPY => {
            operand(node, "self").is_some_and(|before| graph.constant_of(before).is_some())
        }
        Some(_) => false,
        None => graph.constant_of(value).is_some(),
    }
}

/// True for operators that compute each row, an index of the first dimension, by itself.
fn is_of_rows(graph: &Graph, node: &Node, name: &str) -> bool {
    if !matches!(node.op, Op::Call(_)) {
        return false;
    }
    match name {
        aten::SIGMOID
        | aten::SILU
        | aten::GELU
        | aten::RELU
        | aten::TANH
        | aten::CLAMP
        | aten::NEG
        | aten::MUL_SCALAR
        | aten::ADD_SCALAR
        | aten::MUL_TENSOR
        | aten::ADD_TENSOR
        | aten::SUB_TENSOR
        | aten::DIV_TENSOR
        | aten::_TO_COPY
        // Both have the same row count.
        | aten::VIEW_COPY
        | aten::UNSQUEEZE_COPY => true,
        aten::SPLIT_WITH_SIZES_COPY | aten::SLICE_COPY_TENSOR | aten::SELECT_COPY_INT => {
            let rank = operand(node, "self").and_then(|value| graph.tensor(value).ok()).map_or(0, TensorType::rank);
            int(node.arg("dim")).and_then(|dim| wrap_dim(dim, rank)).is_some_and(|dim| dim > 0)
        }
        _ => false,
    }
}
