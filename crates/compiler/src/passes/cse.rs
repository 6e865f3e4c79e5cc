//! Common subexpression elimination.

use rustc_hash::FxHashMap;

use rushlight_graph::Error;
use rushlight_graph::{
    Arg, BlockId, Expr, Graph, Layout, Model, Node, NodeId, Op, Symbol, SymbolId, Type, ValueId, substitute,
};

use rushlight_graph::Pass;

/// Merges nodes that compute the same operator on the same values. Random operators are never merged.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeCommonSubexpressions;

impl Pass for MergeCommonSubexpressions {
    fn name(&self) -> &'static str {
        "common-subexpressions"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        for graph in model.methods.values_mut() {
            let mut merge = Merge {
                graph,
                numbers: Numbers::default(),
                known: FxHashMap::default(),
                replaced: FxHashMap::default(),
                symbols: FxHashMap::default(),
            };
            merge.block(merge.graph.body);
            let (replaced, symbols) = (merge.replaced, merge.symbols);
            if !replaced.is_empty() {
                graph.replace_uses(&replaced);
            }
            if !symbols.is_empty() {
                graph.replace_symbols(&symbols);
            }
        }
        Ok(())
    }
}

/// A walk through a graph in the order of execution.
struct Merge<'g> {
    graph: &'g mut Graph,
    numbers: Numbers,
    /// Calls whose results can be used at this point of the walk.
    known: FxHashMap<Vec<u64>, NodeId>,
    replaced: FxHashMap<ValueId, ValueId>,
    /// By symbol of a merged number: the symbol that replaces it.
    symbols: FxHashMap<SymbolId, SymbolId>,
}

impl Merge<'_> {
    fn block(&mut self, block: BlockId) {
        let mut added = Vec::new();
        let mut kept = Vec::new();
        for node in std::mem::take(&mut self.graph.blocks[block].nodes) {
            substitute(&mut self.graph.nodes[node].args, &self.replaced);
            if !self.symbols.is_empty() {
                self.graph.replace_symbols_of(node, &self.symbols);
            }
            let inner: Vec<BlockId> = self.graph.nodes[node].blocks().collect();
            for block in inner {
                self.block(block);
            }
            let Some(key) = self.numbers.key(&self.graph.nodes[node]) else {
                kept.push(node);
                continue;
            };
            match self.known.get(&key).copied() {
                Some(first) if self.same_types(first, node) || self.is_same_number(first, node, block) => {
                    let (first, second) = (&self.graph.nodes[first].results, &self.graph.nodes[node].results);
                    self.replaced.extend(second.iter().copied().zip(first.iter().copied()));
                }
                Some(_) => kept.push(node),
                None => {
                    self.known.insert(key.clone(), node);
                    added.push(key);
                    kept.push(node);
                }
            }
        }
        self.graph.blocks[block].nodes = kept;
        // Results of a block are not visible outside of it.
        if block != self.graph.body {
            for key in added {
                self.known.remove(&key);
            }
        }
    }

    /// Merges the symbols of two equal nodes that compute a number. In the body both nodes run, so the bounds of both
    /// hold.
    fn is_same_number(&mut self, a: NodeId, b: NodeId, block: BlockId) -> bool {
        let symbol = |node: NodeId| match self.graph.nodes[node].results.as_slice() {
            [number] => match self.graph.ty(*number) {
                Type::Int(Expr::Symbol(symbol)) => Some(*symbol),
                _ => None,
            },
            _ => None,
        };
        let (Some(first), Some(second)) = (symbol(a), symbol(b)) else { return false };
        if block == self.graph.body {
            let Symbol { min, max, .. } = self.graph.symbols[second].clone();
            let known = &mut self.graph.symbols[first];
            let (low, high) = (known.min.max(min), known.max.into_iter().chain(max).min());
            if high.is_none_or(|high| low <= high) {
                (known.min, known.max) = (low, high);
            }
        }
        self.symbols.insert(second, first);
        true
    }

    /// Compares types. A size that depends on data has its own symbol for each node.
    fn same_types(&self, a: NodeId, b: NodeId) -> bool {
        let types = |node: NodeId| self.graph.nodes[node].results.iter().map(|value| self.graph.ty(*value));
        types(a).eq(types(b))
    }
}

/// Interns texts and expressions, so that calls compare quickly.
#[derive(Default)]
struct Numbers {
    texts: FxHashMap<String, u64>,
    exprs: FxHashMap<Expr, u64>,
}

impl Numbers {
    /// Returns the key that equal calls share; `None` for calls that are never equal.
    fn key(&mut self, node: &Node) -> Option<Vec<u64>> {
        let Op::Call(schema) = &node.op else { return None };
        let mergeable = !schema.flags.random && !schema.flags.in_place && !node.results.is_empty();
        mergeable.then_some(())?;
        let mut key = vec![self.text(&schema.name)];
        for arg in &node.args {
            self.add(arg, &mut key)?;
        }
        Some(key)
    }

    fn text(&mut self, text: &str) -> u64 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.texts.len() as u64;
        self.texts.insert(text.into(), number);
        number
    }

    fn add(&mut self, arg: &Arg, key: &mut Vec<u64>) -> Option<()> {
        let pair = match arg {
            Arg::None => [0, 0],
            Arg::Value(value) => [1, value.index() as u64],
            Arg::Int(Expr::Int(value)) => [2, *value as u64],
            Arg::Int(expr) => {
                let next = self.exprs.len() as u64;
                [3, *self.exprs.entry(expr.clone()).or_insert(next)]
            }
            // Floats are compared by their bits: 0 and -0 differ.
            Arg::Float(value) => [4, value.to_bits()],
            Arg::Bool(value) => [5, u64::from(*value)],
            Arg::Str(text) => [6, self.text(text)],
            Arg::Complex(re, im) => {
                key.extend([7, re.to_bits()]);
                [7, im.to_bits()]
            }
            Arg::DType(dtype) => [8, *dtype as u64],
            Arg::Layout(layout) => [9, u64::from(*layout == Layout::Strided)],
            Arg::Device(device) => [10, self.text(device)],
            Arg::MemoryFormat(format) => [11, *format as u64],
            Arg::List(items) => {
                key.extend([12, items.len() as u64]);
                return items.iter().try_for_each(|item| self.add(item, key));
            }
            Arg::Block(_) => return None,
        };
        key.extend(pair);
        Some(())
    }
}
