//! Files that are not programs: each is an error that names its kind, and none panics.

use rushlight::{Code, LoadMode, Module};

#[test]
fn bytes_that_are_not_a_program() {
    let long = [7u8; 4096];
    for bytes in [&b""[..], b"x", b"not a program, but longer than a header needs to be .............", &long] {
        let error = Module::from_bytes(bytes).expect_err("these bytes are no program");
        assert_eq!(error.code(), Code::InvalidProgram, "{error}");
        assert!(error.to_string().contains(".pte"), "{error}");
    }
}

#[test]
fn files_that_cannot_be_read() {
    for mode in [LoadMode::File, LoadMode::Mmap, LoadMode::MmapMlockIgnoreErrors] {
        let missing = Module::builder().mode(mode).load("no/such/model.pte").expect_err("there is no such file");
        assert_eq!(missing.code(), Code::NotFound);
        assert!(missing.to_string().contains("no/such/model.pte"), "{missing}");
        let folder = Module::builder().mode(mode).load(env!("CARGO_MANIFEST_DIR")).expect_err("a folder is no file");
        assert_eq!(folder.code(), Code::AccessFailed);
        let text = Module::builder().mode(mode).load(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert_eq!(text.expect_err("a manifest is no program").code(), Code::InvalidProgram);
    }
}

#[test]
fn unknown_methods_are_named_with_those_that_exist() {
    let mut module = Module::load(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1/add.pte"))
        .expect("the corpus is part of the repository");
    let error = module.run("backward", &[]).expect_err("there is no such method");
    assert!(error.to_string().contains("forward"), "{error}");
    let limited = Module::builder().memory_limit(16);
    let mut limited =
        limited.load(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1/add.pte")).expect("a program");
    assert_eq!(limited.run("forward", &[]).expect_err("16 bytes are not enough").code(), Code::MemoryAllocationFailed);
}

/// A `main` that returns an error prints its `Debug` text.
#[test]
fn debug_is_a_sentence() {
    let error = Module::load("no/such/model.pte").expect_err("there is no such file");
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(!format!("{error:#?}").contains("Parts"), "{error:#?}");
}

/// The error names the reason why a part for XNNPACK could not be translated, not only that there is no XNNPACK.
#[cfg(feature = "lower")]
#[test]
fn the_error_has_the_reason_why_a_part_is_not_translated() {
    use rushlight_format::pte::{DelegateModel, InstructionModel, PlanModel, ProgramModel, TensorModel};

    let program = |backend: &str| {
        let mut plan = PlanModel::new("forward");
        let tensor = TensorModel::new(rushlight::ScalarType::Float, &[2]);
        let x = plan.input(tensor.clone());
        let y = plan.planned(tensor);
        let y = plan.output(y);
        plan.delegates.push(DelegateModel {
            id: backend.to_owned(),
            data: b"no payload of XNNPACK".to_vec().into(),
            compile_specs: Vec::new(),
        });
        plan.instructions.push(InstructionModel::Delegate { delegate: 0, args: vec![x, y] });
        ProgramModel { methods: vec![plan], ..ProgramModel::new() }.to_bytes().expect("a small program")
    };
    let load = |backend: &str, lower: &str| {
        let mut module = Module::builder().lower(lower).load_bytes(&program(backend)).expect("a program");
        module.load_method("forward").expect_err("nobody runs it")
    };
    for lower in ["auto", "cpu"] {
        let error = load("XnnpackBackend", lower);
        assert_eq!(error.code(), Code::NotFound, "{error}");
        assert!(error.message().contains("`XnnpackBackend`"), "{error}");
        assert!(error.what_came().is_some_and(|got| got.contains("no translation") && got.len() > 40), "{error}");
    }
    let off = load("XnnpackBackend", "off");
    assert!(off.hint().is_some_and(|hint| hint.contains("lower=\"auto\"")), "{off}");
    let other = load("UnknownBackend", "auto");
    assert!(other.what_came().is_none() && other.hint().is_some_and(|hint| hint.contains("register")), "{other}");
}
