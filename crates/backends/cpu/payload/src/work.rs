//! Bounds on the operations of steps.
//!
//! Sizes, strides and kernels are numbers in a payload: nothing says that there are elements behind them. So each step has a
//! bound on its operations in proportion to the elements of its tensors; [`Step::work`] computes both. They are compared when
//! a payload is parsed, if its sizes are fixed, and again whenever dynamic sizes change.

use rushlight_engine::ResizeMode;

use super::{
    Attention, Convolution, ConvolutionKind, Copy, CpuProgram, DeltaRule, Experts, KeyValueFormat, MAX_TOP_K, Matmul,
    Pooling, Scatter, Size, Step, TensorId,
};

/// The operations of one call of a step, and their limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Multiplications, comparisons, elements that are moved: an upper bound that saturates.
    pub operations: u128,
    /// The limit that follows from the elements of the step's tensors and from its length in the payload.
    pub limit: u128,
}

impl Work {
    pub fn is_bounded(&self) -> bool {
        self.operations <= self.limit
    }

    /// The operations and the limit, for messages.
    pub fn saturated(&self) -> [u64; 2] {
        [self.operations, self.limit].map(|number| u64::try_from(number).unwrap_or(u64::MAX))
    }

    /// Work that is in proportion to elements by its definition.
    fn of(operations: u128) -> Self {
        Self { operations, limit: operations }
    }
}

/// The sizes of a program's tensors.
pub trait Sizes {
    /// The rank of a tensor.
    fn rank(&self, tensor: TensorId) -> usize;

    /// The size of one dimension of a tensor; 0 for a dimension that it does not have.
    fn dim(&self, tensor: TensorId, index: usize) -> u64;

    /// A size that is fixed or computed.
    fn size(&self, size: Size) -> u64;

    /// The number of elements of a tensor; saturates.
    fn elements(&self, tensor: TensorId) -> u128 {
        product((0..self.rank(tensor)).map(|index| self.dim(tensor, index)))
    }

    /// The size of a tensor's innermost dimension; 1 without dimensions.
    fn last(&self, tensor: TensorId) -> u128 {
        self.rank(tensor).checked_sub(1).map_or(1, |index| self.dim(tensor, index).into())
    }
}

/// The product of sizes: 0 if one is, and otherwise at most the largest number.
fn product(sizes: impl IntoIterator<Item = u64>) -> u128 {
    let all = sizes.into_iter().try_fold(1u128, |all, size| match size {
        0 => Err(()),
        size => Ok(all.saturating_mul(size.into())),
    });
    all.unwrap_or(0)
}

impl Step {
    /// Computes the work of a call with these sizes.
    ///
    /// | step | operations | limit |
    /// | --- | --- | --- |
    /// | matmul | y K | y a: a row of `a` has K elements |
    /// | convolution | y max(1, taps C/groups) | y max(1, w): the weights have a row for each tap and channel |
    /// | transposed int8 convolution | the same, and the phases | the same, and the offsets, one of each phase |
    /// | elementwise | y instructions | those in the payload |
    /// | pooling | y times the taps inside of the input | y x |
    /// | experts | as a matmul | as a matmul |
    /// | top k | x k | (x + y) 128 |
    /// | attention | queries keys (depth + value depth) | queries (k + v + mask): keys do not overlap |
    /// | delta rule | (q + k) V | (q + k) y: a result has V elements |
    /// | copy | elements that are moved, and filled | y, twice if it is filled |
    /// | scatter | elements that are moved | x: slices do not overlap |
    /// | others | x and y, some times each | |
    pub fn work(&self, sizes: &dyn Sizes) -> Work {
        let elements = |tensor: TensorId| sizes.elements(tensor);
        let y = elements(self.output());
        match self {
            Self::Matmul(Matmul { a, .. }) => {
                Work { operations: y.saturating_mul(sizes.last(*a)), limit: y.saturating_mul(elements(*a)) }
            }
            Self::Experts(Experts { matmul: Matmul { a, .. }, .. }) => {
                Work { operations: y.saturating_mul(sizes.last(*a)), limit: y.saturating_mul(elements(*a)) }
            }
            Self::TopK { x, .. } => {
                let k = sizes.last(self.output());
                let limit = elements(*x).saturating_add(y).saturating_mul(MAX_TOP_K.into());
                Work { operations: elements(*x).saturating_mul(k), limit }
            }
            Self::Convolution(step) => convolution(step, y, sizes),
            Self::Elementwise(step) => Work::of(y.saturating_mul(step.instructions.len() as u128)),
            Self::Pooling(Pooling { x, kernel, .. }) => {
                let [height, width] = kernel.map(u64::from);
                let inside = [height.min(sizes.dim(*x, 1)), width.min(sizes.dim(*x, 2))];
                Work { operations: y.saturating_mul(product(inside)), limit: y.saturating_mul(elements(*x)) }
            }
            Self::Copy(Copy { sizes: list, fill, .. }) => {
                let filled = if fill.is_some() { y } else { 0 };
                let moved = product(list.iter().map(|size| sizes.size(*size)));
                Work { operations: moved.saturating_add(filled), limit: y.saturating_add(filled) }
            }
            // As many slices as there are indices, each of which `y` has room for.
            Self::Scatter(Scatter { x, indices, sizes: list, .. }) => {
                let moved = product(list.iter().map(|size| sizes.size(*size))).saturating_mul(elements(*indices));
                Work { operations: moved, limit: elements(*x) }
            }
            Self::Attention(step) => attention(step, sizes),
            Self::DeltaRule(DeltaRule { q, k, v, .. }) => {
                let rows = elements(*q).saturating_add(elements(*k));
                Work { operations: rows.saturating_mul(sizes.last(*v)), limit: rows.saturating_mul(y) }
            }
            Self::Resize(step) => {
                let each = if step.mode == ResizeMode::Bilinear { 6 } else { 1 };
                Work::of(y.saturating_mul(each))
            }
            Self::Reduce(_)
            | Self::Softmax { .. }
            | Self::Normalization(_)
            | Self::Gather(_)
            | Self::GatherElements { .. }
            | Self::Convert(_)
            | Self::ChooseQparams(_)
            | Self::PackNibbles { .. }
            | Self::UnpackNibbles { .. }
            | Self::QuantizeRows(_) => {
                let mut all = y;
                self.for_each_input(&mut |tensor| all = all.saturating_add(elements(tensor)));
                Work::of(all)
            }
        }
    }
}

