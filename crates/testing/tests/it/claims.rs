//! Backends are independent: the model that a backend sees, and the nodes that it refuses, depend on no other backend.
//! Claimed nodes are compiled.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rushlight_compiler::front::pt2::ImportOptions;
use rushlight_compiler::front::pte::lift;
use rushlight_compiler::partition::{Backend, Canonical, Claims, Compiled, Part, Report};
use rushlight_compiler::{CompileOptions, compile, import_pt2};
use rushlight_cpu_compile::Cpu;
use rushlight_graph::operators::{aten, quantized_decomposed};
use rushlight_graph::text::{Contents, Detail};
use rushlight_graph::{Bytes, Error, Model};

/// Refuses every node, and keeps the text of the models that it saw.
#[derive(Debug, Default)]
struct Refusing {
    shown: Arc<Mutex<Vec<String>>>,
}

impl Backend for Refusing {
    fn name(&self) -> &'static str {
        "Refusing"
    }

    fn claim(&self, canonical: &Canonical<'_>, _: &mut Claims) -> Result<(), Error> {
        let mut model = Model {
            constants: canonical.model.constants.clone(),
            states: canonical.model.states.clone(),
            schemas: canonical.model.schemas.clone(),
            ..Model::default()
        };
        model.add_method(canonical.method, canonical.graph.clone());
        self.shown.lock().unwrap().push(model.to_text(Detail::Review)?.0);
        Ok(())
    }

    fn compile(&self, _: &Part) -> Result<Compiled, Error> {
        Err(Error::invalid("it is given no part"))
    }
}

/// All exported programs of the corpus, and its `.pte` programs of one generation, lifted.
fn models() -> Vec<(String, Model)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let files = |folder: &str, ending: &str| -> Vec<PathBuf> {
        let files = std::fs::read_dir(corpus.join(folder)).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == ending)).collect()
    };
    let mut models = Vec::new();
    for path in files("pt2", "pt2") {
        let bytes = Bytes::from(std::fs::read(&path).unwrap());
        // One file has an unsupported version.
        if let Ok(model) = import_pt2(&[("forward", bytes)], ImportOptions::default()) {
            models.push((path.display().to_string(), model));
        }
    }
    for folder in ["1.5.1", "1.5.1-vulkan", "1.5.1-xnnpack"] {
        for path in files(folder, "pte") {
            if let Ok(model) = lift(&Bytes::from(std::fs::read(&path).unwrap()), &[]) {
                models.push((path.display().to_string(), model));
            }
        }
    }
    // Some programs have sizes without upper bounds, which is an error with any backend.
    models.retain(|(_, model)| compile(model.clone(), &CompileOptions::default()).is_ok());
    assert!(models.len() >= 30, "{}", models.len());
    models
}

fn compiled(model: &Model, backends: Vec<Box<dyn Backend>>) -> (Vec<u8>, Report) {
    let options = CompileOptions { backends, ..CompileOptions::default() };
    let compiled = compile(model.clone(), &options).unwrap();
    (compiled.program.to_bytes().unwrap(), compiled.report)
}

#[test]
fn a_back_end_that_refuses_everything_changes_no_byte() {
    for (name, model) in models() {
        let cpu = || Box::new(Cpu::default()) as Box<dyn Backend>;
        let refusing = || Box::new(Refusing::default()) as Box<dyn Backend>;
        let (alone, _) = compiled(&model, vec![cpu()]);
        assert!(alone == compiled(&model, vec![refusing(), cpu()]).0, "{name}: before the CPU's");
        assert!(alone == compiled(&model, vec![cpu(), refusing()]).0, "{name}: behind the CPU's");
    }
}

#[test]
fn a_back_end_that_refuses_everything_leaves_the_portable_program() {
    for (name, model) in models() {
        let (alone, _) = compiled(&model, Vec::new());
        assert!(alone == compiled(&model, vec![Box::new(Refusing::default())]).0, "{name}");
    }
}

#[test]
fn every_back_end_is_shown_the_canonical_form() {
    for (name, model) in models() {
        // The first and the last form of each method that the backend is shown. In the last form, some backend claims
        // each composite.
        let shown = |others_before: bool, others_behind: bool| {
            let spy = Refusing::default();
            let shown = spy.shown.clone();
            let mut backends: Vec<Box<dyn Backend>> = vec![Box::new(spy)];
            if others_before {
                backends.insert(0, Box::new(Cpu::default()));
            }
            if others_behind {
                backends.push(Box::new(Cpu::default()));
            }
            compiled(&model, backends);
            let shown = shown.lock().unwrap().clone();
            let methods = model.methods.len();
            (shown[..methods].to_vec(), shown[shown.len() - methods..].to_vec())
        };
        let (alone, before, behind) = (shown(false, false), shown(false, true), shown(true, false));
        assert_eq!(alone.0, before.0, "{name}: before the CPU's");
        assert_eq!(before.1, behind.1, "{name}: behind the CPU's");
    }
}

#[test]
fn every_node_that_is_claimed_is_compiled() {
    for (name, model) in models() {
        let (_, report) = compiled(&model, vec![Box::new(Cpu::default())]);
        let returned: Vec<_> = report.entries.iter().filter(|entry| entry.is_returned).collect();
        assert!(returned.is_empty(), "{name}: {returned:?}");
    }
}

#[test]
fn what_others_use_of_a_pattern_is_computed_again_in_the_part() {
    let text = r#"
method "forward" {
  input %x : f32[4]
  %integers = quantized_decomposed::quantize_per_tensor(%x, 0.01, 0, -32768, 32767, i16) : i16[4]
  %numbers = quantized_decomposed::dequantize_per_tensor(%integers, 0.01, 0, -32768, 32767, i16, none) : f32[4]
  %result = aten::relu(%numbers) : f32[4]
  return %result, %integers
}
"#;
    let model = Model::parse(text, &Contents::default()).unwrap();
    model.verify().unwrap();
    let (_, report) = compiled(&model, vec![Box::new(Cpu::default())]);
    let owners: Vec<_> = report.entries.iter().map(|entry| (entry.op.as_str(), entry.claimant())).collect();
    let expected = [
        (quantized_decomposed::QUANTIZE_PER_TENSOR, "portable"),
        (quantized_decomposed::DEQUANTIZE_PER_TENSOR, "RushlightCpu"),
        (aten::RELU, "RushlightCpu"),
    ];
    assert_eq!(owners, expected);
}
