//! Reading the text form.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Bytes;
use crate::Error;
use crate::types::dtype_named;
use crate::{
    Arg, Block, BlockId, Constant, ConstantData, ConstantId, Delegate, Expr, Granularity, Graph, Input, Layout,
    Literal, MemoryFormat, Model, Op, Origin, OriginId, Quantization, Schema, SourceFrame, State, StateId, Symbol,
    Target, TensorType, Type, Update, ValueId, bind,
};

use super::cursor::Cursor;
use super::{Contents, content, schema};

/// Maximum nesting depth, far above that of real models.
const MAX_DEPTH: u32 = 64;
/// Maximum number of terms of one sum or product.
const MAX_OPERANDS: usize = 1024;
/// Maximum length of a line that describes an operator.
const MAX_SCHEMA: usize = 1 << 14;

pub(super) fn parse(text: &str, contents: &Contents) -> Result<Model, Error> {
    let mut parser = Parser {
        cursor: Cursor::new(text),
        contents,
        model: Model::default(),
        constants: HashMap::new(),
        states: HashMap::new(),
        depth: 0,
    };
    while parser.cursor.peek().is_some() {
        parser.item()?;
    }
    Ok(parser.model)
}

struct Parser<'t> {
    cursor: Cursor<'t>,
    contents: &'t Contents,
    model: Model,
    constants: HashMap<&'t str, ConstantId>,
    states: HashMap<&'t str, StateId>,
    depth: u32,
}

impl<'t> Parser<'t> {
    fn item(&mut self) -> Result<(), Error> {
        let before = self.cursor.clone();
        if self.cursor.eat_word("operator") {
            let before = self.cursor.clone();
            let line = self.cursor.quoted()?;
            let schema = if line.len() <= MAX_SCHEMA { Schema::parse(&line).ok() } else { None };
            // A schema in another style is accepted only if it is read without loss.
            let is_whole =
                |read: &Schema| Schema::parse(&schema::Line(read).to_string()).is_ok_and(|again| again == *read);
            let schema = schema.filter(is_whole).ok_or_else(|| before.error("an operator's schema"))?;
            self.model.schemas.add(schema);
        } else if self.cursor.eat_word("constant") {
            self.cursor.expect("@")?;
            let (key, constant) = self.held()?;
            let id = self.model.constants.push(constant);
            if self.constants.insert(key, id).is_some() {
                return Err(before.error("a new name"));
            }
        } else if self.cursor.eat_word("state") {
            self.cursor.expect("$")?;
            let (key, Constant { name, ty, data }) = self.held()?;
            let id = self.model.states.push(State { name, ty, initial: data });
            if self.states.insert(key, id).is_some() {
                return Err(before.error("a new name"));
            }
        } else if self.cursor.eat_word("delegate") {
            self.delegate()?;
        } else if self.cursor.eat_word("data") {
            let key = self.cursor.quoted()?;
            let bytes = self.bytes()?;
            self.model.named_data.push((key, bytes.into()));
        } else if self.cursor.eat_word("constant_method") {
            let name = self.cursor.quoted()?;
            self.cursor.expect("=")?;
            let values = self.list("[", "]", Self::literal)?;
            self.model.constant_methods.insert(name, values);
        } else if self.cursor.eat_word("method") {
            let name = if self.cursor.peek() == Some('"') { self.cursor.quoted()? } else { self.cursor.word()?.into() };
            let graph = MethodParser::new(self).read()?;
            self.model.add_method(&name, graph);
        } else {
            return Err(self.cursor.error("`constant`, `state`, `method` or another item"));
        }
        Ok(())
    }

