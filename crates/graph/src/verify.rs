//! The rules of graphs. Every pass may rely on them and must keep them.

use std::fmt::Display;

use rushlight_format::ScalarType;

use crate::ops::{self, Operands};
use crate::{Error, ErrorKind};

use super::{
    Arg, BlockId, ConstantData, Def, Expr, Graph, Input, Kind, Model, Node, NodeId, Op, Schema, Target, TensorType,
    Type, ValueId,
};

impl Model {
    /// Checks that the model keeps the rules of graphs:
    /// - values are defined once, before they are used, in the block of their use or one around it, and know where;
    /// - calls have an argument of the right kind for each parameter, and results of the operator's types,
    ///   as far as the compiler knows them;
    /// - the blocks of control flow have the parameters and results of their node;
    /// - updates store what fits, and to each target once;
    /// - sizes are made of symbols that an input or an earlier result has.
    ///
    /// # Errors
    /// `Verification`, with method, node, the expected and the actual value.
    pub fn verify(&self) -> Result<(), Error> {
        for (_, constant) in self.constants.iter() {
            if let ConstantData::Dense(bytes) = &constant.data {
                let (expected, got) = (constant.len()?, bytes.len());
                check(expected == got, || broken(format!("the content of `{}`", constant.name), expected, got))?;
            }
        }
        for (name, graph) in &self.methods {
            let mut verifier = Verifier {
                model: self,
                graph,
                visible: vec![false; graph.values.len()],
                known_symbols: vec![false; graph.symbols.len()],
                seen_nodes: vec![false; graph.nodes.len()],
                seen_blocks: vec![false; graph.blocks.len()],
            };
            verifier.method().map_err(|error| error.at(format!("method `{name}`")))?;
        }
        Ok(())
    }
}

/// A method under examination.
struct Verifier<'m> {
    model: &'m Model,
    graph: &'m Graph,
    /// Values that may be used here.
    visible: Vec<bool>,
    /// Symbols that stand in the type of a value that is defined by now.
    known_symbols: Vec<bool>,
    seen_nodes: Vec<bool>,
    seen_blocks: Vec<bool>,
}

