//! Mixtures of experts: the largest scores of each row, others at their positions, and GEMMs with the matrices of those experts.

use rushlight_cpu_payload::{
    Activation, Epilogue, Experts as ExpertsStep, GatherElements as GatherElementsStep, Matmul, MatmulKind, Step,
    TopK as TopKStep,
};
use rushlight_engine::pack;

use rushlight_graph::{Call, Error, Expr, NodeId};

use crate::error::error;
use crate::select::{Experts, GatherElements, GemmWeights, Int8, TopK};
use crate::view::View;
use crate::weights::constants;

use super::Lowering;

impl<'a> Lowering<'a> {
    pub(super) fn experts(&mut self, id: NodeId, experts: &'a Experts) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let Experts { gemm, index, count } = experts;
        let of = |id| &self.model.constants[id];
        let (a, b, kind) = match &gemm.weights {
            GemmWeights::Int8(id, Int8::DynamicGroupwise { is_four_bits }) => {
                self.dynamic_gemm_parts(gemm, of(*id), Some(*is_four_bits), Activation::default())?
            }
            GemmWeights::Int8(id, _) => self.dynamic_gemm_parts(gemm, of(*id), None, Activation::default())?,
            GemmWeights::WeightOnly(id, weights) => {
                let a = self.dense(gemm.a)?;
                let b = self.weight_only(&of(*id).name, weights)?;
                let kind = MatmulKind::WeightOnly { format: weights.format(), epilogue: Epilogue::default() };
                (self.plan.tensor(&a)?, b, kind)
            }
            GemmWeights::Float(id) => {
                let (a, constant) = (self.dense(gemm.a)?, of(*id));
                let sizes = constant.sizes()?;
                let [k, n] = sizes[..] else { return Err(error(format!("`{}` is no matrix", constant.name))) };
                let len = pack::matrix_f32_len(k, n).ok_or_else(|| error("weights beyond all memory"))?;
                let b = self.plan.weights(&constant.name, len, move |to| constants::matrix(constant, [k, n], to))?;
                let kind = MatmulKind::Packed { format: self.plan.float_format(), epilogue: Epilogue::default() };
                (self.plan.tensor(&a)?, b, kind)
            }
            GemmWeights::Computed(_) => return Err(error("experts whose weights are computed")),
        };
        if self.plan.is_rounded(b) {
            self.rounded.insert(id);
        }
        let index = self.dense(*index)?;
        let result = call.result()?;
        let y = self.plan.dense(self.graph.tensor(result)?.shape.clone())?;
        let matmul = Matmul { a, b, y: self.plan.tensor(&y)?, kind };
        let step = ExpertsStep { matmul, index: self.plan.tensor(&index)?, count: *count };
        self.plan.step(self.label(&call), Step::Experts(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// The largest elements: values, then indices.
    pub(super) fn top_k(&mut self, call: &Call<'_>, top: TopK) -> Result<(), Error> {
        let [values, indices] = call.node.results[..] else {
            return Err(error("top-k without indices"));
        };
        let x = self.dense(top.input)?;
        let shape = self.graph.tensor(values)?.shape.clone();
        let (k, outer) = shape.split_last().ok_or_else(|| error("rows without elements"))?;
        let y = self.plan.dense(vec![Expr::Int(2), Expr::product(outer), k.clone()])?;
        let step = TopKStep { x: self.plan.tensor(&x)?, y: self.plan.tensor(&y)? };
        self.plan.step(self.label(call), Step::TopK(step));
        let behind = y.sliced(0, &Expr::Int(1), &Expr::Int(1)).offset;
        let of_values = View::dense(y.buffer, shape);
        self.views.insert(indices, View { offset: behind, ..of_values.clone() });
        self.views.insert(values, of_values);
        Ok(())
    }

    pub(super) fn gather_elements(&mut self, call: &Call<'_>, gather: GatherElements) -> Result<(), Error> {
        let (x, index) = (self.dense(gather.input)?, self.dense(gather.index)?);
        let result = call.result()?;
        let y = self.plan.dense(self.graph.tensor(result)?.shape.clone())?;
        let step =
            GatherElementsStep { x: self.plan.tensor(&x)?, index: self.plan.tensor(&index)?, y: self.plan.tensor(&y)? };
        self.plan.step(self.label(call), Step::GatherElements(step));
        self.views.insert(result, y);
        Ok(())
    }
}
