//! Programs that are lowered when they are loaded show and do what their files say.
#![cfg(feature = "lower")]

use rushlight::{Lower, Module, TensorView, Value};

fn corpus(name: &str) -> String {
    format!("{}/../../tests/corpus/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn load(name: &str, lower: Lower) -> Module {
    Module::builder().lower(lower).threads(1).load(corpus(name)).expect("a file of the corpus")
}

fn floats(values: &[Value]) -> Vec<f32> {
    values[0].as_tensor().and_then(|tensor| Ok(tensor.as_slice::<f32>()?.to_vec())).expect("floats")
}

#[test]
fn small_programs_run_as_they_are_and_say_so() {
    let mut module = load("1.5.1/add.pte", Lower::Auto);
    assert!(module.report().is_err_and(|reason| reason.message().contains("small")));
    assert!(load("1.5.1/add.pte", Lower::Off).report().is_err_and(|reason| reason.message().contains("off")));
    let mut lowered = load("1.5.1/add.pte", Lower::Cpu);
    assert!(lowered.report().is_ok_and(|report| report.claim_counts().contains_key("RushlightCpu")));
    let [reference, fast] = [Lower::Off, Lower::Cpu].map(|lower| {
        let (x, y) = ([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0.5f32; 6]);
        let view = |floats| TensorView::of(&[2, 3], floats).expect("a view").into();
        floats(&load("1.5.1/add.pte", lower).forward(&[view(&x), view(&y)]).expect("it runs"))
    });
    assert_eq!(reference, fast);
}

#[test]
fn wrong_inputs_are_refused_in_the_words_of_the_file() {
    let three = [1.0f32; 3];
    let errors = [Lower::Off, Lower::Cpu].map(|lower| {
        let mut module = load("1.5.1/add.pte", lower);
        let wrong = TensorView::of(&[3], &three).expect("a view");
        let few = module.forward(&[wrong.into()]).expect_err("one input is not two").to_string();
        let shape = module.forward(&[wrong.into(), wrong.into()]);
        (few, shape.map(|values| floats(&values)).map_err(|error| error.to_string()))
    });
    assert_eq!(errors[0], errors[1]);
}

#[test]
fn names_of_choices_are_known() {
    assert_eq!(Lower::from_name("auto").ok(), Some(Lower::Auto));
    let unknown = Lower::from_name("npu").expect_err("there is none");
    assert!(unknown.what_was_expected().is_some_and(|names| names.contains("`cpu`")), "{unknown}");
}
