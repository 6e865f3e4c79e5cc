//! Every kernel against CMSIS-NN's: 2,000 calls with random shapes, parameters and data.
//!
//! A call is drawn from its number, and the recorded output is a hash; `tests/golden/README.md` says where they are from. The
//! same draws in another language made the records, so the order of the draws is part of the data.

use rushlight_engine_mcu::*;

/// Xorshift.
struct Rng(u32);

impl Rng {
    fn new(kernel: u32, case: u32) -> Self {
        let mut rng = Self(0x9E37_79B9u32.wrapping_mul(kernel * 65536 + case + 1));
        (0..8).for_each(|_| _ = rng.next());
        rng
    }

    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// An integer from `low` to `high`.
    fn range(&mut self, low: i32, high: i32) -> i32 {
        low + (self.next() % (high - low + 1) as u32) as i32
    }

    fn size(&mut self, low: usize, high: usize) -> usize {
        self.range(low as i32, high as i32) as usize
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.next().is_multiple_of(n)
    }

    fn bytes(&mut self, len: usize) -> Vec<i8> {
        (0..len).map(|_| (self.next() >> 24) as i8).collect()
    }

    fn multiplier(&mut self) -> i32 {
        match self.next() % 16 {
            0 => 1 << 30,
            1 => i32::MAX,
            2 => 0,
            _ => self.normalized(),
        }
    }

    fn normalized(&mut self) -> i32 {
        ((self.next() >> 2) | 1 << 30) as i32
    }

    fn shift(&mut self, low: i32, high: i32) -> i32 {
        if self.one_in(8) { self.range(-31, 1) } else { self.range(low, high) }
    }

    fn scale(&mut self, low: i32, high: i32) -> Scale {
        Scale { multiplier: self.multiplier(), shift: self.shift(low, high) }
    }

    fn output(&mut self) -> Output {
        let offset = self.range(-128, 127);
        let (min, max) = if self.one_in(3) {
            let (a, b) = (self.range(-128, 127) as i8, self.range(-128, 127) as i8);
            (a.min(b), a.max(b))
        } else {
            (i8::MIN, i8::MAX)
        };
        Output { offset, min, max }
    }

    fn channels(&mut self, len: usize) -> Channels {
        let mut channels = Channels::default();
        for _ in 0..len {
            let Scale { multiplier, shift } = self.scale(-12, -4);
            channels.multipliers.push(multiplier);
            channels.shifts.push(shift);
        }
        channels
    }

    fn bias(&mut self, len: usize, is_optional: bool) -> Option<Vec<i32>> {
        if is_optional && self.one_in(4) {
            return None;
        }
        Some((0..len).map(|_| self.next() as i32 >> 17).collect())
    }

    fn axis(&mut self, max: usize, is_dilated: bool) -> Along {
        let size = self.size(1, max);
        let (kernel, stride, padding) = (self.size(1, 4), self.size(1, 3), self.size(0, 2));
        let dilation = if is_dilated { self.size(1, 2) } else { 1 };
        let mut axis = Axis { kernel, stride, padding, dilation };
        if size + 2 * padding < dilation * (kernel - 1) + 1 {
            axis = Axis { kernel: 1, dilation: 1, ..axis };
        }
        Along { axis, size }
    }

    fn pool_axis(&mut self) -> Along {
        let (size, kernel, stride) = (self.size(1, 9), self.size(1, 5), self.size(1, 3));
        let padding = self.size(0, kernel / 2);
        let mut axis = Axis { kernel, stride, padding, dilation: 1 };
        if size + 2 * padding < kernel {
            axis = Axis { kernel: 1, padding: 0, ..axis };
        }
        Along { axis, size }
    }
}

#[derive(Default)]
struct Channels {
    multipliers: Vec<i32>,
    shifts: Vec<i32>,
}

impl Channels {
    fn scales(&self) -> Scales<'_> {
        Scales::Channels { multipliers: &self.multipliers, shifts: &self.shifts }
    }
}

/// A window over an axis of this many elements.
#[derive(Clone, Copy)]
struct Along {
    axis: Axis,
    size: usize,
}

