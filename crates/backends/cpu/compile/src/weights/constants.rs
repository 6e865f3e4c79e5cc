//! Constants in the layouts that the engine reads.

use std::borrow::Cow;

use half::{bf16, f16};
use rushlight_engine::{Conv2d, ConvTranspose2d, Winograd, pack};
use rushlight_format::ScalarType;

use rushlight_graph::Bytes;
use rushlight_graph::Error;
use rushlight_graph::{Constant, ConstantData, TensorType};

use crate::error::error;

/// Alignment of constants in programs.
const MAPPED_ALIGNMENT: usize = 16;

/// Floats as a file has them.
pub(crate) fn bytes(floats: &[f32]) -> Bytes {
    let mut bytes = Vec::with_capacity(floats.len() * 4);
    floats.iter().for_each(|float| bytes.extend_from_slice(&float.to_le_bytes()));
    bytes.into()
}

/// True if floats of a file can be read where they are.
pub(crate) fn stays(bytes: &Bytes) -> bool {
    cfg!(target_endian = "little") && bytes.as_ptr().addr().is_multiple_of(MAPPED_ALIGNMENT)
}

/// The elements of a constant that is stored as floats, in row-major order.
pub(crate) fn floats(constant: &Constant) -> Result<Vec<f32>, Error> {
    as_floats(constant)?.floats()
}

/// A constant in `f32`, with the same strides.
pub(crate) fn as_floats(constant: &Constant) -> Result<Cow<'_, Constant>, Error> {
    let convert: fn(&[u8]) -> f32 = match constant.ty.dtype {
        ScalarType::Float => return Ok(Cow::Borrowed(constant)),
        ScalarType::Half => |bytes| bytes.try_into().map_or(0.0, |bytes| f16::from_le_bytes(bytes).to_f32()),
        ScalarType::BFloat16 => |bytes| bytes.try_into().map_or(0.0, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        ScalarType::Bool => |bytes| f32::from(u8::from(bytes != [0])),
        // Positions, which are exact.
        ScalarType::Long => |bytes| bytes.try_into().map_or(0.0, |bytes| i64::from_le_bytes(bytes) as f32),
        ScalarType::Int => |bytes| bytes.try_into().map_or(0.0, |bytes| i32::from_le_bytes(bytes) as f32),
        dtype => {
            return Err(error(format!("`{}` is of {}, which is not stored as floats", constant.name, dtype.name())));
        }
    };
    let (width, ty) = (constant.ty.dtype.size(), TensorType { dtype: ScalarType::Float, ..constant.ty.clone() });
    let all = |data: &Bytes| bytes(&data.chunks_exact(width).map(convert).collect::<Vec<_>>());
    let data = match &constant.data {
        ConstantData::Strided { storage, offset, strides } => {
            ConstantData::Strided { storage: all(storage), offset: *offset, strides: strides.clone() }
        }
        _ => ConstantData::Dense(all(&constant.read()?)),
    };
    Ok(Cow::Owned(Constant { name: constant.name.clone(), ty, data }))
}

/// A matrix `[K, N]` in panels.
pub(crate) fn matrix(constant: &Constant, [k, n]: [usize; 2], to: &mut [f32]) -> Result<(), Error> {
    // Weights of linear layers are stored as [N, K]: reading them the other way round keeps both sides sequential.
    let constant = &*as_floats(constant)?;
    let transposed = constant.permuted(&[1, 0]).and_then(|other| other.in_place());
    if let Some(bytes) = transposed {
        pack::columns_f32_into(to, k, n, checked(&floats_in(&bytes), k, n, constant)?, |row| row);
        return Ok(());
    }
    pack::rows_f32_into(to, k, n, checked(&floats_in(&constant.read()?), k, n, constant)?);
    Ok(())
}

/// The floats of a matrix of `k` times `n` elements.
fn checked<'f>(floats: &'f [f32], k: usize, n: usize, constant: &Constant) -> Result<&'f [f32], Error> {
    let expected = k.saturating_mul(n);
    let few = || {
        let message = format!("`{}` has fewer elements than its packed form", constant.name);
        error(message).expected(expected).got(floats.len())
    };
    floats.get(..expected).ok_or_else(few)
}