    /// Parses a name, a type and content.
    fn held(&mut self) -> Result<(&'t str, Constant), Error> {
        let before = self.cursor.clone();
        let (key, name) = self.cursor.name()?;
        self.cursor.expect(":")?;
        let Type::Tensor(ty) = self.ty(&HashMap::new())? else {
            return Err(before.error("the type of a tensor"));
        };
        self.cursor.expect("=")?;
        let mut constant = Constant { name, ty, data: ConstantData::Zeros };
        let before = self.cursor.clone();
        constant.data = match self.cursor.peek() {
            Some('z') if self.cursor.eat_word("zeros") => ConstantData::Zeros,
            Some('[') => {
                let dtype = constant.ty.dtype;
                let elements = self.list("[", "]", |parser| {
                    let before = parser.cursor.clone();
                    let sign = if parser.cursor.eat("-inf") { Some("-inf") } else { None };
                    let text = match (sign, parser.cursor.peek()) {
                        (Some(text), _) => text,
                        (None, Some(c)) if c.is_ascii_alphabetic() => parser.cursor.word()?,
                        (None, _) => parser.cursor.number()?,
                    };
                    content::element_bytes(text, dtype).ok_or_else(|| before.error("an element of the dtype"))
                })?;
                ConstantData::Dense(elements.concat().into())
            }
            Some('c') if self.cursor.eat_word("content") => self.content()?,
            _ => ConstantData::Dense(self.hex()?.into()),
        };
        let fits = match &constant.data {
            ConstantData::Dense(bytes) => constant.len().is_ok_and(|len| len == bytes.len()),
            ConstantData::Strided { strides, .. } => constant.len().is_ok() && strides.len() == constant.ty.rank(),
            ConstantData::Zeros | ConstantData::Computed(_) => constant.len().is_ok(),
        };
        if fits { Ok((key, constant)) } else { Err(before.error("content of the type's size")) }
    }

    fn delegate(&mut self) -> Result<(), Error> {
        let before = self.cursor.clone();
        let index: usize = self.cursor.int()?;
        if index != self.model.delegates.len() {
            return Err(before.error(format!("{}", self.model.delegates.len())));
        }
        let backend = self.cursor.quoted()?;
        let payload = self.bytes()?;
        self.cursor.expect("specs")?;
        let compile_specs = self.list("[", "]", |parser| Ok((parser.cursor.quoted()?, parser.hex()?)))?;
        self.model.delegates.push(Delegate { backend, payload, compile_specs, refusal: None, nodes: Vec::new() });
        Ok(())
    }

    /// Parses data after `=`.
    fn bytes(&mut self) -> Result<Bytes, Error> {
        self.cursor.expect("=")?;
        let before = self.cursor.clone();
        if !self.cursor.eat_word("content") {
            return Ok(self.hex()?.into());
        }
        content::bytes_of(&self.content()?).ok_or_else(|| before.error("content that is bytes"))
    }

    /// Parses a hash and finds its content.
    fn content(&mut self) -> Result<ConstantData, Error> {
        self.cursor.skip();
        let before = self.cursor.clone();
        let hash = u64::from_str_radix(self.cursor.word()?, 16).ok();
        let known = hash.and_then(|hash| self.contents.get(hash)).cloned();
        known.ok_or_else(|| before.error("the hash of content that is given"))
    }

    fn hex(&mut self) -> Result<Vec<u8>, Error> {
        self.cursor.skip();
        let before = self.cursor.clone();
        if !self.cursor.eat_word("x") {
            return Err(before.error("`x\"…\"`"));
        }
        content::from_hex(&self.cursor.quoted()?).ok_or_else(|| before.error("pairs of hexadecimal digits"))
    }

    fn literal(&mut self) -> Result<Literal, Error> {
        if self.cursor.eat("@") {
            return self.constant().map(Literal::Tensor);
        }
        let before = self.cursor.clone();
        Ok(match self.arg(&mut None)? {
            Arg::None => Literal::None,
            Arg::Int(Expr::Int(value)) => Literal::Int(value),
            Arg::Float(value) => Literal::Float(value),
            Arg::Bool(value) => Literal::Bool(value),
            Arg::Str(text) => Literal::Str(text),
            _ => return Err(before.error("a value")),
        })
    }

    fn constant(&mut self) -> Result<ConstantId, Error> {
        let before = self.cursor.clone();
        let (key, _) = self.cursor.name()?;
        self.constants.get(key).copied().ok_or_else(|| before.error("the name of a constant"))
    }

