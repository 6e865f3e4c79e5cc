//! `save` and `write_file` do not overwrite the files that a program was compiled from.
#![cfg(feature = "compile")]

use std::fs;
use std::path::{Path, PathBuf};

use rushlight::compiler::emit::ExternalWeights;
use rushlight::compiler::partition::{Backend, Compiled, Offer, Part};
use rushlight::graph::{Graph, NodeId};
use rushlight::{BackendSpec, Code, Compiler, InputFiles, write_file};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/pt2/tied.pt2");

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It may be there from an earlier run.
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

#[test]
fn a_program_is_not_saved_over_its_model() {
    let folder = folder("over-its-model");
    let model = folder.join("model.pt2");
    fs::copy(MODEL, &model).expect("a copy");
    let weights = ExternalWeights { rules: vec![("*".into(), Some("model.pt2".into()))], max_bytes: None };
    let program = Compiler::new().method("forward", &model).compile().expect("a model of the corpus");
    let external = Compiler::new().method("forward", &model).external_weights(weights).compile().expect("the same");
    let other = folder.join("other.pte");
    for error in [program.save(&model).expect_err("its model"), external.save(&other).expect_err("its model, too")] {
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains("would replace an input"), "{error}");
    }
    assert!(!other.exists());
    assert_eq!(fs::read(&model).expect("the model"), fs::read(MODEL).expect("the model"));
    program.save(&other).expect("another name");
    program.save(&other).expect("a file that is there already");
}

#[test]
fn inputs_and_outputs_are_told_apart_by_file() {
    let folder = folder("told-apart");
    let (input, second) = (folder.join("input"), folder.join("second"));
    write_file(&input, b"input").expect("a file");
    fs::hard_link(&input, &second).expect("a second name");
    let mut files = InputFiles::new();
    files.add(&input);
    files.add(folder.join("missing"));
    files.check_outputs([folder.join("a"), folder.join("b")]).expect("new files");
    for outputs in [vec![input.clone()], vec![folder.join("a"), second], vec![folder.join("a"), folder.join("./a")]] {
        assert_eq!(files.check_outputs(&outputs).expect_err("the same").code(), Code::InvalidArgument, "{outputs:?}");
    }
    let error = write_file("", b"x").expect_err("no name");
    assert_eq!((error.code(), error.what_came()), (Code::AccessFailed, Some("nothing")), "{error}");
}

/// Options are those of one backend: what does not have one does not run in silence without it.
#[test]
fn options_are_refused_that_a_backend_does_not_have() {
    #[derive(Debug)]
    struct Npu;
    impl Backend for Npu {
        fn name(&self) -> &'static str {
            "Npu"
        }

        fn offer(&self, _: &Graph, _: NodeId) -> Offer {
            Offer::Leave("it takes nothing".into())
        }

        fn compile(&self, _: &Part) -> Result<Compiled, rushlight::graph::Error> {
            Err(rushlight::graph::Error::unsupported("it is never asked"))
        }
    }
    let compile = |compiler: Compiler| {
        let program = compiler.method("forward", MODEL).compile();
        program.and_then(|program| program.to_bytes())
    };
    let new = Compiler::new;
    let exact = compile(new().backend("cpu")).expect("it compiles");
    let rounded = compile(new().backend("cpu:precision=bf16")).expect("it compiles");
    assert!(rounded.len() < exact.len(), "{} of {} bytes", rounded.len(), exact.len());
    let spec = BackendSpec::new("cpu").and_then(|spec| spec.option("precision", "bf16")).expect("an option");
    assert_eq!(compile(new().backend(spec)).expect("it compiles"), rounded);
    assert_eq!(compile(new().backend(Box::new(Npu)).backend("cpu:precision=bf16")).expect("it compiles"), rounded);
    let defaults = compile(new().backend("cpu:precision=f32,threads=1").backend("portable"));
    assert_eq!(defaults.expect("it compiles"), exact);
    for (compiler, code, expected) in [
        (new().backend("npu"), Code::NotFound, "`cpu`, `cortex-m`, `portable`"),
        (new().backend("cpu:precision=int8"), Code::InvalidArgument, "f32, f16 or bf16"),
        (new().backend("cpu:mode=fast"), Code::InvalidArgument, "`precision` (what weights"),
        (new().backend("portable:precision=bf16"), Code::InvalidArgument, "no options"),
    ] {
        let error = compile(compiler).expect_err("it has no such option");
        assert_eq!(error.code(), code, "{error}");
        assert!(error.what_was_expected().is_some_and(|known| known.contains(expected)), "{error}");
    }
}
