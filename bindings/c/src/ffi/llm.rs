//! Language models.

use std::ffi::{c_char, c_void};
use std::sync::Mutex;

#[cfg(feature = "grammar")]
use rushlight_llm::GrammarCompiler;
use rushlight_llm::options::{OptionError, Options as _};
use rushlight_llm::{
    Adapter, FinishReason, GenerationOptions, Generator, Message, Model, Session, Step, Tokenizer, Usage,
};

use super::interrupt::{flag, rl_interrupt};
use super::module::{builder, rl_load_options};
use super::value::rl_string;
use super::{
    Growing, Result, elements, free, guard, hand_out, locked, path, reference, rl_option, rl_status, set, set_named,
    set_sized, text,
};
use crate::callback;
use crate::status::Status;

/// A language model with its tokenizer. Threads: as an `rl_module`.
pub struct rl_llm(Mutex<Inner>);

struct Inner {
    model: Model,
    tokenizer: Tokenizer,
    /// Compiles JSON schemas, regular expressions and grammars; made for the first answer that has one.
    #[cfg(feature = "grammar")]
    grammars: Option<GrammarCompiler>,
    /// Results of the last call. The caller has pointers to them.
    tokens: Vec<u32>,
    text: String,
}

/// One conversation: the tokens so far, and their KV cache. Threads: as an `rl_module`.
pub struct rl_llm_session(Mutex<Session>);

/// A message of a conversation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_llm_message {
    /// `system`, `user`, `assistant`, or another role that the model knows.
    pub role: *const c_char,
    pub content: *const c_char,
}

/// Receives the text of an answer while it is generated, on the thread of the call. Returns true to continue, false to end
/// the answer. It must not throw exceptions or jump out of the call.
pub type rl_llm_text_fn = Option<unsafe extern "C" fn(text: rl_string, user_data: *mut c_void) -> bool>;

/// A token of an answer with its log probability.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_llm_token {
    pub token: u32,
    /// Natural logarithm of the probability.
    pub log_probability: f64,
    /// `num_top` most likely tokens, the most likely first, with their log probabilities.
    pub top_tokens: *const u32,
    pub top_log_probabilities: *const f64,
    pub num_top: usize,
}

/// Receives each token of an answer, on the thread of the call, if the option `logprobs` is set. The token lives for the
/// call. Returns true to continue, false to end the answer. It must not throw exceptions or jump out of the call.
pub type rl_llm_token_fn = Option<unsafe extern "C" fn(token: *const rl_llm_token, user_data: *mut c_void) -> bool>;

/// Options of text generation. `RL_LLM_GENERATE_OPTIONS_INIT` has the defaults, which are those of all languages and of
/// the command line. NULL stands for them.
#[repr(C)]
pub struct rl_llm_generate_options {
    /// `sizeof(rl_llm_generate_options)`.
    pub struct_size: usize,
    /// Maximum number of tokens. 0: until the context is full.
    pub max_new_tokens: usize,
    /// Divides the logits; 0.8 by default. 0: the most likely token.
    pub temperature: f32,
    /// Keeps the most likely tokens that together have this probability; 0.95 by default. 0 and 1: all.
    pub top_p: f32,
    /// Number of most likely tokens to keep; 40 by default. 0: all.
    pub top_k: usize,
    /// Seed of the random numbers: the same seed gives the same answer.
    pub seed: u64,
    /// `num_stop` texts that end the answer. They are not part of it.
    pub stop: *const *const c_char,
    pub num_stop: usize,
    /// Ends the answer early. May be NULL.
    pub interrupt: *const rl_interrupt,
    /// Receives the text; `text_data` is passed to it. May be NULL.
    pub on_text: rl_llm_text_fn,
    pub text_data: *mut c_void,
    /// `num_named` further options by name, as `rushlight llm run --help` lists them with `-` for `_`: `min_p`,
    /// `repetition_penalty`, `mirostat`, `logit_bias`, `logprobs`, `json_schema`, `speculate` and others. They replace the
    /// fields above.
    pub named: *const rl_option,
    pub num_named: usize,
    /// Receives the tokens if the option `logprobs` is set; `token_data` is passed to it. May be NULL.
    pub on_token: rl_llm_token_fn,
    pub token_data: *mut c_void,
}

