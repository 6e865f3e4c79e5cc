//! The memory limit of a module holds for everything that loading and executing allocate. A binary of its own, whose
//! allocator counts.

use rushlight_graph::operators::aten;
use std::sync::{Mutex, MutexGuard};

use cap::Cap;
use rushlight::{Code, Input, Module, ModuleBuilder, TensorView, Value};
use rushlight_cpu_payload::{
    Buffer, CPU_BACKEND, CpuProgram, Elementwise, Instruction, Operand, Size, Step, Tensor, Unary,
};
use rushlight_format::ScalarType;
use rushlight_format::pte::{DelegateModel, InstructionModel, PlanModel, ProgramModel, TensorModel, ValueModel};

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

const MIB: usize = 1 << 20;

/// Tests that measure take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn floats(sizes: &[i32]) -> TensorModel {
    TensorModel::new(ScalarType::Float, sizes)
}

fn written(plan: PlanModel<'_>) -> Vec<u8> {
    let mut program = ProgramModel::new();
    program.methods.push(plan);
    program.to_bytes().expect("a small program")
}

fn run(builder: ModuleBuilder, program: &[u8]) -> Result<Vec<Value>, rushlight::Error> {
    let x = [1.0f32; 4];
    let x = TensorView::of(&[4], &x).expect("a view");
    builder.lower("off").threads(1).load_bytes(program)?.forward(&[x.into()])
}

/// Fails with little memory, without taking more, and runs with enough.
fn is_limited(what: &str, program: &[u8], little: usize, enough: usize) {
    let _turn = alone();
    let before = ALLOCATOR.max_allocated().max(ALLOCATOR.allocated() + little + 4 * program.len() + MIB / 4);
    let error = run(Module::builder().memory_limit(little), program).expect_err(what);
    assert_eq!(error.code(), Code::MemoryAllocationFailed, "{what}: {error}");
    assert!(ALLOCATOR.max_allocated() <= before, "{what}: {} bytes at most", ALLOCATOR.max_allocated());
    let outputs = run(Module::builder().memory_limit(enough), program);
    assert!(outputs.is_ok(), "{what}: {outputs:?}");
}

/// A method that returns its input beside other tensors.
fn returning(sizes: &[i32], planned: bool, times: usize) -> Vec<u8> {
    let mut plan = PlanModel::new("forward");
    let x = plan.planned(floats(&[4]));
    plan.input(ValueModel::Tensor(x));
    let tensor = if planned { plan.planned(floats(sizes)) } else { floats(sizes) };
    let y = plan.push(ValueModel::Tensor(tensor));
    plan.outputs = vec![y; times];
    written(plan)
}

#[test]
fn planned_buffers_are_limited() {
    is_limited("a planned buffer", &returning(&[MIB as i32], true, 1), MIB, 16 * MIB);
}

#[test]
fn outputs_are_limited() {
    is_limited("an output in memory of the caller's", &returning(&[MIB as i32], false, 1), MIB, 16 * MIB);
    is_limited("many copies of an output", &returning(&[MIB as i32 / 4], true, 64), 16 * MIB, 72 * MIB);
}

