//! The methods of a program, and the shapes of their inputs and outputs.

use rushlight::{MethodMeta, Module, ScalarType, TensorInfo, Value, ValueInfo};

use crate::error::{Error, Result};
use crate::model::Limits;

/// The methods that compute logits or hidden states from tokens or rows of embeddings.
#[derive(Debug)]
pub(super) struct Signature {
    /// The method for several positions, and the method for one.
    pub methods: [String; 2],
    pub positions: Positions,
    pub output: Output,
    /// Number of elements of a row of the output.
    pub width: usize,
    /// The method that turns tokens into the rows that `methods` take; `None` if they take tokens.
    pub embedding: Option<TokenEmbedding>,
    /// Maximum number of positions of a call.
    longest: usize,
}

/// The method that turns tokens `i64[1, T]` into rows `f32[1, T, dim]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenEmbedding {
    pub dim: usize,
    /// Maximum number of tokens of a call.
    pub longest: usize,
}

/// The names that ExecuTorch's multimodal programs give their methods.
pub(super) const TOKEN_EMBEDDING: &str = "token_embedding";
const TEXT_DECODER: &str = "text_decoder";

/// The metadata method of programs that return hidden states.
const HIDDEN_STATES: &str = "returns_hidden_states";

/// The output of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    LastLogits,
    AllLogits,
    HiddenStates,
}

/// The second input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Positions {
    /// There is no such input, and no cache.
    None,
    /// The position of the first token.
    Start,
    /// The positions of all tokens.
    Each,
}

impl Signature {
    /// Finds the methods of a program.
    ///
    /// # Errors
    /// `NotLanguageModel`, with the missing property.
    pub fn of(module: &mut Module) -> Result<Self> {
        let has = |name: &str| has(module, name);
        let (methods, takes_rows) = if has("forward") {
            (["forward", "forward"], false)
        } else if has("prefill") && has("decode") {
            (["prefill", "decode"], false)
        } else if has(TOKEN_EMBEDDING) && has(TEXT_DECODER) {
            ([TEXT_DECODER, TEXT_DECODER], true)
        } else {
            return Err(Error::not_a_model(
                "it has no method `forward`, nor `prefill` and `decode`, nor `token_embedding` and `text_decoder`",
            ));
        };
        let meta = module.meta(methods[0])?;
        let (first, second) = match &meta.inputs[..] {
            [ValueInfo::Tensor(first)] => (first, None),
            [ValueInfo::Tensor(first), ValueInfo::Tensor(second)] => (first, Some(second)),
            inputs => return Err(Error::not_a_model(format!("`{}` has {} inputs", meta.name, inputs.len()))),
        };
        let (longest, embedding) = if takes_rows {
            let (longest, dim) = rows(first)?;
            (longest, Some(TokenEmbedding::of(&module.meta(TOKEN_EMBEDDING)?, dim)?))
        } else {
            (tokens(first)?, None)
        };
        let positions = match second {
            None if takes_rows => return Err(Error::not_a_model(format!("`{TEXT_DECODER}` takes no positions"))),
            None => Positions::None,
            Some(second) => {
                is_of(ScalarType::Long, second, "the second input")?;
                let is_one = second.sizes.iter().product::<usize>() == 1;
                if is_one && longest != 1 { Positions::Start } else { Positions::Each }
            }
        };
        let (output, width) = Output::of(&meta, module)?;
        Ok(Self { methods: methods.map(str::to_owned), positions, output, width, embedding, longest })
    }

    /// Reads the metadata methods of the program.
    pub fn limits(&self, module: &mut Module) -> Result<Limits> {
        let longest = self.longest;
        let mut number = |name: &str| numbers(module, name).map(|numbers| numbers.first().copied());
        let declared_seq_len = number("get_max_seq_len")?;
        let max_seq_len = declared_seq_len.map_or(longest, |len| longest.min(len as usize)).max(1);
        // In programs without this method, `get_max_seq_len` is the context length.
        let context = number("get_max_context_len")?.or(declared_seq_len);
        let mut max_context_len = context.map_or(longest, |len| len as usize).max(max_seq_len);
        if self.positions == Positions::None {
            // A call takes the whole context.
            max_context_len = max_seq_len;
        }
        let vocab_size = match self.output {
            Output::HiddenStates => number("get_vocab_size")?
                .map(|size| size as usize)
                .ok_or_else(|| Error::not_a_model("it has no method `get_vocab_size`"))?,
            Output::LastLogits | Output::AllLogits => self.width,
        };
        let bos = number("get_bos_id")?.and_then(|id| u32::try_from(id).ok());
        let mut eos = numbers(module, "get_eos_ids")?;
        if eos.is_empty() {
            eos = numbers(module, "get_eos_id")?;
        }
        let eos = eos.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
        Ok(Limits { max_seq_len, max_context_len, vocab_size, bos, eos })
    }
}

