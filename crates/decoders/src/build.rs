//! Builds the graph of a decoder. It has one method, which takes tokens and the position of the first of them, with a
//! KV cache as state. A second method, if it is asked for, also takes a LoRA adapter.

use std::collections::HashMap;
use std::sync::Arc;

use rushlight_format::ScalarType;
use rushlight_format::shapes::{self, Place, RuleModel, SHAPES_KEY};
use rushlight_format::signature::{self, SIGNATURE_KEY, Signature};

use rushlight_graph::operators::{aten, llama, rushlight};
use rushlight_graph::{
    Arg, Builder, Constant, ConstantData, ConstantId, Error, Expr, Graph, Input, Literal, Model, Op, Origin, State,
    StateId, Symbol, SymbolId, Target, TensorType, Type, Update, ValueId,
};

use crate::decoder::{Activation, Decoder, Layer, Mixture};
use crate::family::{Experts, Joined, QkNorm, SharedExpert};
use crate::lora::{self, Adapted, Linear};
use crate::rope::Table;
use crate::{HIDDEN_STATES, Options, Output};
use rushlight_checkpoint::lora::{KEY, METHOD as LORA_METHOD, Targets};
use rushlight_checkpoint::{Tensor, Tensors, damaged, stack_rows};

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

/// Returns the names of the inputs and of the output.
fn signature(graph: &Graph, output: Output) -> Signature {
    let name = |input: &Input| match input {
        Input::Value(value) => graph.values.get(*value).map(|value| value.name.clone()),
        Input::Literal(_) => None,
    };
    let output = match output {
        Output::LastLogits | Output::AllLogits => "logits",
        Output::HiddenStates => "hidden_states",
    };
    Signature::flat(graph.inputs.iter().filter_map(name), [Some(output.to_owned())])
}

/// Adds the methods with the program's properties that ExecuTorch's runners read.
fn describe(model: &mut Model, decoder: &Decoder, limits: Limits) {
    let int = |value: usize| vec![Literal::Int(value as i64)];
    let mut add = |name: &str, values: Vec<Literal>| {
        model.constant_methods.insert(name.to_owned(), values);
    };
    add("get_max_seq_len", int(limits.seq_len));
    add("get_max_context_len", int(limits.context));
    add("get_vocab_size", int(decoder.vocab));
    add("get_n_layers", int(decoder.layers.len()));
    if let Some(bos) = decoder.bos {
        add("get_bos_id", vec![Literal::Int(bos)]);
    }
    if !decoder.eos.is_empty() {
        add("get_eos_ids", decoder.eos.iter().map(|id| Literal::Int(*id)).collect());
    }
    for name in ["use_kv_cache", "use_sdpa_with_kv_cache", "enable_dynamic_shape"] {
        add(name, vec![Literal::Bool(true)]);
    }
}

/// Number of inputs before those of an adapter.
const TOKEN_INPUTS: u16 = 2;

/// Makes the runtime refuse token tensors of other shapes than `[1, 1..=seq_len]`.
fn token_rules(limits: Limits) -> Vec<RuleModel> {
    let place = |dim| Place { input: 0, dim };
    let max = Some(limits.seq_len as i64);
    vec![
        RuleModel::Fixed { place: place(0), size: 1 },
        RuleModel::Range { place: place(1), unit: 1, offset: 0, min: 1, max },
    ]
}

/// Constants and states that methods share, by name.
#[derive(Default)]
struct Named {
    constants: HashMap<String, ConstantId>,
    states: HashMap<String, StateId>,
}

pub(crate) struct Build<'a> {
    pub decoder: &'a Decoder,
    pub tensors: &'a mut Tensors,
    limits: Limits,
    model: &'a mut Model,
    named: &'a mut Named,
    pub graph: Graph,
    /// Linear layers that an adapter can change, as they are built.
    linears: Vec<Linear>,
    /// The inputs of an adapter, by the name of the layer that they change.
    adapted: HashMap<String, Adapted>,
    /// Number of tokens of the call, and the position of the first token.
    pub length: SymbolId,
    start: SymbolId,
    /// The end of the positions that earlier calls wrote, an i64 tensor `[1]`, if a layer has a ring buffer.
    written: Option<(StateId, ValueId)>,
}

/// The cosines and sines that rotate the positions of a call, `[1, T, columns]`.
#[derive(Clone, Copy, Debug)]
struct Rotation {
    cos: ValueId,
    sin: ValueId,
    columns: usize,
}

/// The cache of a layer.
#[derive(Clone, Copy, Debug)]
struct Cache {
    /// Number of positions that it holds.
    capacity: usize,
    /// True for a ring buffer: position `p` is in slot `p % capacity`.
    is_ring: bool,
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

