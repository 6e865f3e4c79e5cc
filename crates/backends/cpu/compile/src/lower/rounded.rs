//! Rows that are rounded to bytes with scales that are chosen when they are seen, and products of them.

use half::f16;
use rushlight_cpu_payload::{
    Affine, Binary, ChooseQparams, Elementwise, GroupwiseEpilogue, GroupwiseFormat, Instruction, Int8Epilogue, Matmul,
    MatmulKind, Operand, QuantizeRows, Step, TensorId,
};
use rushlight_engine::pack;

use rushlight_graph::Error;
use rushlight_graph::{Constant, Expr, NodeId, ValueId};

use super::super::call::Call;
use super::super::dynamic::{self, Chosen, Role};
use super::super::error;
use super::super::integer::{IntegerProduct, Integers, group_parameters, scales};
use super::super::view::View;
use super::Lowering;
use super::integer::bits_of;

/// Rows as bytes.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// In row-major order, if not all rows have the same scale. What they stand for is in `chosen`.
    pub(super) bytes: View,
    /// `[2, rows]`, scales and then zeros, or `[2, 1]`.
    pub(super) chosen: View,
}

/// What bytes are taken for whose scales are chosen later.
const BYTES: Affine = Affine::new(1.0, 0, [0, 255]);

impl Lowering<'_> {
    /// A node that chooses scales, rounds, or makes numbers of integers again, which costs nothing.
    pub(super) fn rounding_of_rows(&mut self, id: NodeId) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let result = call.result()?;
        let role = dynamic::role(call.name()).ok_or_else(|| error("no rounding of rows"))?;
        let choose = if role == Role::Choose { Some(id) } else { dynamic::choice_of(self.graph, id) };
        let choose = choose.ok_or_else(|| error("rows without their scales"))?;
        let chosen = dynamic::chosen(self.graph, choose).ok_or_else(|| error("scales that are not for bytes"))?;
        match role {
            Role::Choose => {
                let x = self.rows_to_round(&chosen)?;
                let rows = match x.shape.split_last() {
                    Some((_, outer)) if !chosen.is_shared => Expr::product(outer),
                    _ => Expr::Int(1),
                };
                let y = self.plan.dense(vec![Expr::Int(2), rows])?;
                let step = ChooseQparams {
                    x: self.plan.tensor(&x)?,
                    y: self.plan.tensor(&y)?,
                    rule: chosen.choice,
                    per_tensor: chosen.is_shared,
                    range: chosen.range,
                };
                self.plan.step(self.label(&call), Step::ChooseQparams(step));
                self.chosen.insert(result, y);
            }
            Role::Round => {
                let scales = Call::new(self.graph, choose).result()?;
                let view = self.chosen.get(&scales).cloned().ok_or_else(|| error("scales that are not chosen yet"))?;
                let x = self.rows_to_round(&chosen)?;
                let bytes = self.plan.ordered_as(x.shape.clone(), x.order.clone(), Some(BYTES))?;
                let step = QuantizeRows {
                    x: self.plan.tensor(&x)?,
                    qparams: self.plan.tensor(&view)?,
                    y: self.plan.tensor(&bytes)?,
                    range: chosen.range,
                };
                self.plan.step(self.label(&call), Step::QuantizeRows(step));
                self.rows.insert(result, Rows { bytes, chosen: view });
            }
            Role::Dequantize => {
                let rows = self.rows.get(&call.value("input")?).cloned();
                self.rows.insert(result, rows.ok_or_else(|| error("rows that are not rounded yet"))?);
            }
        }
        Ok(())
    }

    /// What is rounded: where all of it has the same scale, as it lies in memory.
    fn rows_to_round(&mut self, chosen: &Chosen) -> Result<View, Error> {
        if chosen.is_shared { self.solid(chosen.x) } else { self.dense(chosen.x) }
    }

    /// Whether a node shows rows in another shape.
    pub(super) fn shows_rows(&self, call: &Call<'_>) -> bool {
        dynamic::keeps_rows(call).is_some_and(|source| self.rows.contains_key(&source))
    }

    pub(super) fn rows_in_another_shape(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (source, result) = (call.value("self")?, call.result()?);
        let Rows { bytes, chosen } =
            self.rows.get(&source).cloned().ok_or_else(|| error("rows that are not rounded yet"))?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let bytes = self.in_rows(&bytes)?;
        let bytes = bytes.reshaped(&shape).ok_or_else(|| error("dense rows that cannot be reshaped"))?;
        self.rows.insert(result, Rows { bytes, chosen });
        Ok(())
    }

    /// Bytes in row-major order.
    fn in_rows(&mut self, bytes: &View) -> Result<View, Error> {
        self.reordered(bytes, &(0..bytes.shape.len()).collect::<Vec<_>>())
    }

    /// The numbers that rows stand for, for whoever does not take bytes.
    pub(super) fn numbers_of_rows(&mut self, rows: &Rows) -> Result<View, Error> {
        let bytes = self.in_rows(&rows.bytes)?;
        let (last, outer) = bytes.shape.split_last().ok_or_else(|| error("rows without elements"))?;
        let matrix = [Expr::product(outer), last.clone()];
        let y = self.plan.dense(bytes.shape.clone())?;
        let zeros = rows.chosen.sliced(0, &Expr::Int(1), &Expr::Int(1));
        let column = [rows.chosen.shape[1].clone(), Expr::Int(1)];
        let operands = vec![
            self.plan.window(&bytes, &matrix)?,
            self.plan.window(&rows.chosen, &column)?,
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

    /// The rows that a product multiplies.
    pub(super) fn rounded_rows(&self, value: ValueId) -> Result<Rows, Error> {
        self.rows.get(&value).cloned().ok_or_else(|| error("rows that are not rounded"))
    }

    /// A product of rows that have scales of their own.
    pub(super) fn rows_linear(
        &mut self,
        id: NodeId,
        a: ValueId,
        constant: &Constant,
        product: IntegerProduct,
    ) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let Rows { bytes, chosen } = self.rounded_rows(a)?;
        let bytes = self.in_rows(&bytes)?;
        let sizes = constant.sizes()?;
        let [k, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
        let too_large = || error("weights beyond all memory");
        let integers = Integers::of(constant)?;
        let (b, kind) = if let IntegerProduct::Groups { is_four_bits } = product {
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
            let format = GroupwiseFormat { is_four_bits, has_zeros, has_half_scales };
            let epilogue = self.groups_tail(id, &chosen, &sums)?;
            (b, MatmulKind::Groupwise { format, epilogue })
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
            (b, MatmulKind::Int8 { epilogue: self.rows_tail(id, &chosen, &sums, scales)? })
        };
        let result = self.result_of_tail(id)?;
        let y = self.plan.dense(self.graph.tensor(result)?.shape.clone())?;
        let matrix = call.shape(call.result()?)?.to_vec();
        let a = self.plan.tensor(&bytes)?;
        let step = Matmul { a, b, y: self.plan.window(&y, &matrix)?, kind };
        self.plan.step(self.label(&call), Step::Matmul(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// The epilogue of an int8 GEMM or convolution whose left side was dynamically quantized; `sums` are those of the
    /// columns.
    pub(super) fn rows_tail(
        &mut self,
        id: NodeId,
        chosen: &View,
        sums: &[f32],
        scales: TensorId,
    ) -> Result<Int8Epilogue, Error> {
        let GroupwiseEpilogue { qparams, sums, bias, activation } = self.groups_tail(id, chosen, sums)?;
        Ok(Int8Epilogue::Dynamic { qparams, sums, scales, bias, activation })
    }

    /// The same of weights with a scale for each group.
    fn groups_tail(&mut self, id: NodeId, chosen: &View, sums: &[f32]) -> Result<GroupwiseEpilogue, Error> {
        let call = Call::new(self.graph, id);
        let activation = self.fusion.tails.get(&id).map(|tail| tail.activation).unwrap_or_default();
        let sums = self.plan.vector("sums", sums)?;
        let qparams = self.plan.tensor(chosen)?;
        let bias = match call.optional(if call.name() == "aten::addmm" { "self" } else { "bias" }) {
            Some(bias) => {
                let bias = self.dense(bias)?;
                Some(self.plan.tensor(&bias)?)
            }
            None => None,
        };
        Ok(GroupwiseEpilogue { qparams, sums, bias, activation })
    }
}

/// Whether a number is one of 16 bits but for its last eleventh of precision: none that is nearly zero or too large.
fn fits_half(scale: f32) -> bool {
    (f16::MIN_POSITIVE.to_f32()..=f16::MAX.to_f32()).contains(&scale)
}
