//! Payloads that are accepted, and payloads that are refused.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use rushlight_format::ScalarType;

use super::*;

mod work;

fn program() -> CpuProgram {
    let tensor = |buffer, dims: &[Size]| Tensor {
        dtype: ScalarType::Float,
        buffer,
        offset: Size::Fixed(0),
        dims: dims.to_vec(),
        affine: None,
    };
    let rows = Size::Computed(0);
    let activation = Activation::Clamp { min: 0.0, max: 6.0 };
    let epilogue = Epilogue { bias: Some(4), activation, ..Epilogue::default() };
    let kind = MatmulKind::Packed { format: FloatFormat::F32, epilogue };
    let double = Instruction::Binary { to: 0, function: Binary::Add, a: Operand::Tensor(0), b: Operand::Tensor(0) };
    CpuProgram {
        sizes: vec![SizeOp::Input { input: 0, dim: 0 }, SizeOp::Fixed(-3), SizeOp::Max(0, 1)],
        buffers: vec![
            Buffer::Input(0),
            Buffer::Output(0),
            Buffer::Arena { offset: 0, len: 32 },
            Buffer::Blob(0),
            Buffer::Inline { offset: 1, len: 4 },
            Buffer::State(0),
        ],
        tensors: vec![
            tensor(0, &[rows, Size::Fixed(3)]),
            tensor(1, &[rows, Size::Fixed(4)]),
            tensor(2, &[rows, Size::Fixed(4)]),
            tensor(3, &[Size::Fixed(64)]),
            tensor(4, &[Size::Fixed(4)]),
            tensor(5, &[Size::Fixed(2), Size::Fixed(4)]),
        ],
        inputs: vec![0],
        outputs: vec![1],
        output_sizes: vec![vec![rows, Size::Fixed(4)]],
        blobs: vec!["weights".into()],
        states: vec![State { key: "cache".into(), len: 8, initial: 0, is_cache: true }],
        inline_floats: vec![0.0, 1.0, -2.0, f32::INFINITY, 0.5],
        arena: 32,
        scratch: 7,
        steps: vec![
            Step::Matmul(Matmul { a: 0, b: 3, y: 2, kind }),
            Step::Elementwise(Elementwise { operands: vec![2], y: 1, instructions: vec![double] }),
        ],
        names: vec!["linear".into(), "add".into()],
    }
}

fn fault(change: impl FnOnce(&mut CpuProgram)) -> PayloadError {
    let mut program = program();
    change(&mut program);
    CpuProgram::parse(&program.to_bytes()).expect_err("the program is wrong")
}

#[test]
fn what_is_written_is_read() {
    let program = program();
    assert_eq!(CpuProgram::parse(&program.to_bytes()), Ok(program));
}

#[test]
fn another_version_is_refused_with_both() {
    let mut bytes = program().to_bytes();
    bytes[3] = b'7';
    let error = CpuProgram::parse(&bytes).expect_err("an older version");
    assert_eq!(error.fault, PayloadFault::Version { expected: VERSION, got: 7 });
    assert_eq!(error.to_string(), format!("version 7 of the CPU payload; this runtime reads version {VERSION}"));
}

#[test]
fn every_truncation_is_refused() {
    let bytes = program().to_bytes();
    for len in 0..bytes.len() {
        assert!(CpuProgram::parse(&bytes[..len]).is_err(), "{len}");
    }
}

/// A program whose only step is attention over int8 rows in a state.
fn attention(format: KeyValueFormat) -> CpuProgram {
    let mut program = program();
    let affine = Some(Affine::new(1.0, 128, [0, 255]));
    program.tensors[5] = Tensor { dtype: ScalarType::Byte, affine, ..program.tensors[5].clone() };
    let (q, k, v, y, one) = (0, 5, 5, 1, Size::Fixed(1));
    let [batch, heads, groups, rows, value_depth] = [one; 5];
    let step = Attention { q, k, v, format, y, batch, heads, groups, rows, value_depth, ..work::attention(1, 1) };
    program.steps = vec![Step::Attention(step)];
    program.names.clear();
    program
}

