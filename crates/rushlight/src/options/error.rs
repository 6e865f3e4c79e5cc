//! Errors of options.

use std::fmt;

use rushlight_runtime::Code;

use crate::error::Error;

/// An error of an option: its name, the expected value, and the given one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    name: String,
    expected: String,
    got: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// No option has the name.
    Unknown { nearest: Option<String>, known: Vec<String> },
    /// The value is of another type.
    Type,
    /// The value is outside of the range.
    Range,
}

/// A value that an option does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub expected: String,
    pub got: String,
    /// True if the type is wrong, false if the value is.
    pub is_type: bool,
}

impl OptionError {
    pub(super) fn unknown(name: &str, nearest: Option<&str>, known: Vec<String>) -> Self {
        let expected = format!("one of: {}", known.join(", "));
        let nearest = nearest.map(ToOwned::to_owned);
        Self { name: name.to_owned(), expected, got: name.to_owned(), kind: Kind::Unknown { nearest, known } }
    }

    pub(super) fn of(name: &str, wrong: Wrong) -> Self {
        let Wrong { expected, got, is_type } = wrong;
        let kind = if is_type { Kind::Type } else { Kind::Range };
        Self { name: name.to_owned(), expected, got, kind }
    }

    /// Returns the error for a value that contradicts other options.
    pub fn range(name: &str, expected: impl Into<String>, got: impl fmt::Display) -> Self {
        Self { name: name.to_owned(), expected: expected.into(), got: got.to_string(), kind: Kind::Range }
    }

    /// The name that was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The expected value, such as `0 or more`, or the known names.
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// The given value, or the unknown name.
    pub fn got(&self) -> &str {
        &self.got
    }

    /// True if no option has the name.
    pub fn is_unknown(&self) -> bool {
        matches!(self.kind, Kind::Unknown { .. })
    }

    /// True if the value is of another type than the option.
    pub fn is_type(&self) -> bool {
        self.kind == Kind::Type
    }

    /// The known name that is most like an unknown one.
    pub fn nearest(&self) -> Option<&str> {
        match &self.kind {
            Kind::Unknown { nearest, .. } => nearest.as_deref(),
            _ => None,
        }
    }

    /// The same error with the names of another language, such as those of [`camel_case`](super::camel_case).
    #[must_use]
    pub fn renamed(self, rename: impl Fn(&str) -> String) -> Self {
        match &self.kind {
            Kind::Unknown { nearest, known } => {
                let known: Vec<String> = known.iter().map(|name| rename(name)).collect();
                Self::unknown(&self.name, nearest.as_deref().map(&rename).as_deref(), known)
            }
            _ => Self { name: rename(&self.name), ..self },
        }
    }

    /// The headline, without expected and got.
    pub fn message(&self) -> String {
        match &self.kind {
            Kind::Unknown { .. } => format!("there is no option `{}`", self.name),
            _ => format!("the option `{}` has no such value", self.name),
        }
    }

    /// Advice on how to mend it.
    pub fn hint(&self) -> Option<String> {
        self.nearest().map(|near| format!("did you mean `{near}`?"))
    }
}

/// One sentence, for languages whose errors are a text: `top_k must be 0 or more, got -1`.
impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, expected, got, .. } = self;
        match &self.kind {
            Kind::Unknown { nearest: Some(near), .. } => write!(f, "there is no option {name}: did you mean {near}?"),
            Kind::Unknown { nearest: None, .. } => write!(f, "there is no option {name}: expected {expected}"),
            _ => write!(f, "{name} must be {expected}, got {got}"),
        }
    }
}

impl std::error::Error for OptionError {}

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        let converted =
            Self::new(Code::InvalidArgument, error.message()).expected(error.expected.clone()).got(error.got.clone());
        match error.hint() {
            Some(hint) => converted.help(hint),
            None => converted,
        }
    }
}
