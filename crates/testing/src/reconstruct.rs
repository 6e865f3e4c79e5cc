//! Checks of decompositions whose factors are not unique: the factors give the matrix again.

use crate::cases::{Check, TensorData};
use crate::elements::numbers;
use crate::tolerance::epsilon;

/// Errors of decompositions, in units of the machine precision times the matrix's largest element.
const FACTOR: f64 = 200.0;

/// Fails unless the results are the decomposition of the input that `check` names.
pub fn decomposition(got: &[TensorData], input: Option<&TensorData>, check: Check) -> Result<(), String> {
    let Some(input) = input else { return Err("no input".into()) };
    let &[ref batch @ .., rows, columns] = input.sizes.as_slice() else { return Err("no matrices".into()) };
    let (all, limit) = (numbers(input), FACTOR * epsilon(input.dtype));
    for matrix in 0..batch.iter().product() {
        let a = Matrix::of(&all, matrix, rows, columns);
        let scale = a.values.iter().fold(1.0, |most: f64, x| most.max(x.abs())) * (rows.max(columns) as f64);
        let check = match check {
            Check::Svd => singular(got, matrix, &a, limit * scale),
            Check::Eigh => symmetric(got, matrix, &a, limit * scale),
            _ => general(got, matrix, &a, limit * scale),
        };
        check.map_err(|what| format!("matrix {matrix}: {what}"))?;
    }
    Ok(())
}

/// A matrix as rows.
struct Matrix {
    values: Vec<f64>,
    rows: usize,
    columns: usize,
}

impl Matrix {
    fn of(all: &[f64], index: usize, rows: usize, columns: usize) -> Self {
        let count = rows * columns;
        Self { values: all[index * count..(index + 1) * count].to_vec(), rows, columns }
    }

    /// One of the matrices of a result.
    fn result(tensor: &TensorData, index: usize) -> Self {
        let &[.., rows, columns] = tensor.sizes.as_slice() else { return Self::of(&[], 0, 0, 0) };
        Self::of(&numbers(tensor), index, rows, columns)
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    fn transposed(&self) -> Self {
        let element = |at: usize| self.at(at % self.rows, at / self.rows);
        Self { values: (0..self.values.len()).map(element).collect(), rows: self.columns, columns: self.rows }
    }

    /// The first error of `Q' Q = 1`.
    fn check_orthogonal(&self, what: &str, limit: f64) -> Result<(), String> {
        for i in 0..self.columns {
            for j in 0..self.columns {
                let product: f64 = (0..self.rows).map(|k| self.at(k, i) * self.at(k, j)).sum();
                let error = (product - f64::from(u8::from(i == j))).abs();
                if error.is_nan() || error > limit {
                    return Err(format!("columns {i} and {j} of {what} have the product {product}"));
                }
            }
        }
        Ok(())
    }
}

fn near(what: &str, got: f64, expected: f64, limit: f64) -> Result<(), String> {
    if (got - expected).abs() <= limit { Ok(()) } else { Err(format!("{what}: {got} for {expected}")) }
}

/// One of the vectors of a result.
fn vector(tensor: &TensorData, index: usize) -> Vec<f64> {
    let len = tensor.sizes.last().copied().unwrap_or(0);
    numbers(tensor).get(index * len..(index + 1) * len).unwrap_or_default().to_vec()
}

fn singular(got: &[TensorData], index: usize, a: &Matrix, limit: f64) -> Result<(), String> {
    let [u, s, vh] = got else { return Err("not three results".into()) };
    let values = vector(s, index);
    if !values.is_sorted_by(|x, y| x >= y) || values.iter().any(|x| *x < 0.0) {
        return Err(format!("{values:?} are no sorted singular values"));
    }
    let sum = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>();
    near("the sum of squares", sum(&values).sqrt(), sum(&a.values).sqrt(), limit)?;
    if u.sizes == [0] && vh.sizes == [0] {
        return Ok(());
    }
    let (u, vh) = (Matrix::result(u, index), Matrix::result(vh, index));
    u.check_orthogonal("U", limit)?;
    vh.transposed().check_orthogonal("V", limit)?;
    for i in 0..a.rows {
        for j in 0..a.columns {
            let element = values.iter().enumerate().map(|(k, s)| u.at(i, k) * s * vh.at(k, j)).sum();
            near("U S V'", element, a.at(i, j), limit)?;
        }
    }
    Ok(())
}

fn symmetric(got: &[TensorData], index: usize, a: &Matrix, limit: f64) -> Result<(), String> {
    let [values, vectors] = got else { return Err("not two results".into()) };
    let values = vector(values, index);
    if !values.is_sorted() {
        return Err(format!("{values:?} are not sorted"));
    }
    near("the trace", values.iter().sum(), (0..a.rows).map(|i| a.at(i, i)).sum(), limit)?;
    let squares: f64 = a.values.iter().map(|x| x * x).sum();
    near("the sum of squares", values.iter().map(|x| x * x).sum::<f64>().sqrt(), squares.sqrt(), limit)?;
    if vectors.sizes == [0] {
        return Ok(());
    }
    let v = Matrix::result(vectors, index);
    v.check_orthogonal("V", limit)?;
    for i in 0..a.rows {
        for (j, value) in values.iter().enumerate() {
            near("A V", (0..a.rows).map(|k| a.at(i, k) * v.at(k, j)).sum(), v.at(i, j) * value, limit)?;
        }
    }
    Ok(())
}

/// Complex eigenvalues and eigenvectors, in pairs of real and imaginary parts.
fn general(got: &[TensorData], index: usize, a: &Matrix, limit: f64) -> Result<(), String> {
    let [values, vectors] = got else { return Err("not two results".into()) };
    let n = a.rows;
    let (values, vectors) = (numbers(values), numbers(vectors));
    let value = |k: usize| (values[2 * (index * n + k)], values[2 * (index * n + k) + 1]);
    let element = |i: usize, k: usize| {
        let at = 2 * ((index * n + i) * n + k);
        (vectors[at], vectors[at + 1])
    };
    near("the trace", (0..n).map(|k| value(k).0).sum(), (0..n).map(|i| a.at(i, i)).sum(), limit)?;
    near("the imaginary parts", (0..n).map(|k| value(k).1).sum(), 0.0, limit)?;
    for k in 0..n {
        let (re, im) = value(k);
        let length: f64 = (0..n).map(|i| element(i, k).0.powi(2) + element(i, k).1.powi(2)).sum();
        near("the length of a vector", length, 1.0, limit)?;
        for i in 0..n {
            let (x, y) = element(i, k);
            let sum = (0..n).fold((0.0, 0.0), |sum, j| {
                (sum.0 + a.at(i, j) * element(j, k).0, sum.1 + a.at(i, j) * element(j, k).1)
            });
            near("A v, real", sum.0, re * x - im * y, limit)?;
            near("A v, imaginary", sum.1, re * y + im * x, limit)?;
        }
    }
    Ok(())
}
