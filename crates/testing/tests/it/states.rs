//! States that the CPU backend owns: they have the same results as on the reference operators, methods share them, and
//! sessions do not.

use std::fmt::Write as _;

use rushlight::{BatchCall, Code, Input, Module, Session, TensorView, Value};
use rushlight_compiler::partition::Backend;
use rushlight_compiler::{CompileOptions, compile};
use rushlight_cpu_compile::Cpu;
use rushlight_graph::Model;
use rushlight_graph::text::Contents;

/// Positions of the caches.
const CAPACITY: usize = 16;

/// Two methods with the same caches: one accepts any number of positions, the other only one.
fn caches() -> Model {
    let mut text = String::new();
    for name in ["k_cache", "v_cache"] {
        writeln!(text, "state ${name} : f32[1, {CAPACITY}, 2, 8] = zeros").unwrap();
    }
    for (method, symbol, size) in [("prefill", "symbol s0 in 1..=16", "s0"), ("decode", "", "1")] {
        writeln!(
            text,
            "method {method} {{
              {symbol}
              symbol u0 in 0..=15
              input %q : f32[1, {size}, 4, 8]
              input %k : f32[1, {size}, 2, 8]
              input %v : f32[1, {size}, 2, 8]
              input %positions : i64[{size}]
              %first = aten::select_copy.int(%positions, 0, 0) : i64[]
              %start = aten::_local_scalar_dense(%first) : int u0
              %keys = aten::slice_scatter($k_cache, %k, 1, u0, ({size} + u0)) : f32[1, {CAPACITY}, 2, 8]
              %values = aten::slice_scatter($v_cache, %v, 1, u0, ({size} + u0)) : f32[1, {CAPACITY}, 2, 8]
              %y = llama::custom_sdpa(%q, %keys, %values, u0, none, 0.0, true) : f32[1, {size}, 4, 8]
              return %y
              update $k_cache = %keys
              update $v_cache = %values
            }}"
        )
        .unwrap();
    }
    Model::parse(&text, &Contents::default()).unwrap()
}

fn module(model: &Model, backends: Vec<Box<dyn Backend>>) -> Module {
    module_with(model, backends, true)
}

fn module_with(model: &Model, backends: Vec<Box<dyn Backend>>, shares_memory: bool) -> Module {
    let compiled = compile(model.clone(), &CompileOptions { backends, ..CompileOptions::default() }).unwrap();
    assert!(compiled.report.entries.iter().all(|entry| !entry.is_returned));
    let bytes = compiled.program.to_bytes().unwrap();
    Module::builder().lower("off").threads(1).share_memory(shares_memory).load_bytes(&bytes).unwrap()
}

fn on_cpu(model: &Model) -> Module {
    let mut module = module(model, vec![Box::new(Cpu::default())]);
    let names: Vec<String> = module.method_names().map(ToOwned::to_owned).collect();
    for name in names {
        assert!(module.method(&name).unwrap().planned_state().is_none(), "`{name}` has the state in its own memory");
    }
    module
}

/// The inputs of a call: `rows` positions from `start`, with numbers that depend on both.
struct Call {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    positions: Vec<i64>,
    /// The sizes of all four inputs.
    sizes: [Vec<usize>; 4],
}

impl Call {
    fn new(start: usize, rows: usize) -> Self {
        let numbers = |width: usize, seed: usize| {
            let number = |index: usize| ((index + 31 * (start + seed)) as f32 * 0.37).sin();
            (0..rows * width).map(number).collect()
        };
        let positions = (start..start + rows).map(|position| position as i64).collect();
        let sizes = [vec![1, rows, 4, 8], vec![1, rows, 2, 8], vec![1, rows, 2, 8], vec![rows]];
        Self { q: numbers(32, 1), k: numbers(16, 2), v: numbers(16, 3), positions, sizes }
    }

