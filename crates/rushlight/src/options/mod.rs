//! Options that users set by name: of loading, of compiling, and in `rushlight_llm` of generating text.
//!
//! A set of options is a struct with [`Options`]. Its table has a row for each option: the name, the range, one sentence
//! of help, and the field. Everything else follows from the row: checks and their errors, the type, the default, and what
//! the command line, the server and each language offer.
//!
//! ```
//! use rushlight::options::{LoadOptions, Options};
//!
//! let mut options = LoadOptions::default();
//! options.set("memory_limit", 1_000_000)?;
//! options.set_text("time_limit", "500ms")?;
//! let error = options.set("memory_limmit", 1).unwrap_err();
//! assert_eq!(error.nearest(), Some("memory_limit"));
//! # Ok::<(), rushlight::options::OptionError>(())
//! ```

#[cfg(feature = "pt2")]
mod compile;
mod error;
mod field;
mod load;
mod units;
mod value;

#[cfg(feature = "pt2")]
pub use compile::CompilerOptions;
#[cfg(all(feature = "pt2", feature = "_backends"))]
pub use compile::QUANTIZING;
pub use error::OptionError;
pub use field::{Field, Range};
pub use load::LoadOptions;
pub use value::OptionValue;

use crate::names::nearest;

/// An option: a row of the table of `T`.
#[derive(Debug)]
pub struct OptionSpec<T: 'static> {
    /// The name, in the letters of Rust and Python. JavaScript and Swift write `top_k` as `topK`, and the command line as
    /// `--top-k`.
    pub name: &'static str,
    /// The field of `T`, with the range of its values.
    pub field: Field<T>,
    /// The name of a value in the help of the command line, such as `TOKENS`.
    pub unit: &'static str,
    /// One sentence for users, without a full stop.
    pub help: &'static str,
}

impl<T: Options> OptionSpec<T> {
    /// A row of a table.
    pub const fn new(name: &'static str, field: Field<T>, unit: &'static str, help: &'static str) -> Self {
        Self { name, field, unit, help }
    }

    /// Returns the default; [`OptionValue::None`] if the option is not set by default.
    pub fn default(&self) -> OptionValue {
        self.field.get(&mut T::default())
    }

    /// Sets the option of `target`. [`OptionValue::None`] stands for the default.
    ///
    /// # Errors
    /// For a value of another type, or outside of the range.
    pub fn set(&self, target: &mut T, value: OptionValue) -> Result<(), OptionError> {
        // Without a value, a seed is another one each time.
        let is_default = value == OptionValue::None && !matches!(self.field, Field::Seed(_));
        let value = if is_default { self.default() } else { value };
        self.field.set(target, value).map_err(|wrong| OptionError::of(self.name, wrong))
    }

    /// Sets the option from text, such as an argument of a command. A list gets one more value.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_text(&self, target: &mut T, text: &str) -> Result<(), OptionError> {
        self.field.set_text(target, text).map_err(|wrong| OptionError::of(self.name, wrong))
    }

    /// Checks the value that `target` has.
    ///
    /// # Errors
    /// For a value outside of the range.
    pub fn check(&self, target: &mut T) -> Result<(), OptionError> {
        let value = self.field.get(target);
        self.field.check(&value).map_err(|wrong| OptionError::of(self.name, wrong))
    }
}

/// Names of transformers, llama.cpp, Ollama, OpenAI and ONNX Runtime, each with the name of the option here, for errors.
const OTHER_NAMES: [(&str, &str); 14] = [
    ("max_tokens", "max_new_tokens"),
    ("max_completion_tokens", "max_new_tokens"),
    ("max_length", "max_new_tokens"),
    ("n_predict", "max_new_tokens"),
    ("num_predict", "max_new_tokens"),
    ("n", "max_new_tokens"),
    ("do_sample", "temperature"),
    ("temp", "temperature"),
    ("repeat_penalty", "repetition_penalty"),
    ("n_threads", "threads"),
    ("num_threads", "threads"),
    ("intra_op_num_threads", "threads"),
    ("n_ctx", "max_context_len"),
    ("num_ctx", "max_context_len"),
];

/// A set of options with a table.
pub trait Options: Default + 'static {
    /// All options, in the order in which they are shown.
    fn table() -> &'static [OptionSpec<Self>];

    /// Returns the row of an option.
    ///
    /// # Errors
    /// For an unknown name, with the nearest known one.
    fn spec(name: &str) -> Result<&'static OptionSpec<Self>, OptionError> {
        let names = || Self::table().iter().map(|spec| spec.name);
        Self::table().iter().find(|spec| spec.name == name).ok_or_else(|| {
            let other = OTHER_NAMES.iter().find(|(other, own)| *other == name && names().any(|known| known == *own));
            let nearest = other.map(|(_, own)| *own).or_else(|| nearest(name, names()));
            OptionError::unknown(name, nearest, names().map(ToOwned::to_owned).collect())
        })
    }

    /// Sets an option. [`OptionValue::None`] stands for the default.
    ///
    /// # Errors
    /// For an unknown name, a value of another type, or one outside of the range.
    fn set(&mut self, name: &str, value: impl Into<OptionValue>) -> Result<(), OptionError> {
        Self::spec(name)?.set(self, value.into())
    }

    /// Sets an option from text. A list gets one more value.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    fn set_text(&mut self, name: &str, text: &str) -> Result<(), OptionError> {
        Self::spec(name)?.set_text(self, text)
    }

    /// Returns the value of an option.
    ///
    /// # Errors
    /// For an unknown name.
    fn get(&mut self, name: &str) -> Result<OptionValue, OptionError> {
        Ok(Self::spec(name)?.field.get(self))
    }
}

/// Returns the name of an option for a name in camel case, which JavaScript and Swift use: `topK` is `top_k`.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Returns the name in camel case.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

#[cfg(test)]
mod tests;
