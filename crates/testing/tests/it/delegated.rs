//! Programs that the compiler writes for the CPU backend: their payloads and their results.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rushlight::{Input, Module, TensorView};
use rushlight_compiler::emit::emit;
use rushlight_compiler::{CompileOptions, Stage, advance};
use rushlight_cpu_compile::Cpu;
use rushlight_cpu_payload::{CPU_BACKEND, Convolution, ConvolutionKind, CpuProgram, Size, Step, TensorId};
use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, quantized_decomposed};
use rushlight_graph::{Arg, Builder, Constant, Graph, Model, Origin, TensorType, Type, ValueId};
use rushlight_runtime::{Delegate, DelegateContext, DelegateHandle, Element, InitContext};
use rushlight_testing::mutations::Random;

/// A method with an input of `size` elements.
fn model(dtype: ScalarType, size: i64, build: impl FnOnce(&mut Builder<'_>, ValueId) -> Vec<Arg>) -> Model {
    let mut model = Model::default();
    model.add_method("forward", Graph::new());
    let graph = &mut model.methods["forward"];
    let x = graph.input("x", Type::Tensor(TensorType::of(dtype, &[size])));
    let (body, origin) = (graph.body, graph.origins.push(Origin { node: "test".into(), ..Origin::default() }));
    let outputs = build(&mut model.builder("forward", body, origin).unwrap(), x);
    model.methods["forward"].outputs = outputs;
    model
}

/// The program for the reference operators, the one for the backend, and the payload in the latter.
fn compiled(model: &Model) -> (Vec<u8>, Vec<u8>, CpuProgram) {
    let options = CompileOptions { backends: vec![Box::new(Cpu::default())], ..CompileOptions::default() };
    let portable = emit(model, &options.emit).unwrap().program.to_bytes().unwrap();
    let mut model = model.clone();
    advance(&mut model, &options, Stage::Final).unwrap();
    let program = emit(&model, &options.emit).unwrap().program;
    let payload = CpuProgram::parse(&program.methods[0].delegates[0].data).unwrap();
    (portable, program.to_bytes().unwrap(), payload)
}

fn run<T: Element>(program: &[u8], elements: &[T]) -> Vec<Vec<f32>> {
    let mut module = Module::builder().lower("off").load_bytes(program).unwrap();
    let sizes = [elements.len()];
    let input = Input::from(TensorView::of(&sizes, elements).unwrap());
    let outputs = module.run("forward", &[input]).unwrap();
    outputs.iter().map(|output| output.as_slice::<f32>().unwrap().to_vec()).collect()
}

#[test]
fn outputs_that_are_read_again_are_not_copied() {
    let model = model(ScalarType::Float, 5, |b, x| {
        let mut call = |name: &str, args: Vec<Arg>| b.one(name, args).unwrap();
        let exponential = call(aten::EXP, vec![x.into()]);
        let flipped = call(aten::RECIPROCAL, vec![exponential.into()]);
        let sum = call(aten::CUMSUM, vec![exponential.into(), Arg::from(0)]);
        let last = call(aten::MUL_TENSOR, vec![sum.into(), flipped.into()]);
        // Results that other nodes read are returned before and after them.
        vec![last.into(), exponential.into(), sum.into()]
    });
    let (portable, ours, payload) = compiled(&model);
    let copies = payload.steps.iter().filter(|step| matches!(step, Step::Copy(_))).count();
    assert_eq!(copies, 0, "{:?}", payload.names);
    let numbers = [0.5f32, -1.0, 2.0, 0.0, 1.25];
    for (got, wanted) in run(&ours, &numbers).into_iter().zip(run(&portable, &numbers)) {
        assert!(got.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-5), "{got:?} {wanted:?}");
    }
}

