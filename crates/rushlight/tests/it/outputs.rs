//! Where `save` and `write_file` write: not over what a program was compiled from.
#![cfg(feature = "compile")]

use std::fs;
use std::path::{Path, PathBuf};

use rushlight::compiler::emit::ExternalWeights;
use rushlight::compiler::partition::{Backend, Offer, Part, Payload};
use rushlight::graph::{Graph, NodeId};
use rushlight::{Code, Compiler, InputFiles, Precision, write_file};

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

/// A precision is an option of the backend `cpu`: what does not know it does not run in silence with another one.
#[test]
fn a_precision_is_refused_that_a_backend_does_not_know() {
    /// With the precisions that it knows besides `f32`.
    #[derive(Debug)]
    struct Npu(&'static [&'static str]);
    impl Backend for Npu {
        fn name(&self) -> &'static str {
            "Npu"
        }

        fn knows_precision(&self, precision: &str) -> bool {
            self.0.contains(&precision)
        }

        fn offer(&self, _: &Graph, _: NodeId) -> Offer {
            Offer::Leave("it is never asked".into())
        }

        fn compile(&self, _: &Part) -> Result<Payload, rushlight::graph::Error> {
            Err(rushlight::graph::Error::unsupported("it is never asked"))
        }
    }
    let with = |compiler: Compiler| compiler.method("forward", MODEL).precision(Precision::Bf16).compile();
    let cpu = || Compiler::new().backend_named("cpu").expect("it comes with Rushlight");
    assert!(with(cpu()).is_ok());
    for compiler in [Compiler::new().backend(Box::new(Npu(&["f16"]))), cpu().backend(Box::new(Npu(&["f16"])))] {
        let error = with(compiler).expect_err("an NPU has no option");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains("`Npu`"), "{error}");
    }
    for compiler in [Compiler::new(), cpu()] {
        assert!(with(compiler.backend(Box::new(Npu(&["bf16"])))).is_ok());
    }
    assert!(with(Compiler::new().backend_named("portable").expect("it is known")).is_err());
    assert!(with(Compiler::new()).is_err());
}
