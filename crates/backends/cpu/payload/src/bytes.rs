//! The bytes of steps of each kind. A payload that was written before is read as the same steps: a change of these bytes needs
//! another [`VERSION`].

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

/// Steps with all their parts, and their bytes in hexadecimal digits.
type Examples = Vec<(Step, &'static str)>;

const BIAS: Option<TensorId> = Some(4);

const ACTIVATION: Activation = Activation::LeakyRelu { slope: 0.5 };

const fn float_epilogue(residual: Residual) -> Epilogue {
    Epilogue { bias: BIAS, residual: Some(residual), activation: ACTIVATION }
}

const BEFORE: Epilogue = float_epilogue(Residual::BeforeActivation(5));

const AFTER: Epilogue = float_epilogue(Residual::AfterActivation(6));

const STATIC: Int8Epilogue = Int8Epilogue::Static {
    offsets: 1,
    scales: 2,
    bias: BIAS,
    fake_quantize: Some(FakeQuantize { activation: ACTIVATION, affine: Affine::new(0.5, 3, [1, 254]) }),
    residual: Some(3),
    activation: Activation::HardSwish,
};

const DYNAMIC: Int8Epilogue =
    Int8Epilogue::Dynamic { qparams: 7, sums: 1, scales: 2, bias: None, activation: Activation::None };

const F16: FloatFormat = FloatFormat::Half(Half::F16);

const BF16: FloatFormat = FloatFormat::Half(Half::Bf16);

const QUANTIZED: QuantizedFormat =
    QuantizedFormat { bits: Bits::Six, offsets: Offsets::Minima, scales: ScaleFormat::Products, group: 300 };

fn matmul() -> Examples {
    let step = |kind| Step::Matmul(Matmul { a: 1, b: 2, y: 3, kind });
    let format = GroupwiseFormat { is_four_bits: false, has_zeros: true, has_half_scales: false };
    let epilogue = GroupwiseEpilogue { qparams: 7, sums: 1, bias: BIAS, activation: Activation::Elu { alpha: 2.0 } };
    let clamp = Epilogue { activation: Activation::Clamp { min: -1.0, max: 6.0 }, ..Epilogue::default() };
    vec![
        (step(MatmulKind::Dense { transposed: true, epilogue: AFTER }), "0001020300010104010106020000003f"),
        (step(MatmulKind::Packed { format: BF16, epilogue: BEFORE }), "000102030101010104010005020000003f"),
        (step(MatmulKind::Packed { format: FloatFormat::F32, epilogue: clamp }), "000102030100000001000080bf0000c040"),
        (
            step(MatmulKind::WeightOnly { format: QUANTIZED, epilogue: AFTER }),
            "0001020302010202ac020104010106020000003f",
        ),
        (step(MatmulKind::Int8 { epilogue: STATIC }), "0001020303000102010401020000003f808080f8030301fe010303"),
        (step(MatmulKind::Int8 { epilogue: DYNAMIC }), "0001020303010701020000"),
        (step(MatmulKind::Groupwise { format, epilogue }), "0001020304000100070101040a00000040"),
    ]
}

fn convolution() -> Examples {
    let step = |kind| Step::Convolution(Convolution { x: 1, w: 2, y: 3, kind });
    let window = Window { kernel: [2, 3], stride: [1, 2], padding: [[0, 1], [4, 5]], dilation: [6, 7] };
    let volume = Window { kernel: [1, 2, 3], stride: [4, 5, 6], padding: [[1, 0]; 3], dilation: [7, 8, 9] };
    let (output_padding, groups, padding) = ([1, 0], 200, [[1, 2], [3, 4]]);
    vec![
        (
            step(ConvolutionKind::Direct { window, groups, format: F16, epilogue: BEFORE }),
            "010102030002030102000104050607c80101000104010005020000003f",
        ),
        (
            step(ConvolutionKind::Direct3d { window: volume, groups, format: FloatFormat::F32, epilogue: AFTER }),
            "0101020301010203040506010001000100070809c801000104010106020000003f",
        ),
        (
            step(ConvolutionKind::Depthwise { window, epilogue: BEFORE }),
            "0101020302020301020001040506070104010005020000003f",
        ),
        (
            step(ConvolutionKind::Transposed { window, output_padding, groups, format: BF16, epilogue: AFTER }),
            "0101020303020301020001040506070100c80101010104010106020000003f",
        ),
        (
            step(ConvolutionKind::Winograd { tile: Winograd::F2, padding, epilogue: AFTER }),
            "010102030400010203040104010106020000003f",
        ),
        (
            step(ConvolutionKind::Winograd { tile: Winograd::F4, padding, epilogue: BEFORE }),
            "010102030401010203040104010005020000003f",
        ),
        (
            step(ConvolutionKind::Int8Direct { window, groups, epilogue: STATIC }),
            "010102030502030102000104050607c801000102010401020000003f808080f8030301fe010303",
        ),
        (
            step(ConvolutionKind::Int8Depthwise { window, epilogue: DYNAMIC }),
            "010102030602030102000104050607010701020000",
        ),
        (
            step(ConvolutionKind::Int8Transposed { window, output_padding, groups, epilogue: DYNAMIC }),
            "0101020307020301020001040506070100c801010701020000",
        ),
    ]
}

/// All functions, activations and operands.
fn elementwise() -> Examples {
    use Binary::{Add, And, Div, Eq, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Or, Pow, Sub};
    use Unary::{
        Abs, Ceil, Cos, Erf, Exp, Expm1, Floor, Identity, IsNan, Log, Log1p, Neg, Not, Reciprocal, Round, RoundBf16,
        RoundF16, Rsqrt, Sigmoid, Sin, Sqrt, Square, Tanh, Trunc,
    };
    let unary = [
        Identity, Neg, Abs, Sqrt, Rsqrt, Reciprocal, Square, Exp, Log, Sin, Cos, Tanh, Sigmoid, Erf, Floor, Ceil,
        Round, Trunc, Not, IsNan, Log1p, Expm1, RoundF16, RoundBf16,
    ];
    let binary = [Add, Sub, Mul, Div, Max, Min, Pow, Eq, Ne, Lt, Le, Gt, Ge, And, Or];
    let activations = [
        Activation::None,
        Activation::Clamp { min: -1.0, max: 6.0 },
        Activation::LeakyRelu { slope: 0.5 },
        Activation::HardSwish,
        Activation::HardSigmoid,
        Activation::Sigmoid,
        Activation::Silu,
        Activation::Tanh,
        Activation::GeluErf,
        Activation::GeluTanh,
        Activation::Elu { alpha: 2.0 },
    ];
    let (x, a, b) = (Operand::Tensor(1), Operand::Register(2), Operand::Constant(-0.5));
    let step = |instructions| Step::Elementwise(Elementwise { operands: vec![1, 300], y: 2, instructions });
    vec![
        (
            step(unary.map(|function| Instruction::Unary { to: 3, function, x }).to_vec()),
            "020201ac0202180003000101000301010100030201010003030101000304010100030501010003060101000307010100\
             03080101000309010100030a010100030b010100030c010100030d010100030e010100030f0101000310010100031101\
             01000312010100031301010003140101000315010100031601010003170101",
        ),
        (
            step(binary.map(|function| Instruction::Binary { to: 3, function, a, b }).to_vec()),
            "020201ac02020f010300000202000000bf010301000202000000bf010302000202000000bf010303000202000000bf01\
             0304000202000000bf010305000202000000bf010306000202000000bf010307000202000000bf010308000202000000\
             bf010309000202000000bf01030a000202000000bf01030b000202000000bf01030c000202000000bf01030d00020200\
             0000bf01030e000202000000bf",
        ),
        (
            step(activations.map(|activation| Instruction::Activate { to: 3, activation, x }).to_vec()),
            "020201ac02020b0303000101030301000080bf0000c04001010303020000003f01010303030101030304010103030501\
             01030306010103030701010303080101030309010103030a000000400101",
        ),
        (step(vec![Instruction::Select { to: 3, condition: x, a, b }]), "020201ac02020102030101000202000000bf"),
    ]
}

fn pooling() -> Examples {
    let (kernel, stride, padding, dilation) = ([1, 2], [3, 4], [[5, 6], [7, 8]], [9, 10]);
    let step = |kind| Step::Pooling(Pooling { kind, x: 1, y: 2, kernel, stride, padding, dilation });
    let average = AveragePool { count_include_pad: true, divisor_override: Some(5) };
    vec![
        (step(PoolKind::Max), "030001020102030405060708090a"),
        (step(PoolKind::Average(average)), "030101010501020102030405060708090a"),
    ]
}

fn reduce() -> Examples {
    let step = |op| Step::Reduce(Reduce { op, x: 1, y: 2, first: 3, count: 4 });
    vec![
        (step(Reduction::Sum), "040001020304"),
        (step(Reduction::Mean), "040101020304"),
        (step(Reduction::Max), "040201020304"),
        (step(Reduction::Min), "040301020304"),
    ]
}

fn softmax() -> Examples {
    vec![(Step::Softmax { x: 1, y: 2, log: true }, "05010201")]
}

fn normalization() -> Examples {
    let step = Normalization { x: 1, y: 2, weight: Some(3), bias: None, dims: 4, eps: 0.5, centered: true };
    vec![(Step::Normalization(step), "060102010300040000003f01")]
}

fn copy() -> Examples {
    let step = Copy {
        x: 1,
        y: 2,
        sizes: vec![Size::Fixed(300), Size::Computed(1)],
        x_offset: Size::Fixed(3),
        x_strides: vec![Size::Fixed(4), Size::Fixed(5)],
        y_offset: Size::Computed(6),
        y_strides: vec![Size::Fixed(7), Size::Fixed(8)],
        fill: Some(0.5),
    };
    vec![(Step::Copy(step), "0701020200ac0201010003020004000501060200070008010000003f")]
}

fn gather() -> Examples {
    let step = |format| Step::Gather(Gather { table: 1, format, indices: 2, y: 3 });
    let quantized = TableFormat::Quantized { format: QUANTIZED, rows: 9 };
    vec![(step(TableFormat::F32), "0801000203"), (step(quantized), "080101010202ac02090203")]
}

fn attention() -> Examples {
    let step = |format, mask, causal| {
        let size = Size::Fixed;
        Step::Attention(Attention {
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
        })
    };
    let rows = [RowQparams { scales: 18, zeros: 19 }, RowQparams { scales: 20, zeros: 21 }];
    vec![
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

fn resize() -> Examples {
    let step = |mode, scales| Step::Resize(Resize { x: 1, y: 2, mode, align_corners: true, scales });
    vec![
        (step(ResizeMode::Nearest, [None; 2]), "0a010200010000"),
        (step(ResizeMode::Bilinear, [Some(0.5), Some(2.0)]), "0a01020101010000003f0100000040"),
    ]
}

fn convert() -> Examples {
    let step = |element, direction| Step::Convert(Convert { x: 1, y: 2, element, direction });
    vec![
        (step(ConvertedType::Half(Half::F16), Direction::Enter), "0b0102000000"),
        (step(ConvertedType::Half(Half::Bf16), Direction::Leave), "0b0102000101"),
        (step(ConvertedType::Bool, Direction::Enter), "0b01020100"),
        (step(ConvertedType::Int8, Direction::Enter), "0b01020200"),
        (step(ConvertedType::Uint8, Direction::Enter), "0b01020300"),
        (step(ConvertedType::Int64, Direction::Enter), "0b01020400"),
    ]
}

fn choose_qparams() -> Examples {
    let step = |rule| Step::ChooseQparams(ChooseQparams { x: 1, y: 2, rule, per_tensor: true, range: [1, 254] });
    vec![
        (step(ZeroPointRule::FromMin { eps: 0.25 }), "0c0102000000803e0101fe"),
        (step(ZeroPointRule::MinError), "0c0102010101fe"),
        (step(ZeroPointRule::Inverse { half: None }), "0c010202000101fe"),
        (step(ZeroPointRule::Inverse { half: Some(Half::F16) }), "0c01020201000101fe"),
    ]
}

fn quantize_rows() -> Examples {
    vec![(Step::QuantizeRows(QuantizeRows { x: 1, qparams: 2, y: 3, range: [1, 254] }), "0d01020301fe")]
}

fn scatter() -> Examples {
    let size = Size::Fixed;
    let step = Scatter {
        x: 1,
        y: 2,
        indices: 3,
        dim_size: size(4),
        sizes: vec![size(5), size(6)],
        x_offset: size(7),
        x_step: size(8),
        x_strides: vec![size(9), size(10)],
        y_offset: size(11),
        y_step: size(12),
        y_strides: vec![size(13), size(14)],
    };
    vec![(Step::Scatter(step), "0e0102030004020005000600070008020009000a000b000c02000d000e")]
}

fn nibbles() -> Examples {
    vec![(Step::PackNibbles { x: 1, y: 2 }, "0f0102"), (Step::UnpackNibbles { x: 1, y: 2 }, "100102")]
}

fn experts() -> Examples {
    let kind = MatmulKind::Packed { format: FloatFormat::F32, epilogue: Epilogue::default() };
    let matmul = Matmul { a: 1, b: 2, y: 3, kind };
    vec![(Step::Experts(Experts { matmul, index: 4, count: 5 }), "1101020301000000000405")]
}

fn top_k() -> Examples {
    vec![(Step::TopK { x: 1, y: 2 }, "120102")]
}

fn gather_elements() -> Examples {
    vec![(Step::GatherElements { x: 1, index: 2, y: 3 }, "13010203")]
}

fn delta_rule() -> Examples {
    vec![(Step::DeltaRule(DeltaRule { q: 1, k: 2, v: 3, decay: 4, beta: 5, state: 6, y: 7 }), "1401020304050607")]
}

fn examples() -> Examples {
    let all = [
        matmul(),
        convolution(),
        elementwise(),
        pooling(),
        reduce(),
        softmax(),
        normalization(),
        copy(),
        gather(),
        attention(),
        resize(),
        convert(),
        choose_qparams(),
        quantize_rows(),
        scatter(),
        nibbles(),
        experts(),
        top_k(),
        gather_elements(),
        delta_rule(),
    ];
    all.into_iter().flatten().collect()
}

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
    assert_eq!(codec::read(&bytes), Ok(program));
    for len in 0..bytes.len() {
        assert!(codec::read(&bytes[..len]).is_err(), "{len}");
    }
}
