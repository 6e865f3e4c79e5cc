//! Programs that are language models.

use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};
use rushlight::{
    BatchCall, Code, Fingerprint, Input, MethodBatch, Module, Program, ScalarType, TensorInfo, TensorView, Value,
    ValueInfo,
};
use rushlight_checkpoint::lora;

use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::session::{Session, State};

/// A program that takes tokens and returns logits: `forward(tokens: i64[1, T], …) -> [1, vocabulary]` or `[1, T,
/// vocabulary]` of f32, f16 or bf16. Some programs have the methods `prefill` and `decode` instead.
///
/// The second input holds positions: one number is the position of the first token, several numbers are the positions
/// of all tokens. A program without it has no KV cache, and computes the whole context at each call.
///
/// If a program's method `returns_hidden_states` returns true, it returns the hidden states of all tokens, `[1, T,
/// hidden]`, in place of logits. Such a program computes embeddings ([`Session::embed`]), and generates nothing.
#[derive(Debug)]
pub struct Model {
    module: Module,
    /// The method for several tokens, and the method for one token.
    methods: [String; 2],
    positions: Positions,
    output: Output,
    /// Number of elements of a row of the output.
    width: usize,
    limits: Limits,
    /// The method for one token as a batch of several sessions.
    batch: MethodBatch,
    /// The same for sessions with adapters. It is made when the first such sessions are batched.
    adapted_batch: Option<MethodBatch>,
    /// Maximum number of sessions in a batch: without adapters, and with adapters.
    max_batch: [usize; 2],
    /// The adapter of new sessions.
    adapter: Option<Adapter>,
    /// The fingerprint of the program.
    fingerprint: Fingerprint,
    /// Shared with the session whose KV cache is in planned memory of the program, if there is one.
    planned: Arc<()>,
}

/// Metadata of a model: the results of its metadata methods, and the size of its logits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of tokens in a call. Longer prompts are split into several calls.
    pub max_seq_len: usize,
    /// Number of positions of the KV cache.
    pub max_context_len: usize,
    /// Number of tokens in the vocabulary, which is the number of logits.
    pub vocab_size: usize,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
}

/// Maximum number of sessions in a call. Each session takes memory for intermediate results and outputs. Larger batches
/// take several calls.
const MAX_BATCH: usize = 16;

/// The output of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    LastLogits,
    AllLogits,
    HiddenStates,
}

/// The metadata method of programs that return hidden states.
const HIDDEN_STATES: &str = "returns_hidden_states";

/// The second input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Positions {
    /// There is no such input, and no cache.
    None,
    /// The position of the first token.
    Start,
    /// The positions of all tokens.
    Each,
}

