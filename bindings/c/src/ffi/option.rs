//! Options that backends declare.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use rushlight::runtime::{Code, OptionSpec, OptionValue};

use super::value::{rl_kind, rl_value};
use super::{Result, elements, optional_text, text};
use crate::status::Status;

/// An option that a backend declares.
#[repr(C)]
pub struct rl_option_spec {
    pub name: *const c_char,
    /// The value if none is set: a bool, an int or a string. Its kind is that of the option.
    pub default_value: rl_value,
    /// One line of documentation.
    pub about: *const c_char,
    /// The strings that the option takes; any string if there are none.
    pub choices: *const *const c_char,
    pub num_choices: usize,
    /// 1 if the option cannot change after a method is loaded, else 0.
    pub only_at_load: u32,
}

/// Reads the value of an option.
///
/// # Safety
/// The value is as its description says, for `'a`.
pub unsafe fn option_value<'a>(name: &str, value: &rl_value) -> Result<OptionValue<'a>> {
    // SAFETY: the kind selects the field of the union, and a string is as the caller promises.
    Ok(unsafe {
        match value {
            value if value.is(rl_kind::RL_KIND_BOOL) => OptionValue::Bool(value.r#as.boolean != 0),
            value if value.is(rl_kind::RL_KIND_INT) => OptionValue::Int(value.r#as.integer),
            value if value.is(rl_kind::RL_KIND_STRING) => OptionValue::String(value.r#as.string.as_str("value")?),
            _ => {
                let message = format!("option `{name}`: expected a bool, an int or a string");
                return Err(Status::new(Code::InvalidType, message));
            }
        }
    })
}

/// A declaration whose texts are the caller's.
struct Declared<'a> {
    name: &'a str,
    default: OptionValue<'a>,
    about: &'a str,
    choices: Vec<&'a str>,
    only_at_load: bool,
}

impl<'a> Declared<'a> {
    /// # Safety
    /// Pointers are NULL, or as their description says.
    unsafe fn of(spec: &'a rl_option_spec) -> Result<Self> {
        // SAFETY: as the caller promises.
        let name = unsafe { text(spec.name, "options->name") }?;
        // SAFETY: as the caller promises.
        let about = unsafe { optional_text(spec.about, "options->about") }?.unwrap_or_default();
        // SAFETY: as the caller promises.
        let default = unsafe { option_value(name, &spec.default_value) }?;
        // SAFETY: as the caller promises.
        let choices = unsafe { elements(spec.choices, spec.num_choices, "options->choices") }?;
        // SAFETY: as the caller promises.
        let choices = choices.iter().map(|choice| unsafe { text(*choice, "options->choices") });
        let declared = Self {
            name,
            default,
            about,
            choices: choices.collect::<Result<_>>()?,
            only_at_load: spec.only_at_load != 0,
        };
        match default {
            OptionValue::String(value) if !declared.choices.is_empty() && !declared.choices.contains(&value) => {
                Err(Status::invalid(format!("the default of the option `{name}` is not one of its choices")))
            }
            _ => Ok(declared),
        }
    }

    fn is(&self, spec: &OptionSpec) -> bool {
        let Self { name, default, about, choices, only_at_load } = self;
        spec.name == *name
            && spec.default == *default
            && spec.about == *about
            && spec.choices == *choices
            && spec.only_at_load == *only_at_load
    }

    /// Makes a declaration that lives until the process ends.
    fn leaked(&self) -> OptionSpec {
        let leaked = |text: &str| -> &'static str { String::leak(text.to_owned()) };
        let default = match self.default {
            OptionValue::Bool(value) => OptionValue::Bool(value),
            OptionValue::Int(value) => OptionValue::Int(value),
            OptionValue::String(value) => OptionValue::String(leaked(value)),
        };
        let choices: Vec<&'static str> = self.choices.iter().map(|choice| leaked(choice)).collect();
        OptionSpec {
            choices: choices.leak(),
            only_at_load: self.only_at_load,
            ..OptionSpec::new(leaked(self.name), default, leaked(self.about))
        }
    }
}

/// Returns the options that a backend declares. Equal declarations are kept once.
///
/// # Safety
/// Pointers are NULL, or as their description says.
pub unsafe fn declared(options: *const rl_option_spec, count: usize) -> Result<&'static [OptionSpec]> {
    static KNOWN: Mutex<Vec<&'static [OptionSpec]>> = Mutex::new(Vec::new());
    // SAFETY: as the caller promises.
    let options = unsafe { elements(options, count, "backend->options") }?;
    // SAFETY: as the caller promises.
    let options = options.iter().map(|spec| unsafe { Declared::of(spec) }).collect::<Result<Vec<_>>>()?;
    let is_same = |known: &&&'static [OptionSpec]| {
        known.len() == options.len() && options.iter().zip(known.iter()).all(|(option, spec)| option.is(spec))
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.iter().find(is_same) {
        return Ok(known);
    }
    let made: &'static [OptionSpec] = options.iter().map(Declared::leaked).collect::<Vec<_>>().leak();
    known.push(made);
    Ok(made)
}
