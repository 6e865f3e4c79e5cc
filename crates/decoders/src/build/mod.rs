//! Builds the graph of a decoder. It has one method, which takes tokens and the position of the first of them, with a
//! KV cache as state. A second method, if it is asked for, also takes a LoRA adapter.

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
    ConstantId, Error, Expr, Graph, Literal, Model, Op, StateId, Symbol, SymbolId, TensorType, Type, ValueId,
};

use crate::decoder::{Decoder, Layer};
use crate::lora::{self, Adapted, Linear};
use crate::{HIDDEN_STATES, Options, Output};
use layers::origin;
use metadata::{TOKEN_INPUTS, describe, signature, token_rules};
use rotary::Rotation;

/// The name of the method.
const METHOD: &str = "forward";

/// Sizes of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of tokens in a call.
    pub seq_len: usize,
    /// Number of positions of the cache.
    pub context: usize,
}

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
    let mut build = Build::new(decoder, tensors, limits, &mut model, &mut named);
    build.forward(options.output, None)?;
    let (graph, linears) = (build.graph, build.linears);
    let mut rules = vec![(METHOD, token_rules(limits))];
    model.add_method(METHOD, graph);
    if let Some(rank) = options.lora_rank {
        let targets = lora::targets(linears, rank)?;
        let mut build = Build::new(decoder, tensors, limits, &mut model, &mut named);
        build.forward(options.output, Some(&targets))?;
        let graph = build.graph;
        model.add_method(LORA_METHOD, graph);
        rules.push((LORA_METHOD, [token_rules(limits), lora::rules(&targets, TOKEN_INPUTS)].concat()));
        model.named_data.push((KEY.to_owned(), targets.describe().into()));
    }
    describe(&mut model, decoder, limits);
    if options.output == Output::HiddenStates {
        model.constant_methods.insert(HIDDEN_STATES.to_owned(), vec![Literal::Bool(true)]);
    }
    let blob = shapes::write(rules.iter().map(|(method, rules)| (*method, rules.as_slice())));
    let blob = blob.map_err(|_| Error::unsupported("the rules about sizes are too long"))?;
    model.named_data.push((SHAPES_KEY.to_owned(), blob.into()));
    let signatures: Vec<_> =
        model.methods.iter().map(|(method, graph)| (method.as_str(), signature(graph, options.output))).collect();
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

    fn forward(&mut self, output: Output, targets: Option<&Targets>) -> Result<(), Error> {
        let Decoder { vocab, hidden, .. } = *self.decoder;
        let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
        let long = |shape: Vec<Expr>| Type::Tensor(TensorType::new(ScalarType::Long, shape));
        let tokens = self.graph.input("tokens", long(vec![1.into(), length]));
        let start_pos = self.graph.input("start_pos", long(vec![1.into()]));
        if let Some(targets) = targets {
            self.adapted = lora::declare(targets, &mut self.graph);
        }
        let read = self.model.schemas.expect(aten::_LOCAL_SCALAR_DENSE)?;
        let origin = self.graph.origins.push(origin(""));
        let result = [("start".to_owned(), Type::Int(start))];
        self.graph.push_node(self.graph.body, Op::Call(read), vec![start_pos.into()], origin, result);

        let names = self.decoder.names;
        let table = self.weight(&format!("{}.weight", names.embedding), &[vocab, hidden])?;
        let mut x = self.call(names.embedding, aten::EMBEDDING, vec![table.into(), tokens.into()])?;
        x = self.scaled(x, self.decoder.embedding_scale)?;
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
            Output::LastLogits | Output::AllLogits => self.logits(x, table)?,
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

    /// Adds the head; `table` holds the embeddings.
    fn logits(&mut self, x: ValueId, table: ValueId) -> Result<ValueId, Error> {
        let Decoder { names, vocab, hidden, .. } = *self.decoder;
        let head = format!("{}.weight", names.head);
        let is_tied = self.decoder.is_tied.unwrap_or_else(|| !self.tensors.contains(&head));
        let head = if is_tied {
            // Some checkpoints store tied weights twice.
            self.tensors.take_optional(&head);
            table
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