    /// Adds the feed-forward network on `[1, T, hidden]`.
    fn feed_forward(&mut self, y: ValueId, prefix: &str) -> Result<ValueId, Error> {
        let (names, hidden) = (self.decoder.names, self.decoder.hidden);
        let [gate, up] = match names.gate_up {
            Joined::Apart(apart) => {
                let mut each = |name: &str| self.linear(y, &format!("{prefix}{name}"), hidden, None);
                [each(apart[0])?, each(apart[1])?]
            }
            Joined::One(name) => {
                let both = self.linear(y, &format!("{prefix}{name}"), hidden, None)?;
                let width = self.width(both)?;
                if !width.is_multiple_of(2) {
                    return Err(damaged(format!("`{prefix}{name}` has an odd number of rows")).got(width));
                }
                self.split(both, [width / 2; 2])?
            }
        };
        let width = self.width(gate)?;
        check_width("intermediate_size", self.decoder.feed_forward, width)?;
        let gated = self.gated(gate, up)?;
        self.linear(gated, &format!("{prefix}{}", names.down), width, Some(hidden))
    }

    /// Multiplies `up` by the activation of the gate.
    fn gated(&mut self, gate: ValueId, up: ValueId) -> Result<ValueId, Error> {
        let gate = match self.decoder.activation {
            Activation::Silu => self.call("", aten::SILU, vec![gate.into()])?,
            Activation::GeluTanh => self.call("", aten::GELU, vec![gate.into(), "tanh".into()])?,
            Activation::Gelu => self.call("", aten::GELU, vec![gate.into()])?,
        };
        self.call("", aten::MUL_TENSOR, vec![gate.into(), up.into()])
    }

    /// Adds a mixture of experts on `[1, T, hidden]`. Each token goes to the experts with the largest probabilities,
    /// and these weight the results.
    fn experts(&mut self, x: ValueId, prefix: &str, mixture: &Mixture, names: Experts) -> Result<ValueId, Error> {
        let (hidden, length) = (self.decoder.hidden, Expr::Symbol(self.length));
        let Mixture { count, chosen: experts_per_token, width, .. } = *mixture;
        let [columns, each] = [hidden, experts_per_token].map(|size| Expr::Int(size as i64));
        let scores = self.linear(x, &format!("{prefix}{}", names.router), hidden, Some(count))?;
        let scores = self.call("", aten::_SOFTMAX, vec![scores.into(), (-1).into(), false.into()])?;
        let args = vec![scores.into(), each.clone().into(), (-1).into(), true.into(), true.into()];
        let best = self.builder("").call(aten::TOPK, args)?;
        let [mut weights, indices] = best[..] else { return Err(Error::invalid("top-k without indices")) };
        if mixture.are_normalized {
            let sum = self.call("", aten::SUM_DIM_INTLIST, vec![weights.into(), [-1].into(), true.into()])?;
            weights = self.call("", aten::DIV_TENSOR, vec![weights.into(), sum.into()])?;
        }
        // One row for each pair of token and expert.
        let rows = length.mul(each.clone());
        let indices = self.view(indices, vec![rows.clone()])?;
        let token = self.view(x, vec![length.clone(), 1.into(), columns.clone()])?;
        let repeated = vec![length.clone(), each.clone(), columns.clone()];
        let repeated = self.call("", aten::EXPAND_COPY, vec![token.into(), repeated.into()])?;
        let row = self.view(repeated, vec![rows, columns.clone()])?;
        let layer = |build: &mut Self, x: ValueId, name: &str, [inputs, outputs]: [usize; 2]| {
            let (module, weight) = build.expert_weights(prefix, names.each, name, [count, outputs, inputs])?;
            let weight = build.constant(weight);
            let args = vec![x.into(), weight.into(), indices.into(), (count as i64).into()];
            build.call(&module, rushlight::EXPERTS_LINEAR, args)
        };
        let gate = layer(self, row, names.gate, [hidden, width])?;
        let up = layer(self, row, names.up, [hidden, width])?;
        let gated = self.gated(gate, up)?;
        let y = layer(self, gated, names.down, [width, hidden])?;
        let y = self.view(y, vec![length.clone(), each.clone(), columns.clone()])?;
        let weights = self.view(weights, vec![length.clone(), each, 1.into()])?;
        let y = self.call("", aten::MUL_TENSOR, vec![y.into(), weights.into()])?;
        let y = self.call("", aten::SUM_DIM_INTLIST, vec![y.into(), [1].into(), false.into()])?;
        let y = self.view(y, vec![1.into(), length, columns])?;
        match names.shared {
            Some(names) => {
                let shared = self.shared_expert(x, prefix, names)?;
                self.call("", aten::ADD_TENSOR, vec![y.into(), shared.into()])
            }
            None => Ok(y),
        }
    }

