//! Inputs and outputs by name: the names of the export are in the program and in errors.
#![cfg(feature = "pt2")]

use rushlight::runtime::Bool8;
use rushlight::{Code, Compiler, Error, Input, Module, TensorView};
use rushlight_format::Program;
use rushlight_format::pte::ProgramModel;
use rushlight_format::signature::SIGNATURE_KEY;

fn sample(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/corpus/pt2/{name}.pt2", env!("CARGO_MANIFEST_DIR"));
    let program = Compiler::new().method("forward", path).compile().expect("the sample compiles");
    program.to_bytes().expect("a small program")
}

const IMAGE: [f32; 4] = [0.5, -1.0, 2.0, 4.0];
const BOXES: [[f32; 4]; 2] = [[1.0, 2.0, 3.0, 4.0], [2.0, -2.0, 4.0, 0.5]];
const MASK: [Bool8; 2] = [Bool8(0), Bool8(0)];

fn floats(numbers: &[f32; 4]) -> Input<'_> {
    TensorView::of(&[4], numbers).expect("four numbers").into()
}

fn mask() -> Input<'static> {
    TensorView::of(&[2], &MASK).expect("two bools").into()
}

fn module() -> Module {
    Module::from_bytes(&sample("keywords")).expect("the program loads")
}

#[test]
fn metadata_has_names_and_structure() {
    let meta = module().meta("forward").expect("the method");
    assert_eq!(meta.input_names, ["image", "batch.mask", "batch.boxes.0", "batch.boxes.1", "scale"]);
    assert_eq!(meta.output_names, ["logits", "stats.mean", "stats.parts.0", "stats.parts.1.0"]);
    let signature = meta.signature.as_ref().expect("an export has a signature");
    assert_eq!(
        signature.to_string(),
        "(image, batch: {mask, boxes: [_, _]}, scale) -> {logits, stats: {mean, parts: (_, [_])}}"
    );
    let names = meta.inputs.iter().map(|input| input.as_tensor().and_then(|info| info.name.as_deref()));
    assert_eq!(names.flatten().collect::<Vec<_>>(), meta.input_names[..4]);
    assert_eq!(meta.output_index("stats.parts.0").expect("an output"), 2);
}

#[test]
fn calls_are_by_name() {
    // The values are eager PyTorch's.
    let inputs =
        || [("batch.boxes.1", floats(&BOXES[1])), ("batch.boxes.0", floats(&BOXES[0])), ("batch.mask", mask())];
    let mut module = module();
    for more in [vec![], vec![("scale", Input::Double(0.5))]] {
        let given = inputs().into_iter().chain(more).chain([("image", floats(&IMAGE))]);
        let outputs = module.call("forward").named(given).run().expect("all inputs are given");
        assert_eq!(outputs[0].as_slice::<f32>().expect("floats"), [1.5, -3.0, 8.0, 5.0]);
        assert_eq!(outputs[1].as_slice::<f32>().expect("floats"), [2.875]);
        assert_eq!(outputs[2].as_slice::<Bool8>().expect("bools"), [Bool8(1), Bool8(1)]);
        assert_eq!(outputs[3].as_slice::<f32>().expect("floats"), [1.5, 3.0, 8.0, 5.0]);
    }
}

fn parts(error: &Error) -> String {
    format!("{error}")
}

#[test]
fn what_is_called_otherwise_is_an_error_with_the_nearest_name() {
    let mut module = module();
    let mut refused = |inputs: Vec<(&str, Input<'static>)>| {
        let error = module.call("forward").named(inputs).run().expect_err("the inputs do not fit");
        assert_eq!(error.code(), Code::InvalidArgument);
        parts(&error)
    };
    let text = refused(vec![("batch.masks", mask())]);
    assert!(text.contains("no input `batch.masks`") && text.contains("did you mean `batch.mask`?"), "{text}");
    assert!(text.contains("image, batch.mask, batch.boxes.0"), "{text}");
    let text = refused(vec![("batch.mask", mask()), ("batch.mask", mask())]);
    assert!(text.contains("`batch.mask` of `forward` is given twice"), "{text}");
    let text = refused(vec![("batch.mask", mask())]);
    assert!(
        text.contains("3 inputs of `forward` not given") && text.contains("image: f32 [4]; batch.boxes.0"),
        "{text}"
    );
    let error = module.meta("forward").expect("the method").output_index("logit").expect_err("no such output");
    assert_eq!(error.hint(), Some("did you mean `logits`?"));
}

