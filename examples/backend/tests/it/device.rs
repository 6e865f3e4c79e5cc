//! Programs on a device: copies, state, completion, options, events.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rushlight::compiler::{CompileOptions, compile};
use rushlight::graph::{Arg, Graph, Model, Origin, TensorType, Type};
use rushlight::runtime::{DelegateEvent, DelegateTracer, Event, EventTracer, MemoryKind};
use rushlight::{BatchCall, Code, Input, Module, ModuleBuilder, ScalarType, TensorView};
use rushlight_devtools::profile::Profiler;
use rushlight_devtools::steps;
use rushlight_example_backend::{Chain, ChainRuntime, Device, DeviceRuntime, NAME, Payload, Step, Sum};
use rushlight_format::pte::{
    DelegateModel, InstructionModel, PlanModel, ProgramModel, StorageModel, TensorModel, ValueModel,
};

/// Calls of operators, one after the other. Each takes the result of the one before, and `x`.
fn chain(operators: &[&str]) -> Model {
    let mut model = Model::default();
    let mut graph = Graph::new();
    let x = graph.input("x", Type::Tensor(TensorType::of(ScalarType::Float, &[2, 2])));
    let (block, origin) = (graph.body, graph.origins.push(Origin { node: "chain".into(), ..Origin::default() }));
    model.add_method("forward", graph);
    let mut builder = model.builder("forward", block, origin).unwrap();
    let mut last = x;
    for name in operators {
        let args = if *name == "aten::exp" { vec![last.into()] } else { vec![last.into(), x.into()] };
        last = builder.one(name, args).unwrap();
    }
    model.methods["forward"].outputs = vec![Arg::Value(last)];
    model
}

/// Compiles for two backends. Each claims one kind of operator, so that they alternate.
fn alternating(operators: &[&str]) -> Vec<u8> {
    let backends: Vec<Box<dyn rushlight::compiler::partition::Backend>> = vec![
        Box::new(Chain::only("Adds", &["aten::add.Tensor"])),
        Box::new(Chain::only("Muls", &["aten::mul.Tensor"])),
    ];
    let options = CompileOptions { backends, ..CompileOptions::default() };
    compile(chain(operators), &options).unwrap().program.to_bytes().unwrap()
}

const X: [f32; 4] = [0.5, -1.0, 0.25, 2.0];

fn input() -> [Input<'static>; 1] {
    [TensorView::of(&[2, 2], &X).unwrap().into()]
}

fn builder() -> ModuleBuilder {
    Module::builder()
}

#[test]
fn neighbours_on_a_device_pass_values_without_copies() {
    let (add, mul, exp) = ("aten::add.Tensor", "aten::mul.Tensor", "aten::exp");
    // Each entry: uploads and downloads on one device, and their totals if each backend has its own device.
    let cases: [(&[&str], (usize, usize), (usize, usize)); 3] = [
        (&[add, mul, add, mul], (1, 1), (5, 4)),
        (&[add, exp, mul], (2, 2), (3, 2)),
        (&[exp, add, mul], (2, 1), (4, 2)),
    ];
    for (operators, on_one, on_two) in cases {
        let file = alternating(operators);
        let host = |name| Arc::new(ChainRuntime::new(name));
        let mut module = builder().backend(host("Adds")).backend(host("Muls")).load_bytes(&file).unwrap();
        let expected = module.forward(&input()).unwrap();
        for is_one in [true, false] {
            let first = Arc::new(Device::new());
            let second = if is_one { first.clone() } else { Arc::new(Device::new()) };
            let mut module = builder()
                .backend(Arc::new(DeviceRuntime::new("Adds", first.clone())))
                .backend(Arc::new(DeviceRuntime::new("Muls", second.clone())))
                .load_bytes(&file)
                .unwrap();
            for call in 1..=2 {
                let mut copies = Copies::default();
                let outputs = module.call("forward").inputs(&input()).tracer(&mut copies).run().unwrap();
                let elements = |outputs: &[rushlight::Value]| outputs[0].as_slice::<f32>().unwrap().to_vec();
                assert_eq!(elements(&outputs), elements(&expected));
                let mut counted = (first.uploads(), first.downloads());
                if !is_one {
                    counted = (counted.0 + second.uploads(), counted.1 + second.downloads());
                }
                let (uploads, downloads) = if is_one { on_one } else { on_two };
                assert_eq!(counted, (call * uploads, call * downloads), "{operators:?}, one device: {is_one}");
                assert_eq!((copies.to_device, copies.to_host), (uploads, downloads), "each is reported");
            }
            drop(module);
            assert_eq!((first.buffers(), first.queued()), (0, 0));
        }
    }
}

