//! The native functions that Java declares. This module has their common parts: handles of objects, and memory that
//! Java lends.
#![allow(unsafe_code, reason = "the names of exports, and what Java points at")]

#[cfg(feature = "llm")]
mod llm;
mod module;
mod runtime;

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::{ptr, slice};

use jni::Env;
use jni::objects::{JObjectArray, JString};
use jni::sys::jlong;
use rushlight::Code;

use crate::error::{Problem, Result};

/// The handle of an object, which Java frees once.
fn handle<T>(object: T) -> jlong {
    Box::into_raw(Box::new(object)).expose_provenance() as jlong
}

/// # Safety
/// The handle must be that of a `T`, and must not be freed during `'a`.
unsafe fn object<'a, T>(handle: jlong) -> Result<&'a T> {
    let object = ptr::with_exposed_provenance::<T>(handle as usize);
    // SAFETY: as the caller promises.
    unsafe { object.as_ref() }.ok_or_else(|| Problem::new(Code::InvalidState, "the module has been closed"))
}

/// # Safety
/// The handle must be that of a `T`, and must not be used again.
unsafe fn free<T>(handle: jlong) {
    let object = ptr::with_exposed_provenance_mut::<T>(handle as usize);
    if !object.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// # Safety
/// The direct buffer at the address must have `count` elements, and nothing may write them during `'a`.
unsafe fn elements<'a, T>(address: jlong, count: usize) -> &'a [T] {
    let pointer = ptr::with_exposed_provenance::<T>(address as usize);
    // SAFETY: as the caller promises. Without elements, the pointer may be invalid.
    unsafe { if count == 0 { &[] } else { slice::from_raw_parts(pointer, count) } }
}

/// # Safety
/// The direct buffer at the address must have `count` elements, and nothing else may use them during `'a`.
unsafe fn elements_mut<'a, T>(address: jlong, count: usize) -> &'a mut [T] {
    let pointer = ptr::with_exposed_provenance_mut::<T>(address as usize);
    // SAFETY: as the caller promises. Without elements, the pointer may be invalid.
    unsafe { if count == 0 { &mut [] } else { slice::from_raw_parts_mut(pointer, count) } }
}

/// Locks without waiting. Java allows one thread at a time, so only a callback can find the mutex locked.
fn locked<'a, T>(mutex: &'a Mutex<T>, what: &str) -> Result<MutexGuard<'a, T>> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Problem::new(Code::InvalidState, format!("the {what} is in use")),
        TryLockError::Poisoned(_) => {
            Problem::new(Code::Internal, format!("an earlier call of the {what} ended with a defect: load it anew"))
        }
    })
}

/// Returns a string of Java; `None` for null.
fn text(env: &Env<'_>, text: &JString<'_>) -> Result<Option<String>> {
    Ok(if text.is_null() { None } else { Some(text.try_to_string(env)?) })
}

/// Returns the strings of an array, which may be null.
fn texts<'local>(env: &mut Env<'local>, array: &JObjectArray<'local, JString<'local>>) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    if !array.is_null() {
        for index in 0..array.len(env)? {
            let element = array.get_element(env, index)?;
            texts.push(element.try_to_string(env)?);
            env.delete_local_ref(element);
        }
    }
    Ok(texts)
}

/// Returns the options of two arrays: names, each with its value.
fn pairs<'local>(
    env: &mut Env<'local>,
    names: &JObjectArray<'local, JString<'local>>,
    values: &JObjectArray<'local, JString<'local>>,
) -> Result<Vec<(String, String)>> {
    Ok(texts(env, names)?.into_iter().zip(texts(env, values)?).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The body of each function that Java calls is one call of `with_env`, which catches panics, and `Throw`, which throws them.
    #[test]
    fn every_entry_throws_its_panics() {
        let mut entries = 0;
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ffi")).expect("the sources") {
            let source = fs::read_to_string(file.expect("a file").path()).expect("a source");
            let source = source.split("#[cfg(test)]").next().unwrap_or_default();
            for function in source.split("extern \"system\" fn ").skip(1) {
                let (name, _) = function.split_once('<').expect("a name");
                let (_, body) = function.split_once("{\n").expect("a body");
                let (body, _) = body.split_once("\n}\n").expect("an end");
                let (first, last) = (body.lines().next().unwrap_or_default(), body.lines().last().unwrap_or_default());
                let result = first.trim().strip_prefix("let ").and_then(|line| line.split_once(" = env.with_env(|"));
                let Some((result, _)) = result else { panic!("{name} begins with {first}") };
                assert_eq!(last.trim().trim_end_matches(';'), format!("{result}.resolve::<Throw>()"), "{name}");
                // Nothing else is at the margin of the body.
                let statements = body.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
                assert_eq!(statements.count(), if body.lines().count() > 2 { 3 } else { 2 }, "{name}");
                entries += 1;
            }
        }
        assert!(entries >= 15, "{entries}");
    }
}
