//! Constants in the layouts that the engine reads.

use rushlight_engine::{Conv2d, Winograd, pack};

use crate::Bytes;
use crate::error::Error;
use crate::graph::Constant;

use super::error;

/// What constants of programs start at multiples of.
const MAPPED_ALIGNMENT: usize = 16;

/// Floats as a file has them.
pub(super) fn bytes(floats: &[f32]) -> Bytes {
    let mut bytes = Vec::with_capacity(floats.len() * 4);
    floats.iter().for_each(|float| bytes.extend_from_slice(&float.to_le_bytes()));
    bytes.into()
}

/// Whether floats that a file holds can be read where they are.
pub(super) fn stays(bytes: &Bytes) -> bool {
    cfg!(target_endian = "little") && bytes.as_ptr().addr().is_multiple_of(MAPPED_ALIGNMENT)
}

/// A matrix `[K, N]` in panels.
pub(super) fn matrix(constant: &Constant, [k, n]: [usize; 2], to: &mut [f32]) -> Result<(), Error> {
    // Weights of linear layers are stored as [N, K]: reading them the other way round keeps both sides sequential.
    let transposed = constant.permuted(&[1, 0]).and_then(|other| other.in_place());
    if let Some(bytes) = transposed {
        let floats = Floats(&bytes);
        pack::matrix_f32_into(to, k, n, |row, column| floats.get(column * k + row));
        return Ok(());
    }
    let bytes = constant.read()?;
    let floats = Floats(&bytes);
    pack::matrix_f32_into(to, k, n, |row, column| floats.get(row * n + column));
    Ok(())
}

/// Floats of the packed weights of a convolution; `None` if they are too many.
pub(super) fn convolution_len(sizes: &[usize], groups: usize) -> Option<usize> {
    let [outputs, inputs, taps @ ..] = sizes else { return None };
    let rows = taps.iter().try_fold(*inputs, |rows, size| rows.checked_mul(*size))?;
    pack::matrix_f32_len(rows, outputs / groups.max(1))?.checked_mul(groups)
}

/// Weights `[O, I / groups, taps…]` of a convolution, one matrix `[taps x I / groups, O / groups]` in panels for each group.
pub(super) fn convolution(constant: &Constant, groups: usize, to: &mut [f32]) -> Result<(), Error> {
    let sizes = constant.sizes()?;
    let [outputs, inputs, taps @ ..] = sizes.as_slice() else {
        return Err(error(format!("`{}` has no channels", constant.name)));
    };
    let (inputs, taps, columns) = (*inputs, taps.iter().product::<usize>(), outputs / groups.max(1));
    let bytes = constant.read()?;
    let floats = Floats(&bytes);
    let each = (to.len() / groups.max(1)).max(1);
    for (group, to) in to.chunks_exact_mut(each).take(groups).enumerate() {
        let first = group * columns;
        if taps == 1 {
            pack::matrix_f32_into(to, inputs, columns, |input, column| floats.get((first + column) * inputs + input));
            continue;
        }
        pack::matrix_f32_into(to, taps * inputs, columns, |row, column| {
            let (tap, input) = (row / inputs, row % inputs);
            floats.get(((first + column) * inputs + input) * taps + tap)
        });
    }
    Ok(())
}

/// Weights `[O, I, 3, 3]` of a convolution by Winograd's algorithm.
pub(super) fn winograd(constant: &Constant, form: Winograd, conv: &Conv2d, to: &mut [f32]) -> Result<(), Error> {
    let bytes = constant.read()?;
    let floats = Floats(&bytes);
    pack::winograd_f32_into(to, form, conv, |o, i, h, w| floats.get(((o * conv.in_c + i) * 3 + h) * 3 + w));
    Ok(())
}

/// Weights `[C, 1, taps…]` of a depthwise convolution as `[taps, C]`.
pub(super) fn depthwise(constant: &Constant, to: &mut [f32]) -> Result<(), Error> {
    let sizes = constant.sizes()?;
    let channels = sizes.first().copied().unwrap_or(0);
    let taps = sizes.iter().skip(1).product::<usize>();
    let bytes = constant.read()?;
    let floats = Floats(&bytes);
    for (tap, to) in to.chunks_exact_mut(channels.max(1)).enumerate() {
        to.iter_mut().enumerate().for_each(|(channel, float)| *float = floats.get(channel * taps + tap));
    }
    Ok(())
}

struct Floats<'a>(&'a [u8]);

impl Floats<'_> {
    fn get(&self, index: usize) -> f32 {
        let at = index * 4;
        self.0.get(at..at + 4).map_or(0.0, |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}
