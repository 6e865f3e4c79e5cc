//! The native functions of `Module`.

use std::path::PathBuf;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use jni::objects::{JByteBuffer, JClass, JIntArray, JObject, JObjectArray, JString};
use jni::sys::{jint, jlong};
use jni::{Env, EnvUnowned, JValue, jni_sig, jni_str};
use rushlight::options::{LoadOptions, Options as _};
use rushlight::runtime::Outputs;
use rushlight::{Code, LoadMode, ModuleBuilder};

use super::{elements, elements_mut, free, handle, locked, object, pairs, text, texts};
use crate::error::{Problem, Result, Throw};
use crate::frame::{self, Frame, Kept, Region};
use crate::interrupt::Flag;
use crate::meta;

struct Module {
    methods: Vec<String>,
    inner: Mutex<Inner>,
}

struct Inner {
    module: rushlight::Module,
    /// Sizes of the inputs of a call.
    dims: Vec<usize>,
}

impl Module {
    fn method(&self, index: jint) -> Result<&str> {
        let method = usize::try_from(index).ok().and_then(|index| self.methods.get(index));
        method
            .map(String::as_str)
            .ok_or_else(|| Problem::new(Code::Internal, format!("no method {index}: there are {}", self.methods.len())))
    }
}

/// Returns the mode for ExecuTorch's number.
pub fn load_mode(mode: jint) -> Result<LoadMode> {
    match mode {
        0 => Ok(LoadMode::File),
        1 => Ok(LoadMode::Mmap),
        2 => Ok(LoadMode::MmapMlock),
        3 => Ok(LoadMode::MmapMlockIgnoreErrors),
        mode => {
            Err(Problem::new(Code::InvalidArgument, format!("load mode: expected 0 to 3 (LOAD_MODE_...), got {mode}")))
        }
    }
}

/// Loads a program. A number of 0 and a null string stand for options that are not set.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_Module_loadNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    path: JString<'local>,
    mode: jint,
    threads: jint,
    data: JObjectArray<'local, JString<'local>>,
    lower: JString<'local>,
    cache: JString<'local>,
    memory_limit: jlong,
    time_limit_micros: jlong,
    named: JObjectArray<'local, JString<'local>>,
    named_values: JObjectArray<'local, JString<'local>>,
    backends: JObjectArray<'local, JString<'local>>,
    keys: JObjectArray<'local, JString<'local>>,
    values: JIntArray<'local>,
) -> jlong {
    let loaded = env.with_env(|env| -> Result<_> {
        let mut options = LoadOptions::default();
        options.load_mode = Some(load_mode(mode)?.name().to_owned());
        options.threads = usize::try_from(threads).ok().filter(|threads| *threads > 0);
        options.lower = text(env, &lower)?;
        options.cache = text(env, &cache)?.map(PathBuf::from);
        options.memory_limit =
            Some(memory_limit).filter(|limit| *limit > 0).map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let micros = u64::try_from(time_limit_micros).ok().filter(|micros| *micros > 0);
        options.time_limit = micros.map(Duration::from_micros);
        pairs(env, &named, &named_values)?.iter().try_for_each(|(name, value)| options.set_text(name, value))?;
        let mut builder = texts(env, &data)?.iter().fold(options.builder()?, ModuleBuilder::external_data);
        let (backends, keys) = (texts(env, &backends)?, texts(env, &keys)?);
        let mut numbers = vec![0; keys.len()];
        values.get_region(env, 0, &mut numbers)?;
        for ((backend, key), number) in backends.iter().zip(&keys).zip(numbers) {
            // A program for ExecuTorch may have options for backends that only ExecuTorch has.
            if rushlight::backends().any(|known| known.name() == backend) {
                builder = builder.option(backend, key, i64::from(number));
            }
        }
        load(builder, &path.try_to_string(env)?)
    });
    loaded.resolve::<Throw>()
}

fn load(builder: ModuleBuilder, path: &str) -> Result<jlong> {
    let module = builder.load(path)?;
    let methods = module.method_names().map(str::to_owned).collect();
    Ok(handle(Module { methods, inner: Mutex::new(Inner { module, dims: Vec::new() }) }))
}

/// Returns the names of the methods, in the order of their indices.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_Module_methodsNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> JObjectArray<'local, JString<'local>> {
    let names = env.with_env(|env| -> Result<_> {
        // SAFETY: a module, which Java keeps during the call.
        let module = unsafe { object::<Module>(handle) }?;
        meta::strings(env, module.methods.iter().map(String::as_str))
    });
    names.resolve::<Throw>()
}

/// Describes a method.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_Module_metaNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    method: jint,
) -> JObjectArray<'local, JObject<'local>> {
    let described = env.with_env(|env| -> Result<_> {
        // SAFETY: a module, which Java keeps during the call.
        let module = unsafe { object::<Module>(handle) }?;
        let meta = locked(&module.inner, "module")?.module.meta(module.method(method)?)?;
        meta::describe(env, &meta)
    });
    described.resolve::<Throw>()
}