    /// Returns the module of a linear layer of all experts, and their weights as one matrix.
    fn expert_weights(
        &mut self,
        prefix: &str,
        each: Option<&str>,
        name: &str,
        sizes: [usize; 3],
    ) -> Result<(String, Constant), Error> {
        let [count, outputs, inputs] = sizes;
        let module = each.map_or_else(|| format!("{prefix}{name}_exps"), |each| format!("{prefix}{each}.{name}"));
        let part = |expert: usize| match each {
            Some(each) => format!("{prefix}{each}.{expert}.{name}.weight"),
            None => format!("{prefix}{name}.{expert}.weight"),
        };
        let whole = format!("{module}.weight");
        if each.is_none() && !self.tensors.contains(&part(0)) {
            return Ok((module, self.tensors.take(&whole, &sizes)?.stacked().constant()));
        }
        let parts = (0..count).map(|expert| Ok(self.tensors.take(&part(expert), &[outputs, inputs])?.constant()));
        let parts = parts.collect::<Result<_, Error>>()?;
        Ok((module, stack_rows(whole, parts, [outputs, inputs])?))
    }

    /// Adds the shared expert, multiplied by the sigmoid of its router.
    fn shared_expert(&mut self, x: ValueId, prefix: &str, names: SharedExpert) -> Result<ValueId, Error> {
        let hidden = self.decoder.hidden;
        let gate = self.linear(x, &format!("{prefix}{}", names.gate), hidden, None)?;
        let width = self.width(gate)?;
        check_width("shared_expert_intermediate_size", self.decoder.shared_expert, width)?;
        let up = self.linear(x, &format!("{prefix}{}", names.up), hidden, Some(width))?;
        let gated = self.gated(gate, up)?;
        let y = self.linear(gated, &format!("{prefix}{}", names.down), width, Some(hidden))?;
        let share = self.linear(x, &format!("{prefix}{}", names.router), hidden, Some(1))?;
        let share = self.call("", aten::SIGMOID, vec![share.into()])?;
        self.call("", aten::MUL_TENSOR, vec![y.into(), share.into()])
    }

    /// Adds attention on `[1, T, hidden]` over the cache of a layer.
    fn attention(
        &mut self,
        x: ValueId,
        index: usize,
        prefix: &str,
        window: Option<usize>,
        rotation: Option<Rotation>,
    ) -> Result<ValueId, Error> {
        let Decoder { names, hidden, heads, kv_heads, head_dim, qk_norm, .. } = *self.decoder;
        let (wide, narrow) = (heads * head_dim, kv_heads * head_dim);
        let queries = if self.decoder.has_gated_attention { 2 * wide } else { wide };
        let [mut q, mut k, mut v] = match names.qkv {
            Joined::Apart([q, k, v]) => {
                let mut each = |name: &str, width| self.linear(x, &format!("{prefix}{name}"), hidden, Some(width));
                [each(q, queries)?, each(k, narrow)?, each(v, narrow)?]
            }
            Joined::One(name) => {
                let all = self.linear(x, &format!("{prefix}{name}"), hidden, Some(queries + 2 * narrow))?;
                self.split(all, [queries, narrow, narrow])?
            }
        };
        let mut gate = None;
        if self.decoder.has_gated_attention {
            let both = self.in_heads(q, heads, 2 * head_dim)?;
            let [queries, gates] = self.split(both, [head_dim; 2])?;
            let shape = vec![1.into(), Expr::Symbol(self.length), (wide as i64).into()];
            q = self.view(queries, shape.clone())?;
            gate = Some(self.view(gates, shape)?);
        }
        let (q_norm, k_norm) = (format!("{prefix}{}", names.q_norm), format!("{prefix}{}", names.k_norm));
        if qk_norm == QkNorm::Whole {
            q = self.norm(q, &q_norm, wide)?;
            k = self.norm(k, &k_norm, narrow)?;
        }
        q = self.in_heads(q, heads, head_dim)?;
        k = self.in_heads(k, kv_heads, head_dim)?;
        v = self.in_heads(v, kv_heads, head_dim)?;
        if qk_norm == QkNorm::Head {
            q = self.norm(q, &q_norm, head_dim)?;
            k = self.norm(k, &k_norm, head_dim)?;
        }
        if let Some(rotation) = rotation {
            q = self.rotated(q, rotation)?;
            k = self.rotated(k, rotation)?;
        }
        let cache = self.cache_of(window);
        let keys = self.cached(k, cache, index, "k_cache")?;
        let values = self.cached(v, cache, index, "v_cache")?;
        let scale = self.decoder.attention_scale;
        let attended = match (self.decoder.attention_cap, window) {
            (None, None) => {
                let start = Expr::Symbol(self.start);
                let args = vec![q.into(), keys.into(), values.into(), start.into()];
                let named = [("is_causal", true.into()), ("scale", scale.into())];
                self.builder("").one_with(llama::CUSTOM_SDPA, args, &named)?
            }
            (cap, window) => {
                let mask = self.mask(cache, window)?;
                self.masked_attention([q, keys, values], cache, mask, cap)?
            }
        };
        let mut flat = self.view(attended, vec![1.into(), Expr::Symbol(self.length), (wide as i64).into()])?;
        if let Some(gate) = gate {
            let gate = self.call("", aten::SIGMOID, vec![gate.into()])?;
            flat = self.call("", aten::MUL_TENSOR, vec![flat.into(), gate.into()])?;
        }
        self.linear(flat, &format!("{prefix}{}", names.o), wide, Some(hidden))
    }