#[derive(Default)]
struct Copies {
    to_device: usize,
    to_host: usize,
}

impl EventTracer for Copies {
    fn end(&mut self, event: Event<'_>) {
        match event {
            Event::Copy { to: MemoryKind::Host, .. } => self.to_host += 1,
            Event::Copy { .. } => self.to_device += 1,
            _ => {}
        }
    }
}

/// `prefill` adds its input to a running sum, `decode` adds twice its input. Both return the sum.
fn sums() -> Vec<u8> {
    sums_of(4)
}

/// As [`sums`], with `elements` elements in the running sum.
fn sums_of(elements: u32) -> Vec<u8> {
    let mut program = ProgramModel::new();
    for (name, is_double) in [("prefill", false), ("decode", true)] {
        let mut payload = Payload { inputs: 1, sums: vec![Sum { key: 7, elements }], ..Payload::default() };
        if is_double {
            payload.steps.push(Step::Add(0, 0));
        }
        payload.steps.push(Step::Accumulate(payload.steps.len() as u32, 0));
        payload.outputs.push(payload.steps.len() as u32);
        let mut plan = PlanModel::new(name);
        let tensor = || TensorModel::new(ScalarType::Float, &[2, 2]);
        let (x, y) = (plan.planned(tensor()), plan.planned(tensor()));
        let (x, y) = (plan.input(ValueModel::Tensor(x)), plan.output(ValueModel::Tensor(y)));
        plan.delegates.push(DelegateModel { id: NAME.into(), data: payload.to_bytes().into(), compile_specs: vec![] });
        plan.instructions.push(InstructionModel::Delegate { delegate: 0, args: vec![x, y] });
        program.methods.push(plan);
    }
    program.to_bytes().unwrap()
}

fn on_device() -> (Module, Arc<Device>) {
    let device = Arc::new(Device::new());
    let module = builder().backend(Arc::new(DeviceRuntime::new(NAME, device.clone()))).load_bytes(&sums()).unwrap();
    (module, device)
}

fn first(outputs: &[rushlight::Value]) -> f32 {
    outputs[0].as_slice::<f32>().unwrap()[0]
}

#[test]
fn methods_share_state_and_sessions_have_their_own() {
    let (mut module, device) = on_device();
    assert_eq!(first(&module.run("prefill", &input()).unwrap()), 0.5);
    assert_eq!(first(&module.run("decode", &input()).unwrap()), 1.5);
    let (mut a, mut b) = (module.session().unwrap(), module.session().unwrap());
    assert_eq!((a.size(), b.size()), (16, 16));
    assert_eq!(first(&module.call("decode").inputs(&input()).session(&mut a).run().unwrap()), 1.0);
    assert_eq!(first(&module.call("prefill").inputs(&input()).session(&mut a).run().unwrap()), 1.5);
    assert_eq!(first(&module.call("prefill").inputs(&input()).session(&mut b).run().unwrap()), 0.5);
    assert_eq!(first(&module.run("prefill", &input()).unwrap()), 2.0, "the module's own state is apart");

    // A fork copies on the device; saving reads back.
    let copies = (device.uploads(), device.downloads());
    let mut fork = a.fork().unwrap();
    assert_eq!(copies, (device.uploads(), device.downloads()));
    assert_eq!(first(&module.call("prefill").inputs(&input()).session(&mut fork).run().unwrap()), 2.0);
    let saved = loop {
        if let Poll::Ready(saved) = a.save().unwrap() {
            break saved;
        }
    };
    a.clear().unwrap();
    assert_eq!(first(&module.call("prefill").inputs(&input()).session(&mut a).run().unwrap()), 0.5);
    b.restore(&saved).unwrap();
    assert_eq!(first(&module.call("prefill").inputs(&input()).session(&mut b).run().unwrap()), 2.0);
    assert!(b.restore(&saved[1..]).is_err() && b.restore(&saved[..saved.len() - 1]).is_err());
    assert_eq!(a.rewind(0).unwrap_err().code(), Code::NotImplemented);

    // An instance has its own copy of everything.
    let mut instance = module.instantiate("prefill").unwrap();
    assert_eq!(first(&instance.run(&input()).unwrap()), 0.5);
    let (mut other, _) = on_device();
    let error = other.call("prefill").inputs(&input()).session(&mut a).run().unwrap_err();
    assert!(error.message().contains("another module"), "{error}");
    // Sessions and modules can be dropped in any order, and free their buffers.
    drop((module, fork, b, instance));
    assert_eq!(device.buffers(), 1);
    drop(a);
    assert_eq!(device.buffers(), 0);
}

