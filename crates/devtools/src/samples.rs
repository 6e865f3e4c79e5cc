//! Inputs of a calibration: arrays that hold many inputs become one for each call.

use rushlight::{Error, Tensor, TensorInfo, Value, ValueInfo};

use crate::inputs::{Fill, generate};

/// The inputs of each call. `arrays` has one array for each input that is a tensor, by name or else in order, each with the inputs of
/// all calls: along the first dimension, or along one more than the input has. If there is one such input, there may be several
/// arrays of calls. Other inputs have the values that the export fixed.
///
/// # Errors
/// With what an array should have been.
pub fn samples(arrays: &[(String, Tensor)], inputs: &[ValueInfo]) -> Result<Vec<Vec<Value>>, String> {
    let tensors: Vec<&TensorInfo> = inputs.iter().filter_map(ValueInfo::as_tensor).collect();
    if tensors.len() == 1 && arrays.len() > 1 {
        let calls = arrays.iter().map(|array| samples(std::slice::from_ref(array), inputs));
        return Ok(calls.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect());
    }
    if tensors.len() != arrays.len() {
        let names: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
        let expected: Vec<String> = tensors.iter().map(|info| described(info, ": ")).collect();
        return Err(format!(
            "expected an array for each tensor that the model takes, with all calls along the first dimension: {}; got: {}",
            expected.join(", "),
            names.join(", ")
        ));
    }
    let mut columns = Vec::with_capacity(arrays.len());
    for ((name, array), info) in in_order(arrays, &tensors)?.into_iter().zip(&tensors) {
        let shape = sample_shape(array, info).ok_or_else(|| misfit(name, array, info))?;
        columns.push((array, shape));
    }
    let count = |(array, shape): &(&Tensor, Vec<usize>)| array.bytes().len() / bytes(array, shape).max(1);
    let counts: Vec<usize> = columns.iter().map(count).collect();
    if counts.windows(2).any(|pair| pair[0] != pair[1]) {
        let named = arrays.iter().zip(&counts).map(|((name, _), count)| format!("`{name}` {count}"));
        return Err(format!("arrays hold different numbers of inputs: {}", named.collect::<Vec<_>>().join(", ")));
    }
    let failed = |error: Error| error.to_string();
    let sample = |index: usize| -> Result<Vec<Value>, String> {
        let mut columns = columns.iter();
        let mut values = Vec::with_capacity(inputs.len());
        for info in inputs {
            let column = info.as_tensor().and_then(|_| columns.next());
            values.push(match column {
                Some((array, shape)) => {
                    let size = bytes(array, shape);
                    let part = array.bytes().get(index * size..(index + 1) * size).unwrap_or_default();
                    Value::Tensor(Tensor::from_bytes(array.dtype(), shape, part).map_err(failed)?)
                }
                None => generate(info, Fill::Zeros).map_err(failed)?,
            });
        }
        Ok(values)
    };
    (0..counts.first().copied().unwrap_or(0)).map(sample).collect()
}

/// Arrays in the order of the inputs that they are called by; in their own if they are called by none.
fn in_order<'a>(arrays: &'a [(String, Tensor)], inputs: &[&TensorInfo]) -> Result<Vec<&'a (String, Tensor)>, String> {
    let named = |info: &&TensorInfo| arrays.iter().find(|(name, _)| info.name.as_ref() == Some(name));
    let found: Vec<_> = inputs.iter().filter_map(named).collect();
    match found.len() {
        0 => Ok(arrays.iter().collect()),
        count if count == arrays.len() => Ok(found),
        _ => {
            let arrays: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
            let inputs: Vec<&str> = inputs.iter().map(|info| info.name.as_deref().unwrap_or("?")).collect();
            let (arrays, inputs) = (arrays.join(", "), inputs.join(", "));
            Err(format!("some arrays are called by inputs, others are not: expected {inputs}, got {arrays}"))
        }
    }
}

/// Describes an input: its name, if it has one, dtype and shape.
fn described(info: &TensorInfo, separator: &str) -> String {
    match &info.name {
        Some(name) => format!("`{name}`{separator}{info}"),
        None => info.to_string(),
    }
}

/// Error for an array whose dtype or shape does not fit the input.
fn misfit(name: &str, array: &Tensor, info: &TensorInfo) -> String {
    let (got, expected) = (array.dtype(), info.dtype);
    let hint = if got == expected { String::new() } else { format!("; convert the array to {}", expected.long_name()) };
    format!("the array `{name}` is {got} {:?}, the input {}{hint}", array.shape(), described(info, " is "))
}

fn bytes(array: &Tensor, shape: &[usize]) -> usize {
    // An array without elements may be of any shape.
    shape.iter().fold(array.dtype().size(), |bytes, size| bytes.saturating_mul(*size))
}

/// The shape of one input of those in an array; `None` if they do not fit.
fn sample_shape(array: &Tensor, info: &TensorInfo) -> Option<Vec<usize>> {
    let shape = array.shape();
    let fits = |shape: &[usize]| {
        shape.len() == info.sizes.len() && shape.iter().enumerate().all(|(dim, &size)| info.allows(dim, size))
    };
    if array.dtype() != info.dtype {
        return None;
    }
    if shape.len() == info.sizes.len() + 1 {
        return Some(shape[1..].to_vec()).filter(|shape| fits(shape));
    }
    let (first, rest) = shape.split_first()?;
    let batch = *info.sizes.first()?;
    let size = if batch > 0 && first.is_multiple_of(batch) { batch } else { 1 };
    let sample: Vec<usize> = [size].iter().chain(rest).copied().collect();
    fits(&sample).then_some(sample)
}

