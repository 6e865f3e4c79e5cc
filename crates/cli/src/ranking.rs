//! The largest elements of outputs, as class scores.

use std::fs;
use std::path::Path;

use rushlight::{ScalarType, Tensor};
use rushlight_devtools::numbers::doubles;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output;

/// One of the largest elements of a row; a row runs along the last dimension.
#[derive(Debug, PartialEq)]
pub struct Ranked<'l> {
    /// Index of the row, in the order of the tensor's elements.
    pub row: usize,
    pub index: usize,
    pub value: f64,
    /// The softmax of the row, unless its elements are integers or already probabilities.
    pub softmax: Option<f64>,
    pub label: Option<&'l str>,
}

/// Names of classes.
pub struct Labels(Vec<String>);

impl Labels {
    /// Reads a file: text with a line for each class, a list in JSON, or an object from positions to names. Keras names
    /// this object `class_index`, and transformers' `config.json` names it `id2label`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| Failure::read(path, error))?;
        let wrong = |what: &str| Failure::Input(format!("--labels `{}`: {what}", path.display()));
        // Editors on Windows write a byte order mark.
        let text = text.trim_start_matches('\u{feff}');
        let labels = match serde_json::from_str::<Value>(text) {
            Ok(json @ (Value::Array(_) | Value::Object(_))) => of_json(&json).ok_or_else(|| {
                wrong("expected a list of names, or an object of positions from 0 on to names, also as `id2label`")
            })?,
            _ => text.trim_end().lines().map(|line| line.trim().to_owned()).collect(),
        };
        if labels.is_empty() { Err(wrong("it has no names")) } else { Ok(Self(labels)) }
    }

    /// Fails unless there is one label for each element of a row.
    fn check(&self, label: &str, count: usize) -> Result<(), Failure> {
        let Self(names) = self;
        if names.len() == count {
            return Ok(());
        }
        let got = names.len();
        Err(Failure::Input(format!(
            "--labels: expected a name for each of the {count} elements in a row of {label}, got {got}"
        )))
    }
}

fn of_json(json: &Value) -> Option<Vec<String>> {
    // A pair consists of an identifier and a name; only the name is used.
    let name = |value: &Value| match value {
        Value::Array(parts) => parts.last()?.as_str().map(str::to_owned),
        value => value.as_str().map(str::to_owned),
    };
    match json {
        Value::Array(items) => items.iter().map(name).collect(),
        Value::Object(map) => {
            let map = map.get("id2label").map_or(Some(map), Value::as_object)?;
            (0..map.len()).map(|index| name(map.get(&index.to_string())?)).collect()
        }
        _ => None,
    }
}

/// Returns the largest elements of each row of a tensor. Errors name the tensor `label`.
pub fn largest<'l>(
    tensor: &Tensor,
    count: usize,
    labels: Option<&'l Labels>,
    label: &str,
) -> Result<Vec<Ranked<'l>>, Failure> {
    let values = doubles(tensor);
    let width = tensor.shape().last().copied().unwrap_or(1);
    if let Some(labels) = labels {
        labels.check(label, width)?;
    }
    let is_float =
        matches!(tensor.dtype(), ScalarType::Float | ScalarType::Double | ScalarType::Half | ScalarType::BFloat16);
    let mut all = Vec::new();
    for (row, values) in values.chunks(width.max(1)).enumerate() {
        let mut ranked: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked.truncate(count);
        let shares = if is_float && !is_distribution(values) { Softmax::of(values) } else { None };
        all.extend(ranked.into_iter().map(|(index, value)| Ranked {
            row,
            index,
            value,
            softmax: shares.as_ref().map(|shares| shares.share(value)),
            label: labels.and_then(|labels| labels.0.get(index)).map(String::as_str),
        }));
    }
    Ok(all)
}

/// True if the numbers are probabilities of classes. Their sum may deviate from 1 by the rounding error of 16-bit
/// floats.
fn is_distribution(values: &[f64]) -> bool {
    values.iter().all(|value| (0.0..=1.0).contains(value)) && (values.iter().sum::<f64>() - 1.0).abs() < 1e-2
}

struct Softmax {
    most: f64,
    sum: f64,
}

impl Softmax {
    /// The softmax of a row; `None` if the row has fewer than two numbers, or some are not finite.
    fn of(values: &[f64]) -> Option<Self> {
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = values.iter().map(|value| (value - most).exp()).sum();
        (values.len() > 1 && most.is_finite() && sum.is_finite()).then_some(Self { most, sum })
    }

