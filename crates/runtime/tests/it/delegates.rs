//! Delegates with state, device memory, completion, options and events. The device is simulated, and can be told to
//! violate its contract.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use rushlight_runtime::format::pte::{
    DelegateModel, InstructionModel, PlanModel, ProgramModel, StorageModel, TensorModel, ValueModel,
};
use rushlight_runtime::{
    Backend, BackendOption, Call, Code, Delegate, DelegateContext, DelegateEvent, DelegateHandle, DelegateTracer,
    Detail, DeviceBuffer, DeviceDelegate, DeviceId, Error, Event, EventTracer, Fault, HeapBlock, InitContext, Input,
    Interrupt, KernelContext, LoadOptions, Memory, MemoryKind, Method, Op, OpSet, OptionSpec, OptionValue,
    OutputBuffer, Program, Registry, Result, ScalarType, State, StateInfo, States, Stop, TensorView,
};

const ID: &str = "Simulated";
const ELEMENTS: usize = 4;

/// A violation of the device's contract.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Lie {
    #[default]
    None,
    /// Buffers are one byte shorter than requested.
    ShortBuffer,
    /// Buffers have a type that its delegates do not know.
    OtherBuffer,
    /// States have a type that its delegates do not know.
    OtherState,
    /// Calls never complete.
    Endless,
    /// Buffers shrink after the method was loaded.
    Shrinking,
}

#[derive(Default)]
struct Simulated {
    lie: Lie,
    /// Number of polls of a call or a read that are pending before it completes.
    latency: usize,
    cancels: Arc<AtomicUsize>,
}

/// A delegate that adds a number. Its payload is the device (`h` for host slices, else its number), then the key of a
/// state, if there is one.
struct Adder {
    device: Option<DeviceId>,
    key: String,
    term: f32,
    latency: usize,
    left: usize,
    lie: Lie,
    cancels: Arc<AtomicUsize>,
}

struct Bytes {
    data: Vec<u8>,
    len: usize,
    latency: usize,
    left: Option<usize>,
}

struct Other(usize);

/// The number of calls so far.
struct Count(u32);

struct OtherState;

impl DeviceBuffer for Bytes {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.data[..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn read(&mut self, data: &mut [u8]) -> Result<Poll<()>> {
        match self.left.unwrap_or(self.latency) {
            0 => {
                self.left = None;
                data.copy_from_slice(&self.data[..data.len()]);
                Ok(Poll::Ready(()))
            }
            left => {
                self.left = Some(left - 1);
                Ok(Poll::Pending)
            }
        }
    }

    fn cancel_read(&mut self) {
        self.left = None;
    }
}

impl DeviceBuffer for Other {
    fn len(&self) -> usize {
        self.0
    }