    fn inputs(&self) -> [Input<'_>; 4] {
        let [q, k, v, positions] = &self.sizes;
        [
            TensorView::of(q, &self.q).unwrap().into(),
            TensorView::of(k, &self.k).unwrap().into(),
            TensorView::of(v, &self.v).unwrap().into(),
            TensorView::of(positions, &self.positions).unwrap().into(),
        ]
    }
}

fn floats(values: &[Value]) -> Vec<f32> {
    values[0].as_tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
}

fn run(module: &mut Module, method: &str, start: usize, rows: usize) -> Vec<f32> {
    floats(&module.run(method, &Call::new(start, rows).inputs()).unwrap())
}

fn run_in(module: &mut Module, session: &mut Session, start: usize, rows: usize) -> Vec<f32> {
    floats(&module.call("prefill").inputs(&Call::new(start, rows).inputs()).session(session).run().unwrap())
}

fn assert_close(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= 1e-6, "{got} {expected}");
    }
}

#[test]
fn caches_give_what_the_reference_operators_give() {
    let model = caches();
    // The reference operators keep one copy of the caches, which both methods use.
    let (mut reference, mut cpu) = (module(&model, Vec::new()), on_cpu(&model));
    for (method, start, rows) in
        [("prefill", 0, 5), ("decode", 5, 1), ("decode", 6, 1), ("prefill", 7, 3), ("prefill", 2, 1), ("decode", 15, 1)]
    {
        let expected = run(&mut reference, method, start, rows);
        assert_close(&run(&mut cpu, method, start, rows), &expected);
    }
}

#[test]
fn sessions_have_caches_of_their_own() {
    let mut cpu = on_cpu(&caches());
    let expected = [run(&mut cpu, "prefill", 0, 4), run(&mut cpu, "prefill", 4, 1), run(&mut cpu, "prefill", 5, 1)];
    let mut one = cpu.session().unwrap();
    assert_eq!(one.size(), 2 * CAPACITY * 16 * size_of::<f32>());
    assert_eq!(run_in(&mut cpu, &mut one, 0, 4), expected[0]);
    let mut other = cpu.session().unwrap();
    run_in(&mut cpu, &mut other, 0, 9);
    assert_eq!(run_in(&mut cpu, &mut one, 4, 1), expected[1]);
    // Positions that a fork adds are not visible in the original.
    let mut fork = one.fork().unwrap();
    run_in(&mut cpu, &mut fork, 5, 3);
    let std::task::Poll::Ready(saved) = one.save().unwrap() else { panic!("the CPU does not wait") };
    run_in(&mut cpu, &mut one, 3, 2);
    one.restore(&saved).unwrap();
    assert_eq!(run_in(&mut cpu, &mut one, 5, 1), expected[2]);
    one.rewind(4).unwrap();
    assert_eq!(run_in(&mut cpu, &mut one, 4, 1), expected[1]);
    one.clear().unwrap();
    assert_eq!(run_in(&mut cpu, &mut one, 0, 4), expected[0]);
    assert_eq!(one.restore(&saved[..saved.len() - 1]).unwrap_err().code(), Code::InvalidExternalData);
}

#[test]
fn a_batch_has_calls_of_any_position_and_length() {
    for shares_memory in [false, true] {
        batches(module_with(&caches(), vec![Box::new(Cpu::default())], shares_memory));
    }
}

