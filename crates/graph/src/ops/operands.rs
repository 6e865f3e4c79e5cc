//! The arguments of a call, by position and by expected kind.

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Arg, Expr, Graph, Schema, TensorType, Type, ValueId};

/// A call's arguments, one for each parameter of its schema.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    pub schema: &'a Schema,
    pub args: &'a [Arg],
    /// The results of the call, where it already stands in a graph: sizes that depend on data are only known from them.
    pub results: &'a [ValueId],
}

impl<'a> Operands<'a> {
    /// The arguments of a call of the operator.
    pub fn new(schema: &'a Schema, args: &'a [Arg]) -> Self {
        Self { schema, args, results: &[] }
    }

    /// The same call with the results that it has in a graph.
    #[must_use]
    pub fn with_results(self, results: &'a [ValueId]) -> Self {
        Self { results, ..self }
    }

    /// The types of the results, if the call already stands in a graph.
    pub fn known_types(&self, graph: &Graph) -> Option<Vec<Type>> {
        (!self.results.is_empty()).then(|| self.results.iter().map(|value| graph.ty(*value).clone()).collect())
    }

    /// An argument; `None` where there is none.
    pub fn arg(&self, index: usize) -> &'a Arg {
        self.args.get(index).unwrap_or(&Arg::None)
    }

    /// True if an argument is given.
    pub fn has(&self, index: usize) -> bool {
        !self.arg(index).is_none()
    }

    /// A tensor, or a number that a node computes.
    pub fn value(&self, index: usize) -> Result<ValueId, Error> {
        self.arg(index).as_value().ok_or_else(|| self.wrong(index, "a tensor"))
    }

    /// A tensor that may be absent.
    pub fn optional(&self, index: usize) -> Result<Option<ValueId>, Error> {
        if self.has(index) { self.value(index).map(Some) } else { Ok(None) }
    }

    /// The type of a tensor.
    pub fn tensor<'g>(&self, index: usize, graph: &'g Graph) -> Result<&'g TensorType, Error> {
        graph.tensor(self.value(index)?)
    }

    /// A list of tensors.
    pub fn values(&self, index: usize) -> Result<Vec<ValueId>, Error> {
        let items = self.list(index)?.iter().map(Arg::as_value).collect::<Option<_>>();
        items.ok_or_else(|| self.wrong(index, "a list of tensors"))
    }

    /// An integer, which may depend on symbols.
    pub fn expr(&self, index: usize) -> Result<Expr, Error> {
        match self.arg(index) {
            Arg::Int(expr) => Ok(expr.clone()),
            Arg::Bool(value) => Ok(Expr::Int(i64::from(*value))),
            _ => Err(self.wrong(index, "an integer")),
        }
    }

    /// An integer that is known.
    pub fn int(&self, index: usize) -> Result<i64, Error> {
        self.expr(index)?.as_int().ok_or_else(|| self.wrong(index, "an integer that depends on no input"))
    }

    /// A list of integers, which may depend on symbols.
    pub fn exprs(&self, index: usize) -> Result<Vec<Expr>, Error> {
        let int = |arg: &Arg| match arg {
            Arg::Int(expr) => Ok(expr.clone()),
            _ => Err(self.wrong(index, "a list of integers")),
        };
        match self.arg(index) {
            Arg::Int(expr) => Ok(vec![expr.clone()]),
            _ => self.list(index)?.iter().map(int).collect(),
        }
    }

    /// A list of integers that are known.
    pub fn ints(&self, index: usize) -> Result<Vec<i64>, Error> {
        let ints = self.exprs(index)?.iter().map(Expr::as_int).collect::<Option<_>>();
        ints.ok_or_else(|| self.wrong(index, "integers that depend on no input"))
    }

    /// A list of `count` integers that are known, where one stands for all; an empty list gives `default`.
    pub fn ints_for(&self, index: usize, count: usize, default: &[i64]) -> Result<Vec<i64>, Error> {
        let mut ints = if self.has(index) { self.ints(index)? } else { Vec::new() };
        if ints.is_empty() {
            ints = default.to_vec();
        }
        match ints.as_slice() {
            [all] => Ok(vec![*all; count]),
            _ if ints.len() == count => Ok(ints),
            _ => Err(self.wrong(index, &format!("{count} integers"))),
        }
    }

    /// A number.
    pub fn float(&self, index: usize) -> Result<f64, Error> {
        match self.arg(index) {
            Arg::Float(value) => Ok(*value),
            Arg::Bool(value) => Ok(f64::from(u8::from(*value))),
            Arg::Int(Expr::Int(value)) => Ok(*value as f64),
            _ => Err(self.wrong(index, "a number that is known when the program is compiled")),
        }
    }

    /// A number as an argument of simpler operators: a known double, or a number that the program computes.
    pub fn number(&self, index: usize) -> Result<Arg, Error> {
        match self.arg(index) {
            Arg::Value(value) => Ok(Arg::Value(*value)),
            Arg::Int(expr) if !expr.is_static() => Ok(Arg::Int(expr.clone())),
            _ => self.float(index).map(Arg::Float),
        }
    }

    /// As [`Operands::number`], or `default` if it is absent.
    pub fn number_or(&self, index: usize, default: f64) -> Result<Arg, Error> {
        if self.has(index) { self.number(index) } else { Ok(Arg::Float(default)) }
    }

    /// A number, or `default` if it is absent.
    pub fn float_or(&self, index: usize, default: f64) -> Result<f64, Error> {
        if self.has(index) { self.float(index) } else { Ok(default) }
    }

    /// A truth value.
    pub fn bool(&self, index: usize) -> Result<bool, Error> {
        match self.arg(index) {
            Arg::Bool(value) => Ok(*value),
            Arg::Int(Expr::Int(value)) => Ok(*value != 0),
            _ => Err(self.wrong(index, "a boolean")),
        }
    }

    /// Text; `None` if it is absent.
    pub fn str(&self, index: usize) -> Result<Option<&'a str>, Error> {
        match self.arg(index) {
            Arg::None => Ok(None),
            Arg::Str(text) => Ok(Some(text)),
            _ => Err(self.wrong(index, "text")),
        }
    }

    /// A dtype; `None` if it is absent.
    pub fn dtype(&self, index: usize) -> Result<Option<ScalarType>, Error> {
        match self.arg(index) {
            Arg::None => Ok(None),
            Arg::DType(dtype) => Ok(Some(*dtype)),
            _ => Err(self.wrong(index, "a dtype")),
        }
    }

    /// A dtype, or `default` if it is absent.
    pub fn dtype_or(&self, index: usize, default: ScalarType) -> Result<ScalarType, Error> {
        Ok(self.dtype(index)?.unwrap_or(default))
    }

    /// A dimension of a tensor of this rank, counted from the front.
    pub fn dim(&self, index: usize, rank: usize) -> Result<usize, Error> {
        self.wrap_dim(index, self.int(index)?, rank)
    }

    /// Dimensions of a tensor of this rank, counted from the front, sorted and without repetition; an absent or empty
    /// list gives all of them.
    pub fn dims_or_all(&self, index: usize, rank: usize) -> Result<Vec<usize>, Error> {
        let given = if self.has(index) { self.ints(index)? } else { Vec::new() };
        if given.is_empty() {
            return Ok((0..rank).collect());
        }
        let mut dims = given.iter().map(|dim| self.wrap_dim(index, *dim, rank)).collect::<Result<Vec<_>, _>>()?;
        dims.sort_unstable();
        dims.dedup();
        Ok(dims)
    }

    /// The error for an argument of the wrong kind.
    pub fn wrong(&self, index: usize, expected: &str) -> Error {
        let param = self.schema.params.get(index).map_or("?", |param| &param.name);
        Error::type_error(format!("wrong argument `{param}` of `{}`", self.schema.name))
            .expected(expected)
            .got(text_of(self.arg(index)))
    }

    /// Returns the error for a tensor with sizes that depend on an input, where the lowering needs known ones. `what`
    /// names the sizes, as in "spatial sizes".
    pub(crate) fn unknown_sizes(&self, index: usize, what: &str, graph: &Graph) -> Error {
        let param = self.schema.params.get(index).map_or("?", |param| &param.name);
        let got = self.tensor(index, graph).map(|ty| Type::Tensor(ty.clone()).display(&graph.symbols).to_string());
        Error::unsupported(format!("`{}` over {what} that depend on an input", self.schema.name))
            .expected(format!("known {what} of `{param}`"))
            .got(got.unwrap_or_else(|_| text_of(self.arg(index))))
    }

    fn list(&self, index: usize) -> Result<&'a [Arg], Error> {
        match self.arg(index) {
            Arg::List(items) => Ok(items),
            Arg::None => Ok(&[]),
            _ => Err(self.wrong(index, "a list")),
        }
    }

    /// Returns a dimension of a tensor of this rank, counted from the front. `index` is the argument that an error
    /// names.
    pub(crate) fn wrap_dim(&self, index: usize, dim: i64, rank: usize) -> Result<usize, Error> {
        let count = rank.max(1) as i64;
        wrap_dim(dim, rank).ok_or_else(|| self.wrong(index, &format!("a dimension in {}..{count}", -count)))
    }
}

/// A dimension of a tensor of this rank, counted from the front; `None` if there is no such. A tensor without dimensions
/// takes 0 and -1.
pub fn wrap_dim(dim: i64, rank: usize) -> Option<usize> {
    let count = rank.max(1) as i64;
    let wrapped = if dim < 0 { dim + count } else { dim };
    (0..count).contains(&wrapped).then_some(wrapped as usize)
}

/// An argument as text for messages.
fn text_of(arg: &Arg) -> String {
    match arg {
        Arg::None => "nothing".into(),
        Arg::Value(_) => "a tensor, or a number that the program computes".into(),
        Arg::Int(Expr::Int(value)) => value.to_string(),
        Arg::Int(_) => "a size that depends on an input".into(),
        Arg::Float(value) => value.to_string(),
        Arg::Bool(value) => value.to_string(),
        Arg::Str(text) => format!("{text:?}"),
        Arg::List(items) => format!("[{}]", items.iter().map(text_of).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}
