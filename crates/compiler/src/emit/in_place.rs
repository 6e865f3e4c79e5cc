//! State updates in place.

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Def, Node, NodeId, Op, Target, Type, ValueId};

use super::method::Method;

impl Method<'_> {
    /// Aliases the result of a node that updates a state with the state, if nothing reads the old content afterwards. `rest`
    /// are the nodes after it.
    pub fn update_in_place(&mut self, node: &Node, rest: &[NodeId]) -> Result<(), Error> {
        let graph = self.graph;
        let (Some(Arg::Value(old)), Some(new)) = (node.args.first(), node.result()) else { return Ok(()) };
        let Def::State(state) = graph.values[*old].def else { return Ok(()) };
        let is_new_state =
            graph.updates.iter().any(|update| update.target == Target::State(state) && update.value == new);
        let is_output = graph.outputs.iter().any(|output| output.as_value() == Some(new));
        let is_same_type = graph.values[new].ty == Type::Tensor(self.model.states[state].ty.clone());
        // With `keep_results` the old content must stay, as all results do; outputs have memory of their own.
        if !updates_first_argument(node) || !is_new_state || !is_same_type || is_output || self.options.keep_results {
            return Ok(());
        }
        let target = self.state(state)?;
        let mut is_read = false;
        let mut read = |value: ValueId| {
            let is_state = matches!(graph.values[value].def, Def::State(other) if other == state);
            is_read |= is_state || self.emitted(value).is_some_and(|index| self.shares_slot(index, target));
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

    /// Emits the in-place variant of a node that [`update_in_place`](Method::update_in_place) has aliased, and returns true;
    /// false leaves the node to [`Method::call`].
    pub fn updating_call(&mut self, node: &Node) -> Result<bool, Error> {
        let (Some(Arg::Value(old)), Some(new)) = (node.args.first(), node.result()) else { return Ok(false) };
        let Op::Call(schema) = &node.op else { return Ok(false) };
        if !updates_first_argument(node) || self.emitted(new) != Some(self.value(*old)?) {
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

/// True if runtimes have an in-place variant of the operator, which writes to its first argument.
fn updates_first_argument(node: &Node) -> bool {
    node.op.name() == aten::INDEX_PUT
}
