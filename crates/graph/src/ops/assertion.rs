//! Checks that a program makes of itself. They are removed: they held at the export, and the runtime checks shapes.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type};

use super::creation::filled;
use super::inference::one;
use super::{Definition, Lowered, Operands, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::_ASSERT_ASYNC, nothing, dropped),
    composite(aten::_ASSERT_ASYNC_MSG, nothing, dropped),
    composite(aten::_ASSERT_SCALAR, nothing, dropped),
    composite(aten::_ASSERT_TENSOR_METADATA, nothing, dropped),
    composite(aten::_LINALG_CHECK_ERRORS, nothing, dropped),
    composite(aten::SYM_CONSTRAIN_RANGE, nothing, dropped),
    composite(aten::SYM_CONSTRAIN_RANGE_FOR_SIZE, nothing, dropped),
    composite(aten::_FUNCTIONAL_ASSERT_ASYNC_MSG, token, last),
    composite(aten::_FUNCTIONAL_ASSERT_SCALAR, token, last),
    composite(aten::_FUNCTIONAL_SYM_CONSTRAIN_RANGE, token, last),
    composite(aten::_FUNCTIONAL_SYM_CONSTRAIN_RANGE_FOR_SIZE, token, last),
    composite(aten::_MAKE_DEP_TOKEN, new_token, make_token),
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