#[test]
fn the_same_output_twice_is_copied() {
    let model = model(ScalarType::Float, 3, |b, x| {
        let sum = b.one(aten::ADD_TENSOR, vec![x.into(), x.into()]).unwrap();
        vec![sum.into(), sum.into()]
    });
    let (portable, ours, _) = compiled(&model);
    let numbers = [1.0f32, -2.0, 0.25];
    assert_eq!(run(&ours, &numbers), run(&portable, &numbers));
}

/// Loads a program from bytes and from a file, with lowering off, and runs it.
fn run_everywhere(program: &[u8], elements: &[f32]) -> Vec<Vec<f32>> {
    let from_bytes = run(program, elements);
    let path = std::env::temp_dir().join(format!("rushlight-delegated-{}-{}.pte", std::process::id(), program.len()));
    std::fs::write(&path, program).unwrap();
    let mut module = Module::builder().lower("off").load(&path).unwrap();
    let sizes = [elements.len()];
    let outputs = module.run("forward", &[Input::from(TensorView::of(&sizes, elements).unwrap())]);
    std::fs::remove_file(&path).unwrap();
    let from_file: Vec<Vec<f32>> =
        outputs.unwrap().iter().map(|output| output.as_slice::<f32>().unwrap().to_vec()).collect();
    assert_eq!(from_bytes, from_file);
    from_bytes
}