    fn write(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&mut self, _: &mut [u8]) -> Result<Poll<()>> {
        Ok(Poll::Ready(()))
    }
}

impl State for Count {
    fn clear(&mut self) -> Result<()> {
        self.0 = 0;
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn State>> {
        Ok(Box::new(Self(self.0)))
    }

    fn save(&mut self, to: &mut Vec<u8>) -> Result<Poll<()>> {
        to.extend(self.0.to_le_bytes());
        Ok(Poll::Ready(()))
    }

    fn restore(&mut self, from: &[u8]) -> Result<()> {
        self.0 = u32::from_le_bytes(from.try_into().map_err(|_| Error::from(Fault::SavedState))?);
        Ok(())
    }
}

impl State for OtherState {
    fn clear(&mut self) -> Result<()> {
        Ok(())
    }
}

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("term", OptionValue::Int(1), "what is added to each element"),
    OptionSpec::new("latency", OptionValue::Int(0), "how often calls are pending").only_at_load(),
];

impl Backend for Simulated {
    fn id(&self) -> &str {
        ID
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> Result<DelegateHandle<'m>> {
        let (device, key) = context.payload.split_first().unwrap();
        let index = u32::from(*device);
        let device = (*device != b'h').then_some(DeviceId { kind: "simulated", index });
        let Some(OptionValue::Int(term)) = context.option("term") else { panic!("the type was checked") };
        Ok(DelegateHandle::Boxed(Box::new(Adder {
            device,
            key: String::from_utf8(key.to_vec()).unwrap(),
            term: term as f32,
            latency: self.latency,
            left: 0,
            lie: self.lie,
            cancels: self.cancels.clone(),
        })))
    }
}

impl Adder {
    /// Adds the term, and the number of earlier calls if there is a state.
    fn compute(&self, call: &mut Call<'_, '_>) -> Result<()> {
        call.events.begin(DelegateEvent { name: "add", step: Some(0), ..DelegateEvent::default() });
        let mut term = self.term;
        if !self.key.is_empty() {
            let count = call.states.get::<Count>(0)?;
            term += count.0 as f32;
            count.0 += 1;
        }
        let elements = call.context.input(0)?.numel();
        let sizes = call.context.input(0)?.sizes().to_vec();
        let mut output = call.context.output(0)?;
        output.resize(&sizes)?;
        if self.device.is_some() {
            let input = call.buffers.get::<Bytes>(0)?.data.clone();
            let output = &mut call.buffers.get_mut::<Bytes>(1)?.data;
            for (to, from) in output.as_chunks_mut().0.iter_mut().zip(input.as_chunks().0).take(elements) {
                *to = (f32::from_le_bytes(*from) + term).to_le_bytes();
            }
        } else {
            let input = call.context.input(0)?.as_slice::<f32>()?;
            output.as_mut_slice::<f32>()?.iter_mut().zip(input).for_each(|(to, from)| *to = from + term);
        }
        call.events.end(DelegateEvent { name: "add", step: Some(0), ..DelegateEvent::default() });
        Ok(())
    }
}

impl Delegate for Adder {
    fn num_outputs(&self) -> usize {
        1
    }

    fn execute(&mut self, context: &DelegateContext<'_>) -> Result<()> {
        assert!(self.key.is_empty() && self.device.is_none(), "called as what it is");
        let input = context.input(0)?.as_slice::<f32>()?;
        let mut output = context.output(0)?;
        output.as_mut_slice::<f32>()?.iter_mut().zip(input).for_each(|(to, from)| *to = from + self.term);
        Ok(())
    }

    fn call(&mut self, call: &mut Call<'_, '_>) -> Result<()> {
        self.compute(call)
    }

    fn device(&mut self) -> Option<&mut dyn DeviceDelegate> {
        if self.device.is_some() { Some(self) } else { None }
    }

    fn state(&self, index: usize) -> Option<StateInfo<'_>> {
        // A payload `KEY+` declares the state `KEY` with twice the bytes.
        let key = self.key.trim_end_matches('+');
        let bytes = if key == self.key { 4 } else { 8 };
        (index == 0 && !key.is_empty()).then_some(StateInfo { key, bytes })
    }

    fn new_state(&mut self, _: usize) -> Result<Box<dyn State>> {
        if self.lie == Lie::OtherState { Ok(Box::new(OtherState)) } else { Ok(Box::new(Count(0))) }
    }

    fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> Result<()> {
        if let ("term", OptionValue::Int(term)) = (name, value) {
            self.term = term as f32;
        }
        Ok(())
    }
}

impl DeviceDelegate for Adder {
    fn memory(&self, _: usize) -> MemoryKind {
        self.device.map_or(MemoryKind::Host, MemoryKind::Device)
    }

    fn allocate(&mut self, bytes: usize) -> Result<Box<dyn DeviceBuffer>> {
        let len = match self.lie {
            Lie::ShortBuffer => bytes - 1,
            Lie::OtherBuffer => return Ok(Box::new(Other(bytes))),
            _ => bytes,
        };
        Ok(Box::new(Bytes { data: vec![0; len], len, latency: self.latency, left: None }))
    }

    fn submit(&mut self, call: &mut Call<'_, '_>) -> Result<()> {
        self.left = self.latency;
        self.compute(call)?;
        if self.lie == Lie::Shrinking {
            call.buffers.get_mut::<Bytes>(1)?.len = 3;
        }
        Ok(())
    }

