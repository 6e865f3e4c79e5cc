//! Attention.

use rushlight_format::ScalarType;

use crate::codec::{structure, union};
use crate::tensors::Tensors;
use crate::work::product;
use crate::{PayloadError, PayloadFault, Size, Sizes, StepKind, TensorId, Work};

/// `softmax(q k' * scale + mask) v`, with `q` of `[batch, heads, M, D]`, `k` and `v` of `[batch, groups, N, D]`, and
/// `y` as `q`. Each has its own strides, so that heads need not be outermost in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub q: TensorId,
    pub k: TensorId,
    pub v: TensorId,
    /// Added to the scores, `[batch or 1, heads or 1, M or 1, N]`.
    pub mask: Option<TensorId>,
    pub format: KeyValueFormat,
    pub y: TensorId,
    pub batch: Size,
    pub heads: Size,
    pub groups: Size,
    /// `M`.
    pub rows: Size,
    /// `N`.
    pub keys: Size,
    /// `D` of queries and keys.
    pub depth: Size,
    /// `D` of values and results.
    pub value_depth: Size,
    pub scale: f32,
    /// The position of the first query among the keys, if each query reads only the keys up to its own position.
    pub causal: Option<Size>,
    /// Strides of batches, heads and rows, for `q`, `k`, `v` and `y`.
    pub strides: [[Size; 3]; 4],
}

/// The element format of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyValueFormat {
    /// f32, f16 or bf16, the same for both.
    #[default]
    Floats,
    /// u8, quantized by rows, with the parameters of keys and of values.
    Int8([RowQparams; 2]),
    /// Two 4-bit integers per byte. Strides count integers. A row has a scale and a zero point for each group, as in
    /// [`NibbleRows`](rushlight_engine::NibbleRows).
    Int4([RowQparams; 2]),
}

/// Scales (f32) and zero points (u8) for each row of a u8 tensor: a byte stands for `(byte - zero) * scale`. A row of
/// size `D` that begins at element `n` of the tensor has element `n / D` of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowQparams {
    pub scales: TensorId,
    pub zeros: TensorId,
}

structure! {
    Attention {
        q, k, v, mask, format, y, batch, heads, groups, rows, keys, depth, value_depth, scale, causal, strides
    }
    RowQparams { scales, zeros }
}

union! { KeyValueFormat { 0 Floats, 1 Int8(qparams), 2 Int4(qparams) } }

impl KeyValueFormat {
    /// Scales and zero points of keys and of values, if they are quantized.
    pub const fn qparams(self) -> Option<[RowQparams; 2]> {
        match self {
            Self::Floats => None,
            Self::Int8(qparams) | Self::Int4(qparams) => Some(qparams),
        }
    }
}

impl StepKind for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.q, self.k, self.v].into_iter().chain(self.mask).for_each(&mut *visit);
        for RowQparams { scales, zeros } in self.format.qparams().into_iter().flatten() {
            visit(scales);
            visit(zeros);
        }
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        self.check_types(tensors)?;
        let sizes = [self.batch, self.heads, self.groups, self.rows, self.keys, self.depth, self.value_depth];
        let mut all = sizes.into_iter().chain(self.causal).chain(self.strides.into_iter().flatten());
        all.try_for_each(|size| tensors.check_size(size))
    }

    /// Keys and values may be of 16 bits, both alike.
    fn check_halves(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        [Some(self.q), self.mask, Some(self.y)].into_iter().flatten().try_for_each(|id| tensors.no_half(id))?;
        let of = |id: TensorId| tensors.half(id).unwrap_or(ScalarType::Float);
        let (expected, got) = (of(self.k), of(self.v));
        if expected == got { Ok(()) } else { Err(PayloadError::new(PayloadFault::Dtype { expected, got })) }
    }

    /// `queries keys (depth + value_depth)` operations. The limit is `queries (k + v + mask)`: keys do not overlap.
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        let Self { k, v, mask, format, batch, heads, rows, keys, depth, value_depth, .. } = *self;
        let number = |size: Size| u128::from(sizes.size(size));
        let queries = product([batch, heads, rows].map(|size| sizes.size(size)));
        let widths = number(depth).saturating_add(number(value_depth));
        // A byte may have two integers.
        let each = if matches!(format, KeyValueFormat::Int4(_)) { 2 } else { 1 };
        let held = [k, v].map(|tensor| sizes.elements(tensor).saturating_mul(each));
        let held = held.into_iter().chain(mask.map(|mask| sizes.elements(mask)));
        Some(Work {
            operations: queries.saturating_mul(number(keys)).saturating_mul(widths),
            limit: queries.saturating_mul(held.fold(0, u128::saturating_add)),
        })
    }

    fn is_work_fixed(&self) -> bool {
        let Self { batch, heads, rows, keys, depth, value_depth, .. } = self;
        [batch, heads, rows, keys, depth, value_depth].into_iter().all(|size| size.fixed().is_some())
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        let Self { batch, heads, rows, keys, depth, value_depth, .. } = *self;
        let scores: f64 = [batch, heads, rows, keys].into_iter().map(|size| sizes.size(size) as f64).product();
        2.0 * scores * (sizes.size(depth) as f64 + sizes.size(value_depth) as f64)
    }
}

impl Attention {
    /// Checks that keys and values are quantized if they have scales, and that nothing else is.
    fn check_types(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let Self { q, k, v, mask, format, y, .. } = *self;
        let qparams = format.qparams();
        let is_quantized = qparams.is_some();
        let qparams = qparams.into_iter().flatten();
        let floats = [Some(q), Some(y), mask].into_iter().flatten().chain(qparams.clone().map(|rows| rows.scales));
        let bytes = qparams.map(|rows| rows.zeros);
        floats.into_iter().try_for_each(|tensor| tensors.quantized(tensor, false))?;
        bytes.into_iter().try_for_each(|tensor| tensors.quantized(tensor, true))?;
        [k, v].into_iter().try_for_each(|tensor| tensors.quantized(tensor, is_quantized))
    }
}

#[cfg(test)]
impl crate::examples::Examples for Attention {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        let step = |format, mask, causal| {
            let size = Size::Fixed;
            Attention {
                q: 1,
                k: 2,
                v: 3,
                mask,
                format,
                y: 4,
                batch: size(5),
                heads: size(6),
                groups: size(7),
                rows: size(8),
                keys: Size::Computed(9),
                depth: size(10),
                value_depth: size(11),
                scale: 0.5,
                causal,
                strides: [[size(12), size(13), size(14)], [size(15); 3], [size(16); 3], [size(17); 3]],
            }
        };
        let rows = [RowQparams { scales: 18, zeros: 19 }, RowQparams { scales: 20, zeros: 21 }];
        [
            (
                step(KeyValueFormat::Floats, Some(22), None),
                "090102030116000400050006000700080109000a000b0000003f00000c000d000e000f000f000f001000100010001100\
             110011",
            ),
            (
                step(KeyValueFormat::Int8(rows), None, Some(Size::Computed(23))),
                "090102030001121314150400050006000700080109000a000b0000003f010117000c000d000e000f000f000f00100010\
             0010001100110011",
            ),
            (
                step(KeyValueFormat::Int4(rows), None, None),
                "090102030002121314150400050006000700080109000a000b0000003f00000c000d000e000f000f000f001000100010\
             001100110011",
            ),
        ]
    }
}
