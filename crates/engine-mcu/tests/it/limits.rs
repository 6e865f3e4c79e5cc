//! Shapes that do not fit are refused before anything is written, and results beyond CMSIS-NN's range are defined.

use rushlight_engine_mcu::*;

const AXIS: Axis = Axis { kernel: 3, stride: 1, padding: 1, dilation: 1 };
const WINDOW: Window = Window { rows: AXIS, columns: AXIS };
const IMAGE: Image = Image { batch: 1, height: 2, width: 2, channels: 4 };
const HALF: Scale = Scale { multiplier: 1 << 30, shift: 0 };
const ANY: Output = Output { offset: 0, min: i8::MIN, max: i8::MAX };

fn conv() -> Conv2d<'static> {
    Conv2d {
        input: IMAGE,
        output: IMAGE,
        window: WINDOW,
        groups: 1,
        weight: &[1; 4 * 9 * 4],
        bias: None,
        scales: Scales::Tensor(HALF),
        input_offset: 0,
        epilogue: ANY,
    }
}

/// Runs a kernel that must refuse its arguments, and checks that it writes nothing.
fn refuses(len: usize, kernel: impl FnOnce(&mut [i8]) -> Result<(), Mismatch>) {
    let mut out = vec![77; len];
    assert_eq!(kernel(&mut out), Err(Mismatch));
    assert!(out.iter().all(|&x| x == 77));
}

#[test]
fn convolutions_refuse_what_does_not_fit() {
    let x = [1; 16];
    let mut out = [0; 16];
    conv2d(&conv(), &x, &mut out).unwrap();
    refuses(15, |out| conv2d(&conv(), &x, out));
    refuses(16, |out| conv2d(&conv(), &x[1..], out));
    for wrong in [
        Conv2d { weight: &[1; 143], ..conv() },
        Conv2d { groups: 0, ..conv() },
        Conv2d { groups: 3, ..conv() },
        Conv2d { groups: 2, ..conv() },
        Conv2d { bias: Some(&[1; 3]), ..conv() },
        Conv2d { scales: Scales::Channels { multipliers: &[1; 4], shifts: &[1; 3] }, ..conv() },
        Conv2d { window: Window { rows: Axis { stride: 0, ..AXIS }, ..WINDOW }, ..conv() },
        Conv2d { window: Window { rows: Axis { dilation: 0, ..AXIS }, ..WINDOW }, ..conv() },
        Conv2d { window: Window { rows: Axis { stride: usize::MAX, ..AXIS }, ..WINDOW }, ..conv() },
        Conv2d { window: Window { rows: Axis { padding: usize::MAX, ..AXIS }, ..WINDOW }, ..conv() },
        Conv2d { output: Image { batch: 2, ..IMAGE }, ..conv() },
    ] {
        refuses(16, |out| conv2d(&wrong, &x, out));
    }
    let Conv2d { input, output, window, bias, scales, input_offset, epilogue, .. } = conv();
    let weight = &[1; 35];
    refuses(16, |out| {
        let conv = Depthwise2d { input, output, window, weight, bias, scales, input_offset, epilogue };
        depthwise2d(&conv, &x, out)
    });
    refuses(16, |out| {
        let conv = ConvTranspose2d { input, output, window, weight, bias, scales, input_offset, epilogue };
        conv_transpose2d(&conv, &x, out)
    });
}

/// Shapes for which CMSIS-NN's function writes rows behind its output.
#[test]
fn transposed_convolutions_with_long_strides_stay_inside() {
    for (kernel, stride, padding) in [(3, 3, 1), (2, 2, 1), (1, 2, 0), (2, 3, 0)] {
        let axis = Axis { kernel, stride, padding, dilation: 1 };
        let (size, length) = (4, 3 * stride + kernel - 2 * padding);
        let conv = ConvTranspose2d {
            input: Image { batch: 1, height: size, width: size, channels: 1 },
            output: Image { batch: 1, height: length, width: length, channels: 1 },
            window: Window { rows: axis, columns: axis },
            weight: &[2; 9][..kernel * kernel],
            bias: Some(&[20]),
            scales: Scales::Tensor(HALF),
            input_offset: 1,
            epilogue: ANY,
        };
        let mut canaries = vec![77; length * length + 64];
        let out = &mut canaries[32..32 + length * length];
        conv_transpose2d(&conv, &[4; 16], out).unwrap();
        for (at, &got) in out.iter().enumerate() {
            // Kernels no longer than the stride do not overlap: an output has one input or none.
            let is_hit = |at: usize| (at + padding) % stride < kernel;
            let expected = if is_hit(at / length) && is_hit(at % length) { 15 } else { 10 };
            assert_eq!(got, expected, "{kernel} {stride} {padding} {at}");
        }
        assert!(canaries[..32].iter().chain(&canaries[32 + length * length..]).all(|&x| x == 77));
    }
}