/// A program whose only step copies the state, as f16, to its place in the arena, as another type.
fn moved(to: ScalarType, step: impl Fn(u32, u32) -> Step) -> Result<(), PayloadFault> {
    let mut program = program();
    program.tensors[5].dtype = ScalarType::Half;
    // A state holds two 16-bit elements in each float.
    program.tensors[5].dims = vec![Size::Fixed(16)];
    program.tensors[2] = Tensor { dtype: to, dims: vec![Size::Fixed(16)], ..program.tensors[2].clone() };
    program.steps = vec![step(5, 2)];
    program.names.clear();
    CpuProgram::parse(&program.to_bytes()).map(drop).map_err(|error| error.fault)
}

#[test]
fn floats_of_16_bits_are_moved_and_converted_and_nothing_else() {
    let copy = |x, y| {
        let (zero, one) = (Size::Fixed(0), vec![Size::Fixed(1)]);
        let (x_strides, y_strides) = (one.clone(), one.clone());
        Step::Copy(Copy { x, y, sizes: one, x_offset: zero, x_strides, y_offset: zero, y_strides, fill: None })
    };
    let convert =
        |direction| move |x, y| Step::Convert(Convert { x, y, element: ConvertedType::Half(Half::F16), direction });
    let (half, float) = (ScalarType::Half, ScalarType::Float);
    let dtype = |expected, got| Err(PayloadFault::Dtype { expected, got });
    assert_eq!(moved(half, copy), Ok(()));
    assert_eq!(moved(ScalarType::BFloat16, copy), dtype(ScalarType::BFloat16, half));
    assert_eq!(moved(float, copy), dtype(float, half));
    assert_eq!(moved(float, convert(Direction::Enter)), Ok(()));
    assert_eq!(moved(half, convert(Direction::Enter)), dtype(float, half));
    assert_eq!(moved(float, |x, y| Step::Softmax(Softmax { x, y, log: false })), dtype(float, half));
    // One element more than there is room for.
    let mut program = program();
    program.tensors[5] = Tensor { dtype: half, dims: vec![Size::Fixed(17)], ..program.tensors[5].clone() };
    let error = CpuProgram::parse(&program.to_bytes()).expect_err("17 elements in 8 floats");
    assert_eq!(error.fault, PayloadFault::Beyond { end: 17, len: 16 });
}

#[test]
fn gemms_of_experts_have_whole_panels_for_each_and_no_bias() {
    let parse = |count: u32, columns: u64, bias: Option<TensorId>| {
        let mut program = program();
        let fixed = |dims: &[u64]| dims.iter().map(|size| Size::Fixed(*size)).collect::<Vec<_>>();
        // Rows of 4 by the columns of two experts.
        program.buffers[2] = Buffer::Arena { offset: 0, len: 64 };
        program.arena = 64;
        program.tensors[3].dims = fixed(&[4 * 16 * 2]);
        program.tensors[2].dims = fixed(&[2, columns]);
        let format = FloatFormat::F32;
        let kind = MatmulKind::Packed { format, epilogue: Epilogue { bias, ..Epilogue::default() } };
        let matmul = Matmul { a: 5, b: 3, y: 2, kind };
        program.steps = vec![Step::Experts(Experts { matmul, index: 4, count })];
        program.names.clear();
        CpuProgram::parse(&program.to_bytes()).map(drop).map_err(|error| error.fault)
    };
    assert_eq!(parse(2, 16, None), Ok(()));
    assert_eq!(parse(0, 16, None), Err(PayloadFault::Zero(Nonzero::Experts)));
    assert_eq!(parse(2, 15, None), Err(PayloadFault::Experts));
    assert_eq!(parse(2, 16, Some(4)), Err(PayloadFault::Experts));
    assert_eq!(parse(3, 16, None), Err(PayloadFault::WeightSize { expected: 4 * 16 * 3, got: 4 * 16 * 2 }));
}

