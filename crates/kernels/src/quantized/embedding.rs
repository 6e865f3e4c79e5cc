//! Rows of quantized tables: bytes, or 4-bit and 2-bit values packed into bytes.
//!
//! A row has one scale, or one for each group of columns: then the scales have a second dimension. The result is
//! `(weight - zero_point) * scale`, rounded to the type of the scales and then to the output's. 4-bit values are stored plus 8, the first of
//! a byte in its upper half; 2-bit values plus 2, the first in the lowest bits.

use half::{bf16, f16};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor};

use super::params::{check_dtype, contiguous};
use crate::support::number::Number;
use crate::support::shape::Dims;

/// `quantized_decomposed::embedding_byte.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points,
/// int weight_quant_min, int weight_quant_max, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)`
pub const EMBEDDING_BYTE_OUT: Op =
    Op::new("quantized_decomposed::embedding_byte.out", 7, |cx| embedding(cx, Packing::Byte, 6));

/// `quantized_decomposed::embedding_byte.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points,
/// int weight_quant_min, int weight_quant_max, Tensor indices, *, ScalarType? dtype=None, Tensor(a!) out)
/// -> Tensor(a!)`
pub const EMBEDDING_BYTE_DTYPE_OUT: Op =
    Op::new("quantized_decomposed::embedding_byte.dtype_out", 8, |cx| embedding(cx, Packing::Byte, 7));

/// `quantized_decomposed::embedding_4bit.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points,
/// int weight_quant_min, int weight_quant_max, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)`
pub const EMBEDDING_4BIT_OUT: Op =
    Op::new("quantized_decomposed::embedding_4bit.out", 7, |cx| embedding(cx, Packing::Bits4, 6));

/// `quantized_decomposed::embedding_4bit.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points,
/// int weight_quant_min, int weight_quant_max, Tensor indices, ScalarType? dtype=None, *, Tensor(a!) out)
/// -> Tensor(a!)`
pub const EMBEDDING_4BIT_DTYPE_OUT: Op =
    Op::new("quantized_decomposed::embedding_4bit.dtype_out", 8, |cx| embedding(cx, Packing::Bits4, 7));

/// `quantized_decomposed::embedding_2bit.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points,
/// int weight_quant_min, int weight_quant_max, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)`
pub const EMBEDDING_2BIT_OUT: Op =
    Op::new("quantized_decomposed::embedding_2bit.out", 7, |cx| embedding(cx, Packing::Bits2, 6));

/// `quantized_decomposed::embedding_2bit.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points,
/// int weight_quant_min, int weight_quant_max, Tensor indices, ScalarType? dtype=None, *, Tensor(a!) out)
/// -> Tensor(a!)`
pub const EMBEDDING_2BIT_DTYPE_OUT: Op =
    Op::new("quantized_decomposed::embedding_2bit.dtype_out", 8, |cx| embedding(cx, Packing::Bits2, 7));

pub const OPS: &[Op] = &[
    EMBEDDING_BYTE_OUT,
    EMBEDDING_BYTE_DTYPE_OUT,
    EMBEDDING_4BIT_OUT,
    EMBEDDING_4BIT_DTYPE_OUT,
    EMBEDDING_2BIT_OUT,
    EMBEDDING_2BIT_DTYPE_OUT,
];

/// Packing of a row's values in its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Packing {
    Byte,
    Bits4,
    Bits2,
}

