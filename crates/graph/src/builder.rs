//! Building and rewriting graphs.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use indexmap::IndexMap;
use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use crate::ops::{self, Operands};
use crate::{Error, ErrorKind};

use super::schema::Default;
use super::{
    Arena, Arg, BlockId, Constant, Graph, Kind, MemoryFormat, Model, NodeId, Op, OriginId, Schema, Schemas, TensorType,
    Type, ValueId,
};

/// Adds nodes to a block of a graph, with types that it infers.
#[derive(Debug)]
pub struct Builder<'m> {
    pub graph: &'m mut Graph,
    pub constants: &'m mut Arena<Constant>,
    schemas: &'m Arc<Schemas>,
    block: BlockId,
    origin: OriginId,
    /// Maximum number of nodes of the graph.
    limit: usize,
}

/// Maximum number of nodes that one builder adds by name: the lowering of one node.
const MAX_ADDED: usize = 1 << 16;

/// What becomes of a node that a rewrite visits.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It stays.
    Keep,
    /// It goes; these values, one for each of its results, stand in for them.
    Replace(Vec<ValueId>),
    /// It goes; its results must not be used.
    Remove,
}

impl<'m> Builder<'m> {
    /// A builder that adds to the end of `block`.
    pub fn new(
        graph: &'m mut Graph,
        constants: &'m mut Arena<Constant>,
        schemas: &'m Arc<Schemas>,
        block: BlockId,
        origin: OriginId,
    ) -> Self {
        let limit = graph.nodes.len().saturating_add(MAX_ADDED);
        Self { graph, constants, schemas, block, origin, limit }
    }

    /// The block that nodes are added to.
    pub fn block(&self) -> BlockId {
        self.block
    }

    /// Has `build` add to another block.
    pub fn inside<R>(&mut self, block: BlockId, build: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.block, block);
        let built = build(self);
        self.block = outer;
        built
    }

    /// What the operators take and give.
    pub fn schemas(&self) -> &Arc<Schemas> {
        self.schemas
    }

    /// Calls an operator and gives its results. `args` are its first arguments in order; the others have their defaults.
    pub fn call(&mut self, name: &str, args: Vec<Arg>) -> Result<Vec<ValueId>, Error> {
        self.call_with(name, args, &[])
    }

    /// Calls an operator with one result.
    pub fn one(&mut self, name: &str, args: Vec<Arg>) -> Result<ValueId, Error> {
        self.one_with(name, args, &[])
    }

    /// Calls an operator with one result, with some of the arguments by name.
    pub fn one_with(&mut self, name: &str, args: Vec<Arg>, named: &[(&str, Arg)]) -> Result<ValueId, Error> {
        let results = self.call_with(name, args, named)?;
        match results.as_slice() {
            [result] => Ok(*result),
            _ => Err(Error::new(ErrorKind::Verification, format!("`{name}` has {} results", results.len()))),
        }
    }

    /// Calls an operator, with some of the arguments by name.
    pub fn call_with(&mut self, name: &str, args: Vec<Arg>, named: &[(&str, Arg)]) -> Result<Vec<ValueId>, Error> {
        let schema = self.schemas.expect(name)?;
        let args = bind(&schema, args, named)?;
        if self.graph.nodes.len() >= self.limit {
            return Err(Error::unsupported(format!("it would become more than {MAX_ADDED} operators")));
        }
        let types = ops::infer(&Operands::new(&schema, &args), self.graph)?;
        Ok(self.push(Op::Call(schema), args, types))
    }

    /// Adds a node whose result types are known.
    pub fn push(&mut self, op: Op, args: Vec<Arg>, types: Vec<Type>) -> Vec<ValueId> {
        let stem = op.schema().map_or(op.name(), |schema| schema.base_name()).rsplit("::").next().unwrap_or_default();
        let first = self.graph.values.len();
        let named = |(index, ty)| (format!("{stem}_{}", first + index), ty);
        let results: Vec<_> = types.into_iter().enumerate().map(named).collect();
        let node = self.graph.push_node(self.block, op, args, self.origin, results);
        self.graph.nodes[node].results.clone()
    }

    /// Adds a constant.
    pub fn constant(&mut self, constant: Constant) -> ValueId {
        let id = self.constants.push(constant);
        self.graph.constant(id, self.constants)
    }

    /// A tensor without dimensions that holds a number.
    pub fn scalar(&mut self, value: f64, dtype: ScalarType) -> Result<ValueId, Error> {
        let bytes = ops::number_bytes(value, dtype)?;
        Ok(self.constant(Constant::dense("scalar", TensorType::new(dtype, Vec::new()), bytes)?))
    }

    /// The tensor type of a value.
    pub fn tensor(&self, value: ValueId) -> Result<TensorType, Error> {
        self.graph.tensor(value).cloned()
    }
}