fn convolution(step: &Convolution, y: u128, sizes: &dyn Sizes) -> Work {
    let Convolution { x, w, kind, .. } = step;
    let (weights, channels) = (sizes.elements(*w), sizes.last(*x));
    // Windows of no channels have no taps to look at.
    let depth = kind.groups().map_or(1, |groups| channels / u128::from(groups.max(1)));
    let taps = if channels == 0 { 0 } else { product(kind.kernel().iter().map(|size| u64::from(*size))) };
    let window = taps.saturating_mul(depth);
    let (mut operations, mut limit) = (y.saturating_mul(window.max(1)), y.saturating_mul(weights.max(1)));
    if let ConvolutionKind::Int8Transposed { window, epilogue, .. } = kind {
        let phases = product(window.stride.map(u64::from));
        operations = operations.saturating_add(if y == 0 { 0 } else { phases });
        limit = limit.saturating_add(sizes.elements(epilogue.offsets()));
    }
    Work { operations, limit }
}

fn attention(step: &Attention, sizes: &dyn Sizes) -> Work {
    let Attention { k, v, mask, format, batch, heads, rows, keys, depth, value_depth, .. } = *step;
    let number = |size: Size| u128::from(sizes.size(size));
    let queries = product([batch, heads, rows].map(|size| sizes.size(size)));
    let widths = number(depth).saturating_add(number(value_depth));
    // A byte may have two integers.
    let each = if matches!(format, KeyValueFormat::Int4(_)) { 2 } else { 1 };
    let held = [k, v].map(|tensor| sizes.elements(tensor).saturating_mul(each));
    let held = held.into_iter().chain(mask.map(|mask| sizes.elements(mask)));
    Work {
        operations: queries.saturating_mul(number(keys)).saturating_mul(widths),
        limit: queries.saturating_mul(held.fold(0, u128::saturating_add)),
    }
}

/// The sizes of a program that are fixed.
pub(super) struct Fixed<'p>(pub(super) &'p CpuProgram);

impl Fixed<'_> {
    /// True if all sizes that a step's work depends on are fixed.
    pub(super) fn knows(&self, step: &Step) -> bool {
        let Self(program) = self;
        let is_fixed = |size: &Size| matches!(size, Size::Fixed(_));
        let of_tensor =
            |id: TensorId| program.tensors.get(id as usize).is_some_and(|tensor| tensor.dims.iter().all(is_fixed));
        let mut all = of_tensor(step.output());
        step.for_each_input(&mut |tensor| all &= of_tensor(tensor));
        all && match step {
            Step::Copy(step) => step.sizes.iter().all(is_fixed),
            Step::Scatter(step) => step.sizes.iter().all(is_fixed),
            Step::Attention(step) => {
                let Attention { batch, heads, rows, keys, depth, value_depth, .. } = step;
                [batch, heads, rows, keys, depth, value_depth].into_iter().all(is_fixed)
            }
            _ => true,
        }
    }
}

