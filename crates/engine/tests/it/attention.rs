use super::*;
use rushlight_engine::{
    Attention, AttentionInputs, Error, FloatSlice, FloatSliceMut, Half, HalfRows, KeyValueSlice, NibbleRows,
    QuantizedRows, Strides, attention, attention_scratch, attention_supports_bf16_output, pack_nibbles, unpack_nibbles,
};

/// Inputs of a case.
struct Tensors {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    mask: Option<Vec<f32>>,
    /// Length of the output.
    y_len: usize,
}

/// Computes attention in f64. Rows without a key to attend to are zero.
fn reference(a: &Attention, tensors: &Tensors) -> Vec<f64> {
    let mut y = vec![f64::NAN; tensors.y_len];
    for batch in 0..a.batch {
        for head in 0..a.heads {
            for row in 0..a.rows {
                let group = head * a.kv_heads / a.heads;
                let at = |s: Strides, head: usize, row: usize| batch * s.batch + head * s.head + row * s.row;
                let mut scores = Vec::new();
                for key in 0..a.causal.map_or(a.keys, |before| a.keys.min(before + row + 1)) {
                    let products = (0..a.depth).map(|d| {
                        f64::from(tensors.q[at(a.q, head, row) + d]) * f64::from(tensors.k[at(a.k, group, key) + d])
                    });
                    let mut score = products.sum::<f64>() * f64::from(a.scale);
                    if let (Some(mask), Some(strides)) = (&tensors.mask, a.mask) {
                        score += f64::from(mask[at(strides, head, row) + key]);
                    }
                    scores.push(score);
                }
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
                for d in 0..a.value_depth {
                    let values = scores
                        .iter()
                        .enumerate()
                        .map(|(key, score)| (score - max).exp() * f64::from(tensors.v[at(a.v, group, key) + d]));
                    let is_empty = max == f64::NEG_INFINITY;
                    y[at(a.y, head, row) + d] = if is_empty { 0.0 } else { values.sum::<f64>() / sum };
                }
            }
        }
    }
    y
}

/// Returns random strides of `[batch, heads, rows, width]`, stored in this order or as `[batch, rows, heads, width]`, with or
/// without a gap after each row, and the length of the slice that they need.
fn layout(rng: &mut Rng, [batch, heads, rows, width]: [usize; 4]) -> (Strides, usize) {
    let gap = rng.one_of(&[0, 0, 3]);
    let strides = if rng.below(2) == 0 {
        Strides { batch: heads * rows * (width + gap), head: rows * (width + gap), row: width + gap }
    } else {
        Strides { batch: heads * rows * (width + gap), head: width + gap, row: heads * (width + gap) }
    };
    (strides, batch * heads * rows * (width + gap))
}

/// Sets random strides and whether there is a mask, and returns random inputs.
fn random_tensors(rng: &mut Rng, a: &mut Attention) -> Tensors {
    let (q, q_len) = layout(rng, [a.batch, a.heads, a.rows, a.depth]);
    let (k, k_len) = layout(rng, [a.batch, a.kv_heads, a.keys, a.depth]);
    let (v, v_len) = layout(rng, [a.batch, a.kv_heads, a.keys, a.value_depth]);
    let (y, y_len) = layout(rng, [a.batch, a.heads, a.rows, a.value_depth]);
    (a.q, a.k, a.v, a.y) = (q, k, v, y);
    let mask = (rng.below(2) == 0).then(|| {
        let dense = Strides { batch: a.heads * a.rows * a.keys, head: a.rows * a.keys, row: a.keys };
        let same_for_batch = Strides { batch: 0, ..dense };
        let strides = rng.one_of(&[dense, same_for_batch, Strides { batch: 0, head: 0, row: a.keys }]);
        a.mask = Some(strides);
        let mut mask = rng.vector(a.batch * a.heads * a.rows * a.keys);
        // Masks some keys; in some rows, all.
        mask.iter_mut().filter(|x| **x > 0.7).for_each(|x| *x = f32::NEG_INFINITY);
        mask.chunks_mut(a.keys.max(1)).step_by(5).for_each(|row| row.fill(f32::NEG_INFINITY));
        // The first and the last ones in all rows, as those of a cache that are out of a window or not written.
        let seen = rng.below(a.keys + 1)..a.keys - rng.below(a.keys + 1) / 2;
        let hidden = rng.one_of(&[f32::NEG_INFINITY, f32::MIN]);
        if rng.below(2) == 0 {
            let keys = mask.chunks_mut(a.keys.max(1)).flat_map(|row| row.iter_mut().enumerate());
            keys.filter(|(key, _)| !seen.contains(key)).for_each(|(_, x)| *x = hidden);
        }
        mask
    });
    let vector = |rng: &mut Rng, n| rng.vector(n).iter().map(|x| x * 2.0).collect::<Vec<f32>>();
    Tensors { q: vector(rng, q_len), k: vector(rng, k_len), v: rng.vector(v_len), mask, y_len }
}