impl Packing {
    fn per_byte(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Bits4 => 2,
            Self::Bits2 => 4,
        }
    }

    /// The values from column `start` of the packed `row` on.
    fn unpack(self, row: &[u8], start: usize, signed: bool, out: &mut [f32]) {
        let columns = start..start + out.len();
        match self {
            Self::Byte if signed => {
                for (x, &byte) in out.iter_mut().zip(&row[columns]) {
                    *x = f32::from(byte as i8);
                }
            }
            Self::Byte => {
                for (x, &byte) in out.iter_mut().zip(&row[columns]) {
                    *x = f32::from(byte);
                }
            }
            Self::Bits4 if start.is_multiple_of(2) => {
                let (pairs, last) = out.as_chunks_mut::<2>();
                let (bytes, rest) = row[start / 2..].split_at(pairs.len());
                let value = |bits: u8| f32::from(bits as i8 - 8);
                for ([first, second], &byte) in pairs.iter_mut().zip(bytes) {
                    (*first, *second) = (value(byte >> 4), value(byte & 15));
                }
                if let ([x], [byte, ..]) = (last, rest) {
                    *x = value(byte >> 4);
                }
            }
            Self::Bits4 => {
                for (x, column) in out.iter_mut().zip(columns) {
                    *x = f32::from(((row[column / 2] >> (4 * (1 - column % 2))) & 15) as i8 - 8);
                }
            }
            Self::Bits2 if start.is_multiple_of(4) && out.len().is_multiple_of(4) => {
                for (values, &byte) in out.as_chunks_mut::<4>().0.iter_mut().zip(&row[start / 4..]) {
                    *values = [0, 2, 4, 6].map(|shift| f32::from((byte >> shift & 3) as i8 - 2));
                }
            }
            Self::Bits2 => {
                for (x, column) in out.iter_mut().zip(columns) {
                    *x = f32::from(((row[column / 4] >> (2 * (column % 4))) & 3) as i8 - 2);
                }
            }
        }
    }
}

fn embedding(cx: &KernelContext<'_>, packing: Packing, out_index: usize) -> Result<()> {
    let (weight, indices) = (cx.tensor(0)?, cx.tensor(5)?);
    let table = Table::new(cx, &weight, packing)?;
    let mut out = cx.out(out_index)?;
    if out_index == 7 {
        check_dtype(cx, 6, out.dtype())?;
    }
    let mut sizes = Dims::from_slice(indices.sizes())?;
    sizes.push(table.columns)?;
    out.resize(&sizes).map_err(|e| e.arg(out_index))?;
    contiguous(&indices).map_err(|e| e.arg(5))?;
    contiguous(&out.as_tensor()).map_err(|e| e.arg(out_index))?;
    if table.columns == 0 {
        return Ok(());
    }
    dispatch_types!("f32, f16 or bf16", out.dtype(), T => {
        let rows = out.as_mut_slice::<T>()?.chunks_exact_mut(table.columns);
        match indices.dtype() {
            ScalarType::Long => rows.zip(indices.as_slice::<i64>()?).try_for_each(|(row, &i)| table.row(i, row)),
            ScalarType::Int => {
                rows.zip(indices.as_slice::<i32>()?).try_for_each(|(row, &i)| table.row(i64::from(i), row))
            }
            got => Err(Detail::Dtype { expected: "i64 or i32", got }.into()),
        }
        .map_err(|e| e.arg(5))
    }, [Float = f32, Half = f16, BFloat16 = bf16])
    .map_err(|e: Error| e.arg(out_index))
}

/// A quantized table with its scales.
struct Table<'a> {
    bytes: &'a [u8],
    signed: bool,
    packing: Packing,
    rows: usize,
    columns: usize,
    groups: usize,
    scales: Floats<'a>,
    zero_points: Option<Floats<'a>>,
}

impl<'a> Table<'a> {
    fn new(cx: &'a KernelContext<'_>, weight: &Tensor<'a>, packing: Packing) -> Result<Self> {
        let signed = match (weight.dtype(), packing) {
            (ScalarType::Byte, _) => false,
            (ScalarType::Char, Packing::Byte) => true,
            (got, Packing::Byte) => return Err(Error::from(Detail::Dtype { expected: "u8 or i8", got }).arg(0)),
            (got, _) => return Err(Error::from(Detail::Dtype { expected: "u8", got }).arg(0)),
        };
        let &[rows, bytes_per_row] = weight.sizes() else {
            return Err(Error::from(Detail::Rank { expected: "2", got: weight.rank() }).arg(0));
        };
        contiguous(weight).map_err(|e| e.arg(0))?;
        let columns = bytes_per_row
            .checked_mul(packing.per_byte())
            .ok_or_else(|| Error::invalid("the number of columns overflows").arg(0))?;
        let scales = cx.tensor(1)?;
        let groups = match *scales.sizes() {
            [n] if n == rows => 1,
            [n, groups] if n == rows && groups > 0 && columns.is_multiple_of(groups) => groups,
            [n] | [n, _] if n != rows => {
                return Err(Error::from(Detail::Size { dim: 0, expected: rows, got: n }).arg(1));
            }
            [_, got] => return Err(Error::from(Detail::Size { dim: 1, expected: columns, got }).arg(1)),
            _ => return Err(Error::from(Detail::Rank { expected: "1 or 2", got: scales.rank() }).arg(1)),
        };
        let zero_points = match cx.optional_tensor(2)? {
            None => None,
            Some(list) if list.sizes() != scales.sizes() => {
                return Err(Error::invalid("the zero points must have the shape of the scales").arg(2));
            }
            Some(list) => Some(Floats::new(&list).map_err(|e| e.arg(2))?),
        };
        let (min, max) = (cx.int(3)?, cx.int(4)?);
        if min > max {
            let expected = "a value of at most weight_quant_max";
            return Err(Error::from(Detail::Value { what: "weight_quant_min", expected, got: min }).arg(3));
        }
        let scales = Floats::new(&scales).map_err(|e| e.arg(1))?;
        Ok(Self { bytes: weight.bytes(), signed, packing, rows, columns, groups, scales, zero_points })
    }

