use super::*;
use rushlight_engine::{Binary, Error, Instruction, MAX_DIMS, Operand, Source, Unary, elementwise};

/// Operators with their documented maximum error in ULP.
const UNARY: &[(Unary, f64)] = &[
    (Unary::Identity, 0.0),
    (Unary::Neg, 0.0),
    (Unary::Abs, 0.0),
    (Unary::Sqrt, 0.5),
    (Unary::Rsqrt, 1.5),
    (Unary::Reciprocal, 0.5),
    (Unary::Square, 0.5),
    (Unary::Exp, 2.0),
    (Unary::Log, 2.0),
    (Unary::Sin, 2.0),
    (Unary::Cos, 2.0),
    (Unary::Tanh, 2.0),
    (Unary::Sigmoid, 4.0),
    (Unary::Erf, 2.0),
    (Unary::Floor, 0.0),
    (Unary::Ceil, 0.0),
    (Unary::Round, 0.0),
    (Unary::Trunc, 0.0),
    (Unary::Not, 0.0),
    (Unary::IsNan, 0.0),
    (Unary::Log1p, 3.0),
    (Unary::Expm1, 3.0),
];

const BINARY: &[Binary] = &[
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Max,
    Binary::Min,
    Binary::Pow,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
    Binary::And,
    Binary::Or,
];

fn truth(x: bool) -> f64 {
    f64::from(u8::from(x))
}

fn unary(function: Unary, x: f64) -> f64 {
    match function {
        Unary::Identity => x,
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Square => x * x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Erf => libm::erf(x),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Trunc => x.trunc(),
        Unary::Not => truth(x == 0.0),
        Unary::IsNan => truth(x.is_nan()),
        Unary::Log1p => x.ln_1p(),
        Unary::Expm1 => x.exp_m1(),
        // Tested against conversions instead.
        Unary::RoundF16 | Unary::RoundBf16 => unreachable!("not in the list"),
    }
}

fn binary(function: Binary, a: f64, b: f64) -> f64 {
    match function {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max if a.is_nan() || b.is_nan() => f64::NAN,
        Binary::Max => a.max(b),
        Binary::Min if a.is_nan() || b.is_nan() => f64::NAN,
        Binary::Min => a.min(b),
        Binary::Pow => a.powf(b),
        Binary::Eq => truth(a == b),
        Binary::Ne => truth(a != b),
        Binary::Lt => truth(a < b),
        Binary::Le => truth(a <= b),
        Binary::Gt => truth(a > b),
        Binary::Ge => truth(a >= b),
        Binary::And => truth(a != 0.0 && b != 0.0),
        Binary::Or => truth(a != 0.0 || b != 0.0),
    }
}

/// Distance from `x` to the next f32.
fn ulp(x: f64) -> f64 {
    let x = (x.abs() as f32).clamp(f32::MIN_POSITIVE, f32::MAX);
    f64::from(x) - f64::from(f32::from_bits(x.to_bits() - 1))
}

fn strides(of: &[usize]) -> [usize; MAX_DIMS] {
    let mut strides = [0; MAX_DIMS];
    strides[..of.len()].copy_from_slice(of);
    strides
}

/// Every 30,011th f32, and the special values.
fn sampled_values() -> Vec<f32> {
    let special =
        [0.0, -0.0, 1.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.5, 2.5, -1.5];
    (0..=u32::MAX).step_by(30_011).map(f32::from_bits).chain(special).collect()
}

#[test]
fn unary_functions_have_the_stated_errors() {
    let x = sampled_values();
    for &(function, ulps) in UNARY {
        let expected: Vec<f64> = x.iter().map(|&x| unary(function, f64::from(x))).collect();
        let run = |engine: &Engine| {
            let program = [Instruction::Unary { to: 0, function, x: Operand::Tensor(0) }];
            let mut y = vec![0.0; x.len()];
            elementwise(
                engine,
                &program,
                &[x.len()],
                &[Source { data: x.as_slice().into(), strides: strides(&[1]) }],
                &mut y,
            )
            .unwrap();
            y
        };
        // Near overflow either neighbour of the limit is accepted, and subnormals may be 0.
        let bound = |expected: f64| {
            let min_error = if ulps > 1.5 { f64::from(f32::MIN_POSITIVE) } else { 0.0 };
            if expected.abs() > f64::from(f32::MAX) { f64::INFINITY } else { (ulp(expected) * ulps).max(min_error) }
        };
        assert_agrees(&function, &expected, bound, run);
    }
}