/// An element of a matrix that was [checked] to have all of them.
fn element(floats: &[f32], index: usize) -> f32 {
    floats.get(index).copied().unwrap_or(0.0)
}

/// Floats of a file, where they are if that is possible.
fn floats_in(bytes: &[u8]) -> Cow<'_, [f32]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(floats) if cfg!(target_endian = "little") => Cow::Borrowed(floats),
        _ => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    }
}

/// Floats of the packed weights of a convolution; `None` if they are too many.
pub(crate) fn convolution_len(sizes: &[usize], groups: usize) -> Option<usize> {
    let [outputs, inputs, taps @ ..] = sizes else { return None };
    let rows = taps.iter().try_fold(*inputs, |rows, size| rows.checked_mul(*size))?;
    pack::matrix_f32_len(rows, outputs / groups.max(1))?.checked_mul(groups)
}

/// Weights `[O, I / groups, taps…]` of a convolution, one matrix `[taps x I / groups, O / groups]` in panels for each group.
pub(crate) fn convolution(constant: &Constant, groups: usize, to: &mut [f32]) -> Result<(), Error> {
    let sizes = constant.sizes()?;
    let [outputs, inputs, taps @ ..] = sizes.as_slice() else {
        return Err(error(format!("`{}` has no channels", constant.name)));
    };
    let (inputs, taps, columns) = (*inputs, taps.iter().product::<usize>(), outputs / groups.max(1));
    let bytes = as_floats(constant)?.read()?;
    let floats = floats_in(&bytes);
    let rows = taps * inputs;
    let floats = checked(&floats, rows, groups * columns, constant)?;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let each = (to.len() / groups.max(1)).max(1);
    for (to, floats) in to.chunks_exact_mut(each).zip(floats.chunks_exact(columns * rows)) {
        if taps == 1 {
            pack::columns_f32_into(to, rows, columns, floats, |row| row);
        } else {
            pack::columns_f32_into(to, rows, columns, floats, |row| row % inputs * taps + row / inputs);
        }
    }
    Ok(())
}

/// Weights `[I, O / groups, H, W]` of a transposed convolution.
pub(crate) fn transposed(constant: &Constant, conv: &ConvTranspose2d, to: &mut [f32]) -> Result<(), Error> {
    let bytes = as_floats(constant)?.read()?;
    let floats = floats_in(&bytes);
    let (outputs, [height, width]) = (conv.out_c / conv.groups.max(1), conv.kernel);
    let floats = checked(&floats, conv.in_c, outputs * height * width, constant)?;
    let weight = |i: usize, o: usize, h: usize, w: usize| element(floats, ((i * outputs + o) * height + h) * width + w);
    to.copy_from_slice(&pack::conv_transpose2d_f32(conv, weight));
    Ok(())
}

/// Weights `[O, I, 3, 3]` of a convolution by Winograd's algorithm.
pub(crate) fn winograd(constant: &Constant, form: Winograd, conv: &Conv2d, to: &mut [f32]) -> Result<(), Error> {
    let bytes = as_floats(constant)?.read()?;
    let floats = floats_in(&bytes);
    let floats = checked(&floats, conv.in_c * 9, conv.out_c, constant)?;
    pack::winograd_f32_into(to, form, conv, |o, i, h, w| element(floats, ((o * conv.in_c + i) * 3 + h) * 3 + w));
    Ok(())
}

/// Weights `[C, 1, taps…]` of a depthwise convolution as `[taps, C]`.
pub(crate) fn depthwise(constant: &Constant, to: &mut [f32]) -> Result<(), Error> {
    let sizes = constant.sizes()?;
    let channels = sizes.first().copied().unwrap_or(0);
    let taps = sizes.iter().skip(1).product::<usize>();
    let bytes = as_floats(constant)?.read()?;
    let floats = floats_in(&bytes);
    let floats = checked(&floats, channels, taps, constant)?;
    for (tap, to) in to.chunks_exact_mut(channels.max(1)).enumerate() {
        to.iter_mut().enumerate().for_each(|(channel, float)| *float = element(floats, channel * taps + tap));
    }
    Ok(())
}