impl Verifier<'_> {
    fn method(&mut self) -> Result<(), Error> {
        let graph = self.graph;
        for (_, symbol) in graph.symbols.iter() {
            let ordered = symbol.max.is_none_or(|max| symbol.min <= max);
            check(ordered, || broken(format!("the range of `{}`", symbol.name), "not empty", symbol.min))?;
        }
        let inputs = graph.inputs.iter().filter_map(|input| match input {
            Input::Value(value) => Some(*value),
            Input::Literal(_) => None,
        });
        let params = &graph.blocks.get(graph.body).ok_or_else(|| broken("the body", "a block", "none"))?.params;
        check(inputs.eq(params.iter().copied()), || {
            broken("the parameters of the body", "the inputs that are no literals", format!("{params:?}"))
        })?;
        // The results of the body are the outputs, which can use its values.
        let defined = self.enter(graph.body)?;
        graph.outputs.iter().try_for_each(|output| self.arg_uses(output))?;
        self.updates()?;
        self.leave(defined);
        Ok(())
    }

    fn updates(&self) -> Result<(), Error> {
        for (index, update) in self.graph.updates.iter().enumerate() {
            self.usable(update.value)?;
            let once = self.graph.updates.iter().take(index).all(|other| other.target != update.target);
            check(once, || broken("the updates of a target", 1, format!("{:?} twice", update.target)))?;
            let target = match update.target {
                Target::State(id) => self.model.states.get(id).map(|state| Type::Tensor(state.ty.clone())),
                Target::Input(position) => match self.graph.inputs.get(position as usize) {
                    Some(Input::Value(value)) => Some(self.graph.ty(*value).clone()),
                    _ => None,
                },
            };
            let target = target
                .ok_or_else(|| broken("the target of an update", "one of the model", target_text(update.target)))?;
            self.same_type(&target, self.graph.ty(update.value), || "an update".into())?;
        }
        Ok(())
    }

    /// Checks a block, and returns the values that it defines, which stay visible until [`leave`](Self::leave).
    fn enter(&mut self, id: BlockId) -> Result<Vec<ValueId>, Error> {
        let graph = self.graph;
        let block = graph.blocks.get(id).ok_or_else(|| broken("a block", "one of the graph", format!("{id:?}")))?;
        let first = self.seen_blocks.get_mut(id.index()).is_some_and(|seen| !std::mem::replace(seen, true));
        check(first, || broken("the uses of a block", 1, "more"))?;
        let mut defined = Vec::new();
        for value in &block.params {
            self.define(*value, Def::Param(id), &mut defined)?;
        }
        for id in &block.nodes {
            let node = graph.nodes.get(*id).ok_or_else(|| broken("a node", "one of the graph", format!("{id:?}")))?;
            let first = self.seen_nodes.get_mut(id.index()).is_some_and(|seen| !std::mem::replace(seen, true));
            check(first, || broken("a node", "stands once", "stands twice"))
                .and_then(|()| self.node(*id, node, &mut defined))
                .map_err(|error| self.locate(error, node))?;
        }
        block.results.iter().try_for_each(|result| self.arg_uses(result))?;
        Ok(defined)
    }

    fn leave(&mut self, defined: Vec<ValueId>) {
        for value in defined {
            if let Some(visible) = self.visible.get_mut(value.index()) {
                *visible = false;
            }
        }
    }

    fn define(&mut self, id: ValueId, def: Def, defined: &mut Vec<ValueId>) -> Result<(), Error> {
        let value =
            self.graph.values.get(id).ok_or_else(|| broken("a value", "one of the graph", format!("{id:?}")))?;
        check(value.def == def, || {
            broken(format!("the definition of `{}`", value.name), format!("{def:?}"), format!("{:?}", value.def))
        })?;
        let first = self.visible.get_mut(id.index()).is_some_and(|visible| !std::mem::replace(visible, true));
        check(first, || broken(format!("the definitions of `{}`", value.name), 1, "more"))?;
        defined.push(id);
        let (symbols, known) = (&self.graph.symbols, &mut self.known_symbols);
        let mut unknown = false;
        for_each_size(&value.ty, &mut |size| {
            size.for_each_symbol(&mut |symbol| {
                unknown |= symbols.get(symbol).is_none();
                if let Some(known) = known.get_mut(symbol.index()) {
                    *known = true;
                }
            });
        });
        check(!unknown, || broken(format!("the type of `{}`", value.name), "symbols of the graph", "another"))
    }

    /// Checks that a value may be used here.
    fn usable(&self, id: ValueId) -> Result<(), Error> {
        let value =
            self.graph.values.get(id).ok_or_else(|| broken("a value", "one of the graph", format!("{id:?}")))?;
        let held = match value.def {
            Def::Constant(id) => self.model.constants.get(id).map(|constant| &constant.ty),
            Def::State(id) => self.model.states.get(id).map(|state| &state.ty),
            Def::Param(_) | Def::Result(..) => {
                let visible = self.visible.get(id.index()).copied().unwrap_or(false);
                return check(visible, || {
                    broken(format!("a use of `{}`", value.name), "after its definition", "before")
                });
            }
        };
        let held = held.ok_or_else(|| broken(format!("what `{}` holds", value.name), "of the model", "unknown"))?;
        self.same_type(&Type::Tensor(held.clone()), &value.ty, || format!("the value of `{}`", value.name))
    }

    /// Checks the values and sizes in an argument.
    fn arg_uses(&self, arg: &Arg) -> Result<(), Error> {
        let mut result = Ok(());
        arg.for_each_value(&mut |value| {
            if result.is_ok() {
                result = self.usable(value);
            }
        });
        arg.for_each_expr(&mut |expr| {
            expr.for_each_symbol(&mut |symbol| {
                if !self.known_symbols.get(symbol.index()).copied().unwrap_or(false) && result.is_ok() {
                    let name = self.graph.symbols.get(symbol).map_or("?", |symbol| &symbol.name);
                    result = Err(broken(format!("the size `{name}`"), "of an input or an earlier result", "unknown"));
                }
            });
        });
        result
    }

    fn node(&mut self, id: NodeId, node: &Node, defined: &mut Vec<ValueId>) -> Result<(), Error> {
        node.args.iter().try_for_each(|arg| self.arg_uses(arg))?;
        check(self.graph.origins.get(node.origin).is_some(), || broken("the origin", "one of the graph", "unknown"))?;
        for (index, value) in node.results.iter().enumerate() {
            let known = self.graph.values.get(*value).is_some_and(|value| value.def == Def::Result(id, index as u32));
            check(known, || broken("a result", "defined by this node", format!("{value:?}")))?;
        }
        match &node.op {
            Op::Call(schema) => self.call(schema, node)?,
            Op::Delegate(id) => {
                check(self.model.delegates.get(*id).is_some(), || broken("the delegate", "of the model", "unknown"))?;
            }
            Op::Cond | Op::While | Op::Scan => self.control_flow(node)?,
        }
        node.results
            .iter()
            .enumerate()
            .try_for_each(|(at, value)| self.define(*value, Def::Result(id, at as u32), defined))
    }

    fn call(&self, schema: &Schema, node: &Node) -> Result<(), Error> {
        let (params, args) = (schema.params.len(), node.args.len());
        check(params == args, || broken("the number of arguments", params, args))?;
        for (param, arg) in schema.params.iter().zip(&node.args) {
            check(self.fits(arg, &param.kind), || {
                broken(format!("the argument `{}`", param.name), kind_text(&param.kind), self.arg_text(arg))
            })?;
        }
        // Numbers that nodes compute do not tell sizes. The last passes insert them in place of expressions.
        let mut has_computed_numbers = false;
        node.args.iter().for_each(|arg| {
            arg.for_each_value(&mut |value| has_computed_numbers |= !matches!(self.graph.ty(value), Type::Tensor(_)));
        });
        if has_computed_numbers || ops::definition(&schema.name).is_none() {
            return Ok(());
        }
        // Late passes compute sizes in nodes, whose types hold their values.
        let args: Vec<Arg> = node.args.iter().map(|arg| self.with_sizes(arg)).collect();
        let operands = Operands::new(schema, &args).with_results(&node.results);
        let types = match ops::infer(&operands, self.graph) {
            Ok(types) => types,
            // Some types are only known from the exported program.
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
            Err(error) => return Err(Error::new(ErrorKind::Verification, error.to_string())),
        };
        self.result_types(&types, node)
    }

    /// The argument, with integers that nodes compute replaced by their expressions.
    fn with_sizes(&self, arg: &Arg) -> Arg {
        match arg {
            Arg::Value(value) => match self.graph.ty(*value) {
                Type::Int(size) => Arg::Int(size.clone()),
                _ => arg.clone(),
            },
            Arg::List(items) => Arg::List(items.iter().map(|item| self.with_sizes(item)).collect()),
            other => other.clone(),
        }
    }

    fn result_types(&self, types: &[Type], node: &Node) -> Result<(), Error> {
        let (expected, got) = (types.len(), node.results.len());
        check(expected == got, || broken("the number of results", expected, got))?;
        for (ty, value) in types.iter().zip(&node.results) {
            let value = &self.graph.values[*value];
            self.same_type(ty, &value.ty, || format!("the type of `{}`", value.name))?;
        }
        Ok(())
    }

    fn control_flow(&mut self, node: &Node) -> Result<(), Error> {
        let outputs: Vec<Type> = node.results.iter().map(|value| self.graph.ty(*value).clone()).collect();
        match (&node.op, node.args.as_slice()) {
            (Op::Cond, [predicate, Arg::Block(then), Arg::Block(otherwise)]) => {
                check(self.is_truth(predicate), || broken("the predicate", "a truth value", self.arg_text(predicate)))?;
                self.inner(*then, &[], &outputs)?;
                self.inner(*otherwise, &[], &outputs)
            }
            (Op::While, [Arg::Block(condition), Arg::Block(body), Arg::List(carried)]) => {
                let carried = self.types(carried)?;
                self.result_types(&carried, node)?;
                self.condition(*condition, &carried)?;
                self.inner(*body, &carried, &carried)
            }
            (Op::Scan, [Arg::Block(body), Arg::List(carried), Arg::List(sequences)]) => {
                let (mut params, stacks) = (self.types(carried)?, outputs.iter().skip(carried.len()));
                let mut results = params.clone();
                for sequence in self.types(sequences)? {
                    params.push(slice(&sequence).ok_or_else(|| broken("a sequence", "has a dimension", "none"))?);
                }
                for stack in stacks {
                    results.push(slice(stack).ok_or_else(|| broken("a stack", "has a dimension", "none"))?);
                }
                check(outputs.len() == results.len(), || {
                    broken("the number of results", results.len(), outputs.len())
                })?;
                self.inner(*body, &params, &results)
            }
            (op, args) => Err(broken(format!("the arguments of {}", op.name()), "as its definition", args.len())),
        }
    }

    /// Checks a block that a node runs: the types of its parameters and results.
    fn inner(&mut self, block: BlockId, params: &[Type], results: &[Type]) -> Result<(), Error> {
        let defined = self.enter(block)?;
        let graph = self.graph;
        let (taken, given) = (&graph.blocks[block].params, &graph.blocks[block].results);
        check(taken.len() == params.len(), || broken("the parameters of a block", params.len(), taken.len()))?;
        for (ty, param) in params.iter().zip(taken) {
            self.same_type(ty, graph.ty(*param), || format!("the parameter `{}`", graph.values[*param].name))?;
        }
        check(given.len() == results.len(), || broken("the results of a block", results.len(), given.len()))?;
        for (ty, result) in results.iter().zip(given) {
            self.same_type(ty, &self.type_of(result)?, || format!("a result {}", self.arg_text(result)))?;
        }
        self.leave(defined);
        Ok(())
    }

    /// Checks the block that decides whether a loop continues.
    fn condition(&mut self, block: BlockId, carried: &[Type]) -> Result<(), Error> {
        let given = self.graph.blocks.get(block).map(|block| block.results.as_slice()).unwrap_or_default();
        let [result] = given else { return Err(broken("the results of a condition", 1, given.len())) };
        check(self.is_truth(result), || broken("a condition", "a truth value", self.arg_text(result)))?;
        let ty = self.type_of(result)?;
        self.inner(block, carried, &[ty])
    }

    fn is_truth(&self, arg: &Arg) -> bool {
        match arg {
            Arg::Bool(_) => true,
            Arg::Value(value) => match self.graph.values.get(*value).map(|value| &value.ty) {
                Some(Type::Tensor(tensor)) => {
                    tensor.dtype == ScalarType::Bool && tensor.numel().as_int().is_none_or(|count| count == 1)
                }
                Some(ty) => *ty == Type::Bool,
                None => false,
            },
            _ => false,
        }
    }

    fn types(&self, args: &[Arg]) -> Result<Vec<Type>, Error> {
        args.iter().map(|arg| self.type_of(arg)).collect()
    }

    fn type_of(&self, arg: &Arg) -> Result<Type, Error> {
        match arg {
            Arg::Value(id) => {
                let value = self.graph.values.get(*id);
                value
                    .map(|value| value.ty.clone())
                    .ok_or_else(|| broken("a value", "one of the graph", format!("{id:?}")))
            }
            Arg::Int(expr) => Ok(Type::Int(expr.clone())),
            Arg::Float(_) => Ok(Type::Float),
            Arg::Bool(_) => Ok(Type::Bool),
            other => Err(broken("what a block takes or gives", "values", self.arg_text(other))),
        }
    }

    /// True if values of the types can replace each other: sizes that depend on symbols may be written differently.
    fn same_type(&self, expected: &Type, got: &Type, what: impl FnOnce() -> String) -> Result<(), Error> {
        let same = match (expected, got) {
            (Type::Tensor(a), Type::Tensor(b)) => a.dtype == b.dtype && same_shape(a, b),
            (Type::Int(_), Type::Int(_)) => true,
            (a, b) => a == b,
        };
        let symbols = &self.graph.symbols;
        check(same, || broken(what(), expected.display(symbols), got.display(symbols)))
    }

    /// True if an argument is of a parameter's kind.
    fn fits(&self, arg: &Arg, kind: &Kind) -> bool {
        let number = |wanted: fn(&Type) -> bool| match arg {
            Arg::Value(value) => wanted(self.graph.ty(*value)),
            _ => false,
        };
        match kind {
            Kind::Optional(inner) => arg.is_none() || self.fits(arg, inner),
            Kind::List(inner, length) => match arg {
                Arg::List(items) => items.iter().all(|item| self.fits(item, inner)),
                one => length.is_some() && self.fits(one, inner),
            },
            // PyTorch takes numbers for tensors without dimensions.
            Kind::Tensor => matches!(arg, Arg::Value(_)) || self.fits(arg, &Kind::Scalar),
            Kind::Int => {
                matches!(arg, Arg::Int(_) | Arg::Bool(_)) || number(|ty| matches!(ty, Type::Int(_) | Type::Bool))
            }
            Kind::Float => {
                matches!(arg, Arg::Float(_) | Arg::Int(_)) || number(|ty| matches!(ty, Type::Float | Type::Int(_)))
            }
            Kind::Bool => matches!(arg, Arg::Bool(_) | Arg::Int(_)) || number(|ty| matches!(ty, Type::Bool)),
            Kind::Scalar => {
                matches!(arg, Arg::Int(_) | Arg::Float(_) | Arg::Bool(_) | Arg::Complex(..))
                    || number(|ty| !matches!(ty, Type::Tensor(_)))
            }
            Kind::Str => matches!(arg, Arg::Str(_)),
            // Operators outside of PyTorch count dtypes.
            Kind::DType => matches!(arg, Arg::DType(_) | Arg::Int(Expr::Int(_))),
            Kind::Layout => matches!(arg, Arg::Layout(_)),
            Kind::Device => matches!(arg, Arg::Device(_)),
            Kind::MemoryFormat => matches!(arg, Arg::MemoryFormat(_)),
            Kind::Generator | Kind::Other(_) => true,
        }
    }

    fn arg_text(&self, arg: &Arg) -> String {
        match arg.as_value().and_then(|value| self.graph.values.get(value)) {
            Some(value) => format!("`{}`: {}", value.name, value.ty.display(&self.graph.symbols)),
            None => format!("{arg:?}"),
        }
    }

    fn locate(&self, error: Error, node: &Node) -> Error {
        let method = self.model.methods.iter().find(|(_, graph)| std::ptr::eq(*graph, self.graph));
        let method = method.map_or("?", |(name, _)| name.as_str());
        let origin = self.graph.origins.get(node.origin).cloned().unwrap_or_default();
        error
            .at(format!("method `{method}`, node `{}` ({})", origin.node, node.op.name()))
            .from_line(origin.line().as_deref())
    }
}

