//! The native functions of `NativeLibrary` and `ExecuTorchRuntime`.

use jni::EnvUnowned;
use jni::objects::{JByteBuffer, JClass, JObject, JObjectArray, JString};
use jni::sys::jlong;
use rushlight::kernels;

use crate::error::{Result, Throw};
use crate::meta::strings;

/// Returns the version, which must equal that of the Java classes.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_NativeLibrary_version<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JString<'local> {
    let version = env.with_env(|env| -> Result<_> { Ok(JString::from_str(env, env!("CARGO_PKG_VERSION"))?) });
    version.resolve::<Throw>()
}

/// Returns the address of a direct buffer's first element.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_NativeLibrary_address<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    buffer: JObject<'local>,
) -> jlong {
    let address = env.with_env(|env| -> Result<_> {
        // SAFETY: a buffer of any element type; JNI returns its address in the same way.
        let buffer = unsafe { JByteBuffer::from_raw(env, buffer.into_raw()) };
        Ok(env.get_direct_buffer_address(&buffer)?.expose_provenance() as jlong)
    });
    address.resolve::<Throw>()
}

/// Returns the names of all operators.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_ExecuTorchRuntime_operators<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JObjectArray<'local, JString<'local>> {
    let names = env.with_env(|env| -> Result<_> {
        let names =
            kernels::ALL.iter().flat_map(|set| set.iter()).map(|op| op.name).collect::<std::collections::BTreeSet<_>>();
        strings(env, names)
    });
    names.resolve::<Throw>()
}

/// Returns the names of all backends.
#[unsafe(no_mangle)]
pub extern "system" fn Java_org_pytorch_executorch_ExecuTorchRuntime_backends<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JObjectArray<'local, JString<'local>> {
    let names = env.with_env(|env| -> Result<_> { strings(env, rushlight::program_backends()) });
    names.resolve::<Throw>()
}
