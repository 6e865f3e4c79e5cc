//! Errors as Java's exceptions.

use std::any::Any;

use jni::errors::ErrorPolicy;
use jni::objects::{JObject, JString, JThrowable};
use jni::{Env, JValue, jni_sig, jni_str};
use rushlight::options::OptionError;
use rushlight::{Code, Error, MissingOperator};
use rushlight_bindings_common::ErrorParts;

/// The error of a call.
#[derive(Debug)]
pub enum Problem {
    /// An error of the library or of the binding.
    Parts(Box<ErrorParts>),
    /// A JNI call that failed. A pending exception is what Java sees.
    Java(jni::errors::Error),
}

pub type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        ErrorParts::new(code, message).into()
    }
}

/// The instruction for a missing operator.
fn register(_: &MissingOperator) -> String {
    "Java cannot register operators".to_owned()
}

impl From<ErrorParts> for Problem {
    fn from(parts: ErrorParts) -> Self {
        Self::Parts(Box::new(parts))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        ErrorParts::of(&error, register).into()
    }
}

impl From<OptionError> for Problem {
    fn from(error: OptionError) -> Self {
        Error::from(error).into()
    }
}

impl From<rushlight::runtime::Error> for Problem {
    fn from(error: rushlight::runtime::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<jni::errors::Error> for Problem {
    fn from(error: jni::errors::Error) -> Self {
        Self::Java(error)
    }
}

#[cfg(feature = "llm")]
impl From<rushlight_bindings_common::conversation::Problem> for Problem {
    fn from(problem: rushlight_bindings_common::conversation::Problem) -> Self {
        problem.parts(register).into()
    }
}

/// Throws problems and panics as an `ExecutorchRuntimeException`.
#[derive(Debug)]
pub struct Throw;

impl<T: Default> ErrorPolicy<T, Problem> for Throw {
    type Captures<'unowned_env_local: 'native_method, 'native_method> = ();

    fn on_error<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        (): &mut (),
        problem: Problem,
    ) -> jni::errors::Result<T> {
        if !env.exception_check() {
            throw(env, &problem)?;
        }
        Ok(T::default())
    }

    fn on_panic<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        (): &mut (),
        panic: Box<dyn Any + Send + 'static>,
    ) -> jni::errors::Result<T> {
        Self::on_error(env, &mut (), rushlight::panic_error(&*panic).into())
    }
}

fn throw(env: &mut Env<'_>, problem: &Problem) -> jni::errors::Result<()> {
    let java;
    let parts = match problem {
        Problem::Parts(parts) => &**parts,
        Problem::Java(error) => {
            java = ErrorParts::new(Code::Internal, error.to_string());
            &java
        }
    };
    let ErrorParts { site, expected, got, hint, text, .. } = parts;
    let mut texts = Vec::new();
    for part in [Some(text), site.as_ref(), expected.as_ref(), got.as_ref(), hint.as_ref()] {
        texts.push(match part {
            Some(text) => JObject::from(JString::from_str(env, text)?),
            None => JObject::null(),
        });
    }
    let code = i32::try_from(parts.code as u32).unwrap_or(i32::MAX);
    let mut arguments = vec![JValue::Int(code)];
    arguments.extend(texts.iter().map(JValue::Object));
    let made = env.call_static_method(
        jni_str!("org/pytorch/executorch/ExecutorchRuntimeException"),
        jni_str!("ofLibrary"),
        jni_sig!(
            "(ILjava/lang/String;Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;)\
             Lorg/pytorch/executorch/ExecutorchRuntimeException;"
        ),
        &arguments,
    )?;
    let exception = env.cast_local::<JThrowable>(made.l()?)?;
    // It says that an exception is pending now.
    let _ = env.throw(exception);
    Ok(())
}
