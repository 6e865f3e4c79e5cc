//! An importer of the caller's own, with constants in named data, several outputs and options.

use rushlight_compiler::front::payload::{Arguments, Axes, Importer, NamedData, Site, Written};
use rushlight_compiler::front::pte::{LiftOptions, lift_with};
use rushlight_compiler::interpret::{Datum, TensorData, run};
use rushlight_compiler::{CompileOptions, compile};
use rushlight_format::ScalarType;
use rushlight_format::pte::{DelegateModel, InstructionModel, PlanModel, ProgramModel, ShapeDynamism, TensorModel};
use rushlight_format::shapes::{self, Place, RuleModel, SHAPES_KEY};
use rushlight_graph::operators::aten;
use rushlight_graph::{Bytes, Constant, Delegate, Error, Expr, Input, TensorType};

/// Computes `input + w` and `-(input + w)`. The payload is the key of the tensor `w` in named data. The importer refuses a
/// delegate whose compile spec `sign` is not `-`.
const SUM: Importer = Importer { backend: "SumBackend", axes: Axes::Program, arguments, inline };

const OPTIONS: LiftOptions = LiftOptions { importers: &[SUM], keep: Vec::new() };

fn key(delegate: &Delegate) -> Option<&str> {
    std::str::from_utf8(&delegate.payload).ok()
}

fn arguments(delegate: &Delegate, data: &dyn NamedData) -> Option<Arguments> {
    data.named(key(delegate)?)?;
    Some(Arguments { inputs: 1, first_output: Some(1) })
}

fn inline(site: &mut dyn Site, delegate: &Delegate) -> Result<Vec<Written>, Error> {
    let data = key(delegate).and_then(|key| site.named(key)).ok_or_else(|| Error::invalid("the data is missing"))?;
    let sign = delegate.compile_specs.iter().find(|(key, _)| key == "sign").map(|(_, value)| value.as_slice());
    let [Some(declared), _] = site.outputs()[..] else { return Err(Error::invalid("two tensors as outputs")) };
    let sizes: Vec<i64> = declared.sizes.iter().map(|size| i64::from(*size)).collect();
    let ty = TensorType::of(declared.scalar_type, &sizes);
    site.begin("sum");
    let other = site.constant(Constant::dense("other".to_owned(), ty, data)?);
    let input = site.inputs()[0].clone();
    let sum = site.one(aten::ADD_TENSOR, vec![input, other.into()])?;
    let signed = match sign {
        Some(b"-") => site.one(aten::NEG, vec![sum.into()])?,
        _ => return Err(Error::unsupported("another sign")),
    };
    Ok(vec![(1, sum.into()), (2, signed.into())])
}

/// A channels-last input, and the delegate's two outputs.
fn program(sign: &str) -> Bytes {
    let tensor = TensorModel::new(ScalarType::Float, &[1, 2, 1, 2]);
    let channels_last = TensorModel { dim_order: vec![0, 2, 3, 1], ..tensor.clone() };
    let mut plan = PlanModel::new("forward");
    let input = plan.input(channels_last);
    let [sum, signed] = [tensor.clone(), tensor].map(|tensor| plan.planned(tensor));
    let args = vec![input, plan.output(sum), plan.output(signed)];
    let specs = vec![("sign".to_owned(), sign.as_bytes().to_vec().into())];
    plan.delegates.push(DelegateModel { id: SUM.backend.to_owned(), data: b"w".into(), compile_specs: specs });
    plan.instructions.push(InstructionModel::Delegate { delegate: 0, args });
    let named_data = vec![("w".to_owned(), floats(&[10.0, 20.0, 30.0, 40.0]).into())];
    ProgramModel { methods: vec![plan], named_data, ..ProgramModel::new() }.to_bytes().unwrap().into()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn payloads_become_operators_with_named_data_and_options() {
    let model = lift_with(&program("-"), &[], &OPTIONS).unwrap();
    assert!(model.delegates.iter().next().is_none() && model.named_data.is_empty());
    let compiled = compile(model, &CompileOptions::default()).unwrap().program.to_bytes().unwrap();
    let (dtype, sizes) = (ScalarType::Float, vec![1, 2, 1, 2]);
    let input = TensorData { dtype, sizes: sizes.clone(), bytes: floats(&[1.0, 2.0, 3.0, 4.0]) };
    let outputs = run(&compiled, "forward", &[Datum::Tensor(input)]).unwrap();
    let [Datum::Tensor(sum), Datum::Tensor(signed)] = &outputs[..] else { panic!("two tensors") };
    assert_eq!(sum.sizes, sizes);
    assert_eq!(sum.bytes, floats(&[11.0, 22.0, 33.0, 44.0]));
    assert_eq!(signed.bytes, floats(&[-11.0, -22.0, -33.0, -44.0]));
}

#[test]
fn delegates_stay_if_refused_or_asked_for_or_without_an_importer() {
    let kept = |sign: &str, options: &LiftOptions| {
        let model = lift_with(&program(sign), &[], options).unwrap();
        assert_eq!(model.named_data.len(), 1, "the delegate reads it");
        let (_, delegate) = model.delegates.iter().next().unwrap();
        delegate.refusal.as_ref().map(ToString::to_string)
    };
    assert!(kept("+", &OPTIONS).is_some_and(|reason| reason.contains("another sign")));
    assert_eq!(kept("-", &LiftOptions { keep: vec![SUM.backend.to_owned()], ..OPTIONS }), None);
    assert_eq!(kept("-", &LiftOptions::default()), None);
}

#[test]
fn rules_about_sizes_do_not_apply_to_static_inputs() {
    for (shape_dynamism, expected) in [(ShapeDynamism::DynamicBound, 1), (ShapeDynamism::Static, 3)] {
        let mut plan = PlanModel::new("forward");
        let input = plan.input(TensorModel { shape_dynamism, ..TensorModel::new(ScalarType::Float, &[2, 3]) });
        plan.outputs.push(input);
        let rules = [RuleModel::Fixed { place: Place { input: 0, dim: 1 }, size: 1 }];
        let blob = shapes::write([("forward", rules.as_slice())]).unwrap();
        let named_data = vec![(SHAPES_KEY.to_owned(), blob.into())];
        let program = ProgramModel { methods: vec![plan], named_data, ..ProgramModel::new() }.to_bytes().unwrap();
        let model = lift_with(&program.into(), &[], &LiftOptions::default()).unwrap();
        let graph = &model.methods["forward"];
        let Input::Value(input) = graph.inputs[0] else { panic!("a tensor") };
        assert_eq!(graph.tensor(input).unwrap().shape[1], Expr::Int(expected));
    }
}
