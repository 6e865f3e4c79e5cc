//! A conversation with a language model, as in ExecuTorch's runner.

use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use rushlight::{Code, MissingOperator, ModuleBuilder};
#[cfg(feature = "grammar")]
use rushlight_llm::GrammarCompiler;
use rushlight_llm::options::{OptionError, OptionValue, Options as _};
use rushlight_llm::{Adapter, Error, GenerationOptions, Generator, Model, Sampling, Session, Tokenizer};

use crate::error::ErrorParts;
use crate::statistics::{Statistics, generated_tokens};

/// Top-p of ExecuTorch's runner, which has no option for it.
const TOP_P: f32 = 0.9;

/// A model with its tokenizer and the conversation so far.
#[derive(Debug)]
pub struct Conversation {
    model: Model,
    tokenizer: Tokenizer,
    session: Session,
    /// Compiles JSON schemas, regular expressions and grammars; made for the first answer that has one.
    #[cfg(feature = "grammar")]
    grammars: Option<GrammarCompiler>,
    load_start: u128,
    load_end: u128,
}

/// An error that ends a call of a conversation.
#[derive(Debug)]
pub enum Problem {
    /// An error of the model, the tokenizer, the session or an option.
    Llm(Error),
    /// The prompt leaves no room for an answer.
    NoRoom { capacity: usize, occupied: usize },
}

impl Problem {
    /// The parts of the error. `register` returns the instruction for a missing operator.
    pub fn parts(&self, register: impl Fn(&MissingOperator) -> String) -> ErrorParts {
        let (capacity, occupied) = match self {
            Self::Llm(error) => return ErrorParts::of_llm(error, register),
            Self::NoRoom { capacity, occupied } => (capacity, occupied),
        };
        let own = ErrorParts::new(Code::OutOfResources, "the conversation has no room for an answer");
        let expected = format!("fewer than {capacity} tokens");
        let got = format!("{occupied} tokens with those of the prompt");
        let hint = "raise `seqLen`, or forget the conversation with resetContext()";
        let text = format!("{}\n  expected  {expected}\n  got       {got}\n  help      {hint}", own.text);
        ErrorParts { expected: Some(expected), got: Some(got), hint: Some(hint.to_owned()), text, ..own }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Llm(error)
    }
}

impl From<rushlight::Error> for Problem {
    fn from(error: rushlight::Error) -> Self {
        Self::Llm(error.into())
    }
}

impl From<OptionError> for Problem {
    fn from(error: OptionError) -> Self {
        Self::Llm(error.into())
    }
}

/// A prompt, with the options of its answer.
#[derive(Debug)]
pub struct Request {
    pub prompt: String,
    /// Maximum number of tokens of the conversation and the answer; negative for as many as fit.
    pub seq_len: i32,
    /// Maximum number of tokens of the answer; negative for as many as fit.
    pub max_new_tokens: i32,
    pub echo: bool,
    pub temperature: f32,
    /// Number of BOS and EOS tokens before and after the prompt.
    pub num_bos: i32,
    pub num_eos: i32,
    /// Options of the answer by name, with their values as text. They replace those of ExecuTorch's runner.
    pub options: Vec<(String, String)>,
}

/// Listener of an answer.
pub trait Listener {
    /// The error of the binding.
    type Error: From<Problem>;

    /// Receives text as it is generated. An error ends the answer.
    fn on_text(&mut self, text: &str) -> Result<(), Self::Error>;

    /// Called before each token and before each part of the prompt. False ends the answer.
    fn goes_on(&mut self) -> bool;
}

impl Conversation {
    /// Loads a model with its tokenizer, and the folder of a LoRA adapter.
    ///
    /// # Errors
    /// Errors of loading the module, the tokenizer, the model or the adapter.
    pub fn load(builder: ModuleBuilder, path: &str, tokenizer: &str, lora: Option<&str>) -> Result<Self, Problem> {
        let load_start = now();
        let module = builder.load(path)?;
        let tokenizer = Tokenizer::open(tokenizer)?;
        let mut model = Model::new(module)?;
        if let Some(folder) = lora {
            let adapter = Adapter::open(&model, folder, 1.0)?;
            model.set_adapter(Some(adapter))?;
        }
        let session = model.session()?;
        Ok(Self {
            model,
            tokenizer,
            session,
            #[cfg(feature = "grammar")]
            grammars: None,
            load_start,
            load_end: now(),
        })
    }

    /// Removes the conversation.
    ///
    /// # Errors
    /// The errors of [`Session::reset`].
    pub fn reset(&mut self) -> Result<(), Problem> {
        Ok(self.session.reset(&mut self.model)?)
    }

    /// Adds a text without an answer.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::encode`] and [`Session::prefill`].
    pub fn prefill(&mut self, prompt: &str, num_bos: i32, num_eos: i32) -> Result<(), Problem> {
        let tokens = self.encoded(prompt, num_bos, num_eos)?;
        self.session.prefill(&mut self.model, &tokens)?;
        Ok(())
    }