#[test]
fn quantized_rows_have_scales_and_zero_points() {
    let rows = |scales, zeros| RowQparams { scales, zeros };
    let parse = |program: CpuProgram| CpuProgram::parse(&program.to_bytes());
    let right = attention(KeyValueFormat::Int8([rows(4, 5); 2]));
    assert_eq!(parse(right.clone()), Ok(right.clone()));
    let wrong = [[rows(5, 5), rows(4, 5)], [rows(4, 5), rows(4, 4)]].map(KeyValueFormat::Int4);
    for wrong in wrong.into_iter().chain([KeyValueFormat::Floats]) {
        let error = parse(attention(wrong)).expect_err("types that do not belong together");
        assert_eq!(error, PayloadError { fault: PayloadFault::MixedTypes, site: PayloadSite::Step(0) });
    }
    // A state holds four bytes in each float.
    let mut beyond = right;
    beyond.tensors[5].dims = vec![Size::Fixed(32)];
    assert!(parse(beyond.clone()).is_ok());
    beyond.tensors[5].dims = vec![Size::Fixed(33)];
    let error = parse(beyond).expect_err("33 bytes in 8 floats");
    assert_eq!(error.fault, PayloadFault::Beyond { end: 33, len: 32 });
}

#[test]
fn what_contradicts_itself_is_refused() {
    assert_eq!(fault(|program| program.tensors[2].buffer = 9).site, PayloadSite::Tensor(2));
    assert_eq!(fault(|program| program.tensors[4].dims = vec![Size::Fixed(5)]).site, PayloadSite::Tensor(4));
    assert_eq!(fault(|program| program.buffers[2] = Buffer::Arena { offset: 1, len: 32 }).site, PayloadSite::Buffer(2));
    assert_eq!(fault(|program| program.inputs[0] = 2).site, PayloadSite::Input(0));
    // A step reads a tensor that no step has written, and a step writes an input.
    assert_eq!(fault(|program| program.steps.swap(0, 1)).site, PayloadSite::Step(0));
    let write_input = |program: &mut CpuProgram| {
        program.steps[0] = Step::Softmax(Softmax { x: 0, y: 0, log: false });
    };
    assert_eq!(fault(write_input).site, PayloadSite::Step(0));
    // Bytes of floats, and logarithms of bytes.
    let with_bytes = |index: usize, step: Step| {
        fault(move |program: &mut CpuProgram| {
            let affine = Some(Affine::new(0.5, 3, [0, 255]));
            program.tensors[2] = Tensor { dtype: ScalarType::Byte, affine, ..program.tensors[2].clone() };
            program.steps[index] = step;
        })
    };
    let (mode, align_corners, scales) = (ResizeMode::Nearest, false, [None; 2]);
    let resize = Step::Resize(Resize { x: 0, y: 2, mode, align_corners, scales });
    assert_eq!(with_bytes(0, resize).fault, PayloadFault::MixedTypes);
    assert_eq!(with_bytes(0, Step::Softmax(Softmax { x: 0, y: 2, log: false })).fault, PayloadFault::MixedTypes);
    assert_eq!(with_bytes(1, Step::Softmax(Softmax { x: 2, y: 2, log: true })).fault, PayloadFault::MixedTypes);
    let element = SizeOp::Element { input: 1, index: 0, min: 0, max: 3 };
    assert_eq!(fault(move |program| program.sizes[1] = element).site, PayloadSite::Size(1));
    assert_eq!(fault(|program| program.states.clear()).site, PayloadSite::Buffer(5));
    assert_eq!(fault(|program| program.tensors[5].dims[0] = Size::Fixed(3)).site, PayloadSite::Tensor(5));
    assert_eq!(fault(|program| program.tensors[5].dtype = ScalarType::Byte).site, PayloadSite::Tensor(5));
    assert_eq!(
        fault(|program| program.states.extend(program.states.clone())).fault,
        PayloadFault::SameState { state: 1 }
    );
    assert_eq!(
        fault(|program| program.sizes[2] = SizeOp::Max(0, 2)),
        PayloadError { fault: PayloadFault::Index { list: List::Sizes, index: 2, len: 2 }, site: PayloadSite::Size(2) }
    );
}

/// A step between the input and the output, tensors 0 and 1.
fn fault_of(step: Step) -> PayloadFault {
    let error = fault(move |program| program.steps[1] = step);
    assert_eq!(error.site, PayloadSite::Step(1));
    error.fault
}

