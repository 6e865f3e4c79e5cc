//! Builds the graph of a decoder. It has one method, which takes tokens and the position of the first of them, with a
//! KV cache as state. A second method, if it is asked for, also takes a LoRA adapter. A program that takes embeddings has
//! two methods in place of the first: from tokens to embeddings, and from embeddings to logits.

mod attention;
mod cache;
mod convolution;
mod delta_net;
mod experts;
mod feed_forward;
mod layers;
mod metadata;
mod rotary;

use std::collections::HashMap;

use rushlight_format::ScalarType;
use rushlight_format::shapes::{self, SHAPES_KEY};
use rushlight_format::signature::{self, SIGNATURE_KEY};

use rushlight_checkpoint::Tensors;
use rushlight_checkpoint::lora::{KEY, METHOD as LORA_METHOD, Targets};
use rushlight_graph::operators::aten;
use rushlight_graph::{
    ConstantId, Error, ErrorKind, Expr, Graph, Literal, Model, Op, StateId, Symbol, SymbolId, TensorType, Type, ValueId,
};

use crate::decoder::{Decoder, Layer};
use crate::lora::{self, Adapted, Linear};
use crate::options::{HIDDEN_STATES, Limits, Options, Output};
use layers::origin;
use metadata::{EMBEDDINGS, TOKEN_INPUTS, describe, embedding_rules, output_name, signature, token_rules};
use rotary::Rotation;

/// The name of the method from tokens to logits.
const METHOD: &str = "forward";
/// The names of the methods from tokens to embeddings, and from these to logits, in ExecuTorch's multimodal programs.
const TOKEN_EMBEDDING: &str = "token_embedding";
const TEXT_DECODER: &str = "text_decoder";

/// Builds the program of a decoder.
///
/// # Errors
/// `Input` for weights that are missing or do not fit.
pub(crate) fn build(
    decoder: &Decoder,
    tensors: &mut Tensors,
    limits: Limits,
    options: &Options,
) -> Result<Model, Error> {
    let mut model = Model::default();
    let mut named = Named::default();
    let mut rules = Vec::new();
    if options.takes_embeddings {
        if options.lora_rank.is_some() {
            return Err(Error::new(ErrorKind::Option, "a program that takes embeddings takes no LoRA adapters"));
        }
        let mut build = Build::new(decoder, tensors, limits, &mut model, &mut named);
        build.token_embedding()?;
        let graph = build.graph;
        model.add_method(TOKEN_EMBEDDING, graph);
        rules.push((TOKEN_EMBEDDING, token_rules(limits)));
        let mut build = Build::new(decoder, tensors, limits, &mut model, &mut named);
        build.text_decoder(options.output)?;
        let graph = build.graph;
        model.add_method(TEXT_DECODER, graph);
        rules.push((TEXT_DECODER, embedding_rules(limits, decoder.hidden)));
    } else {
        let mut build = Build::new(decoder, tensors, limits, &mut model, &mut named);
        build.forward(options.output, None)?;
        let (graph, linears) = (build.graph, build.linears);
        model.add_method(METHOD, graph);
        rules.push((METHOD, token_rules(limits)));
        if let Some(rank) = options.lora_rank {
            let targets = lora::targets(linears, rank)?;
            let mut build = Build::new(decoder, tensors, limits, &mut model, &mut named);
            build.forward(options.output, Some(&targets))?;
            let graph = build.graph;
            model.add_method(LORA_METHOD, graph);
            rules.push((LORA_METHOD, [token_rules(limits), lora::rules(&targets, TOKEN_INPUTS)].concat()));
            model.named_data.push((KEY.to_owned(), targets.describe().into()));
        }
    }
    describe(&mut model, decoder, limits);
    if options.output == Output::HiddenStates {
        model.constant_methods.insert(HIDDEN_STATES.to_owned(), vec![Literal::Bool(true)]);
    }
    let blob = shapes::write(rules.iter().map(|(method, rules)| (*method, rules.as_slice())));
    let blob = blob.map_err(|_| Error::unsupported("the rules about sizes are too long"))?;
    model.named_data.push((SHAPES_KEY.to_owned(), blob.into()));
    let signatures: Vec<_> = model
        .methods
        .iter()
        .map(|(method, graph)| {
            let output = if method == TOKEN_EMBEDDING { EMBEDDINGS } else { output_name(options.output) };
            (method.as_str(), signature(graph, output))
        })
        .collect();
    let blob = signature::write(signatures.iter().map(|(method, signature)| (*method, signature)));
    model.named_data.push((SIGNATURE_KEY.to_owned(), blob.into()));
    model.verify()?;
    Ok(model)
}