#[test]
fn errors_name_the_input() {
    let mut module = module();
    let wrong = TensorView::of(&[2], &IMAGE[..2]).expect("two numbers").into();
    let inputs = [floats(&IMAGE), mask(), wrong, floats(&BOXES[1]), Input::Double(0.5)];
    let error = module.run("forward", &inputs).expect_err("two elements instead of four");
    assert!(error.message().contains("input 2 (batch.boxes.0) of `forward`"), "{error}");
    let [image, mask, first, ..] = inputs;
    let error = module.run("forward", &[image, mask, first]).expect_err("two inputs are missing");
    assert!(error.what_was_expected().is_some_and(|text| text.contains("batch.boxes.1: f32 [4]")), "{error}");
    let inputs = [floats(&IMAGE), self::mask(), floats(&BOXES[0]), floats(&BOXES[1]), Input::Double(0.25)];
    let error = module.run("forward", &inputs).expect_err("another scale than at export");
    assert!(error.message().contains("input 4 (scale) of `forward`"), "{error}");
}

/// The sample with another blob of signatures, or none.
fn with_blob(blob: Option<&[u8]>) -> Vec<u8> {
    let file = sample("keywords");
    let mut model = ProgramModel::from_program(&Program::parse(&file).expect("a program"));
    model.named_data.retain(|(key, _)| key != SIGNATURE_KEY);
    model.named_data.extend(blob.map(|blob| (SIGNATURE_KEY.to_owned(), blob.to_vec().into())));
    model.to_bytes().expect("a small program")
}

#[test]
fn damaged_names_are_refused() {
    let file = sample("keywords");
    let blob = Program::parse(&file).expect("a program").named(SIGNATURE_KEY).expect("the blob").to_vec();
    assert!(blob.len() < 200, "{} bytes", blob.len());
    for len in 1..blob.len() {
        let mut module = Module::from_bytes(&with_blob(Some(&blob[..len]))).expect("a program");
        // A blob that ends between entries is whole.
        let Err(error) = module.load_method("forward") else { continue };
        assert_eq!(error.code(), Code::InvalidProgram);
        assert!(error.message().contains("names of its inputs and outputs is damaged"), "{error}");
    }
}

#[test]
fn programs_without_names_are_called_in_order() {
    // Those of another method do not count.
    let other = rushlight_format::signature::Signature::flat(["x".to_owned()], [None]);
    let other = rushlight_format::signature::write([("forward", &other)]);
    for blob in [None, Some(&other[..])] {
        let mut module = Module::from_bytes(&with_blob(blob)).expect("a program");
        let meta = module.meta("forward").expect("the method");
        assert!(meta.signature.is_none() && meta.input_names.is_empty() && meta.output_names.is_empty());
        let inputs = [floats(&IMAGE), mask(), floats(&BOXES[0]), floats(&BOXES[1]), Input::Double(0.5)];
        let outputs = module.run("forward", &inputs).expect("the inputs fit");
        assert_eq!(outputs[1].as_slice::<f32>().expect("floats"), [2.875]);
        let error = module.call("forward").named([("image", floats(&IMAGE))]).run().expect_err("there are no names");
        assert!(error.what_came().is_some_and(|text| text.contains("does not record the names")), "{error}");
        let error = module.run("forward", &[floats(&IMAGE)]).expect_err("four inputs are missing");
        assert!(error.message().contains("takes 5 inputs"), "{error}");
    }
}

#[test]
fn structures_of_classes_are_records() {
    // As `tools/pt2_samples.py` calls the function.
    let meta = Module::from_bytes(&sample("nested")).expect("the program loads").meta("forward").expect("the method");
    assert_eq!(
        meta.signature.expect("an export has a signature").to_string(),
        "(features: {a, b: [_, (_,)]}, scale, pair: Pair(first, second), mode, bias) \
         -> {total, pair: Pair(first, second=[_, _]), none}"
    );
    let names = ["total", "pair.first", "pair.second.0", "pair.second.1", "none"];
    assert_eq!(meta.output_names, names);
}

#[test]
fn nodes_name_outputs_of_a_tuple() {
    let meta = Module::from_bytes(&sample("tied")).expect("the program loads").meta("forward").expect("the method");
    assert_eq!((meta.input_names.join(" "), meta.output_names.join(" ")), ("tokens image".into(), "add conv2d".into()));
}