#[test]
fn a_batch_of_sessions_runs_one_after_the_other_on_a_device() {
    let (mut module, _) = on_device();
    let mut batch = module.batch("decode").unwrap();
    let (mut a, mut b) = (module.session().unwrap(), module.session().unwrap());
    module.call("prefill").inputs(&input()).session(&mut b).run().unwrap();
    let inputs = input();
    for expected in [[1.0, 1.5], [2.0, 2.5]] {
        let mut calls = [&mut a, &mut b].map(|session| BatchCall { session, inputs: &inputs });
        let outputs = batch.run(&mut module, &mut calls).unwrap();
        assert_eq!(outputs.iter().map(|outputs| first(outputs)).collect::<Vec<_>>(), expected);
    }
    let mut calls = [&mut a, &mut b].map(|session| BatchCall { session, inputs: &inputs });
    let read = batch.read(&mut module, &mut calls, |outputs| Ok(outputs.tensor(0)?.as_slice::<f32>()?[0]));
    assert_eq!(read.unwrap(), [3.0, 3.5]);
    assert!(batch.run(&mut module, &mut []).unwrap().is_empty());
    assert_eq!(module.batch("train").unwrap_err().code(), Code::NotFound);
    let (mut other, _) = on_device();
    let error = batch.run(&mut other, &mut [BatchCall { session: &mut a, inputs: &inputs }]).unwrap_err();
    assert!(error.message().contains("another module"), "{error}");
    let mut foreign = other.session().unwrap();
    let mut calls = [&mut a, &mut foreign].map(|session| BatchCall { session, inputs: &inputs });
    let error = batch.run(&mut module, &mut calls).unwrap_err();
    assert!(error.message().contains("another module"), "{error}");
    assert_eq!(first(&module.call("decode").inputs(&inputs).session(&mut a).run().unwrap()), 4.0, "nothing ran");
}

#[test]
fn calls_are_submitted_and_polled() {
    let (mut module, device) = on_device();
    module.set_option(NAME, "latency", 3).unwrap();
    let inputs = input();
    let mut call = module.call("prefill").inputs(&inputs);
    let mut submission = call.submit().unwrap();
    let mut polls = 0;
    while submission.poll().unwrap().is_pending() {
        assert_eq!(device.queued(), 1);
        polls += 1;
    }
    assert_eq!((polls, device.queued()), (2, 0), "submitting polled once");
    assert_eq!(first(&submission.complete().unwrap()), 0.5);

    // Dropping a submission cancels it: the sum does not change.
    for polls in 0..3 {
        let mut call = module.call("decode").inputs(&inputs);
        let mut submission = call.submit().unwrap();
        for _ in 0..polls {
            assert!(submission.poll().unwrap().is_pending() || polls > 2);
        }
        drop(submission);
        assert_eq!(device.queued(), 0);
    }
    assert_eq!(first(&module.run("prefill", &inputs).unwrap()), 1.0);

    // The next call cancels a submission that was forgotten.
    std::mem::forget(module.call("prefill").inputs(&inputs).submit().unwrap());
    assert_eq!(device.queued(), 1);
    assert_eq!(first(&module.run("prefill", &inputs).unwrap()), 1.5);

    // Sessions can submit too. `read` waits, as `complete` does.
    let mut session = module.session().unwrap();
    let mut call = module.call("decode").inputs(&inputs).session(&mut session);
    let submission = call.submit().unwrap();
    let read = submission.read(|outputs| Ok(outputs.tensor(0)?.as_slice::<f32>()?[0]));
    assert_eq!(read.unwrap(), 1.0);
}