#[test]
fn each_fault_says_what_is_wrong() {
    let of = |change: fn(&mut CpuProgram)| fault(change).fault;
    assert_eq!(of(|program| program.tensors[4].dims = vec![Size::Fixed(5)]), PayloadFault::Beyond { end: 5, len: 4 });
    assert_eq!(of(|program| program.arena = 31), PayloadFault::Beyond { end: 32, len: 31 });
    let limit = isize::MAX as u64 / 8;
    assert_eq!(fault(|program| program.scratch = limit).fault, PayloadFault::TooLarge { size: limit, limit });
    assert_eq!(of(|program| program.inputs[0] = 2), PayloadFault::Memory);
    assert_eq!(of(|program| program.steps.swap(0, 1)), PayloadFault::Unwritten { tensor: 2 });
    assert_eq!(
        of(|program| program.tensors[2].dtype = ScalarType::Byte),
        PayloadFault::Quantized { dtype: ScalarType::Byte }
    );
    for affine in [Affine::new(0.0, 3, [0, 255]), Affine::new(f32::NAN, 3, [0, 255]), Affine::new(1.0, 3, [9, 8])] {
        let change = move |program: &mut CpuProgram| {
            program.tensors[2].dtype = ScalarType::Byte;
            program.tensors[2].affine = Some(affine);
        };
        assert_eq!(fault(change).fault, PayloadFault::Affine, "{affine:?}");
    }
    assert_eq!(
        of(|program| program.names.push("third".into())),
        PayloadFault::Count { what: Counted::Names, got: 3, limit: 2 }
    );
    assert_eq!(
        of(|program| program.tensors[1].dims = vec![Size::Fixed(1); 99]),
        PayloadFault::Count { what: Counted::Dimensions, got: 99, limit: rushlight_format::MAX_RANK as u64 }
    );
    assert_eq!(fault_of(Step::Softmax(Softmax { x: 2, y: 3, log: false })), PayloadFault::Constant { tensor: 3 });
}

#[test]
fn each_fault_of_a_step_says_what_is_wrong() {
    let elementwise = |instructions: Vec<Instruction>| {
        fault_of(Step::Elementwise(Elementwise { operands: vec![2], y: 1, instructions }))
    };
    assert_eq!(elementwise(vec![]), PayloadFault::NoInstructions);
    let neg = |x| Instruction::Unary { to: 0, function: Unary::Neg, x };
    assert_eq!(elementwise(vec![neg(Operand::Register(1))]), PayloadFault::Register { register: 1 });
    assert_eq!(
        elementwise(vec![neg(Operand::Tensor(1))]),
        PayloadFault::Index { list: List::Operands, index: 1, len: 1 }
    );
    let copy = |sizes: &[u64], strides: &[u64]| {
        let fixed = |sizes: &[u64]| sizes.iter().map(|size| Size::Fixed(*size)).collect::<Vec<_>>();
        fault_of(Step::Copy(Copy {
            x: 2,
            y: 1,
            sizes: fixed(sizes),
            x_offset: Size::Fixed(0),
            x_strides: fixed(strides),
            y_offset: Size::Fixed(0),
            y_strides: fixed(&vec![0; sizes.len()]),
            fill: None,
        }))
    };
    assert_eq!(copy(&[4, 4], &[1]), PayloadFault::Ranks { expected: 2, got: 1 });
    let range = ChooseQparams { x: 2, y: 1, rule: ZeroPointRule::MinError, per_tensor: false, range: [4, 4] };
    assert_eq!(fault_of(Step::ChooseQparams(range)), PayloadFault::Zero(Nonzero::Range));
}

const WINDOW: Window<2> = Window { kernel: [2, 3], stride: [1, 2], padding: [[0, 1]; 2], dilation: [1, 1] };

#[test]
fn converted_types_are_found_by_their_elements() {
    for dtype in [ScalarType::Half, ScalarType::BFloat16, ScalarType::Bool, ScalarType::Char, ScalarType::Byte] {
        assert_eq!(ConvertedType::of(dtype).map(ConvertedType::dtype), Some(dtype));
    }
}

