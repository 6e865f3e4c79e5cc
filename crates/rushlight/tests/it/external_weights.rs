//! Weights in `.ptd` files beside the program: written, found again, and refused where they cannot be.
#![cfg(feature = "compile")]

use std::path::{Path, PathBuf};

use rushlight::compiler::emit::ExternalWeights;
use rushlight::{Code, CompiledProgram, Compiler, Error, Module, Tensor, Value};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/pt2/tied.pt2");

fn compiled(weights: Option<ExternalWeights>) -> CompiledProgram {
    let mut compiler = Compiler::new().method("forward", MODEL);
    if let Some(weights) = weights {
        compiler = compiler.external_weights(weights);
    }
    compiler.compile().expect("a model of the corpus")
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It may be there from an earlier run.
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn outputs(module: &mut Module) -> Vec<Value> {
    let meta = module.meta("forward").expect("the method");
    let inputs: Vec<Tensor> = meta
        .inputs
        .iter()
        .filter_map(|input| input.as_tensor())
        .map(|info| Tensor::zeros(info.dtype, &info.sizes).expect("a small tensor"))
        .collect();
    let views: Vec<_> = inputs.iter().map(|input| input.view().expect("a tensor").into()).collect();
    module.forward(&views).expect("a call")
}

fn bytes(values: &[Value]) -> Vec<Vec<u8>> {
    let tensor = |value: &Value| match value {
        Value::Tensor(tensor) => tensor.bytes().to_vec(),
        other => format!("{other:?}").into_bytes(),
    };
    values.iter().map(tensor).collect()
}

#[test]
fn weights_in_one_file_or_many_give_the_same_results() {
    let inside = compiled(None);
    let want = bytes(&outputs(&mut Module::from_bytes(&inside.to_bytes().expect("bytes")).expect("a module")));
    let split = ExternalWeights { max_bytes: Some(64), ..ExternalWeights::all() };
    for (name, weights) in [("one", ExternalWeights::all()), ("many", split)] {
        let path = folder(name).join("model.pte");
        let program = compiled(Some(weights));
        assert_eq!(program.save(&path).expect("written"), program.size().expect("a size"));
        let files = program.external_files(&path).expect("files");
        assert_eq!(files.len() > 1, name == "many");
        assert!(program.size().expect("a size") < inside.size().expect("a size"));
        let error = Module::load(&path).and_then(|mut module| module.load_method("forward"));
        assert_eq!(error.expect_err("the weights are missing").code(), Code::NotFound);
        let mut builder = Module::builder();
        for (file, size) in &files {
            assert_eq!(std::fs::metadata(file).expect("the file was written").len(), *size);
            builder = builder.external_data(file);
        }
        assert_eq!(bytes(&outputs(&mut builder.load(&path).expect("a module"))), want, "{name}");
        let names = std::fs::read_dir(path.parent().expect("a folder")).expect("the folder").flatten();
        assert_eq!(names.count(), files.len() + 1, "nothing else is left in the folder");
        let in_memory = program.external_data().expect("bytes");
        for ((name, bytes), (file, _)) in in_memory.iter().zip(&files) {
            assert_eq!(Some(name.as_ref()), file.file_name(), "both are called as `model.pte`");
            assert_eq!(*bytes, std::fs::read(file).expect("the file"));
        }
    }
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let named = |file: &str| ExternalWeights { rules: vec![("*".into(), Some(file.into()))], max_bytes: None };
    let folder = folder("failure");
    let same = compiled(Some(named("model.pte"))).save(folder.join("model.pte"));
    assert_eq!(same.expect_err("two files of one name").code(), Code::InvalidArgument);
    let outside = Compiler::new().method("forward", MODEL).external_weights(named("../weights.ptd")).compile();
    assert_eq!(outside.expect_err("a name with a folder").code(), Code::InvalidArgument);
    let rules = vec![("embeding.*".into(), None)];
    let unknown = ExternalWeights { rules, max_bytes: None };
    let unknown =
        Compiler::new().method("forward", MODEL).external_weights(unknown).compile().expect_err("no such name");
    assert_eq!((unknown.code(), unknown.what_came()), (Code::InvalidArgument, Some("`embeding.*`")), "{unknown}");
    assert!(unknown.to_string().contains("embedding.weight"), "{unknown}");
    // A folder is where the program should go.
    std::fs::create_dir(folder.join("taken.pte")).expect("a folder");
    let taken: Result<u64, Error> = compiled(Some(named("weights.ptd"))).save(folder.join("taken.pte"));
    assert_eq!(taken.expect_err("a folder cannot be replaced").code(), Code::AccessFailed);
    let names: Vec<_> = std::fs::read_dir(&folder).expect("the folder").flatten().map(|e| e.file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("partial")), "{names:?}");
}
