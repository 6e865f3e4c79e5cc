//! Operators on numbers, which become expressions where they can.

use rushlight_format::pte::ValueModel;

use rushlight_graph::Error;
use rushlight_graph::operators::{aten, executorch_prim};
use rushlight_graph::{Arg, Expr, Op, Type};

use super::method::Method;

impl Method<'_, '_> {
    /// A call of an operator on numbers; the last argument is the result.
    pub(super) fn prim(&mut self, name: &str, args: &[u32]) -> Result<(), Error> {
        let malformed = || Error::invalid(format!("`{name}` has the wrong number of arguments"));
        let (result, args) = args.split_last().ok_or_else(malformed)?;
        let number = match (name, args) {
            (aten::_LOCAL_SCALAR_DENSE, [tensor]) => self.item(*tensor, *result)?,
            (aten::SYM_SIZE_INT, [tensor, dim]) => {
                let value = self.read(*tensor)?;
                let rank = self.graph.tensor(value)?.rank() as i64;
                let dim = self.int(*dim)?.as_int().map(|dim| if dim < 0 { dim + rank } else { dim });
                let dim = dim.and_then(|dim| usize::try_from(dim).ok());
                let size = dim.and_then(|dim| self.graph.tensor(value).ok()?.shape.get(dim).cloned());
                Arg::Int(size.ok_or_else(|| Error::invalid("the size of a dimension that is not there"))?)
            }
            (aten::SYM_NUMEL, [tensor]) => {
                let value = self.read(*tensor)?;
                Arg::Int(self.graph.tensor(value)?.numel())
            }
            (aten::SYM_STORAGE_OFFSET, [_]) => Arg::from(0),
            (
                executorch_prim::SYM_INT_SCALAR
                | executorch_prim::TRUNC_SCALAR
                | executorch_prim::ROUND_SCALAR
                | executorch_prim::CEIL_SCALAR
                | executorch_prim::SYM_FLOAT_SCALAR
                | executorch_prim::NEG_SCALAR
                | executorch_prim::SYM_NOT_SCALAR,
                [x],
            ) => {
                let x = self.number(*x)?;
                match (name, x) {
                    (executorch_prim::NEG_SCALAR, Arg::Int(x)) => Arg::Int(x.mul(-1)),
                    (executorch_prim::SYM_NOT_SCALAR, Arg::Bool(x)) => Arg::Bool(!x),
                    (executorch_prim::SYM_FLOAT_SCALAR, Arg::Int(Expr::Int(x))) => Arg::Float(x as f64),
                    (
                        executorch_prim::NEG_SCALAR
                        | executorch_prim::SYM_FLOAT_SCALAR
                        | executorch_prim::SYM_NOT_SCALAR,
                        x,
                    ) => self.computed(name, vec![x], *result)?,
                    (_, Arg::Int(x)) => Arg::Int(x),
                    (_, x) => self.computed(name, vec![x], *result)?,
                }
            }
            (_, [a, b]) => {
                let (a, b) = (self.number(*a)?, self.number(*b)?);
                match (&a, &b) {
                    (Arg::Int(x), Arg::Int(y)) => match arithmetic(name, x, y) {
                        Some(number) => number,
                        None => self.computed(&scalar_overload(name), vec![a, b], *result)?,
                    },
                    _ => self.computed(&scalar_overload(name), vec![a, b], *result)?,
                }
            }
            (_, args) => {
                let args = args.iter().map(|arg| self.number(*arg)).collect::<Result<Vec<_>, _>>()?;
                self.computed(name, args, *result)?
            }
        };
        self.set_number(*result, number)
    }

    /// The only element of a tensor.
    fn item(&mut self, tensor: u32, result: u32) -> Result<Arg, Error> {
        let value = self.read(tensor)?;
        self.computed(aten::_LOCAL_SCALAR_DENSE, vec![value.into()], result)
    }

    /// A number that a node computes.
    fn computed(&mut self, name: &str, args: Vec<Arg>, result: u32) -> Result<Arg, Error> {
        let schema = self.model.schemas.expect(name)?;
        if schema.params.len() != args.len() {
            return Err(Error::invalid(format!("`{name}` has the wrong number of arguments")));
        }
        let ty = match self.plan.values.get(result as usize) {
            Some(ValueModel::Int(_)) => Type::Int(self.fresh("n", i64::MIN, None)),
            Some(ValueModel::Double(_)) => Type::Float,
            Some(ValueModel::Bool(_)) => Type::Bool,
            _ => return Err(Error::invalid(format!("the result of `{name}` is not a number"))),
        };
        let expr = if let Type::Int(expr) = &ty { Some(expr.clone()) } else { None };
        let value = self.push_node(Op::Call(schema), args, vec![ty])?;
        Ok(expr.map_or(Arg::Value(value), Arg::Int))
    }
}

/// The overload for numbers of all kinds; old programs name another one for integers.
fn scalar_overload(name: &str) -> String {
    name.strip_suffix(".int").map_or_else(|| name.to_owned(), |base| format!("{base}.Scalar"))
}

/// A function of two integers, if expressions or constants can say it.
fn arithmetic(name: &str, x: &Expr, y: &Expr) -> Option<Arg> {
    let function = name.strip_prefix("executorch_prim::")?.split('.').next()?;
    let both = x.as_int().zip(y.as_int());
    Some(match (function, both) {
        ("add", _) => Arg::Int(x.add(y.clone())),
        ("sub", _) => Arg::Int(x.sub(y.clone())),
        ("mul", _) => Arg::Int(x.mul(y.clone())),
        ("floordiv", _) if !y.is(0) => Arg::Int(x.floor_div(y.clone())),
        ("mod", _) if !y.is(0) => Arg::Int(x.modulo(y.clone())),
        ("sym_max", _) => Arg::Int(x.at_least(y.clone())),
        ("sym_min", _) => Arg::Int(x.at_most(y.clone())),
        ("eq", Some((x, y))) => Arg::Bool(x == y),
        ("gt", Some((x, y))) => Arg::Bool(x > y),
        ("lt", Some((x, y))) => Arg::Bool(x < y),
        ("ge", Some((x, y))) => Arg::Bool(x >= y),
        ("le", Some((x, y))) => Arg::Bool(x <= y),
        _ => return None,
    })
}
