//! Programs that are wrong in one place, and the error each must give.

use rushlight_format::pte::{
    DelegateModel, Device, DeviceType, InstructionModel, PlanModel, ProgramModel, ShapeDynamism, StorageModel,
    TensorModel, ValueModel, WriteOptions,
};
use rushlight_format::{Blob, ErrorKind, FormatError, Program, ScalarType};

/// A program with an example of everything: `forward(x) = add(x, constant) + state`, a jump, a delegate.
fn program() -> ProgramModel<'static> {
    let mut program = ProgramModel::new();
    let weight = program.constant(vec![0; 24]);
    let initial = program.initial_value(vec![1; 24]);
    program.named_data.push(("key".into(), vec![7; 40].into()));

    let mut plan = PlanModel::new("forward");
    let tensor = TensorModel::new(ScalarType::Float, &[2, 3]);
    let x = plan.input(tensor.clone());
    let planned = plan.planned(tensor.clone());
    let StorageModel::Planned { memory_id, offset } = planned.storage else { unreachable!() };
    let w = plan.push(tensor.clone().stored(StorageModel::Constant { index: weight }));
    let state = plan.push(tensor.clone().stored(StorageModel::PlannedInit { memory_id, offset, index: initial }));
    let alpha = plan.push(1);
    let result = plan.planned(tensor.clone());
    let out = plan.output(result);
    let external = TensorModel { fully_qualified_name: Some("key".into()), ..tensor.clone() };
    plan.push(external.stored(StorageModel::External));
    plan.push(ValueModel::TensorList(vec![x, w]));
    plan.push(ValueModel::OptionalTensorList(vec![Some(x), None]));
    plan.int_list(&[2, 3]);
    plan.push(ValueModel::DoubleList(vec![0.5]));
    plan.push(ValueModel::BoolList(vec![true, false]));
    plan.push("reflect");
    plan.push(2.5);
    let cond = plan.push(true);
    plan.push(ValueModel::None);
    plan.delegates.push(DelegateModel {
        id: "Backend".into(),
        data: vec![9; 10].into(),
        compile_specs: vec![("level".into(), vec![3].into())],
    });
    plan.call("aten::add", "out", &[x, w, alpha, out, out]);
    plan.instructions.push(InstructionModel::JumpFalse { cond, destination: 3 });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args: vec![x, out] });
    plan.instructions.push(InstructionModel::Move { from: state, to: out });
    plan.instructions.push(InstructionModel::Free { value: out });
    plan.input_encoding = "T1#1($)".into();
    program.methods.push(plan);
    program
}

const X: usize = 0;
const WEIGHT: usize = 1;
const STATE: usize = 2;
const EXTERNAL: usize = 5;

fn tensor<'m>(program: &'m mut ProgramModel<'_>, index: usize) -> &'m mut TensorModel {
    match &mut program.methods[0].values[index] {
        ValueModel::Tensor(tensor) => tensor,
        other => panic!("value {index} is {other:?}"),
    }
}