    fn poll(&mut self, _: &mut Call<'_, '_>) -> Result<Poll<()>> {
        if self.lie == Lie::Endless {
            return Ok(Poll::Pending);
        }
        let is_complete = self.left == 0;
        self.left = self.left.saturating_sub(1);
        Ok(if is_complete { Poll::Ready(()) } else { Poll::Pending })
    }

    fn cancel(&mut self) {
        self.cancels.fetch_add(1, Ordering::Relaxed);
    }
}

fn double(cx: &KernelContext<'_>) -> Result<()> {
    let x = cx.tensor(0)?;
    cx.out(1)?.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?).for_each(|(y, x)| *y = 2.0 * x);
    Ok(())
}

/// True if the first element is at least 7.
fn done(cx: &KernelContext<'_>) -> Result<()> {
    let x = cx.tensor(0)?.as_slice::<f32>()?[0];
    cx.out(1)?.bytes_mut()[0] = u8::from(x >= 7.0);
    Ok(())
}

const SET: OpSet =
    OpSet { name: "TEST", groups: &[&[&[Op::new("test::done.out", 2, done), Op::new("test::double.out", 2, double)]]] };

/// A step of a method. Each step takes the result of the one before.
enum Do {
    /// A delegate with this payload.
    Delegate(&'static [u8]),
    Kernel,
    Move,
}

/// A method that takes a tensor and returns the last result, or all of them.
fn method(name: &str, steps: &[Do], all_outputs: bool) -> PlanModel<'static> {
    let mut plan = PlanModel::new(name);
    let tensor = |plan: &mut PlanModel<'static>| {
        let tensor = plan.planned(TensorModel::new(ScalarType::Float, &[ELEMENTS as i32]));
        plan.push(ValueModel::Tensor(tensor))
    };
    let mut last = tensor(&mut plan);
    plan.inputs.push(last);
    for step in steps {
        let result = tensor(&mut plan);
        match step {
            Do::Delegate(payload) => {
                let delegate = plan.delegates.len() as u32;
                plan.delegates.push(DelegateModel { id: ID.into(), data: (*payload).into(), compile_specs: vec![] });
                plan.instructions.push(InstructionModel::Delegate { delegate, args: vec![last, result] });
            }
            Do::Kernel => plan.call("test::double", "out", &[last, result]),
            Do::Move => plan.instructions.push(InstructionModel::Move { from: last, to: result }),
        }
        if all_outputs {
            plan.outputs.push(result);
        }
        last = result;
    }
    if !all_outputs {
        plan.outputs.push(last);
    }
    plan
}

fn file(methods: Vec<PlanModel<'static>>) -> HeapBlock {
    let mut program = ProgramModel::new();
    program.methods = methods;
    stored(&program)
}

fn stored(program: &ProgramModel<'_>) -> HeapBlock {
    let bytes = program.to_bytes().unwrap();
    let mut block = HeapBlock::new(bytes.len()).unwrap();
    block.bytes_mut().copy_from_slice(&bytes);
    block
}

fn load<'m>(block: &'m HeapBlock, name: &str, backend: &Simulated) -> Result<Method<'m>> {
    load_with(block, name, backend, &[], false)
}

fn load_with<'m>(
    block: &'m HeapBlock,
    name: &str,
    backend: &Simulated,
    backend_options: &[BackendOption<'_>],
    without_states: bool,
) -> Result<Method<'m>> {
    use rushlight_runtime::StableBytes;
    let program = Program::parse(block.bytes())?;
    let backends: [&dyn Backend; 1] = [backend];
    let registry = Registry::new(&[&SET]);
    let options = LoadOptions { backends: &backends, backend_options, without_states, ..LoadOptions::new(registry) };
    Method::load(&program, name, Memory::heap(), &options)
}

const X: [f32; ELEMENTS] = [1.0, 2.0, 3.0, 4.0];