const UNSET: Strides = Strides { batch: 0, head: 0, row: 0 };

/// Attention without mask, grouping of heads and causality; strides are set later.
fn plain(batch: usize, heads: usize, rows: usize, keys: usize, depth: usize) -> Attention {
    Attention {
        batch,
        heads,
        kv_heads: heads,
        rows,
        keys,
        depth,
        value_depth: depth,
        scale: 1.0 / (depth.max(1) as f32).sqrt(),
        causal: None,
        q: UNSET,
        k: UNSET,
        v: UNSET,
        y: UNSET,
        mask: None,
    }
}

/// Shapes of models, and `count` random ones.
fn cases(rng: &mut Rng, count: usize, depths: &[usize]) -> Vec<Attention> {
    let mut cases = vec![plain(1, 3, 197, 197, 64), plain(6, 3, 49, 49, 32), plain(1, 2, 1, 700, 64)];
    cases.extend([plain(1, 1, 70, 1100, 16), Attention { causal: Some(0), ..plain(1, 2, 300, 300, 24) }]);
    // A token of a language model, and a few.
    for (heads, kv_heads, rows, keys, depth) in [
        (8, 2, 1, 700, 64),
        (8, 1, 1, 530, 40),
        (12, 1, 1, 900, 32),
        (1, 1, 1, 3000, 16),
        (7, 1, 1, 33, 64),
        (3, 1, 2, 299, 24),
        (4, 1, 3, 270, 16),
    ] {
        cases.push(Attention { kv_heads, causal: Some(keys - rows), ..plain(1, heads, rows, keys, depth) });
    }
    // Several texts at once, with many heads.
    cases.push(Attention { kv_heads: 8, ..plain(4, 64, 1, 128, 128) });
    cases.push(plain(8, 12, 8, 128, 64));
    for _ in 0..count {
        let heads = rng.one_of(&[1, 2, 4, 6]);
        let mut a = plain(1 + rng.below(2), heads, 0, 0, rng.one_of(depths));
        a.rows = rng.one_of(&[1, 2, 5, 13, 15, 17, 33]);
        a.keys = rng.one_of(&[1, 2, 15, 16, 17, 33, 49, 130]);
        a.kv_heads = if heads.is_multiple_of(2) && rng.below(2) == 0 { heads / 2 } else { heads };
        a.causal = (rng.below(3) == 0).then(|| if rng.below(2) == 0 { 0 } else { rng.below(a.keys + 1) });
        if rng.below(3) == 0 {
            a.value_depth = rng.one_of(&[1, 16, 33]);
        }
        cases.push(a);
    }
    cases
}

#[test]
fn agrees_with_f64() {
    let mut rng = Rng(12);
    for mut a in cases(&mut rng, 80, &[1, 8, 15, 16, 17, 32, 64, 80]) {
        let tensors = random_tensors(&mut rng, &mut a);
        assert_agrees(
            &a,
            &reference(&a, &tensors),
            |_| 5e-6,
            |engine| {
                let mut y = vec![f32::NAN; tensors.y_len];
                let mut scratch = vec![f32::NAN; attention_scratch(engine, &a)];
                let Tensors { q, k, v, mask, .. } = &tensors;
                let inputs = AttentionInputs { q: q.into(), k: k.into(), v: v.into(), mask: mask.as_deref() };
                attention(engine, &a, inputs, &mut y, &mut scratch).unwrap();
                y
            },
        );
    }
}

