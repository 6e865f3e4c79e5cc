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
    /// Errors for models that the pass does not support.
    fn run(&self, model: &mut Model) -> Result<(), Error>;
}