/// A program of many delegates, each of which asks for an arena of its own.
fn delegates(count: usize, arena: u64) -> Vec<u8> {
    let tensor = |buffer| Tensor {
        dtype: ScalarType::Float,
        buffer,
        offset: Size::Fixed(0),
        dims: vec![Size::Fixed(4)],
        affine: None,
    };
    let payload = CpuProgram {
        sizes: Vec::new(),
        buffers: vec![Buffer::Input(0), Buffer::Output(0)],
        tensors: vec![tensor(0), tensor(1)],
        inputs: vec![0],
        outputs: vec![1],
        output_sizes: vec![vec![Size::Fixed(4)]],
        states: Vec::new(),
        blobs: Vec::new(),
        inline_floats: Vec::new(),
        arena,
        scratch: 0,
        steps: vec![Step::Elementwise(Elementwise {
            operands: vec![0],
            y: 1,
            instructions: vec![Instruction::Unary { to: 0, function: Unary::Neg, x: Operand::Tensor(0) }],
        })],
        names: vec!["neg".into()],
    }
    .to_bytes();
    let mut plan = PlanModel::new("forward");
    let x = plan.planned(floats(&[4]));
    let mut value = plan.input(ValueModel::Tensor(x));
    for delegate in 0..count as u32 {
        let y = plan.planned(floats(&[4]));
        let y = plan.push(ValueModel::Tensor(y));
        let id = CPU_BACKEND.to_owned();
        plan.delegates.push(DelegateModel { id, data: payload.clone().into(), compile_specs: Vec::new() });
        plan.instructions.push(InstructionModel::Delegate { delegate, args: vec![value, y] });
        value = y;
    }
    plan.outputs = vec![value];
    written(plan)
}

#[test]
fn delegates_are_limited_together() {
    is_limited("the arena of a delegate", &delegates(1, MIB as u64), 2 * MIB, 6 * MIB);
    is_limited("the arenas of many delegates", &delegates(32, MIB as u64 / 4), 16 * MIB, 40 * MIB);
}

#[test]
fn shared_buffers_are_limited() {
    let _turn = alone();
    let program = returning(&[MIB as i32], true, 1);
    let shared = |limit| run(Module::builder().share_memory(true).memory_limit(limit), &program);
    assert_eq!(shared(MIB).expect_err("too little").code(), Code::MemoryAllocationFailed);
    assert!(shared(16 * MIB).is_ok());
}

/// A program with 64 KB of weights.
fn linear() -> Vec<u8> {
    let mut program = ProgramModel::new();
    let weights: Vec<u8> = (0..128 * 128).flat_map(|i| (i as f32 / 1000.0).to_le_bytes()).collect();
    let index = program.constant(weights);
    let mut plan = PlanModel::new("forward");
    let constant = floats(&[128, 128]).stored(rushlight_format::pte::StorageModel::Constant { index });
    let w = plan.push(ValueModel::Tensor(constant));
    let x = plan.planned(floats(&[4, 128]));
    let x = plan.input(ValueModel::Tensor(x));
    let y = plan.planned(floats(&[4, 128]));
    let y = plan.push(ValueModel::Tensor(y));
    plan.call(aten::MM, "out", &[x, w, y, y]);
    plan.outputs = vec![y];
    program.methods.push(plan);
    program.to_bytes().expect("a small program")
}

#[test]
fn what_lowering_makes_is_limited() {
    let _turn = alone();
    let program = linear();
    let x = vec![1.0f32; 4 * 128];
    let inputs = [Input::from(TensorView::of(&[4, 128], &x).expect("a view"))];
    let lowered = |limit: usize| {
        let builder = Module::builder().lower("cpu").threads(1).memory_limit(limit);
        let mut module = builder.load_bytes(&program).expect("a program");
        let before = ALLOCATOR.allocated();
        let outputs = module.forward(&inputs).map(|outputs| outputs.len());
        let kept = ALLOCATOR.allocated().saturating_sub(before);
        assert!(kept <= limit + 3 * program.len(), "{kept} bytes are kept with a limit of {limit}");
        (outputs, module.report().map(|_| ()).map_err(ToString::to_string))
    };
    let (outputs, report) = lowered(MIB);
    assert!(outputs.is_ok() && report.is_ok(), "{outputs:?}, {report:?}");
    // Enough for the reference operators, but not for another copy of the weights.
    for limit in [32 << 10, 70 << 10] {
        let (outputs, report) = lowered(limit);
        assert!(outputs.is_ok(), "{outputs:?}");
        assert!(report.is_err_and(|reason| reason.contains("memory")), "a limit of {limit}");
    }
    assert_eq!(lowered(4096).0.expect_err("too little").code(), Code::MemoryAllocationFailed);
}
