//! Lowers dynamic quantization and the int8 GEMMs of its results.

use std::sync::Arc;

use rushlight_cpu_payload::{
    Activation, Affine, Binary, ChooseQparams, Elementwise, GroupwiseEpilogue, GroupwiseFormat, Instruction,
    Int8Epilogue, Matmul, MatmulKind, Operand, QuantizeRows, Step, TensorId, ZeroPointRule,
};
use rushlight_engine::pack::GroupwiseMatrix;
use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::{Call, Constant, Expr, NodeId, ValueId};

use crate::error::error;
use crate::select::{Dynamic, Gemm, Parameters};
use crate::storage::integral;
use crate::view::View;
use crate::weights::packed_matrix::PackedMatrix;
use crate::weights::quantized_weights::{self, columns, scales};

use super::Lowering;
use super::int8_epilogue::bits_of;

/// Dynamically quantized rows.
#[derive(Clone, Debug)]
pub(super) struct DynamicRows {
    /// In row-major order, unless all rows have the same scale.
    pub(super) bytes: View,
    /// `[2, rows]` or `[2, 1]`: scales, then zero points.
    pub(super) scales: View,
}

/// The affine quantization of bytes whose scales are chosen at run time.
const BYTES: Affine = Affine::new(1.0, 0, [0, 255]);

