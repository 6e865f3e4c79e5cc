//! The functions that Java declares. What is common to them is here: handles of objects, and memory that Java lends.
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
/// The handle is that of a `T`, and is not freed during `'a`.
unsafe fn object<'a, T>(handle: jlong) -> Result<&'a T> {
    let object = ptr::with_exposed_provenance::<T>(handle as usize);
    // SAFETY: as the caller promises.
    unsafe { object.as_ref() }.ok_or_else(|| Problem::new(Code::InvalidState, "the module has been closed"))
}

/// # Safety
/// The handle is that of a `T`, and is not used again.
unsafe fn free<T>(handle: jlong) {
    let object = ptr::with_exposed_provenance_mut::<T>(handle as usize);
    if !object.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// # Safety
/// There are as many elements at the address of a direct buffer, which nobody writes during `'a`.
unsafe fn elements<'a, T>(address: jlong, count: usize) -> &'a [T] {
    let pointer = ptr::with_exposed_provenance::<T>(address as usize);
    // SAFETY: as the caller promises. Where there are no elements, the pointer need not be one.
    unsafe { if count == 0 { &[] } else { slice::from_raw_parts(pointer, count) } }
}

/// # Safety
/// There are as many elements at the address of a direct buffer, which nobody else uses during `'a`.
unsafe fn elements_mut<'a, T>(address: jlong, count: usize) -> &'a mut [T] {
    let pointer = ptr::with_exposed_provenance_mut::<T>(address as usize);
    // SAFETY: as the caller promises. Where there are no elements, the pointer need not be one.
    unsafe { if count == 0 { &mut [] } else { slice::from_raw_parts_mut(pointer, count) } }
}

/// Locks without waiting. Java has one thread at a time here, so that only a callback finds it taken.
fn locked<'a, T>(mutex: &'a Mutex<T>, what: &str) -> Result<MutexGuard<'a, T>> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Problem::new(Code::InvalidState, format!("the {what} is in use")),
        TryLockError::Poisoned(_) => {
            Problem::new(Code::Internal, format!("an earlier call of the {what} ended with a defect: load it anew"))
        }
    })
}

/// A string of Java's, which is null for null.
fn text(env: &Env<'_>, text: &JString<'_>) -> Result<Option<String>> {
    Ok(if text.is_null() { None } else { Some(text.try_to_string(env)?) })
}

/// The strings of an array, which may be null.
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
