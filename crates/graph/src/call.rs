//! The arguments of a node, by name.

use crate::{Arg, Def, Error, Expr, Graph, Node, NodeId, ValueId};

/// A node with its graph, for passes and backends that read its arguments by the names of the schema.
///
/// Accessors give `None` for an argument that is absent, is `None`, or has another kind.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub graph: &'a Graph,
    pub node: &'a Node,
}

impl<'a> Call<'a> {
    /// The call of a node.
    pub fn new(graph: &'a Graph, node: NodeId) -> Self {
        Self { graph, node: &graph.nodes[node] }
    }

    /// Full name of the operator, or of the control flow.
    pub fn name(&self) -> &'a str {
        self.node.op.name()
    }

    /// An argument; `None` if it is absent or `None`.
    pub fn arg(&self, name: &str) -> Option<&'a Arg> {
        self.node.arg(name).filter(|arg| !arg.is_none())
    }

    /// A tensor, or a number that a node computes.
    ///
    /// # Errors
    /// `InvalidProgram` if the argument is neither.
    pub fn value(&self, name: &str) -> Result<ValueId, Error> {
        self.optional(name).ok_or_else(|| self.missing(name, "a tensor"))
    }

    /// As [`value`](Self::value); `None` if the argument is neither.
    pub fn optional(&self, name: &str) -> Option<ValueId> {
        self.arg(name).and_then(Arg::as_value)
    }

    /// The first result.
    ///
    /// # Errors
    /// `InvalidProgram` if there is none.
    pub fn result(&self) -> Result<ValueId, Error> {
        self.node.result().ok_or_else(|| Error::invalid(format!("`{}` without a result", self.name())))
    }

    /// An integer, which may depend on symbols.
    pub fn expr(&self, name: &str) -> Option<Expr> {
        match self.arg(name) {
            Some(Arg::Int(expr)) => Some(expr.clone()),
            _ => None,
        }
    }

    /// An integer that is known now.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.expr(name).and_then(|expr| expr.as_int())
    }

    /// True if an argument is `true`.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.arg(name), Some(Arg::Bool(true)))
    }

    /// A number that is known now.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.arg(name)? {
            Arg::Int(expr) => expr.as_int().map(|int| int as f64),
            Arg::Float(float) => Some(*float),
            Arg::Bool(bool) => Some(f64::from(*bool)),
            _ => None,
        }
    }

    /// A string.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        match self.arg(name)? {
            Arg::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Sizes, which may depend on symbols.
    pub fn exprs(&self, name: &str) -> Option<Vec<Expr>> {
        let expr = |arg: &Arg| match arg {
            Arg::Int(expr) => Some(expr.clone()),
            _ => None,
        };
        match self.arg(name)? {
            Arg::List(items) => items.iter().map(expr).collect(),
            _ => None,
        }
    }

    /// Integers that are known now.
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.exprs(name)?.iter().map(Expr::as_int).collect()
    }

    /// As [`ints`](Self::ints), `rank` of them, none negative or beyond `u32`; one stands for all.
    pub fn sizes(&self, name: &str, rank: usize) -> Option<Vec<u32>> {
        let sizes: Vec<u32> =
            self.ints(name)?.into_iter().map(|size| u32::try_from(size).ok()).collect::<Option<_>>()?;
        match sizes.as_slice() {
            [size] => Some(vec![*size; rank]),
            sizes if sizes.len() == rank => Some(sizes.to_vec()),
            _ => None,
        }
    }

    /// A list of tensors.
    pub fn values(&self, name: &str) -> Option<Vec<ValueId>> {
        match self.arg(name)? {
            Arg::List(items) => items.iter().map(Arg::as_value).collect(),
            _ => None,
        }
    }

    /// The values among the arguments, in their order.
    pub fn operands(&self) -> Vec<ValueId> {
        let mut operands = Vec::new();
        self.node.args.iter().for_each(|arg| arg.for_each_value(&mut |value| operands.push(value)));
        operands
    }

    /// The error for an argument that is absent or has another kind; `what` is the expected one.
    pub fn missing(&self, name: &str, what: &str) -> Error {
        Error::invalid(format!("`{}` needs {what} as its argument `{name}`", self.name()))
    }

    /// True if a tensor is a constant.
    pub fn is_constant(&self, value: ValueId) -> bool {
        matches!(self.graph.values[value].def, Def::Constant(_))
    }

    /// The sizes of a tensor.
    ///
    /// # Errors
    /// `Type` if the value is not a tensor.
    pub fn shape(&self, value: ValueId) -> Result<&'a [Expr], Error> {
        Ok(&self.graph.tensor(value)?.shape)
    }
}
