//! Operators that check, promise or print, and the tokens that order them.
//!
//! `run_decompositions` replaces an operator that has effects by `with_effects(token, operator, arguments…)`, which gives a new token
//! and the results of the operator. A program here runs in one order, so tokens have no values.

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Def, Op};

use super::super::schema::{Argument, NamedArgument, SymBool, SymBoolArgument};
use super::args::value_named;
use super::control::malformed;
use super::nodes::{NodeImport, operator_name};
use super::sizes::Sizes;
use super::{Binding, Importer, Scope, guards, unknown_name};

/// Operators whose only effect is a check, a promise about a value, or a printed line.
const CHECKS: &[&str] = &[
    aten::_ASSERT_ASYNC,
    aten::_ASSERT_ASYNC_MSG,
    aten::_ASSERT_SCALAR,
    aten::_ASSERT_TENSOR_METADATA,
    aten::SYM_CONSTRAIN_RANGE,
    aten::SYM_CONSTRAIN_RANGE_FOR_SIZE,
    aten::_FUNCTIONAL_ASSERT_SCALAR,
    aten::_FUNCTIONAL_ASSERT_ASYNC_MSG,
    aten::_LINALG_CHECK_ERRORS,
    // Without tensors it is not among the schemas, and has no constant.
    "aten::_print",
];

/// True for an operator that [`Importer::check`] imports.
pub(super) fn is_check(name: &str) -> bool {
    CHECKS.contains(&name)
}

impl<'a> Importer<'_, '_, 'a> {
    /// Imports `with_effects` around an operator that only checks or prints.
    pub(super) fn with_effects(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>) -> Result<(), Error> {
        let node = import.node;
        let [token, operator, args @ ..] = &*node.inputs else { return Err(malformed("with_effects", node)) };
        let (Argument::Tensor(token), Argument::Operator(target), Some(Argument::Tensor(next))) =
            (&token.arg, &operator.arg, node.outputs.first())
        else {
            return Err(malformed("with_effects", node));
        };
        if !matches!(scope.get(&*token.name), Some(Binding::Token)) {
            return Err(unknown_name(&token.name));
        }
        match operator_name(target) {
            Some(name) if is_check(&name) => self.check(scope, import, &name, args)?,
            None if &**target == "torch.ops.higher_order.print" => {}
            name => {
                let name = name.unwrap_or_else(|| target.to_string());
                return Err(Error::unsupported(format!(
                    "`{name}` has side effects, which the program orders by tokens"
                ))
                .expected("an operator that computes its results, or one that only checks or prints")
                .help("export the model without this operator, or with one that has no registered effect"));
            }
        }
        scope.insert(next.name.to_string(), Binding::Token);
        Ok(())
    }

    /// Imports a check. An asserted condition on sizes becomes a rule about the inputs, and an operator of linear algebra checks its own
    /// errors. Other assertions are left out: operators check the sizes and indices of their arguments.
    pub(super) fn check(
        &mut self,
        scope: &Scope,
        import: NodeImport<'_, 'a>,
        name: &str,
        args: &[NamedArgument<'a>],
    ) -> Result<(), Error> {
        match (name, args.first().map(|first| &first.arg)) {
            (aten::_ASSERT_SCALAR | aten::_FUNCTIONAL_ASSERT_SCALAR, Some(condition)) => {
                self.assertion(import, condition, args.get(1).map(|message| &message.arg))
            }
            (aten::_LINALG_CHECK_ERRORS, Some(Argument::Tensor(info))) => self.check_linalg(scope, import, &info.name),
            _ => Ok(()),
        }
    }

    /// Records a condition on sizes of inputs.
    fn assertion(
        &mut self,
        import: NodeImport<'_, 'a>,
        condition: &Argument<'a>,
        message: Option<&Argument<'a>>,
    ) -> Result<(), Error> {
        let NodeImport { source, block, .. } = import;
        // The assertions of a branch need not hold when another branch runs.
        if block != self.graph.body {
            return Ok(());
        }
        let Argument::SymBool(SymBoolArgument::Name(condition)) = condition else { return Ok(()) };
        let Some(SymBool::Expr(expr)) = source.sym_bool_values.get(condition) else { return Ok(()) };
        let message = match message {
            Some(Argument::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let text = message.and_then(|message| message.strip_prefix("Runtime assertion failed for expression "));
        let text = text.map_or(&*expr.expr_str, |text| text.split_once(" on node").map_or(text, |(text, _)| text));
        if !Sizes::is_of_inputs(&expr.expr_str) {
            return Ok(());
        }
        match self.sizes.formula(&expr.expr_str) {
            Some(formula) => self.asserted.push((formula, text.to_owned())),
            None => return Err(guards::not_understood(text)),
        }
        Ok(())
    }

    /// Sets `check_errors` of the operator that returned `info` as its last result, in the same block. Eager PyTorch raises the same error
    /// in `torch.linalg.inv` and its like.
    fn check_linalg(&mut self, scope: &Scope, import: NodeImport<'_, 'a>, info: &str) -> Result<(), Error> {
        let Def::Result(id, at) = self.graph.values[value_named(scope, info)?].def else { return Ok(()) };
        let is_here = self.graph.blocks[import.block].nodes.iter().rev().any(|node| *node == id);
        let node = &mut self.graph.nodes[id];
        let Op::Call(schema) = &node.op else { return Ok(()) };
        let flag = schema.position("check_errors").and_then(|flag| node.args.get_mut(flag));
        if let (true, Some(flag)) = (is_here && at as usize + 1 == node.results.len(), flag) {
            *flag = Arg::Bool(true);
        }
        Ok(())
    }
}
