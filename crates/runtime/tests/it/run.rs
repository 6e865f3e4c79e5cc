//! Runs a program of ExecuTorch's with two operators written here, so that this crate is tested without kernels.

use rushlight_runtime::{
    Code, Event, EventTracer, Input, KernelContext, LoadOptions, Memory, Method, Op, OpSet, OutputBuffer, Program,
    Registry, Result, ScalarType, TensorView, TensorViewMut,
};

fn add(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let mut out = cx.out(3)?;
    out.resize(a.sizes())?;
    for ((o, a), b) in out.as_mut_slice::<f32>()?.iter_mut().zip(a.as_slice::<f32>()?).zip(b.as_slice::<f32>()?) {
        *o = a + b;
    }
    Ok(())
}

const SET: OpSet = OpSet { name: "TEST", groups: &[&[&[Op::new("aten::add.out", 4, add)]]] };
const NONE: OpSet = OpSet { name: "NONE", groups: &[] };

#[repr(align(64))]
struct Aligned<T: ?Sized>(T);
static ADD: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../tests/corpus/1.5.1/add.pte"));

static UNPLANNED: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../tests/corpus/1.5.1/unplanned.pte"));

#[derive(Default)]
struct Names(Vec<&'static str>);

impl EventTracer for Names {
    fn begin(&mut self, event: Event<'_>) {
        if let Event::Operator { operator, .. } = event {
            self.0.push(operator);
        }
    }
}

#[test]
fn a_program_runs_in_the_callers_memory() -> Result<()> {
    let program = Program::parse(&ADD.0)?;
    let mut block = Aligned([0u8; 4096]);
    let options = LoadOptions::new(Registry::new(&[&SET]));
    let mut method = Method::load(&program, "forward", Memory::new(&mut block.0), &options)?;
    assert_eq!((method.num_inputs(), method.num_outputs()), (2, 1));
    assert_eq!(method.memory_use(), method.calculated_memory_use());
    assert!(method.memory_use_on_32_bit().total < method.memory_use().total);
    let sizes: Vec<usize> = program
        .parsed()
        .method_named("forward")
        .and_then(|plan| match plan.value(plan.inputs().get(0)? as usize) {
            rushlight_runtime::format::pte::ValueSpec::Tensor(spec) => {
                Some(spec.sizes.iter().map(|s| s as usize).collect())
            }
            _ => None,
        })
        .expect("the input is a tensor");
    let n = sizes.iter().product::<usize>();
    let (a, b) = (vec![1.5f32; n], vec![2.0f32; n]);
    let inputs = [Input::from(TensorView::of(&sizes, &a)?), Input::from(TensorView::of(&sizes, &b)?)];
    let mut names = Names::default();
    let outputs = method.execute_traced(&inputs, &mut [], &mut names)?;
    println!("{:?}", outputs.tensor(0)?.as_slice::<f32>()?);
    assert!(names.0.iter().all(|name| *name == "aten::add.out") && !names.0.is_empty());
    Ok(())
}

#[test]
fn wrong_inputs_and_missing_operators_are_errors() -> Result<()> {
    let program = Program::parse(&ADD.0)?;
    let none = LoadOptions::new(Registry::new(&[&NONE]));
    let missing = Method::load(&program, "forward", Memory::heap(), &none).err().map(|e| e.code);
    assert_eq!(missing, Some(Code::OperatorMissing));
    let options = LoadOptions::new(Registry::new(&[&SET]));
    assert_eq!(
        Method::load(&program, "backward", Memory::heap(), &options).err().map(|e| e.code),
        Some(Code::NotFound)
    );
    let mut little = [0u8; 64];
    let memory = Memory::new(&mut little);
    let small = Method::load(&program, "forward", memory, &options).err().map(|e| e.code);
    assert_eq!(small, Some(Code::MemoryAllocationFailed));
    let mut method = Method::load(&program, "forward", Memory::heap(), &options)?;
    assert_eq!(method.execute(&[]).err().map(|e| e.code), Some(Code::InvalidArgument));
    let wrong = [Input::from(TensorView::of(&[1], &[1i64])?), Input::Int(3)];
    assert_eq!(method.execute(&wrong).err().map(|e| e.code), Some(Code::InvalidType));
    Ok(())
}

/// Counts its calls in the operator's data.
#[cfg(feature = "alloc")]
fn count(cx: &KernelContext<'_>) -> Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let data = cx.data().and_then(|data| data.downcast_ref::<AtomicUsize>());
    data.expect("the operator has it").fetch_add(1, Ordering::Relaxed);
    add(cx)
}

#[cfg(feature = "alloc")]
#[test]
fn a_kernel_finds_the_data_of_its_operator() -> Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static COUNTING: OpSet = OpSet { name: "TEST", groups: &[&[&[Op::new("aten::add.out", 4, count).data(&CALLS)]]] };
    let program = Program::parse(&ADD.0)?;
    let mut method = Method::load(&program, "forward", Memory::heap(), &LoadOptions::new(Registry::new(&[&COUNTING])))?;
    let numbers = [1f32; 6];
    let inputs =
        || [TensorView::of(&[2, 3], &numbers).map(Input::from), TensorView::of(&[2, 3], &numbers).map(Input::from)];
    let [a, b] = inputs();
    method.execute(&[a?, b?])?;
    let calls = CALLS.load(Ordering::Relaxed);
    assert!(calls > 0);
    let [a, b] = inputs();
    method.execute(&[a?, b?])?;
    assert_eq!(CALLS.load(Ordering::Relaxed), 2 * calls);
    Ok(())
}