impl Model {
    /// Loads a program, lowered for this machine.
    ///
    /// # Errors
    /// Those of [`Module::load`], and `NotLanguageModel`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(Module::load(path)?)
    }

    /// Wraps a loaded module.
    ///
    /// # Errors
    /// `NotLanguageModel`, with the missing property.
    pub fn new(mut module: Module) -> Result<Self> {
        let has = |module: &Module, name: &str| module.method_names().any(|known| known == name);
        let methods = if has(&module, "forward") {
            ["forward", "forward"]
        } else if has(&module, "prefill") && has(&module, "decode") {
            ["prefill", "decode"]
        } else {
            return Err(Error::not_a_model("it has no method `forward`, nor `prefill` and `decode`"));
        };
        let methods = methods.map(str::to_owned);
        let meta = module.meta(&methods[0])?;
        let (tokens, positions) = match &meta.inputs[..] {
            [ValueInfo::Tensor(tokens)] => (tokens, Positions::None),
            [ValueInfo::Tensor(tokens), ValueInfo::Tensor(second)] => {
                is_integers(second, "the second input")?;
                let is_one = second.sizes.iter().product::<usize>() == 1;
                (tokens, if is_one && tokens.sizes != [1, 1] { Positions::Start } else { Positions::Each })
            }
            inputs => return Err(Error::not_a_model(format!("`{}` has {} inputs", meta.name, inputs.len()))),
        };
        is_integers(tokens, "the first input")?;
        let [1, longest] = tokens.sizes[..] else {
            return Err(Error::not_a_model(format!("its tokens are of the shape {:?}", tokens.sizes)));
        };
        if !tokens.is_dynamic && longest != 1 {
            return Err(Error::not_a_model(format!(
                "a call has exactly {longest} tokens: export with a dynamic length"
            )));
        }
        let Some(ValueInfo::Tensor(result)) = meta.outputs.first() else {
            return Err(Error::not_a_model(format!("`{}` returns no tensor", meta.name)));
        };
        let Some(width) = result.sizes.last().copied().filter(|size| *size > 0) else {
            return Err(Error::not_a_model("its result is one number"));
        };
        let has_hidden_states =
            has(&module, HIDDEN_STATES) && matches!(module.run(HIDDEN_STATES, &[])?.first(), Some(Value::Bool(true)));
        let output = match result.sizes[..] {
            [1, _, _] if has_hidden_states => Output::HiddenStates,
            _ if has_hidden_states => {
                let problem = format!("its hidden states are of the shape {:?}, not those of all tokens", result.sizes);
                return Err(Error::not_a_model(problem));
            }
            [1, rows, _] if rows > 1 => Output::AllLogits,
            _ => Output::LastLogits,
        };
        let mut number = |name: &str| numbers(&mut module, name).map(|numbers| numbers.first().copied());
        let declared_seq_len = number("get_max_seq_len")?;
        let max_seq_len = declared_seq_len.map_or(longest, |len| longest.min(len as usize)).max(1);
        // In programs without this method, `get_max_seq_len` is the context length.
        let context = number("get_max_context_len")?.or(declared_seq_len);
        let mut max_context_len = context.map_or(longest, |len| len as usize).max(max_seq_len);
        if positions == Positions::None {
            // A call takes the whole context.
            max_context_len = max_seq_len;
        }
        let vocab_size = match output {
            Output::HiddenStates => number("get_vocab_size")?
                .map(|size| size as usize)
                .ok_or_else(|| Error::not_a_model("it has no method `get_vocab_size`"))?,
            Output::LastLogits | Output::AllLogits => width,
        };
        let bos = number("get_bos_id")?.and_then(|id| u32::try_from(id).ok());
        let mut eos = numbers(&mut module, "get_eos_ids")?;
        if eos.is_empty() {
            eos = numbers(&mut module, "get_eos_id")?;
        }
        let eos = eos.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
        let limits = Limits { max_seq_len, max_context_len, vocab_size, bos, eos };
        let batch = module.batch(&methods[1])?;
        let fingerprint = module.fingerprint();
        let max_batch = if positions == Positions::None { 1 } else { MAX_BATCH };
        Ok(Self {
            module,
            methods,
            positions,
            output,
            width,
            limits,
            batch,
            adapted_batch: None,
            max_batch: [max_batch; 2],
            adapter: None,
            fingerprint,
            planned: Arc::new(()),
        })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the module, for its report and options.
    pub fn module(&mut self) -> &mut Module {
        &mut self.module
    }

    pub(crate) fn program(&self) -> &Program<'static> {
        self.module.program()
    }

    /// Returns the inputs of a method, if there is one with this name.
    pub(crate) fn method_inputs(&self, name: &str) -> Option<Vec<ValueInfo>> {
        Some(self.module.meta(name).ok()?.inputs)
    }

    /// Sets the adapter of future sessions, or none.
    ///
    /// # Errors
    /// `AdapterOfAnotherModel` and `NoAdapters`.
    pub fn set_adapter(&mut self, adapter: Option<Adapter>) -> Result<()> {
        adapter.iter().try_for_each(|adapter| self.check_adapter(adapter))?;
        self.adapter = adapter;
        Ok(())
    }

    /// True for a program that was compiled with a rank for adapters.
    pub fn takes_adapters(&self) -> bool {
        self.method_inputs(lora::METHOD).is_some()
    }

    /// The adapter of new sessions.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.adapter.as_ref()
    }

    /// Makes a session with the adapter of [`set_adapter`](Self::set_adapter). If a backend keeps the KV cache, any
    /// number of sessions can share the weights.
    ///
    /// # Errors
    /// `NotSupported` if the reference operators keep the cache in planned memory of the program: for a second session
    /// while the first lives, and for programs with `prefill` and `decode`.
    pub fn session(&mut self) -> Result<Session> {
        // The adapter was checked when it was set.
        self.new_session(self.adapter.clone())
    }

    /// As [`session`](Self::session), with this adapter, or none.
    ///
    /// # Errors
    /// The errors of `session`, `AdapterOfAnotherModel` and `NoAdapters`.
    pub fn session_with(&mut self, adapter: Option<Adapter>) -> Result<Session> {
        adapter.iter().try_for_each(|adapter| self.check_adapter(adapter))?;
        self.new_session(adapter)
    }

    fn new_session(&mut self, adapter: Option<Adapter>) -> Result<Session> {
        match self.module.session() {
            Ok(session) => Ok(Session::new(State::Own(session), adapter, self.fingerprint.clone())),
            Err(error) if error.code() == Code::NotSupported => {
                if self.methods[0] != self.methods[1] {
                    return Err(Error::NotSupported("`prefill` and `decode` do not share it"));
                }
                if Arc::strong_count(&self.planned) > 1 {
                    return Err(Error::NotSupported("there is one session at a time"));
                }
                self.clear_states();
                Ok(Session::new(State::InModule(self.planned.clone()), adapter, self.fingerprint.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// True if each call computes all tokens from the first one on.
    pub(crate) fn has_no_cache(&self) -> bool {
        self.positions == Positions::None
    }

    /// Returns the maximum length of a call that adds some of `count` tokens. Without a cache, one call adds all:
    /// several would compute earlier tokens again.
    pub(crate) fn max_call_len(&self, count: usize) -> usize {
        if self.has_no_cache() { count } else { self.limits.max_seq_len }
    }

    /// True if a call returns the logits of all of its tokens, false if only those of the last.
    pub(crate) fn has_all_logits(&self) -> bool {
        self.output == Output::AllLogits
    }

    /// Number of elements of an embedding; `None` for a program that returns logits.
    pub fn embedding_size(&self) -> Option<usize> {
        (self.output == Output::HiddenStates).then_some(self.width)
    }

    /// Clears the states in the memory of the program.
    pub(crate) fn clear_states(&mut self) {
        let names: Vec<String> = self.module.method_names().map(str::to_owned).collect();
        names.iter().for_each(|name| self.module.unload_method(name));
    }

    /// Runs a call of at most `max_seq_len` tokens; the first is at `position`.
    pub(crate) fn call(
        &mut self,
        state: &mut State,
        adapter: Option<&Adapter>,
        tokens: &[u32],
        position: usize,
    ) -> Result<Rows> {
        let arguments = Arguments::new(self.positions, tokens, position);
        let inputs = arguments.inputs(adapter)?;
        let method = match adapter {
            Some(_) => lora::METHOD,
            None => &self.methods[usize::from(tokens.len() == 1)],
        };
        let outputs = match state {
            State::Own(session) => self.module.call(method).inputs(&inputs).session(session).run()?,
            State::InModule(_) => self.module.run(method, &inputs)?,
        };
        Rows::of(outputs, self.width)
    }

    /// Returns the maximum number of sessions, of `wanted`, in one call, and reserves memory for them.
    pub(crate) fn batch_size(&mut self, wanted: usize, is_adapted: bool) -> usize {
        let kind = usize::from(is_adapted);
        let size = wanted.min(self.max_batch[kind]);
        if size > 1 && self.reserve_batch(size, is_adapted).is_err() {
            // There is not enough memory. One session after the other is slower, but works.
            self.max_batch[kind] = 1;
        }
        size.min(self.max_batch[kind])
    }

    fn reserve_batch(&mut self, size: usize, is_adapted: bool) -> Result<()> {
        if is_adapted && self.adapted_batch.is_none() {
            self.adapted_batch = Some(self.module.batch(lora::METHOD)?);
        }
        let adapted = self.adapted_batch.as_mut().filter(|_| is_adapted);
        Ok(adapted.unwrap_or(&mut self.batch).reserve(&mut self.module, size)?)
    }

    /// Adds a token to each session, at its position. All of them have adapters, or none.
    pub(crate) fn call_batch(&mut self, calls: Vec<SessionCall<'_>>) -> Result<Vec<Rows>> {
        let is_adapted = calls.iter().any(|call| call.adapter.is_some());
        let arguments: Vec<_> =
            calls.iter().map(|call| Arguments::new(self.positions, &[call.token], call.position)).collect();
        let inputs = arguments.iter().zip(&calls).map(|(arguments, call)| arguments.inputs(call.adapter));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let calls = calls.into_iter().zip(&inputs);
        let mut calls: Vec<_> = calls.map(|(call, inputs)| BatchCall { session: call.state, inputs }).collect();
        let adapted = self.adapted_batch.as_mut().filter(|_| is_adapted);
        let outputs = adapted.unwrap_or(&mut self.batch).run(&mut self.module, &mut calls)?;
        outputs.into_iter().map(|outputs| Rows::of(outputs, self.width)).collect()
    }
}

/// A token for one session in a batch.
pub(crate) struct SessionCall<'c> {
    pub state: &'c mut rushlight::Session,
    pub adapter: Option<&'c Adapter>,
    pub token: u32,
    pub position: usize,
}

/// The tokens of a call and their positions.
struct Arguments {
    tokens: Vec<i64>,
    /// No position, the position of the first token, or the positions of all.
    positions: Vec<i64>,
    sizes: [usize; 2],
    count: [usize; 1],
}

impl Arguments {
    fn new(form: Positions, tokens: &[u32], position: usize) -> Self {
        let tokens: Vec<i64> = tokens.iter().map(|token| i64::from(*token)).collect();
        let positions: Vec<i64> = match form {
            Positions::None => Vec::new(),
            Positions::Start => vec![position as i64],
            Positions::Each => (position..position + tokens.len()).map(|position| position as i64).collect(),
        };
        let (sizes, count) = ([1, tokens.len()], [positions.len()]);
        Self { tokens, positions, sizes, count }
    }

    fn inputs<'i>(&'i self, adapter: Option<&'i Adapter>) -> Result<Vec<Input<'i>>> {
        let mut inputs: Vec<Input<'_>> =
            vec![TensorView::of(&self.sizes, &self.tokens).map_err(rushlight::Error::from)?.into()];
        if !self.positions.is_empty() {
            inputs.push(TensorView::of(&self.count, &self.positions).map_err(rushlight::Error::from)?.into());
        }
        if let Some(adapter) = adapter {
            inputs.extend(adapter.inputs()?);
        }
        Ok(inputs)
    }
}

/// The logits or hidden states of a call, `[rows, width]`: of all of its tokens, or of the last.
#[derive(Debug)]
pub(crate) struct Rows {
    outputs: Vec<Value>,
    width: usize,
    rows: usize,
}

impl Rows {
    fn of(outputs: Vec<Value>, width: usize) -> Result<Self> {
        let Some(Value::Tensor(tensor)) = outputs.first() else {
            return Err(Error::not_a_model("it returned no tensor"));
        };
        if !matches!(tensor.dtype(), ScalarType::Float | ScalarType::Half | ScalarType::BFloat16) {
            return Err(Error::not_a_model(format!("its result is of {}", tensor.dtype().name())));
        }
        let rows = tensor.bytes().len() / (width * tensor.dtype().size());
        if rows == 0 {
            return Err(Error::not_a_model(format!("its result is of the shape {:?}", tensor.shape())));
        }
        Ok(Self { outputs, width, rows })
    }

    /// Number of tokens with a row.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Reads the row of a token as f32, counted from the last token, which is 0. Reads nothing if there is no such row.
    pub(crate) fn read_from_end(&self, index: usize, to: &mut Vec<f32>) {
        to.clear();
        let (Some(Value::Tensor(tensor)), Some(row)) = (self.outputs.first(), self.rows.checked_sub(index + 1)) else {
            return;
        };
        let len = self.width * tensor.dtype().size();
        let bytes = tensor.bytes().get(row * len..(row + 1) * len).unwrap_or_default();
        match tensor.dtype() {
            ScalarType::Half => to.extend(bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32())),
            ScalarType::BFloat16 => {
                to.extend(bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()));
            }
            _ => to.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))),
        }
    }
}

fn is_integers(info: &TensorInfo, what: &str) -> Result<()> {
    match info.dtype {
        ScalarType::Long => Ok(()),
        dtype => Err(Error::not_a_model(format!("{what} is of {}", dtype.name()))),
    }
}

/// Returns the results of a metadata method; none if the program does not have it.
fn numbers(module: &mut Module, name: &str) -> Result<Vec<i64>> {
    if !module.method_names().any(|known| known == name) {
        return Ok(Vec::new());
    }
    let number = |value: Value| match value {
        Value::Int(number) if number >= 0 => Some(number),
        _ => None,
    };
    Ok(module.run(name, &[])?.into_iter().filter_map(number).collect())
}
