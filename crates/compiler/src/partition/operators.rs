//! Backends that give operators instead of a delegate: declares their operators, checks the model that they give, and inserts
//! it into the graph.
//!
//! Such a backend has no payload and no run-time half. The runtime needs a registered kernel for each operator, as for
//! operators of the user's own.

use rushlight_graph::{
    Arg, Def, Error, ErrorKind, Graph, Input, Model, Node, NodeId, Op, Origin, OriginId, Schema, Schemas, TensorType,
    Type, Value, ValueId,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Backend, Part};

/// Adds the schemas of a backend's [own operators](Backend::operators) to those that a compilation knows.
///
/// # Errors
/// `Backend` for a malformed schema, and for the name of an unknown operator.
pub(super) fn declare(backend: &dyn Backend, schemas: &Schemas) -> Result<(), Error> {
    for text in backend.operators() {
        let declared = if text.contains('(') {
            Schema::parse(text).map(|schema| schemas.add(schema.with_out_variant()))
        } else {
            schemas.expect(text)
        };
        declared.map_err(|error| broken(format!("it declares `{text}`: {}", error.message())))?;
    }
    Ok(())
}

/// True if a backend declares an operator.
fn declares(backend: &dyn Backend, name: &str) -> bool {
    backend.operators().iter().any(|text| text.split('(').next().is_some_and(|declared| declared.trim() == name))
}

/// Checks a model that a backend gives for a part. The model must be a valid graph with the part's signature and without effects,
/// and call only operators that the backend declares.
///
/// # Errors
/// `Backend`, with the expected and the actual value.
pub(super) fn check(part: &Part, given: &Model, backend: &dyn Backend) -> Result<(), Error> {
    given.verify().map_err(|error| error.with_kind(ErrorKind::Backend).help("the backend gave this model"))?;
    let (expected, Some(got)) = (part.graph()?, given.methods.get(Part::METHOD)) else {
        return Err(broken(format!("its model has no method `{}`", Part::METHOD)));
    };
    check_effects(part, expected, given, got)?;
    check_symbols(expected, got)?;
    let types = |graph: &Graph, values: Vec<ValueId>| values.into_iter().map(|value| graph.ty(value).clone()).collect();
    check_types("inputs", types(expected, inputs(expected)?), types(got, inputs(got)?), expected)?;
    check_types("outputs", types(expected, outputs(expected)?), types(got, outputs(got)?), expected)?;
    for node in &got.blocks[got.body].nodes {
        check_operator(&got.nodes[*node], backend, &part.model.schemas)?;
    }
    Ok(())
}

/// Refuses states and updates, of the part and of the model.
fn check_effects(part: &Part, expected: &Graph, given: &Model, got: &Graph) -> Result<(), Error> {
    if !part.model.states.is_empty() || !expected.updates.is_empty() {
        return Err(broken("it owns a state of a part for which it gives operators")
            .help("return false from `Backend::owns_state`: the state then stays with the program"));
    }
    if !given.states.is_empty() || !got.updates.is_empty() {
        return Err(broken("its model has states or updates").expected("the effects of the part: none"));
    }
    Ok(())
}

/// Refuses other symbols than the part's: sizes would mean something else.
fn check_symbols(expected: &Graph, got: &Graph) -> Result<(), Error> {
    let ranges = |graph: &Graph| -> Vec<_> {
        graph.symbols.iter().map(|(_, symbol)| (symbol.name.clone(), symbol.min, symbol.max)).collect()
    };
    let (expected, got) = (ranges(expected), ranges(got));
    if expected == got {
        return Ok(());
    }
    Err(broken("its model has other symbols than the part").expected(format!("{expected:?}")).got(format!("{got:?}")))
}

/// Compares element types, shapes and dim orders.
fn check_types(what: &str, expected: Vec<Type>, got: Vec<Type>, graph: &Graph) -> Result<(), Error> {
    let plain = |ty: Type| match ty {
        Type::Tensor(tensor) => Type::Tensor(TensorType { quantization: None, ..tensor }),
        other => other,
    };
    let (expected, got): (Vec<_>, Vec<_>) =
        (expected.into_iter().map(plain).collect(), got.into_iter().map(plain).collect());
    if expected == got {
        return Ok(());
    }
    let text = |types: &[Type]| {
        let texts: Vec<String> = types.iter().map(|ty| ty.display(&graph.symbols).to_string()).collect();
        if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
    };
    Err(broken(format!("its model has other {what} than the part")).expected(text(&expected)).got(text(&got)))
}

