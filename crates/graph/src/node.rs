//! Nodes, their operators and arguments.

use std::fmt;
use std::sync::Arc;

use rushlight_format::ScalarType;

use crate::{BlockId, DelegateId, Expr, OriginId, Schema, ValueId};

/// A call of an operator.
#[derive(Clone, Debug)]
pub struct Node {
    pub op: Op,
    /// For an operator, one for each parameter of its schema. For control flow, see [`Op`].
    pub args: Vec<Arg>,
    /// The results. A list of tensors counts as its elements.
    pub results: Vec<ValueId>,
    pub origin: OriginId,
}

/// The operation of a node.
#[derive(Clone, Debug)]
pub enum Op {
    /// An operator with a schema.
    Call(Arc<Schema>),
    /// `cond(predicate, then block, else block)`: the blocks have no parameters and give the results.
    Cond,
    /// `while_loop(condition block, body block, [carried…])`: both blocks take the carried values; the condition gives
    /// one boolean, the body the next carried values; the last are the results.
    While,
    /// `scan(body block, [carried…], [sequences…])`: the body takes the carried values and a slice of each sequence
    /// along dimension 0; it gives the next carried values and slices of the results, which are stacked. The results
    /// are the last carried values and the stacks. Without carried values this is a map.
    Scan,
    /// Runs a delegate on its arguments.
    Delegate(DelegateId),
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    None,
    /// A tensor, or a number that a node computes.
    Value(ValueId),
    /// An integer, or the size that an expression gives.
    Int(Expr),
    Float(f64),
    Bool(bool),
    Str(String),
    Complex(f64, f64),
    DType(ScalarType),
    Layout(Layout),
    Device(String),
    MemoryFormat(MemoryFormat),
    List(Vec<Arg>),
    Block(BlockId),
}

/// Storage layout of a tensor, as PyTorch names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Strided,
    /// Any of the sparse layouts, which no runtime takes.
    Sparse,
}

/// PyTorch's orders of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFormat {
    Contiguous,
    Preserve,
    ChannelsLast,
    ChannelsLast3d,
}

impl Op {
    /// The full name of the operator, or of the control flow.
    pub fn name(&self) -> &str {
        match self {
            Self::Call(schema) => &schema.name,
            Self::Cond => "cond",
            Self::While => "while_loop",
            Self::Scan => "scan",
            Self::Delegate(_) => "delegate",
        }
    }

    /// The schema, if it has one.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        match self {
            Self::Call(schema) => Some(schema),
            _ => None,
        }
    }
}

impl Node {
    /// The blocks that it runs.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.args.iter().filter_map(|arg| match arg {
            Arg::Block(block) => Some(*block),
            _ => None,
        })
    }

    /// The argument of a parameter.
    pub fn arg(&self, param: &str) -> Option<&Arg> {
        self.args.get(self.op.schema()?.position(param)?)
    }

    /// Its only result, or the first.
    pub fn result(&self) -> Option<ValueId> {
        self.results.first().copied()
    }
}

impl Arg {
    /// Visits every value in it.
    pub fn for_each_value(&self, visit: &mut impl FnMut(ValueId)) {
        match self {
            Self::Value(value) => visit(*value),
            Self::List(items) => items.iter().for_each(|item| item.for_each_value(visit)),
            _ => {}
        }
    }

    /// Replaces every value in it.
    pub fn map_values(&mut self, replace: &mut impl FnMut(ValueId) -> ValueId) {
        match self {
            Self::Value(value) => *value = replace(*value),
            Self::List(items) => items.iter_mut().for_each(|item| item.map_values(replace)),
            _ => {}
        }
    }

    /// Visits every integer expression in it.
    pub fn for_each_expr(&self, visit: &mut impl FnMut(&Expr)) {
        match self {
            Self::Int(expr) => visit(expr),
            Self::List(items) => items.iter().for_each(|item| item.for_each_expr(visit)),
            _ => {}
        }
    }

    /// The value, if it is one.
    pub const fn as_value(&self) -> Option<ValueId> {
        match self {
            Self::Value(value) => Some(*value),
            _ => None,
        }
    }

    /// True if it is nothing.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl From<ValueId> for Arg {
    fn from(value: ValueId) -> Self {
        Self::Value(value)
    }
}

impl From<Option<ValueId>> for Arg {
    fn from(value: Option<ValueId>) -> Self {
        value.map_or(Self::None, Self::Value)
    }
}

impl From<Expr> for Arg {
    fn from(expr: Expr) -> Self {
        Self::Int(expr)
    }
}

impl From<i64> for Arg {
    fn from(int: i64) -> Self {
        Self::Int(Expr::Int(int))
    }
}

impl From<f64> for Arg {
    fn from(float: f64) -> Self {
        Self::Float(float)
    }
}

impl From<bool> for Arg {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<ScalarType> for Arg {
    fn from(dtype: ScalarType) -> Self {
        Self::DType(dtype)
    }
}

impl From<Vec<Expr>> for Arg {
    fn from(items: Vec<Expr>) -> Self {
        Self::List(items.into_iter().map(Self::Int).collect())
    }
}

impl From<&[i64]> for Arg {
    fn from(items: &[i64]) -> Self {
        Self::List(items.iter().map(|item| Self::from(*item)).collect())
    }
}

impl<const N: usize> From<[i64; N]> for Arg {
    fn from(items: [i64; N]) -> Self {
        Self::from(items.as_slice())
    }
}

impl From<Vec<ValueId>> for Arg {
    fn from(items: Vec<ValueId>) -> Self {
        Self::List(items.into_iter().map(Self::Value).collect())
    }
}

impl MemoryFormat {
    /// c10's number of the format.
    pub const fn code(self) -> i64 {
        match self {
            Self::Contiguous => 0,
            Self::Preserve => 1,
            Self::ChannelsLast => 2,
            Self::ChannelsLast3d => 3,
        }
    }
}

impl fmt::Display for MemoryFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contiguous => "contiguous_format",
            Self::Preserve => "preserve_format",
            Self::ChannelsLast => "channels_last",
            Self::ChannelsLast3d => "channels_last_3d",
        })
    }
}
