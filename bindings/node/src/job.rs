//! Calls of the library: on the thread of JavaScript, or on one of libuv's pool. A panic ends there.

use std::panic::{AssertUnwindSafe, catch_unwind};

use napi::ScopedTask;
use napi::bindgen_prelude::{Env, ToNapiValue, Unknown};
use rushlight_bindings_common::ending_panics;

use crate::error::{Problem, Result, to_error};
use crate::into_js::IntoJs;

/// Calls the library on JavaScript's thread. A panic is an error.
pub fn call<T>(env: Env, act: impl FnOnce() -> Result<T>) -> napi::Result<T> {
    guarded(act).map_err(|problem| to_error(env, &problem))
}

/// Calls the library on a thread of libuv's pool, and returns a promise.
pub fn start<T: IntoJs>(env: &Env, act: impl FnOnce() -> Result<T> + Send + 'static) -> napi::Result<Unknown<'_>> {
    env.spawn(Job(Some(Box::new(act))))?.promise_object().into_unknown(env)
}

/// Drops an object of the library, where JavaScript or its garbage collector frees one. A panic ends there.
pub fn let_go<T>(object: T) {
    ending_panics((), || drop(object));
}

fn guarded<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|panic| Err(Problem::Defect(rushlight::panic_message(&*panic).to_owned())))
}

/// A call that is queued on libuv's pool.
struct Job<T>(Option<Box<dyn FnOnce() -> Result<T> + Send>>);

impl<'env, T: IntoJs> ScopedTask<'env> for Job<T> {
    type Output = Result<T>;
    type JsValue = Unknown<'env>;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        Ok(self.0.take().map_or_else(|| Err(Problem::Defect("a job ran twice".to_owned())), guarded))
    }

    fn resolve(&mut self, env: &'env Env, output: Self::Output) -> napi::Result<Self::JsValue> {
        call(*env, || Ok(output?.into_js(env)))?
    }
}