    fn share(&self, value: f64) -> f64 {
        (value - self.most).exp() / self.sum
    }
}

/// A table as text. It omits columns without values.
pub fn table(ranked: &[Ranked<'_>]) -> String {
    let has_rows = ranked.iter().any(|of| of.row > 0);
    let has_softmax = ranked.iter().any(|of| of.softmax.is_some());
    let has_labels = ranked.iter().any(|of| of.label.is_some());
    let columns =
        [(has_rows, "row "), (true, "index "), (true, "value "), (has_softmax, "softmax "), (has_labels, "label")];
    let header: Vec<&str> = columns.into_iter().filter_map(|(is_there, name)| is_there.then_some(name)).collect();
    let line = |of: &Ranked<'_>| {
        let mut cells = Vec::new();
        if has_rows {
            cells.push(of.row.to_string());
        }
        cells.extend([of.index.to_string(), output::number(of.value)]);
        if has_softmax {
            cells.push(of.softmax.map_or_else(String::new, |share| format!("{:.2} %", 100.0 * share)));
        }
        cells.extend(of.label.map(str::to_owned));
        cells
    };
    output::table(&header, ranked.iter().map(line))
}

/// A list of objects. It omits fields without values.
pub fn json(ranked: &[Ranked<'_>]) -> Value {
    let has_rows = ranked.iter().any(|of| of.row > 0);
    let object = |of: &Ranked<'_>| {
        let mut object = json!({ "index": of.index, "value": of.value });
        if has_rows {
            object["row"] = of.row.into();
        }
        if let Some(share) = of.softmax {
            object["softmax"] = share.into();
        }
        if let Some(label) = of.label {
            object["label"] = label.into();
        }
        object
    };
    ranked.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight::TensorView;

    fn tensor(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::copy_of(&TensorView::of(shape, values).unwrap()).unwrap()
    }

    #[test]
    fn rows_are_ranked_with_softmax_and_labels() {
        let logits = tensor(&[2, 3], &[0.0, 2.0, 1.0, 3.0, -1.0, 0.0]);
        let labels = Labels(["cat", "dog", "owl"].map(str::to_owned).to_vec());
        let Ok(ranked) = largest(&logits, 2, Some(&labels), "logits") else { panic!("labels fit") };
        let names: Vec<_> = ranked.iter().map(|of| (of.row, of.index, of.label.unwrap())).collect();
        assert_eq!(names, [(0, 1, "dog"), (0, 2, "owl"), (1, 0, "cat"), (1, 2, "owl")]);
        // torch.softmax(torch.tensor([0., 2., 1.]), 0)
        let shares = [0.665_240_955_8, 0.244_728_471_1];
        for (of, expected) in ranked.iter().zip(shares) {
            assert!((of.softmax.unwrap() - expected).abs() < 1e-9, "{of:?}");
        }
        assert!(largest(&tensor(&[1, 2], &[0.0, 1.0]), 1, Some(&labels), "logits").is_err());
    }

    #[test]
    fn probabilities_and_integers_have_no_softmax() {
        for tensor in [
            tensor(&[3], &[0.2, 0.7, 0.1]),
            Tensor::copy_of(&TensorView::of(&[2], &[3i64, 5]).unwrap()).unwrap(),
            tensor(&[2], &[f32::NAN, 1.0]),
        ] {
            let Ok(ranked) = largest(&tensor, 1, None, "x") else { panic!("no labels to fit") };
            assert!(ranked[0].softmax.is_none(), "{ranked:?}");
        }
    }

    #[test]
    fn labels_have_several_forms() {
        let read = |text: &str| of_json(&serde_json::from_str(text).unwrap());
        let expected = Some(vec!["cat".to_owned(), "dog".to_owned()]);
        assert_eq!(read(r#"["cat", "dog"]"#), expected);
        assert_eq!(read(r#"{"0": ["n01", "cat"], "1": ["n02", "dog"]}"#), expected);
        assert_eq!(read(r#"{"model_type": "vit", "id2label": {"1": "dog", "0": "cat"}}"#), expected);
        assert_eq!(read(r#"{"1": "dog", "2": "cat"}"#), None);
        assert_eq!(read("[1, 2]"), None);
    }
}