/// Prefetches go past the last key, where strides may point outside of the tensor.
#[test]
fn strides_between_single_rows_are_not_used() {
    let anywhere = Strides { batch: usize::MAX, head: usize::MAX, row: usize::MAX };
    let a = Attention { q: anywhere, k: anywhere, v: anywhere, y: anywhere, ..plain(1, 1, 1, 1, 24) };
    let values: Vec<f32> = (0..24u8).map(f32::from).collect();
    for engine in engines() {
        let (mut y, mut scratch) = ([f32::NAN; 24], vec![f32::NAN; attention_scratch(&engine, &a)]);
        attention(&engine, &a, AttentionInputs::new(&[0.5; 24], &[1.0; 24], &values), &mut y, &mut scratch).unwrap();
        assert_eq!(y[..], values);
    }
}

/// Inputs are rounded to bf16 for the reference too, so that only probabilities and bf16 outputs are off.
#[test]
fn strides_between_rows_without_elements_are_not_used() {
    // The strides that PyTorch gives a tensor whose last size is 0. Packed, split and read in place.
    for (rows, keys) in [(2, 3), (20, 3), (1, 700)] {
        let (batch, heads) = (2, 3);
        let strides = |rows: usize| Strides { batch: heads * rows, head: rows, row: 1 };
        let mut a = Attention { value_depth: 5, ..plain(batch, heads, rows, keys, 0) };
        (a.q, a.k) = (strides(rows), strides(keys));
        a.v = Strides { batch: heads * keys * 5, head: keys * 5, row: 5 };
        a.y = Strides { batch: heads * rows * 5, head: rows * 5, row: 5 };
        let v = vec![1.5; batch * heads * keys * 5];
        let mut y = vec![f32::NAN; batch * heads * rows * 5];
        let engine = Engine::new(1);
        let mut scratch = vec![f32::NAN; attention_scratch(&engine, &a)];
        attention(&engine, &a, AttentionInputs::new(&[], &[], &v), &mut y, &mut scratch).expect("valid operands");
        assert!(y.iter().all(|y| (y - 1.5).abs() < 1e-5), "{rows} x {keys}: {y:?}");
    }
}

#[test]
fn bf16_agrees_with_f64() {
    let mut rng = Rng(13);
    for mut a in cases(&mut rng, 60, &[2, 8, 14, 16, 32, 64, 80]) {
        let mut tensors = random_tensors(&mut rng, &mut a);
        for input in [&mut tensors.q, &mut tensors.k, &mut tensors.v] {
            input.iter_mut().for_each(|x| *x = from_bf16(to_bf16(*x)));
        }
        let [q, k, v] =
            [&tensors.q, &tensors.k, &tensors.v].map(|input| input.iter().copied().map(to_bf16).collect::<Vec<u16>>());
        let inputs = [FloatSlice::Bf16(&q), FloatSlice::Bf16(&k), FloatSlice::Bf16(&v)];
        let expected = reference(&a, &tensors);
        let engines = || engines().filter(Engine::supports_bf16);
        for is_output_bf16 in [false, true] {
            let run = |engine: &Engine| {
                let (mut floats, mut out) = (vec![f32::NAN; tensors.y_len], vec![to_bf16(f32::NAN); tensors.y_len]);
                let mut scratch = vec![f32::NAN; attention_scratch(engine, &a)];
                let y = if is_output_bf16 { FloatSliceMut::Bf16(&mut out) } else { FloatSliceMut::F32(&mut floats) };
                let [q, k, v] = inputs;
                let inputs = AttentionInputs { q, k: k.into(), v: v.into(), mask: tensors.mask.as_deref() };
                let result = attention(engine, &a, inputs, y, &mut scratch);
                if is_output_bf16 && !attention_supports_bf16_output(a.keys) {
                    assert_eq!(result, Err(Error::Type { what: "y" }));
                    return None;
                }
                result.unwrap();
                Some(if is_output_bf16 { out.into_iter().map(from_bf16).collect() } else { floats })
            };
            // Probabilities, whose sum is 1, and the output are each off by up to half an ulp of bf16.
            let bound = if is_output_bf16 { 1.0 / 256.0 } else { 1.0 / 512.0 };
            // Of each instruction set, the first engine has one thread.
            let mut single_threaded: Vec<f32> = Vec::new();
            for engine in engines() {
                let Some(got) = run(&engine) else { continue };
                if engine.threads() == 1 {
                    single_threaded.clone_from(&got);
                }
                assert_eq!(got.len(), single_threaded.len());
                assert!(got.iter().zip(&single_threaded).all(|(a, b)| a.to_bits() == b.to_bits()), "{engine:?} {a:?}");
                for (got, expected) in got.iter().zip(&expected) {
                    let is_close = (f64::from(*got) - expected).abs() <= bound * 1.01 + 5e-6;
                    assert!(is_close || got.is_nan() && expected.is_nan(), "{engine:?} {a:?}: {got} for {expected}");
                }
            }
        }
    }
}

