//! Errors as JavaScript's.

use napi::bindgen_prelude::Env;
use napi::{Error, JsValue};
use rushlight::Code;
use rushlight_js_plain::{Plain, own_error};

use crate::into_js::IntoJs;

/// The error of a call.
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
        Problem::Own(code, text) => own_error(*code, text),
        Problem::Defect(message) => Plain::Object(vec![("defect", message.as_str().into())]),
    };
    let made = || -> napi::Result<Error> {
        let mut object = env.create_error(Error::from_reason(""))?;
        if let Plain::Object(fields) = plain {
            for (name, value) in fields {
                object.set(name, value.into_js(&env)?)?;
            }
        }
        Ok(object.to_unknown().into())
    };
    made().unwrap_or_else(|error| error)
}