/// The arguments of a call, one for each parameter.
pub fn bind(schema: &Schema, args: Vec<Arg>, named: &[(&str, Arg)]) -> Result<Vec<Arg>, Error> {
    if let Some((name, _)) = named.iter().find(|(name, _)| schema.position(name).is_none()) {
        return Err(Error::invalid(format!("`{}` has no argument `{name}`", schema.name)));
    }
    if args.len() > schema.params.len() {
        return Err(Error::invalid(format!("too many arguments for `{}`", schema.name))
            .expected(schema.params.len())
            .got(args.len()));
    }
    let mut given = args.into_iter();
    let bound = schema.params.iter().map(|param| {
        let by_name = named.iter().find(|(name, _)| *name == param.name).map(|(_, arg)| arg.clone());
        let arg = given.next().or(by_name);
        match (arg, &param.default) {
            (Some(arg), _) => Ok(arg),
            (None, Some(default)) => Ok(default_arg(default, &param.kind)),
            // Generators and the like, which exported programs leave out.
            (None, None) if matches!(param.kind, Kind::Optional(_)) => Ok(Arg::None),
            (None, None) => Err(Error::invalid(format!("`{}` needs the argument `{}`", schema.name, param.name))),
        }
    });
    bound.collect()
}

fn default_arg(default: &Default, kind: &Kind) -> Arg {
    match default {
        Default::None => Arg::None,
        // A number stands for a list of that many.
        Default::Int(value) => match kind {
            Kind::List(_, length) => Arg::List(vec![Arg::from(*value); length.unwrap_or(1) as usize]),
            Kind::Optional(inner) => default_arg(default, inner),
            Kind::DType => {
                let dtype = u8::try_from(*value).ok().and_then(ScalarType::from_code);
                dtype.map_or(Arg::from(*value), Arg::DType)
            }
            _ => Arg::from(*value),
        },
        Default::Float(value) => Arg::Float(*value),
        Default::Bool(value) => Arg::Bool(*value),
        Default::Str(text) => Arg::Str(text.clone()),
        Default::Ints(items) => Arg::from(items.as_slice()),
        Default::Bools(items) => Arg::List(items.iter().map(|item| Arg::Bool(*item)).collect()),
        Default::Contiguous => Arg::MemoryFormat(MemoryFormat::Contiguous),
    }
}

impl Model {
    /// Offers every node of every method to `visit`, in the order in which they run, and carries out what it decides. A
    /// node's arguments are already replaced when it is visited. Nodes that `visit` adds through the builder come before
    /// the visited one and are not visited themselves. Returns whether anything changed.
    pub fn rewrite(
        &mut self,
        mut visit: impl FnMut(&mut Builder<'_>, NodeId) -> Result<Action, Error>,
    ) -> Result<bool, Error> {
        let Self { methods, constants, schemas, .. } = self;
        let mut changed = false;
        for (name, graph) in methods {
            changed |= rewrite_graph(graph, constants, schemas, &mut visit)
                .map_err(|error| error.at(format!("method `{name}`")))?;
        }
        Ok(changed)
    }

    /// A builder for a method; `None` if there is none of that name.
    pub fn builder(&mut self, method: &str, block: BlockId, origin: OriginId) -> Option<Builder<'_>> {
        let graph = self.methods.get_mut(method)?;
        Some(Builder::new(graph, &mut self.constants, &self.schemas, block, origin))
    }

    /// Adds an empty method, replacing one of that name.
    pub fn add_method(&mut self, name: &str, graph: Graph) -> &mut Graph {
        let methods: &mut IndexMap<String, Graph> = &mut self.methods;
        let (index, _) = methods.insert_full(name.into(), graph);
        &mut methods[index]
    }
}