fn check(holds: bool, error: impl FnOnce() -> Error) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(error()) }
}

/// The error that a rule does not hold.
fn broken(what: impl Display, expected: impl Display, got: impl Display) -> Error {
    Error::new(ErrorKind::Verification, format!("{what} breaks the rules of graphs")).expected(expected).got(got)
}

fn same_shape(a: &TensorType, b: &TensorType) -> bool {
    let same = |(a, b): (&Expr, &Expr)| !a.is_static() || !b.is_static() || a == b;
    a.rank() == b.rank() && a.shape.iter().zip(&b.shape).all(same)
}

/// The type of a tensor at an index of its first dimension.
fn slice(ty: &Type) -> Option<Type> {
    let tensor = ty.as_tensor()?;
    let (_, rest) = tensor.shape.split_first()?;
    Some(Type::Tensor(TensorType::new(tensor.dtype, rest.to_vec())))
}

fn for_each_size(ty: &Type, visit: &mut impl FnMut(&Expr)) {
    match ty {
        Type::Tensor(tensor) => tensor.shape.iter().for_each(visit),
        Type::Int(expr) => visit(expr),
        Type::Float | Type::Bool => {}
    }
}

fn kind_text(kind: &Kind) -> String {
    match kind {
        Kind::Optional(inner) => format!("{}?", kind_text(inner)),
        Kind::List(inner, _) => format!("{}[]", kind_text(inner)),
        other => format!("{other:?}"),
    }
}

