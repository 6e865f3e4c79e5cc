//! Language models: tokenizers, sessions and answers.

use std::sync::{Arc, Mutex};

use napi::bindgen_prelude::{ClassInstance, Env, Float32Array, JavaScriptClassExt, ToNapiValue, Uint32Array, Unknown};
use napi_derive::napi;
use rushlight::Code;
use rushlight::runtime::StableBytes as _;
use rushlight_js_plain::{Plain, chat_prompt, limits, read_options, step, usage};
use rushlight_llm::{Adapter, GenerationOptions, Generator, GrammarCompiler, Model};

use crate::bytes::{Bytes, Content, take};
use crate::error::{Problem, Result};
use crate::into_js::IntoJs;
use crate::job::{call, let_go, start};
use crate::module::{builder, contents, load, locked};

/// An object that JavaScript frees, while calls on other threads may still use it.
type Handle<T> = Option<Arc<Mutex<T>>>;

fn held<T>(handle: Option<&Arc<Mutex<T>>>) -> Result<Arc<Mutex<T>>> {
    handle.cloned().ok_or(Problem::Own(Code::InvalidState, "it is used after `dispose`"))
}

/// Converts text to tokens and back.
#[napi]
pub struct Tokenizer(Arc<rushlight_llm::Tokenizer>);

#[napi]
impl Tokenizer {
    /// Reads a tokenizer's file.
    #[napi(catch_unwind)]
    pub fn from_bytes<'env>(env: &'env Env, mut file: ClassInstance<'_, Bytes>) -> napi::Result<Unknown<'env>> {
        let file = call(*env, || take(&mut file))?;
        start(env, move || read_tokenizer(file).map(Arc::new))
    }

    #[napi(getter, catch_unwind)]
    pub fn vocabulary_size(&self) -> u32 {
        self.0.vocab_size() as u32
    }

    #[napi(catch_unwind)]
    pub fn encode(&self, env: Env, text: String, special: bool) -> napi::Result<Uint32Array> {
        call(env, || Ok(self.0.encode(&text, special)?.into()))
    }

    #[napi(catch_unwind)]
    pub fn decode(&self, env: Env, tokens: &[u32], skip_special: bool) -> napi::Result<String> {
        call(env, || Ok(self.0.decode(tokens, skip_special)?))
    }

    /// Renders the chat template on messages, tools and variables, all of them JSON.
    #[napi(catch_unwind)]
    pub fn chat_prompt(
        &self,
        env: Env,
        messages: String,
        tools: String,
        variables: String,
        answers: bool,
    ) -> napi::Result<String> {
        call(env, || Ok(chat_prompt(&self.0, &messages, &tools, &variables, answers)?))
    }
}

impl IntoJs for Arc<rushlight_llm::Tokenizer> {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        Tokenizer(self).into_instance(env)?.into_unknown(env)
    }
}

fn read_tokenizer(file: Content) -> Result<rushlight_llm::Tokenizer> {
    Ok(match file {
        Content::Block(block) => rushlight_llm::Tokenizer::from_bytes(block.bytes()),
        Content::Path(path) => rushlight_llm::Tokenizer::from_bytes(rushlight::open_shared(path)?.as_ref()),
    }?)
}

/// A program that is a language model, and its tokenizer.
#[napi]
pub struct LanguageModel {
    model: Handle<Model>,
    tokenizer: Arc<rushlight_llm::Tokenizer>,
    /// Compiles JSON schemas, regular expressions and grammars; made for the first answer that has one.
    grammars: Arc<Mutex<Option<GrammarCompiler>>>,
}

