//! Calls of a model: their inputs, and the rows that they return.

use std::borrow::Cow;
use std::future::poll_fn;
use std::slice;
use std::task::Poll;

use half::{bf16, f16};
use rushlight::runtime::{Output, Outputs};
use rushlight::{BatchCall, Call, Input, Module, ScalarType, Submission, TensorView};
use rushlight_checkpoint::lora;

use super::signature::{Positions, TOKEN_EMBEDDING};
use super::{Model, State};
use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::prompt::Part;

/// A token for one session in a batch.
pub(crate) struct SessionCall<'c> {
    pub state: &'c mut rushlight::Session,
    pub adapter: Option<&'c Adapter>,
    pub token: u32,
    pub position: usize,
    /// Gets the logits after the token.
    pub logits: &'c mut Vec<f32>,
}

impl Model {
    /// Runs a call of at most `max_seq_len` positions; the first is `position`. `read` gets the output where it is.
    pub(crate) fn call<R>(
        &mut self,
        state: &mut State,
        adapter: Option<&Adapter>,
        part: Part<'_>,
        position: usize,
        read: impl FnOnce(&Rows<'_>) -> Result<R>,
    ) -> Result<R> {
        let embedded = self.embedded(part)?;
        let arguments = self.arguments(part, &embedded, position);
        let inputs = arguments.inputs(adapter)?;
        let width = self.signature.width;
        let call = with_state(&mut self.module, method(&self.signature.methods, adapter, part.len()), state);
        call.inputs(&inputs).read(|outputs| Ok(Rows::of(outputs, width).and_then(|rows| read(&rows))))?
    }

    /// As [`call`](Self::call), but submits the call. The future is pending while a device works.
    pub(crate) async fn submit<R>(
        &mut self,
        state: &mut State,
        adapter: Option<&Adapter>,
        part: Part<'_>,
        position: usize,
        read: impl FnOnce(&Rows<'_>) -> Result<R>,
    ) -> Result<R> {
        let embedded = self.submit_embedded(part).await?;
        let arguments = self.arguments(part, &embedded, position);
        let inputs = arguments.inputs(adapter)?;
        let width = self.signature.width;
        let call = with_state(&mut self.module, method(&self.signature.methods, adapter, part.len()), state);
        let mut call = call.inputs(&inputs);
        let submission = complete(call.submit()?).await?;
        submission.read(|outputs| Ok(Rows::of(outputs, width).and_then(|rows| read(&rows))))?
    }

    /// Returns the embeddings of a part of tokens, as rows. Returns none for a program that takes tokens, and for
    /// other parts.
    fn embedded(&mut self, part: Part<'_>) -> Result<Vec<f32>> {
        let mut embedded = Vec::new();
        let (Part::Tokens(tokens), Some(embedding)) = (part, self.signature.embedding) else { return Ok(embedded) };
        for tokens in tokens.chunks(embedding.longest) {
            let arguments = Arguments::new(Positions::None, Part::Tokens(tokens), 0);
            let inputs = arguments.inputs(None)?;
            let call = self.module.call(TOKEN_EMBEDDING).inputs(&inputs);
            call.read(|outputs| Ok(Rows::of(outputs, embedding.dim).map(|rows| rows.append_to(&mut embedded))))??;
        }
        Ok(embedded)
    }

    /// As [`embedded`](Self::embedded), but submits the calls.
    async fn submit_embedded(&mut self, part: Part<'_>) -> Result<Vec<f32>> {
        let mut embedded = Vec::new();
        let (Part::Tokens(tokens), Some(embedding)) = (part, self.signature.embedding) else { return Ok(embedded) };
        for tokens in tokens.chunks(embedding.longest) {
            let arguments = Arguments::new(Positions::None, Part::Tokens(tokens), 0);
            let inputs = arguments.inputs(None)?;
            let mut call = self.module.call(TOKEN_EMBEDDING).inputs(&inputs);
            let submission = complete(call.submit()?).await?;
            submission
                .read(|outputs| Ok(Rows::of(outputs, embedding.dim).map(|rows| rows.append_to(&mut embedded))))??;
        }
        Ok(embedded)
    }

    /// Returns the arguments for a part, or for the embeddings of its tokens.
    fn arguments<'a>(&self, part: Part<'a>, embedded: &'a [f32], position: usize) -> Arguments<'a> {
        let part = match self.signature.embedding {
            Some(embedding) if !embedded.is_empty() => Part::Embeddings { rows: embedded, dim: embedding.dim },
            _ => part,
        };
        Arguments::new(self.signature.positions, part, position)
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
    pub(crate) fn call_batch(&mut self, calls: Vec<SessionCall<'_>>) -> Result<()> {
        let is_adapted = calls.iter().any(|call| call.adapter.is_some());
        let tokens: Vec<u32> = calls.iter().map(|call| call.token).collect();
        let embedded = self.embedded(Part::Tokens(&tokens))?;
        let dim = embedded.len() / tokens.len().max(1);
        let arguments = calls.iter().zip(&tokens).enumerate().map(|(index, (call, token))| {
            let rows = embedded.get(index * dim..(index + 1) * dim).unwrap_or_default();
            self.arguments(Part::Tokens(slice::from_ref(token)), rows, call.position)
        });
        let arguments: Vec<_> = arguments.collect();
        let inputs = arguments.iter().zip(&calls).map(|(arguments, call)| arguments.inputs(call.adapter));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let (mut logits, mut batch) = (Vec::new(), Vec::new());
        for (call, inputs) in calls.into_iter().zip(&inputs) {
            logits.push(call.logits);
            batch.push(BatchCall { session: call.state, inputs });
        }
        let (mut logits, width) = (logits.into_iter(), self.signature.width);
        let adapted = self.adapted_batch.as_mut().filter(|_| is_adapted);
        let read = adapted.unwrap_or(&mut self.batch).read(&mut self.module, &mut batch, |outputs| {
            let rows = Rows::of(outputs, width);
            Ok(rows.map(|rows| logits.next().into_iter().for_each(|logits| rows.read_from_end(0, logits))))
        });
        read?.into_iter().collect()
    }
}

/// The method of a call of `len` positions.
fn method<'m>(methods: &'m [String; 2], adapter: Option<&Adapter>, len: usize) -> &'m str {
    match adapter {
        Some(_) => lora::METHOD,
        None => &methods[usize::from(len == 1)],
    }
}

/// A call with the KV cache of a session.
fn with_state<'m, 'i>(module: &'m mut Module, method: &'m str, state: &'m mut State) -> Call<'m, 'i> {
    let call = module.call(method);
    match state {
        State::Own(session) => call.session(session),
        State::InModule(_) => call,
    }
}

/// Polls a submission until it is complete.
async fn complete(mut submission: Submission<'_>) -> Result<Submission<'_>> {
    poll_fn(|context| {
        let polled = submission.poll();
        if let Ok(Poll::Pending) = polled {
            // Delegates wake nobody: an executor polls again after its other tasks.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(polled.map(drop))
    })
    .await?;
    Ok(submission)
}

/// The inputs of a call, without those of an adapter.
struct Arguments<'a> {
    first: First<'a>,
    /// No position, the position of the first token, or the positions of all.
    positions: Vec<i64>,
    count: [usize; 1],
}

/// The first input: tokens `[1, T]`, or rows `[1, T, dim]`.
enum First<'a> {
    Tokens(Vec<i64>, [usize; 2]),
    Rows(&'a [f32], [usize; 3]),
}

impl<'a> Arguments<'a> {
    fn new(form: Positions, part: Part<'a>, position: usize) -> Self {
        let len = part.len();
        let first = match part {
            Part::Tokens(tokens) => First::Tokens(tokens.iter().map(|token| i64::from(*token)).collect(), [1, len]),
            Part::Embeddings { rows, dim } => First::Rows(rows, [1, len, dim]),
        };
        let positions: Vec<i64> = match form {
            Positions::None => Vec::new(),
            Positions::Start => vec![position as i64],
            Positions::Each => (position..position + len).map(|position| position as i64).collect(),
        };
        let count = [positions.len()];
        Self { first, positions, count }
    }

    fn inputs<'i>(&'i self, adapter: Option<&'i Adapter>) -> Result<Vec<Input<'i>>> {
        let first = match &self.first {
            First::Tokens(tokens, sizes) => TensorView::of(sizes, tokens),
            First::Rows(rows, sizes) => TensorView::of(sizes, rows),
        };
        let mut inputs: Vec<Input<'_>> = vec![first.map_err(rushlight::Error::from)?.into()];
        if !self.positions.is_empty() {
            inputs.push(TensorView::of(&self.count, &self.positions).map_err(rushlight::Error::from)?.into());
        }
        if let Some(adapter) = adapter {
            inputs.extend(adapter.inputs()?);
        }
        Ok(inputs)
    }
}

/// The rows of a call's output, `[rows, width]`, in the method's memory. There is one for each position, or one for the
/// last.
#[derive(Debug)]
pub(crate) struct Rows<'o> {
    dtype: ScalarType,
    /// Row-major. A copy if the method wrote the elements in another order.
    bytes: Cow<'o, [u8]>,
    width: usize,
    rows: usize,
}

impl<'o> Rows<'o> {
    fn of(outputs: &'o Outputs<'_, '_>, width: usize) -> Result<Self> {
        let Output::Tensor(tensor) = outputs.get(0).map_err(rushlight::Error::from)? else {
            return Err(Error::not_a_model("it returned no tensor"));
        };
        let dtype = tensor.dtype();
        if !matches!(dtype, ScalarType::Float | ScalarType::Half | ScalarType::BFloat16) {
            return Err(Error::not_a_model(format!("its result is of {}", dtype.name())));
        }
        let bytes = if tensor.is_contiguous() {
            Cow::Borrowed(tensor.bytes())
        } else {
            Cow::Owned(rushlight::Tensor::copy_of(&tensor.into())?.bytes().to_vec())
        };
        let rows = bytes.len() / (width * dtype.size());
        if rows == 0 {
            return Err(Error::not_a_model(format!("its result is of the shape {:?}", tensor.sizes())));
        }
        Ok(Self { dtype, bytes, width, rows })
    }

    /// Number of positions with a row.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Reads the row of a position as f32. Positions count backwards from the last, which is 0. Reads nothing if there is no
    /// such row.
    pub(crate) fn read_from_end(&self, index: usize, to: &mut Vec<f32>) {
        to.clear();
        let Some(row) = self.rows.checked_sub(index + 1) else { return };
        let len = self.width * self.dtype.size();
        self.append(self.bytes.get(row * len..(row + 1) * len).unwrap_or_default(), to);
    }

    /// The rows of the last `count` positions as f32.
    pub(crate) fn last(&self, count: usize) -> Vec<f32> {
        let start = self.rows.saturating_sub(count) * self.width * self.dtype.size();
        let mut rows = Vec::with_capacity(count * self.width);
        self.append(self.bytes.get(start..).unwrap_or_default(), &mut rows);
        rows
    }

    /// Appends all rows as f32.
    fn append_to(&self, to: &mut Vec<f32>) {
        self.append(&self.bytes, to);
    }

    fn append(&self, bytes: &[u8], to: &mut Vec<f32>) {
        match self.dtype {
            ScalarType::Half => to.extend(bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32())),
            ScalarType::BFloat16 => {
                to.extend(bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()));
            }
            _ => to.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))),
        }
    }
}