/// Constants and states that methods share, by name.
#[derive(Default)]
struct Named {
    constants: HashMap<String, ConstantId>,
    states: HashMap<String, StateId>,
}

struct Build<'a> {
    decoder: &'a Decoder,
    tensors: &'a mut Tensors,
    limits: Limits,
    model: &'a mut Model,
    named: &'a mut Named,
    graph: Graph,
    /// Linear layers that an adapter can change, as they are built.
    linears: Vec<Linear>,
    /// The inputs of an adapter, by the name of the layer that they change.
    adapted: HashMap<String, Adapted>,
    /// Number of tokens of the call, and the position of the first token.
    length: SymbolId,
    start: SymbolId,
    /// The end of the positions that earlier calls wrote, an i64 tensor `[1]`, if a layer has a ring buffer.
    written: Option<(StateId, ValueId)>,
}

impl<'a> Build<'a> {
    fn new(
        decoder: &'a Decoder,
        tensors: &'a mut Tensors,
        limits: Limits,
        model: &'a mut Model,
        named: &'a mut Named,
    ) -> Self {
        let mut graph = Graph::new();
        let symbol = |name: &str, min: i64, max: usize| Symbol { name: name.into(), min, max: Some(max as i64) };
        let length = graph.symbols.push(symbol("s0", 1, limits.seq_len));
        let start = graph.symbols.push(symbol("u0", 0, limits.context - 1));
        let (linears, adapted) = (Vec::new(), HashMap::new());
        Self { decoder, tensors, limits, model, named, graph, linears, adapted, length, start, written: None }
    }

    /// Builds the method from tokens to the output, with the inputs of an adapter if there are targets.
    fn forward(&mut self, output: Output, targets: Option<&Targets>) -> Result<(), Error> {
        let tokens = self.tokens_input();
        let start_pos = self.start_input();
        if let Some(targets) = targets {
            self.adapted = lora::declare(targets, &mut self.graph);
        }
        self.read_start(start_pos)?;
        let x = self.embedded(tokens)?;
        self.decode(x, output)
    }

    /// Builds the method from tokens to their embeddings, `[1, T, hidden]`.
    fn token_embedding(&mut self) -> Result<(), Error> {
        let tokens = self.tokens_input();
        let x = self.embedded(tokens)?;
        self.graph.outputs = vec![x.into()];
        Ok(())
    }

    /// Builds the method from embeddings `[1, T, hidden]` to the output.
    fn text_decoder(&mut self, output: Output) -> Result<(), Error> {
        let shape = vec![1.into(), Expr::Symbol(self.length), (self.decoder.hidden as i64).into()];
        let x = self.graph.input(EMBEDDINGS, Type::Tensor(TensorType::new(ScalarType::Float, shape)));
        let start_pos = self.start_input();
        self.read_start(start_pos)?;
        self.decode(x, output)
    }

    fn tokens_input(&mut self) -> ValueId {
        self.long_input("tokens", vec![1.into(), Expr::Symbol(self.length)])
    }

    fn start_input(&mut self) -> ValueId {
        self.long_input("start_pos", vec![1.into()])
    }

    fn long_input(&mut self, name: &str, shape: Vec<Expr>) -> ValueId {
        self.graph.input(name, Type::Tensor(TensorType::new(ScalarType::Long, shape)))
    }

    /// Makes the position of the first token a symbol.
    fn read_start(&mut self, start_pos: ValueId) -> Result<(), Error> {
        let read = self.model.schemas.expect(aten::_LOCAL_SCALAR_DENSE)?;
        let origin = self.graph.origins.push(origin(""));
        let result = [("start".to_owned(), Type::Int(Expr::Symbol(self.start)))];
        self.graph.push_node(self.graph.body, Op::Call(read), vec![start_pos.into()], origin, result);
        Ok(())
    }