impl Sizes for Fixed<'_> {
    fn rank(&self, tensor: TensorId) -> usize {
        self.0.tensors.get(tensor as usize).map_or(0, |tensor| tensor.dims.len())
    }

    fn dim(&self, tensor: TensorId, index: usize) -> u64 {
        let dims = self.0.tensors.get(tensor as usize).map(|tensor| tensor.dims.as_slice());
        dims.and_then(|dims| dims.get(index)).map_or(0, |size| self.size(*size))
    }

    fn size(&self, size: Size) -> u64 {
        match size {
            Size::Fixed(size) => size,
            Size::Computed(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{
        Activation, ChooseQparams, ConvertedType, Direction, Elementwise, Epilogue, FloatFormat, Gather, Half,
        Instruction, Int8Epilogue, MatmulKind, Normalization, Operand, PoolKind, QuantizeRows, Reduce, Reduction,
        Resize, TableFormat, Unary, Window, ZeroPointRule,
    };

    /// Sizes of tensors by position; computed sizes are not asked for.
    struct Of<'a>(&'a [&'a [u64]]);

    impl Sizes for Of<'_> {
        fn rank(&self, tensor: TensorId) -> usize {
            self.0[tensor as usize].len()
        }

        fn dim(&self, tensor: TensorId, index: usize) -> u64 {
            self.0[tensor as usize].get(index).copied().unwrap_or(0)
        }

        fn size(&self, size: Size) -> u64 {
            Fixed(&CpuProgram::default()).size(size)
        }
    }

    fn work(step: &Step, tensors: &[&[u64]]) -> Work {
        step.work(&Of(tensors))
    }

    fn fixed<const N: usize>(sizes: [u64; N]) -> [Size; N] {
        sizes.map(Size::Fixed)
    }

    const F32: FloatFormat = FloatFormat::F32;

    fn window(kernel: [u32; 2]) -> Window<2> {
        Window { kernel, stride: [7, 9], padding: [[0; 2]; 2], dilation: [1; 2] }
    }

    fn convolution(kind: ConvolutionKind) -> Step {
        Step::Convolution(Convolution { x: 0, w: 1, y: 2, kind })
    }

    fn direct(kernel: [u32; 2], groups: u32) -> Step {
        let window = window(kernel);
        convolution(ConvolutionKind::Direct { window, groups, format: F32, epilogue: Epilogue::default() })
    }

    fn matmul() -> Step {
        let kind = MatmulKind::Packed { format: F32, epilogue: Epilogue::default() };
        Step::Matmul(Matmul { a: 0, b: 1, y: 2, kind })
    }

    fn attention(keys: u64, depth: u64) -> Step {
        let [batch, heads, groups, rows, value_depth] = fixed([2, 4, 2, 5, 16]);
        let [keys, depth] = fixed([keys, depth]);
        let strides = [fixed([0; 3]); 4];
        let (q, k, v, mask, y, scale, causal) = (0, 1, 2, None, 3, 1.0, None);
        Step::Attention(Attention {
            q,
            k,
            v,
            mask,
            format: KeyValueFormat::Floats,
            y,
            batch,
            heads,
            groups,
            rows,
            keys,
            depth,
            value_depth,
            scale,
            causal,
            strides,
        })
    }

    #[test]
    fn steps_of_models_are_bounded() {
        assert_eq!(work(&matmul(), &[&[3, 100], &[1600], &[3, 10]]), Work { operations: 30 * 100, limit: 30 * 300 });
        let grouped = work(&direct([3, 3], 2), &[&[1, 8, 8, 6], &[32 * 28], &[1, 6, 6, 4]]);
        assert_eq!(grouped, Work { operations: 144 * 27, limit: 144 * 32 * 28 });
        let transposed = convolution(ConvolutionKind::Transposed {
            window: window([2, 2]),
            output_padding: [0; 2],
            groups: 1,
            format: F32,
            epilogue: Epilogue::default(),
        });
        assert!(work(&transposed, &[&[1, 8, 8, 6], &[16 * 24], &[1, 51, 66, 4]]).is_bounded());
        assert!(work(&attention(100, 16), &[&[640], &[6400], &[6400], &[640]]).is_bounded());
        let rule = Step::DeltaRule(DeltaRule { q: 0, k: 1, v: 2, decay: 3, beta: 4, state: 5, y: 6 });
        let sizes: [&[u64]; 7] =
            [&[1, 3, 4, 8], &[1, 3, 2, 8], &[1, 3, 2, 16], &[1, 3, 2], &[1, 3, 2], &[1, 2, 8, 16], &[192 + 256]];
        assert_eq!(work(&rule, &sizes), Work { operations: (96 + 48) * 16, limit: (96 + 48) * 448 });
        let pool = Pooling {
            kind: PoolKind::Max,
            x: 0,
            y: 1,
            kernel: [u32::MAX; 2],
            stride: [1; 2],
            padding: [[0; 2]; 2],
            dilation: [1; 2],
        };
        let global = work(&Step::Pooling(pool), &[&[1, 7, 9, 4], &[1, 1, 1, 4]]);
        assert_eq!(global, Work { operations: 4 * 63, limit: 4 * 252 });
    }

    #[test]
    fn what_no_elements_stand_behind_is_not() {
        let copy = |size| {
            let (x_strides, y_strides) = (fixed([0]).to_vec(), fixed([0]).to_vec());
            let [x_offset, y_offset] = fixed([0, 0]);
            let sizes = fixed([size]).to_vec();
            Step::Copy(Copy { x: 0, y: 1, sizes, x_offset, x_strides, y_offset, y_strides, fill: None })
        };
        assert!(work(&copy(8), &[&[1], &[8]]).is_bounded());
        assert!(!work(&copy(9), &[&[1], &[8]]).is_bounded());
        assert!(!work(&copy(1 << 62), &[&[1], &[8]]).is_bounded());
        assert!(!work(&attention(1 << 50, 16), &[&[640], &[6400], &[6400], &[640]]).is_bounded());
        assert!(!work(&attention(1 << 50, 0), &[&[640], &[6400], &[6400], &[640]]).is_bounded());
        let rule = Step::DeltaRule(DeltaRule { q: 0, k: 0, v: 1, decay: 0, beta: 0, state: 0, y: 2 });
        assert!(!work(&rule, &[&[1, 3, 4, 8], &[1, 3, 0, 1 << 50], &[448]]).is_bounded());
        let large = direct([u32::MAX; 2], 1);
        assert!(!work(&large, &[&[1, 1, 1, 1], &[16], &[1, 1, 1, 1]]).is_bounded());
        // Without channels the kernel is not looked at.
        assert!(work(&large, &[&[1, 1, 1, 0], &[0], &[1, 1, 1, 1]]).is_bounded());
        let phases = convolution(ConvolutionKind::Int8Transposed {
            window: window([1, 1]),
            output_padding: [0; 2],
            groups: 1,
            epilogue: Int8Epilogue::Dynamic {
                qparams: 0,
                sums: 3,
                scales: 0,
                bias: None,
                activation: Activation::None,
            },
        });
        assert!(work(&phases, &[&[1, 1, 1, 1], &[64], &[1, 1, 1, 1], &[63]]).is_bounded());
        assert!(!work(&phases, &[&[1, 1, 1, 1], &[1], &[1, 1, 1, 1], &[1]]).is_bounded());
        assert!(!work(&matmul(), &[&[0, 1 << 60], &[1], &[1, 1]]).is_bounded());
    }

    #[test]
    fn other_steps_are_in_proportion_by_their_definition() {
        let instruction = Instruction::Unary { to: 0, function: Unary::Neg, x: Operand::Tensor(0) };
        let (op, mode, format) = (Reduction::Sum, ResizeMode::Nearest, TableFormat::F32);
        let (rule, range) = (ZeroPointRule::MinError, [0, 255]);
        let (weight, bias) = (None, None);
        let (element, direction) = (ConvertedType::Half(Half::F16), Direction::Enter);
        let steps = [
            Step::Elementwise(Elementwise { operands: vec![0], y: 1, instructions: vec![instruction; 3] }),
            Step::Reduce(Reduce { op, x: 0, y: 1, first: 0, count: 1 }),
            Step::Softmax { x: 0, y: 1, log: false },
            Step::Normalization(Normalization { x: 0, y: 1, weight, bias, dims: 1, eps: 0.0, centered: true }),
            Step::Gather(Gather { table: 0, format, indices: 0, y: 1 }),
            Step::GatherElements { x: 0, index: 0, y: 1 },
            Step::Resize(Resize { x: 0, y: 1, mode, align_corners: false, scales: [None; 2] }),
            Step::Convert(crate::Convert { x: 0, y: 1, element, direction }),
            Step::ChooseQparams(ChooseQparams { x: 0, y: 1, rule, per_tensor: false, range }),
            Step::QuantizeRows(QuantizeRows { x: 0, qparams: 0, y: 1, range }),
        ];
        for step in steps {
            for sizes in [[4u64, 5].as_slice(), &[0, 1 << 62, 4], &[1 << 62, 1 << 62]] {
                assert!(work(&step, &[sizes, sizes]).is_bounded(), "{}", step.name());
            }
        }
    }
}