fn fault(change: impl FnOnce(&mut ProgramModel<'static>)) -> FormatError {
    let mut model = program();
    change(&mut model);
    Program::parse(&model.to_bytes().unwrap()).unwrap_err()
}

#[track_caller]
fn expect(
    change: impl FnOnce(&mut ProgramModel<'static>),
    kind: ErrorKind,
    table: &str,
    field: &str,
    index: Option<u32>,
) {
    let error = fault(change);
    assert_eq!((error.kind, error.table(), error.field(), error.index), (kind, table, field, index), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("{table}.{field}")), "{text}");
}

/// Cuts data to its first bytes.
fn shorten(blob: &mut Blob<'_>, len: usize) {
    *blob = Blob::from(blob.bytes().unwrap()[..len].to_vec());
}

#[test]
fn the_program_itself_is_right() {
    let model = program();
    let bytes = model.to_bytes().unwrap();
    assert_eq!(ProgramModel::from_program(&Program::parse(&bytes).unwrap()), model);
}

#[test]
fn tensors_are_checked() {
    let values = |i: usize| Some(i as u32);
    expect(|p| tensor(p, X).sizes = vec![2, -3], ErrorKind::Negative { value: -3 }, "Tensor", "sizes", values(X));
    for rank in [17, 40] {
        expect(
            |p| *tensor(p, X) = TensorModel::new(ScalarType::Float, &vec![1; rank]),
            ErrorKind::OutOfRange { value: rank as u64, limit: 16 },
            "Tensor",
            "sizes",
            values(X),
        );
    }
    for sizes in [vec![i32::MAX, i32::MAX, i32::MAX], vec![0, i32::MAX, i32::MAX, i32::MAX]] {
        expect(
            |p| *tensor(p, X) = TensorModel::new(ScalarType::Float, &sizes),
            ErrorKind::Overflow,
            "Tensor",
            "sizes",
            values(X),
        );
    }
    for order in [vec![0, 0], vec![0], vec![1, 2], vec![0, 1, 2], vec![0, 200], vec![32, 1]] {
        expect(|p| tensor(p, X).dim_order = order, ErrorKind::InvalidDimOrder, "Tensor", "dim_order", values(X));
    }
    let place = |memory_id, offset| StorageModel::Planned { memory_id, offset };
    for (id, offset, kind, table, field) in [
        (0, 0, ErrorKind::OutOfRange { value: 0, limit: 2 }, "AllocationDetails", "memory_id"),
        (2, 0, ErrorKind::OutOfRange { value: 2, limit: 2 }, "AllocationDetails", "memory_id"),
        (1, 40, ErrorKind::Truncated { needed: 64, available: 56 }, "Tensor", "allocation_info"),
        (1, u64::MAX, ErrorKind::Truncated { needed: u64::MAX, available: 56 }, "Tensor", "allocation_info"),
    ] {
        expect(|p| tensor(p, X).storage = place(id, offset), kind, table, field, values(X));
    }
    expect(
        |p| tensor(p, WEIGHT).storage = StorageModel::Constant { index: 2 },
        ErrorKind::OutOfRange { value: 2, limit: 2 },
        "Tensor",
        "data_buffer_idx",
        values(WEIGHT),
    );
    expect(
        |p| shorten(&mut p.constants[1], 23),
        ErrorKind::Truncated { needed: 24, available: 23 },
        "Tensor",
        "data_buffer_idx",
        values(WEIGHT),
    );
    expect(
        |p| shorten(&mut p.mutable_data[1], 20),
        ErrorKind::Truncated { needed: 24, available: 20 },
        "Tensor",
        "data_buffer_idx",
        values(STATE),
    );
}

#[test]
fn an_external_tensor_needs_a_name() {
    let mut model = program();
    tensor(&mut model, EXTERNAL).fully_qualified_name = None;
    let error = model.to_bytes().unwrap_err();
    assert_eq!((error.kind, error.field()), (ErrorKind::Missing, "fully_qualified_name"));
}

#[test]
fn lists_are_checked() {
    let count = program().methods[0].values.len() as u64;
    for list in [
        ValueModel::TensorList(vec![0, count as u32]),
        ValueModel::OptionalTensorList(vec![None, Some(count as u32)]),
        ValueModel::IntList(vec![count as u32]),
    ] {
        let end = program().methods[0].values.len() as u32 - 1;
        expect(
            |p| *p.methods[0].values.last_mut().unwrap() = list,
            ErrorKind::OutOfRange { value: count, limit: count },
            "List",
            "items",
            Some(end),
        );
    }
    expect(
        |p| p.methods[0].values[0] = ValueModel::TensorList(vec![u32::MAX]),
        ErrorKind::Negative { value: -1 },
        "List",
        "items",
        Some(0),
    );
    expect(
        |p| p.methods[0].inputs.push(count as u32),
        ErrorKind::OutOfRange { value: count, limit: count },
        "ExecutionPlan",
        "inputs",
        Some(0),
    );
    expect(
        |p| p.methods[0].outputs.push(count as u32),
        ErrorKind::OutOfRange { value: count, limit: count },
        "ExecutionPlan",
        "outputs",
        Some(0),
    );
    expect(
        |p| p.methods[0].buffer_sizes[1] = u64::MAX,
        ErrorKind::Negative { value: -1 },
        "ExecutionPlan",
        "non_const_buffer_sizes",
        Some(1),
    );
}

#[test]
fn instructions_are_checked() {
    let count = program().methods[0].values.len() as u64;
    let end = program().methods[0].instructions.len() as u32;
    let beyond = ErrorKind::OutOfRange { value: count, limit: count };
    for (instruction, kind, table, field) in [
        (
            InstructionModel::Kernel { operator: 1, args: vec![] },
            ErrorKind::OutOfRange { value: 1, limit: 1 },
            "KernelCall",
            "op_index",
        ),
        (InstructionModel::Kernel { operator: 0, args: vec![0, count as u32] }, beyond, "KernelCall", "args"),
        (
            InstructionModel::Delegate { delegate: 5, args: vec![] },
            ErrorKind::OutOfRange { value: 5, limit: 1 },
            "DelegateCall",
            "delegate_index",
        ),
        (InstructionModel::Delegate { delegate: 0, args: vec![count as u32] }, beyond, "DelegateCall", "args"),
        (InstructionModel::Move { from: count as u32, to: 0 }, beyond, "MoveCall", "move_from"),
        (InstructionModel::Move { from: 0, to: count as u32 }, beyond, "MoveCall", "move_to"),
        (
            InstructionModel::JumpFalse { cond: count as u32, destination: 0 },
            beyond,
            "JumpFalseCall",
            "cond_value_index",
        ),
        (
            InstructionModel::JumpFalse { cond: 0, destination: end + 2 },
            ErrorKind::OutOfRange { value: u64::from(end) + 2, limit: u64::from(end) + 2 },
            "JumpFalseCall",
            "destination_instruction",
        ),
        (InstructionModel::Free { value: u32::MAX }, ErrorKind::Negative { value: -1 }, "FreeCall", "value_index"),
    ] {
        expect(|p| p.methods[0].instructions.push(instruction), kind, table, field, Some(end));
    }
    let mut model = program();
    model.methods[0].instructions.push(InstructionModel::JumpFalse { cond: 0, destination: end + 1 });
    assert!(Program::parse(&model.to_bytes().unwrap()).is_ok(), "a jump to the end is legal");
}

#[test]
fn identifiers_and_headers_are_checked() {
    let good = program().to_bytes().unwrap();
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        Program::parse(&file).unwrap_err()
    };
    let error = patched(4, b"ET99");
    let kind = ErrorKind::IncompatibleVersion { expected: *b"ET12", got: *b"ET99" };
    assert_eq!((error.kind, error.table(), error.field(), error.offset), (kind, "header", "identifier", 4));
    let error = patched(4, b"GGUF");
    assert_eq!(error.kind, ErrorKind::BadMagic { expected: *b"ET12", got: *b"GGUF" });
    assert_eq!(error.to_string(), "header.identifier at byte 4: expected the identifier \"ET12\", got \"GGUF\"");
    let error = patched(12, &23u32.to_le_bytes());
    assert_eq!((error.kind, error.field()), (ErrorKind::Truncated { needed: 24, available: 23 }, "length"));
    let error = patched(16, &u64::MAX.to_le_bytes());
    assert_eq!(error.field(), "program_size");
    let error = patched(24, &(u64::MAX - 3).to_le_bytes());
    assert_eq!(error.field(), "segment_data_size");
    for len in 0..8 {
        assert!(Program::parse(&good[..len]).is_err());
    }
}

