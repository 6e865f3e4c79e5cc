//! Dynamic quantization, and int8 GEMM of what it gives.

use half::f16;
use rushlight_cpu_payload::{
    Affine, Binary, Elementwise, Instruction, Integers as CpuIntegers, Matmul, Operand, RoundRows, RowScales, Step,
    Tail, TensorId,
};
use rushlight_engine::pack;

use rushlight_graph::Error;
use rushlight_graph::{Constant, Expr, NodeId, ValueId};

use crate::call::Call;
use crate::error::error;
use crate::quantized_weights::{Integers, group_parameters, scales};
use crate::select::{Dynamic, Gemm, Parameters};
use crate::view::View;

use super::Lowering;
use super::int8_epilogue::bits_of;

/// Dynamically quantized rows.
#[derive(Clone, Debug)]
pub(super) struct DynamicRows {
    /// In row-major order, if not all rows have the same scale.
    pub(super) bytes: View,
    /// `[2, rows]`, scales and then zero points, or `[2, 1]`.
    pub(super) scales: View,
}

/// The affine of bytes whose scales are chosen at run time.
const BYTES: Affine = Affine::new(1.0, 0, [0, 255]);

impl Lowering<'_> {
    /// A node of a dynamic quantization. Dequantizing costs nothing.
    pub(super) fn dynamic(&mut self, call: &Call<'_>, dynamic: &Dynamic) -> Result<(), Error> {
        let result = call.result()?;
        match dynamic {
            Dynamic::ChooseScales(parameters) => {
                let x = self.dynamic_input(parameters)?;
                let rows = match x.shape.split_last() {
                    Some((_, outer)) if !parameters.is_shared => Expr::product(outer),
                    _ => Expr::Int(1),
                };
                let y = self.plan.dense(vec![Expr::Int(2), rows])?;
                let step = RowScales {
                    x: self.plan.tensor(&x)?,
                    y: self.plan.tensor(&y)?,
                    choice: parameters.choice,
                    is_shared: parameters.is_shared,
                    range: parameters.range,
                };
                self.plan.step(self.label(call), Step::RowScales(step));
                self.scales.insert(result, y);
            }
            Dynamic::Quantize { scales, parameters } => {
                let scales = self.scales.get(scales).cloned().ok_or_else(|| error("scales that are not chosen yet"))?;
                let x = self.dynamic_input(parameters)?;
                let bytes = self.plan.ordered_as(x.shape.clone(), x.order.clone(), Some(BYTES))?;
                let step = RoundRows {
                    x: self.plan.tensor(&x)?,
                    scales: self.plan.tensor(&scales)?,
                    y: self.plan.tensor(&bytes)?,
                    range: parameters.range,
                };
                self.plan.step(self.label(call), Step::RoundRows(step));
                self.rows.insert(result, DynamicRows { bytes, scales });
            }
            Dynamic::Dequantize { input, .. } => {
                let rows = self.dynamic_rows(*input)?;
                self.rows.insert(result, rows);
            }
            Dynamic::Reshape { input } => {
                let DynamicRows { bytes, scales } = self.dynamic_rows(*input)?;
                let shape = self.graph.tensor(result)?.shape.clone();
                let bytes = self.in_rows(&bytes)?;
                let bytes = bytes.reshaped(&shape).ok_or_else(|| error("dense rows that cannot be reshaped"))?;
                self.rows.insert(result, DynamicRows { bytes, scales });
            }
        }
        Ok(())
    }

    /// The tensor that is quantized: where all of it has the same scale, in any order in memory.
    fn dynamic_input(&mut self, parameters: &Parameters) -> Result<View, Error> {
        if parameters.is_shared { self.solid(parameters.x) } else { self.dense(parameters.x) }
    }

    /// Bytes in row-major order.
    fn in_rows(&mut self, bytes: &View) -> Result<View, Error> {
        self.reordered(bytes, &(0..bytes.shape.len()).collect::<Vec<_>>())
    }

    /// Dequantizes rows, for steps that do not read bytes.
    pub(super) fn dequantized_rows(&mut self, rows: &DynamicRows) -> Result<View, Error> {
        let bytes = self.in_rows(&rows.bytes)?;
        let (last, outer) = bytes.shape.split_last().ok_or_else(|| error("rows without elements"))?;
        let matrix = [Expr::product(outer), last.clone()];
        let y = self.plan.dense(bytes.shape.clone())?;
        let zeros = rows.scales.sliced(0, &Expr::Int(1), &Expr::Int(1));
        let column = [rows.scales.shape[1].clone(), Expr::Int(1)];
        let operands = vec![
            self.plan.window(&bytes, &matrix)?,
            self.plan.window(&rows.scales, &column)?,
            self.plan.window(&zeros, &column)?,
        ];
        let [a, scale, zero] = [Operand::Tensor(0), Operand::Tensor(1), Operand::Tensor(2)];
        let instructions = vec![
            Instruction::Binary { to: 0, function: Binary::Sub, a, b: zero },
            Instruction::Binary { to: 0, function: Binary::Mul, a: Operand::Register(0), b: scale },
        ];
        let step = Elementwise { operands, y: self.plan.window(&y, &matrix)?, instructions };
        self.plan.step("dequantize", Step::Elementwise(step));
        Ok(y)
    }

    /// Dynamically quantized rows by the value that was quantized or dequantized.
    pub(super) fn dynamic_rows(&self, value: ValueId) -> Result<DynamicRows, Error> {
        self.rows.get(&value).cloned().ok_or_else(|| error("rows that are not quantized yet"))
    }

    /// An int8 GEMM of dynamically quantized rows.
    pub(super) fn dynamic_gemm(
        &mut self,
        id: NodeId,
        gemm: &Gemm,
        constant: &Constant,
        groupwise: Option<bool>,
    ) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let DynamicRows { bytes, scales: row_scales } = self.dynamic_rows(gemm.a)?;
        let bytes = self.in_rows(&bytes)?;
        let sizes = constant.sizes()?;
        let [k, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
        let too_large = || error("weights beyond all memory");
        let integers = Integers::of(constant)?;
        let (b, offsets, scales) = if let Some(is_four_bits) = groupwise {
            let mut parameters = group_parameters(constant).ok_or_else(|| error("weights without scales of groups"))?;
            let has_zeros = parameters.iter().any(|(_, zero)| *zero != 0);
            // Scales are read for every group: those of 16 bits, whose error is far below that of four bits, take half. Beside
            // weights of eight bits that is little.
            let has_half_scales =
                is_four_bits && k > pack::GROUP_SIZE && parameters.iter().all(|(scale, _)| fits_half(*scale));
            if has_half_scales {
                parameters.iter_mut().for_each(|(scale, _)| *scale = f16::from_f32(*scale).to_f32());
            }
            let matrix = pack::GroupwiseMatrix { k, n, is_four_bits, has_zeros, has_half_scales };
            let entries = integers.entries();
            let term = |k: usize, n_: usize| {
                let (scale, zero) = parameters.get(k / pack::GROUP_SIZE * n + n_).copied().unwrap_or_default();
                f64::from(scale) * (f64::from(entries.get([k, n_])) - f64::from(zero))
            };
            let sums: Vec<f32> = (0..n).map(|n| (0..k).map(|k| term(k, n)).sum::<f64>() as f32).collect();
            let len = matrix.len().ok_or_else(too_large)?;
            let b = self.plan.grouped(&constant.name, len, move |to| {
                let of = |group: usize, column: usize| parameters.get(group * n + column).copied().unwrap_or_default();
                let entries = integers.entries();
                pack::groupwise_into(to, &matrix, |k, n| entries.get([k, n]), of);
                Ok(())
            })?;
            (b, sums, None)
        } else {
            let entries = integers.entries();
            let sums: Vec<i64> = (0..n).map(|n| (0..k).map(|k| i64::from(entries.get([k, n]))).sum()).collect();
            let sums = bits_of(&sums);
            let len = pack::matrix_i8_len(k, n).ok_or_else(too_large)?;
            let scales = self.plan.vector("scales", &scales(constant, n)?)?;
            let b = self.plan.integers(&constant.name, len, move |to| {
                let entries = integers.entries();
                pack::matrix_i8_into(to, k, n, |k, n| entries.get([k, n]));
                Ok(())
            })?;
            (b, sums, Some(scales))
        };
        let tail = self.dynamic_epilogue(id, gemm.bias, &row_scales, &offsets, scales)?;
        let result = self.result_of_epilogue(id)?;
        let y = self.plan.dense(self.graph.tensor(result)?.shape.clone())?;
        let matrix = call.shape(call.result()?)?.to_vec();
        let a = self.plan.tensor(&bytes)?;
        let step = Matmul { a, b, y: self.plan.window(&y, &matrix)?, packed: true, transposed: false, tail };
        self.plan.step(self.label(&call), Step::Matmul(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// The epilogue of an int8 GEMM or convolution of dynamically quantized rows; `offsets` are what the payload has for such.
    pub(super) fn dynamic_epilogue(
        &mut self,
        id: NodeId,
        bias: Option<ValueId>,
        row_scales: &View,
        offsets: &[f32],
        scales: Option<TensorId>,
    ) -> Result<Tail, Error> {
        let mut tail = Tail {
            activation: self.fusion.epilogues.get(&id).map(|epilogue| epilogue.activation).unwrap_or_default(),
            integers: Some(CpuIntegers {
                offsets: self.plan.vector("sums", offsets)?,
                scales,
                rows: Some(self.plan.tensor(row_scales)?),
                inner: None,
            }),
            ..Tail::default()
        };
        if let Some(bias) = bias {
            let bias = self.dense(bias)?;
            tail.bias = Some(self.plan.tensor(&bias)?);
        }
        Ok(tail)
    }
}

/// True if a scale is in the range of normal numbers of 16 bits.
fn fits_half(scale: f32) -> bool {
    (f16::MIN_POSITIVE.to_f32()..=f16::MAX.to_f32()).contains(&scale)
}