    /// Dequantizes row `index`.
    fn row<T: Number>(&self, index: i64, out: &mut [T]) -> Result<()> {
        let index =
            usize::try_from(index).ok().filter(|&i| i < self.rows).ok_or(Detail::Index { index, size: self.rows })?;
        let bytes_per_row = self.columns / self.packing.per_byte();
        let bytes = &self.bytes[index * bytes_per_row..(index + 1) * bytes_per_row];
        let group_size = self.columns / self.groups;
        let mut tile = [0.0; 64];
        for (group, out) in out.chunks_mut(group_size).enumerate() {
            let scale = self.scales.get(index * self.groups + group);
            let zero_point = self.zero_points.as_ref().map_or(0.0, |z| z.get(index * self.groups + group));
            for (chunk, out) in out.chunks_mut(tile.len()).enumerate() {
                let start = group * group_size + chunk * tile.len();
                let tile = &mut tile[..out.len()];
                self.packing.unpack(bytes, start, self.signed, tile);
                for value in &mut *tile {
                    *value = (*value - zero_point) * scale;
                }
                if self.scales.dtype() != T::DTYPE {
                    self.scales.round(tile);
                }
                for (x, &value) in out.iter_mut().zip(&*tile) {
                    *x = T::from_f32(value);
                }
            }
        }
        Ok(())
    }
}

/// Scales or zero points.
enum Floats<'a> {
    Float(&'a [f32]),
    Half(&'a [f16]),
    BFloat16(&'a [bf16]),
}

impl<'a> Floats<'a> {
    fn new(tensor: &Tensor<'a>) -> Result<Self> {
        contiguous(tensor)?;
        match tensor.dtype() {
            ScalarType::Float => Ok(Self::Float(tensor.as_slice()?)),
            ScalarType::Half => Ok(Self::Half(tensor.as_slice()?)),
            ScalarType::BFloat16 => Ok(Self::BFloat16(tensor.as_slice()?)),
            got => Err(Detail::Dtype { expected: "f32, f16 or bf16", got }.into()),
        }
    }

    fn dtype(&self) -> ScalarType {
        match self {
            Self::Float(_) => ScalarType::Float,
            Self::Half(_) => ScalarType::Half,
            Self::BFloat16(_) => ScalarType::BFloat16,
        }
    }

    /// Rounds values to this type.
    fn round(&self, values: &mut [f32]) {
        for value in values {
            *value = match self {
                Self::Float(_) => *value,
                Self::Half(_) => f16::from_f32(*value).to_f32(),
                Self::BFloat16(_) => bf16::from_f32(*value).to_f32(),
            };
        }
    }

    fn get(&self, index: usize) -> f32 {
        match self {
            Self::Float(values) => values[index],
            Self::Half(values) => values[index].to_f32(),
            Self::BFloat16(values) => values[index].to_f32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_values() {
        let mut out = [0.0; 4];
        Packing::Bits4.unpack(&[0x0f, 0x87], 0, false, &mut out);
        assert_eq!(out, [-8.0, 7.0, 0.0, -1.0]);
        Packing::Bits4.unpack(&[0x0f, 0x87], 1, false, &mut out[..2]);
        assert_eq!(out[..2], [7.0, 0.0]);
        Packing::Bits2.unpack(&[0b11_10_01_00], 0, false, &mut out);
        assert_eq!(out, [-2.0, -1.0, 0.0, 1.0]);
        Packing::Byte.unpack(&[255, 128], 0, true, &mut out[..2]);
        assert_eq!(out[..2], [-1.0, -128.0]);
    }
}