// SAFETY: numbers, pointers, and functions that may be NULL.
unsafe impl Growing for rl_llm_generate_options {}

/// Reason why an answer ended.
#[repr(u32)]
#[allow(dead_code, reason = "for C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rl_llm_finish {
    /// The model ended it, or one of the stop texts was generated.
    RL_LLM_FINISH_STOP = 0,
    /// It has the requested number of tokens, or the context is full.
    RL_LLM_FINISH_LENGTH = 1,
    /// The callback or the interrupt ended it.
    RL_LLM_FINISH_CANCELLED = 2,
}

/// Token counts and times of an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_llm_usage {
    /// `sizeof(rl_llm_usage)`, set by the caller.
    pub struct_size: usize,
    /// Tokens of the prompt, without those that the session already had.
    pub prompt_tokens: usize,
    pub generated_tokens: usize,
    /// Nanoseconds in which the model read the prompt, and in which it generated the answer, token by token.
    pub prefill_ns: u64,
    pub decode_ns: u64,
    /// An `rl_llm_finish`.
    pub finish: u32,
}

/// Loads a language model: a `.pte` file that `rushlight compile` or ExecuTorch made. `tokenizer` is the path of a
/// tokenizer. NULL selects the one in the program or beside it. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_load(
    path: *const c_char,
    tokenizer: *const c_char,
    options: *const rl_load_options,
    llm: *mut *mut rl_llm,
) -> *mut rl_status {
    guard(|| {
        let make = || {
            // SAFETY: NULL, or as their descriptions say.
            let (path, builder) = unsafe { (self::path(path, "path")?, builder(options)?) };
            callback::forget();
            let module = builder.load(path).map_err(callback::explained)?;
            let tokenizer = if tokenizer.is_null() {
                Tokenizer::of_model(module.program(), Some(path))?
            } else {
                // SAFETY: a string.
                Tokenizer::open(unsafe { self::path(tokenizer, "tokenizer") }?)?
            };
            let inner = Inner {
                model: Model::new(module).map_err(explained)?,
                tokenizer,
                #[cfg(feature = "grammar")]
                grammars: None,
                tokens: Vec::new(),
                text: String::new(),
            };
            Ok(rl_llm(Mutex::new(inner)))
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(llm, "llm", make) }
    })
}

/// Sets the LoRA adapter of the sessions that are made after this call. `folder` is the folder in which PEFT saved it, or
/// NULL for no adapter. `scale` multiplies the adapter's effect.
///
/// Errors: `RL_NOT_SUPPORTED` for a program that was compiled without a `lora_rank`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_set_adapter(llm: *mut rl_llm, folder: *const c_char, scale: f32) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live model.
        let llm = unsafe { reference(llm, "llm") }?;
        let mut inner = locked(&llm.0, "language model")?;
        let adapter = if folder.is_null() {
            None
        } else {
            // SAFETY: a string.
            Some(Adapter::open(&inner.model, unsafe { path(folder, "folder") }?, scale)?)
        };
        Ok(inner.model.set_adapter(adapter)?)
    })
}

/// Encodes text to tokens, which live until the next call of this model. `add_special` adds the tokens that a text
/// begins and ends with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_encode(
    llm: *mut rl_llm,
    text: rl_string,
    add_special: bool,
    tokens: *mut *const u32,
    num_tokens: *mut usize,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (llm, text) = unsafe { (reference(llm, "llm")?, text.as_str("text")?) };
        let mut inner = locked(&llm.0, "language model")?;
        // The text may be a result of the last call.
        inner.tokens = inner.tokenizer.encode(text, add_special)?;
        // SAFETY: the caller's variables.
        unsafe {
            set(tokens, "tokens", inner.tokens.as_ptr())?;
            set(num_tokens, "num_tokens", inner.tokens.len())
        }
    })
}