    /// Parses a list in brackets, separated by commas.
    fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.cursor.expect(open)?;
        self.nested(|parser| {
            let mut items = Vec::new();
            while !parser.cursor.eat(close) {
                if !items.is_empty() {
                    parser.cursor.expect(",")?;
                }
                items.push(item(parser)?);
            }
            Ok(items)
        })
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(self.cursor.error("less nesting"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn ty(&mut self, symbols: &HashMap<String, Expr>) -> Result<Type, Error> {
        self.cursor.skip();
        let before = self.cursor.clone();
        let word = self.cursor.word()?;
        if self.cursor.peek() != Some('[') {
            return match word {
                "float" => Ok(Type::Float),
                "bool" => Ok(Type::Bool),
                "int" => self.expr(symbols).map(Type::Int),
                _ => Err(before.error("a type")),
            };
        }
        let dtype = dtype_named(word).ok_or_else(|| before.error("a dtype"))?;
        let shape = self.list("[", "]", |parser| parser.expr(symbols))?;
        let mut ty = TensorType::new(dtype, shape);
        if self.cursor.eat_word("order") {
            let before = self.cursor.clone();
            let order = self.list("[", "]", |parser| parser.cursor.int::<u8>())?;
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if sorted != ty.dim_order {
                return Err(before.error("each dimension once"));
            }
            ty.dim_order = order;
        }
        if self.cursor.eat_word("q") {
            ty.quantization = Some(Arc::new(self.quantization()?));
        }
        Ok(Type::Tensor(ty))
    }

    fn quantization(&mut self) -> Result<Quantization, Error> {
        self.cursor.expect("(")?;
        let granularity = if self.cursor.eat_word("tensor") {
            Granularity::Tensor
        } else if self.cursor.eat_word("channel") {
            Granularity::Channel { axis: self.cursor.int()? }
        } else {
            self.cursor.expect("block")?;
            Granularity::Block { shape: self.list("[", "]", |parser| parser.cursor.int())? }
        };
        self.cursor.expect(",")?;
        let scales = self.list("[", "]", |parser| {
            let before = parser.cursor.clone();
            let text = if parser.cursor.eat("-inf") {
                "-inf"
            } else if parser.cursor.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
                parser.cursor.word()?
            } else {
                parser.cursor.number()?
            };
            text.parse().map_err(|_| before.error("a scale"))
        })?;
        self.cursor.expect(",")?;
        let zero_points = self.list("[", "]", |parser| parser.cursor.int())?;
        self.cursor.expect(",")?;
        let low = self.cursor.int()?;
        self.cursor.expect("..=")?;
        let range = (low, self.cursor.int()?);
        self.cursor.expect(")")?;
        Ok(Quantization { granularity, scales: scales.into(), zero_points: zero_points.into(), range })
    }

    /// Parses an integer, a symbol, or an expression of them.
    fn expr(&mut self, symbols: &HashMap<String, Expr>) -> Result<Expr, Error> {
        let before = self.cursor.clone();
        match self.cursor.peek() {
            Some('(') => {
                self.cursor.expect("(")?;
                self.nested(|parser| parser.operation(symbols))
            }
            Some('-' | '0'..='9') => self.cursor.int().map(Expr::Int),
            _ => {
                let word = self.cursor.word()?;
                let combine: Option<fn(&Expr, Expr) -> Expr> = match word {
                    "max" => Some(Expr::at_least),
                    "min" => Some(Expr::at_most),
                    _ => None,
                };
                let Some(combine) = combine else {
                    return symbols.get(word).cloned().ok_or_else(|| before.error("a symbol of the method"));
                };
                let mut args = self.list("(", ")", |parser| parser.expr(symbols))?.into_iter();
                let first = args.next().ok_or_else(|| before.error("arguments"))?;
                Ok(args.fold(first, |a, b| combine(&a, b)))
            }
        }
    }

    /// Parses the inside of parentheses: operands with one operator between them.
    fn operation(&mut self, symbols: &HashMap<String, Expr>) -> Result<Expr, Error> {
        let mut operands = vec![self.expr(symbols)?];
        let operators = ["+", "*", "//", "%"];
        let mut operator = None;
        while !self.cursor.eat(")") {
            let before = self.cursor.clone();
            let next = operators.into_iter().find(|operator| self.cursor.eat(operator));
            let fits = next.is_some() && operator.is_none_or(|operator| next == Some(operator));
            if !fits || operands.len() >= MAX_OPERANDS {
                return Err(before.error("`)` or the operator of the other operands"));
            }
            operator = next;
            operands.push(self.expr(symbols)?);
        }
        let mut operands = operands.into_iter();
        let first = operands.next().unwrap_or(Expr::Int(0));
        Ok(operands.fold(first, |a, b| match operator {
            Some("+") => a.add(b),
            Some("*") => a.mul(b),
            Some("//") => a.floor_div(b),
            _ => a.modulo(b),
        }))
    }

    /// Parses a number that is not an integer expression: `1.5`, `-inf`, `nan("7ff8000000000001")`.
    fn float(&mut self) -> Result<f64, Error> {
        let before = self.cursor.clone();
        if self.cursor.eat_word("nan") {
            if !self.cursor.eat("(") {
                return Ok(f64::NAN);
            }
            let bits =
                u64::from_str_radix(&self.cursor.quoted()?, 16).map_err(|_| before.error("the bits of a NaN"))?;
            self.cursor.expect(")")?;
            return Ok(f64::from_bits(bits));
        }
        if self.cursor.eat_word("inf") {
            return Ok(f64::INFINITY);
        }
        if self.cursor.eat("-inf") {
            return Ok(f64::NEG_INFINITY);
        }
        self.cursor.number()?.parse().map_err(|_| before.error("a number"))
    }

    /// Parses an argument; `scope` is the method that it belongs to, if any.
    fn arg(&mut self, scope: &mut Option<Scope<'_, 't>>) -> Result<Arg, Error> {
        let Some(next) = self.cursor.peek() else { return Err(self.cursor.error("an argument")) };
        match (next, scope) {
            ('%' | '@' | '$', Some(scope)) => scope.value(self).map(Arg::Value),
            ('[', scope) => self.list("[", "]", |parser| parser.arg(scope)).map(Arg::List),
            ('"', _) => self.cursor.quoted().map(Arg::Str),
            ('{', Some(scope)) => self.nested(|parser| scope.block(parser)).map(Arg::Block),
            ('(', Some(scope)) if self.begins_block() => self.nested(|parser| scope.block(parser)).map(Arg::Block),
            ('-' | '0'..='9', _) => self.number(),
            ('(', Some(scope)) => self.expr(scope.symbols).map(Arg::Int),
            (_, scope) => self.word_arg(scope),
        }
    }

    fn begins_block(&self) -> bool {
        let mut ahead = self.cursor.clone();
        ahead.eat("(") && ahead.peek() == Some('%')
    }

    fn number(&mut self) -> Result<Arg, Error> {
        let mut ahead = self.cursor.clone();
        let is_float = ahead.eat("-inf") || ahead.number()?.contains(['.', 'e']);
        if is_float { self.float().map(Arg::Float) } else { self.cursor.int().map(|int| Arg::Int(Expr::Int(int))) }
    }

    fn word_arg(&mut self, scope: &mut Option<Scope<'_, 't>>) -> Result<Arg, Error> {
        let before = self.cursor.clone();
        let word = self.cursor.word()?;
        Ok(match word {
            "none" => Arg::None,
            "true" => Arg::Bool(true),
            "false" => Arg::Bool(false),
            "strided" => Arg::Layout(Layout::Strided),
            "sparse" => Arg::Layout(Layout::Sparse),
            "contiguous_format" => Arg::MemoryFormat(MemoryFormat::Contiguous),
            "preserve_format" => Arg::MemoryFormat(MemoryFormat::Preserve),
            "channels_last" => Arg::MemoryFormat(MemoryFormat::ChannelsLast),
            "channels_last_3d" => Arg::MemoryFormat(MemoryFormat::ChannelsLast3d),
            "device" => {
                self.cursor.expect("(")?;
                let name = self.cursor.quoted()?;
                self.cursor.expect(")")?;
                Arg::Device(name)
            }
            "complex" => {
                self.cursor.expect("(")?;
                let re = self.float()?;
                self.cursor.expect(",")?;
                let im = self.float()?;
                self.cursor.expect(")")?;
                Arg::Complex(re, im)
            }
            "inf" | "nan" => {
                self.cursor = before;
                Arg::Float(self.float()?)
            }
            _ => match (dtype_named(word), scope) {
                (Some(dtype), _) => Arg::DType(dtype),
                (None, Some(scope)) => {
                    self.cursor = before;
                    Arg::Int(self.expr(scope.symbols)?)
                }
                (None, None) => return Err(before.error("a value")),
            },
        })
    }
}

/// Names that arguments refer to.
struct Scope<'s, 't> {
    graph: &'s mut Graph,
    symbols: &'s HashMap<String, Expr>,
    values: &'s mut HashMap<&'t str, ValueId>,
    /// Nodes with the numbers of their origins.
    origins: &'s mut Vec<(crate::NodeId, Option<u32>)>,
}

impl<'t> Scope<'_, 't> {
    fn reborrow(&mut self) -> Option<Scope<'_, 't>> {
        Some(Scope { graph: self.graph, symbols: self.symbols, values: self.values, origins: self.origins })
    }