/// The fault of a step between an image `[1, 9, 9, 6]` (0), its weights (1), and its result `[1, 9, 9, 4]` (2). All but
/// the weights are f32, and the image is u8 if `is_quantized`. Bias and other parts are tensor 3.
fn fault_of_types(dtype: ScalarType, weights: u64, is_quantized: bool, step: Step) -> Result<(), PayloadFault> {
    let tensor = |dtype, buffer, dims: &[u64], affine| Tensor {
        dtype,
        buffer,
        offset: Size::Fixed(0),
        dims: dims.iter().map(|size| Size::Fixed(*size)).collect(),
        affine,
    };
    let affine = is_quantized.then(|| Affine::new(0.5, 3, [0, 255]));
    let x = if is_quantized { ScalarType::Byte } else { ScalarType::Float };
    let arena = |offset, len| Buffer::Arena { offset, len };
    let mut before: Vec<Step> = Vec::new();
    // The image must be written first.
    let qparams = 3;
    before.push(if is_quantized {
        Step::QuantizeRows(QuantizeRows { x: 4, qparams, y: 0, range: [0, 255] })
    } else {
        Step::Softmax(Softmax { x: 4, y: 0, log: false })
    });
    let program = CpuProgram {
        buffers: vec![arena(0, 486), Buffer::Blob(0), arena(486, 324), Buffer::Blob(1), Buffer::Input(0)],
        tensors: vec![
            tensor(x, 0, &[1, 9, 9, 6], affine),
            tensor(dtype, 1, &[weights], None),
            tensor(ScalarType::Float, 2, &[1, 9, 9, 4], None),
            tensor(ScalarType::Float, 3, &[8], None),
            tensor(ScalarType::Float, 4, &[1, 9, 9, 6], None),
        ],
        inputs: vec![4],
        blobs: vec!["weights".into(), "others".into()],
        arena: 810,
        steps: before.into_iter().chain([step]).collect(),
        ..CpuProgram::default()
    };
    CpuProgram::parse(&program.to_bytes()).map(drop).map_err(|error| error.fault)
}

/// Checks that weights of this type and size are accepted, and that another type, size or left side is refused.
fn assert_format(step: impl Fn() -> Step, dtype: ScalarType, len: u64, is_quantized: bool) {
    assert_eq!(fault_of_types(dtype, len, is_quantized, step()), Ok(()), "{:?}", step());
    let mixed = fault_of_types(dtype, len, !is_quantized, step());
    assert_eq!(mixed, Err(PayloadFault::MixedTypes), "{:?}", step());
    let got = ScalarType::Double;
    let fault = fault_of_types(got, len, is_quantized, step());
    assert_eq!(fault, Err(PayloadFault::Dtype { expected: dtype, got }), "{:?}", step());
    for got in [len - 1, len + 1] {
        let fault = fault_of_types(dtype, got, is_quantized, step());
        assert_eq!(fault, Err(PayloadFault::WeightSize { expected: len, got }), "{:?}", step());
    }
}