#[test]
fn the_other_kernels_refuse_what_does_not_fit() {
    let layer = Linear {
        inner: 3,
        outputs: 2,
        weight: &[1; 6],
        bias: Some(&[1; 2]),
        scales: Scales::Tensor(HALF),
        input_offset: 0,
        weight_offset: 0,
        output: ANY,
    };
    refuses(4, |out| linear(&layer, &[1; 5], out));
    refuses(3, |out| linear(&layer, &[1; 6], out));
    refuses(4, |out| linear(&Linear { weight: &[1; 5], ..layer }, &[1; 6], out));
    refuses(4, |out| linear(&Linear { bias: Some(&[1]), ..layer }, &[1; 6], out));
    refuses(1, |out| linear(&Linear { outputs: 0, weight: &[], bias: None, ..layer }, &[], out));

    let pool = Pool2d { input: IMAGE, output: IMAGE, window: WINDOW, min: -128, max: 127 };
    refuses(16, |out| avg_pool2d(&pool, &[1; 15], out));
    // A window of padding alone has no average and no maximum.
    let outside = Axis { kernel: 1, ..AXIS };
    let outside = Pool2d { window: Window { rows: outside, columns: outside }, ..pool };
    refuses(16, |out| avg_pool2d(&outside, &[1; 16], out));
    refuses(16, |out| max_pool2d(&outside, &[1; 16], out));

    let rows = Softmax { row: 3, multiplier: 1 << 30, shift: 20, diff_min: -100 };
    refuses(4, |out| softmax(&rows, &[1; 4], out));
    refuses(6, |out| softmax(&Softmax { row: 0, ..rows }, &[1; 6], out));
    refuses(5, |out| look_up(&[1; 256], &[1; 6], out));
    refuses(6, |out| pad([1, 1, 2, 3], [0; 4], [0, 0, 0, 1], 0, &[1; 6], out));
    refuses(6, |out| pad([1, 1, 2, 3], [usize::MAX; 4], [1; 4], 0, &[1; 6], out));
    refuses(6, |out| transpose([1, 1, 2, 3], [0, 1, 2, 2], &[1; 6], out));
    refuses(6, |out| transpose([1, 1, 2, 2], [0, 1, 2, 3], &[1; 6], out));
}

#[test]
fn empty_tensors_are_no_errors() {
    let none = Image { batch: 0, ..IMAGE };
    conv2d(&Conv2d { input: none, output: none, ..conv() }, &[], &mut []).unwrap();
    avg_pool2d(&Pool2d { input: none, output: none, window: WINDOW, min: 0, max: 0 }, &[], &mut []).unwrap();
    softmax(&Softmax { row: 0, multiplier: 0, shift: 0, diff_min: 0 }, &[], &mut []).unwrap();
    transpose([0, 1, 2, 3], [3, 2, 1, 0], &[], &mut []).unwrap();
    pad([0, 1, 1, 1], [0; 4], [0; 4], 0, &[], &mut []).unwrap();
}

#[test]
fn long_rows_of_equal_values_have_a_softmax() {
    for (row, expected) in [(2, 0), (256, -127), (511, -127), (512, -128), (10_000, -128)] {
        let mut out = vec![0; row];
        let x = vec![5; row];
        softmax(&Softmax { row, multiplier: 1717986918, shift: 23, diff_min: -248 }, &x, &mut out).unwrap();
        assert!(out.iter().all(|&y| y == expected), "{row}: {}", out[0]);
    }
}
