//! The library's errors as objects with fields.

use js_sys::{Object, Reflect};
use rushlight::Error;
use wasm_bindgen::JsValue;

/// The fields of a `RushlightError`.
pub fn to_js(error: &Error) -> JsValue {
    let fields = Object::new();
    set(&fields, "code", error.code() as u32);
    set(&fields, "codeName", format!("{:?}", error.code()));
    set(&fields, "message", error.to_text(|_| "JavaScript cannot register operators yet".to_owned()));
    set(&fields, "site", error.location());
    set(&fields, "expected", error.what_was_expected());
    set(&fields, "got", error.what_came());
    set(&fields, "hint", error.hint());
    let missing: Vec<JsValue> = error.missing_operators().iter().map(|op| op.name.as_str().into()).collect();
    set(&fields, "missingOperators", missing);
    fields.into()
}

/// Maps a result of the library.
pub fn map<T>(result: Result<T, Error>) -> Result<T, JsValue> {
    result.map_err(|error| to_js(&error))
}

/// Sets a field of a new object, which cannot fail.
pub fn set(object: &Object, name: &str, value: impl Into<JsValue>) {
    let _ = Reflect::set(object, &name.into(), &value.into());
}