#[test]
fn submitted_calls_copy_inputs_and_keep_time_limits() {
    let device = Arc::new(Device::new());
    let limited = builder().time_limit(Duration::from_millis(100));
    let mut module = limited.backend(Arc::new(DeviceRuntime::new(NAME, device.clone()))).load_bytes(&sums()).unwrap();
    module.set_option(NAME, "latency", i64::MAX).unwrap();
    assert_eq!(module.run("prefill", &input()).unwrap_err().code(), Code::OutOfResources);
    let inputs = input();
    let mut call = module.call("prefill").inputs(&inputs);
    let mut submission = call.submit().unwrap();
    std::thread::sleep(Duration::from_millis(120));
    assert_eq!(submission.poll().unwrap_err().code(), Code::OutOfResources);
    drop(submission);
    assert_eq!(device.queued(), 0);

    let (mut module, _) = on_device();
    let bytes: Vec<u8> = X.iter().flat_map(|x| x.to_le_bytes()).collect();
    let transposed = [TensorView::strided(ScalarType::Float, &[2, 2], &[1, 2], &bytes).unwrap().into()];
    let outputs = module.call("prefill").inputs(&transposed).submit().unwrap().complete().unwrap();
    assert_eq!(outputs[0].as_slice::<f32>().unwrap(), [0.5, 0.25, -1.0, 2.0]);
    let wrong = [TensorView::of(&[4], &X).unwrap().into()];
    let error = module.call("prefill").inputs(&wrong).submit().unwrap_err();
    assert!(error.message().contains("input 0 of `prefill`"), "{error}");
}

#[test]
fn options_that_do_not_exist_say_which_do() {
    let (mut module, device) = on_device();
    let with = |name: &str, value: i64| {
        let backend = Arc::new(DeviceRuntime::new(NAME, device.clone()));
        builder().backend(backend).option(NAME, name, value).load_bytes(&sums())
    };
    let unknown = [with("latencies", 1).unwrap_err(), module.set_option(NAME, "latencies", 1).unwrap_err()];
    for error in unknown {
        assert!(error.what_was_expected().is_some_and(|names| names.contains("`latency` (how often")), "{error}");
        assert_eq!(
            (error.code(), error.message()),
            (Code::NotFound, "backend `ChainBackend` has no option `latencies`")
        );
    }
    assert_eq!(with("timestamps", 1).unwrap_err().code(), Code::InvalidType);
    let negative = with("latency", -1).unwrap().load_method("prefill").unwrap_err();
    assert!(negative.to_string().contains("latency: expected 0 or more, got -1"), "{negative}");
    assert_eq!(
        module.set_option("Other", "latency", 1).unwrap_err().what_was_expected(),
        Some("`ChainBackend`, `cpu`")
    );
    // Rushlight's own backends have the same names here as when a model is compiled for them.
    let known = module.set_option("cpu", "latency", 1).unwrap_err();
    assert_eq!(known.message(), "backend `cpu` has no option `latency`");
    // Before a method is loaded, options that only loading takes can still be set.
    module.set_option(NAME, "timestamps", false).unwrap();
    module.load_method("prefill").unwrap();
    assert_eq!(module.set_option(NAME, "timestamps", true).unwrap_err().code(), Code::NotSupported);
    let mut steps = Steps::default();
    module.call("prefill").inputs(&input()).tracer(&mut steps).run().unwrap();
    assert!(steps.0.0.into_inner().is_empty());
}

#[derive(Default)]
struct Steps(Times);

#[derive(Default)]
struct Times(RefCell<Vec<(String, u64)>>);

impl DelegateTracer for Times {
    fn timed(&self, event: DelegateEvent<'_>, start: u64, end: u64) {
        self.0.borrow_mut().push((event.name.to_owned(), end - start));
    }
}

impl EventTracer for Steps {
    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        Some(&self.0)
    }
}

