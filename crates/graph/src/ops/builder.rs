//! Adding nodes to graphs. Operators are lowered with a builder, and a builder infers the types of the operators that it
//! adds.

use std::sync::Arc;

use rushlight_format::ScalarType;

use crate::schema::Default;
use crate::{
    Arena, Arg, BlockId, Constant, Error, ErrorKind, Graph, Kind, MemoryFormat, Op, OriginId, Schema, Schemas,
    TensorType, Type, ValueId,
};

use super::{Operands, infer, number_bytes};

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

    /// Schemas of the operators.
    pub fn schemas(&self) -> &Arc<Schemas> {
        self.schemas
    }

    /// Calls an operator and returns its results. `args` are its first arguments in order; the others have their defaults.
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
        let types = infer(&Operands::new(&schema, &args), self.graph)?;
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
        let bytes = number_bytes(value, dtype)?;
        Ok(self.constant(Constant::dense("scalar", TensorType::new(dtype, Vec::new()), bytes)?))
    }

    /// A tensor without dimensions that holds a complex number.
    pub fn complex(&mut self, real: f64, imaginary: f64, dtype: ScalarType) -> Result<ValueId, Error> {
        let part = match dtype {
            ScalarType::ComplexHalf => ScalarType::Half,
            ScalarType::ComplexDouble => ScalarType::Double,
            _ => ScalarType::Float,
        };
        let bytes = [number_bytes(real, part)?, number_bytes(imaginary, part)?].concat();
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
