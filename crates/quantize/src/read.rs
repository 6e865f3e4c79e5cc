//! Reads the constants of layers.

use rushlight_format::ScalarType;

use rushlight_compiler::quantization::{Layer, WeightScales, WeightSpec};
use rushlight_graph::{Arg, Constant, Error, Graph, Model};

/// A part of a layer's weights.
#[derive(Debug)]
pub(super) enum Part {
    Whole,
    /// A range of rows, which can be read again.
    Rows(Constant),
}

/// Reads the constants of a method's layers.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub model: &'a Model,
    pub graph: &'a Graph,
}

/// Minimum number of rows that are read together: a multiple of the usual head sizes.
const ROWS_OF_HEAD: usize = 768;

/// The weights of a layer.
pub(super) struct Matrix {
    /// `[n, k]`, row-major.
    pub numbers: Vec<f32>,
    pub k: usize,
    /// Kernel positions of a convolution. In a row, the position is the innermost index.
    pub taps: usize,
}

impl<'a> Reader<'a> {
    /// The constant of a layer's weights.
    pub fn constant(&self, layer: &Layer) -> Option<&'a Constant> {
        self.graph.constant_of(layer.weight).map(|id| &self.model.constants[id])
    }

    /// The weights of a layer.
    ///
    /// # Errors
    /// Weights that are NaN or infinite.
    pub fn weights(&self, layer: &Layer) -> Result<Matrix, Error> {
        let (taps, k) = (layer.sizes.iter().skip(2).product(), layer.k());
        let Some(constant) = self.constant(layer) else { return Ok(Matrix { numbers: Vec::new(), k, taps }) };
        let numbers = match layer.sizes[..] {
            [inputs, outputs, ..] if layer.axis == 1 => turned(&constant.floats()?, [inputs, outputs, taps]),
            _ => constant.floats()?,
        };
        self.check(layer, &numbers)?;
        Ok(Matrix { numbers, k, taps })
    }

    /// Refuses weights that are NaN or infinite.
    fn check(&self, layer: &Layer, numbers: &[f32]) -> Result<(), Error> {
        if numbers.iter().fold(true, |all, weight| all & weight.is_finite()) {
            return Ok(());
        }
        match numbers.iter().find(|weight| !weight.is_finite()) {
            None => Ok(()),
            Some(wild) => {
                let name = self.constant(layer).map_or(&layer.name, |constant| &constant.name);
                let error = Error::invalid(format!("a weight of `{name}` is {wild}"));
                Err(self.graph.locate(error.expected("finite numbers"), layer.node))
            }
        }
    }

    /// Splits a layer's weights into parts. A part is read by one thread. Weights that share a scale are in one part.
    pub fn parts(&self, layer: &Layer, spec: WeightSpec) -> Vec<Part> {
        /// Weights of a part.
        const PART: usize = 1 << 22;
        /// Number of weights above which a layer is read in parts, and read again when its integers are needed.
        const LARGE: usize = 1 << 20;
        let (rows, k) = (layer.sizes.first().copied().unwrap_or(0), layer.sizes.iter().skip(1).product::<usize>());
        let has_parts = layer.axis == 0 && rows * k > LARGE && k > 0 && spec.scales != WeightScales::PerTensor;
        let constant = self.constant(layer).filter(|_| has_parts);
        let step = PART.checked_div(k).unwrap_or(1).max(1).next_multiple_of(ROWS_OF_HEAD);
        let parts = constant.and_then(|constant| {
            let part = |start: usize| constant.rows(start..rows.min(start + step)).map(Part::Rows);
            (0..rows).step_by(step).map(part).collect()
        });
        parts.unwrap_or_else(|| vec![Part::Whole])
    }

    /// Calls `see` with the weights of a part of a layer, and with the number of weights of a row.
    ///
    /// # Errors
    /// Weights that are NaN or infinite.
    pub fn for_floats(&self, layer: &Layer, part: &Part, mut see: impl FnMut(&[f32], usize)) -> Result<(), Error> {
        let Part::Rows(rows) = part else {
            let matrix = self.weights(layer)?;
            see(&matrix.numbers, matrix.k);
            return Ok(());
        };
        let k = rows.sizes()?.iter().skip(1).product();
        let mut found = Ok(());
        rows.for_floats(&mut |numbers| {
            if found.is_ok() {
                found = self.check(layer, numbers);
            }
            if found.is_ok() {
                see(numbers, k);
            }
        })?;
        found
    }

    /// The bias of a layer, zeros if it has none; `None` if it is not a float constant.
    pub fn bias(&self, layer: &Layer, channels: usize) -> Option<Vec<f32>> {
        match self.graph.nodes[layer.node].arg("bias")? {
            Arg::None => Some(vec![0.0; channels]),
            Arg::Value(value) => {
                let constant = &self.model.constants[self.graph.constant_of(*value)?];
                let bias = constant.floats().ok().filter(|_| constant.ty.dtype == ScalarType::Float)?;
                (bias.len() == channels).then_some(bias)
            }
            _ => None,
        }
    }
}

impl Matrix {
    /// The weights with the kernel position as the outer index of a row: `[channels, taps]` becomes `[taps, channels]`.
    pub fn by_tap(&self) -> Vec<f32> {
        exchanged(&self.numbers, self.k, self.taps)
    }

    /// Permutes integers from the order of [`by_tap`](Self::by_tap) to that of the weights.
    pub fn as_weights(&self, integers: &[i8]) -> Vec<i8> {
        exchanged(integers, self.k, self.k / self.taps.max(1))
    }
}

/// Permutes elements `[first, second, each]` to `[second, first, each]`.
pub(super) fn turned<T: Copy>(elements: &[T], [first, second, each]: [usize; 3]) -> Vec<T> {
    let pairs = (0..second).flat_map(|j| (0..first).map(move |i| (i * second + j) * each));
    pairs.flat_map(|at| &elements[at..at + each]).copied().collect()
}

/// Transposes each row of `k` elements, `[k / last, last]`, to `[last, k / last]`.
fn exchanged<T: Copy>(elements: &[T], k: usize, last: usize) -> Vec<T> {
    if last <= 1 || k == 0 {
        return elements.to_vec();
    }
    elements.chunks_exact(k).flat_map(|row| turned(row, [k / last, last, 1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_first_and_back() {
        // Two inputs, three outputs, two taps.
        let numbers: Vec<i8> = (0..12).collect();
        let matrix = turned(&numbers, [2, 3, 2]);
        assert_eq!(matrix, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(turned(&matrix, [3, 2, 2]), numbers);
    }

    #[test]
    fn positions_come_first_and_back() {
        let matrix = Matrix { numbers: (0..24u8).map(f32::from).collect(), k: 12, taps: 4 };
        let ordered = matrix.by_tap();
        assert_eq!(&ordered[..6], [0.0, 4.0, 8.0, 1.0, 5.0, 9.0]);
        let integers: Vec<i8> = ordered.iter().map(|number| *number as i8).collect();
        assert_eq!(matrix.as_weights(&integers), (0..24i8).collect::<Vec<i8>>());
    }
}