fn input() -> [Input<'static>; 1] {
    [TensorView::of(&[ELEMENTS], &X).unwrap().into()]
}

/// Records the copies: `>` to a device, `<` to the host, with the instruction.
#[derive(Default)]
struct Copies {
    copies: Vec<(usize, char)>,
    tensors: Option<Vec<f32>>,
    inner: Option<Inner>,
}

#[derive(Default)]
struct Inner(RefCell<Vec<String>>);

impl DelegateTracer for Inner {
    fn begin(&self, event: DelegateEvent<'_>) {
        self.0.borrow_mut().push(format!("begin {}", event.name));
    }

    fn end(&self, event: DelegateEvent<'_>) {
        self.0.borrow_mut().push(format!("end {}", event.name));
    }
}

impl EventTracer for Copies {
    fn end(&mut self, event: Event<'_>) {
        if let Event::Copy { instruction, bytes, to, .. } = event {
            assert_eq!(bytes, 4 * ELEMENTS);
            self.copies.push((instruction, if to == MemoryKind::Host { '<' } else { '>' }));
        }
    }

    fn wants_tensors(&self) -> bool {
        self.tensors.is_some()
    }

    fn tensor(&mut self, _: usize, _: usize, tensor: rushlight_runtime::Tensor<'_>) {
        self.tensors.as_mut().unwrap().push(tensor.as_slice::<f32>().unwrap()[0]);
    }

    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        self.inner.as_ref().map(|inner| inner as &dyn DelegateTracer)
    }
}

fn first(method: &mut Method<'_>) -> Result<f32> {
    let outputs = method.execute(&input())?;
    Ok(outputs.tensor(outputs.len() - 1)?.as_slice::<f32>()?[0])
}

#[test]
fn values_are_copied_only_between_memories() -> Result<()> {
    use Do::{Delegate as D, Kernel, Move};
    type Case<'a> = (&'a [Do], bool, f32, &'a [(usize, char)]);
    let cases: &[Case<'_>] = &[
        (&[D(b"0")], false, 2.0, &[(0, '>'), (1, '<')]),
        (&[D(b"0"), D(b"0"), D(b"0")], false, 4.0, &[(0, '>'), (3, '<')]),
        (&[D(b"0"), Kernel, D(b"0")], false, 5.0, &[(0, '>'), (1, '<'), (2, '>'), (3, '<')]),
        (&[D(b"0"), D(b"h"), D(b"0")], false, 4.0, &[(0, '>'), (1, '<'), (2, '>'), (3, '<')]),
        // Two devices exchange data through the host.
        (&[D(b"0"), D(b"1")], false, 3.0, &[(0, '>'), (1, '<'), (1, '>'), (2, '<')]),
        // An intermediate result that is also an output stays on the device until the end.
        (&[D(b"0"), D(b"0")], true, 3.0, &[(0, '>'), (2, '<'), (2, '<')]),
        // A moved value is copied at each use.
        (&[D(b"0"), Move, D(b"0")], false, 3.0, &[(0, '>'), (0, '<'), (2, '>'), (3, '<')]),
        (&[Kernel], false, 2.0, &[]),
        (&[D(b"h"), D(b"h")], false, 3.0, &[]),
    ];
    for (index, (steps, all_outputs, result, copies)) in cases.iter().enumerate() {
        let block = file(vec![method("forward", steps, *all_outputs)]);
        for latency in 0..3 {
            let mut method = load(&block, "forward", &Simulated { latency, ..Simulated::default() })?;
            assert_eq!(method.memory_use(), method.calculated_memory_use());
            for _ in 0..2 {
                let mut tracer = Copies::default();
                let outputs = method.execute_traced(&input(), &mut [], &mut tracer)?;
                let got = outputs.tensor(outputs.len() - 1)?.as_slice::<f32>()?[0];
                assert_eq!((got, &tracer.copies[..]), (*result, *copies), "case {index}");
            }
            let (mut submission, mut polls) = (method.submit(&input())?, 0);
            while submission.poll()?.is_pending() {
                polls += 1;
            }
            let outputs = submission.complete()?;
            assert_eq!(outputs.tensor(outputs.len() - 1)?.as_slice::<f32>()?[0], *result);
            assert_eq!(polls > 0, latency > 0 && !copies.is_empty(), "case {index}, {polls} polls");
        }
    }
    Ok(())
}