/// Doubles its first argument in place.
fn double(cx: &KernelContext<'_>) -> Result<()> {
    cx.out(0)?.as_mut_slice::<f32>()?.iter_mut().for_each(|x| *x *= 2.0);
    Ok(())
}

fn nothing(_: &KernelContext<'_>) -> Result<()> {
    Ok(())
}

#[test]
fn an_input_is_updated_in_the_callers_memory() -> Result<()> {
    const SET: OpSet = OpSet {
        name: "TEST",
        groups: &[&[&[
            Op::new("aten::mul.out", 3, double).writing(&[0]),
            Op::new("dim_order_ops::_to_dim_order_copy.out", 4, nothing),
            Op::new("aten::add.out", 4, nothing),
            Op::new("aten::cat.out", 3, nothing),
        ]]],
    };
    let program = Program::parse(&UNPLANNED.0)?;
    let mut method = Method::load(&program, "forward", Memory::heap(), &LoadOptions::new(Registry::new(&[&SET])))?;
    assert!(method.writes_input(0) && !method.writes_input(1));
    let (mut updated, read) = (Aligned([0u8; 24]), [1.0f32; 6]);
    updated.0.as_chunks_mut().0.iter_mut().for_each(|number| *number = 1.5f32.to_le_bytes());
    let mut buffers = [const { Aligned([0u8; 48]) }; 3];
    let needed = buffers.iter_mut().enumerate().filter(|(index, _)| method.output_needs_memory(*index));
    let mut given: Vec<_> = needed.map(|(index, Aligned(data))| OutputBuffer { index, data }).collect();
    let inputs = [
        Input::TensorMut(TensorViewMut::new(ScalarType::Float, &[2, 3], &mut updated.0)?),
        TensorView::of(&[2, 3], &read)?.into(),
    ];
    let outputs = method.start(&inputs, &mut given)?.finish()?;
    assert_eq!(outputs.tensor(2)?.sizes(), [4, 3]);
    drop(outputs);
    assert!(updated.0.as_chunks().0.iter().all(|number| f32::from_le_bytes(*number) == 3.0));
    // Without leave to write it, nothing runs.
    let inputs = [TensorView::of(&[2, 3], &read)?.into(), TensorView::of(&[2, 3], &read)?.into()];
    assert!(method.start(&inputs, &mut []).is_err());
    Ok(())
}
