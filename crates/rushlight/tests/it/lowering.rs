//! Programs that are lowered when they are loaded show and do what their files say.
#![cfg(feature = "lower")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rushlight::{BackendSpec, Code, Lower, Module, Progress, ProgressListener, TensorView, Value};

fn corpus(name: &str) -> String {
    format!("{}/../../tests/corpus/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn load(name: &str, lower: &str) -> Module {
    Module::builder().lower(lower).threads(1).load(corpus(name)).expect("a file of the corpus")
}

fn floats(values: &[Value]) -> Vec<f32> {
    values[0].as_tensor().and_then(|tensor| Ok(tensor.as_slice::<f32>()?.to_vec())).expect("floats")
}

#[test]
fn small_programs_run_as_they_are_and_say_so() {
    let mut module = load("1.5.1/add.pte", "auto");
    assert!(module.report().is_err_and(|reason| reason.message().contains("small")));
    assert!(load("1.5.1/add.pte", "off").report().is_err_and(|reason| reason.message().contains("off")));
    let mut lowered = load("1.5.1/add.pte", "cpu");
    assert!(lowered.report().is_ok_and(|report| report.claim_counts().contains_key("RushlightCpu")));
    let [reference, fast] = ["off", "cpu"].map(|lower| {
        let (x, y) = ([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0.5f32; 6]);
        let view = |floats| TensorView::of(&[2, 3], floats).expect("a view").into();
        floats(&load("1.5.1/add.pte", lower).forward(&[view(&x), view(&y)]).expect("it runs"))
    });
    assert_eq!(reference, fast);
}

#[test]
fn wrong_inputs_are_refused_in_the_words_of_the_file() {
    let three = [1.0f32; 3];
    let errors = ["off", "cpu"].map(|lower| {
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
    assert_eq!("auto".parse().ok(), Some(Lower::Auto));
    assert_eq!("off".parse().ok(), Some(Lower::Off));
    let unknown = "npu".parse::<Lower>().expect_err("there is none");
    assert!(unknown.what_was_expected().is_some_and(|names| names.contains("`cpu`")), "{unknown}");
}

#[test]
fn lowering_that_was_cancelled_begins_again() {
    /// Cancels at the given poll, once.
    struct Cancelling(AtomicU32);

    impl ProgressListener for Cancelling {
        fn report(&self, _: &'static str, _: u64, _: u64) {}

        fn is_cancelled(&self) -> bool {
            self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1)
        }
    }

    for polls in 1..8 {
        let progress = Progress::new(Arc::new(Cancelling(AtomicU32::new(polls))));
        let module = Module::builder().lower("cpu").progress(progress).load(corpus("1.5.1/mlp.pte"));
        let mut module = module.expect("a file of the corpus");
        let input = [0.37f32; 16];
        let mut call = || module.forward(&[TensorView::of(&[2, 8], &input).expect("a view").into()]);
        let error = call().expect_err("it is cancelled");
        assert_eq!((error.code(), error.message()), (Code::InvalidState, "it was cancelled"));
        assert_eq!(floats(&call().expect("it runs")).len(), 8);
        assert!(module.report().is_ok_and(|report| report.claim_counts().contains_key("RushlightCpu")));
    }
}

#[test]
fn options_reach_the_backend() {
    let report = |lower: &str| {
        let mut module = load("1.5.1/mlp.pte", lower);
        let report = module.report().expect("it is lowered");
        let precisions = report.entries.iter().filter_map(|entry| entry.precision.clone());
        let precisions: Vec<String> = precisions.collect();
        let floats = [0.37f32; 16];
        let outputs = module.forward(&[TensorView::of(&[2, 8], &floats).expect("a view").into()]).expect("it runs");
        (precisions, self::floats(&outputs))
    };
    let (exact, rounded) = (report("cpu"), report("cpu:precision=bf16,threads=1"));
    assert_ne!(exact.1, rounded.1, "weights are rounded");
    assert_eq!(exact.1, report("cpu:precision=f32").1);
}

#[test]
fn what_cannot_be_lowered_to_is_an_error_of_loading() {
    let load =
        |builder: rushlight::ModuleBuilder| builder.load(corpus("1.5.1/add.pte")).map(drop).expect_err("not to be");
    let cases = [
        ("npu", Code::NotFound, "`auto`, `off`, `cpu`"),
        ("cpu:precison=bf16", Code::InvalidArgument, "`precision` (what weights"),
        ("cpu:precision=int8", Code::InvalidArgument, "f32, f16 or bf16"),
        ("auto:precision=bf16", Code::NotFound, "`auto`, `off`, `cpu`"),
    ];
    for (text, code, expected) in cases {
        let error = load(Module::builder().lower(text));
        assert_eq!(error.code(), code, "{text}: {error}");
        assert!(error.what_was_expected().is_some_and(|names| names.contains(expected)), "{text}: {error}");
    }
    for specs in [vec![], vec![BackendSpec::new("portable").expect("it is known")]] {
        let error = load(Module::builder().lower(Lower::To(specs)));
        assert_eq!((error.code(), error.what_was_expected()), (Code::NotFound, Some("`auto`, `off`, `cpu`")));
    }
    let cpu = BackendSpec::new("cpu").expect("it comes with Rushlight");
    let twice = load(Module::builder().lower(Lower::To(vec![cpu.clone(), cpu])));
    assert!(twice.message().contains("twice"), "{twice}");
}