/// Loads a method before its first call.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_Module_loadMethodNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    method: jint,
) {
    let loaded = env.with_env(|_| -> Result<()> {
        // SAFETY: a module, which Java keeps during the call.
        let module = unsafe { object::<Module>(handle) }?;
        Ok(locked(&module.inner, "module")?.module.load_method(module.method(method)?)?)
    });
    loaded.resolve::<Throw>();
}

/// Runs a method with the inputs in a frame of `frame_words` words. Afterwards, the frame has the outputs. `names` has
/// the names of the inputs, or is null. `texts` has their strings, or is null. `results` gets the objects of outputs.
/// `_inputs` keeps the buffers of tensors alive during the call.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_Module_executeNative<'local>(
    mut env: EnvUnowned<'local>,
    _this: JObject<'local>,
    handle: jlong,
    method: jint,
    frame: jlong,
    frame_words: jint,
    names: JObjectArray<'local, JString<'local>>,
    strings: JObjectArray<'local, JString<'local>>,
    results: JObjectArray<'local, JObject<'local>>,
    _inputs: JObject<'local>,
) {
    let done = env.with_env(|env| -> Result<()> {
        // SAFETY: a module, which Java keeps during the call.
        let module = unsafe { object::<Module>(handle) }?;
        let method = module.method(method)?;
        let (names, strings) = (texts(env, &names)?, texts(env, &strings)?);
        let words = usize::try_from(frame_words).unwrap_or(0);
        let whole = Region::of_frame(frame, words)?;
        let first = ptr::with_exposed_provenance_mut::<i64>(frame as usize);
        // SAFETY: `whole` is an aligned region of the frame's buffer, which lives as long as the Java object, an
        // argument of this call. Other threads write only its first word, which is read atomically.
        let interrupt = Flag(unsafe { AtomicI64::from_ptr(first) });
        // SAFETY: as above; no thread but this one uses the other words during the call.
        let mut frame = Frame(unsafe { elements_mut(frame + size_of::<i64>() as jlong, words.saturating_sub(1)) });
        let (room, size) = frame.room()?;
        let outputs = Region::new(room, size, 1)?;
        outputs.apart_from(whole)?;
        let mut inner = locked(&module.inner, "module")?;
        let Inner { module, dims } = &mut *inner;
        let inputs = frame.inputs(&strings, dims, |lent| {
            let region = Region::new(lent.address, lent.nbytes, 1)?;
            region.apart_from(outputs)?;
            region.apart_from(whole)?;
            // SAFETY: Java gives the address and size of a direct buffer, which an argument of this call keeps alive.
            // The call does not write this region.
            Ok(unsafe { elements(lent.address, lent.nbytes) })
        })?;
        if !names.is_empty() && names.len() != inputs.len() {
            let text = format!("{} names for {} inputs", names.len(), inputs.len());
            return Err(Problem::new(Code::Internal, text));
        }
        // SAFETY: the unused end of a direct buffer of the module, which only this call writes. `outputs` is its
        // region. It does not overlap the frame or the inputs.
        let room = unsafe { elements_mut::<u8>(room, size) };
        let mut written = Ok(());
        let call = module.call(method);
        let call = match &names[..] {
            [] => call.inputs(&inputs),
            names => call.named(names.iter().map(String::as_str).zip(inputs)),
        };
        call.tracer(&mut { interrupt }).read(|outputs: &Outputs<'_, '_>| {
            written = frame.write(outputs, room, |output| keep(env, &results, &output));
            Ok(())
        })?;
        written
    });
    done.resolve::<Throw>();
}

/// Puts an output into the array of objects.
fn keep<'local>(
    env: &mut Env<'local>,
    results: &JObjectArray<'local, JObject<'local>>,
    output: &Kept<'_>,
) -> Result<usize> {
    match *output {
        Kept::Text(index, text) => {
            let text = JString::from_str(env, text)?;
            results.set_element(env, index, &text)?;
            Ok(index)
        }
        Kept::Tensor(index, tensor, nbytes) => {
            // Java allocates the buffer, so that Java counts it as direct memory and frees it in time.
            let made = env.call_static_method(
                jni_str!("org/pytorch/executorch/Tensor"),
                jni_str!("allocateNative"),
                jni_sig!("(J)Ljava/nio/ByteBuffer;"),
                &[JValue::Long(nbytes as i64)],
            )?;
            let buffer = env.cast_local::<JByteBuffer>(made.l()?)?;
            if env.get_direct_buffer_capacity(&buffer)? < nbytes {
                return Err(Problem::new(Code::Internal, "the memory for an output is smaller than the output"));
            }
            let address = env.get_direct_buffer_address(&buffer)?.expose_provenance() as jlong;
            // SAFETY: a direct buffer of this size, which no one else has yet.
            frame::copy(tensor, unsafe { elements_mut(address, nbytes) })?;
            results.set_element(env, index, &buffer)?;
            Ok(index)
        }
    }
}

/// Frees a module.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_Module_freeNative<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    let freed = env.with_env(|_| -> Result<()> {
        // SAFETY: Java frees a module once, when no call uses it.
        unsafe { free::<Module>(handle) };
        Ok(())
    });
    freed.resolve::<Throw>();
}