#[test]
fn tracers_see_tensors_of_devices() -> Result<()> {
    let block = file(vec![method("forward", &[Do::Delegate(b"0"), Do::Delegate(b"0"), Do::Kernel], false)]);
    let mut method = load(&block, "forward", &Simulated { latency: 1, ..Simulated::default() })?;
    let mut tracer = Copies { tensors: Some(Vec::new()), ..Copies::default() };
    method.execute_traced(&input(), &mut [], &mut tracer)?;
    assert_eq!(tracer.tensors.as_deref(), Some(&[2.0, 3.0, 6.0][..]));
    Ok(())
}

#[test]
fn constants_are_copied_once() -> Result<()> {
    let mut program = ProgramModel::new();
    let data: Vec<u8> = X.iter().flat_map(|x| x.to_le_bytes()).collect();
    let index = program.constant(data);
    let mut plan = PlanModel::new("forward");
    let tensor = TensorModel::new(ScalarType::Float, &[ELEMENTS as i32]);
    let constant = plan.push(ValueModel::Tensor(tensor.clone().stored(StorageModel::Constant { index })));
    let result = plan.planned(tensor);
    let result = plan.output(ValueModel::Tensor(result));
    plan.delegates.push(DelegateModel { id: ID.into(), data: b"0".as_slice().into(), compile_specs: vec![] });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args: vec![constant, result] });
    program.methods.push(plan);
    let block = stored(&program);
    let mut method = load(&block, "forward", &Simulated::default())?;
    for copies in [&[(0, '>'), (1, '<')][..], &[(1, '<')], &[(1, '<')]] {
        let mut tracer = Copies::default();
        let outputs = method.execute_traced(&[], &mut [], &mut tracer)?;
        assert_eq!(outputs.tensor(0)?.as_slice::<f32>()?, [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(tracer.copies, copies);
    }
    Ok(())
}

#[test]
fn loops_and_unplanned_tensors_work() -> Result<()> {
    // `x = x + 1 + 1` until it is at least 7. The input is written: its memory is current after every step.
    let mut plan = PlanModel::new("forward");
    let tensor = || TensorModel::new(ScalarType::Float, &[ELEMENTS as i32]);
    let (x, y) = (plan.planned(tensor()), plan.planned(tensor()));
    let (x, y) = (plan.input(ValueModel::Tensor(x)), plan.push(ValueModel::Tensor(y)));
    let condition = plan.planned(TensorModel::new(ScalarType::Bool, &[1]));
    let condition = plan.push(ValueModel::Tensor(condition));
    plan.delegates.push(DelegateModel { id: ID.into(), data: b"0".as_slice().into(), compile_specs: vec![] });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args: vec![x, y] });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args: vec![y, x] });
    plan.call("test::done", "out", &[x, condition]);
    plan.instructions.push(InstructionModel::JumpFalse { cond: condition, destination: 0 });
    plan.outputs.push(x);
    let block = file(vec![plan]);
    let mut method = load(&block, "forward", &Simulated { latency: 1, ..Simulated::default() })?;
    for _ in 0..2 {
        let mut tracer = Copies::default();
        let outputs = method.execute_traced(&input(), &mut [], &mut tracer)?;
        assert_eq!(outputs.tensor(0)?.as_slice::<f32>()?, [7.0, 8.0, 9.0, 10.0]);
        assert_eq!(tracer.copies, [(0, '>'), (1, '<')].repeat(3));
    }

    let mut plan = PlanModel::new("forward");
    let middle = plan.planned(tensor().dynamic());
    let middle = plan.push(ValueModel::Tensor(middle));
    let unplanned = || ValueModel::Tensor(tensor().dynamic().stored(StorageModel::Unplanned));
    let (x, y) = (plan.input(unplanned()), plan.output(unplanned()));
    plan.delegates.push(DelegateModel { id: ID.into(), data: b"0".as_slice().into(), compile_specs: vec![] });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args: vec![x, middle] });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args: vec![middle, y] });
    let block = file(vec![plan]);
    let mut method = load(&block, "forward", &Simulated { latency: 1, ..Simulated::default() })?;
    // Fewer elements than the buffers hold.
    for elements in [ELEMENTS, 3, 0, ELEMENTS] {
        let mut memory = HeapBlock::new(4 * ELEMENTS)?;
        let sizes = [elements];
        let inputs = [TensorView::of(&sizes, &X[..elements])?.into()];
        let mut buffers = [OutputBuffer { index: 0, data: memory.bytes_mut() }];
        let mut submission = method.start(&inputs, &mut buffers)?.submit()?;
        while submission.poll()?.is_pending() {}
        let outputs = submission.complete()?;
        assert_eq!(outputs.tensor(0)?.as_slice::<f32>()?, &[3.0, 4.0, 5.0, 6.0][..elements]);
    }
    Ok(())
}

