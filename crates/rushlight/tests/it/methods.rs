//! Names of methods are unique, in compiled and in loaded programs.
#![cfg(feature = "compile")]

use rushlight::compiler::{CompileOptions, ConstantResult, compile_pt2};
use rushlight::graph::Bytes;
use rushlight::graph::Literal;
use rushlight::{Code, Compiler, Module};
use rushlight_format::pte::{PlanModel, ProgramModel};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/pt2/tied.pt2");

fn three() -> ConstantResult {
    ConstantResult::Literal(Literal::Int(3))
}

#[test]
fn two_methods_of_one_name_are_refused() {
    let cases = [
        Compiler::new().method("forward", MODEL).method("forward", MODEL),
        Compiler::new().method("forward", MODEL).constant("forward", three()),
        Compiler::new().method("forward", MODEL).constant("n", three()).constant("n", three()),
        Compiler::new().method("forward", MODEL).method_bytes("forward", std::fs::read(MODEL).expect("a model")),
    ];
    for compiler in cases {
        let text = format!("{compiler:?}");
        let error = compiler.compile().expect_err(&text);
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains("two methods are called"), "{error}");
    }
    let bytes = || Bytes::from(std::fs::read(MODEL).expect("a model"));
    compile_pt2(&[("f", bytes()), ("f", bytes())], &CompileOptions::default()).expect_err("the compiler sees it alone");
}

#[test]
fn a_program_with_two_methods_of_one_name_is_refused() {
    let program = |names: &[&str]| {
        let methods = names.iter().map(|name| PlanModel::new(*name)).collect();
        ProgramModel { methods, ..ProgramModel::new() }.to_bytes().expect("a small program")
    };
    assert!(Module::from_bytes(&program(&["forward", "backward", "forwards"])).is_ok());
    let error =
        Module::from_bytes(&program(&["forward", "backward", "forward"])).expect_err("two are called `forward`");
    assert_eq!(error.code(), Code::InvalidProgram, "{error}");
    assert!(error.message().contains("two methods of one name"), "{error}");
}