/// Rows of bytes with a scale and a zero point each, as those of a cache.
struct QuantizedTensor {
    bytes: Vec<u8>,
    scales: Vec<f32>,
    zeros: Vec<u8>,
}

impl QuantizedTensor {
    /// Random rows `[batch, heads, rows, width]`, with heads or rows outermost and other rows between them. Also their
    /// strides and their dequantized values.
    fn random(rng: &mut Rng, [batch, heads, rows, width]: [usize; 4]) -> (Self, Strides, Vec<f32>) {
        let gap = 1 + rng.below(2);
        let (head, row) = if rng.below(2) == 0 { (rows * gap, gap) } else { (gap, heads * gap) };
        let count = batch * heads * rows * gap;
        let byte = |rng: &mut Rng| rng.below(256) as u8;
        let bytes: Vec<u8> = (0..count * width).map(|_| byte(rng)).collect();
        let zeros: Vec<u8> = (0..count).map(|_| byte(rng)).collect();
        let scales: Vec<f32> = rng.vector(count).iter().map(|scale| (scale + 1.0) / 128.0).collect();
        let of_row = |row: usize, byte: &u8| (f32::from(*byte) - f32::from(zeros[row])) * scales[row];
        let floats = bytes.iter().enumerate().map(|(at, byte)| of_row(at / width.max(1), byte)).collect();
        let strides = Strides { batch: heads * rows * gap * width, head: head * width, row: row * width };
        (Self { bytes, scales, zeros }, strides, floats)
    }

    fn rows(&self) -> KeyValueSlice<'_> {
        let Self { bytes, scales, zeros } = self;
        KeyValueSlice::Quantized(QuantizedRows { bytes, scales, zeros })
    }
}