    fn value(&mut self, parser: &mut Parser<'t>) -> Result<ValueId, Error> {
        if parser.cursor.eat("@") {
            let id = parser.constant()?;
            return Ok(self.graph.constant(id, &parser.model.constants));
        }
        if parser.cursor.eat("$") {
            let before = parser.cursor.clone();
            let (key, _) = parser.cursor.name()?;
            let id = parser.states.get(key).copied().ok_or_else(|| before.error("the name of a state"))?;
            return Ok(self.graph.state(id, &parser.model.states));
        }
        parser.cursor.expect("%")?;
        let before = parser.cursor.clone();
        let (key, _) = parser.cursor.name()?;
        self.values.get(key).copied().ok_or_else(|| before.error("the name of a value that is defined before"))
    }

    /// Parses the name of a new value.
    fn new_name(&self, parser: &mut Parser<'t>) -> Result<(&'t str, String), Error> {
        parser.cursor.expect("%")?;
        let before = parser.cursor.clone();
        let (key, name) = parser.cursor.name()?;
        if self.values.contains_key(key) { Err(before.error("a new name")) } else { Ok((key, name)) }
    }

    /// Parses a block with its parameters, nodes and results.
    fn block(&mut self, parser: &mut Parser<'t>) -> Result<BlockId, Error> {
        let block = self.graph.blocks.push(Block::default());
        if parser.cursor.peek() == Some('(') {
            parser.list("(", ")", |parser| {
                let (key, name) = self.new_name(parser)?;
                parser.cursor.expect(":")?;
                let ty = parser.ty(self.symbols)?;
                self.values.insert(key, self.graph.param(block, &name, ty));
                Ok(())
            })?;
        }
        parser.cursor.expect("{")?;
        self.nodes(parser, block, "yield")?;
        let results = self.args_until(parser, "}")?;
        self.graph.blocks[block].results = results;
        Ok(block)
    }