#[test]
fn binary_functions_agree_with_f64() {
    let mut rng = Rng(3);
    let special = [0.0, -0.0, 1.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0, 0.5, -3.0];
    let (mut a, mut b) = (rng.vector(77), rng.vector(77));
    for x in special {
        a.extend([x; 10]);
        b.extend(special);
    }
    for &function in BINARY {
        let expected: Vec<f64> =
            a.iter().zip(&b).map(|(&a, &b)| binary(function, f64::from(a), f64::from(b))).collect();
        let operands = [&a, &b].map(|data| Source { data: data.as_slice().into(), strides: strides(&[1]) });
        assert_agrees(&function, &expected, ulp, |engine| {
            let (a, b) = (Operand::Tensor(0), Operand::Tensor(1));
            let mut y = vec![0.0; expected.len()];
            let program = [Instruction::Binary { to: 0, function, a, b }];
            elementwise(engine, &program, &[y.len()], &operands, &mut y).unwrap();
            y
        });
    }
}

/// Interprets a program for one element.
fn interpret(program: &[Instruction], operands: &[f32]) -> f64 {
    let mut registers = [f64::NAN; rushlight_engine::REGISTERS];
    let mut last = 0.0;
    for instruction in program {
        let read = |operand: Operand| match operand {
            Operand::Register(register) => registers[usize::from(register)],
            Operand::Tensor(index) => f64::from(operands[usize::from(index)]),
            Operand::Constant(x) => f64::from(x),
        };
        let to;
        (to, last) = match *instruction {
            Instruction::Unary { to, function, x } => (to, unary(function, read(x))),
            Instruction::Binary { to, function, a, b } => (to, binary(function, read(a), read(b))),
            Instruction::Select { to, condition, a, b } => (to, if read(condition) == 0.0 { read(b) } else { read(a) }),
            Instruction::Activate { to, activation, x } => (to, super::activation(activation, read(x))),
        };
        registers[usize::from(to)] = last;
    }
    last
}

/// A program of smooth functions with small values, so that errors stay small.
fn random_program(rng: &mut Rng, operands: usize) -> Vec<Instruction> {
    let mut written: Vec<u8> = Vec::new();
    let mut program = Vec::new();
    for _ in 0..=rng.below(6) {
        let mut operand = || match rng.below(4) {
            0 if !written.is_empty() => Operand::Register(rng.one_of(&written)),
            1 => Operand::Constant(rng.vector(1)[0]),
            _ => Operand::Tensor(rng.below(operands) as u8),
        };
        let (a, b, c) = (operand(), operand(), operand());
        let to = rng.below(rushlight_engine::REGISTERS) as u8;
        program.push(match rng.below(4) {
            0 => Instruction::Unary { to, function: rng.one_of(&[Unary::Tanh, Unary::Sin, Unary::Neg]), x: a },
            1 => Instruction::Binary { to, function: rng.one_of(&[Binary::Add, Binary::Mul, Binary::Max]), a, b },
            // Conditions only on inputs: rounding must not decide.
            2 => Instruction::Select { to, condition: Operand::Tensor(0), a: b, b: c },
            _ => Instruction::Activate { to, activation: rng.one_of(&[Activation::RELU, Activation::Silu]), x: a },
        });
        written.push(to);
    }
    program
}

