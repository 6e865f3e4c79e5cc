//! Matrix multiplications.

use rushlight_cpu_payload::{
    CpuProgram, Epilogue, GroupwiseEpilogue, GroupwiseFormat, Int8Epilogue, Matmul, MatmulKind, Size,
};
use rushlight_engine::{Engine, Gemm, Weights};
use rushlight_runtime::Result;

use super::RunStep;
use crate::bf16_choice::{BF16, Choice};
use crate::epilogue;
use crate::error::Unfit;
use crate::memory::{Reader, StepContext, done};
use crate::shapes::product;

impl RunStep for Matmul {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        match &self.kind {
            MatmulKind::Dense { transposed, epilogue } => dense(self, *transposed, epilogue, engine, cx),
            MatmulKind::Packed { format, epilogue } => {
                gemm(self, epilogue, engine, cx, |reader, _, _| reader.weights(self.b, *format))
            }
            MatmulKind::WeightOnly { format, epilogue } => gemm(self, epilogue, engine, cx, |reader, k, n| {
                reader.quantized_weights(self.b, &format.matrix(k, n)).map(Weights::Quantized)
            }),
            MatmulKind::Int8 { epilogue } => int8(self, epilogue, engine, cx),
            MatmulKind::Groupwise { format, epilogue } => groupwise(self, *format, epilogue, engine, cx),
        }
    }

    /// Weight-only quantized weights are unpacked, as the kernel of this machine needs it.
    fn scratch(&self, program: &CpuProgram, engine: &Engine) -> usize {
        let MatmulKind::WeightOnly { format, .. } = self.kind else { return 0 };
        let dims = program.tensors.get(self.a as usize).map_or(&[][..], |tensor| &tensor.dims);
        // K is fixed: it is a size of the weights.
        let Some(&Size::Fixed(k)) = dims.last() else { return 0 };
        rushlight_engine::gemm_scratch(engine, &format.matrix(usize::try_from(k).unwrap_or(0), 0))
    }

    fn shared_gemm(&self) -> Option<&Matmul> {
        let is_shared = match self.kind {
            MatmulKind::Packed { .. } | MatmulKind::WeightOnly { .. } | MatmulKind::Groupwise { .. } => true,
            MatmulKind::Int8 { epilogue } => matches!(epilogue, Int8Epilogue::Dynamic { .. }),
            MatmulKind::Dense { .. } => false,
        };
        is_shared.then_some(self)
    }

    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        match &self.kind {
            MatmulKind::Packed { format: BF16, epilogue } => {
                choice.gemm(self.a, self.y, epilogue, 1, choice.last(self.a))
            }
            _ => choice.refuse_all(self),
        }
    }
}

/// Returns rows, columns and K of a matrix product whose result has `elements` elements.
fn shape(step: &Matmul, reader: &Reader<'_, '_, '_, '_>, elements: usize) -> [usize; 3] {
    let k = reader.dims(step.a).last().copied().unwrap_or(1);
    let n = reader.dims(step.y).last().copied().unwrap_or(1);
    [elements.checked_div(n).unwrap_or(0), n, k]
}

/// A GEMM of floats with packed weights, which `weights` finds by K and N.
fn gemm(
    step: &Matmul,
    epilogue: &Epilogue,
    engine: &Engine,
    cx: &mut StepContext<'_, '_, '_, '_>,
    weights: impl for<'s> Fn(&Reader<'s, '_, '_, '_>, usize, usize) -> Result<Weights<'s>>,
) -> Result<()> {
    let (y, reader, scratch) = cx.split_float_slice(step.y)?;
    let [m, n, k] = shape(step, &reader, y.len());
    let epilogue = epilogue::float(epilogue, n, &reader)?;
    let (a, b) = (reader.float_slice(step.a)?, weights(&reader, k, n)?);
    done(rushlight_engine::gemm_with_scratch(engine, &Gemm::new(m, n, k), a, b, y, &epilogue, scratch))
}

fn int8(step: &Matmul, epilogue: &Int8Epilogue, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let elements = cx.shapes.span(step.y).1;
    let (y, reader, _) = cx.split_quant_out(step.y)?;
    let [m, n, k] = shape(step, &reader, elements);
    let epilogue = epilogue::int8(epilogue, n, &reader)?;
    let (a, b) = (reader.quantized(step.a)?, reader.int8_weights(step.b)?);
    done(rushlight_engine::gemm_u8(engine, &Gemm::new(m, n, k), a, b, y, &epilogue))
}

fn groupwise(
    step: &Matmul,
    format: GroupwiseFormat,
    epilogue: &GroupwiseEpilogue,
    engine: &Engine,
    cx: &mut StepContext<'_, '_, '_, '_>,
) -> Result<()> {
    let (y, reader) = cx.split(step.y)?;
    let [m, n, k] = shape(step, &reader, y.len());
    let epilogue = epilogue::groupwise(epilogue, &reader)?;
    let (a, b) = (reader.quantized(step.a)?, reader.packed_bytes(step.b)?);
    done(rushlight_engine::gemm_u8_groupwise(engine, m, a, (format.matrix(k, n), b), y, &epilogue))
}

/// Batched GEMM with a right side that is computed: it is packed first.
fn dense(
    step: &Matmul,
    transposed: bool,
    epilogue: &Epilogue,
    engine: &Engine,
    cx: &mut StepContext<'_, '_, '_, '_>,
) -> Result<()> {
    let (y, reader, scratch) = cx.split_with_scratch(step.y)?;
    let (a_dims, b_dims, y_dims) = (reader.dims(step.a), reader.dims(step.b), reader.dims(step.y));
    let ([.., m, k], [.., n]) = (a_dims, y_dims) else {
        return Err(Unfit::Rank { expected: "at least 2", got: a_dims.len() }.into());
    };
    let (m, k, n) = (*m, *k, *n);
    let (a, b) = (reader.floats(step.a)?, reader.floats(step.b)?);
    let own = |dims: &'_ [usize]| product(dims.get(..dims.len().saturating_sub(2)));
    let (batches, of_a, of_b) = (own(y_dims)?, own(a_dims)?, own(b_dims)?);
    for (what, got, others) in [("batches of the left side", of_a, None), ("batches of the right side", of_b, Some(1))]
    {
        if got != batches && Some(got) != others {
            return Err(Unfit::Count { what, expected: batches, got }.into());
        }
    }
    let mut matmul = rushlight_engine::Matmul::new(batches, m, n, k, transposed);
    if of_b == 1 {
        matmul.b_batch = [0, 0];
    }
    let epilogue = epilogue::float(epilogue, n, &reader)?;
    done(rushlight_engine::matmul(engine, &matmul, a, b, y, &epilogue, scratch))
}