impl TokenEmbedding {
    fn of(meta: &MethodMeta, dim: usize) -> Result<Self> {
        let ([ValueInfo::Tensor(input)], [ValueInfo::Tensor(result)]) = (&meta.inputs[..], &meta.outputs[..]) else {
            return Err(Error::not_a_model(format!("`{TOKEN_EMBEDDING}` is not from one tensor to one")));
        };
        let longest = tokens(input)?;
        match rows(result)? {
            (_, own) if own == dim => Ok(Self { dim, longest }),
            (_, own) => Err(Error::not_a_model(format!(
                "`{TOKEN_EMBEDDING}` returns rows of {own} elements, and `{TEXT_DECODER}` takes {dim}"
            ))),
        }
    }
}

impl Output {
    /// Returns the output of a method, and the number of elements in a row of it.
    fn of(meta: &MethodMeta, module: &mut Module) -> Result<(Self, usize)> {
        let Some(ValueInfo::Tensor(result)) = meta.outputs.first() else {
            return Err(Error::not_a_model(format!("`{}` returns no tensor", meta.name)));
        };
        let Some(width) = result.sizes.last().copied().filter(|size| *size > 0) else {
            return Err(Error::not_a_model("its result is one number"));
        };
        let has_hidden_states =
            has(module, HIDDEN_STATES) && matches!(module.run(HIDDEN_STATES, &[])?.first(), Some(Value::Bool(true)));
        let output = match result.sizes[..] {
            [1, _, _] if has_hidden_states => Self::HiddenStates,
            _ if has_hidden_states => {
                let problem = format!("its hidden states are of the shape {:?}, not those of all tokens", result.sizes);
                return Err(Error::not_a_model(problem));
            }
            [1, rows, _] if rows > 1 => Self::AllLogits,
            _ => Self::LastLogits,
        };
        Ok((output, width))
    }
}

fn has(module: &Module, name: &str) -> bool {
    module.method_names().any(|known| known == name)
}

/// The maximum length of tokens `i64[1, T]`, at least 1.
fn tokens(info: &TensorInfo) -> Result<usize> {
    is_of(ScalarType::Long, info, "the first input")?;
    match info.sizes[..] {
        [1, longest] if longest > 0 => is_dynamic(info, longest).map(|()| longest),
        _ => Err(Error::not_a_model(format!("its tokens are of the shape {:?}", info.sizes))),
    }
}

/// The maximum number of rows `f32[1, T, dim]`, at least 1, and the number of elements of a row.
fn rows(info: &TensorInfo) -> Result<(usize, usize)> {
    is_of(ScalarType::Float, info, "embeddings")?;
    match info.sizes[..] {
        [1, longest, dim] if longest > 0 && dim > 0 => {
            is_dynamic(info, longest)?;
            Ok((longest, dim))
        }
        _ => Err(Error::not_a_model(format!("its embeddings are of the shape {:?}", info.sizes))),
    }
}

/// Refuses a fixed number of positions other than 1.
fn is_dynamic(info: &TensorInfo, longest: usize) -> Result<()> {
    if info.is_dynamic || longest == 1 {
        return Ok(());
    }
    Err(Error::not_a_model(format!("a call has exactly {longest} tokens: export with a dynamic length")))
}

fn is_of(dtype: ScalarType, info: &TensorInfo, what: &str) -> Result<()> {
    if info.dtype == dtype { Ok(()) } else { Err(Error::not_a_model(format!("{what} is of {}", info.dtype.name()))) }
}

/// Returns the results of a metadata method; none if the program does not have it.
fn numbers(module: &mut Module, name: &str) -> Result<Vec<i64>> {
    if !has(module, name) {
        return Ok(Vec::new());
    }
    let number = |value: Value| match value {
        Value::Int(number) if number >= 0 => Some(number),
        _ => None,
    };
    Ok(module.run(name, &[])?.into_iter().filter_map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_at_least_one_position() {
        let info = |dtype, sizes: &[usize]| TensorInfo {
            dtype,
            sizes: sizes.to_vec(),
            dim_order: (0..).take(sizes.len()).collect(),
            is_dynamic: true,
            ranges: Vec::new(),
            is_memory_planned: true,
            nbytes: 0,
            name: None,
        };
        assert_eq!(tokens(&info(ScalarType::Long, &[1, 8])).unwrap(), 8);
        assert_eq!(rows(&info(ScalarType::Float, &[1, 8, 4])).unwrap(), (8, 4));
        let refused = [tokens(&info(ScalarType::Long, &[1, 0])), rows(&info(ScalarType::Float, &[1, 0, 4])).map(|_| 0)];
        for refused in refused {
            assert!(matches!(&refused, Err(Error::NotLanguageModel { problem }) if problem.contains("[1, 0")));
        }
    }
}
