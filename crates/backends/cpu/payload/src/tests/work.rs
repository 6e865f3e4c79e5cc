//! Bounds on the work of steps.

use crate::{
    Activation, Attention, Convolution, ConvolutionKind, Copy, DeltaRule, Epilogue, FloatFormat, Int8Epilogue,
    KeyValueFormat, Matmul, MatmulKind, PoolKind, Pooling, Size, Sizes, StepKind, TensorId, Window, Work,
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
        size.fixed().unwrap_or(0)
    }
}

fn work(step: &dyn StepKind, tensors: &[&[u64]]) -> Work {
    step.work(&Of(tensors)).expect("a step whose work is bounded")
}

fn fixed<const N: usize>(sizes: [u64; N]) -> [Size; N] {
    sizes.map(Size::Fixed)
}

const F32: FloatFormat = FloatFormat::F32;

fn window(kernel: [u32; 2]) -> Window<2> {
    Window { kernel, stride: [7, 9], padding: [[0; 2]; 2], dilation: [1; 2] }
}

fn convolution(kind: ConvolutionKind) -> Convolution {
    Convolution { x: 0, w: 1, y: 2, kind }
}

fn direct(kernel: [u32; 2], groups: u32) -> Convolution {
    let window = window(kernel);
    convolution(ConvolutionKind::Direct { window, groups, format: F32, epilogue: Epilogue::default() })
}

fn matmul() -> Matmul {
    let kind = MatmulKind::Packed { format: F32, epilogue: Epilogue::default() };
    Matmul { a: 0, b: 1, y: 2, kind }
}

pub(super) fn attention(keys: u64, depth: u64) -> Attention {
    let [batch, heads, groups, rows, value_depth] = fixed([2, 4, 2, 5, 16]);
    let [keys, depth] = fixed([keys, depth]);
    let strides = [fixed([0; 3]); 4];
    let (q, k, v, mask, y, scale, causal) = (0, 1, 2, None, 3, 1.0, None);
    Attention {
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
    }
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
    let rule = DeltaRule { q: 0, k: 1, v: 2, decay: 3, beta: 4, state: 5, y: 6 };
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
    let global = work(&pool, &[&[1, 7, 9, 4], &[1, 1, 1, 4]]);
    assert_eq!(global, Work { operations: 4 * 63, limit: 4 * 252 });
}

#[test]
fn what_no_elements_stand_behind_is_not() {
    let copy = |size| {
        let (x_strides, y_strides) = (fixed([0]).to_vec(), fixed([0]).to_vec());
        let [x_offset, y_offset] = fixed([0, 0]);
        let sizes = fixed([size]).to_vec();
        Copy { x: 0, y: 1, sizes, x_offset, x_strides, y_offset, y_strides, fill: None }
    };
    assert!(work(&copy(8), &[&[1], &[8]]).is_bounded());
    assert!(!work(&copy(9), &[&[1], &[8]]).is_bounded());
    assert!(!work(&copy(1 << 62), &[&[1], &[8]]).is_bounded());
    assert!(!work(&attention(1 << 50, 16), &[&[640], &[6400], &[6400], &[640]]).is_bounded());
    assert!(!work(&attention(1 << 50, 0), &[&[640], &[6400], &[6400], &[640]]).is_bounded());
    let rule = DeltaRule { q: 0, k: 0, v: 1, decay: 0, beta: 0, state: 0, y: 2 };
    assert!(!work(&rule, &[&[1, 3, 4, 8], &[1, 3, 0, 1 << 50], &[448]]).is_bounded());
    let large = direct([u32::MAX; 2], 1);
    assert!(!work(&large, &[&[1, 1, 1, 1], &[16], &[1, 1, 1, 1]]).is_bounded());
    // Without channels the kernel is not looked at.
    assert!(work(&large, &[&[1, 1, 1, 0], &[0], &[1, 1, 1, 1]]).is_bounded());
    let phases = convolution(ConvolutionKind::Int8Transposed {
        window: window([1, 1]),
        output_padding: [0; 2],
        groups: 1,
        epilogue: Int8Epilogue::Dynamic { qparams: 0, sums: 3, scales: 0, bias: None, activation: Activation::None },
    });
    assert!(work(&phases, &[&[1, 1, 1, 1], &[64], &[1, 1, 1, 1], &[63]]).is_bounded());
    assert!(!work(&phases, &[&[1, 1, 1, 1], &[1], &[1, 1, 1, 1], &[1]]).is_bounded());
    assert!(!work(&matmul(), &[&[0, 1 << 60], &[1], &[1, 1]]).is_bounded());
}