fn target_text(target: Target) -> String {
    match target {
        Target::State(id) => format!("state {id:?}"),
        Target::Input(position) => format!("input {position}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::aten;
    use crate::testing::{Method, float};
    use crate::{Block, Constant, SymbolId, Update};

    /// `relu(x)` and `neg` of it, both returned.
    fn sound() -> Method {
        let mut m = Method::new();
        let x = m.graph().input("x", float(&[2]));
        let a = m.call(aten::RELU, vec![x.into()], float(&[2]));
        let b = m.call(aten::NEG, vec![a.into()], float(&[2]));
        m.graph().outputs = vec![a.into(), b.into()];
        m
    }

    fn error_of(breakage: impl FnOnce(&mut Method)) -> String {
        let mut m = sound();
        m.model.verify().unwrap();
        breakage(&mut m);
        let error = m.model.verify().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Verification);
        assert!(error.site().is_some_and(|site| site.contains("method `forward`")), "{error}");
        error.to_string()
    }

    fn contains(text: &str, parts: &[&str]) {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn definitions_come_before_uses() {
        let text = error_of(|m| {
            let body = m.graph().body;
            m.graph().blocks[body].nodes.reverse();
        });
        contains(&text, &["a use of `v1`", "node ``", "(aten::neg)"]);
        let text = error_of(|m| {
            let x = m.graph().blocks[BlockId::new(0)].params[0];
            let mut inner = None;
            m.cond(|m, block| {
                let value = m.call_in(block, aten::EXP, vec![x.into()], float(&[2]));
                inner = Some(value);
                value
            });
            m.graph().outputs.push(inner.into());
        });
        contains(&text, &["after its definition"]);
    }

    #[test]
    fn calls_fit_their_schemas() {
        let nodes = |m: &mut Method| m.graph().blocks[BlockId::new(0)].nodes.clone();
        contains(
            &error_of(|m| {
                let node = nodes(m)[0];
                m.graph().nodes[node].args.clear();
            }),
            &["number of arguments", "expected  1", "got       0"],
        );
        contains(
            &error_of(|m| {
                let node = nodes(m)[0];
                m.graph().nodes[node].args[0] = Arg::from("x");
            }),
            &["the argument `self`", "Tensor", "Str(\"x\")"],
        );
        contains(
            &error_of(|m| {
                let node = nodes(m)[1];
                let value = m.graph().nodes[node].results[0];
                m.graph().values[value].ty = float(&[3]);
            }),
            &["type of `v2`", "f32[2]", "f32[3]"],
        );
        contains(
            &error_of(|m| {
                let node = nodes(m)[1];
                m.graph().nodes[node].results.clear();
            }),
            &["number of results"],
        );
    }

    #[test]
    fn things_stand_once() {
        contains(
            &error_of(|m| {
                let node = m.graph().blocks[BlockId::new(0)].nodes[0];
                m.graph().blocks[BlockId::new(0)].nodes.push(node);
            }),
            &["stands twice"],
        );
        contains(
            &error_of(|m| {
                let block = m.graph().blocks.push(Block::default());
                let args = vec![Arg::Bool(true), Arg::Block(block), Arg::Block(block)];
                m.graph().push_node(BlockId::new(0), Op::Cond, args, super::super::OriginId::new(0), []);
            }),
            &["uses of a block"],
        );
    }

    #[test]
    fn updates_fit_their_targets() {
        let store = |ty: Type, position: u32| {
            error_of(move |m| {
                let x = m.graph().blocks[BlockId::new(0)].params[0];
                let value = m.call(aten::NONZERO, vec![x.into()], ty);
                m.graph().updates.push(Update { target: Target::Input(position), value });
            })
        };
        contains(&store(float(&[5]), 0), &["an update", "f32[2]", "f32[5]"]);
        contains(&store(float(&[2]), 1), &["target of an update"]);
    }

    #[test]
    fn sizes_and_constants_are_of_the_model() {
        contains(
            &error_of(|m| {
                let ty = float(&[2]);
                let sizes = vec![Expr::Symbol(SymbolId::new(0))];
                let full = m.call(aten::FULL, vec![sizes.into(), Arg::Float(0.0)], ty);
                m.graph().outputs.push(full.into());
            }),
            &["the size"],
        );
        contains(
            &error_of(|m| {
                let ty = TensorType::of(ScalarType::Float, &[2]);
                let id = m.model.constants.push(Constant { name: "c".into(), ty, data: ConstantData::Zeros });
                let Model { methods, constants, .. } = &mut m.model;
                let value = methods["forward"].constant(id, constants);
                methods["forward"].values[value].ty = float(&[7]);
                methods["forward"].outputs.push(value.into());
            }),
            &["value of `c`", "f32[2]", "f32[7]"],
        );
    }

    #[test]
    fn loops_carry_what_they_take() {
        let build = |sizes: &[i64]| {
            let mut m = Method::new();
            let x = m.graph().input("x", float(&[2]));
            let graph = m.graph();
            let (condition, body) = (graph.blocks.push(Block::default()), graph.blocks.push(Block::default()));
            graph.param(condition, "c", float(&[2]));
            graph.blocks[condition].results = vec![Arg::Bool(false)];
            let carried = graph.param(body, "b", float(&[2]));
            let next = m.call_in(body, aten::NONZERO, vec![carried.into()], float(sizes));
            m.graph().blocks[body].results = vec![next.into()];
            let args = vec![Arg::Block(condition), Arg::Block(body), Arg::List(vec![x.into()])];
            let (root, origin) = (m.graph().body, super::super::OriginId::new(0));
            m.graph().push_node(root, Op::While, args, origin, [("y".into(), float(&[2]))]);
            m.model.verify()
        };
        build(&[2]).unwrap();
        contains(&build(&[3]).unwrap_err().to_string(), &["a result", "while_loop", "f32[3]"]);
    }
}