    /// Chooses the cache of a layer. With a sliding window it is a ring buffer of `window + seq_len - 1` slots: the
    /// positions that the first query of the longest call sees, and that call. A ring is used if it takes at most half
    /// of the context. A larger ring would save too little memory to make up for its limit that a session cannot go
    /// back.
    fn cache_of(&self, window: Option<usize>) -> Cache {
        let Limits { seq_len, context } = self.limits;
        let ring = window.map(|window| window + seq_len - 1).filter(|capacity| *capacity <= context / 2);
        ring.map_or(Cache { capacity: context, is_ring: false }, |capacity| Cache { capacity, is_ring: true })
    }

    /// Adds attention with a mask of the keys that each query sees. Operands are `[1, T or S, heads, columns]`.
    fn masked_attention(
        &mut self,
        operands: [ValueId; 3],
        cache: Cache,
        mask: ValueId,
        cap: Option<f64>,
    ) -> Result<ValueId, Error> {
        let Decoder { heads, kv_heads, head_dim, attention_scale, .. } = *self.decoder;
        let mut turned = operands;
        for operand in &mut turned {
            *operand = self.permute(*operand, [0, 2, 1, 3])?;
        }
        let [q, k, v] = turned;
        let output = if cap.is_none() {
            let args = vec![q.into(), k.into(), v.into(), mask.into()];
            let named = [("scale", attention_scale.into()), ("enable_gqa", (heads != kv_heads).into())];
            self.builder("").one_with(aten::SCALED_DOT_PRODUCT_ATTENTION, args, &named)?
        } else {
            // The queries of heads that share keys are rows of one matrix.
            let (length, keys) = (Expr::Symbol(self.length), Expr::Int(cache.capacity as i64));
            let [shared, each, columns] = [kv_heads, heads / kv_heads, head_dim].map(|size| Expr::Int(size as i64));
            let rows = length.mul(each.clone());
            let q = self.view(q, vec![shared.clone(), rows.clone(), columns.clone()])?;
            let k = self.view(k, vec![shared.clone(), keys.clone(), columns.clone()])?;
            let v = self.view(v, vec![shared.clone(), keys.clone(), columns.clone()])?;
            let q = self.scaled(q, attention_scale)?;
            let k = self.permute(k, [0, 2, 1])?;
            let mut scores = self.call("", aten::BMM, vec![q.into(), k.into()])?;
            scores = self.capped(scores, cap)?;
            scores = self.view(scores, vec![shared.clone(), each, length.clone(), keys.clone()])?;
            let hidden = self.call("", aten::LOGICAL_NOT, vec![mask.into()])?;
            let args = vec![scores.into(), hidden.into(), f64::NEG_INFINITY.into()];
            scores = self.call("", aten::MASKED_FILL_SCALAR, args)?;
            scores = self.call("", aten::_SOFTMAX, vec![scores.into(), (-1).into(), false.into()])?;
            scores = self.view(scores, vec![shared, rows, keys])?;
            let output = self.call("", aten::BMM, vec![scores.into(), v.into()])?;
            self.view(output, vec![1.into(), (heads as i64).into(), length, columns])?
        };
        self.permute(output, [0, 2, 1, 3])
    }

    /// Returns the mask `[T, S]`: true where the query of the row sees the key of the column.
    fn mask(&mut self, cache: Cache, window: Option<usize>) -> Result<ValueId, Error> {
        let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
        let end = start.add(length);
        let keys = self.key_positions(cache, end.clone())?;
        let queries = self.positions(start, end)?;
        let queries = self.call("", aten::UNSQUEEZE_COPY, vec![queries.into(), 1.into()])?;
        let mut seen = self.call("", aten::LE_TENSOR, vec![keys.into(), queries.into()])?;
        if let Some(window) = window {
            let first = self.sub(aten::SUB_SCALAR, queries, (window as i64).into())?;
            let near = self.call("", aten::GT_TENSOR, vec![keys.into(), first.into()])?;
            seen = self.call("", aten::LOGICAL_AND, vec![seen.into(), near.into()])?;
        }
        if cache.is_ring {
            let written = self.call("", aten::GE_SCALAR, vec![keys.into(), 0.into()])?;
            seen = self.call("", aten::LOGICAL_AND, vec![seen.into(), written.into()])?;
        }
        Ok(seen)
    }