#[test]
fn a_program_without_the_size_of_its_segments_is_read() {
    let good = program().to_bytes().unwrap();
    let mut file = good.clone();
    file[12..16].copy_from_slice(&24u32.to_le_bytes());
    let parsed = Program::parse(&file).unwrap();
    assert_eq!(parsed.header().unwrap().segment_data_size, None);
    assert_eq!(ProgramModel::from_program(&parsed), program());
}

#[test]
fn every_truncation_is_refused() {
    let good = program().to_bytes().unwrap();
    for len in 0..good.len() {
        assert!(Program::parse(&good[..len]).is_err(), "{len} of {} bytes", good.len());
    }
}

#[test]
fn devices_and_dynamism_are_kept() {
    let mut model = program();
    let cuda = Device { kind: DeviceType::Cuda, index: 1 };
    tensor(&mut model, X).device = cuda;
    tensor(&mut model, X).shape_dynamism = ShapeDynamism::DynamicUnbound;
    tensor(&mut model, WEIGHT).requires_grad = true;
    model.methods[0].buffer_devices.push((1, cuda));
    let bytes = model.to_bytes().unwrap();
    let parsed = Program::parse(&bytes).unwrap();
    assert_eq!(parsed.method(0).unwrap().buffer_device(1), cuda);
    assert_eq!(parsed.method(0).unwrap().buffer_device(0), Device::default());
    assert_eq!(ProgramModel::from_program(&parsed), model);
}

