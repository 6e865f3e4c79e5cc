//! Checks that a program makes of itself. They hold for what was exported, and the runtime checks shapes, so they go.

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Arg, Builder, Expr, Graph, Type};

use super::creation::filled;
use super::inference::one;
use super::{Definition, Lowered, Operands, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite("aten::_assert_async", nothing, dropped),
    composite("aten::_assert_async.msg", nothing, dropped),
    composite("aten::_assert_scalar", nothing, dropped),
    composite("aten::_assert_tensor_metadata", nothing, dropped),
    composite("aten::_linalg_check_errors", nothing, dropped),
    composite("aten::sym_constrain_range", nothing, dropped),
    composite("aten::sym_constrain_range_for_size", nothing, dropped),
    composite("aten::_functional_assert_async.msg", token, last),
    composite("aten::_functional_assert_scalar", token, last),
    composite("aten::_functional_sym_constrain_range", token, last),
    composite("aten::_functional_sym_constrain_range_for_size", token, last),
    composite("aten::_make_dep_token", new_token, make_token),
];

fn nothing(_: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    Ok(Vec::new())
}

fn dropped(_: &mut Builder<'_>, _: &Operands<'_>) -> Lowered {
    Ok(Some(Vec::new()))
}

/// The token that orders the check, which is the last argument.
fn token(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let token = operands.tensor(operands.args.len().saturating_sub(1), graph)?;
    one(token.dtype, token.shape.clone())
}

fn last(_: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    done(operands.value(operands.args.len().saturating_sub(1))?)
}

fn new_token(_: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    one(ScalarType::Float, vec![Expr::Int(0)])
}

fn make_token(b: &mut Builder<'_>, _: &Operands<'_>) -> Lowered {
    filled(b, Arg::from([0]), Arg::from(0), ScalarType::Float).and_then(done)
}