    /// Parses arguments separated by commas up to `end`, which is not consumed. The list may be empty.
    fn args_until(&mut self, parser: &mut Parser<'t>, end: &str) -> Result<Vec<Arg>, Error> {
        let mut args = Vec::new();
        while !parser.cursor.eat(end) {
            if !args.is_empty() {
                parser.cursor.expect(",")?;
            }
            args.push(parser.arg(&mut self.reborrow())?);
        }
        Ok(args)
    }

    fn nodes(&mut self, parser: &mut Parser<'t>, block: BlockId, end: &str) -> Result<(), Error> {
        while !parser.cursor.eat_word(end) {
            self.node(parser, block)?;
        }
        Ok(())
    }

    fn node(&mut self, parser: &mut Parser<'t>, block: BlockId) -> Result<(), Error> {
        let mut names: Vec<(&'t str, String)> = Vec::new();
        if parser.cursor.peek() == Some('%') {
            names.push(self.new_name(parser)?);
            while parser.cursor.eat(",") {
                let before = parser.cursor.clone();
                let name = self.new_name(parser)?;
                if names.iter().any(|(known, _)| *known == name.0) {
                    return Err(before.error("a new name"));
                }
                names.push(name);
            }
            parser.cursor.expect("=")?;
        }
        parser.cursor.skip();
        let before = parser.cursor.clone();
        let operator = parser.cursor.operator()?;
        let op = match operator.as_str() {
            "cond" => Op::Cond,
            "while_loop" => Op::While,
            "scan" => Op::Scan,
            "delegate" => {
                let index: usize = parser.cursor.int()?;
                let id = parser.model.delegates.ids().nth(index);
                Op::Delegate(id.ok_or_else(|| before.error("a delegate that is given"))?)
            }
            name => Op::Call(parser.model.schemas.get(name).ok_or_else(|| before.error("an operator"))?),
        };
        let args = parser.list("(", ")", |parser| parser.arg(&mut self.reborrow()))?;
        let args = match &op {
            Op::Call(schema) => bind(schema, args, &[]).map_err(|error| before.error(error.message()))?,
            _ => args,
        };
        let mut types = Vec::new();
        if !names.is_empty() {
            parser.cursor.expect(":")?;
            types.push(parser.ty(self.symbols)?);
            while types.len() < names.len() {
                parser.cursor.expect(",")?;
                types.push(parser.ty(self.symbols)?);
            }
        }
        let results = names.iter().map(|(_, name)| name.clone()).zip(types);
        let node = self.graph.push_node(block, op, args, OriginId::new(0), results);
        let results = &self.graph.nodes[node].results;
        self.values.extend(names.iter().map(|(key, _)| *key).zip(results.iter().copied()));
        self.origins.push((node, parser.cursor.origin()));
        Ok(())
    }
}

/// The parser of one method.
struct MethodParser<'p, 't> {
    parser: &'p mut Parser<'t>,
    graph: Graph,
    symbols: HashMap<String, Expr>,
    values: HashMap<&'t str, ValueId>,
    origins: Vec<(crate::NodeId, Option<u32>)>,
}

impl<'p, 't> MethodParser<'p, 't> {
    fn new(parser: &'p mut Parser<'t>) -> Self {
        let (symbols, values) = (HashMap::new(), HashMap::new());
        Self { parser, graph: Graph::new(), symbols, values, origins: Vec::new() }
    }

