//! A payload of ExecuTorch's XNNPACK delegate that parses can be read to its last field, and again the same. A program that
//! calls it lifts, compiles and runs, or fails with an error.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_compiler::front::pte::lift;
use rushlight_format::ScalarType;
use rushlight_format::payload::xnnpack::Payload;
use rushlight_format::pte::{DelegateModel, InstructionModel, PlanModel, ProgramModel, TensorModel};
use rushlight_fuzz::run::compile_and_run;
use rushlight_graph::Bytes;

/// Sizes of the call's arguments; payloads that declare larger ones are only lifted.
const SIZE: u32 = 64;

/// A program that calls the delegate with what the payload declares as its inputs and outputs.
fn caller(payload: &[u8], parsed: &Payload<'_>) -> Option<Vec<u8>> {
    let mut arguments = Vec::new();
    for value in parsed.values() {
        for (external, is_output) in [(value.input, false), (value.output, true)] {
            if let Some(external) = external {
                let sizes: Vec<i32> = value.dims.iter().map(|size| size.min(SIZE) as i32).take(8).collect();
                arguments.push((external, is_output, sizes));
            }
        }
    }
    arguments.sort();
    arguments.truncate(16);
    let mut plan = PlanModel::new("forward");
    let mut args = Vec::new();
    for (_, is_output, sizes) in arguments {
        let tensor = TensorModel::new(ScalarType::Float, &sizes);
        args.push(if is_output {
            let planned = plan.planned(tensor);
            plan.output(planned)
        } else {
            plan.input(tensor)
        });
    }
    plan.delegates.push(DelegateModel {
        id: "XnnpackBackend".to_owned(),
        data: payload.to_vec().into(),
        compile_specs: Vec::new(),
    });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args });
    let mut program = ProgramModel::new();
    program.methods.push(plan);
    program.to_bytes().ok()
}

fuzz_target!(|payload: &[u8]| {
    let parsed = match Payload::parse(payload) {
        Ok(parsed) => parsed,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let text = |payload: &Payload<'_>| {
        let constants: Vec<_> = (0..64).map_while(|index| payload.constant(index)).collect();
        format!("{:?} {:?} {constants:?}", payload.nodes().collect::<Vec<_>>(), payload.values().collect::<Vec<_>>())
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
