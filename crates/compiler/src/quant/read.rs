//! The constants of layers.

use rushlight_format::ScalarType;

use crate::error::Error;
use crate::graph::{Arg, Constant, Graph, Model};

use super::sites::Layer;

/// Reads what the layers of a method compute with.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub model: &'a Model,
    pub graph: &'a Graph,
}

/// The weights of a layer.
pub(super) struct Matrix {
    /// `[n, k]`, row-major.
    pub numbers: Vec<f32>,
    pub k: usize,
    /// Positions of the windows of a convolution; the last index of a row is that of the position.
    pub taps: usize,
}

impl<'a> Reader<'a> {
    /// The constant of a layer's weights.
    pub fn constant(&self, layer: &Layer) -> Option<&'a Constant> {
        self.graph.constant_of(layer.weight).map(|id| &self.model.constants[id])
    }

    /// The sizes of a layer's weights; none if they are not known.
    pub fn sizes(&self, layer: &Layer) -> Vec<usize> {
        self.constant(layer).and_then(|constant| constant.sizes().ok()).unwrap_or_default()
    }

    pub fn is_linear(&self, layer: &Layer) -> bool {
        self.graph.nodes[layer.node].op.name() == "aten::linear"
    }

    /// The weights of a layer.
    ///
    /// # Errors
    /// Weights that are no finite numbers.
    pub fn weights(&self, layer: &Layer) -> Result<Matrix, Error> {
        let sizes = self.sizes(layer);
        let (k, taps) = (sizes.iter().skip(1).product(), sizes.iter().skip(2).product());
        let Some(constant) = self.constant(layer) else { return Ok(Matrix { numbers: Vec::new(), k, taps }) };
        let numbers = constant.floats()?;
        match numbers.iter().find(|weight| !weight.is_finite()) {
            None => Ok(Matrix { numbers, k, taps }),
            Some(wild) => {
                let error = Error::invalid(format!("a weight of `{}` is {wild}", constant.name));
                Err(self.graph.locate(error.expected("finite numbers"), layer.node))
            }
        }
    }

    /// The bias of a layer, zeros if it has none; `None` if it is no constant of floats.
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
    /// The rows with the position first: of `[channels, taps]` they become `[taps, channels]`.
    pub fn by_tap(&self) -> Vec<f32> {
        exchanged(&self.numbers, self.k, self.taps)
    }

    /// Integers in the order of [`by_tap`](Self::by_tap) as the weights are.
    pub fn as_weights(&self, integers: &[i8]) -> Vec<i8> {
        exchanged(integers, self.k, self.k / self.taps.max(1))
    }
}

/// Rows of `k` elements, `[k / last, last]`, with the last index first.
fn exchanged<T: Copy>(elements: &[T], k: usize, last: usize) -> Vec<T> {
    if last <= 1 || k == 0 {
        return elements.to_vec();
    }
    let first = k / last;
    let row = |row: &[T]| (0..k).map(|at| row[at % first * last + at / first]).collect::<Vec<T>>();
    elements.chunks_exact(k).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_first_and_back() {
        let matrix = Matrix { numbers: (0..24u8).map(f32::from).collect(), k: 12, taps: 4 };
        let ordered = matrix.by_tap();
        assert_eq!(&ordered[..6], [0.0, 4.0, 8.0, 1.0, 5.0, 9.0]);
        let integers: Vec<i8> = ordered.iter().map(|number| *number as i8).collect();
        assert_eq!(matrix.as_weights(&integers), (0..24i8).collect::<Vec<i8>>());
    }
}
