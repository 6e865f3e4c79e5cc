//! Errors as Java's exceptions.

use std::any::Any;

use jni::errors::ErrorPolicy;
use jni::objects::{JObject, JString, JThrowable};
use jni::{Env, JValue, jni_sig, jni_str};
use rushlight::options::OptionError;
use rushlight::{Code, Error};

/// Why a call failed.
#[derive(Debug)]
pub enum Problem {
    /// The library's own error.
    Library(Error),
    /// An error of the binding or of a language model, whole and in its parts.
    Own { code: Code, message: String, expected: Option<String>, got: Option<String>, help: Option<String> },
    /// A JNI call that failed. A pending exception is what Java sees.
    Java(jni::errors::Error),
}

pub type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Own { code, message: message.into(), expected: None, got: None, help: None }
    }

    #[cfg(feature = "llm")]
    pub fn with_parts(code: Code, message: &str, expected: String, got: String, help: String) -> Self {
        let message = format!("{message}\n  expected  {expected}\n  got       {got}\n  help      {help}");
        Self::Own { code, message, expected: Some(expected), got: Some(got), help: Some(help) }
    }

    pub fn code(&self) -> Code {
        match self {
            Self::Library(error) => error.code(),
            Self::Own { code, .. } => *code,
            Self::Java(_) => Code::Internal,
        }
    }

    /// All that there is to say, in several lines.
    pub fn text(&self) -> String {
        match self {
            Self::Library(error) => error.to_text(|_| "Java cannot register operators".to_owned()),
            Self::Own { code, message, .. } => format!("[{code:?} 0x{:02x}] {message}", *code as u32),
            Self::Java(error) => format!("[Internal 0x01] {error}"),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<OptionError> for Problem {
    fn from(error: OptionError) -> Self {
        Self::Library(error.into())
    }
}

impl From<rushlight::runtime::Error> for Problem {
    fn from(error: rushlight::runtime::Error) -> Self {
        Self::Library(error.into())
    }
}

impl From<jni::errors::Error> for Problem {
    fn from(error: jni::errors::Error) -> Self {
        Self::Java(error)
    }
}

#[cfg(feature = "llm")]
impl From<rushlight_llm::Error> for Problem {
    fn from(error: rushlight_llm::Error) -> Self {
        match error {
            rushlight_llm::Error::Module(error) => Self::Library(error),
            error => Self::Own {
                code: error.code(),
                message: error.to_string(),
                expected: error.what_was_expected(),
                got: error.what_came(),
                help: error.hint(),
            },
        }
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
        let message = format!("a defect of the library: {}", rushlight::panic_message(&*panic));
        Self::on_error(env, &mut (), Problem::new(Code::Internal, message))
    }
}

fn throw(env: &mut Env<'_>, problem: &Problem) -> jni::errors::Result<()> {
    let [site, expected, got, help] = match problem {
        Problem::Library(error) => [error.location(), error.what_was_expected(), error.what_came(), error.hint()],
        Problem::Own { expected, got, help, .. } => [None, expected.as_deref(), got.as_deref(), help.as_deref()],
        Problem::Java(_) => [None; 4],
    };
    let text = problem.text();
    let mut texts = Vec::new();
    for part in [Some(&*text), site, expected, got, help] {
        texts.push(match part {
            Some(text) => JObject::from(JString::from_str(env, text)?),
            None => JObject::null(),
        });
    }
    let code = i32::try_from(problem.code() as u32).unwrap_or(i32::MAX);
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