#[test]
fn accessors_past_the_end_give_nothing() {
    let bytes = program().to_bytes().unwrap();
    let program = Program::parse(&bytes).unwrap();
    assert!(program.method(1).is_none() && program.method_named("backward").is_none());
    assert!(program.constant(9).is_none() && program.mutable_data(9).is_none() && program.segment(99).is_none());
    assert_eq!(program.named("key").map(<[u8]>::len), Some(40));
    assert!(program.named("other").is_none());
    let plan = program.method_named("forward").unwrap();
    assert!(plan.instruction(99).is_none() && plan.operator(1).is_none() && plan.delegate(1).is_none());
    assert_eq!(plan.value(999), rushlight_format::pte::ValueSpec::None);
    assert_eq!((plan.buffer_size(0), plan.buffer_size(1), plan.buffer_size(2)), (0, 56, 0));
    assert_eq!(plan.frames(0).count(), 0);
}

#[test]
#[cfg(target_pointer_width = "64")]
#[ignore = "takes 4 GiB of address space, which small machines refuse"]
fn segments_beyond_four_gigabytes_are_reached() {
    let mut model = ProgramModel::new();
    let weight = model.constant(vec![5; 24]);
    let mut plan = PlanModel::new("forward");
    plan.push(TensorModel::new(ScalarType::Long, &[3]).stored(StorageModel::Constant { index: weight }));
    model.methods.push(plan);
    let options = WriteOptions { segment_alignment: 1 << 32, ..WriteOptions::default() };
    let image = model.write(&options).unwrap();
    assert_eq!(image.size(), (1 << 32) + 24);
    // Zero pages that were never written take no memory, and neither writing nor parsing touches the gap.
    let mut file = vec![0; image.size() as usize];
    let mut at = 0;
    let gap = image.write(|piece| {
        if piece.iter().any(|byte| *byte != 0) {
            file[at..at + piece.len()].copy_from_slice(piece);
        }
        at += piece.len();
        Ok::<(), FormatError>(())
    });
    assert_eq!(gap, Ok(()));
    let parsed = Program::parse(&file).unwrap();
    assert_eq!(parsed.constant(1).map(<[u8]>::len), Some(24));
    assert_eq!(parsed.header().unwrap().segment_base_offset, 1 << 32);
    let error = Program::parse(&file[..1 << 32]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Truncated { needed: (1 << 32) + 24, available: 1 << 32 });
}