    /// Returns the positions in the slots of a cache after a call that ends before `end`; negative for empty slots.
    fn key_positions(&mut self, cache: Cache, end: Expr) -> Result<ValueId, Error> {
        let capacity = cache.capacity as i64;
        let slots = self.positions(0.into(), capacity.into())?;
        if !cache.is_ring {
            return Ok(slots);
        }
        let last = self.positions(end.add(-1), end)?;
        let ahead = self.sub(aten::SUB_TENSOR, last, slots.into())?;
        let age = self.call("", aten::REMAINDER_SCALAR, vec![ahead.into(), capacity.into()])?;
        self.sub(aten::SUB_TENSOR, last, age.into())
    }

    /// Returns the slots of a ring buffer that a call writes. If the call overwrote positions that its first query
    /// sees, it must fail, so its slots are out of bounds. That is so if the call begins more than `seq_len` before the
    /// end of the earlier calls.
    fn ring_slots(&mut self, cache: Cache) -> Result<ValueId, Error> {
        let capacity = cache.capacity as i64;
        let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
        let positions = self.positions(start.clone(), start.add(length))?;
        let slots = self.call("", aten::REMAINDER_SCALAR, vec![positions.into(), capacity.into()])?;
        let Some((_, written)) = self.written else {
            return Err(Error::invalid("a ring without the end of its positions"));
        };
        let first = self.positions(start.clone(), start.add(1))?;
        let back = self.sub(aten::SUB_TENSOR, written, first.into())?;
        let mut is_lost = self.call("", aten::GT_SCALAR, vec![back.into(), (self.limits.seq_len as i64).into()])?;
        for (value, least) in [(written, capacity), (first, 0)] {
            let exceeds = self.call("", aten::GT_SCALAR, vec![value.into(), least.into()])?;
            is_lost = self.call("", aten::LOGICAL_AND, vec![is_lost.into(), exceeds.into()])?;
        }
        let dtype = [("dtype", ScalarType::Long.into())];
        let is_lost = self.builder("").one_with(aten::_TO_COPY, vec![is_lost.into()], &dtype)?;
        let beyond = self.call("", aten::MUL_SCALAR, vec![is_lost.into(), capacity.into()])?;
        self.builder("").one_with(aten::ADD_TENSOR, vec![slots.into(), beyond.into()], &[("alpha", 1.into())])
    }

    /// Adds a state with the end of the positions that earlier calls wrote, if a layer has a ring buffer.
    fn written_positions(&mut self) -> Option<(StateId, ValueId)> {
        let has_ring = self.decoder.layers.iter().any(|layer| match layer {
            Layer::Attention { window, .. } => self.cache_of(*window).is_ring,
            Layer::Conv { .. } | Layer::DeltaNet => false,
        });
        has_ring.then(|| self.state("written_positions", TensorType::of(ScalarType::Long, &[1])))
    }

    /// Stores the end of this call's positions.
    fn update_written_positions(&mut self) -> Result<(), Error> {
        let Some((state, before)) = self.written else { return Ok(()) };
        let end = Expr::Symbol(self.start).add(Expr::Symbol(self.length));
        let end = self.positions(end.clone(), end.add(1))?;
        let index = Arg::List(vec![self.positions(0.into(), 1.into())?.into()]);
        let value = self.call("", aten::INDEX_PUT, vec![before.into(), index, end.into()])?;
        self.graph.updates.push(Update { target: Target::State(state), value });
        Ok(())
    }

    fn sub(&mut self, op: &str, a: ValueId, b: Arg) -> Result<ValueId, Error> {
        self.builder("").one_with(op, vec![a.into(), b], &[("alpha", 1.into())])
    }

    /// Adds the integers `start..end` as a tensor.
    fn positions(&mut self, start: Expr, end: Expr) -> Result<ValueId, Error> {
        let args = vec![start.into(), end.into(), 1.into()];
        self.builder("").one_with(aten::ARANGE_START_STEP, args, &[("dtype", ScalarType::Long.into())])
    }