    /// Returns the weights of the embedding.
    fn embedding_table(&mut self) -> Result<ValueId, Error> {
        let Decoder { names, vocab, hidden, .. } = *self.decoder;
        self.weight(&format!("{}.weight", names.embedding), &[vocab, hidden])
    }

    /// Adds the embeddings of tokens, `[1, T, hidden]`.
    fn embedded(&mut self, tokens: ValueId) -> Result<ValueId, Error> {
        let table = self.embedding_table()?;
        let x = self.call(self.decoder.names.embedding, aten::EMBEDDING, vec![table.into(), tokens.into()])?;
        self.scaled(x, self.decoder.embedding_scale)
    }

    /// Adds the layers and the head on embeddings `[1, T, hidden]`.
    fn decode(&mut self, mut x: ValueId, output: Output) -> Result<(), Error> {
        let Decoder { names, hidden, .. } = *self.decoder;
        let rotations = self.rotations()?;
        self.written = self.written_positions();
        for (index, layer) in self.decoder.layers.iter().enumerate() {
            x = self.layer(x, index, *layer, &rotations).map_err(|error| error.at(format!("layer {index}")))?;
        }
        self.update_written_positions()?;
        if output == Output::LastLogits {
            x = self.call("", aten::SELECT_COPY_INT, vec![x.into(), 1.into(), (-1).into()])?;
        }
        x = self.norm(x, names.norm, hidden)?;
        x = match output {
            Output::LastLogits | Output::AllLogits => self.logits(x)?,
            Output::HiddenStates => {
                for part in ["weight", "bias"] {
                    self.tensors.take_optional(&format!("{}.{part}", names.head));
                }
                x
            }
        };
        self.graph.outputs = vec![x.into()];
        Ok(())
    }

    /// Adds the head.
    fn logits(&mut self, x: ValueId) -> Result<ValueId, Error> {
        let Decoder { names, vocab, hidden, .. } = *self.decoder;
        let head = format!("{}.weight", names.head);
        let is_tied = self.decoder.is_tied.unwrap_or_else(|| !self.tensors.contains(&head));
        let head = if is_tied {
            // Some checkpoints store tied weights twice.
            self.tensors.take_optional(&head);
            self.embedding_table()?
        } else {
            self.weight(&head, &[vocab, hidden])?
        };
        let bias = self.optional_bias(names.head, vocab)?;
        let x = self.call(names.head, aten::LINEAR, vec![x.into(), head.into(), bias])?;
        let x = self.scaled(x, self.decoder.logits_scale)?;
        self.capped(x, self.decoder.logits_cap)
    }

    fn layer(&mut self, x: ValueId, index: usize, layer: Layer, rotations: &[Rotation]) -> Result<ValueId, Error> {
        let names = self.decoder.names;
        let prefix = format!("{}.{index}.", names.layers);
        let around = |name: Option<&str>| name.map(|name| format!("{prefix}{name}"));
        let mut y = self.optional_norm(x, around(names.before_attention))?;
        y = match layer {
            Layer::Attention { window, rope } => {
                let rotation = rope.and_then(|rope| rotations.get(rope)).copied();
                self.attention(y, index, &prefix, window, rotation)?
            }
            Layer::Conv { taps } => self.short_convolution(y, index, &prefix, taps)?,
            Layer::DeltaNet => self.delta_net(y, index, &prefix)?,
        };
        y = self.optional_norm(y, around(names.after_attention))?;
        y = self.scaled(y, self.decoder.residual_scale)?;
        let x = self.call("", aten::ADD_TENSOR, vec![x.into(), y.into()])?;
        let mut y = self.optional_norm(x, around(names.before_feed_forward))?;
        let mixture = self.decoder.experts.as_ref().zip(names.experts);
        let mixture = mixture.filter(|(mixture, _)| mixture.layers.get(index) == Some(&true));
        y = match mixture {
            Some((mixture, names)) => self.experts(y, &prefix, mixture, names)?,
            None => self.feed_forward(y, &prefix)?,
        };
        y = self.optional_norm(y, around(names.after_feed_forward))?;
        y = self.scaled(y, self.decoder.residual_scale)?;
        self.call("", aten::ADD_TENSOR, vec![x.into(), y.into()])
    }
}
