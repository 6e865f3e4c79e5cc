//! Where the reference operators are in this module, for `rushlight ops --npm`, which leaves those out that no program needs.

use js_sys::Object;
use rushlight::reference_operators;
use rushlight::runtime::{Code, Detail, Error, KernelContext};
use wasm_bindgen::prelude::*;

use crate::plain::set;

/// The kernel of operators that were left out.
fn left_out(_: &KernelContext<'_>) -> Result<(), Error> {
    let text = "this package was made without the operator: `rushlight ops --npm` makes one for this program too";
    Err(Error::new(Code::NotSupported, Detail::Text(text)))
}

/// Returns the index of each operator's kernel in the table of functions, by name; that of the one which takes the place of others
/// has no name.
#[wasm_bindgen]
pub fn operators() -> Object {
    let object = Object::new();
    set(&object, "", left_out as *const () as usize);
    for op in reference_operators().iter().flat_map(|set| set.iter()) {
        set(&object, op.name, op.kernel as *const () as usize);
    }
    object
}
