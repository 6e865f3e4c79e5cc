//! `LlmModule`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use jni::objects::{JClass, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jfloat, jint, jlong};
use jni::{Env, EnvUnowned, JValue, jni_sig, jni_str};

use super::module::load_mode;
use super::{free, handle, locked, object, texts};
use crate::answer::{Conversation, Request};
use crate::error::{Result, Throw};

struct Llm {
    conversation: Mutex<Conversation>,
    is_stopped: AtomicBool,
}

/// Loads a model and its tokenizer.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_extension_llm_LlmModule_loadNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    path: JString<'local>,
    tokenizer: JString<'local>,
    data: JObjectArray<'local, JString<'local>>,
    mode: jint,
) -> jlong {
    let loaded = env.with_env(|env| -> Result<_> {
        let mut builder = rushlight::Module::builder().mode(load_mode(mode)?);
        for path in texts(env, &data)? {
            builder = builder.external_data(path);
        }
        let conversation = Conversation::load(builder, &path.try_to_string(env)?, &tokenizer.try_to_string(env)?)?;
        Ok(handle(Llm { conversation: Mutex::new(conversation), is_stopped: AtomicBool::new(false) }))
    });
    loaded.resolve::<Throw>()
}

/// Answers a prompt. The callback gets the text, and in the end the statistics; what it throws ends the answer and is thrown here.
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
    callback: JObject<'local>,
) {
    let done = env.with_env(|env| -> Result<()> {
        // SAFETY: a model, which Java keeps during the call.
        let llm = unsafe { object::<Llm>(handle) }?;
        let prompt = prompt.try_to_string(env)?;
        let request = Request { prompt, seq_len, max_new_tokens, echo, temperature, num_bos, num_eos };
        llm.is_stopped.store(false, Ordering::Relaxed);
        let mut conversation = locked(&llm.conversation, "language model")?;
        let goes_on = || !llm.is_stopped.load(Ordering::Relaxed);
        let statistics = conversation.answer(&request, goes_on, |text| tell(env, &callback, Told::Result, text))?;
        drop(conversation);
        tell(env, &callback, Told::Statistics, &statistics)
    });
    done.resolve::<Throw>();
}

/// The methods of a callback.
#[derive(Clone, Copy)]
enum Told {
    Result,
    Statistics,
}

fn tell(env: &mut Env<'_>, callback: &JObject<'_>, told: Told, text: &str) -> Result<()> {
    let name = match told {
        Told::Result => jni_str!("onResult"),
        Told::Statistics => jni_str!("onStats"),
    };
    let text = JString::from_str(env, text)?;
    env.call_method(callback, name, jni_sig!("(Ljava/lang/String;)V"), &[JValue::Object(&text)])?;
    env.delete_local_ref(text);
    Ok(())
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
        let llm = unsafe { object::<Llm>(handle) }?;
        let prompt = prompt.try_to_string(env)?;
        locked(&llm.conversation, "language model")?.prefill(&prompt, num_bos, num_eos)
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
        let llm = unsafe { object::<Llm>(handle) }?;
        locked(&llm.conversation, "language model")?.reset()
    });
    done.resolve::<Throw>();
}

/// Ends the answer before its next token. Any thread may call it while another one generates.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_extension_llm_LlmModule_stopNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    let done = env.with_env(|_| -> Result<()> {
        // SAFETY: a model, which Java keeps during the call.
        let llm = unsafe { object::<Llm>(handle) }?;
        llm.is_stopped.store(true, Ordering::Relaxed);
        Ok(())
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
        unsafe { free::<Llm>(handle) };
        Ok(())
    });
    freed.resolve::<Throw>();
}
