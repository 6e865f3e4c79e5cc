//! Errors with all of their fields as C strings.

use std::ffi::{CStr, CString};
use std::ops::Deref;

use rushlight::{Code, MissingOperator};
use rushlight_bindings_common::ErrorParts;

/// An error of a call. Boxed, because results carry it around.
#[derive(Clone, Debug, Default)]
pub struct Status(Box<Fields>);

/// Fields of a status.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    pub code: u32,
    pub message: CString,
    pub site: Option<CString>,
    pub expected: Option<CString>,
    pub got: Option<CString>,
    pub hint: Option<CString>,
    /// All fields, in several lines.
    pub text: CString,
    pub missing_operators: Vec<CString>,
    /// The system's number of the reason why a file could not be accessed; 0 for other errors.
    pub os_error: i32,
}

impl Deref for Status {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.0
    }
}

impl From<Fields> for Status {
    fn from(fields: Fields) -> Self {
        Self(Box::new(fields))
    }
}

impl Status {
    /// An error that the binding itself finds.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::with_code(code as u32, &format!("{code:?}"), message.into())
    }

    /// An argument that cannot be used.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// An error of a callback, whose code need not be one of the library's.
    pub fn of_callback(code: u32, message: &CStr) -> Self {
        let known = CODES.iter().find(|known| **known as u32 == code);
        let name = known.map_or_else(|| "Error".to_owned(), |known| format!("{known:?}"));
        Self::with_code(code, &name, message.to_string_lossy().into_owned())
    }

    fn with_code(code: u32, name: &str, message: String) -> Self {
        let text = c_string(&format!("[{name} 0x{code:02x}] {message}"));
        Fields { code, message: c_string(&message), text, ..Fields::default() }.into()
    }

    /// The same error at a place.
    pub fn at(mut self, site: &str) -> Self {
        self.0.site = Some(c_string(site));
        self.0.text = c_string(&format!("{}\n  at        {site}", self.text.to_string_lossy()));
        self
    }

    /// This error, whose cause a callback returned: the callback's words, at the place where it was called.
    pub fn caused_by(mut self, cause: Self) -> Self {
        let text = format!("{}\n  cause     {}", self.text.to_string_lossy(), cause.message.to_string_lossy());
        self.0.text = c_string(&text);
        self.0.code = cause.code;
        self.0.message = cause.0.message;
        self
    }
}

/// The codes that callbacks may use too.
const CODES: &[Code] = &[
    Code::Internal,
    Code::InvalidState,
    Code::NotSupported,
    Code::NotImplemented,
    Code::InvalidArgument,
    Code::InvalidType,
    Code::OperatorMissing,
    Code::NotFound,
    Code::MemoryAllocationFailed,
    Code::AccessFailed,
    Code::InvalidProgram,
    Code::InvalidExternalData,
    Code::OutOfResources,
    Code::DelegateInvalidCompatibility,
    Code::DelegateMemoryAllocationFailed,
    Code::DelegateInvalidHandle,
];

/// The instruction for a missing operator.
fn register(_: &MissingOperator) -> String {
    "rl_registry_add_operator".to_owned()
}

impl From<ErrorParts> for Status {
    fn from(parts: ErrorParts) -> Self {
        let field = |text: Option<String>| text.as_deref().map(c_string);
        let fields = Fields {
            code: parts.code as u32,
            message: c_string(&parts.message),
            site: field(parts.site),
            expected: field(parts.expected),
            got: field(parts.got),
            hint: field(parts.hint),
            text: c_string(&parts.text),
            missing_operators: parts.missing_operators.iter().map(|name| c_string(name)).collect(),
            os_error: parts.os_error.unwrap_or(0),
        };
        fields.into()
    }
}

impl From<rushlight::Error> for Status {
    fn from(error: rushlight::Error) -> Self {
        ErrorParts::of(&error, register).into()
    }
}

impl From<rushlight::runtime::Error> for Status {
    fn from(error: rushlight::runtime::Error) -> Self {
        rushlight::Error::from(error).into()
    }
}

#[cfg(feature = "llm")]
impl From<rushlight_llm::Error> for Status {
    fn from(error: rushlight_llm::Error) -> Self {
        ErrorParts::of_llm(&error, register).into()
    }
}

/// The text up to its first NUL.
pub fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}