/// Decodes tokens to text, which lives until the next call of this model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_decode(
    llm: *mut rl_llm,
    tokens: *const u32,
    num_tokens: usize,
    text: *mut rl_string,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (llm, tokens) = unsafe { (reference(llm, "llm")?, elements(tokens, num_tokens, "tokens")?) };
        let mut inner = locked(&llm.0, "language model")?;
        inner.text = inner.tokenizer.decode(tokens, true)?;
        // SAFETY: the caller's variable.
        unsafe { set(text, "text", rl_string::of(&inner.text)) }
    })
}

/// Formats messages as the text of a prompt, with the model's chat template. The text lives until the next call of this
/// model. `rl_llm_encode` encodes it to tokens; `add_special` must be false, because the text has the special tokens.
///
/// Errors: `RL_NOT_FOUND` for a model without a chat template.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_chat_prompt(
    llm: *mut rl_llm,
    messages: *const rl_llm_message,
    num_messages: usize,
    prompt: *mut rl_string,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (llm, messages) = unsafe { (reference(llm, "llm")?, elements(messages, num_messages, "messages")?) };
        let message = |message: &rl_llm_message| -> Result<Message> {
            // SAFETY: strings.
            let (role, content) = unsafe { (text(message.role, "role")?, text(message.content, "content")?) };
            Ok(Message::new(role, content))
        };
        let messages: Vec<Message> = messages.iter().map(message).collect::<Result<_>>()?;
        let mut inner = locked(&llm.0, "language model")?;
        let template = inner.tokenizer.chat_template()?;
        let template =
            template.ok_or_else(|| Status::new(rushlight::Code::NotFound, "the model has no chat template"))?;
        inner.text = template.render(&messages, true)?;
        // SAFETY: the caller's variable.
        unsafe { set(prompt, "prompt", rl_string::of(&inner.text)) }
    })
}

/// Makes a session that has read nothing yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_session_new(llm: *mut rl_llm, session: *mut *mut rl_llm_session) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live model.
        let llm = unsafe { reference(llm, "llm") }?;
        let make = || {
            callback::forget();
            let made = locked(&llm.0, "language model")?.model.session().map_err(explained)?;
            Ok(rl_llm_session(Mutex::new(made)))
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(session, "session", make) }
    })
}

/// Forgets everything that a session has read. A session whose last call failed can then be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_session_reset(llm: *mut rl_llm, session: *mut rl_llm_session) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or live objects.
        let (llm, session) = unsafe { (reference(llm, "llm")?, reference(session, "session")?) };
        callback::forget();
        locked(&session.0, "session")?.reset(&mut locked(&llm.0, "language model")?.model).map_err(explained)
    })
}

/// Forgets all tokens of a session from `position` on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_session_rewind(
    llm: *mut rl_llm,
    session: *mut rl_llm_session,
    position: usize,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or live objects.
        let (llm, session) = unsafe { (reference(llm, "llm")?, reference(session, "session")?) };
        callback::forget();
        locked(&session.0, "session")?.rewind(&mut locked(&llm.0, "language model")?.model, position).map_err(explained)
    })
}

/// Returns the number of tokens that a session has read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_session_position(session: *mut rl_llm_session, position: *mut usize) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or a live object.
        let session = unsafe { reference(session, "session") }?;
        let read = locked(&session.0, "session")?.position();
        // SAFETY: the caller's variable.
        unsafe { set(position, "position", read) }
    })
}