#[test]
fn a_submission_can_be_dropped_and_forgotten() -> Result<()> {
    let backend = Simulated { latency: 2, ..Simulated::default() };
    let block = file(vec![method("forward", &[Do::Delegate(b"0"), Do::Delegate(b"0")], false)]);
    let mut method = load(&block, "forward", &backend)?;
    let cancels = || backend.cancels.load(Ordering::Relaxed);
    // Number of polls before the submission is dropped.
    for polls in 0..9 {
        let before = cancels();
        let mut submission = method.submit(&input())?;
        let mut is_pending = true;
        for _ in 0..polls {
            is_pending = submission.poll()?.is_pending();
        }
        drop(submission);
        assert!(cancels() - before <= usize::from(is_pending));
        assert_eq!(first(&mut method)?, 3.0);
        std::mem::forget(method.submit(&input())?);
        let before = cancels();
        assert_eq!(first(&mut method)?, 3.0);
        assert_eq!(cancels() - before, 1, "the next execution abandons it");
    }
    // Single steps wait.
    let mut execution = method.start(&input(), &mut [])?;
    while execution.step()? {}
    assert_eq!(execution.finish()?.tensor(0)?.as_slice::<f32>()?[0], 3.0);
    Ok(())
}

#[test]
fn methods_share_states_and_sessions_do_not() -> Result<()> {
    for device in ["h", "0"] {
        let payload: &'static [u8] = if device == "h" { b"hcache" } else { b"0cache" };
        let steps = || [Do::Delegate(payload), Do::Delegate(b"h")];
        let block = file(vec![method("prefill", &steps(), false), method("decode", &steps(), false)]);
        let backend = Simulated { latency: 1, ..Simulated::default() };
        let mut prefill = load_with(&block, "prefill", &backend, &[], true)?;
        let mut decode = load_with(&block, "decode", &backend, &[], true)?;
        assert!(prefill.has_delegate_states());
        let run = |method: &mut Method<'_>, states: &mut States| -> Result<f32> {
            let outputs = method.start_in(states, &input(), &mut [])?.finish()?;
            Ok(outputs.tensor(0)?.as_slice::<f32>()?[0])
        };
        // States must be added before the execution, which allocates nothing.
        let missing = run(&mut prefill, &mut States::new()).unwrap_err();
        assert!(matches!(missing.detail, Detail::Fault(Fault::NoState, ..)), "{missing}");
        assert_eq!(first(&mut prefill).unwrap_err().code, Code::InvalidState);

        let (mut a, mut b) = (States::new(), States::new());
        for states in [&mut a, &mut b] {
            prefill.add_states(states)?;
            decode.add_states(states)?;
            assert_eq!((states.len(), states.size()), (1, 4));
        }
        assert_eq!(run(&mut prefill, &mut a)?, 3.0);
        assert_eq!(run(&mut decode, &mut a)?, 4.0);
        assert_eq!(run(&mut decode, &mut b)?, 3.0);
        let mut copy = a.fork()?;
        assert_eq!(run(&mut decode, &mut copy)?, 5.0);
        assert_eq!(run(&mut decode, &mut a)?, 5.0);
        assert_eq!(a.get_mut::<Count>(ID, "cache").map(|count| count.0), Some(3));
        assert!(a.get_mut::<OtherState>(ID, "cache").is_none());
        assert_eq!(a.rewind(1).unwrap_err().code, Code::NotImplemented);
        let Poll::Ready(saved) = a.save()? else { panic!("nothing to wait for") };
        a.clear()?;
        assert_eq!(run(&mut decode, &mut a)?, 3.0);
        b.restore(&saved)?;
        assert_eq!(run(&mut decode, &mut b)?, 6.0);
        for cut in 0..saved.len() {
            let damaged = b.restore(&saved[..cut]);
            assert!(damaged.is_err() && States::new().restore(&saved).is_err(), "{cut} bytes");
        }
        // A submission takes a session's states too.
        let mut submission = decode.start_in(&mut b, &input(), &mut [])?.submit()?;
        while submission.poll()?.is_pending() {}
        assert_eq!(submission.complete()?.tensor(0)?.as_slice::<f32>()?[0], 7.0);

        // Another loaded method has its own states.
        let mut own = load(&block, "decode", &backend)?;
        assert_eq!((first(&mut own)?, first(&mut own)?), (3.0, 4.0));
        let limited = States::with_limit(3).len();
        assert_eq!(
            (limited, own.add_states(&mut States::with_limit(3)).unwrap_err().code),
            (0, Code::MemoryAllocationFailed)
        );
    }
    Ok(())
}