#[napi]
impl LanguageModel {
    /// Loads a `.pte` file with `.ptd` files, a tokenizer if the program carries none, and the folder of a LoRA adapter.
    #[napi(catch_unwind)]
    pub fn load<'env>(
        env: &'env Env,
        mut program: ClassInstance<'_, Bytes>,
        data: Vec<ClassInstance<'_, Bytes>>,
        tokenizer: Option<ClassInstance<'_, Bytes>>,
        names: Vec<String>,
        texts: Vec<String>,
        lora: Option<String>,
    ) -> napi::Result<Unknown<'env>> {
        let (program, data) = call(*env, || contents(&mut program, data))?;
        let tokenizer = call(*env, || tokenizer.map(|mut file| take(&mut file)).transpose())?;
        start(env, move || {
            let module = load(builder(&read_options(&names, &texts)?, data)?, program)?;
            let tokenizer = match tokenizer {
                Some(file) => read_tokenizer(file)?,
                None => rushlight_llm::Tokenizer::of_model(module.program(), None)?,
            };
            let mut model = Model::new(module)?;
            if let Some(folder) = lora {
                let adapter = Adapter::open(&model, folder, 1.0)?;
                model.set_adapter(Some(adapter))?;
            }
            Ok((model, tokenizer))
        })
    }

    #[napi(getter, catch_unwind)]
    pub fn tokenizer(&self) -> Tokenizer {
        Tokenizer(self.tokenizer.clone())
    }

    /// The model's metadata.
    #[napi(catch_unwind)]
    pub fn describe<'env>(&self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        call(*env, || Ok(limits(locked(&*held(self.model.as_ref())?)?.limits(), &self.tokenizer)))?.into_js(env)
    }

    /// Makes a session without tokens.
    #[napi(catch_unwind)]
    pub fn session<'env>(&self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        let model = call(*env, || held(self.model.as_ref()))?;
        start(env, move || Ok(locked(&model)?.session()?))
    }

    #[napi(catch_unwind)]
    pub fn free(&mut self) {
        let_go(self.model.take());
    }
}

impl Drop for LanguageModel {
    fn drop(&mut self) {
        let_go(self.model.take());
    }
}

impl IntoJs for (Model, rushlight_llm::Tokenizer) {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        let (model, tokenizer) = self;
        let model = LanguageModel {
            model: Some(Arc::new(Mutex::new(model))),
            tokenizer: Arc::new(tokenizer),
            grammars: Arc::default(),
        };
        model.into_instance(env)?.into_unknown(env)
    }
}

/// The tokens of a conversation so far, with the model's KV cache for them.
#[napi]
pub struct Session(Handle<rushlight_llm::Session>);

#[napi]
impl Session {
    #[napi(getter, catch_unwind)]
    pub fn position(&self, env: Env) -> napi::Result<u32> {
        call(env, || Ok(locked(&*held(self.0.as_ref())?)?.position() as u32))
    }

    /// Removes all tokens. Also makes a session usable again whose last call failed.
    #[napi(catch_unwind)]
    pub fn reset(&self, env: Env, llm: &LanguageModel) -> napi::Result<()> {
        call(env, || self.with(llm, rushlight_llm::Session::reset))
    }

    /// Removes the tokens after the first `position` tokens.
    #[napi(catch_unwind)]
    pub fn rewind(&self, env: Env, llm: &LanguageModel, position: u32) -> napi::Result<()> {
        call(env, || self.with(llm, |session, model| session.rewind(model, position as usize)))
    }

    /// Keeps the common prefix of the session and a prompt, and removes the other tokens. Returns the number of tokens
    /// that are kept.
    #[napi(catch_unwind)]
    pub fn keep_common_prefix(&self, env: Env, llm: &LanguageModel, tokens: &[u32]) -> napi::Result<u32> {
        call(env, || self.with(llm, |session, model| session.keep_common_prefix(model, tokens))).map(|kept| kept as u32)
    }