impl Lowering<'_> {
    /// Lowers a node of a dynamic quantization. Dequantization costs nothing.
    pub(super) fn dynamic(&mut self, call: &Call<'_>, dynamic: &Dynamic) -> Result<(), Error> {
        let result = call.result()?;
        match dynamic {
            Dynamic::ChooseScales(parameters) => {
                let scales = self.choose_scales(call, parameters)?;
                self.scales.insert(result, scales);
            }
            Dynamic::Quantize { scales, parameters } => {
                let rows = self.quantize_rows(call, parameters, &self.chosen(*scales)?)?;
                self.rows.insert(result, rows);
            }
            Dynamic::QuantizeRows(parameters) => {
                let scales = self.choose_scales(call, parameters)?;
                let rows = self.quantize_rows(call, parameters, &scales)?;
                self.rows.insert(result, rows);
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
            Dynamic::Scales { scales } => {
                let scales = self.chosen(*scales)?;
                let view = View { offset: scales.offset, ..self.row_parameters(result, scales.buffer)? };
                self.views.insert(result, view);
            }
            Dynamic::ZeroPoints { scales } => {
                let zeros = self.chosen(*scales)?.sliced(0, &Expr::Int(1), &Expr::Int(1));
                let from = View { offset: zeros.offset, ..self.row_parameters(result, zeros.buffer)? };
                let bytes = self.converted("zero points", &from, Some(BYTES))?;
                self.views.insert(result, bytes.with_affine(Some(integral(ScalarType::Char))));
            }
        }
        Ok(())
    }

    /// Chooses scales and zero points: `[2, rows]`, or `[3, rows]` with the factors of values.
    fn choose_scales(&mut self, call: &Call<'_>, parameters: &Parameters) -> Result<View, Error> {
        let x = self.dynamic_input(parameters)?;
        let rows = match x.shape.split_last() {
            Some((_, outer)) if !parameters.is_shared => Expr::product(outer),
            _ => Expr::Int(1),
        };
        let of_row = if matches!(parameters.choice, ZeroPointRule::Inverse { .. }) { 3 } else { 2 };
        let y = self.plan.dense(vec![Expr::Int(of_row), rows])?;
        let step = ChooseQparams {
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            rule: parameters.choice,
            per_tensor: parameters.is_shared,
            range: parameters.range,
        };
        self.plan.step(self.label(call), Step::ChooseQparams(step));
        Ok(y)
    }

    /// Quantizes rows with scales that are already chosen.
    fn quantize_rows(&mut self, call: &Call<'_>, parameters: &Parameters, scales: &View) -> Result<DynamicRows, Error> {
        let x = self.dynamic_input(parameters)?;
        let bytes = self.plan.ordered_as(x.shape.clone(), x.order.clone(), Some(BYTES))?;
        let step = QuantizeRows {
            x: self.plan.tensor(&x)?,
            qparams: self.plan.tensor(scales)?,
            y: self.plan.tensor(&bytes)?,
            range: parameters.range,
        };
        self.plan.step(self.label(call), Step::QuantizeRows(step));
        // Readers of the bytes need no factors.
        Ok(DynamicRows { bytes, scales: scales.sliced(0, &Expr::Int(0), &Expr::Int(2)) })
    }

    /// The scales and zero points that a node chose, `[2, rows]`.
    fn chosen(&self, scales: ValueId) -> Result<View, Error> {
        self.scales.get(&scales).cloned().ok_or_else(|| error("scales that are not chosen yet"))
    }

    /// A buffer in the shape of a value with one element for each row.
    fn row_parameters(&self, value: ValueId, buffer: usize) -> Result<View, Error> {
        Ok(View::dense(buffer, self.graph.tensor(value)?.shape.clone()))
    }

    /// The tensor that is quantized. It may have any memory order if all of it has the same scale.
    fn dynamic_input(&mut self, parameters: &Parameters) -> Result<View, Error> {
        if parameters.is_shared { self.non_overlapping_dense(parameters.x) } else { self.dense(parameters.x) }
    }

    /// Bytes in row-major order.
    pub(super) fn in_rows(&mut self, bytes: &View) -> Result<View, Error> {
        self.reordered(bytes, &(0..bytes.shape.len()).collect::<Vec<_>>())
    }

    /// Dequantizes rows for steps that do not read bytes.
    pub(super) fn dequantized_rows(&mut self, rows: &DynamicRows) -> Result<View, Error> {
        let bytes = self.in_rows(&rows.bytes)?;
        let zeros = rows.scales.sliced(0, &Expr::Int(1), &Expr::Int(1));
        self.dequantize_with(&bytes, [&rows.scales, &zeros], rows.scales.shape[1].clone())
    }

    /// Dequantizes dense rows of bytes with `count` scales and zero points: one for each row, or one for all.
    pub(super) fn dequantize_with(
        &mut self,
        bytes: &View,
        [scales, zeros]: [&View; 2],
        count: Expr,
    ) -> Result<View, Error> {
        let (width, outer) = bytes.shape.split_last().ok_or_else(|| error("rows without elements"))?;
        let (matrix, column) = ([Expr::product(outer), width.clone()], [count, Expr::Int(1)]);
        let y = self.plan.dense(bytes.shape.clone())?;
        let operands = vec![
            self.plan.window(bytes, &matrix)?,
            self.plan.window(scales, &column)?,
            self.plan.window(zeros, &column)?,
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

    /// The dynamically quantized rows of a value that was quantized or dequantized.
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
        let activation = self.activation(id);
        let (a, b, kind) = self.dynamic_gemm_parts(gemm, constant, groupwise, activation)?;
        let result = self.result_of_epilogue(id)?;
        let y = self.plan.dense(self.graph.tensor(result)?.shape.clone())?;
        let matrix = call.shape(call.result()?)?.to_vec();
        let step = Matmul { a, b, y: self.plan.window(&y, &matrix)?, kind };
        self.plan.step(self.label(&call), Step::Matmul(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// Both sides of an int8 GEMM of dynamically quantized rows, and its kind.
    pub(super) fn dynamic_gemm_parts(
        &mut self,
        gemm: &Gemm,
        constant: &Constant,
        groupwise: Option<bool>,
        activation: Activation,
    ) -> Result<(TensorId, TensorId, MatmulKind), Error> {
        let DynamicRows { bytes, scales: row_scales } = self.dynamic_rows(gemm.a)?;
        let bytes = self.in_rows(&bytes)?;
        let sizes = constant.sizes()?;
        let [_, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
        let (b, kind) = if let Some(is_four_bits) = groupwise {
            let packed = quantized_weights::groupwise(constant)?;
            let (matrix, packed) = packed.ok_or_else(|| error("weights without scales of groups"))?;
            let GroupwiseMatrix { has_zeros, has_half_scales, .. } = matrix;
            let sums = packed.group_sums(self.threads)?;
            let b = self.plan.matrix(&constant.name, packed)?;
            let format = GroupwiseFormat { is_four_bits, has_zeros, has_half_scales };
            let epilogue = self.groupwise_epilogue(activation, gemm.bias, &row_scales, &sums)?;
            (b, MatmulKind::Groupwise { format, epilogue })
        } else {
            let columns = columns(constant)?;
            let sums = bits_of(&columns.sums(self.threads)?);
            let scales = self.plan.vector("scales", &scales(constant, n)?)?;
            let b = self.plan.matrix(&constant.name, Arc::new(PackedMatrix::int8(columns)))?;
            (
                b,
                MatmulKind::Int8 {
                    epilogue: self.dynamic_epilogue(activation, gemm.bias, &row_scales, &sums, scales)?,
                },
            )
        };
        Ok((self.plan.tensor(&bytes)?, b, kind))
    }

    /// The activation after a GEMM or a convolution.
    pub(super) fn activation(&self, id: NodeId) -> Activation {
        self.fusion.epilogues.get(&id).map(|epilogue| epilogue.activation).unwrap_or_default()
    }

    /// The epilogue of an int8 GEMM or convolution of dynamically quantized rows. `sums` holds the sum of each column's
    /// weights, as the bits of `i32`.
    pub(super) fn dynamic_epilogue(
        &mut self,
        activation: Activation,
        bias: Option<ValueId>,
        row_scales: &View,
        sums: &[f32],
        scales: TensorId,
    ) -> Result<Int8Epilogue, Error> {
        let GroupwiseEpilogue { qparams, sums, bias, activation } =
            self.groupwise_epilogue(activation, bias, row_scales, sums)?;
        Ok(Int8Epilogue::Dynamic { qparams, sums, scales, bias, activation })
    }

    /// The epilogue of a groupwise GEMM. `sums` holds the sum of each column's dequantized weights.
    fn groupwise_epilogue(
        &mut self,
        activation: Activation,
        bias: Option<ValueId>,
        row_scales: &View,
        sums: &[f32],
    ) -> Result<GroupwiseEpilogue, Error> {
        let sums = self.plan.vector("sums", sums)?;
        let qparams = self.plan.tensor(row_scales)?;
        let bias = match bias {
            Some(bias) => {
                let bias = self.dense(bias)?;
                Some(self.plan.tensor(&bias)?)
            }
            None => None,
        };
        Ok(GroupwiseEpilogue { qparams, sums, bias, activation })
    }
}