#[test]
fn delegates_that_share_a_state_declare_the_same_bytes() -> Result<()> {
    let is_refused = |error: Error, expected: usize, got: usize| {
        let text = format!("bytes of a state that delegates share: expected {expected}, got {got}");
        assert_eq!(error.code, Code::InvalidProgram);
        assert!(error.to_string().contains(&text), "{error}");
    };
    let backend = Simulated::default();
    // In one method.
    for (payloads, expected, got) in [([b"hcache" as &[u8], b"hcache+"], 4, 8), ([b"0cache+", b"0cache"], 8, 4)] {
        let block = file(vec![method("forward", &payloads.map(Do::Delegate), false)]);
        is_refused(load(&block, "forward", &backend).unwrap_err(), expected, got);
    }
    // In two methods.
    let block = file(vec![
        method("small", &[Do::Delegate(b"hcache")], false),
        method("large", &[Do::Delegate(b"hcache+")], false),
    ]);
    let mut small = load_with(&block, "small", &backend, &[], true)?;
    let mut large = load_with(&block, "large", &backend, &[], true)?;
    let mut states = States::new();
    small.add_states(&mut states)?;
    is_refused(large.add_states(&mut states).unwrap_err(), 4, 8);
    assert_eq!((states.len(), states.size()), (1, 4));
    // A method whose states were not added finds the smaller one.
    let ran = large.start_in(&mut states, &input(), &mut []).and_then(|execution| execution.finish().map(drop));
    is_refused(ran.unwrap_err(), 4, 8);
    // The state is as before.
    assert_eq!(small.start_in(&mut states, &input(), &mut [])?.finish()?.tensor(0)?.as_slice::<f32>()?[0], 2.0);
    Ok(())
}