/// Refuses control flow, delegates, operators that the backend does not declare, and those that write or are random.
fn check_operator(node: &Node, backend: &dyn Backend, schemas: &Schemas) -> Result<(), Error> {
    let name = node.op.name();
    let Op::Call(schema) = &node.op else {
        return Err(broken(format!("its model has a `{name}`")).expected("calls of operators alone"));
    };
    if !declares(backend, name) {
        let declared: Vec<_> = backend.operators().iter().map(|text| text.split('(').next().unwrap_or(text)).collect();
        return Err(broken(format!("its model calls `{name}`, which it does not declare"))
            .expected(format!("one of {}", declared.join(", ")))
            .help("add the operator to `Backend::operators`"));
    }
    if schemas.get(name).is_none_or(|declared| declared != *schema) {
        return Err(broken(format!("its model calls `{name}` by another schema than the one that it declares"))
            .help("take the schema from `Part::model.schemas`"));
    }
    if schema.flags.random || schema.params.iter().any(|param| param.writes) {
        return Err(broken(format!("its model calls `{name}`, which is not functional")));
    }
    Ok(())
}

fn inputs(graph: &Graph) -> Result<Vec<ValueId>, Error> {
    let value = |input: &Input| match input {
        Input::Value(value) => Ok(*value),
        Input::Literal(_) => Err(broken("its model has an input that is a literal")),
    };
    graph.inputs.iter().map(value).collect()
}

fn outputs(graph: &Graph) -> Result<Vec<ValueId>, Error> {
    let value = |output: &Arg| output.as_value().ok_or_else(|| broken("its model has an output that is a literal"));
    graph.outputs.iter().map(value).collect()
}

/// Replaces a part by a checked model. `inputs` and `results` are the part's inputs and outputs in the graph. Nodes without an
/// origin get `origin`. Returns the new nodes, in their order.
pub(super) fn splice(
    model: &mut Model,
    graph: &mut Graph,
    given: &Model,
    inputs: &[ValueId],
    results: &[ValueId],
    origin: OriginId,
) -> Result<Vec<NodeId>, Error> {
    let inner = given.methods.get(Part::METHOD).ok_or_else(|| Error::invalid("a part without its method"))?;
    let mut map: FxHashMap<ValueId, ValueId> = self::inputs(inner)?.into_iter().zip(inputs.iter().copied()).collect();
    for (value, Value { def, .. }) in inner.values.iter() {
        if let Def::Constant(constant) = def {
            let constant = model.constants.push(given.constants[*constant].clone());
            map.insert(value, graph.constant(constant, &model.constants));
        }
    }
    let mut spliced = Vec::new();
    for id in &inner.blocks[inner.body].nodes {
        let Node { op, mut args, results, origin: own } = inner.nodes[*id].clone();
        args.iter_mut().for_each(|arg| arg.map_values(&mut |value| map.get(&value).copied().unwrap_or(value)));
        let origin = match &inner.origins[own] {
            own if *own == Origin::default() => origin,
            own => graph.origins.push(own.clone()),
        };
        let node = graph.nodes.push(Node { op, args, results: Vec::new(), origin });
        for (index, result) in results.into_iter().enumerate() {
            let Value { name, ty, .. } = inner.values[result].clone();
            let value = graph.values.push(Value { name, ty, def: Def::Result(node, index as u32) });
            graph.nodes[node].results.push(value);
            map.insert(result, value);
        }
        spliced.push(node);
    }
    let new: FxHashSet<NodeId> = spliced.iter().copied().collect();
    let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for (result, output) in results.iter().zip(outputs(inner)?) {
        let value = map.get(&output).copied().ok_or_else(|| Error::invalid("a part loses an output"))?;
        let is_new = matches!(graph.values[value].def, Def::Result(node, _) if new.contains(&node));
        if is_new {
            let name = graph.values[*result].name.clone();
            graph.values[value].name = name;
        }
        replaced.insert(*result, value);
    }
    graph.replace_uses(&replaced);
    Ok(spliced)
}

fn broken(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Backend, message)
}