#[cfg(test)]
mod tests {
    use rushlight::ScalarType;

    use super::*;

    fn info(sizes: &[usize], is_dynamic: bool) -> ValueInfo {
        ValueInfo::Tensor(TensorInfo {
            dtype: ScalarType::Float,
            sizes: sizes.to_vec(),
            dim_order: (0..sizes.len() as u8).collect(),
            is_dynamic,
            ranges: Vec::new(),
            is_memory_planned: false,
            nbytes: 0,
            name: None,
        })
    }

    fn array(shape: &[usize]) -> (String, Tensor) {
        let numbers: Vec<f32> = (0..shape.iter().product::<usize>()).map(|at| at as f32).collect();
        ("x".to_owned(), Tensor::of(shape, &numbers).unwrap())
    }

    fn shapes(arrays: &[(String, Tensor)], inputs: &[ValueInfo]) -> Vec<Vec<usize>> {
        let all = samples(arrays, inputs).unwrap();
        all.iter().map(|values| values[0].as_tensor().unwrap().shape().to_vec()).collect()
    }

    #[test]
    fn arrays_that_are_called_by_inputs_are_put_in_their_order() {
        let named = |name: &str| match info(&[1], false) {
            ValueInfo::Tensor(tensor) => ValueInfo::Tensor(TensorInfo { name: Some(name.to_owned()), ..tensor }),
            other => other,
        };
        let inputs = [named("x"), named("y")];
        let array = |name: &str, number: f32| (name.to_owned(), Tensor::of(&[1], &[number]).unwrap());
        let first = |arrays: &[(String, Tensor)]| {
            let all = samples(arrays, &inputs)?;
            Ok::<_, String>(all[0][0].as_tensor().unwrap().as_slice::<f32>().unwrap().to_vec())
        };
        assert_eq!(first(&[array("x", 1.0), array("y", 2.0)]).unwrap(), [1.0]);
        assert_eq!(first(&[array("y", 2.0), array("x", 1.0)]).unwrap(), [1.0]);
        assert_eq!(first(&[array("arr_0", 3.0), array("arr_1", 4.0)]).unwrap(), [3.0]);
        let error = first(&[array("y", 2.0), array("q", 1.0)]).unwrap_err();
        assert!(error.contains("expected x, y, got y, q"), "{error}");
    }

    #[test]
    fn arrays_are_divided_by_the_first_dimension() {
        assert_eq!(shapes(&[array(&[3, 2, 2])], &[info(&[1, 2, 2], false)]), vec![vec![1, 2, 2]; 3]);
        assert_eq!(shapes(&[array(&[6, 2])], &[info(&[2, 2], false)]), vec![vec![2, 2]; 3]);
        assert_eq!(shapes(&[array(&[3, 1, 2])], &[info(&[1, 2], false)]), vec![vec![1, 2]; 3]);
        // A batch of up to 64, and a length of up to 9.
        assert_eq!(shapes(&[array(&[5, 7])], &[info(&[64, 9], true)]), vec![vec![1, 7]; 5]);
        assert_eq!(shapes(&[array(&[2, 2]), array(&[3, 2])], &[info(&[1, 2], false)]), vec![vec![1, 2]; 5]);
        let two = samples(
            &[array(&[4, 1]), array(&[4, 2])],
            &[info(&[1, 1], false), ValueInfo::Int(7), info(&[1, 2], false)],
        );
        let two = two.unwrap();
        assert_eq!((two.len(), two[1].len()), (4, 3));
        assert_eq!(two[1][2].as_slice::<f32>().unwrap(), [2.0, 3.0]);
        assert!(matches!(two[1][1], Value::Int(7)));
    }

    #[test]
    fn arrays_without_elements_hold_no_inputs() {
        let of = |shape: &[usize], sizes: &[usize]| {
            let empty = Tensor::of::<f32>(shape, &[]).unwrap();
            samples(&[("x".to_owned(), empty)], &[info(sizes, true)])
        };
        assert!(of(&[0, 9, 9], &[1, 9, 9]).is_ok_and(|inputs| inputs.is_empty()));
        // More bytes in one than can be counted.
        let large = 1 << 40;
        assert!(of(&[0, large, large], &[1, large, large]).is_ok_and(|inputs| inputs.is_empty()));
        assert!(of(&[0, large, large], &[1, 9, 9]).is_err());
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let error = samples(&[array(&[3, 5])], &[info(&[1, 4], false)]).unwrap_err();
        assert!(error.contains("[3, 5]") && error.contains("[1, 4]"), "{error}");
        let error = samples(&[], &[info(&[1, 4], false)]).unwrap_err();
        assert!(error.contains("an array for each tensor") && error.contains("[1, 4]"), "{error}");
        let error =
            samples(&[array(&[3, 4]), array(&[2, 4])], &[info(&[1, 4], false), info(&[1, 4], false)]).unwrap_err();
        assert!(error.contains("different numbers"), "{error}");
    }
}
