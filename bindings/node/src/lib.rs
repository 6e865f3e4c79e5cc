//! Node.js bindings: convert, call, map errors. Everything else belongs to the crate `rushlight`. The npm package in
//! `bindings/js/package` is the only caller of the exports here. `bindings/README.md` has the decisions.
//!
//! Long computations run on libuv's thread pool (`job.rs`) and return promises; JavaScript continues meanwhile, so
//! that nothing on that thread reads memory that JavaScript can write, shrink or detach. Objects are shared with the thread that
//! uses them, and each is used by one call at a time: JavaScript waits before it starts the next. Level 9.
#![allow(missing_debug_implementations, reason = "no crate uses this one")]
#![expect(clippy::needless_pass_by_value, reason = "JavaScript hands over copies of texts, and objects whole")]

mod bytes;
mod compile;
mod error;
mod interrupt;
mod into_js;
mod job;
mod llm;
mod module;
mod values;

use napi::bindgen_prelude::{Env, Unknown};
use napi_derive::napi;
use rushlight_js_plain::Plain;

use into_js::IntoJs as _;

pub use bytes::Bytes;
pub use compile::compile;
pub use interrupt::Interrupt;
pub use llm::{Answer, LanguageModel, Session, Tokenizer};
pub use module::Module;

/// The version of the package that the addon belongs to.
#[napi(catch_unwind)]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Panics, for tests: in a call of the library, in one on libuv's pool, or outside of both.
///
/// # Panics
/// Always; each panic arrives in JavaScript as an error.
#[napi(catch_unwind)]
pub fn panic_for_tests(env: &Env, place: String) -> napi::Result<Unknown<'_>> {
    let act = || -> error::Result<Plain> { panic!("on purpose") };
    match place.as_str() {
        "call" => job::call(*env, act)?.into_js(env),
        "pool" => job::start(env, act),
        _ => panic!("on purpose"),
    }
}