#[test]
fn weights_are_of_their_format() {
    let (epilogue, activation) = (Epilogue::default(), Activation::None);
    let int8 = [
        Int8Epilogue::Dynamic { qparams: 3, sums: 3, scales: 3, bias: None, activation },
        Int8Epilogue::Static { offsets: 3, scales: 3, bias: None, fake_quantize: None, residual: None, activation },
    ];
    let formats = [FloatFormat::F32, FloatFormat::Half(Half::F16), FloatFormat::Half(Half::Bf16)];
    let matmul = |kind| move || Step::Matmul(Matmul { a: 0, b: 1, y: 2, kind });
    let convolution = |kind| move || Step::Convolution(Convolution { x: 0, w: 1, y: 2, kind });
    // The sizes of panels of 16 columns, computed by hand.
    let (window, output_padding) = (WINDOW, [0; 2]);
    let volume = Window { kernel: [1, 2, 3], stride: [1; 3], padding: [[0; 2]; 3], dilation: [1; 3] };
    for format in formats {
        let dtype = format.dtype();
        assert_format(matmul(MatmulKind::Packed { format, epilogue }), dtype, 6 * 16, false);
        let direct = ConvolutionKind::Direct { window, groups: 2, format, epilogue };
        assert_format(convolution(direct), dtype, 2 * 6 * 3 * 16, false);
        // Two phases along the width, of two taps and one.
        let transposed = ConvolutionKind::Transposed { window, output_padding, groups: 1, format, epilogue };
        assert_format(convolution(transposed), dtype, (4 + 2) * 6 * 16, false);
        let direct = ConvolutionKind::Direct3d { window: volume, groups: 1, format, epilogue };
        assert_format(convolution(direct), dtype, 6 * 6 * 16, false);
    }
    let (float, byte, char) = (ScalarType::Float, ScalarType::Byte, ScalarType::Char);
    assert_format(convolution(ConvolutionKind::Depthwise { window, epilogue }), float, 6 * 6, false);
    let winograd = |tile| ConvolutionKind::Winograd { tile, padding: [[1; 2]; 2], epilogue };
    assert_format(convolution(winograd(Winograd::F2)), float, 16 * 6 * 16, false);
    assert_format(convolution(winograd(Winograd::F4)), float, 36 * 6 * 16, false);
    for epilogue in int8 {
        assert_format(matmul(MatmulKind::Int8 { epilogue }), char, 8 * 16, true);
        let direct = ConvolutionKind::Int8Direct { window, groups: 2, epilogue };
        assert_format(convolution(direct), char, 2 * 6 * 4 * 16, true);
        let depthwise = ConvolutionKind::Int8Depthwise { window, epilogue };
        assert_format(convolution(depthwise), char, 4 * 3 * 16, true);
        let transposed = ConvolutionKind::Int8Transposed { window, output_padding, groups: 1, epilogue };
        assert_format(convolution(transposed), char, (4 + 2) * 8 * 16, true);
        // Two rows of the kernel, of three times six channels, which are padded to 20.
        let direct = ConvolutionKind::Int8Direct3d { window: volume, groups: 1, epilogue };
        assert_format(convolution(direct), char, 2 * 20 * 16, true);
    }
    // A header, then 16 scales for each group of rows, and 16 zero points or minima if there are any.
    for (bits, weights) in [(Bits::Four, 6 * 16 / 2), (Bits::Eight, 6 * 16)] {
        for (scales, size) in [(ScaleFormat::F32, 64), (ScaleFormat::F16, 32)] {
            for (offsets, more) in [(Offsets::None, 0), (Offsets::ZeroPoints, 16), (Offsets::Minima, size)] {
                let format = QuantizedFormat { bits, offsets, scales, group: 2 };
                let len = 16 + weights + 3 * (size + more);
                assert_format(matmul(MatmulKind::WeightOnly { format, epilogue }), byte, len, false);
            }
        }
    }
}