/// Checks attention over keys and values that stand for those of `tensors`.
fn assert_read_in_place(a: &Attention, tensors: &Tensors, [k, v]: [KeyValueSlice<'_>; 2]) {
    assert_agrees(
        a,
        &reference(a, tensors),
        |_| 1e-5,
        |engine| {
            let mut y = vec![f32::NAN; tensors.y_len];
            let mut scratch = vec![f32::NAN; attention_scratch(engine, a)];
            let inputs = AttentionInputs { q: (&tensors.q).into(), k, v, mask: tensors.mask.as_deref() };
            attention(engine, a, inputs, &mut y, &mut scratch).unwrap();
            y
        },
    );
}

#[test]
fn quantized_keys_and_values_agree_with_what_they_stand_for() {
    let mut rng = Rng(14);
    for mut a in cases(&mut rng, 80, &[1, 7, 8, 15, 16, 17, 32, 64, 80]) {
        let mut tensors = random_tensors(&mut rng, &mut a);
        let (keys, values);
        (keys, a.k, tensors.k) = QuantizedTensor::random(&mut rng, [a.batch, a.kv_heads, a.keys, a.depth]);
        (values, a.v, tensors.v) = QuantizedTensor::random(&mut rng, [a.batch, a.kv_heads, a.keys, a.value_depth]);
        assert_read_in_place(&a, &tensors, [keys.rows(), values.rows()]);
    }
}

#[test]
fn half_keys_and_values_agree_with_what_they_stand_for() {
    let mut rng = Rng(16);
    for mut a in cases(&mut rng, 80, &[1, 7, 8, 15, 16, 17, 32, 64, 80]) {
        let mut tensors = random_tensors(&mut rng, &mut a);
        for half in [Half::F16, Half::Bf16] {
            let narrow = |floats: &mut Vec<f32>| -> Vec<u16> {
                let rounded = |x: f32| match half {
                    Half::F16 => (half::f16::from_f32(x).to_bits(), half::f16::from_f32(x).to_f32()),
                    Half::Bf16 => (half::bf16::from_f32(x).to_bits(), half::bf16::from_f32(x).to_f32()),
                };
                let (bits, wide): (Vec<_>, Vec<_>) = floats.iter().map(|x| rounded(*x)).unzip();
                *floats = wide;
                bits
            };
            let (keys, values) = (narrow(&mut tensors.k), narrow(&mut tensors.v));
            let rows = |bits| KeyValueSlice::Half(HalfRows { half, bits });
            assert_read_in_place(&a, &tensors, [rows(&keys), rows(&values)]);
        }
    }
}

#[test]
fn keys_and_values_of_4_bits_agree_with_what_they_stand_for() {
    let mut rng = Rng(17);
    for mut a in cases(&mut rng, 80, &[2, 8, 14, 16, 18, 32, 64, 96, 128]) {
        // Rows of a size that is not even are refused.
        a.value_depth = a.value_depth.next_multiple_of(2);
        let mut tensors = random_tensors(&mut rng, &mut a);
        let mut random = |rows: usize, width: usize| {
            let (keys, strides, _) = QuantizedTensor::random(&mut rng, [a.batch, a.kv_heads, rows, width]);
            let group = if width.is_multiple_of(32) { 32 } else { width };
            let integers: Vec<u8> = keys.bytes.iter().map(|byte| byte & 15).collect();
            let groups = integers.len() / group;
            let zeros: Vec<u8> = (0..groups).map(|_| rng.below(16) as u8).collect();
            let scales: Vec<f32> = rng.vector(groups).iter().map(|scale| (scale + 1.0) / 8.0).collect();
            let floats = integers.iter().enumerate();
            let floats = floats.map(|(at, x)| (f32::from(*x) - f32::from(zeros[at / group])) * scales[at / group]);
            let floats: Vec<f32> = floats.collect();
            let mut bytes = vec![0; integers.len() / 2];
            pack_nibbles(&integers, &mut bytes).unwrap();
            let mut unpacked = vec![0; integers.len()];
            unpack_nibbles(&bytes, &mut unpacked).unwrap();
            assert_eq!(unpacked, integers);
            ((bytes, scales, zeros), strides, floats)
        };
        let (keys, values);
        (keys, a.k, tensors.k) = random(a.keys, a.depth);
        (values, a.v, tensors.v) = random(a.keys, a.value_depth);
        assert_read_in_place(&a, &tensors, [of_nibbles(&keys), of_nibbles(&values)]);
    }
}

fn of_nibbles((bytes, scales, zeros): &(Vec<u8>, Vec<f32>, Vec<u8>)) -> KeyValueSlice<'_> {
    KeyValueSlice::Nibbles(NibbleRows { bytes, scales, zeros })
}

#[test]
fn refuses_quantized_rows_without_scales_and_beside_floats() {
    let mut rng = Rng(15);
    let engine = Engine::new(1);
    let mut a = plain(1, 1, 2, 3, 4);
    (a.q.row, a.y.row) = (4, 4);
    let (keys, strides, floats) = QuantizedTensor::random(&mut rng, [1, 1, 3, 4]);
    (a.k, a.v) = (strides, strides);
    let mut scratch = vec![0.0; attention_scratch(&engine, &a)];
    let mut run = |a: &Attention, k: KeyValueSlice<'_>, v: KeyValueSlice<'_>| {
        attention(&engine, a, AttentionInputs::new(&[0.0; 8], k, v), &mut [0.0; 8], &mut scratch)
    };
    let QuantizedTensor { bytes, scales, zeros } = &keys;
    let floats = KeyValueSlice::from(&floats);
    assert_eq!(run(&a, keys.rows(), keys.rows()), Ok(()));
    assert_eq!(run(&a, keys.rows(), floats), Err(Error::Type { what: "q, k and v" }));
    assert_eq!(run(&a, floats, keys.rows()), Err(Error::Type { what: "q, k and v" }));
    let rows = (2 * strides.row + 4) / 4;
    let short = KeyValueSlice::Quantized(QuantizedRows { bytes, scales: &scales[..rows - 1], zeros });
    assert_eq!(run(&a, keys.rows(), short), Err(Error::Mismatch { what: "v scales", expected: rows, got: rows - 1 }));
    let short = KeyValueSlice::Quantized(QuantizedRows { bytes, scales, zeros: &zeros[..rows - 1] });
    assert_eq!(
        run(&a, short, keys.rows()),
        Err(Error::Mismatch { what: "k zero points", expected: rows, got: rows - 1 })
    );
    let between = Attention { k: Strides { row: 3, ..strides }, ..a };
    assert_eq!(run(&between, keys.rows(), keys.rows()), Err(Error::Size { what: "k strides" }));
}

