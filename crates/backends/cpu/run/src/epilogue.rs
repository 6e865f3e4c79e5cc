//! Epilogues of the payload as those of one call of the engine: they borrow what they read.

use rushlight_cpu_payload::{self as payload, Int8Epilogue, TensorId};
use rushlight_engine::{Epilogue, GroupwiseEpilogue, QuantEpilogue, QuantResidual, Residual, RowQparams};
use rushlight_runtime::Result;

use crate::error::Unfit;
use crate::memory::{NOT_QUANTIZED, Reader, affine};

const NO_QPARAMS: Unfit = Unfit::Part("a dynamically quantized tensor without scales and zero points");

/// Returns the epilogue of f32 accumulators; rows of the result have `columns` elements.
pub(crate) fn float<'s>(
    epilogue: &payload::Epilogue,
    columns: usize,
    reader: &Reader<'s, '_, '_, '_>,
) -> Result<Epilogue<'s>> {
    let (residual, residual_first) = match epilogue.residual {
        Some(payload::Residual::BeforeActivation(residual)) => (Some(residual), true),
        Some(payload::Residual::AfterActivation(residual)) => (Some(residual), false),
        None => (None, true),
    };
    let residual = residual.map(|residual| reader.float_slice(residual)).transpose()?;
    Ok(Epilogue {
        bias: reader.optional(epilogue.bias)?,
        residual: residual.map(|data| Residual { data, stride: columns }),
        residual_first,
        activation: epilogue.activation,
    })
}

/// Returns the epilogue of an int8 kernel.
pub(crate) fn int8<'s>(
    epilogue: &Int8Epilogue,
    columns: usize,
    reader: &Reader<'s, '_, '_, '_>,
) -> Result<QuantEpilogue<'s>> {
    match *epilogue {
        Int8Epilogue::Static { offsets, scales, bias, fake_quantize, residual, activation } => {
            let residual = match residual {
                Some(id) => {
                    let affine = reader.affine(id).ok_or(NOT_QUANTIZED)?;
                    Some(QuantResidual { data: reader.quantized(id)?, stride: columns, affine })
                }
                None => None,
            };
            Ok(QuantEpilogue {
                offsets: bytemuck::cast_slice(reader.floats(offsets)?),
                scales: reader.floats(scales)?,
                rows: None,
                bias: reader.optional(bias)?,
                inner: fake_quantize.map(|inner| (inner.activation, affine(inner.affine))),
                residual,
                activation,
            })
        }
        Int8Epilogue::Dynamic { qparams: rows, sums, scales, bias, activation } => Ok(QuantEpilogue {
            offsets: bytemuck::cast_slice(reader.floats(sums)?),
            scales: reader.floats(scales)?,
            rows: Some(qparams(rows, reader)?),
            bias: reader.optional(bias)?,
            inner: None,
            residual: None,
            activation,
        }),
    }
}

/// Returns the zero point of the left side `x` of an int8 convolution, which pads it.
pub(crate) fn zero_point(epilogue: &Int8Epilogue, x: TensorId, reader: &Reader<'_, '_, '_, '_>) -> Result<u8> {
    match *epilogue {
        Int8Epilogue::Static { .. } => Ok(reader.affine(x).ok_or(NOT_QUANTIZED)?.zero_point),
        Int8Epilogue::Dynamic { qparams: rows, .. } => {
            Ok(*qparams(rows, reader)?.zero_points.first().ok_or(NO_QPARAMS)? as u8)
        }
    }
}

/// Returns the epilogue of a GEMM with group-wise quantized weights.
pub(crate) fn groupwise<'s>(
    epilogue: &payload::GroupwiseEpilogue,
    reader: &Reader<'s, '_, '_, '_>,
) -> Result<GroupwiseEpilogue<'s>> {
    Ok(GroupwiseEpilogue {
        rows: qparams(epilogue.qparams, reader)?,
        sums: reader.floats(epilogue.sums)?,
        bias: reader.optional(epilogue.bias)?,
        activation: epilogue.activation,
    })
}

/// Returns the scales and zero points of dynamically quantized rows, `[2, rows]` or `[2, 1]`.
pub(crate) fn qparams<'s>(tensor: TensorId, reader: &Reader<'s, '_, '_, '_>) -> Result<RowQparams<'s>> {
    let qparams = reader.floats(tensor)?;
    let (scales, zero_points) = qparams.split_at_checked(qparams.len() / 2).ok_or(NO_QPARAMS)?;
    Ok(RowQparams { scales, zero_points })
}
