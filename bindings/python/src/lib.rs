//! Python bindings: they convert values, call the library, and map errors. Everything else belongs to the crate
//! `rushlight`. `bindings/README.md` has the decisions.

mod array;
mod backend;
mod call;
mod callback;
mod choice;
mod compare;
mod compiler;
mod custom;
mod delegate;
mod error;
mod ffi;
mod first_interpreter;
mod graph;
mod guard;
mod instances;
mod interpreter;
mod llm;
mod meta;
mod module;
mod profile;
mod refusal;
mod report;
mod signals;
mod source;
mod tensor;
mod tensor_text;
mod torch;
mod turns;
mod watched;

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use rushlight_python_macros::guarded;

// Objects that threads share are locked or immutable, with or without a GIL.
#[pymodule(gil_used = false)]
mod _rushlight {
    use super::*;

    #[pymodule_export]
    use super::backend::set_options;
    #[pymodule_export]
    use super::call::Cancellation;
    #[pymodule_export]
    use super::choice::{BackendSpec, backends};
    #[pymodule_export]
    use super::compare::compare;
    #[pymodule_export]
    use super::compiler::{Compiled, compile, exported_meta};
    #[pymodule_export]
    use super::custom::register_op;
    #[pymodule_export]
    use super::delegate::{program_backends, register_backend};
    #[pymodule_export]
    use super::instances::Instances;
    #[pymodule_export]
    use super::llm::{
        Adapter, Generation, Generator, LanguageModel, Session, Tokenizer, cached_program, runner_generated_tokens,
    };
    #[pymodule_export]
    use super::module::{Bundle, Module};
    #[pymodule_export]
    use super::profile::{benchmark, profile};
    #[pymodule_export]
    use super::tensor::Tensor;

    /// Panics, for tests of the handling of panics.
    #[guarded]
    #[pyfunction]
    fn panic_for_tests(text: String) -> PyResult<()> {
        panic!("{text}")
    }

    /// Names of the built-in operators.
    #[guarded]
    #[pyfunction]
    fn operator_names() -> Vec<&'static str> {
        rushlight::kernels::ALL.iter().flat_map(|set| set.iter()).map(|op| op.name).collect()
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        guard::guarded(|| {
            first_interpreter::check_is_first(module.py())?;
            // Names of the files of a tokenizer.
            module.add("TOKENIZER_VOCABULARIES", rushlight_format::tokenizer::VOCABULARIES.to_vec())?;
            module.add("TOKENIZER_SETTINGS", rushlight_format::tokenizer::SETTINGS.to_vec())?;
            // Names of quantization schemes, and whether they need a calibration.
            let schemes = rushlight::Scheme::ALL.map(|scheme| (scheme.name, scheme.is_static()));
            module.add("SCHEMES", schemes.into_py_dict(module.py())?)?;
            module.add("__version__", env!("CARGO_PKG_VERSION"))
        })
    }
}