fn rewrite_graph(
    graph: &mut Graph,
    constants: &mut Arena<Constant>,
    schemas: &Arc<Schemas>,
    visit: &mut impl FnMut(&mut Builder<'_>, NodeId) -> Result<Action, Error>,
) -> Result<bool, Error> {
    let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut changed = false;
    // Blocks are visited after the nodes around them, whose results they use.
    for block in graph.live_blocks() {
        for node in std::mem::take(&mut graph.blocks[block].nodes) {
            substitute(&mut graph.nodes[node].args, &replaced);
            let origin = graph.nodes[node].origin;
            let action = visit(&mut Builder::new(graph, constants, schemas, block, origin), node)
                .map_err(|error| graph.locate(error, node))?;
            changed |= action != Action::Keep;
            match action {
                Action::Keep => graph.blocks[block].nodes.push(node),
                Action::Remove => {}
                Action::Replace(values) => {
                    stand_in(graph, node, &values).map_err(|error| graph.locate(error, node))?;
                    replaced.extend(graph.nodes[node].results.iter().copied().zip(values));
                }
            }
        }
    }
    if !replaced.is_empty() {
        substitute_results(graph, &replaced);
    }
    Ok(changed)
}

impl Graph {
    /// Lets other values stand in for some everywhere.
    pub fn replace_uses(&mut self, replaced: &FxHashMap<ValueId, ValueId>) {
        for block in self.live_blocks() {
            for node in &self.blocks[block].nodes {
                substitute(&mut self.nodes[*node].args, replaced);
            }
        }
        substitute_results(self, replaced);
    }
}

/// Replaces values in what blocks and the method give.
fn substitute_results(graph: &mut Graph, replaced: &FxHashMap<ValueId, ValueId>) {
    for block in graph.live_blocks() {
        substitute(&mut graph.blocks[block].results, replaced);
    }
    substitute_outputs(graph, replaced);
}

/// Replaces values in what the method gives.
pub fn substitute_outputs<S: BuildHasher>(graph: &mut Graph, replaced: &HashMap<ValueId, ValueId, S>) {
    substitute(&mut graph.outputs, replaced);
    for update in &mut graph.updates {
        update.value = replaced.get(&update.value).copied().unwrap_or(update.value);
    }
}

/// Replaces values in arguments.
pub fn substitute<S: BuildHasher>(args: &mut [Arg], replaced: &HashMap<ValueId, ValueId, S>) {
    for arg in args {
        arg.map_values(&mut |value| replaced.get(&value).copied().unwrap_or(value));
    }
}

/// Checks that `values` can take the place of a node's results, and gives new ones their names.
fn stand_in(graph: &mut Graph, node: NodeId, values: &[ValueId]) -> Result<(), Error> {
    let results = graph.nodes[node].results.clone();
    if results.len() != values.len() {
        return Err(Error::new(ErrorKind::Verification, "a rewrite gave the wrong number of results")
            .expected(results.len())
            .got(values.len()));
    }
    for (old, new) in results.into_iter().zip(values.iter().copied()) {
        let (from, to) = (graph.ty(old), graph.ty(new));
        if !compatible(from, to) {
            let (from, to) = (from.display(&graph.symbols).to_string(), to.display(&graph.symbols).to_string());
            return Err(Error::new(ErrorKind::Verification, "a rewrite changed the type of a result")
                .expected(from)
                .got(to));
        }
        let name = graph.values[old].name.clone();
        if let super::Def::Result(..) = graph.values[new].def
            && graph.values[new].name.ends_with(&format!("_{}", new.index()))
        {
            graph.values[new].name = name;
        }
    }
    Ok(())
}

/// Whether values of these types can stand for each other: sizes that depend on symbols may be written differently.
fn compatible(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            let same = |(x, y): (&super::Expr, &super::Expr)| !x.is_static() || !y.is_static() || x == y;
            a.dtype == b.dtype && a.rank() == b.rank() && a.shape.iter().zip(&b.shape).all(same)
        }
        (Type::Int(_), Type::Int(_)) | (Type::Float, Type::Float) | (Type::Bool, Type::Bool) => true,
        _ => false,
    }
}