#[test]
fn constants_without_elements_load_and_run() {
    // A cache of keys begins as an empty tensor of rank 1, to which the first keys are appended.
    let empty = |b: &mut Builder<'_>, sizes: &[i64]| -> Arg {
        b.constant(Constant::dense("empty", TensorType::of(ScalarType::Float, sizes), Vec::new()).unwrap()).into()
    };
    let build: [(&str, &dyn Fn(&mut Builder<'_>, ValueId) -> ValueId); 4] = [
        ("cat with an empty vector", &|b, x| {
            let keys = b.one(aten::VIEW_COPY, vec![x.into(), Arg::from([1, 2, 3])]).unwrap();
            let tensors = Arg::List(vec![empty(b, &[0]), keys.into()]);
            b.one(aten::CAT, vec![tensors, Arg::from(-2)]).unwrap()
        }),
        ("cat with no rows", &|b, x| {
            let keys = b.one(aten::VIEW_COPY, vec![x.into(), Arg::from([1, 2, 3])]).unwrap();
            let tensors = Arg::List(vec![keys.into(), empty(b, &[1, 0, 3])]);
            b.one(aten::CAT, vec![tensors, Arg::from(1)]).unwrap()
        }),
        ("a sum over nothing", &|b, x| {
            let rows = b.one(aten::VIEW_COPY, vec![x.into(), Arg::from([2, 3])]).unwrap();
            let none = b.one(aten::SLICE_COPY_TENSOR, vec![rows.into(), 1.into(), 0.into(), 0.into()]).unwrap();
            let product = vec![none.into(), empty(b, &[0, 3])];
            let product = b.one(aten::MM, product).unwrap();
            b.one(aten::ADD_TENSOR, vec![product.into(), rows.into()]).unwrap()
        }),
        ("an addition of nothing", &|b, x| {
            let none = b.one(aten::SLICE_COPY_TENSOR, vec![x.into(), 0.into(), 0.into(), 0.into()]).unwrap();
            let args = vec![none.into(), empty(b, &[0])];
            b.one(aten::ADD_TENSOR, args).unwrap()
        }),
    ];
    let numbers = [1.0f32, -2.0, 0.25, 3.0, 0.5, -7.0];
    for (name, build) in build {
        let model = model(ScalarType::Float, 6, |b, x| {
            let y = build(b, x);
            vec![b.one(aten::NEG, vec![y.into()]).unwrap().into()]
        });
        let (portable, ours, _) = compiled(&model);
        assert_eq!(run_everywhere(&ours, &numbers), run_everywhere(&portable, &numbers), "{name}");
    }
}

#[test]
fn delegates_have_any_number_of_outputs() {
    for count in [1, 2, 63, 64, 65, 127, 128, 129, 133, 300] {
        let model = model(ScalarType::Float, 3, |b, x| {
            let sums = (0..count).map(|index| b.one(aten::ADD_SCALAR, vec![x.into(), Arg::from(index)]).unwrap());
            sums.map(Arg::Value).collect()
        });
        let (portable, ours, _) = compiled(&model);
        let numbers = [1.0f32, -2.0, 0.25];
        let (got, wanted) = (run(&ours, &numbers), run(&portable, &numbers));
        assert_eq!(wanted.len(), count as usize);
        assert_eq!(got, wanted, "{count} outputs");
    }
}

#[test]
fn sums_of_matrices_and_products_are_taken() {
    // The step of an LSTM adds the contribution of the input, a matrix, to the hidden state times its weights.
    for (beta, alpha) in [(1.0, 1.0), (0.5, 1.0), (1.0, -2.0), (0.0, 3.0)] {
        for computed in [false, true] {
            let model = model(ScalarType::Float, 6, |b, x| {
                let hidden = b.one(aten::VIEW_COPY, vec![x.into(), Arg::from([2, 3])]).unwrap();
                let gates = b.one(aten::EXP, vec![hidden.into()]).unwrap();
                let bytes = (0..9).flat_map(|at| (at as f32 * 0.25 - 1.0).to_le_bytes()).collect::<Vec<u8>>();
                let weights = Constant::dense("weights", TensorType::of(ScalarType::Float, &[3, 3]), bytes).unwrap();
                let mut weights = b.constant(weights);
                if computed {
                    let row = b.one(aten::SLICE_COPY_TENSOR, vec![gates.into(), 0.into(), 0.into(), 1.into()]);
                    weights = b.one(aten::MUL_TENSOR, vec![weights.into(), row.unwrap().into()]).unwrap();
                }
                let args = vec![gates.into(), hidden.into(), weights.into()];
                let named = [("beta", Arg::from(beta)), ("alpha", Arg::from(alpha))];
                vec![b.one_with(aten::ADDMM, args, &named).unwrap().into()]
            });
            let (portable, ours, payload) = compiled(&model);
            let steps = || payload.steps.iter().filter(|step| matches!(step, Step::Matmul(_)));
            assert_eq!(steps().count(), 1, "{beta} {alpha} {computed}: {:?}", payload.names);
            let numbers = [1.0f32, -2.0, 0.25, 3.0, 0.5, -1.0];
            for (got, wanted) in run(&ours, &numbers).into_iter().zip(run(&portable, &numbers)) {
                let near = |(got, wanted): (&f32, &f32)| (got - wanted).abs() <= 1e-5 * wanted.abs().max(1.0);
                assert!(got.iter().zip(&wanted).all(near), "{beta} {alpha} {computed}: {got:?} {wanted:?}");
            }
        }
    }
}

/// A backend that counts its delegates, which declare this number of outputs.
struct Counted {
    outputs: usize,
    live: Arc<AtomicUsize>,
}

struct Live(usize, Arc<AtomicUsize>);

impl Drop for Live {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl rushlight_runtime::Backend for Counted {
    fn id(&self) -> &str {
        CPU_BACKEND
    }

    fn init<'m>(&self, _: &mut InitContext<'_, 'm>) -> rushlight_runtime::Result<DelegateHandle<'m>> {
        self.live.fetch_add(1, Ordering::Relaxed);
        Ok(DelegateHandle::Boxed(Box::new(Live(self.outputs, self.live.clone()))))
    }
}

impl Delegate for Live {
    fn num_outputs(&self) -> usize {
        self.0
    }

    fn execute(&mut self, _: &DelegateContext<'_>) -> rushlight_runtime::Result<()> {
        Ok(())
    }
}

#[test]
fn delegates_are_dropped_when_loading_fails_after_them() {
    let model = model(ScalarType::Float, 3, |b, x| {
        // Two delegates, with an operator between them that the backend does not claim.
        let first = b.one(aten::EXP, vec![x.into()]).unwrap();
        let sum = b.one(aten::CUMSUM, vec![first.into(), Arg::from(0)]).unwrap();
        vec![b.one(aten::EXP, vec![sum.into()]).unwrap().into()]
    });
    let (_, ours, _) = compiled(&model);
    for (outputs, loads) in [(1, true), (3, false), (usize::MAX, false)] {
        let live = Arc::new(AtomicUsize::new(0));
        let backend = Counted { outputs, live: live.clone() };
        let mut module = Module::builder().lower("off").backend(Arc::new(backend)).load_bytes(&ours).unwrap();
        assert_eq!(module.load_method("forward").is_ok(), loads, "{outputs} outputs");
        assert_eq!(live.load(Ordering::Relaxed), if loads { 2 } else { 0 }, "{outputs} outputs");
        drop(module);
        assert_eq!(live.load(Ordering::Relaxed), 0, "{outputs} outputs");
    }
}

#[test]
fn embeddings_of_packed_integers_are_read_as_they_are() {
    const ROWS: i64 = 21;
    let mut random = Random::new(7);
    for (name, columns, dtype, groups, has_zeros) in [
        (quantized_decomposed::EMBEDDING_BYTE, 40, ScalarType::Char, 1, false),
        (quantized_decomposed::EMBEDDING_BYTE, 40, ScalarType::Char, 4, true),
        (quantized_decomposed::EMBEDDING_BYTE_DTYPE, 6, ScalarType::Byte, 1, true),
        (quantized_decomposed::EMBEDDING_4BIT, 32, ScalarType::Byte, 2, false),
        (quantized_decomposed::EMBEDDING_4BIT_DTYPE, 16, ScalarType::Byte, 1, true),
        (quantized_decomposed::EMBEDDING_2BIT, 8, ScalarType::Byte, 2, false),
    ] {
        let mut bytes = |count: i64| (0..count).map(|_| random.below(256) as u8).collect::<Vec<_>>();
        let (table, parameters) = (bytes(ROWS * columns), bytes(ROWS * groups));
        let sizes = if groups == 1 { vec![ROWS] } else { vec![ROWS, groups] };
        let model = model(ScalarType::Long, 5, |b, x| {
            let mut constant = |dtype: ScalarType, sizes: &[i64], bytes: Vec<u8>| {
                let constant = Constant::dense("table", TensorType::of(dtype, sizes), bytes).unwrap();
                Arg::Value(b.constant(constant))
            };
            let floats = |of: &dyn Fn(u8) -> f32| parameters.iter().flat_map(|byte| of(*byte).to_le_bytes()).collect();
            let zeros = has_zeros.then(|| constant(ScalarType::Float, &sizes, floats(&|byte| f32::from(byte % 4))));
            let args = vec![
                constant(dtype, &[ROWS, columns], table),
                constant(ScalarType::Float, &sizes, floats(&|byte| 0.01 + f32::from(byte) / 256.0)),
                zeros.unwrap_or(Arg::None),
                Arg::from(if dtype == ScalarType::Char { -128 } else { 0 }),
                Arg::from(if dtype == ScalarType::Char { 127 } else { 255 }),
                x.into(),
            ];
            vec![b.one(name, args).unwrap().into()]
        });
        let (portable, ours, payload) = compiled(&model);
        assert!(matches!(payload.steps[..], [Step::Gather(_)]), "{name}: {:?}", payload.names);
        let (got, wanted) = (run(&ours, &[20i64, 0, 7, 16, 3]), run(&portable, &[20i64, 0, 7, 16, 3]));
        assert_eq!(got, wanted, "{name}");
        assert!(ours.len() < portable.len() + 4096, "{name}: {} {}", ours.len(), portable.len());
    }
}

/// Quantizes to int8 and dequantizes.
fn rounded(b: &mut Builder<'_>, x: ValueId, scale: f64) -> ValueId {
    let parameters =
        || [Arg::from(scale), Arg::from(-3), Arg::from(-128), Arg::from(127), Arg::DType(ScalarType::Char)];
    let mut value = x;
    for name in [quantized_decomposed::QUANTIZE_PER_TENSOR, quantized_decomposed::DEQUANTIZE_PER_TENSOR] {
        let mut args = vec![value.into()];
        args.extend(parameters());
        args.extend((name.ends_with("::dequantize_per_tensor")).then_some(Arg::None));
        value = b.one(name, args).unwrap();
    }
    value
}

/// A value that is quantized with one scale that is chosen when the program runs, and dequantized.
fn rounded_when_seen(b: &mut Builder<'_>, x: ValueId) -> ValueId {
    let form = [Arg::from(-128), Arg::from(127), Arg::DType(ScalarType::Char)];
    let choice = vec![x.into(), form[0].clone(), form[1].clone(), Arg::from(1e-6), form[2].clone()];
    let chosen = b.call(quantized_decomposed::CHOOSE_QPARAMS_TENSOR, choice).unwrap();
    let with = |value: ValueId| [vec![value.into(), chosen[0].into(), chosen[1].into()], form.to_vec()].concat();
    let integers = b.one(quantized_decomposed::QUANTIZE_PER_TENSOR_TENSOR, with(x)).unwrap();
    let mut args = with(integers);
    args.push(Arg::None);
    b.one(quantized_decomposed::DEQUANTIZE_PER_TENSOR_TENSOR, args).unwrap()
}

/// True if all steps of a kind write bytes; `None` if there is no such step.
fn write_bytes(payload: &CpuProgram, name: &str) -> Option<bool> {
    let is_bytes = |id: TensorId| payload.tensors[id as usize].affine.is_some();
    let steps = payload.steps.iter().filter(|step| step.name() == name);
    steps.map(|step| is_bytes(step.output())).reduce(|all, one| all && one)
}

#[test]
fn what_is_rounded_before_and_after_stays_bytes() {
    let image =
        |b: &mut Builder<'_>, x: ValueId| b.one(aten::VIEW_COPY, vec![x.into(), Arg::from([1, 2, 5, 6])]).unwrap();
    let [none, size] = [Arg::None, Arg::from([10, 12])];
    for (name, kind, args) in [
        (aten::UPSAMPLE_NEAREST2D_VEC, "resize", vec![size.clone(), none.clone()]),
        (aten::UPSAMPLE_BILINEAR2D_VEC, "resize", vec![size, Arg::from(false), none]),
        (aten::_SOFTMAX, "softmax", vec![Arg::from(1), Arg::from(false)]),
    ] {
        let of = |before: bool, after: bool| {
            model(ScalarType::Float, 60, |b, x| {
                let x = image(b, x);
                let x = if before { rounded(b, x, 0.01) } else { x };
                let y = b.one(name, [vec![x.into()], args.clone()].concat()).unwrap();
                vec![if after { rounded(b, y, 0.02) } else { y }.into()]
            })
        };
        assert_eq!(write_bytes(&compiled(&of(true, true)).2, kind), Some(true), "{name}");
        assert_eq!(write_bytes(&compiled(&of(false, true)).2, kind), Some(false), "{name}");
        // Nearest resizing writes bytes, for any consumer.
        let alone = name == aten::UPSAMPLE_NEAREST2D_VEC;
        assert_eq!(write_bytes(&compiled(&of(true, false)).2, kind), Some(alone), "{name}");
    }
}

/// Dequantized int8 weights, with a scale for each index of an axis.
fn weights(b: &mut Builder<'_>, sizes: &[i64], axis: usize) -> ValueId {
    let mut constant = |ty: TensorType, bytes: Vec<u8>| -> Arg {
        let constant = Constant::dense("weights", ty, bytes).unwrap();
        b.constant(constant).into()
    };
    let (count, channels) = (sizes.iter().product::<i64>(), sizes[axis]);
    let integers = (0..count).map(|at| (at * 37 % 255 - 127) as i8 as u8).collect();
    let scales = (0..channels).flat_map(|channel| (0.01 + channel as f32 / 512.0).to_le_bytes()).collect();
    let args = vec![
        constant(TensorType::of(ScalarType::Char, sizes), integers),
        constant(TensorType::of(ScalarType::Float, &[channels]), scales),
        constant(TensorType::of(ScalarType::Long, &[channels]), vec![0; channels as usize * 8]),
        Arg::from(axis as i64),
        Arg::from(-127),
        Arg::from(127),
        Arg::DType(ScalarType::Char),
        Arg::None,
    ];
    b.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL, args).unwrap()
}

/// The arguments of a convolution over `dims` dimensions after its input: weights, no bias, stride 2, padding 1.
fn geometry(weights: ValueId, dims: usize, transposed: bool, groups: i64) -> Vec<Arg> {
    let all = |size: i64| Arg::from(vec![size; dims].as_slice());
    let output_padding = all(i64::from(transposed));
    let (stride, padding, dilation) = (all(2), all(1), all(1));
    vec![weights.into(), Arg::None, stride, padding, dilation, Arg::from(transposed), output_padding, Arg::from(groups)]
}

/// True if all convolutions of a program multiply bytes; `None` if there are none.
fn convolves_bytes(payload: &CpuProgram) -> Option<bool> {
    let is_integer = |step: &Step| match step {
        Step::Convolution(Convolution { kind, .. }) => Some(matches!(
            kind,
            ConvolutionKind::Int8Direct { .. }
                | ConvolutionKind::Int8Depthwise { .. }
                | ConvolutionKind::Int8Transposed { .. }
                | ConvolutionKind::Int8Direct3d { .. }
        )),
        _ => None,
    };
    payload.steps.iter().filter_map(is_integer).reduce(|all, one| all && one)
}

#[test]
fn transposed_convolutions_multiply_bytes() {
    // The output channels are the second dimension of the weights. Weights with scales of input channels are converted
    // to float.
    for (axis, groups, expected) in [(1, 1, true), (1, 2, true), (0, 1, false)] {
        let model = model(ScalarType::Float, 60, |b, x| {
            let x = b.one(aten::VIEW_COPY, vec![x.into(), Arg::from([1, 4, 3, 5])]).unwrap();
            let (x, weights) = (rounded(b, x, 0.01), weights(b, &[4, 3, 3, 3], axis));
            let args = [vec![x.into()], geometry(weights, 2, true, groups)].concat();
            let y = b.one(aten::CONVOLUTION, args).unwrap();
            vec![rounded(b, y, 0.02).into()]
        });
        assert_eq!(convolves_bytes(&compiled(&model).2), Some(expected), "axis {axis}, {groups} groups");
    }
}

#[test]
fn convolutions_of_what_is_rounded_when_it_is_seen_multiply_bytes() {
    for (transposed, groups) in [(false, 1), (false, 2), (false, 4), (true, 1)] {
        let model = model(ScalarType::Float, 60, |b, x| {
            let x = b.one(aten::VIEW_COPY, vec![x.into(), Arg::from([1, 4, 3, 5])]).unwrap();
            let x = rounded_when_seen(b, x);
            let (sizes, axis) = if transposed { ([4, 3, 3, 3], 1) } else { ([4, 4 / groups, 3, 3], 0) };
            let weights = weights(b, &sizes, axis);
            let args = [vec![x.into()], geometry(weights, 2, transposed, groups)].concat();
            vec![b.one(aten::CONVOLUTION, args).unwrap().into()]
        });
        let (_, _, payload) = compiled(&model);
        assert_eq!(convolves_bytes(&payload), Some(true), "{transposed}, {groups} groups");
        // One scale for the whole image.
        let chosen = payload.steps.iter().find(|step| matches!(step, Step::ChooseQparams(_))).unwrap();
        let sizes = &payload.tensors[chosen.output() as usize].dims;
        assert_eq!(sizes, &[Size::Fixed(2), Size::Fixed(1)]);
    }
}

/// Static convolutions of volumes are within one step of rounding of the reference operators, dynamic ones equal them but for the
/// order of additions.
#[test]
fn convolutions_of_volumes_multiply_bytes() {
    for (is_static, groups) in [(true, 1), (true, 2), (true, 4), (false, 1), (false, 4)] {
        let model = model(ScalarType::Float, 240, |b, x| {
            let x = b.one(aten::VIEW_COPY, vec![x.into(), Arg::from([1, 4, 3, 4, 5].as_slice())]).unwrap();
            let x = if is_static { rounded(b, x, 0.01) } else { rounded_when_seen(b, x) };
            let weights = weights(b, &[8, 4 / groups, 3, 3, 3], 0);
            let args = [vec![x.into()], geometry(weights, 3, false, groups)].concat();
            let y = b.one(aten::CONVOLUTION, args).unwrap();
            vec![if is_static { rounded(b, y, 0.5) } else { y }.into()]
        });
        let (portable, ours, payload) = compiled(&model);
        assert_eq!(convolves_bytes(&payload), Some(true), "{groups} groups");
        let x: Vec<f32> = (0..240).map(|at| (at as f32 * 0.37).sin()).collect();
        let (expected, got) = (run(&portable, &x), run(&ours, &x));
        let most = expected[0].iter().fold(0f32, |most, y| most.max(y.abs()));
        let allowed = if is_static { 0.5 } else { most * 1e-5 };
        assert!(most > 1.0 && expected[0].len() == got[0].len());
        for (expected, got) in expected[0].iter().zip(&got[0]) {
            assert!((expected - got).abs() <= allowed, "{is_static}, {groups} groups: {got} for {expected}");
        }
    }
}

#[test]
fn errors_of_steps_say_where_in_the_model() {
    let mut model = Model::default();
    model.add_method("forward", Graph::new());
    let graph = &mut model.methods["forward"];
    let x = graph.input("x", Type::Tensor(TensorType::of(ScalarType::Long, &[2])));
    let origin = Origin { node: "words".into(), module: "bert.embeddings".into(), ..Origin::default() };
    let (body, origin) = (graph.body, graph.origins.push(origin));
    let mut b = model.builder("forward", body, origin).unwrap();
    let table = Constant::dense("table", TensorType::of(ScalarType::Float, &[7, 4]), vec![0; 7 * 4 * 4]).unwrap();
    let table = Arg::Value(b.constant(table));
    let args = vec![table, x.into(), Arg::from(-1), Arg::from(false), Arg::from(false)];
    let result = b.one(aten::EMBEDDING, args).unwrap();
    model.methods["forward"].outputs = vec![result.into()];
    let (portable, _, _) = compiled(&model);
    let options = CompileOptions { backends: vec![Box::new(Cpu::default())], ..CompileOptions::default() };
    let ours = rushlight_compiler::compile(model, &options).unwrap();
    let ours = ours.program.to_bytes().unwrap();
    let run = |program: &[u8], lower: &str, index: i64| {
        let mut module = Module::builder().lower(lower).load_bytes(program).unwrap();
        module.run("forward", &[Input::from(TensorView::of(&[2], &[1i64, index]).unwrap())]).map(drop)
    };
    for (program, lower) in [(&portable, "off"), (&ours, "off"), (&portable, "cpu")] {
        assert!(run(program, lower, 6).is_ok());
        let error = run(program, lower, 1_000_000).unwrap_err();
        assert_eq!(error.message(), "index 1000000 is outside of a dimension of size 7", "{error}");
        assert_eq!((error.what_was_expected(), error.what_came()), (Some("0 to 6"), Some("1000000")), "{error}");
        let site = error.location().unwrap();
        assert!(site.contains(aten::EMBEDDING) && site.contains("instruction 0 of `forward`"), "{error}");
    }
    let error = run(&ours, "off", -1).unwrap_err().to_string();
    for part in ["index -1", "`indices` of aten::embedding", "node `words`", "module `bert.embeddings`", "step 0"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
