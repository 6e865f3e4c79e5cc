//! The syntax tree of a template.

use std::sync::Arc;

#[derive(Debug)]
pub(super) enum Statement {
    Data(String),
    Output(Vec<Expr>, u32),
    Set(Target, Expr, u32),
    SetBlock {
        target: Target,
        filters: Vec<Filter>,
        body: Vec<Statement>,
        line: u32,
    },
    For(Arc<For>),
    /// Conditions with their bodies, and the body of `else`.
    If {
        branches: Vec<(Expr, Vec<Statement>)>,
        otherwise: Vec<Statement>,
        line: u32,
    },
    With {
        targets: Vec<(Target, Expr)>,
        body: Vec<Statement>,
        line: u32,
    },
    Macro(Arc<Macro>),
    Call {
        caller: Arc<Macro>,
        call: Box<Call>,
        line: u32,
    },
    FilterBlock {
        filters: Vec<Filter>,
        body: Vec<Statement>,
        line: u32,
    },
    /// A scope of its own. `block` sees the names of the template alone; `generation` also sees the names around it (`sees_all`).
    Block {
        body: Vec<Statement>,
        sees_all: bool,
    },
    /// `autoescape`.
    Escape {
        is_on: Expr,
        body: Vec<Statement>,
        line: u32,
    },
    Break,
    Continue,
    /// A statement that needs other templates.
    Refused(&'static str, u32),
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) iterable: Expr,
    pub(super) test: Option<Expr>,
    pub(super) is_recursive: bool,
    pub(super) body: Vec<Statement>,
    pub(super) otherwise: Vec<Statement>,
    pub(super) line: u32,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Arc<str>,
    /// Parameters with their defaults.
    pub(super) parameters: Vec<(Arc<str>, Option<Expr>)>,
    pub(super) body: Vec<Statement>,
    pub(super) takes_varargs: bool,
    pub(super) takes_kwargs: bool,
    pub(super) takes_caller: bool,
}

#[derive(Debug)]
pub(super) enum Target {
    Name(Arc<str>),
    Attribute(Arc<str>, Arc<str>),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub(super) enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Box<str>),
    Name(Arc<str>, u32),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Attribute(Box<Expr>, Arc<str>, u32),
    Item(Box<Expr>, Box<Expr>, u32),
    Slice(Box<[Option<Expr>; 3]>),
    Call(Box<Call>),
    Filter(Box<Expr>, Box<Filter>),
    Test(Box<Expr>, Box<Filter>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    Binary(Operator, Box<(Expr, Expr)>, u32),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    And(Box<(Expr, Expr)>),
    Or(Box<(Expr, Expr)>),
    /// Condition, value and value otherwise.
    If(Box<(Expr, Expr, Option<Expr>)>, u32),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: Expr,
    pub(super) arguments: Arguments,
    pub(super) line: u32,
}

/// A filter or test with its arguments.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) name: String,
    pub(super) arguments: Arguments,
    pub(super) line: u32,
}

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expr>,
    pub(super) named: Vec<(Arc<str>, Expr)>,
    /// `*list` and `**dict`.
    pub(super) list: Option<Expr>,
    pub(super) dict: Option<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
}
