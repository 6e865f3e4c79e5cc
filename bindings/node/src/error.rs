//! Errors, and plain values, as JavaScript's.

use napi::bindgen_prelude::{Array, BigInt, Env, Null, Object, ToNapiValue, Unknown};
use napi::{Error, JsValue};
use rushlight::Code;
use rushlight_js_plain::Plain;

/// Why a call failed.
#[derive(Debug)]
pub enum Problem {
    Library(rushlight::Error),
    Llm(rushlight_llm::Error),
    /// An error of the binding.
    Own(Code, &'static str),
    /// A panic, with its message.
    Defect(String),
}

pub type Result<T> = std::result::Result<T, Problem>;

impl From<rushlight::Error> for Problem {
    fn from(error: rushlight::Error) -> Self {
        Self::Library(error)
    }
}

impl From<rushlight::runtime::Error> for Problem {
    fn from(error: rushlight::runtime::Error) -> Self {
        Self::Library(error.into())
    }
}

impl From<rushlight_llm::Error> for Problem {
    fn from(error: rushlight_llm::Error) -> Self {
        Self::Llm(error)
    }
}

/// An `Error` with the fields of a `RushlightError`; for a panic with its message as `defect`.
pub fn to_error(env: Env, problem: &Problem) -> Error {
    let plain = match problem {
        Problem::Library(error) => rushlight_js_plain::error(error),
        Problem::Llm(error) => rushlight_js_plain::llm_error(error),
        Problem::Own(code, text) => Plain::Object(vec![
            ("code", (*code as u32).into()),
            ("codeName", format!("{code:?}").into()),
            ("message", format!("[{code:?} {:#04x}] {text}", *code as u32).into()),
        ]),
        Problem::Defect(message) => Plain::Object(vec![("defect", message.as_str().into())]),
    };
    let made = || -> napi::Result<Error> {
        let mut object = env.create_error(Error::from_reason(""))?;
        if let Plain::Object(fields) = plain {
            for (name, value) in fields {
                object.set(name, to_js(&env, value)?)?;
            }
        }
        Ok(object.to_unknown().into())
    };
    made().unwrap_or_else(|error| error)
}

/// A plain value as JavaScript's own.
pub fn to_js(env: &Env, plain: Plain) -> napi::Result<Unknown<'_>> {
    match plain {
        Plain::Undefined => ().into_unknown(env),
        Plain::Null => Null.into_unknown(env),
        Plain::Bool(value) => value.into_unknown(env),
        Plain::Number(value) => value.into_unknown(env),
        Plain::BigInt(value) => BigInt::from(value).into_unknown(env),
        Plain::Text(text) => text.into_unknown(env),
        Plain::Array(values) => {
            let values: Vec<_> = values.into_iter().map(|value| to_js(env, value)).collect::<napi::Result<_>>()?;
            Array::from_vec(env, values)?.into_unknown(env)
        }
        Plain::Object(fields) => {
            let mut object = Object::new(env)?;
            for (name, value) in fields {
                object.set(name, to_js(env, value)?)?;
            }
            object.into_unknown(env)
        }
    }
}