#[test]
fn options_have_names_and_types() -> Result<()> {
    let block = file(vec![method("forward", &[Do::Delegate(b"0"), Do::Delegate(b"h")], false)]);
    let backend = Simulated::default();
    let option = |key, value| BackendOption { backend: ID, key, value };
    let load = |option| load_with(&block, "forward", &backend, &[option], false);
    let mut method = load(option("term", 5.into()))?;
    assert_eq!(first(&mut method)?, 11.0);
    method.set_option(&option("term", 2.into()))?;
    assert_eq!(first(&mut method)?, 5.0);
    let unknown = [load(option("terms", 1.into())).unwrap_err(), method.set_option(&option("", 1.into())).unwrap_err()];
    for error in unknown {
        assert_eq!(error.code, Code::NotFound);
        assert!(error.to_string().contains("`term`, `latency`"), "{error}");
    }
    let typed = [load(option("term", true.into())), load(option("latency", "1".into()))];
    for error in typed.map(Result::unwrap_err) {
        assert_eq!(error.code, Code::InvalidType);
        assert!(error.to_string().contains("an int"), "{error}");
    }
    let fixed = method.set_option(&option("latency", 1.into())).unwrap_err();
    assert!(matches!(fixed.detail, Detail::Fault(Fault::FixedOption, ..)));
    let other = BackendOption { backend: "Other", key: "term", value: 1.into() };
    assert_eq!(load(other).unwrap_err().code, Code::NotFound);
    assert_eq!(method.set_option(&other).unwrap_err().code, Code::NotFound);
    Ok(())
}

#[test]
fn delegates_report_events() -> Result<()> {
    let steps = [Do::Delegate(b"0"), Do::Delegate(b"h"), Do::Delegate(b"hkey")];
    let block = file(vec![method("forward", &steps, false)]);
    let mut method = load(&block, "forward", &Simulated { latency: 1, ..Simulated::default() })?;
    let mut tracer = Copies { inner: Some(Inner::default()), ..Copies::default() };
    method.execute_traced(&input(), &mut [], &mut tracer)?;
    let events = tracer.inner.unwrap_or_default().0.into_inner();
    assert_eq!(events, ["begin add", "end add"].repeat(3));
    Ok(())
}

/// Stops after some polls.
struct After(std::cell::Cell<usize>);

impl Interrupt for After {
    fn poll(&self) -> Option<Stop> {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        (left == 0).then_some(Stop::Cancelled)
    }
}

impl EventTracer for After {
    fn interrupt(&self) -> Option<&dyn Interrupt> {
        Some(self)
    }
}

#[test]
fn broken_promises_are_errors() -> Result<()> {
    let block = file(vec![method("forward", &[Do::Delegate(b"0key"), Do::Delegate(b"0")], false)]);
    let backend = |lie| Simulated { lie, latency: 1, ..Simulated::default() };
    let error = load(&block, "forward", &backend(Lie::ShortBuffer)).unwrap_err();
    assert!(matches!(error.detail, Detail::Fault(Fault::ShortBuffer, 16, 15)), "{error}");
    let faults = [
        (Lie::OtherBuffer, Fault::BufferType),
        (Lie::OtherState, Fault::StateType),
        (Lie::Shrinking, Fault::ShortBuffer),
    ];
    for (lie, fault) in faults {
        let mut method = load(&block, "forward", &backend(lie))?;
        for _ in 0..2 {
            let error = first(&mut method).unwrap_err();
            assert!(matches!(error.detail, Detail::Fault(got, ..) if got == fault), "{lie:?}: {error}");
        }
        let submitted = method.submit(&input()).and_then(|mut submission| {
            while submission.poll()?.is_pending() {}
            submission.complete().map(drop)
        });
        assert!(submitted.is_err(), "{lie:?}");
    }
    let backend = backend(Lie::Endless);
    let mut method = load(&block, "forward", &backend)?;
    let error = method.execute_traced(&input(), &mut [], &mut After(7.into())).unwrap_err();
    assert!(matches!(error.detail, Detail::Stopped { stop: Stop::Cancelled, .. }), "{error}");
    assert_eq!(backend.cancels.load(Ordering::Relaxed), 1);
    let mut submission = method.submit(&input())?;
    assert!(submission.poll()?.is_pending());
    let error = submission.poll_traced(&mut After(0.into())).unwrap_err();
    assert_eq!(submission.poll().unwrap_err(), error, "after an error there is nothing else");
    assert_eq!(submission.complete().unwrap_err(), error);
    assert_eq!(backend.cancels.load(Ordering::Relaxed), 2);
    Ok(())
}