#[test]
fn tracers_see_the_steps_on_the_device() {
    let (mut module, _) = on_device();
    module.set_option(NAME, "latency", 2).unwrap();
    let mut steps = Steps::default();
    module.call("decode").inputs(&input()).tracer(&mut steps).run().unwrap();
    let times = steps.0.0.into_inner();
    assert_eq!(times, [("Add(0, 0)".to_owned(), 2), ("Accumulate(1, 0)".to_owned(), 2)]);
}

#[test]
fn the_profile_shows_the_steps_beside_the_limits_of_the_device() {
    let (mut module, _) = on_device();
    module.set_option(NAME, "latency", 2).unwrap();
    let mut profiler = Profiler::default();
    for _ in 0..3 {
        module.call("decode").inputs(&input()).tracer(&mut profiler).run().unwrap();
    }
    let rows = steps::rows(&profiler.steps().times(), &mut module, "decode");
    let limits = steps::limits(&rows, &module).unwrap();
    let json = steps::json(&rows, &limits);
    let [add, accumulate] = &rows[..] else { panic!("two steps: {json:#}") };
    assert_eq!((add.kind.as_str(), add.backend.as_str(), add.calls), ("Add(0, 0)", NAME, 3));
    // Four elements in two ticks of a nanosecond, with three tensors of f32.
    assert_eq!(
        (accumulate.time, accumulate.flops.round(), accumulate.bandwidth.round()),
        (Duration::from_nanos(2), 2e9, 24e9)
    );
    assert_eq!((&json[1]["limit"], &json[1]["limit_share"]), (&"memory".into(), &24.0.into()));
    assert_eq!(limits[0].device, "a simulated device");
}

#[test]
fn damaged_payloads_and_states_beyond_the_limit_are_errors() {
    let payload = Payload {
        inputs: 1,
        constants: vec![vec![1.0, 2.0]],
        sums: vec![Sum { key: 1, elements: 4 }],
        steps: vec![Step::Accumulate(0, 0), Step::Add(1, 2)],
        outputs: vec![3],
    };
    let bytes = payload.to_bytes();
    assert_eq!(Payload::parse(&bytes), Some(payload));
    for len in 0..bytes.len() {
        assert_eq!(Payload::parse(&bytes[..len]), None, "{len}");
    }
    let device = Arc::new(Device::new());
    let limited = || builder().memory_limit(1 << 16).backend(Arc::new(DeviceRuntime::new(NAME, device.clone())));
    assert!(limited().load_bytes(&sums()).unwrap().session().is_ok());
    let mut module = limited().load_bytes(&sums_of(u32::MAX)).unwrap();
    let errors = [
        module.session().map(drop),
        module.run("prefill", &input()).map(drop),
        module.instantiate("prefill").map(drop),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().code(), Code::MemoryAllocationFailed);
    }
    // Only the device finds a sum with fewer elements than its tensors. The call completes without a result.
    let mut module = limited().load_bytes(&sums_of(3)).unwrap();
    assert!(module.run("prefill", &input()).is_ok());
    let host = builder().backend(Arc::new(ChainRuntime::new(NAME)));
    let error = host.load_bytes(&sums()).unwrap().load_method("prefill").unwrap_err();
    assert!(error.to_string().contains("running sums are the device's"), "{error}");
}

#[test]
fn sessions_cannot_have_state_of_the_method_itself() {
    let mut program = ProgramModel::new();
    let index = program.initial_value(vec![0; 16]);
    let mut plan = PlanModel::new("forward");
    let mut buffer = plan.planned(TensorModel::new(ScalarType::Float, &[4]));
    let StorageModel::Planned { memory_id, offset } = buffer.storage else { panic!("it was planned") };
    buffer.storage = StorageModel::PlannedInit { memory_id, offset, index };
    buffer.fully_qualified_name = Some("cache".into());
    plan.output(ValueModel::Tensor(buffer));
    program.methods.push(plan);
    let mut module = builder().load_bytes(&program.to_bytes().unwrap()).unwrap();
    let error = module.session().unwrap_err();
    assert_eq!((error.code(), error.message().contains("`cache`")), (Code::NotSupported, true), "{error}");
}