/// The left side of groupwise quantized weights has a multiple of 32 columns.
#[test]
fn group_wise_quantized_weights_are_of_their_format() {
    let epilogue = GroupwiseEpilogue { qparams: 3, sums: 3, bias: None, activation: Activation::None };
    let fault = |format, len: u64| {
        let tensor = |dtype, buffer, dims: &[u64], affine| Tensor {
            dtype,
            buffer,
            offset: Size::Fixed(0),
            dims: dims.iter().map(|size| Size::Fixed(*size)).collect(),
            affine,
        };
        let affine = Some(Affine::new(1.0, 0, [0, 255]));
        let program = CpuProgram {
            buffers: vec![
                Buffer::Input(0),
                Buffer::Blob(0),
                Buffer::Arena { offset: 0, len: 32 },
                Buffer::Output(0),
                Buffer::Inline { offset: 0, len: 4 },
            ],
            tensors: vec![
                tensor(ScalarType::Float, 0, &[2, 64], None),
                tensor(ScalarType::Byte, 1, &[len], None),
                tensor(ScalarType::Byte, 2, &[2, 64], affine),
                tensor(ScalarType::Float, 4, &[2, 2], None),
                tensor(ScalarType::Float, 3, &[2, 4], None),
            ],
            inputs: vec![0],
            outputs: vec![4],
            output_sizes: vec![vec![Size::Fixed(2), Size::Fixed(4)]],
            blobs: vec!["weights".into()],
            inline_floats: vec![1.0; 4],
            arena: 32,
            steps: vec![
                Step::QuantizeRows(QuantizeRows { x: 0, qparams: 3, y: 2, range: [0, 255] }),
                Step::Matmul(Matmul { a: 2, b: 1, y: 4, kind: MatmulKind::Groupwise { format, epilogue } }),
            ],
            ..CpuProgram::default()
        };
        CpuProgram::parse(&program.to_bytes()).map(drop).map_err(|error| error.fault)
    };
    for (is_four_bits, weights) in [(true, 64 * 16 / 2), (false, 64 * 16)] {
        for (has_half_scales, scales) in [(false, 2 * 64), (true, 64)] {
            for (has_zeros, zeros) in [(false, 0), (true, 2 * 16)] {
                let format = GroupwiseFormat { is_four_bits, has_zeros, has_half_scales };
                let expected = weights + scales + zeros;
                assert_eq!(fault(format, expected), Ok(()), "{format:?}");
                let got = expected + 1;
                assert_eq!(fault(format, got), Err(PayloadFault::WeightSize { expected, got }), "{format:?}");
            }
        }
    }
}

#[test]
fn converted_types_and_indices_are_those_of_the_tensors() {
    let convert = |element, direction| Step::Convert(Convert { x: 0, y: 1, element, direction });
    let half = ConvertedType::Half(Half::F16);
    let dtype = |expected| PayloadFault::Dtype { expected, got: ScalarType::Float };
    assert_eq!(fault_of(convert(half, Direction::Enter)), dtype(ScalarType::Half));
    assert_eq!(fault_of(convert(ConvertedType::Bool, Direction::Leave)), dtype(ScalarType::Bool));
    let mixed = |program: &mut CpuProgram| {
        program.tensors[0].dtype = ScalarType::Char;
        program.steps[0] = convert(ConvertedType::Int8, Direction::Enter);
    };
    assert_eq!(fault(mixed).fault, PayloadFault::MixedTypes);
    let integers = |program: &mut CpuProgram| {
        program.tensors[0].dtype = ScalarType::Long;
        let rule = DeltaRule { q: 4, k: 4, v: 4, decay: 4, beta: 0, state: 5, y: 2 };
        program.steps[0] = Step::DeltaRule(rule);
    };
    let expected = ScalarType::Float;
    assert_eq!(fault(integers).fault, PayloadFault::Dtype { expected, got: ScalarType::Long });
    let gather = |format| Step::Gather(Gather { table: 3, format, indices: 0, y: 1 });
    let of_bytes = |program: &mut CpuProgram| {
        program.tensors[0].dtype = ScalarType::Bool;
        program.steps[0] = gather(TableFormat::F32);
    };
    let expected = PayloadFault::Dtype { expected: ScalarType::Long, got: ScalarType::Bool };
    assert_eq!(fault(of_bytes).fault, expected);
    assert_eq!(fault_of(convert(ConvertedType::Int64, Direction::Enter)), dtype(ScalarType::Long));
    let table = |dtype, format| {
        let error = fault(move |program| {
            program.tensors[0].dtype = ScalarType::Int;
            program.tensors[3].dtype = dtype;
            program.steps = vec![gather(format)];
            program.names.clear();
        });
        error.fault
    };
    let format = QuantizedFormat { bits: Bits::Eight, offsets: Offsets::None, scales: ScaleFormat::F32, group: 4 };
    let quantized = TableFormat::Quantized { format, rows: 16 };
    let (expected, got) = (ScalarType::Float, ScalarType::Byte);
    assert_eq!(table(got, TableFormat::F32), PayloadFault::Dtype { expected, got });
    let (expected, got) = (16 + 64 + 4 * 16, 64);
    assert_eq!(table(ScalarType::Byte, quantized), PayloadFault::WeightSize { expected, got });
}