    /// Writes rows `[1, T, heads, columns]` at the position of the call into a cache, and returns the cache.
    fn cached(&mut self, rows: ValueId, cache: Cache, index: usize, what: &str) -> Result<ValueId, Error> {
        let Decoder { kv_heads, head_dim, .. } = *self.decoder;
        let sizes = [1, cache.capacity as i64, kv_heads as i64, head_dim as i64];
        let ty = TensorType::of(ScalarType::Float, &sizes);
        let (state, before) = self.state(&format!("layers.{index}.{what}"), ty);
        let after = if cache.is_ring {
            let slots = self.ring_slots(cache)?;
            let indices = Arg::List(vec![Arg::None, slots.into()]);
            self.call("", aten::INDEX_PUT, vec![before.into(), indices, rows.into()])?
        } else {
            let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
            let end = start.add(length);
            let args = vec![before.into(), rows.into(), 1.into(), start.into(), end.into(), 1.into()];
            self.call("", aten::SLICE_SCATTER, args)?
        };
        self.graph.updates.push(Update { target: Target::State(state), value: after });
        Ok(after)
    }

    /// Adds a state of zeros. Returns it with its value at the start of a call.
    pub(crate) fn state(&mut self, name: &str, ty: TensorType) -> (StateId, ValueId) {
        let state = *self.named.states.entry(name.to_owned()).or_insert_with(|| {
            self.model.states.push(State { name: name.to_owned(), ty, initial: ConstantData::Zeros })
        });
        (state, self.graph.state(state, &self.model.states))
    }

    /// Adds LFM2's operator in place of attention: `C * conv(B * x)`. The projection gives `B`, `C` and `x`, and the
    /// convolution is causal.
    fn short_convolution(&mut self, x: ValueId, index: usize, prefix: &str, taps: usize) -> Result<ValueId, Error> {
        let (names, hidden) = (self.decoder.names.conv, self.decoder.hidden);
        let parts = self.linear(x, &format!("{prefix}{}", names.input), hidden, Some(3 * hidden))?;
        let [b, c, x] = self.split(parts, [hidden; 3])?;
        let gated = self.call("", aten::MUL_TENSOR, vec![b.into(), x.into()])?;
        let mixed = self.causal_convolution(gated, index, &format!("{prefix}{}", names.conv), [hidden, taps])?;
        let mixed = self.permute(mixed, [0, 2, 1])?;
        let mixed = self.call("", aten::MUL_TENSOR, vec![c.into(), mixed.into()])?;
        self.linear(mixed, &format!("{prefix}{}", names.output), hidden, Some(hidden))
    }

    /// Adds a causal depthwise convolution of `[1, T, channels]` over positions; the result is `[1, channels, T]`. The
    /// state holds the inputs of earlier calls that the filter sees.
    pub(crate) fn causal_convolution(
        &mut self,
        x: ValueId,
        index: usize,
        filter: &str,
        [channels, taps]: [usize; 2],
    ) -> Result<ValueId, Error> {
        let (width, kept) = (channels as i64, taps as i64 - 1);
        let x = self.permute(x, [0, 2, 1])?;
        let weight = self.weight(&format!("{filter}.weight"), &[channels, 1, taps])?;
        let bias = self.optional_bias(filter, channels)?;
        let mut seen = x;
        if kept > 0 {
            let (state, before) =
                self.state(&format!("layers.{index}.conv_state"), TensorType::of(ScalarType::Float, &[1, width, kept]));
            seen = self.call("", aten::CAT, vec![vec![before, x].into(), 2.into()])?;
            let length = Expr::Symbol(self.length);
            let (from, to) = (length.clone(), length.add(kept));
            let after = self.call("", aten::SLICE_COPY_TENSOR, vec![seen.into(), 2.into(), from.into(), to.into()])?;
            self.graph.updates.push(Update { target: Target::State(state), value: after });
        }
        let args = vec![
            seen.into(),
            weight.into(),
            bias,
            [1].into(),
            [0].into(),
            [1].into(),
            false.into(),
            [0].into(),
            width.into(),
        ];
        self.call(filter, aten::CONVOLUTION, args)
    }

    /// Adds the cosines and sines of a call's positions, for each kind of RoPE.
    fn rotations(&mut self) -> Result<Vec<Rotation>, Error> {
        // Extra rows, which no position uses, keep the slice inside of the table for every start and length.
        let rows = self.limits.context + self.limits.seq_len;
        let (length, start) = (Expr::Symbol(self.length), Expr::Symbol(self.start));
        let end = start.add(length);
        let mut rotations = Vec::with_capacity(self.decoder.ropes.len());
        for (number, rope) in self.decoder.ropes.iter().enumerate() {
            let columns = rope.columns();
            let ty = TensorType::of(ScalarType::Float, &[rows as i64, columns as i64]);
            let mut rows_of = |is_sine: bool| {
                let data = ConstantData::Computed(Arc::new(Table { rope: rope.clone(), rows, is_sine }));
                let name = format!("rope.{number}.{}", if is_sine { "sin" } else { "cos" });
                let table = self.constant(Constant { name, ty: ty.clone(), data });
                let mut builder = self.builder("rope");
                let args = vec![table.into(), 0.into(), start.clone().into(), end.clone().into()];
                let rows = builder.one(aten::SLICE_COPY_TENSOR, args)?;
                builder.one(aten::UNSQUEEZE_COPY, vec![rows.into(), 1.into()])
            };
            rotations.push(Rotation { cos: rows_of(false)?, sin: rows_of(true)?, columns });
        }
        Ok(rotations)
    }

