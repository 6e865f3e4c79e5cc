//! Plain values as JavaScript's own, and errors of the library.

use js_sys::{Array, BigInt, Object, Reflect};
use rushlight::Error;
use rushlight_js_plain::Plain;
use wasm_bindgen::JsValue;

pub fn to_js(plain: Plain) -> JsValue {
    match plain {
        Plain::Undefined => JsValue::UNDEFINED,
        Plain::Null => JsValue::NULL,
        Plain::Bool(value) => value.into(),
        Plain::Number(value) => value.into(),
        Plain::BigInt(value) => BigInt::from(value).into(),
        Plain::Text(text) => text.into(),
        Plain::Array(values) => values.into_iter().map(to_js).collect::<Array>().into(),
        Plain::Object(fields) => {
            let object = Object::new();
            fields.into_iter().for_each(|(name, value)| set(&object, name, to_js(value)));
            object.into()
        }
    }
}

/// Maps a result of the library.
pub fn map<T>(result: Result<T, Error>) -> Result<T, JsValue> {
    result.map_err(|error| to_js(rushlight_js_plain::error(&error)))
}

/// Sets a field of a new object, which cannot fail.
pub fn set(object: &Object, name: &str, value: impl Into<JsValue>) {
    let _ = Reflect::set(object, &name.into(), &value.into());
}