fn batches(mut cpu: Module) {
    let mut batch = cpu.batch("prefill").unwrap();
    let mut sessions: Vec<Session> = (0..3).map(|_| cpu.session().unwrap()).collect();
    let mut alone: Vec<Session> = sessions.iter().map(|session| session.fork().unwrap()).collect();
    for lengths in [[4, 1, 6], [1, 1, 1], [2, 3, 1]] {
        let starts = if lengths == [4, 1, 6] {
            [0; 3]
        } else if lengths == [1; 3] {
            [4, 1, 6]
        } else {
            [5, 2, 7]
        };
        let calls: Vec<Call> = starts.iter().zip(lengths).map(|(start, rows)| Call::new(*start, rows)).collect();
        let inputs: Vec<_> = calls.iter().map(Call::inputs).collect();
        let each = sessions.iter_mut().zip(&inputs);
        let mut batched: Vec<_> = each.map(|(session, inputs)| BatchCall { session, inputs }).collect();
        let outputs = batch.run(&mut cpu, &mut batched).unwrap();
        for (index, outputs) in outputs.iter().enumerate() {
            let expected = run_in(&mut cpu, &mut alone[index], starts[index], lengths[index]);
            assert_close(&floats(outputs), &expected);
        }
    }
    // A position outside of one of the caches is an error. The contents of the others are unchanged after going back.
    let calls = [Call::new(6, 1), Call::new(CAPACITY, 1)];
    let inputs = calls.each_ref().map(Call::inputs);
    let each = sessions.iter_mut().zip(&inputs);
    let mut batched: Vec<_> = each.map(|(session, inputs)| BatchCall { session, inputs }).collect();
    batch.run(&mut cpu, &mut batched).unwrap_err();
    let expected = run_in(&mut cpu, &mut alone[0], 6, 1);
    assert_close(&run_in(&mut cpu, &mut sessions[0], 6, 1), &expected);
}

#[test]
fn positions_outside_of_the_cache_are_refused_and_leave_it_as_it_was() {
    let mut cpu = on_cpu(&caches());
    let first = run(&mut cpu, "prefill", 0, 4);
    for (start, rows) in [(16, 1), (14, 3)] {
        let call = Call::new(start, rows);
        cpu.run("prefill", &call.inputs()).unwrap_err();
    }
    let mut call = Call::new(4, 1);
    call.positions[0] = -1;
    let error = cpu.run("prefill", &call.inputs()).unwrap_err();
    assert!(error.to_string().contains("-1"), "{error}");
    assert_eq!(run(&mut cpu, "prefill", 0, 4), first);
    let next = run(&mut cpu, "decode", 4, 1);
    assert_eq!(run(&mut cpu, "decode", 4, 1), next);
}

#[test]
fn states_of_every_form_are_kept() {
    // One state is accumulated, two are exchanged, and one is written in part and returned.
    let text = "
        state $sum : f32[4] = zeros
        state $a : f32[4] = zeros
        state $b : f32[4] = zeros
        state $rows : f32[3, 4] = zeros
        method forward {
          input %x : f32[4]
          %sum = aten::add.Tensor($sum, %x) : f32[4]
          %a = aten::add.Tensor($a, %sum) : f32[4]
          %b = aten::mul.Scalar($b, 0.5) : f32[4]
          %row = aten::view_copy(%x, [1, 4]) : f32[1, 4]
          %rows = aten::slice_scatter($rows, %row, 0, 1, 2) : f32[3, 4]
          %shown = aten::mul.Scalar(%rows, 2.0) : f32[3, 4]
          return %sum, %shown, %rows, %a
          update $sum = %sum
          update $a = %b
          update $b = %a
          update $rows = %rows
        }";
    let model = Model::parse(text, &Contents::default()).unwrap();
    let (mut reference, mut cpu) = (module(&model, Vec::new()), on_cpu(&model));
    for call in 0..4 {
        let x = [1.0, -2.0, call as f32, 0.25];
        let inputs = [TensorView::of(&[4], &x).unwrap().into()];
        let [expected, got] = [&mut reference, &mut cpu].map(|module| {
            let values = module.forward(&inputs).unwrap();
            let floats = values.iter().map(|value| value.as_tensor().unwrap().as_slice::<f32>().unwrap().to_vec());
            floats.collect::<Vec<_>>()
        });
        assert_eq!(got, expected, "call {call}");
    }
    let mut session = cpu.session().unwrap();
    assert_eq!(session.rewind(1).unwrap_err().code(), Code::NotSupported);
}
