//! Options of compilations.

use rushlight::{Error, Quantization, Scheme, Value};

/// The quantization by the name of its scheme, calibrated with the inputs of calls of a method, if there are some.
///
/// # Errors
/// `InvalidArgument` for a name that no scheme has.
pub fn quantization(scheme: &str, method: &str, samples: Vec<Vec<Value>>) -> Result<Quantization, Error> {
    let quantization = Quantization::new(scheme.parse::<Scheme>()?);
    Ok(if samples.is_empty() { quantization } else { quantization.calibrate(method, samples) })
}