#[test]
fn programs_broadcast_as_in_f64() {
    let mut rng = Rng(4);
    let shapes: &[&[usize]] = &[
        &[],
        &[1],
        &[16],
        &[513],
        &[5000],
        &[1, 1, 1],
        &[7, 3],
        &[40, 16],
        &[3, 700],
        &[2, 9, 5, 3],
        &[2, 14, 15, 16],
        &[3, 5, 24],
        &[2, 3, 600, 4],
        &[1, 70, 1, 11],
        &[4, 1, 33, 2, 2],
    ];
    for round in 0..12 {
        for dims in shapes {
            let count = 1 + rng.below(if round == 0 { 12 } else { 4 });
            let mut owned: Vec<(Vec<f32>, [usize; MAX_DIMS])> = Vec::new();
            for _ in 0..count {
                // Some dimensions broadcast; the others in order or reversed, as in a transposed tensor.
                let kept: Vec<bool> = dims.iter().map(|_| rng.below(3) > 0).collect();
                let mut order: Vec<usize> = (0..dims.len()).filter(|&dim| kept[dim]).collect();
                if rng.below(4) > 0 {
                    order.reverse();
                }
                let (mut strides, mut len) = ([0; MAX_DIMS], 1);
                for dim in order {
                    strides[dim] = len;
                    len *= dims[dim];
                }
                owned.push((rng.vector(len), strides));
            }
            for (data, _) in &mut owned {
                data.iter_mut().step_by(3).for_each(|x| *x = x.round());
            }
            let operands: Vec<Source> = owned
                .iter()
                .map(|(data, strides)| Source { data: data.as_slice().into(), strides: *strides })
                .collect();
            let program = random_program(&mut rng, count);
            let elements: usize = dims.iter().product();
            let expected: Vec<f64> = (0..elements)
                .map(|element| {
                    let element: Vec<f32> = owned
                        .iter()
                        .map(|(data, strides)| {
                            let (mut rest, mut at) = (element, 0);
                            for (dim, size) in dims.iter().enumerate().rev() {
                                at += rest % size * strides[dim];
                                rest /= size;
                            }
                            data[at]
                        })
                        .collect();
                    interpret(&program, &element)
                })
                .collect();
            assert_agrees(
                &(dims, &program),
                &expected,
                |expected| 2e-6 * expected.abs().max(1.0),
                |engine| {
                    let mut y = vec![f32::NAN; elements];
                    elementwise(engine, &program, dims, &operands, &mut y).unwrap();
                    y
                },
            );
        }
    }
}

#[test]
fn refuses_missing_operands_and_registers() {
    let engine = Engine::new(1);
    let data = [1.0; 4];
    let operands = [Source { data: data.as_slice().into(), strides: strides(&[2, 1]) }];
    let run =
        |program: &[Instruction], dims: &[usize]| elementwise(&engine, program, dims, &operands, &mut [0.0; 4][..]);
    let negated = |to, x| Instruction::Unary { to, function: Unary::Neg, x };
    assert_eq!(run(&[negated(0, Operand::Tensor(0))], &[2, 2]), Ok(()));
    assert_eq!(run(&[negated(0, Operand::Tensor(0))], &[0, 9]), Ok(()));
    let index = |what, index, size| Err(Error::Index { what, index, size });
    assert_eq!(run(&[negated(0, Operand::Tensor(1))], &[2, 2]), index("operand", 1, 1));
    assert_eq!(run(&[negated(8, Operand::Tensor(0))], &[2, 2]), index("register", 8, 8));
    assert_eq!(run(&[negated(0, Operand::Register(0))], &[2, 2]), index("register", 0, 0));
    assert_eq!(run(&[], &[2, 2]), Err(Error::Size { what: "instructions" }));
    assert_eq!(run(&[negated(0, Operand::Tensor(0))], &[1; 17]), index("dimension", 16, 16));
    let mismatch = |what, expected, got| Err(Error::Mismatch { what, expected, got });
    assert_eq!(run(&[negated(0, Operand::Tensor(0))], &[3, 2]), mismatch("y", 6, 4));
    assert_eq!(run(&[negated(0, Operand::Tensor(0))], &[1, 5]), mismatch("y", 5, 4));
    assert_eq!(run(&[negated(0, Operand::Constant(1.0))], &[2, usize::MAX]), Err(Error::Size { what: "y" }));
    let narrow = [Source { data: data[1..].into(), strides: strides(&[2, 1]) }];
    let program = [negated(0, Operand::Tensor(0))];
    assert_eq!(elementwise(&engine, &program, &[2, 2], &narrow, &mut [0.0; 4][..]), mismatch("operand", 4, 3));
}