impl Along {
    fn positions(&self) -> usize {
        let Axis { kernel, stride, padding, dilation } = self.axis;
        (self.size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1
    }
}

fn window(rows: Along, columns: Along) -> Window {
    Window { rows: rows.axis, columns: columns.axis }
}

fn images(batch: usize, rows: Along, columns: Along, from: usize, to: usize) -> (Image, Image) {
    (
        Image { batch, height: rows.size, width: columns.size, channels: from },
        Image { batch, height: rows.positions(), width: columns.positions(), channels: to },
    )
}

fn zeros(image: Image) -> Vec<i8> {
    vec![0; image.batch * image.height * image.width * image.channels]
}

fn hash(bytes: &[i8]) -> u32 {
    bytes.iter().fold(2166136261, |hash: u32, &byte| (hash ^ u32::from(byte as u8)).wrapping_mul(16777619))
}

/// Compares 2,000 calls with the records.
fn check(kernel: u32, records: &[u8], call: impl Fn(&mut Rng) -> Vec<i8>) {
    let (records, rest) = records.as_chunks::<4>();
    assert_eq!((records.len(), rest.len()), (2000, 0));
    let differs = |case: &u32| {
        let out = call(&mut Rng::new(kernel, *case));
        hash(&out) != u32::from_le_bytes(records[*case as usize])
    };
    // Miri needs a second for a few calls.
    let cases = if cfg!(miri) { 40 } else { 2000 };
    let wrong: Vec<u32> = (0..cases).filter(differs).collect();
    assert!(wrong.is_empty(), "{} calls differ: {:?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}

#[test]
fn conv2d_equals_cmsis_nn() {
    check(1, include_bytes!("../golden/conv2d.bin"), |rng| {
        let batch = rng.size(1, 2);
        let form = rng.next() % 4;
        let mut rows = rng.axis(7, form > 1);
        let mut columns = rng.axis(if form == 1 { 12 } else { 7 }, form > 1);
        if form == 0 {
            for along in [&mut rows, &mut columns] {
                along.axis = Axis { kernel: 1, padding: 0, ..along.axis };
            }
        } else if form == 1 {
            rows = Along { axis: Axis { kernel: 1, stride: 1, padding: 0, dilation: 1 }, size: 1 };
        }
        let groups = if rng.one_in(4) { rng.size(1, 3) } else { 1 };
        let (from, to) = (groups * rng.size(1, 17), groups * rng.size(1, 9));
        let (input, output) = images(batch, rows, columns, from, to);
        let x = rng.bytes(zeros(input).len());
        let weight = rng.bytes(to * rows.axis.kernel * columns.axis.kernel * from / groups);
        let bias = rng.bias(to, groups == 1);
        let channels = rng.channels(to);
        let (input_offset, epilogue) = (rng.range(-127, 128), rng.output());
        let bias = bias.as_deref();
        let window = window(rows, columns);
        let scales = channels.scales();
        let conv = Conv2d { input, output, window, groups, weight: &weight, bias, scales, input_offset, epilogue };
        let mut out = zeros(output);
        conv2d(&conv, &x, &mut out).unwrap();
        out
    });
}

#[test]
fn depthwise2d_equals_cmsis_nn() {
    check(2, include_bytes!("../golden/depthwise2d.bin"), |rng| {
        let (mut rows, mut columns) = (rng.axis(7, true), rng.axis(7, true));
        if rng.one_in(3) {
            for along in [&mut rows, &mut columns] {
                along.axis = Axis { kernel: 3, padding: 1, dilation: 1, ..along.axis };
            }
        }
        let multiplier = if rng.one_in(3) { rng.size(1, 20) } else { 1 };
        let from = if multiplier == 1 { rng.size(1, 35) } else { rng.size(1, 4) };
        let to = from * multiplier;
        let (input, output) = images(1, rows, columns, from, to);
        let x = rng.bytes(zeros(input).len());
        let weight = rng.bytes(rows.axis.kernel * columns.axis.kernel * to);
        let bias = rng.bias(to, false);
        let channels = rng.channels(to);
        let (input_offset, epilogue) = (rng.range(-127, 128), rng.output());
        let bias = bias.as_deref();
        let window = window(rows, columns);
        let scales = channels.scales();
        let conv = Depthwise2d { input, output, window, weight: &weight, bias, scales, input_offset, epilogue };
        let mut out = zeros(output);
        depthwise2d(&conv, &x, &mut out).unwrap();
        out
    });
}

#[test]
fn conv_transpose2d_equals_cmsis_nn() {
    check(3, include_bytes!("../golden/conv_transpose2d.bin"), |rng| {
        let batch = rng.size(1, 2);
        let [rows, columns] = [(); 2].map(|()| {
            let (size, kernel) = (rng.size(1, 6), rng.size(1, 4));
            let stride = rng.size(1, kernel.min(3));
            let mut padding = rng.size(0, kernel - stride);
            if (size - 1) * stride + kernel < 2 * padding + 1 {
                padding = 0;
            }
            Along { axis: Axis { kernel, stride, padding, dilation: 1 }, size }
        });
        let length = |a: Along| (a.size - 1) * a.axis.stride + a.axis.kernel - 2 * a.axis.padding;
        let (from, to) = (rng.size(1, 24), rng.size(1, 9));
        let input = Image { batch, height: rows.size, width: columns.size, channels: from };
        let output = Image { batch, height: length(rows), width: length(columns), channels: to };
        let x = rng.bytes(zeros(input).len());
        let weight = rng.bytes(to * rows.axis.kernel * columns.axis.kernel * from);
        let bias = rng.bias(to, true);
        let channels = rng.channels(to);
        let (input_offset, epilogue) = (rng.range(-127, 128), rng.output());
        let bias = bias.as_deref();
        let window = window(rows, columns);
        let scales = channels.scales();
        let conv = ConvTranspose2d { input, output, window, weight: &weight, bias, scales, input_offset, epilogue };
        let mut out = zeros(output);
        conv_transpose2d(&conv, &x, &mut out).unwrap();
        out
    });
}

#[test]
fn linear_equals_cmsis_nn() {
    check(4, include_bytes!("../golden/linear.bin"), |rng| {
        let (rows, inner, outputs) = (rng.size(1, 4), rng.size(1, 70), rng.size(1, 20));
        let (x, weight) = (rng.bytes(rows * inner), rng.bytes(outputs * inner));
        let bias = rng.bias(outputs, true);
        let scales = Scales::Tensor(rng.scale(-12, -4));
        let input_offset = rng.range(-127, 128);
        let weight_offset = if rng.one_in(4) { rng.range(-127, 128) } else { 0 };
        let output = rng.output();
        let bias = bias.as_deref();
        let layer = Linear { inner, outputs, weight: &weight, bias, scales, input_offset, weight_offset, output };
        let mut out = vec![0; rows * outputs];
        linear(&layer, &x, &mut out).unwrap();
        // The form with sums of the weights in the bias gives the same.
        let folded: Vec<i32> = (0..outputs)
            .map(|o| {
                let sum: i32 = weight[o * inner..(o + 1) * inner].iter().map(|&w| i32::from(w) + weight_offset).sum();
                sum * input_offset + bias.map_or(0, |bias| bias[o])
            })
            .collect();
        let mut other = vec![0; rows * outputs];
        linear(&Linear { bias: Some(&folded), input_offset: 0, ..layer }, &x, &mut other).unwrap();
        assert_eq!(out, other);
        out
    });
}

#[test]
fn batch_matmul_equals_cmsis_nn() {
    check(5, include_bytes!("../golden/batch_matmul.bin"), |rng| {
        let (batch, rows, inner, outputs) = (rng.size(1, 3), rng.size(1, 6), rng.size(1, 40), rng.size(1, 10));
        let (x, weight) = (rng.bytes(batch * rows * inner), rng.bytes(batch * outputs * inner));
        let scales = Scales::Tensor(rng.scale(-15, -8));
        let (input_offset, weight_offset) = (rng.range(-127, 128), rng.range(-127, 128));
        let output = Output { offset: rng.range(-128, 127), min: i8::MIN, max: i8::MAX };
        let mut out = vec![0; batch * rows * outputs];
        let weights = weight.chunks(outputs * inner);
        for ((out, x), weight) in out.chunks_mut(rows * outputs).zip(x.chunks(rows * inner)).zip(weights) {
            let layer = Linear { inner, outputs, weight, bias: None, scales, input_offset, weight_offset, output };
            linear(&layer, x, out).unwrap();
        }
        out
    });
}

#[test]
fn add_equals_cmsis_nn() {
    check(6, include_bytes!("../golden/add.bin"), |rng| {
        let len = rng.size(1, 40);
        let (a, b) = (rng.bytes(len), rng.bytes(len));
        let zero_points = [rng.range(-128, 127), rng.range(-128, 127)];
        let mut scales = [rng.scale(-6, 0), rng.scale(-6, 0)];
        if rng.one_in(4) {
            scales[1].multiplier = -scales[1].multiplier;
        }
        let add = Add { zero_points, scales, output_scale: rng.scale(-20, -15), output: rng.output() };
        a.iter().zip(&b).map(|(&a, &b)| add.apply(a, b)).collect()
    });
}

#[test]
fn mul_equals_cmsis_nn() {
    check(7, include_bytes!("../golden/mul.bin"), |rng| {
        let len = rng.size(1, 40);
        let (a, b) = (rng.bytes(len), rng.bytes(len));
        let zero_points = [rng.range(-128, 127), rng.range(-128, 127)];
        let scale = rng.scale(-9, -3);
        let mul = Mul { zero_points, scale, output: Output { offset: rng.range(-128, 127), min: -128, max: 127 } };
        a.iter().zip(&b).map(|(&a, &b)| mul.apply(a, b)).collect()
    });
}

fn pool(rng: &mut Rng, kernel: impl Fn(&Pool2d, &[i8], &mut [i8]) -> Result<(), Mismatch>) -> Vec<i8> {
    let batch = rng.size(1, 2);
    let (rows, columns) = (rng.pool_axis(), rng.pool_axis());
    let channels = rng.size(1, 35);
    let (input, output) = images(batch, rows, columns, channels, channels);
    let x = rng.bytes(zeros(input).len());
    let Output { min, max, .. } = rng.output();
    let mut out = zeros(output);
    kernel(&Pool2d { input, output, window: window(rows, columns), min, max }, &x, &mut out).unwrap();
    out
}

#[test]
fn avg_pool2d_equals_cmsis_nn() {
    check(8, include_bytes!("../golden/avg_pool2d.bin"), |rng| pool(rng, avg_pool2d));
}

#[test]
fn max_pool2d_equals_cmsis_nn() {
    check(9, include_bytes!("../golden/max_pool2d.bin"), |rng| pool(rng, max_pool2d));
}

#[test]
fn softmax_equals_cmsis_nn() {
    check(10, include_bytes!("../golden/softmax.bin"), |rng| {
        let rows = rng.size(1, 4);
        let longest = if rng.one_in(16) { 400 } else { 40 };
        let row = rng.size(1, longest);
        let mut x = rng.bytes(rows * row);
        if rng.one_in(4) {
            let shift = rng.range(1, 5);
            x.iter_mut().for_each(|x| *x >>= shift);
        }
        let multiplier = rng.normalized();
        let shift = rng.range(16, 27) as u32;
        let diff_min = -((31i64 << 26 >> shift) as i32);
        let mut out = vec![0; rows * row];
        softmax(&Softmax { row, multiplier, shift, diff_min }, &x, &mut out).unwrap();
        out
    });
}

#[test]
fn transpose_equals_cmsis_nn() {
    check(11, include_bytes!("../golden/transpose.bin"), |rng| {
        let rank = rng.size(1, 4);
        let mut sizes = [1; 4];
        sizes[..rank].iter_mut().for_each(|size| *size = rng.size(1, 6));
        let mut order = [0, 1, 2, 3];
        for k in (1..rank).rev() {
            order.swap(k, rng.size(0, k));
        }
        if rank == 2 {
            order = [1, 0, 2, 3];
        }
        let x = rng.bytes(sizes.iter().product());
        let mut out = vec![0; x.len()];
        transpose(sizes, order, &x, &mut out).unwrap();
        out
    });
}

#[test]
fn pad_equals_cmsis_nn() {
    check(12, include_bytes!("../golden/pad.bin"), |rng| {
        let (mut sizes, mut before, mut after) = ([0; 4], [0; 4], [0; 4]);
        for d in 0..4 {
            (sizes[d], before[d], after[d]) = (rng.size(1, 5), rng.size(0, 2), rng.size(0, 2));
        }
        let value = rng.range(-128, 127) as i8;
        let x = rng.bytes(sizes.iter().product());
        let mut out = vec![0; (0..4).map(|d| before[d] + sizes[d] + after[d]).product()];
        pad(sizes, before, after, value, &x, &mut out).unwrap();
        out
    });
}