    fn read(mut self) -> Result<Graph, Error> {
        self.parser.cursor.expect("{")?;
        loop {
            if self.parser.cursor.eat_word("symbol") {
                self.symbol()?;
            } else if self.parser.cursor.eat_word("encoding") {
                let is_input = self.parser.cursor.eat_word("inputs");
                if !is_input {
                    self.parser.cursor.expect("outputs")?;
                }
                let text = self.parser.cursor.quoted()?;
                let slot = if is_input { &mut self.graph.input_encoding } else { &mut self.graph.output_encoding };
                *slot = text;
            } else if self.parser.cursor.eat_word("input") {
                self.input()?;
            } else {
                break;
            }
        }
        let Self { parser, mut graph, symbols, mut values, mut origins } = self;
        let body = graph.body;
        let (symbols, values, origins) = (&symbols, &mut values, &mut origins);
        let mut scope = Scope { graph: &mut graph, symbols, values, origins };
        scope.nodes(parser, body, "return")?;
        let mut outputs = Vec::new();
        while !ends_outputs(&parser.cursor) {
            if !outputs.is_empty() {
                parser.cursor.expect(",")?;
            }
            outputs.push(parser.arg(&mut scope.reborrow())?);
        }
        let mut updates = Vec::new();
        while parser.cursor.eat_word("update") {
            let target = if parser.cursor.eat_word("input") {
                Target::Input(parser.cursor.int()?)
            } else {
                parser.cursor.expect("$")?;
                let before = parser.cursor.clone();
                let (key, _) = parser.cursor.name()?;
                let state = parser.states.get(key).copied();
                Target::State(state.ok_or_else(|| before.error("the name of a state"))?)
            };
            parser.cursor.expect("=")?;
            let value = scope.value(parser)?;
            updates.push(Update { target, value });
        }
        (graph.outputs, graph.updates) = (outputs, updates);
        while parser.cursor.eat_word("origin") {
            let origin = origin(parser, graph.origins.len())?;
            graph.origins.push(origin);
        }
        assign_origins(&mut graph, origins, &parser.cursor)?;
        parser.cursor.expect("}")?;
        Ok(graph)
    }