    /// Rotates the first columns of heads `[1, T, heads, columns]`: each of the first half with its counterpart in the
    /// second half.
    fn rotated(&mut self, x: ValueId, rotation: Rotation) -> Result<ValueId, Error> {
        let Rotation { cos, sin, columns } = rotation;
        let width = self.decoder.head_dim;
        let (turning, kept) = if columns < width {
            let [turning, kept] = self.split(x, [columns, width - columns])?;
            (turning, Some(kept))
        } else {
            (x, None)
        };
        let [first, second] = self.split(turning, [columns / 2; 2])?;
        let second = self.call("", aten::NEG, vec![second.into()])?;
        let swapped = self.call("", aten::CAT, vec![vec![second, first].into(), (-1).into()])?;
        let straight = self.call("", aten::MUL_TENSOR, vec![turning.into(), cos.into()])?;
        let swapped = self.call("", aten::MUL_TENSOR, vec![swapped.into(), sin.into()])?;
        let turned = self.call("", aten::ADD_TENSOR, vec![straight.into(), swapped.into()])?;
        match kept {
            Some(kept) => self.call("", aten::CAT, vec![vec![turned, kept].into(), (-1).into()]),
            None => Ok(turned),
        }
    }

    /// Splits the last dimension.
    pub(crate) fn split<const N: usize>(&mut self, x: ValueId, widths: [usize; N]) -> Result<[ValueId; N], Error> {
        let widths: Vec<Expr> = widths.iter().map(|width| Expr::Int(*width as i64)).collect();
        let args = vec![x.into(), widths.into(), (-1).into()];
        let parts = self.builder("").call(aten::SPLIT_WITH_SIZES_COPY, args)?;
        parts.try_into().map_err(|_| Error::invalid(format!("a split that does not have {N} parts")))
    }

    /// Reshapes `[1, T, heads * columns]` to `[1, T, heads, columns]`.
    pub(crate) fn in_heads(&mut self, x: ValueId, heads: usize, columns: usize) -> Result<ValueId, Error> {
        let sizes = [heads, columns].map(|size| Expr::Int(size as i64));
        self.view(x, [vec![1.into(), Expr::Symbol(self.length)], sizes.to_vec()].concat())
    }

    /// Adds a linear layer, with a bias if the checkpoint has one. Without a given number of outputs, the weight's
    /// number is used.
    pub(crate) fn linear(
        &mut self,
        x: ValueId,
        module: &str,
        inputs: usize,
        outputs: Option<usize>,
    ) -> Result<ValueId, Error> {
        let name = format!("{module}.weight");
        let outputs = match outputs {
            Some(outputs) => outputs,
            None => self.tensors.take_optional(&name).and_then(|tensor| tensor.sizes.first().copied()).unwrap_or(1),
        };
        let weight = self.weight(&name, &[outputs, inputs])?;
        let bias = self.optional_bias(module, outputs)?;
        let y = self.call(module, aten::LINEAR, vec![x.into(), weight.into(), bias])?;
        let Some((module, kind)) = self.decoder.published_linear(module) else { return Ok(y) };
        let adapted = self.adapted.get(&module).copied();
        self.linears.push(Linear { module, kind, inputs, outputs });
        match adapted {
            Some(adapted) => self.adapt(x, y, adapted),
            None => Ok(y),
        }
    }

    /// Adds the low-rank update of a layer to its output. The matrices of all layers of its kind are in one input.
    fn adapt(&mut self, x: ValueId, y: ValueId, adapted: Adapted) -> Result<ValueId, Error> {
        let mut row = x;
        for matrices in [adapted.a, adapted.b] {
            let matrix = self.call("", aten::SELECT_COPY_INT, vec![matrices.into(), 0.into(), adapted.index.into()])?;
            row = self.call("", aten::LINEAR, vec![row.into(), matrix.into(), Arg::None])?;
        }
        self.call("", aten::ADD_TENSOR, vec![y.into(), row.into()])
    }

    fn optional_bias(&mut self, module: &str, outputs: usize) -> Result<Arg, Error> {
        let Some(bias) = self.tensors.take_optional(&format!("{module}.bias")) else { return Ok(Arg::None) };
        let bias = dense(bias.of_sizes(&[outputs])?, |x| x)?;
        Ok(self.constant(bias).into())
    }

