//! The bytes of steps of each kind. A payload that was written before is read as the same steps: a change of these bytes needs
//! another [`VERSION`](crate::VERSION).

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use rushlight_engine::pack::{Bits, Offsets, ScaleFormat};
use rushlight_engine::{Activation, Half};

use crate::steps::examples;
use crate::{
    Affine, CpuProgram, Epilogue, FakeQuantize, FloatFormat, Int8Epilogue, QuantizedFormat, Residual, Step, TensorId,
};

/// Steps of a kind with all their parts, and their bytes in hexadecimal digits.
pub(crate) trait Examples: Sized {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)>;
}

pub(crate) const BIAS: Option<TensorId> = Some(4);

pub(crate) const ACTIVATION: Activation = Activation::LeakyRelu { slope: 0.5 };

const fn float_epilogue(residual: Residual) -> Epilogue {
    Epilogue { bias: BIAS, residual: Some(residual), activation: ACTIVATION }
}

pub(crate) const BEFORE: Epilogue = float_epilogue(Residual::BeforeActivation(5));

pub(crate) const AFTER: Epilogue = float_epilogue(Residual::AfterActivation(6));

pub(crate) const STATIC: Int8Epilogue = Int8Epilogue::Static {
    offsets: 1,
    scales: 2,
    bias: BIAS,
    fake_quantize: Some(FakeQuantize { activation: ACTIVATION, affine: Affine::new(0.5, 3, [1, 254]) }),
    residual: Some(3),
    activation: Activation::HardSwish,
};

pub(crate) const DYNAMIC: Int8Epilogue =
    Int8Epilogue::Dynamic { qparams: 7, sums: 1, scales: 2, bias: None, activation: Activation::None };

pub(crate) const F16: FloatFormat = FloatFormat::Half(Half::F16);

pub(crate) const BF16: FloatFormat = FloatFormat::Half(Half::Bf16);

pub(crate) const QUANTIZED: QuantizedFormat =
    QuantizedFormat { bits: Bits::Six, offsets: Offsets::Minima, scales: ScaleFormat::Products, group: 300 };

/// The bytes of a step: those of a program of one step, less the bytes before and after it.
fn bytes(step: &Step) -> Vec<u8> {
    let empty = CpuProgram::default().to_bytes();
    let bytes = CpuProgram { steps: vec![step.clone()], ..CpuProgram::default() }.to_bytes();
    // The program ends with the number of its names.
    let (before, after) = (empty.len() - 1, 1);
    assert_eq!(bytes[..before - 1], empty[..before - 1], "the bytes before the number of steps");
    bytes[before..bytes.len() - after].to_vec()
}

#[test]
fn steps_have_the_bytes_of_this_version() {
    for (step, expected) in examples() {
        let digits: Vec<String> = bytes(&step).iter().map(|byte| format!("{byte:02x}")).collect();
        let digits = digits.concat();
        assert_eq!(digits, expected, "{step:?}");
    }
}

#[test]
fn steps_are_read_as_they_were_written() {
    let steps = examples().into_iter().map(|(step, _)| step).collect();
    let program = CpuProgram { steps, ..CpuProgram::default() };
    let bytes = program.to_bytes();
    assert_eq!(CpuProgram::read(&bytes), Ok(program));
    for len in 0..bytes.len() {
        assert!(CpuProgram::read(&bytes[..len]).is_err(), "{len}");
    }
}
