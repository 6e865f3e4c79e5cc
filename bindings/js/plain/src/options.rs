//! Options by the names of JavaScript.

use rushlight::Error;
use rushlight::options::{OptionError, Options, camel_case, snake_case};

/// Reads options by their names in camel case. A list has several values of one name; options without a name have their defaults.
///
/// # Errors
/// `InvalidArgument` for an unknown name, with the nearest known one, and for values that an option does not take.
pub fn read_options<T: Options + Default>(names: &[String], texts: &[String]) -> Result<T, Error> {
    let mut options = T::default();
    let set = |(name, text): (&String, &String)| {
        // An unknown name is reported as it was given.
        let known = T::spec(&snake_case(name)).map_err(|_| T::spec(name).err());
        match known {
            Ok(spec) => spec.set_text(&mut options, text),
            Err(unknown) => unknown.map_or(Ok(()), Err),
        }
    };
    names.iter().zip(texts).try_for_each(set).map_err(renamed)?;
    Ok(options)
}

/// The error with names in camel case.
pub fn renamed(error: OptionError) -> OptionError {
    error.renamed(camel_case)
}