    fn optional_norm(&mut self, x: ValueId, module: Option<String>) -> Result<ValueId, Error> {
        match module {
            Some(module) => {
                let hidden = self.decoder.hidden;
                self.norm(x, &module, hidden)
            }
            None => Ok(x),
        }
    }

    /// Adds a root-mean-square norm over the last dimension.
    fn norm(&mut self, x: ValueId, module: &str, width: usize) -> Result<ValueId, Error> {
        self.norm_with(x, module, width, self.decoder.norm_offset)
    }

    /// As [`norm`](Self::norm), with its own offset that is added to the weights.
    pub(crate) fn norm_with(&mut self, x: ValueId, module: &str, width: usize, offset: f32) -> Result<ValueId, Error> {
        let weight = self.tensors.take(&format!("{module}.weight"), &[width])?;
        let weight = dense(weight, |x| x + offset)?;
        let eps = self.decoder.eps;
        let weight = self.constant(weight);
        self.call(module, aten::RMS_NORM, vec![x.into(), [width as i64].into(), weight.into(), eps.into()])
    }

    fn scaled(&mut self, x: ValueId, factor: f64) -> Result<ValueId, Error> {
        if factor == 1.0 { Ok(x) } else { self.call("", aten::MUL_SCALAR, vec![x.into(), factor.into()]) }
    }

    /// Adds `cap * tanh(x / cap)`.
    fn capped(&mut self, x: ValueId, cap: Option<f64>) -> Result<ValueId, Error> {
        let Some(cap) = cap else { return Ok(x) };
        let x = self.scaled(x, 1.0 / cap)?;
        let x = self.call("", aten::TANH, vec![x.into()])?;
        self.scaled(x, cap)
    }

    pub(crate) fn permute<const N: usize>(&mut self, x: ValueId, dims: [i64; N]) -> Result<ValueId, Error> {
        self.call("", aten::PERMUTE_COPY, vec![x.into(), dims.into()])
    }

    pub(crate) fn view(&mut self, x: ValueId, shape: Vec<Expr>) -> Result<ValueId, Error> {
        self.call("", aten::VIEW_COPY, vec![x.into(), shape.into()])
    }

    /// Returns the size of the last dimension.
    fn width(&self, x: ValueId) -> Result<usize, Error> {
        let width = self.graph.tensor(x)?.shape.last().and_then(Expr::as_int);
        width.and_then(|width| usize::try_from(width).ok()).ok_or_else(|| Error::invalid("a tensor without a width"))
    }

    fn weight(&mut self, name: &str, sizes: &[usize]) -> Result<ValueId, Error> {
        let constant = self.tensors.take(name, sizes)?.constant();
        Ok(self.constant(constant))
    }

    /// Returns the value of a constant, which another method may have added already.
    pub(crate) fn constant(&mut self, constant: Constant) -> ValueId {
        let constants = &mut self.model.constants;
        let id = *self.named.constants.entry(constant.name.clone()).or_insert_with(|| constants.push(constant));
        self.graph.constant(id, &self.model.constants)
    }

    /// Adds a call of an operator with one result, in a module.
    pub(crate) fn call(&mut self, module: &str, name: &str, args: Vec<Arg>) -> Result<ValueId, Error> {
        self.builder(module).one(name, args)
    }

    pub(crate) fn builder(&mut self, module: &str) -> Builder<'_> {
        let (body, origin) = (self.graph.body, self.graph.origins.push(origin(module)));
        Builder::new(&mut self.graph, &mut self.model.constants, &self.model.schemas, body, origin)
    }
}

fn origin(module: &str) -> Origin {
    Origin { node: String::new(), module: module.to_owned(), frames: Arc::default() }
}

/// Decodes a small weight to floats, and applies a function to each.
pub(crate) fn dense(tensor: Tensor, function: impl Fn(f32) -> f32) -> Result<Constant, Error> {
    let sizes: Vec<i64> = tensor.sizes.iter().map(|size| *size as i64).collect();
    let bytes: Vec<u8> = tensor.floats().iter().flat_map(|x| function(*x).to_le_bytes()).collect();
    Constant::dense(tensor.name, TensorType::of(ScalarType::Float, &sizes), bytes)
}

/// Refuses weights whose width differs from the configuration.
fn check_width(key: &str, expected: Option<usize>, width: usize) -> Result<(), Error> {
    match expected.filter(|expected| *expected != width) {
        None => Ok(()),
        Some(expected) => Err(damaged(format!("the weights do not have `{key}` of the configuration"))
            .expected(format!("{expected} columns"))
            .got(width)),
    }
}
