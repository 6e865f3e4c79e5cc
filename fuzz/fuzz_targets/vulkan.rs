//! A payload of ExecuTorch's Vulkan delegate that parses can be read to its last value, and again the same. A program that
//! calls it lifts, compiles and runs, or fails with an error.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_compiler::front::pte::lift;
use rushlight_format::ScalarType;
use rushlight_format::payload::vulkan::{ConstantData, Payload, Value};
use rushlight_format::pte::{DelegateModel, InstructionModel, PlanModel, ProgramModel, TensorModel};
use rushlight_fuzz::run::compile_and_run;
use rushlight_graph::Bytes;

/// Sizes of the call's arguments; payloads that declare larger ones are only lifted.
const SIZE: u32 = 64;
/// Bytes of each of the program's named data: payloads of small models have no larger constants.
const NAMED: usize = 1 << 14;

/// A program that calls the delegate with what the payload declares as its inputs and outputs, and has the data that it names.
fn caller(payload: &[u8], parsed: &Payload<'_>) -> Option<Vec<u8>> {
    let mut plan = PlanModel::new("forward");
    let mut args = Vec::new();
    let inputs = parsed.inputs().iter().take(8).map(|id| (id, false));
    for (id, is_output) in inputs.chain(parsed.outputs().iter().take(8).map(|id| (id, true))) {
        let Some(Value::Tensor(tensor)) = parsed.value(id) else { return None };
        let sizes: Vec<i32> = tensor.dims.iter().map(|size| size.min(SIZE) as i32).take(8).collect();
        // The program's own integers have 64 bits.
        let dtype = if tensor.dtype == ScalarType::Int { ScalarType::Long } else { tensor.dtype };
        let tensor = TensorModel::new(dtype, &sizes);
        args.push(if is_output {
            let planned = plan.planned(tensor);
            plan.output(planned)
        } else {
            plan.input(tensor)
        });
    }
    plan.delegates.push(DelegateModel {
        id: "VulkanBackend".to_owned(),
        data: payload.to_vec().into(),
        compile_specs: Vec::new(),
    });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args });
    let mut program = ProgramModel::new();
    program.methods.push(plan);
    for index in 0..32 {
        if let Some(ConstantData::Named(key)) = parsed.constant(index)
            && program.named_data.iter().all(|(known, _)| known != key)
        {
            program.named_data.push((key.to_owned(), vec![1; NAMED].into()));
        }
    }
    program.to_bytes().ok()
}

fuzz_target!(|payload: &[u8]| {
    let parsed = match Payload::parse(payload) {
        Ok(parsed) => parsed,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let text = |payload: &Payload<'_>| {
        let constants: Vec<_> = (0..64).map_while(|index| payload.constant(index)).collect();
        let values: Vec<_> = (0..).map_while(|id| payload.value(id)).collect();
        format!("{:?} {values:?} {constants:?}", payload.calls().collect::<Vec<_>>())
    };
    assert_eq!(text(&parsed), text(&Payload::parse(payload).expect("it was parsed before")));
    let Some(program) = caller(payload, &parsed) else { return };
    match lift(&Bytes::from(program), &[]) {
        Ok(model) => {
            model.verify().expect("a lifted model is sound");
            for cpu in [false, true] {
                compile_and_run(model.clone(), cpu);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::words(data, size, max_size, seed)
});
