//! Results as values of JavaScript's.

use napi::bindgen_prelude::{Array, BigInt, Env, Null, Object, ToNapiValue, Unknown};
use rushlight_js_plain::Plain;

/// A result that becomes a value of JavaScript's on its thread.
pub trait IntoJs: Send + 'static {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>>;
}

impl IntoJs for Plain {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        match self {
            Self::Undefined => ().into_unknown(env),
            Self::Null => Null.into_unknown(env),
            Self::Bool(value) => value.into_unknown(env),
            Self::Number(value) => value.into_unknown(env),
            Self::BigInt(value) => BigInt::from(value).into_unknown(env),
            Self::Text(text) => text.into_unknown(env),
            Self::Array(values) => {
                let values: Vec<_> = values.into_iter().map(|value| value.into_js(env)).collect::<napi::Result<_>>()?;
                Array::from_vec(env, values)?.into_unknown(env)
            }
            Self::Object(fields) => {
                let mut object = Object::new(env)?;
                for (name, value) in fields {
                    object.set(name, value.into_js(env)?)?;
                }
                object.into_unknown(env)
            }
        }
    }
}