    fn symbol(&mut self) -> Result<(), Error> {
        let cursor = &mut self.parser.cursor;
        let before = cursor.clone();
        let plain = cursor.word()?;
        let name = if cursor.peek() == Some('"') { cursor.quoted()? } else { plain.to_owned() };
        cursor.expect("in")?;
        let min = cursor.int()?;
        cursor.expect("..")?;
        let max = if cursor.eat("=") { Some(cursor.int()?) } else { None };
        let id = self.graph.symbols.push(Symbol { name, min, max });
        match self.symbols.insert(plain.to_owned(), id.into()) {
            None => Ok(()),
            Some(_) => Err(before.error("a new symbol")),
        }
    }

    fn input(&mut self) -> Result<(), Error> {
        if self.parser.cursor.eat_word("literal") {
            let literal = self.parser.arg(&mut None)?;
            self.graph.inputs.push(Input::Literal(literal));
            return Ok(());
        }
        self.parser.cursor.expect("%")?;
        let before = self.parser.cursor.clone();
        let (key, name) = self.parser.cursor.name()?;
        self.parser.cursor.expect(":")?;
        let ty = self.parser.ty(&self.symbols)?;
        let value = self.graph.input(&name, ty);
        if self.values.insert(key, value).is_some() {
            return Err(before.error("a new name"));
        }
        Ok(())
    }
}

fn ends_outputs(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    ahead.eat("}") || ahead.eat_word("update") || ahead.eat_word("origin")
}

/// Parses an origin with its frames.
fn origin(parser: &mut Parser<'_>, expected: usize) -> Result<Origin, Error> {
    let cursor = &mut parser.cursor;
    let before = cursor.clone();
    if cursor.int::<usize>()? != expected {
        return Err(before.error(expected));
    }
    let (node, module) = (cursor.quoted()?, cursor.quoted()?);
    let mut frames = Vec::new();
    while cursor.eat_word("frame") {
        let (file, line) = (cursor.quoted()?, cursor.int()?);
        frames.push(SourceFrame { file, line, function: cursor.quoted()?, code: cursor.quoted()? });
    }
    Ok(Origin { node, module, frames: frames.into(), metadata: None })
}

/// Assigns origins to nodes. Nodes without a number get an empty origin.
fn assign_origins(
    graph: &mut Graph,
    origins: &[(crate::NodeId, Option<u32>)],
    cursor: &Cursor<'_>,
) -> Result<(), Error> {
    let listed = graph.origins.len();
    let mut unknown = None;
    for (node, number) in origins {
        let origin = match number {
            Some(number) if (*number as usize) < listed => OriginId::new(*number),
            Some(number) => return Err(cursor.error(format!("`origin {number}`, which a node refers to"))),
            None => *unknown.get_or_insert_with(|| graph.origins.push(Origin::default())),
        };
        graph.nodes[*node].origin = origin;
    }
    Ok(())
}