    /// Makes a session with the same tokens.
    #[napi(catch_unwind)]
    pub fn fork<'env>(&self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        let session = call(*env, || held(self.0.as_ref()))?;
        start(env, move || Ok(locked(&session)?.fork()?))
    }

    /// Reads tokens. Returns a promise of the logits of the token after them.
    #[napi(catch_unwind)]
    pub fn prefill<'env>(&self, env: &'env Env, llm: &LanguageModel, tokens: &[u32]) -> napi::Result<Unknown<'env>> {
        let (session, model) = call(*env, || Ok((held(self.0.as_ref())?, held(llm.model.as_ref())?)))?;
        let tokens = tokens.to_vec();
        start(env, move || Ok(Logits(locked(&session)?.prefill(&mut *locked(&model)?, &tokens)?.to_vec())))
    }

    #[napi(catch_unwind)]
    pub fn free(&mut self) {
        let_go(self.0.take());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let_go(self.0.take());
    }
}

impl Session {
    fn with<T>(
        &self,
        llm: &LanguageModel,
        act: impl FnOnce(&mut rushlight_llm::Session, &mut Model) -> rushlight_llm::Result<T>,
    ) -> Result<T> {
        let (session, model) = (held(self.0.as_ref())?, held(llm.model.as_ref())?);
        Ok(act(&mut *locked(&session)?, &mut *locked(&model)?)?)
    }
}

impl IntoJs for rushlight_llm::Session {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        Session(Some(Arc::new(Mutex::new(self)))).into_instance(env)?.into_unknown(env)
    }
}

struct Logits(Vec<f32>);

impl IntoJs for Logits {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        Float32Array::from(self.0).into_unknown(env)
    }
}

/// An answer while it is generated.
#[napi]
pub struct Answer(Handle<Generator>);

#[napi]
impl Answer {
    /// Adds the tokens of a prompt to a session, and returns a promise. If there are none, the answer continues from
    /// the session's last token. Options have names in camel case, with values as text.
    #[napi(catch_unwind)]
    pub fn start<'env>(
        env: &'env Env,
        llm: &LanguageModel,
        session: &Session,
        prompt: &[u32],
        names: Vec<String>,
        texts: Vec<String>,
    ) -> napi::Result<Unknown<'env>> {
        let (session, model) = call(*env, || Ok((held(session.0.as_ref())?, held(llm.model.as_ref())?)))?;
        let (tokenizer, grammars, prompt) = (llm.tokenizer.clone(), llm.grammars.clone(), prompt.to_vec());
        start(env, move || {
            let options: GenerationOptions = read_options(&names, &texts)?;
            let (mut session, mut model) = (locked(&session)?, locked(&model)?);
            let constraint = options.constraint(&tokenizer, model.limits(), &mut *locked(&grammars)?)?;
            let generation = options.generation(&tokenizer)?;
            let mut generator = Generator::start(&mut model, &mut session, &tokenizer, &prompt, generation)?;
            if let Some(constraint) = constraint {
                generator.constrain(constraint);
            }
            Ok(generator)
        })
    }

    /// Chooses the next token. Returns a promise of its text and number; of `undefined` if the answer is over.
    #[napi(catch_unwind)]
    pub fn step<'env>(&self, env: &'env Env, llm: &LanguageModel, session: &Session) -> napi::Result<Unknown<'env>> {
        let (generator, session, model) =
            call(*env, || Ok((held(self.0.as_ref())?, held(session.0.as_ref())?, held(llm.model.as_ref())?)))?;
        let tokenizer = llm.tokenizer.clone();
        start(env, move || {
            let (mut session, mut model) = (locked(&session)?, locked(&model)?);
            let next = locked(&generator)?.step(&mut model, &mut session, &tokenizer)?;
            Ok(Plain::from(next.map(step)))
        })
    }

    /// Returns counts of tokens, times in milliseconds, and the reason why the answer ended.
    #[napi(catch_unwind)]
    pub fn usage<'env>(&self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        call(*env, || Ok(usage(&locked(&*held(self.0.as_ref())?)?.usage())))?.into_js(env)
    }

    #[napi(catch_unwind)]
    pub fn free(&mut self) {
        let_go(self.0.take());
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let_go(self.0.take());
    }
}

impl IntoJs for Generator {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        Answer(Some(Arc::new(Mutex::new(self)))).into_instance(env)?.into_unknown(env)
    }
}
