//! Written text reads back as the same model, and no text can do harm.

use std::sync::Arc;

use rushlight_format::ScalarType;

use super::*;
use crate::ErrorKind;
use crate::operators::aten;
use crate::{
    Arg, Block, BlockId, Constant, Delegate, Expr, Granularity, Graph, Input, Layout, Literal, MemoryFormat, Op,
    Origin, OriginId, Quantization, Schema, SourceFrame, State, Symbol, Target, TensorType, Type, Update, ValueId,
};

const SAMPLE: &str = r#"constant @scale : f32[] = [0.5]
constant @"odd name" : i64[2] = [-1, 7]
state $cache : f32[s, 8] = zeros
"#;

/// The model of the module's documentation, and more.
const MODEL: &str = r#"constant @scale : f32[] = [0.5]
constant @"odd name" : i64[2] = [-1, 7]
constant @"odd name"~1 : bool[2] = [true, false]
state $cache : f32[16, 8] = zeros
delegate 0 "Xnn\"pack" = x"00ff" specs ["key" x"01"]
data "blob" = x""
constant_method "limits" = [none, 3, 1.5, true, "text\n", @scale]

method "forward" {
  symbol s77 in 2..=64
  symbol sym1 "f32" in 0..
  encoding inputs "[1]"
  input %x : f32[s77, 3, 8, 8] order [0, 2, 3, 1]
  input literal [1, 2.5]
  input %"n m" : int (1 + (2*s77))
  %add, %add~1 = delegate 0(%x, %"n m") : f32[(s77//2), sym1], u8[3] q(channel 0, [0.1, 2.0, 1e-5], [0, 1, -2], -128..=127)  # 0: block.0  model.py:41
  %y = cond(true, {
    %relu = aten::relu(%add) : f32[(s77//2), sym1]  # 1:
    yield %relu
  }, {
    yield %add
  }) : f32[(s77//2), sym1]  # 1:
  %z = while_loop((%a : f32[2]) {
    yield false
  }, (%b : f32[2]) {
    yield %b
  }, [@scale]) : f32[]  # 1:
  aten::_assert_async(%y)  # 1:
  %full = aten::full([(s77%3), max(4, s77)], nan, f32, strided, device("cpu:0"), none) : f32[(s77%3), max(4, s77)]  # 1:
  return %y, [%add~1, 3], -inf, @"odd name", @"odd name"~1
  update $cache = %z
  update input 0 = %x
  origin 0 "add" "block.0"
    frame "/src/model.py" 41 "forward" "self.\"conv\"(x)"
  origin 1 "" ""
}
"#;

#[test]
fn a_text_reads_back_as_it_is() {
    let model = Model::parse(MODEL, &Contents::default()).unwrap();
    let (text, contents) = model.to_text(Detail::Exact).unwrap();
    assert_eq!(text, MODEL);
    assert!(contents.is_empty());
    let graph = &model.methods["forward"];
    assert_eq!(graph.values.iter().filter(|(_, value)| value.name == "add").count(), 2);
    assert_eq!(graph.symbols.iter().map(|(_, symbol)| symbol.name.as_str()).collect::<Vec<_>>(), ["s77", "f32"]);
    let origin = &graph.origins[graph.nodes[graph.blocks[graph.body].nodes[0]].origin];
    assert_eq!(origin.frames[0].code, "self.\"conv\"(x)");
    let (review, _) = model.to_text(Detail::Review).unwrap();
    assert!(review.contains("-2], -128..=127)  # block.0  model.py:41\n"), "{review}");
    assert!(!review.contains("origin"), "{review}");
}

#[test]
fn defaults_need_not_be_written() {
    let text = "method m { input %x : f32[2] %y = aten::add.Tensor(%x, 1) : f32[2] return %y }";
    let model = Model::parse(text, &Contents::default()).unwrap();
    model.verify().unwrap();
    assert!(model.to_text(Detail::Review).unwrap().0.contains("aten::add.Tensor(%x, 1, 1)"));
}

#[test]
fn errors_say_where() {
    let cases = [
        (SAMPLE, "line 3, column 20", "a symbol"),
        ("method m {\n  return %x\n}", "line 2, column 11", "the name of a value"),
        ("method m {\n  aten::relux()\n  return }", "line 2, column 3", "an operator"),
        ("method m {\n  aten::relu()\n  return }", "line 2, column 3", "self"),
        ("constant @c : f32[2] = [1.0]", "line 1, column 24", "size"),
        ("constant @c : u8[1] = [256]", "line 1, column 24", "an element"),
        ("constant @c : u8[1] = content 12", "line 1, column 31", "the hash"),
        ("constant @c : u8[1] = zeros constant @c : u8[1] = zeros", "line 1, column 29", "a new name"),
        ("method m { return \"a", "line 1, column 21", "`\"`"),
        ("method m { input %x : f32[1] order [1] return }", "line 1, column 36", "each dimension"),
        ("method m { symbol s in 0.. input %x : f32[(s + 1 * 2)] return }", "line 1, column 50", "`)`"),
        ("model", "line 1, column 1", "another item"),
    ];
    for (text, place, expected) in cases {
        let error = Model::parse(text, &Contents::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert_eq!(error.site(), Some(place), "{text}: {error}");
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
}

#[test]
fn nesting_ends_somewhere() {
    for (open, close) in [("[", "]"), ("(", ")"), ("max(", ")"), ("{ yield ", "}")] {
        let text = format!("method m {{ return {}1{} }}", open.repeat(50_000), close.repeat(50_000));
        assert_eq!(Model::parse(&text, &Contents::default()).unwrap_err().kind(), ErrorKind::Input);
    }
}

/// A generator of numbers below a bound.
pub(super) struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn name(&mut self) -> String {
        let odd = ["", "a b", "quote\"d", "back\\slash", "über", "new\nline\u{1}", "a~1", "%x", "none", "0", "f32"];
        if self.below(4) == 0 { self.pick(&odd).into() } else { self.pick(&["add", "x", "conv.weight", "v_1"]).into() }
    }

    fn float(&mut self) -> f64 {
        let all = [0.0, -0.0, 1.5, -1e-300, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, 0.1, 3.0];
        self.pick(&all)
    }

    fn int(&mut self) -> i64 {
        self.pick(&[0, 1, -1, 7, 64, i64::MAX, i64::MIN, 1000])
    }

    fn expr(&mut self, graph: &Graph, depth: usize) -> Expr {
        let leaf = |draw: &mut Self| match draw.below(2) {
            0 => Expr::Int(draw.pick(&[0, 1, 2, 3, 5, -4, 64])),
            _ => draw.pick(&graph.symbols.ids().map(Expr::Symbol).chain([Expr::Int(9)]).collect::<Vec<_>>()),
        };
        if depth == 0 {
            return leaf(self);
        }
        let (a, b) = (self.expr(graph, depth - 1), self.expr(graph, depth - 1));
        match self.below(7) {
            0 => a.add(b),
            1 => a.mul(b),
            2 => a.floor_div(b),
            3 => a.modulo(b),
            4 => a.at_least(b),
            5 => a.at_most(b),
            _ => leaf(self),
        }
    }

    fn dtype(&mut self) -> ScalarType {
        self.pick(&ScalarType::ALL)
    }

    fn ty(&mut self, graph: &Graph) -> Type {
        match self.below(8) {
            0 => Type::Float,
            1 => Type::Bool,
            2 => Type::Int(self.expr(graph, 2)),
            _ => {
                let shape: Vec<Expr> = (0..self.below(4)).map(|_| self.expr(graph, 2)).collect();
                let mut ty = TensorType::new(self.dtype(), shape);
                if self.below(3) == 0 {
                    ty.dim_order.reverse();
                }
                if self.below(4) == 0 {
                    let granularity = match self.below(3) {
                        0 => Granularity::Tensor,
                        1 => Granularity::Channel { axis: 1 },
                        _ => Granularity::Block { shape: vec![1, 32] },
                    };
                    let scales = vec![0.1, f32::MIN_POSITIVE, 1e30].into();
                    let zero_points = vec![i32::MIN, 0, 5].into();
                    ty.quantization = Some(Arc::new(Quantization { granularity, scales, zero_points, range: (-8, 7) }));
                }
                Type::Tensor(ty)
            }
        }
    }

    fn arg(&mut self, graph: &mut Graph, model: &Model, known: &[ValueId], depth: usize) -> Arg {
        match self.below(16) {
            0 => Arg::None,
            1 => Arg::Float(self.float()),
            2 => Arg::Bool(self.below(2) == 0),
            3 => Arg::Str(self.name()),
            4 => Arg::Complex(self.float(), self.float()),
            5 => Arg::DType(self.dtype()),
            6 => Arg::Layout(self.pick(&[Layout::Strided, Layout::Sparse])),
            7 => Arg::Device(self.name()),
            8 => Arg::MemoryFormat(self.pick(&[
                MemoryFormat::Contiguous,
                MemoryFormat::Preserve,
                MemoryFormat::ChannelsLast,
                MemoryFormat::ChannelsLast3d,
            ])),
            9 if depth > 0 => Arg::List((0..self.below(4)).map(|_| self.arg(graph, model, known, depth - 1)).collect()),
            10 => Arg::Int(self.expr(graph, 3)),
            11 => Arg::from(self.int()),
            12 => {
                let ids: Vec<_> = model.constants.ids().collect();
                graph.constant(self.pick(&ids), &model.constants).into()
            }
            13 => {
                let ids: Vec<_> = model.states.ids().collect();
                graph.state(self.pick(&ids), &model.states).into()
            }
            _ if !known.is_empty() => self.pick(known).into(),
            _ => Arg::None,
        }
    }

    fn constant(&mut self) -> Constant {
        let dtype = self.pick(&[
            ScalarType::Float,
            ScalarType::Half,
            ScalarType::BFloat16,
            ScalarType::Double,
            ScalarType::Long,
            ScalarType::Char,
            ScalarType::Byte,
            ScalarType::Short,
            ScalarType::Int,
        ]);
        let sizes = self.pick::<&[i64]>(&[&[], &[3], &[2, 4], &[3, 7], &[0, 2], &[40]]);
        let ty = TensorType::of(dtype, sizes);
        let mut constant = Constant { name: self.name(), ty, data: ConstantData::Zeros };
        let len = constant.len().unwrap();
        let bytes: Vec<u8> = (0..len).map(|_| self.below(256) as u8).collect();
        constant.data = match self.below(4) {
            0 => ConstantData::Zeros,
            1 if sizes == [3, 7] => ConstantData::Strided { storage: bytes.into(), offset: 0, strides: vec![1, 3] },
            _ => ConstantData::Dense(bytes.into()),
        };
        constant
    }

    fn block(
        &mut self,
        graph: &mut Graph,
        model: &Model,
        block: BlockId,
        mut known: Vec<ValueId>,
        depth: usize,
    ) -> Vec<ValueId> {
        for _ in 0..self.below(5) {
            let origin = self.pick(&graph.origins.ids().collect::<Vec<_>>());
            let (op, args) = match self.below(6) {
                0 if depth > 0 => {
                    let blocks = [(); 2].map(|()| {
                        let inner = graph.blocks.push(Block::default());
                        let mut inside = known.clone();
                        for _ in 0..self.below(3) {
                            let (name, ty) = (self.name(), self.ty(graph));
                            inside.push(graph.param(inner, &name, ty));
                        }
                        let inside = self.block(graph, model, inner, inside, depth - 1);
                        graph.blocks[inner].results =
                            (0..self.below(3)).map(|_| self.arg(graph, model, &inside, 1)).collect();
                        Arg::Block(inner)
                    });
                    (self.pick(&[Op::Cond, Op::While, Op::Scan]), blocks.to_vec())
                }
                1 => (Op::Delegate(model.delegates.ids().next().unwrap()), vec![Arg::None; self.below(3)]),
                _ => {
                    let names = [aten::RELU, aten::ADD_TENSOR, aten::CONVOLUTION, "my ns::odd op", "my::op.x"];
                    let schema = model.schemas.get(self.pick(&names)).unwrap();
                    let args = schema.params.iter().map(|_| self.arg(graph, model, &known, 2)).collect();
                    (Op::Call(schema), args)
                }
            };
            let results: Vec<_> = (0..self.below(4)).map(|_| (self.name(), self.ty(graph))).collect();
            let node = graph.push_node(block, op, args, origin, results);
            known.extend(graph.nodes[node].results.iter().copied());
        }
        known
    }

    /// A model of everything that the text can say. Nothing in it need make sense.
    pub fn model(&mut self) -> Model {
        let mut model = Model::default();
        for name in ["my ns::odd op", "my::op.x"] {
            let line = format!(
                "{name}(Tensor(a!) x, int[2]? n=[1, 2], *, float f=0.5) -> (Tensor, Tensor[])\t-\trandom\tmy::twin"
            );
            model.schemas.add(Schema::parse(&line).unwrap());
        }
        for _ in 0..=self.below(5) {
            let constant = self.constant();
            model.constants.push(constant);
        }
        for _ in 0..=self.below(3) {
            let Constant { name, ty, data } = self.constant();
            model.states.push(State { name, ty, initial: data });
        }
        let payload = (0..self.below(64)).map(|byte| byte as u8).collect::<Vec<u8>>();
        let compile_specs = vec![(self.name(), vec![1, 2])];
        model.delegates.push(Delegate {
            backend: self.name(),
            payload: payload.clone().into(),
            compile_specs,
            refusal: None,
            nodes: Vec::new(),
        });
        model.named_data.push((self.name(), payload.into()));
        let literals =
            vec![Literal::None, Literal::Float(self.float()), Literal::Int(self.int()), Literal::Str(self.name())];
        model.constant_methods.insert(self.name(), literals);
        for _ in 0..=self.below(2) {
            let mut graph = Graph::new();
            for index in 0..self.below(4) {
                let name = if index == 0 { self.name() } else { format!("s{index}") };
                let max = (self.below(2) == 0).then(|| self.int());
                graph.symbols.push(Symbol { name, min: self.int(), max });
            }
            for index in 0..3 {
                let frame = SourceFrame { file: self.name(), line: index, function: self.name(), code: self.name() };
                let frames = vec![frame; index as usize].into();
                graph.origins.push(Origin { node: index.to_string(), module: self.name(), frames, metadata: None });
            }
            graph.input_encoding = self.name();
            for _ in 0..self.below(4) {
                if self.below(4) == 0 {
                    graph.inputs.push(Input::Literal(Arg::List(vec![Arg::from(self.int()), Arg::Float(self.float())])));
                } else {
                    let (name, ty) = (self.name(), self.ty(&graph));
                    graph.input(&name, ty);
                }
            }
            let (body, known) = (graph.body, graph.blocks[graph.body].params.clone());
            let known = self.block(&mut graph, &model, body, known, 2);
            graph.outputs = (0..self.below(4)).map(|_| self.arg(&mut graph, &model, &known, 2)).collect();
            if let Some(value) = known.first() {
                let state = model.states.ids().next().unwrap();
                graph.updates.push(Update { target: Target::State(state), value: *value });
                graph.updates.push(Update { target: Target::Input(0), value: *value });
            }
            let name = self.name();
            model.add_method(&name, graph);
        }
        model
    }
}

/// All that matters of a method, as text that is easy to compare. Origins stand as they are instead of by number.
fn method_debug(graph: &Graph) -> String {
    let origin = |id: OriginId| &graph.origins[id];
    let nodes: Vec<_> =
        graph.nodes.iter().map(|(_, node)| (&node.op, &node.args, &node.results, origin(node.origin))).collect();
    format!(
        "{:#?} {nodes:#?} {:?} {:?} {:?} {:?} {:?} {:?}",
        graph.values, graph.blocks, graph.symbols, graph.inputs, graph.outputs, graph.updates, graph.input_encoding
    )
}

#[test]
fn generated_models_read_back_equal() {
    for seed in 0..400 {
        let model = Draw(seed).model();
        let (text, contents) = model.to_text(Detail::Exact).unwrap();
        let read = Model::parse(&text, &contents).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        assert_eq!(read.to_text(Detail::Exact).unwrap().0, text, "seed {seed}");
        assert_eq!(read.methods.len(), model.methods.len());
        // Constants that nothing uses are left out, so that ids can only agree where all are used.
        if read.constants.len() == model.constants.len() {
            for ((name, graph), (read_name, read_graph)) in model.methods.iter().zip(&read.methods) {
                assert_eq!(name, read_name);
                assert_eq!(method_debug(graph), method_debug(read_graph), "seed {seed}\n{text}");
            }
        }
        model.to_text(Detail::Review).unwrap();
    }
}

#[test]
fn mutations_of_texts_are_read_or_refused() {
    let mut draw = Draw(1);
    let mut texts: Vec<(String, Contents)> =
        (0..40).map(|seed| Draw(seed).model().to_text(Detail::Exact).unwrap()).collect();
    texts.push((MODEL.into(), Contents::default()));
    let (mut read, mut refused) = (0, 0);
    for _ in 0..4000 {
        let (text, contents) = &texts[draw.below(texts.len())];
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=draw.below(3) {
            let at = draw.below(bytes.len());
            match draw.below(4) {
                0 => drop(bytes.remove(at)),
                1 => bytes[at] = b"0-%@$\"~(){}[],:#.xe\n"[draw.below(20)],
                2 => bytes.insert(at, b"09-%@$\"~(){}[],:#.xe\n"[draw.below(21)]),
                _ => {
                    let end = (at + draw.below(40)).min(bytes.len());
                    let piece: Vec<u8> = bytes[at..end].to_vec();
                    let to = draw.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match Model::parse(&text, contents) {
            Ok(model) => {
                read += 1;
                let _ = model.verify();
                let (again, contents) = model.to_text(Detail::Exact).unwrap();
                let once = Model::parse(&again, &contents).unwrap_or_else(|error| panic!("{error}\n{again}"));
                assert_eq!(once.to_text(Detail::Exact).unwrap().0, again);
            }
            Err(error) => {
                refused += 1;
                assert!(error.site().is_some_and(|site| site.starts_with("line ")), "{error}");
            }
        }
    }
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}
