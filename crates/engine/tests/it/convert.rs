use super::*;
use rushlight_engine::{Half, Instruction, MAX_DIMS, Operand, Source, Unary, elementwise, narrow, widen};

/// Decodes a bit pattern, digit by digit.
fn value(half: Half, bits: u16) -> f64 {
    let (mantissa_bits, bias) = match half {
        Half::F16 => (10, 15),
        Half::Bf16 => (7, 127),
    };
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from((bits & 0x7fff) >> mantissa_bits);
    let mantissa = f64::from(bits & ((1 << mantissa_bits) - 1)) / f64::from(1u32 << mantissa_bits);
    let last = (1 << (15 - mantissa_bits)) - 1;
    sign * match exponent {
        0 => mantissa * 2f64.powi(1 - bias),
        _ if exponent == last && mantissa == 0.0 => f64::INFINITY,
        _ if exponent == last => f64::NAN,
        _ => (1.0 + mantissa) * 2f64.powi(exponent - bias),
    }
}

#[test]
fn widening_is_exact_for_all_bits() {
    let x: Vec<u16> = (0..=u16::MAX).collect();
    for engine in engines() {
        for half in [Half::F16, Half::Bf16] {
            let mut y = vec![0.0; x.len()];
            widen(&engine, half, &x, &mut y).unwrap();
            for (&bits, y) in x.iter().zip(y) {
                let want = value(half, bits);
                let same = f64::from(y) == want || (y.is_nan() && want.is_nan());
                assert!(same, "{half:?} {bits:#x} on {:?}: {y}, not {want}", engine.isa());
            }
        }
    }
}

#[test]
fn narrowing_gives_the_nearest_number() {
    for half in [Half::F16, Half::Bf16] {
        let finite: Vec<u16> = (0..0x7fff).take_while(|bits| value(half, *bits).is_finite()).collect();
        // Each value, the midpoint to the next one, and the f32 neighbours of both.
        let mut x = vec![0.0, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45];
        for pair in finite.windows(2) {
            let [low, high] = [pair[0], pair[1]].map(|bits| value(half, bits));
            let middle = f64::midpoint(low, high) as f32;
            for near in [low as f32, middle] {
                x.extend([near, near.next_up(), near.next_down()]);
            }
        }
        x.extend(x.clone().iter().map(|x| -x));
        let greatest = *finite.last().unwrap();
        for engine in engines() {
            let mut y = vec![0; x.len()];
            narrow(&engine, half, &x, &mut y).unwrap();
            for (&x, &y) in x.iter().zip(&y) {
                let magnitude = f64::from(x.abs());
                let at = finite.partition_point(|bits| value(half, *bits) <= magnitude) - 1;
                let below = finite[at];
                // Past the largest finite value the next one would be 2^k, which is infinity here.
                let above = if below == greatest {
                    2.0 * value(half, below) - value(half, below - 1)
                } else {
                    value(half, below + 1)
                };
                let (down, up) = (magnitude - value(half, below), above - magnitude);
                let rounds_up = up < down || (up == down && below & 1 == 1);
                let want = (below + u16::from(rounds_up)) | if x.is_sign_negative() { 0x8000 } else { 0 };
                assert_eq!(y, want, "{half:?} {x:e} on {:?}", engine.isa());
            }
            let mut y = vec![0; 3];
            narrow(&engine, half, &[f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)], &mut y).unwrap();
            assert!(y.iter().all(|bits| value(half, *bits).is_nan()));
        }
    }
}

#[test]
fn rounding_is_narrowing_and_widening() {
    let mut rng = Rng(11);
    let mut x = rng.vector(1000);
    x.extend([0.0, -0.0, 65504.0, 65519.9, 65520.0, 1e-8, 6.1e-5, 1e38, f32::INFINITY]);
    let sources = [Source { data: x.as_slice().into(), strides: [1; MAX_DIMS] }];
    for engine in engines() {
        for (half, function) in [(Half::F16, Unary::RoundF16), (Half::Bf16, Unary::RoundBf16)] {
            let (mut narrowed, mut want, mut got) = (vec![0; x.len()], vec![0.0; x.len()], vec![0.0; x.len()]);
            narrow(&engine, half, &x, &mut narrowed).unwrap();
            widen(&engine, half, &narrowed, &mut want).unwrap();
            let rounding = [Instruction::Unary { to: 0, function, x: Operand::Tensor(0) }];
            elementwise(&engine, &rounding, &[x.len()], &sources, &mut got).unwrap();
            assert!(want.iter().zip(&got).all(|(want, got)| want.to_bits() == got.to_bits()), "{half:?}");
        }
    }
}

#[test]
fn short_slices_are_refused() {
    let engine = Engine::new(1);
    assert!(widen(&engine, Half::F16, &[0; 3], &mut [0.0; 2]).is_err());
    assert!(narrow(&engine, Half::Bf16, &[0.0; 3], &mut [0; 2]).is_err());
}