    /// Adds a prompt and answers it. Returns the statistics.
    ///
    /// # Errors
    /// `NoRoom`; the errors of options, of [`Generator::start`], of [`Generator::step`], and of the listener.
    pub fn answer<L: Listener>(&mut self, request: &Request, listener: &mut L) -> Result<Statistics, L::Error> {
        let inference_start = now();
        let mut generator = self.start(request, listener)?;
        let prompt_eval_end = now();
        let mut first_token = 0;
        // The generator reads its last token only in the next step.
        let (mut unread, mut has_end) = (None, false);
        let mut heard = Ok(());
        let Self { model, tokenizer, session, .. } = self;
        while heard.is_ok() && listener.goes_on() {
            let Some(step) = generator.step(model, session, tokenizer).map_err(Problem::from)? else { break };
            (unread, has_end) = (step.token.or(step.end), step.end.is_some());
            if first_token == 0 {
                first_token = now();
            }
            if !step.text.is_empty() {
                heard = listener.on_text(&step.text);
            }
        }
        let inference_end = now();
        if let Some(token) = unread {
            // The next prompt comes after this token.
            session.prefill(model, &[token]).map_err(Problem::from)?;
        }
        heard?;
        let usage = generator.usage();
        Ok(Statistics {
            model_load_start: self.load_start,
            model_load_end: self.load_end,
            inference_start,
            prompt_eval_end,
            first_token,
            inference_end,
            model_execution: usage.decode.as_millis(),
            prompt_tokens: usage.prompt_tokens,
            generated_tokens: generated_tokens(usage.generated_tokens, has_end),
        })
    }

    /// Adds a prompt. Returns the answer before its first step.
    fn start<L: Listener>(&mut self, request: &Request, listener: &mut L) -> Result<Generator, L::Error> {
        let tokens = self.encoded(&request.prompt, request.num_bos, request.num_eos)?;
        let room = self.room(request, self.session.position() + tokens.len())?;
        let options = options(request, room).map_err(Problem::from)?;
        let generation = options.generation(&self.tokenizer).map_err(Problem::from)?;
        #[cfg(feature = "grammar")]
        let constraint =
            options.constraint(&self.tokenizer, self.model.limits(), &mut self.grammars).map_err(Problem::from)?;
        if request.echo && !request.prompt.is_empty() {
            listener.on_text(&request.prompt)?;
        }
        let asked = || if listener.goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let Self { model, tokenizer, session, .. } = self;
        let started = Generator::start_while(model, session, tokenizer, &tokens, generation, asked);
        #[cfg_attr(not(feature = "grammar"), allow(unused_mut))]
        let mut generator = started.map_err(Problem::from)?;
        #[cfg(feature = "grammar")]
        if let Some(constraint) = constraint {
            generator.constrain(constraint);
        }
        Ok(generator)
    }

    /// Returns the number of tokens that fit after `occupied` tokens.
    fn room(&self, request: &Request, occupied: usize) -> Result<usize, Problem> {
        let context = self.model.limits().max_context_len;
        let capacity = usize::try_from(request.seq_len).map_or(context, |seq_len| seq_len.min(context));
        let room = capacity.saturating_sub(occupied);
        if room == 0 {
            return Err(Problem::NoRoom { capacity, occupied });
        }
        Ok(room)
    }

    fn encoded(&self, prompt: &str, num_bos: i32, num_eos: i32) -> Result<Vec<u32>, Problem> {
        // More tokens than the context has room for are refused for that, however many more they are.
        let times = |count: i32| usize::try_from(count).unwrap_or(0).min(self.model.limits().max_context_len + 1);
        let (special, limits) = (self.tokenizer.special_tokens(), self.model.limits());
        let bos = special.bos.or(limits.bos).map_or_else(Vec::new, |bos| vec![bos; times(num_bos)]);
        let eos = special.eos.first().or(limits.eos.first()).map_or_else(Vec::new, |eos| vec![*eos; times(num_eos)]);
        Ok([bos, self.tokenizer.encode(prompt, false)?, eos].concat())
    }
}

/// Returns the options of an answer of at most `room` tokens. They begin as those of ExecuTorch's runner, with a seed from
/// the clock; the options of the request replace them.
fn options(request: &Request, room: usize) -> Result<GenerationOptions, OptionError> {
    let sampling = Sampling { temperature: request.temperature, top_p: TOP_P, seed: now() as u64, ..Sampling::GREEDY };
    let mut options = GenerationOptions::of(sampling);
    options.set("max_new_tokens", usize::try_from(request.max_new_tokens).unwrap_or(room))?;
    request.options.iter().try_for_each(|(name, value)| options.set_text(name, value))?;
    // A longer answer would fill the context before its last token is read.
    let has_room = matches!(options.get("max_new_tokens")?, OptionValue::Integer(count) if count <= room as i128);
    if !has_room {
        options.set("max_new_tokens", room)?;
    }
    Ok(options)
}

/// Milliseconds since the epoch.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_makes_an_answer_longer_than_its_room() {
        let most = |max_new_tokens: i32, named: Option<&str>| {
            let request = Request {
                prompt: String::new(),
                seq_len: -1,
                max_new_tokens,
                echo: false,
                temperature: 0.0,
                num_bos: 0,
                num_eos: 0,
                options: named.map(|value| ("max_new_tokens".to_owned(), value.to_owned())).into_iter().collect(),
            };
            options(&request, 8).unwrap().get("max_new_tokens").unwrap()
        };
        let cases = [
            (-1, None, 8_usize),
            (5, None, 5),
            (9, None, 8),
            (5, Some("7"), 7),
            (5, Some("9"), 8),
            (-1, Some("1000000"), 8),
        ];
        for (max_new_tokens, named, expected) in cases {
            assert_eq!(most(max_new_tokens, named), expected.into(), "{max_new_tokens}, {named:?}");
        }
    }
}