#[test]
fn refuses_rows_of_4_bits_without_scales_and_odd_ones() {
    let engine = Engine::new(1);
    let mut a = plain(1, 1, 2, 3, 4);
    let dense = Strides { batch: 12, head: 12, row: 4 };
    (a.q.row, a.y.row, a.k, a.v) = (4, 4, dense, dense);
    let mut scratch = vec![0.0; attention_scratch(&engine, &a)];
    let mut run = |a: &Attention, k: KeyValueSlice<'_>, v: KeyValueSlice<'_>| {
        attention(&engine, a, AttentionInputs::new(&[0.0; 8], k, v), &mut [0.0; 8], &mut scratch)
    };
    let rows = |bytes, scales, zeros| {
        let (bytes, scales, zeros) = (&[0u8; 6][..bytes], &[0.0f32; 3][..scales], &[0u8; 3][..zeros]);
        KeyValueSlice::Nibbles(NibbleRows { bytes, scales, zeros })
    };
    let whole = rows(6, 3, 3);
    assert_eq!(run(&a, whole, whole), Ok(()));
    let short = |what, expected, got| Err(Error::Mismatch { what, expected, got });
    assert_eq!(run(&a, rows(5, 3, 3), whole), short("k", 12, 10));
    assert_eq!(run(&a, whole, rows(6, 2, 3)), short("v scales", 3, 2));
    assert_eq!(run(&a, rows(6, 3, 2), whole), short("k zero points", 3, 2));
    let between = Attention { k: Strides { row: 2, ..dense }, ..a };
    assert_eq!(run(&between, whole, whole), Err(Error::Size { what: "k strides" }));
    let odd = Attention { depth: 3, q: Strides { row: 3, ..a.q }, k: Strides { batch: 9, head: 9, row: 3 }, ..a };
    assert_eq!(run(&odd, whole, whole), Err(Error::Size { what: "k strides" }));
    let half = KeyValueSlice::Half(HalfRows { half: Half::F16, bits: &[0; 12] });
    assert_eq!(run(&a, half, half), Ok(()));
    for other in [whole, KeyValueSlice::from(&[0.0; 12])] {
        assert_eq!(run(&a, half, other), Err(Error::Type { what: "q, k and v" }));
    }
}

#[test]
fn refuses_mixed_types_and_odd_depth_in_bf16() {
    let bits = [0u16; 64];
    for engine in engines() {
        let refused = |a: &Attention, [q, k, v]: [FloatSlice<'_>; 3]| {
            let mut scratch = vec![0.0; attention_scratch(&engine, a)];
            attention(&engine, a, AttentionInputs::new(q, k, v), &mut [0.0; 64], &mut scratch).unwrap_err()
        };
        let mut a = plain(1, 1, 4, 4, 4);
        let dense = |depth| Strides { batch: 0, head: 0, row: depth };
        (a.q, a.k, a.v, a.y) = (dense(4), dense(4), dense(4), dense(4));
        let (half, float) = (FloatSlice::Bf16(&bits), FloatSlice::F32(&[0.0; 64]));
        let mut odd = Attention { depth: 3, value_depth: 3, ..a };
        (odd.q, odd.k, odd.v, odd.y) = (dense(3), dense(3), dense(3), dense(3));
        let expected = if engine.supports_bf16() {
            Error::Type { what: "q, k and v" }
        } else {
            Error::Unavailable(Isa::Avx512Bf16)
        };
        assert_eq!(refused(&a, [half, float, half]), expected);
        assert_eq!(refused(&odd, [half; 3]), expected);
    }
}

