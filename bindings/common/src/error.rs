//! The parts of an error.

use rushlight::{Code, Error, MissingOperator};

/// An error of the library in its parts, from which a binding makes an exception.
#[derive(Clone, Debug)]
pub struct ErrorParts {
    pub code: Code,
    /// The headline in one line.
    pub message: String,
    /// The place of the error: method, instruction, operator, argument.
    pub site: Option<String>,
    pub expected: Option<String>,
    pub got: Option<String>,
    pub hint: Option<String>,
    /// All parts, in several lines.
    pub text: String,
    /// Names of operators that the program needs and the library lacks.
    pub missing_operators: Vec<String>,
    /// The system's number of the reason why a file could not be accessed.
    pub os_error: Option<i32>,
}

impl ErrorParts {
    /// The parts of an error that a binding finds itself.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            text: headline(code, &message),
            message,
            site: None,
            expected: None,
            got: None,
            hint: None,
            missing_operators: Vec::new(),
            os_error: None,
        }
    }

    /// The parts of an error of the library. `register` returns the instruction for a missing operator.
    pub fn of(error: &Error, register: impl Fn(&MissingOperator) -> String) -> Self {
        let part = |text: Option<&str>| text.map(ToOwned::to_owned);
        Self {
            code: error.code(),
            message: error.message().to_owned(),
            site: part(error.location()),
            expected: part(error.what_was_expected()),
            got: part(error.what_came()),
            hint: part(error.hint()),
            text: error.to_text(register),
            missing_operators: error.missing_operators().iter().map(|op| op.name.clone()).collect(),
            os_error: error.os_error().map(|(_, number)| number),
        }
    }

    /// The parts of an error of language models. `register` returns the instruction for a missing operator.
    #[cfg(feature = "llm")]
    pub fn of_llm(error: &rushlight_llm::Error, register: impl Fn(&MissingOperator) -> String) -> Self {
        use rushlight_llm::Error as Llm;
        let os_error = match error {
            Llm::Module(error) => return Self::of(error, register),
            Llm::File { error, .. } => error.raw_os_error(),
            _ => None,
        };
        Self {
            text: headline(error.code(), &error.to_string()),
            message: error.message(),
            expected: error.what_was_expected(),
            got: error.what_came(),
            hint: error.hint(),
            os_error,
            ..Self::new(error.code(), "")
        }
    }
}

/// The first line of an error's text.
fn headline(code: Code, message: &str) -> String {
    format!("[{code:?} 0x{:02x}] {message}", code as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_error() {
        let error = rushlight::Module::load("/no/such/file.pte").unwrap_err();
        let parts = ErrorParts::of(&error, |_| String::new());
        assert_eq!((parts.code, parts.text.as_str()), (error.code(), error.to_string().as_str()));
        assert!(parts.message.contains("file.pte") && parts.os_error.is_some() && parts.missing_operators.is_empty());
        let own = ErrorParts::new(Code::InvalidState, "it is in use");
        assert!(own.text.starts_with("[InvalidState 0x") && own.text.ends_with("] it is in use"));
    }
}
