//! Options by the names of JavaScript.

use rushlight::Error;
use rushlight::options::{OptionError, Options, camel_case, snake_case};

/// Sets options by their names in camel case. A list has several values of one name.
///
/// # Errors
/// `InvalidArgument` for an unknown name, with the nearest known one, and for values that an option does not take.
pub fn set_options<T: Options>(target: &mut T, names: &[String], texts: &[String]) -> Result<(), Error> {
    let set = |(name, text): (&String, &String)| {
        // An unknown name is reported as it was given.
        let known = T::spec(&snake_case(name)).map_err(|_| T::spec(name).err());
        match known {
            Ok(spec) => spec.set_text(target, text),
            Err(unknown) => unknown.map_or(Ok(()), Err),
        }
    };
    names.iter().zip(texts).try_for_each(set).map_err(|error| renamed(error).into())
}

/// The error with names in camel case.
pub fn renamed(error: OptionError) -> OptionError {
    error.renamed(camel_case)
}
