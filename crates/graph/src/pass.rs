//! Transformations of a model.

use std::fmt;

use crate::{Error, Model};

/// A transformation of a model.
pub trait Pass: fmt::Debug + Send {
    /// Short and unique, for reports and errors.
    fn name(&self) -> &str;

    /// Transforms the model. After an error the model is in no state to be used.
    ///
    /// # Errors
    /// Where the model holds what the pass cannot take.
    fn run(&self, model: &mut Model) -> Result<(), Error>;
}
