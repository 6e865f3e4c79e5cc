//! `LlmModule`.

use std::sync::Mutex;

use jni::objects::{JClass, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jfloat, jint, jlong};
use jni::{Env, EnvUnowned, JValue, JValueOwned, jni_sig, jni_str};
use rushlight::ModuleBuilder;
use rushlight::options::{LoadOptions, Options as _};
use rushlight_bindings_common::conversation::{Conversation, Listener, Request};

use super::module::load_mode;
use super::{free, handle, locked, object, pairs, text, texts};
use crate::error::{Problem, Result, Throw};

type Model = Mutex<Conversation>;

/// Loads a model and its tokenizer.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_extension_llm_LlmModule_loadNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    path: JString<'local>,
    tokenizer: JString<'local>,
    data: JObjectArray<'local, JString<'local>>,
    mode: jint,
    lora: JString<'local>,
    names: JObjectArray<'local, JString<'local>>,
    values: JObjectArray<'local, JString<'local>>,
) -> jlong {
    let loaded = env.with_env(|env| -> Result<_> {
        let mut options = LoadOptions::default();
        options.load_mode = Some(load_mode(mode)?.name().to_owned());
        pairs(env, &names, &values)?.iter().try_for_each(|(name, value)| options.set_text(name, value))?;
        let builder = texts(env, &data)?.iter().fold(options.builder()?, ModuleBuilder::external_data);
        let (path, tokenizer) = (path.try_to_string(env)?, tokenizer.try_to_string(env)?);
        let conversation = Conversation::load(builder, &path, &tokenizer, text(env, &lora)?.as_deref())?;
        Ok(handle(Mutex::new(conversation)))
    });
    loaded.resolve::<Throw>()
}

/// Answers a prompt. The callback gets the text, and in the end the statistics; what it throws ends the answer and is thrown here. Its
/// method `goesOn` is asked whether the answer does.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_extension_llm_LlmModule_generateNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    prompt: JString<'local>,
    seq_len: jint,
    max_new_tokens: jint,
    echo: jboolean,
    temperature: jfloat,
    num_bos: jint,
    num_eos: jint,
    names: JObjectArray<'local, JString<'local>>,
    values: JObjectArray<'local, JString<'local>>,
    callback: JObject<'local>,
) {
    let done = env.with_env(|env| -> Result<()> {
        // SAFETY: a model, which Java keeps during the call.
        let llm = unsafe { object::<Model>(handle) }?;
        let prompt = prompt.try_to_string(env)?;
        let options = pairs(env, &names, &values)?;
        let request = Request { prompt, seq_len, max_new_tokens, echo, temperature, num_bos, num_eos, options };
        let mut caller = Caller { env, callback: &callback };
        let statistics = locked(llm, "language model")?.answer(&request, &mut caller)?;
        caller.call_back(Callback::OnStats, &statistics.to_json())
    });
    done.resolve::<Throw>();
}

/// Method of `LlmCallback` that is called.
#[derive(Clone, Copy)]
enum Callback {
    OnResult,
    OnStats,
}

/// The callback of an answer.
struct Caller<'c, 'local> {
    env: &'c mut Env<'local>,
    callback: &'c JObject<'c>,
}

impl Caller<'_, '_> {
    fn call_back(&mut self, method: Callback, text: &str) -> Result<()> {
        let name = match method {
            Callback::OnResult => jni_str!("onResult"),
            Callback::OnStats => jni_str!("onStats"),
        };
        let text = JString::from_str(self.env, text)?;
        self.env.call_method(self.callback, name, jni_sig!("(Ljava/lang/String;)V"), &[JValue::Object(&text)])?;
        self.env.delete_local_ref(text);
        Ok(())
    }
}

impl Listener for Caller<'_, '_> {
    type Error = Problem;

    fn on_text(&mut self, text: &str) -> Result<()> {
        self.call_back(Callback::OnResult, text)
    }

    fn goes_on(&mut self) -> bool {
        // An error has thrown in Java, which sees it when the answer is over.
        let asked = self.env.call_method(self.callback, jni_str!("goesOn"), jni_sig!("()Z"), &[]);
        asked.and_then(JValueOwned::z).unwrap_or(false)
    }
}

/// Adds a text to the conversation without an answer.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_extension_llm_LlmModule_prefillNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    prompt: JString<'local>,
    num_bos: jint,
    num_eos: jint,
) {
    let done = env.with_env(|env| -> Result<()> {
        // SAFETY: a model, which Java keeps during the call.
        let llm = unsafe { object::<Model>(handle) }?;
        let prompt = prompt.try_to_string(env)?;
        Ok(locked(llm, "language model")?.prefill(&prompt, num_bos, num_eos)?)
    });
    done.resolve::<Throw>();
}

/// Forgets the conversation.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_extension_llm_LlmModule_forgetNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    let done = env.with_env(|_| -> Result<()> {
        // SAFETY: a model, which Java keeps during the call.
        let llm = unsafe { object::<Model>(handle) }?;
        Ok(locked(llm, "language model")?.reset()?)
    });
    done.resolve::<Throw>();
}

/// Frees a model.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_extension_llm_LlmModule_freeNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    let freed = env.with_env(|_| -> Result<()> {
        // SAFETY: Java frees a model once, when no call uses it.
        unsafe { free::<Model>(handle) };
        Ok(())
    });
    freed.resolve::<Throw>();
}
