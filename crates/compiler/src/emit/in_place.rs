//! State that is updated in place.

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Def, Node, NodeId, Op, Target, Type, ValueId};

use super::method::Method;

impl Method<'_> {
    /// Lets a node of the body that updates a state write to the state itself, where nothing reads what was there any
    /// more. `rest` are the nodes after it.
    pub fn update_in_place(&mut self, node: &Node, rest: &[NodeId]) -> Result<(), Error> {
        let graph = self.graph;
        let (Some(Arg::Value(old)), Some(new)) = (node.args.first(), node.result()) else { return Ok(()) };
        let Def::State(state) = graph.values[*old].def else { return Ok(()) };
        let stays = graph.updates.iter().any(|update| update.target == Target::State(state) && update.value == new);
        let is_output = graph.outputs.iter().any(|output| output.as_value() == Some(new));
        let is_alike = graph.values[new].ty == Type::Tensor(self.model.states[state].ty.clone());
        // Who looks at results later looks at the state's old content, too; and outputs keep memory of their own.
        if !updates_first_argument(node) || !stays || !is_alike || is_output || self.options.keep_results {
            return Ok(());
        }
        let target = self.state(state)?;
        let mut is_read = false;
        let mut read = |value: ValueId| {
            let is_it = matches!(graph.values[value].def, Def::State(other) if other == state);
            is_read |= is_it || self.known(value).is_some_and(|index| self.same_slot(index, target));
        };
        node.args.iter().skip(1).for_each(|arg| arg.for_each_value(&mut read));
        rest.iter().for_each(|later| graph.for_each_use_by(*later, &mut read));
        graph.outputs.iter().for_each(|arg| arg.for_each_value(&mut read));
        graph.updates.iter().for_each(|update| read(update.value));
        if !is_read {
            self.alias(new, target);
        }
        Ok(())
    }

    /// Writes a node that updates its first argument in place, if it does. Others are left to [`Method::call`].
    pub fn updating_call(&mut self, node: &Node) -> Result<bool, Error> {
        let (Some(Arg::Value(old)), Some(new)) = (node.args.first(), node.result()) else { return Ok(false) };
        let Op::Call(schema) = &node.op else { return Ok(false) };
        if !updates_first_argument(node) || self.known(new) != Some(self.value(*old)?) {
            return Ok(false);
        }
        let mut args = Vec::with_capacity(node.args.len() + 1);
        for (param, arg) in schema.params.iter().zip(&node.args) {
            args.push(self.argument_of(&param.kind, arg)?);
        }
        args.push(self.value(new)?);
        self.kernel(aten::INDEX_PUT_, args);
        Ok(true)
    }
}

/// True if runtimes have an operator in a form that updates its first argument.
fn updates_first_argument(node: &Node) -> bool {
    node.op.name() == aten::INDEX_PUT
}
