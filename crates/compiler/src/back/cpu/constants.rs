//! Constants in the layouts that the engine reads.

use rushlight_engine::{Conv2d, Winograd, pack};

use crate::Bytes;
use crate::error::Error;
use crate::graph::Constant;

use super::error;

/// Floats as a file has them.
pub(super) fn bytes(floats: &[f32]) -> Bytes {
    let mut bytes = Vec::with_capacity(floats.len() * 4);
    floats.iter().for_each(|float| bytes.extend_from_slice(&float.to_le_bytes()));
    bytes.into()
}

/// A matrix `[K, N]` in panels.
pub(super) fn matrix(constant: &Constant) -> Result<Vec<f32>, Error> {
    let sizes = constant.sizes()?;
    let [k, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
    // Weights of linear layers are stored as [N, K]: reading them the other way round keeps both sides sequential.
    let transposed = constant.permuted(&[1, 0]).and_then(|other| other.in_place());
    if let Some(bytes) = transposed {
        let floats = Floats(&bytes);
        return Ok(pack::matrix_f32(k, n, |row, column| floats.get(column * k + row)));
    }
    let bytes = constant.read()?;
    let floats = Floats(&bytes);
    Ok(pack::matrix_f32(k, n, |row, column| floats.get(row * n + column)))
}

/// Weights `[O, I / groups, taps…]` of a convolution, one matrix `[taps x I / groups, O / groups]` in panels for each group.
pub(super) fn convolution(constant: &Constant, groups: usize) -> Result<Vec<f32>, Error> {
    let sizes = constant.sizes()?;
    let [outputs, inputs, taps @ ..] = sizes.as_slice() else {
        return Err(error(format!("`{}` has no channels", constant.name)));
    };
    let (inputs, taps, columns) = (*inputs, taps.iter().product::<usize>(), outputs / groups.max(1));
    let bytes = constant.read()?;
    let floats = Floats(&bytes);
    let mut packed = Vec::new();
    for group in 0..groups {
        let get = |row: usize, column: usize| {
            let (tap, input) = (row / inputs, row % inputs);
            floats.get(((group * columns + column) * inputs + input) * taps + tap)
        };
        packed.extend(pack::matrix_f32(taps * inputs, columns, get));
    }
    Ok(packed)
}

/// Weights `[O, I, 3, 3]` of a convolution by Winograd's algorithm.
pub(super) fn winograd(constant: &Constant, form: Winograd, conv: &Conv2d) -> Result<Vec<f32>, Error> {
    let bytes = constant.read()?;
    let floats = Floats(&bytes);
    Ok(pack::winograd_f32(form, conv, |o, i, h, w| floats.get(((o * conv.in_c + i) * 3 + h) * 3 + w)))
}

/// Weights `[C, 1, taps…]` of a depthwise convolution as `[taps, C]`.
pub(super) fn depthwise(constant: &Constant) -> Result<Vec<f32>, Error> {
    let sizes = constant.sizes()?;
    let channels = sizes.first().copied().unwrap_or(0);
    let taps = sizes.iter().skip(1).product::<usize>();
    let floats = constant.floats()?;
    let mut ordered = Vec::with_capacity(floats.len());
    for tap in 0..taps {
        ordered.extend((0..channels).map(|channel| floats[channel * taps + tap]));
    }
    Ok(ordered)
}

struct Floats<'a>(&'a [u8]);

impl Floats<'_> {
    fn get(&self, index: usize) -> f32 {
        let at = index * 4;
        self.0.get(at..at + 4).map_or(0.0, |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}
