//! Matrix multiplications.

use rushlight_engine::pack;
use rushlight_format::ScalarType;

use crate::codec::{structure, union};
use crate::tensors::{Tensors, elements};
use crate::{
    Epilogue, FloatFormat, GroupwiseEpilogue, GroupwiseFormat, Int8Epilogue, PayloadError, QuantizedFormat, Sizes,
    StepKind, TensorId, Work,
};

/// `y = epilogue(a b)`. The rows of `a` are all its dimensions but the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matmul {
    pub a: TensorId,
    pub b: TensorId,
    pub y: TensorId,
    pub kind: MatmulKind,
}

/// The right side of a [`Matmul`], and with it the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatmulKind {
    /// f32 matrices that are computed: `a` is `[batch…, M, K]`, `b` is `[batch…, K, N]`, or `[batch…, N, K]` if transposed,
    /// with as many batches or one.
    Dense { transposed: bool, epilogue: Epilogue },
    /// One matrix `[K, N]` in panels of floats.
    Packed { format: FloatFormat, epilogue: Epilogue },
    /// One matrix `[K, N]` of weight-only quantized integers.
    WeightOnly { format: QuantizedFormat, epilogue: Epilogue },
    /// u8 x i8: one matrix `[K, N]` in panels of i8, with the left side quantized.
    Int8 { epilogue: Int8Epilogue },
    /// u8 x i4 or u8 x i8 with a scale for each group of K. The left side is dynamically quantized, and the result is f32.
    Groupwise { format: GroupwiseFormat, epilogue: GroupwiseEpilogue },
}

structure! { Matmul { a, b, y, kind } }

union! {
    MatmulKind {
        0 Dense { transposed, epilogue }, 1 Packed { format, epilogue }, 2 WeightOnly { format, epilogue },
        3 Int8 { epilogue }, 4 Groupwise { format, epilogue }
    }
}

impl StepKind for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        let Self { a, b, kind, .. } = self;
        visit(*a);
        visit(*b);
        match kind {
            MatmulKind::Dense { epilogue, .. }
            | MatmulKind::Packed { epilogue, .. }
            | MatmulKind::WeightOnly { epilogue, .. } => epilogue.for_each_input(visit),
            MatmulKind::Int8 { epilogue } => epilogue.for_each_input(visit),
            MatmulKind::Groupwise { epilogue, .. } => epilogue.for_each_input(visit),
        }
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        self.check_with(tensors, 1)
    }

    /// `y K` operations. The limit is `y a`: a row of `a` has K elements.
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        let y = sizes.elements(self.y);
        Some(Work { operations: y.saturating_mul(sizes.last(self.a)), limit: y.saturating_mul(sizes.elements(self.a)) })
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        2.0 * sizes.elements(self.y) as f64 * sizes.last(self.a) as f64
    }
}

impl Matmul {
    /// Checks a GEMM; `experts` is the number of those whose columns `b` holds.
    pub(super) fn check_with(&self, tensors: &Tensors<'_>, experts: usize) -> Result<(), PayloadError> {
        let Self { a, b, y, kind } = *self;
        let all = |n: usize| n.saturating_mul(experts);
        let shape = tensors.last_size(a).zip(tensors.last_size(y).map(all));
        let inputs = |visit: &mut dyn FnMut(TensorId)| self.for_each_input(visit);
        match kind {
            MatmulKind::Dense { .. } => tensors.floats(inputs, &[], Some(y)),
            MatmulKind::Packed { format, .. } => {
                tensors.floats(inputs, &[], Some(y))?;
                tensors.weights(b, format.dtype(), shape.map(|(k, n)| elements(pack::matrix_f32_len(k, n))))
            }
            MatmulKind::WeightOnly { format, .. } => {
                tensors.floats(inputs, &[], Some(y))?;
                let len = shape.map(|(k, n)| elements(pack::quantized_len(&format.matrix(k, n))));
                tensors.weights(b, ScalarType::Byte, len)
            }
            MatmulKind::Int8 { epilogue } => {
                epilogue.check(tensors, inputs, a)?;
                tensors.weights(b, ScalarType::Char, shape.map(|(k, n)| elements(pack::matrix_i8_len(k, n))))
            }
            MatmulKind::Groupwise { format, .. } => {
                tensors.floats(inputs, &[a], Some(y))?;
                tensors.weights(b, ScalarType::Byte, shape.map(|(k, n)| elements(format.matrix(k, n).len())))
            }
        }
    }
}

#[cfg(test)]
impl crate::examples::Examples for Matmul {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        use rushlight_engine::Activation;

        use crate::examples::{AFTER, BEFORE, BF16, BIAS, DYNAMIC, QUANTIZED, STATIC};

        let step = |kind| Matmul { a: 1, b: 2, y: 3, kind };
        let format = GroupwiseFormat { is_four_bits: false, has_zeros: true, has_half_scales: false };
        let epilogue =
            GroupwiseEpilogue { qparams: 7, sums: 1, bias: BIAS, activation: Activation::Elu { alpha: 2.0 } };
        let clamp = Epilogue { activation: Activation::Clamp { min: -1.0, max: 6.0 }, ..Epilogue::default() };
        [
            (step(MatmulKind::Dense { transposed: true, epilogue: AFTER }), "0001020300010104010106020000003f"),
            (step(MatmulKind::Packed { format: BF16, epilogue: BEFORE }), "000102030101010104010005020000003f"),
            (
                step(MatmulKind::Packed { format: FloatFormat::F32, epilogue: clamp }),
                "000102030100000001000080bf0000c040",
            ),
            (
                step(MatmulKind::WeightOnly { format: QUANTIZED, epilogue: AFTER }),
                "0001020302010202ac020104010106020000003f",
            ),
            (step(MatmulKind::Int8 { epilogue: STATIC }), "0001020303000102010401020000003f808080f8030301fe010303"),
            (step(MatmulKind::Int8 { epilogue: DYNAMIC }), "0001020303010701020000"),
            (step(MatmulKind::Groupwise { format, epilogue }), "0001020304000100070101040a00000040"),
        ]
    }
}
