//! Runs a program of ExecuTorch's with two operators written here, so that this crate is tested without kernels.

use rushlight_runtime::{
    Code, Event, EventTracer, Input, KernelContext, LoadOptions, Memory, Method, Op, OpSet, Program, Registry, Result,
    TensorView,
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

#[repr(align(16))]
struct Aligned<T: ?Sized>(T);
static ADD: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../tests/corpus/1.5.1/add.pte"));

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
    let mut block = vec![0u8; 4096];
    let options = LoadOptions::new(Registry::new(&[&SET]));
    let mut method = Method::load(&program, "forward", Memory::new(&mut block), &options)?;
    assert_eq!((method.num_inputs(), method.num_outputs()), (2, 1));
    // The block is aligned as the calculation assumes or better, never worse than one allocation's padding.
    let (taken, calculated) = (method.memory_use(), method.calculated_memory_use());
    assert_eq!((taken.method, taken.planned, taken.temp), (calculated.method, calculated.planned, calculated.temp));
    assert!(taken.total.abs_diff(calculated.total) < 64, "{taken:?} {calculated:?}");
    assert!(method.memory_use_on_32_bit().total < taken.total);
    let sizes: Vec<usize> = program
        .parsed()
        .method_named("forward")
        .and_then(|plan| match plan.value(plan.inputs().get(0)? as usize) {
            rushlight_runtime::format::pte::Value::Tensor(spec) => {
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