/// Makes a session that has read the same tokens and continues independently.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_session_fork(
    session: *mut rl_llm_session,
    fork: *mut *mut rl_llm_session,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or a live object.
        let session = unsafe { reference(session, "session") }?;
        let make = || {
            callback::forget();
            Ok(rl_llm_session(Mutex::new(locked(&session.0, "session")?.fork().map_err(explained)?)))
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(fork, "fork", make) }
    })
}

/// Makes a session read tokens, and returns the logits of the next token, one for each entry of the vocabulary. They
/// live until the next call of this session. `logits` and `num_logits` may be NULL.
///
/// Errors: as for `rl_llm_generate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_prefill(
    llm: *mut rl_llm,
    session: *mut rl_llm_session,
    tokens: *const u32,
    num_tokens: usize,
    logits: *mut *const f32,
    num_logits: *mut usize,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (llm, session, tokens) = unsafe {
            (reference(llm, "llm")?, reference(session, "session")?, elements(tokens, num_tokens, "tokens")?)
        };
        let mut session = locked(&session.0, "session")?;
        let inner = &mut *locked(&llm.0, "language model")?;
        callback::forget();
        let read = session.prefill(&mut inner.model, tokens).map_err(explained)?;
        // SAFETY: NULL, or the caller's variables.
        unsafe {
            if !logits.is_null() {
                logits.write(read.as_ptr());
            }
            if !num_logits.is_null() {
                num_logits.write(read.len());
            }
        }
        Ok(())
    })
}

/// Adds the tokens of a prompt to a session and generates an answer. The callback in `options` receives it while it is
/// generated. Without a prompt, the answer continues the tokens that the session has read. `options` and `usage` may be
/// NULL.
///
/// Errors: `RL_OUT_OF_RESOURCES` if the prompt does not fit the context, `RL_INVALID_STATE` for a session whose last
/// call failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_generate(
    llm: *mut rl_llm,
    session: *mut rl_llm_session,
    prompt: *const u32,
    num_tokens: usize,
    options: *const rl_llm_generate_options,
    usage: *mut rl_llm_usage,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (llm, session, prompt, options) = unsafe {
            (
                reference(llm, "llm")?,
                reference(session, "session")?,
                elements(prompt, num_tokens, "prompt")?,
                super::options::<rl_llm_generate_options>(options, "options")?,
            )
        };
        // SAFETY: as its description says.
        let values = unsafe { values(&options) }?;
        let mut session = locked(&session.0, "session")?;
        let inner = &mut *locked(&llm.0, "language model")?;
        callback::forget();
        // SAFETY: as its description says.
        let done = unsafe { answer(inner, &mut session, prompt, &values, &options) }?;
        if !usage.is_null() {
            // SAFETY: the caller's variable, which begins with its size.
            unsafe { set_sized(usage, "usage", |struct_size| counted(struct_size, &done)) }?;
        }
        Ok(())
    })
}

/// The error of a call, with what a callback returned on this thread as its cause if the error is the module's.
fn explained(error: rushlight_llm::Error) -> Status {
    match error {
        rushlight_llm::Error::Module(error) => callback::explained(error),
        other => other.into(),
    }
}

/// Generates an answer, and passes its text and tokens to the callbacks.
///
/// # Safety
/// The options are as their description says.
unsafe fn answer(
    inner: &mut Inner,
    session: &mut Session,
    prompt: &[u32],
    values: &GenerationOptions,
    options: &rl_llm_generate_options,
) -> Result<Usage> {
    let generation = values.generation(&inner.tokenizer)?;
    #[cfg(feature = "grammar")]
    let constraint = values.constraint(&inner.tokenizer, inner.model.limits(), &mut inner.grammars)?;
    let Inner { model, tokenizer, .. } = inner;
    let mut generator = Generator::start(model, session, tokenizer, prompt, generation).map_err(explained)?;
    #[cfg(feature = "grammar")]
    if let Some(constraint) = constraint {
        generator.constrain(constraint);
    }
    // SAFETY: NULL or a live interrupt.
    let interrupt = unsafe { flag(options.interrupt) };
    let is_interrupted = || interrupt.as_ref().is_some_and(rushlight_bindings_common::Flag::is_set);
    while let Some(step) = generator.step(model, session, tokenizer).map_err(explained)? {
        // SAFETY: the caller's functions.
        let goes_on = unsafe { report(&step, options) };
        if !goes_on || is_interrupted() {
            break;
        }
    }
    Ok(generator.usage())
}

