//! Formats of caches: the states that store a cache, and the conversion of rows to and from floats.

use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, quantized_decomposed, rushlight};
use rushlight_graph::{Arg, Builder, Error, ErrorKind, Expr, TensorType, ValueId};

/// The storage format of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheFormat {
    F16,
    Bf16,
    /// Int8 as in ExecuTorch's quantized caches. Each row has a scale and a zero point that
    /// `quantized_decomposed::choose_qparams_per_token_asymmetric` chooses.
    Int8,
    /// Two int4 per byte. Each group of 32 elements has a scale and a zero point. A row whose even width is not a
    /// multiple of 32 is one group.
    Int4,
}

/// Elements of a group of an int4 cache.
const GROUP: i64 = 32;

impl CacheFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::Int8, Self::Int4];

    /// The name of the pass.
    pub(super) const fn pass(self) -> &'static str {
        match self {
            Self::F16 => "f16-caches",
            Self::Bf16 => "bf16-caches",
            Self::Int8 => "int8-caches",
            Self::Int4 => "int4-caches",
        }
    }

    /// Returns the states that store a cache: the suffixes of their names, and their types.
    ///
    /// # Errors
    /// `Option` for rows that the format cannot hold.
    pub(super) fn parts(self, ty: &TensorType) -> Result<Vec<(&'static str, TensorType)>, Error> {
        let of_type = |dtype: ScalarType| TensorType::new(dtype, ty.shape.clone());
        let of_width = |dtype: ScalarType, width: i64| {
            let mut ty = of_type(dtype);
            ty.shape.pop();
            ty.shape.push(width.into());
            ty
        };
        Ok(match self {
            Self::F16 => vec![("f16", of_type(ScalarType::Half))],
            Self::Bf16 => vec![("bf16", of_type(ScalarType::BFloat16))],
            Self::Int8 => vec![
                ("int8", of_type(ScalarType::Char)),
                ("scales", of_width(ScalarType::Float, 1)),
                ("zero_points", of_width(ScalarType::Char, 1)),
            ],
            Self::Int4 => {
                let (width, group) = groups(ty)?;
                vec![
                    ("int4", of_width(ScalarType::Byte, width / 2)),
                    ("scales", of_width(ScalarType::Float, width / group)),
                    ("zero_points", of_width(ScalarType::Byte, width / group)),
                ]
            }
        })
    }

    /// Converts rows to the contents of the states.
    pub(super) fn encode(self, builder: &mut Builder<'_>, rows: ValueId) -> Result<Vec<ValueId>, Error> {
        match self {
            Self::F16 => Ok(vec![cast(builder, rows, ScalarType::Half)?]),
            Self::Bf16 => Ok(vec![cast(builder, rows, ScalarType::BFloat16)?]),
            Self::Int8 => {
                let args = vec![rows.into(), ScalarType::Char.into()];
                let chosen = builder.call(quantized_decomposed::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC, args)?;
                let [scales, zero_points] = chosen[..] else {
                    return Err(Error::invalid("scales without zero points"));
                };
                let args = [rows.into(), scales.into(), zero_points.into()].into_iter().chain(int8_range());
                let args = args.chain([ScalarType::Char.into()]).collect();
                let integers = builder.one(quantized_decomposed::QUANTIZE_PER_TOKEN, args)?;
                let scales = cast(builder, scales, ScalarType::Float)?;
                Ok(vec![integers, scales, cast(builder, zero_points, ScalarType::Char)?])
            }
            Self::Int4 => {
                let (_, group) = groups(builder.graph.tensor(rows)?)?;
                builder.call(rushlight::QUANTIZE_INT4_ROWS, vec![rows.into(), group.into()])
            }
        }
    }

    /// Converts the contents of the states to floats.
    pub(super) fn decode(self, builder: &mut Builder<'_>, parts: &[ValueId]) -> Result<ValueId, Error> {
        match (self, parts) {
            (Self::F16 | Self::Bf16, [rows]) => cast(builder, *rows, ScalarType::Float),
            (Self::Int8, [integers, scales, zero_points]) => {
                let scales = cast(builder, *scales, ScalarType::Double)?;
                let zero_points = cast(builder, *zero_points, ScalarType::Long)?;
                let args = [(*integers).into(), scales.into(), zero_points.into()].into_iter().chain(int8_range());
                let types = [ScalarType::Char.into(), ScalarType::Float.into()];
                builder.one(quantized_decomposed::DEQUANTIZE_PER_TOKEN, args.chain(types).collect())
            }
            (Self::Int4, [packed, scales, zero_points]) => {
                let args = [packed, scales, zero_points].map(|part| Arg::from(*part));
                builder.one(rushlight::DEQUANTIZE_INT4_ROWS, args.into())
            }
            _ => Err(Error::invalid("a cache without its parts")),
        }
    }
}

/// Returns the elements of a row of an int4 cache, and those of its groups.
fn groups(ty: &TensorType) -> Result<(i64, i64), Error> {
    let width = ty.shape.last().and_then(Expr::as_int);
    let width = width.filter(|width| *width > 0 && width % 2 == 0).ok_or_else(|| {
        Error::new(ErrorKind::Option, "rows of a KV cache cannot be stored in 4 bits")
            .expected("an even number of elements")
            .got(
                ty.shape
                    .last()
                    .and_then(Expr::as_int)
                    .map_or("a size that is not fixed".into(), |width| width.to_string()),
            )
    })?;
    Ok((width, if width % GROUP == 0 { GROUP } else { width }))
}

fn cast(builder: &mut Builder<'_>, value: ValueId, dtype: ScalarType) -> Result<ValueId, Error> {
    builder.one_with(aten::_TO_COPY, vec![value.into()], &[("dtype", dtype.into())])
}

/// Returns the smallest and the largest int8.
fn int8_range() -> [Arg; 2] {
    [i64::from(i8::MIN).into(), i64::from(i8::MAX).into()]
}