#[test]
fn a_mask_may_leave_keys_for_larger_blocks() {
    let mut a = plain(1, 2, 1, 700, 64);
    let strides = Strides { batch: 0, head: 0, row: 64 };
    (a.q, a.k, a.v, a.y) = (strides, strides, strides, Strides { head: 64, ..strides });
    a.mask = Some(Strides { batch: 0, head: 0, row: 0 });
    let mut rng = Rng(3);
    let (q, kv) = (rng.vector(64), rng.vector(700 * 64));
    // 700 keys are three blocks of 240, and 512 two of 256.
    let mask: Vec<f32> = (0..700).map(|key| if key < 512 { 0.0 } else { f32::NEG_INFINITY }).collect();
    let tensors = Tensors { q: q.clone(), k: kv.clone(), v: kv.clone(), mask: Some(mask.clone()), y_len: 128 };
    assert_agrees(
        &a,
        &reference(&a, &tensors),
        |_| 5e-6,
        |engine| {
            let (mut y, mut scratch) = (vec![0.0; 128], vec![f32::NAN; attention_scratch(engine, &a)]);
            let inputs = AttentionInputs { mask: Some(&mask), ..AttentionInputs::new(&q, &kv, &kv) };
            attention(engine, &a, inputs, &mut y, &mut scratch).unwrap();
            y
        },
    );
}

#[test]
fn no_keys_give_zeros_and_nan_propagates() {
    for engine in engines() {
        let mut a = plain(1, 1, 2, 0, 4);
        a.y.row = 4;
        let mut y = [1.0; 8];
        let mut scratch = vec![0.0; attention_scratch(&engine, &a)];
        attention(&engine, &a, AttentionInputs::new(&[0.0; 4], &[], &[]), &mut y, &mut scratch).unwrap();
        assert_eq!(y, [0.0; 8]);
        let mut a = plain(1, 1, 1, 3, 1);
        let mut scratch = vec![0.0; attention_scratch(&engine, &a)];
        let mut y = [0.0];
        (a.k.row, a.v.row) = (1, 1);
        let inputs = AttentionInputs::new(&[f32::NAN], &[1.0; 3], &[1.0; 3]);
        attention(&engine, &a, inputs, &mut y, &mut scratch).unwrap();
        assert!(y[0].is_nan(), "{engine:?}");
    }
}

#[test]
fn refuses_short_slices() {
    let engine = Engine::new(1);
    let mut a = plain(1, 2, 3, 4, 5);
    let dense = |rows: usize| Strides { batch: 2 * rows * 5, head: rows * 5, row: 5 };
    (a.q, a.k, a.v, a.y) = (dense(3), dense(4), dense(4), dense(3));
    let mut scratch = vec![0.0; attention_scratch(&engine, &a)];
    let (q, k) = ([0.0; 30], [0.0; 40]);
    let mut run = |a: &Attention, q: &[f32], k: &[f32], mask: Option<&[f32]>, y: usize, scratch_less: usize| {
        let len = scratch.len() - scratch_less;
        let inputs = AttentionInputs { q: (&q).into(), k: (&k).into(), v: (&[0.0; 40]).into(), mask };
        attention(&engine, a, inputs, &mut vec![0.0; y], &mut scratch[..len])
    };
    let mismatch = |what, expected, got| Err(Error::Mismatch { what, expected, got });
    assert_eq!(run(&a, &q, &k, None, 30, 0), Ok(()));
    assert_eq!(run(&a, &q[1..], &k, None, 30, 0), mismatch("q", 30, 29));
    assert_eq!(run(&a, &q, &k[1..], None, 30, 0), mismatch("k", 40, 39));
    assert_eq!(run(&a, &q, &k, None, 29, 0), mismatch("y", 30, 29));
    assert_eq!(run(&a, &q, &k, Some(&[0.0; 40]), 30, 0), mismatch("mask", 0, 1));
    assert_eq!(run(&Attention { kv_heads: 3, ..a }, &q, &k, None, 30, 0), mismatch("heads", 3, 2));
    assert!(matches!(run(&a, &q, &k, None, 30, 1), Err(Error::Mismatch { what: "scratch", .. })));
    let masked = Attention { mask: Some(Strides { batch: 0, head: 0, row: 4 }), ..a };
    assert_eq!(run(&masked, &q, &k, Some(&[0.0; 11]), 30, 0), mismatch("mask", 12, 11));
    let overlapping = Attention { y: Strides { row: 4, ..a.y }, ..a };
    assert_eq!(run(&overlapping, &q, &k, None, 30, 0), mismatch("y strides", 5, 4));
}