/// Passes a step to the callbacks. Returns false if the answer ends.
///
/// # Safety
/// The callbacks are as their descriptions say.
unsafe fn report(step: &Step, options: &rl_llm_generate_options) -> bool {
    if let (Some(call), Some(token), Some(score)) = (options.on_token, step.token, &step.score) {
        let (tokens, scores): (Vec<u32>, Vec<f64>) = score.alternatives.iter().copied().unzip();
        let token = rl_llm_token {
            token,
            log_probability: score.log_probability,
            top_tokens: tokens.as_ptr(),
            top_log_probabilities: scores.as_ptr(),
            num_top: tokens.len(),
        };
        // SAFETY: the caller's function, with a token that lives for the call.
        if !unsafe { call(&raw const token, options.token_data) } {
            return false;
        }
    }
    match options.on_text {
        // SAFETY: the caller's function, with text that lives for the call.
        Some(call) if !step.text.is_empty() => unsafe { call(rl_string::of(&step.text), options.text_data) },
        _ => true,
    }
}

fn counted(struct_size: usize, usage: &Usage) -> rl_llm_usage {
    let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    rl_llm_usage {
        struct_size,
        prompt_tokens: usage.prompt_tokens,
        generated_tokens: usage.generated_tokens,
        prefill_ns: nanoseconds(usage.prefill),
        decode_ns: nanoseconds(usage.decode),
        finish: match usage.finish_reason {
            FinishReason::Stop => rl_llm_finish::RL_LLM_FINISH_STOP,
            FinishReason::Length => rl_llm_finish::RL_LLM_FINISH_LENGTH,
            FinishReason::Cancelled => rl_llm_finish::RL_LLM_FINISH_CANCELLED,
        } as u32,
    }
}

/// # Safety
/// The options are as their description says.
unsafe fn values(options: &rl_llm_generate_options) -> Result<GenerationOptions> {
    let mut values = GenerationOptions::default();
    // NULL, of which `options` makes zeros, stands for the defaults.
    if options.struct_size > 0 {
        let top_p = if options.top_p == 0.0 { 1.0 } else { options.top_p };
        let max_new_tokens = Some(options.max_new_tokens).filter(|count| *count > 0);
        // SAFETY: as the caller promises.
        let stop = unsafe { elements(options.stop, options.num_stop, "stop") }?.iter();
        // SAFETY: strings.
        let stop = stop.map(|stop| Ok(unsafe { text(*stop, "stop") }?.to_owned())).collect::<Result<Vec<_>>>()?;
        let set = || -> std::result::Result<(), OptionError> {
            values.set("max_new_tokens", max_new_tokens)?;
            values.set("temperature", options.temperature)?;
            values.set("top_p", top_p)?;
            values.set("top_k", options.top_k)?;
            values.set("seed", options.seed)?;
            values.set("stop", stop)
        };
        set().map_err(rushlight::Error::from)?;
    }
    // SAFETY: as the caller promises.
    unsafe { set_named(&mut values, options.named, options.num_named) }?;
    Ok(values)
}

/// Frees a session. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_session_free(session: *mut rl_llm_session) {
    // SAFETY: NULL or a session that the caller uses no more.
    unsafe { free(session) }
}

/// Frees a language model. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_llm_free(llm: *mut rl_llm) {
    // SAFETY: NULL or a model that the caller uses no more.
    unsafe { free(llm) }
}
