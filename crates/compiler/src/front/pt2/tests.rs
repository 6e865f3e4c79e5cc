//! The samples of `tests/corpus/pt2`, read whole.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;

use super::schema::*;
use super::*;

fn sample(name: &str) -> Archive {
    Archive::parse(sample_bytes(name).into()).unwrap()
}

fn sample_bytes(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/pt2");
    std::fs::read(folder.join(format!("{name}.pt2"))).unwrap()
}

fn samples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/pt2");
    let names = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> =
        names.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".pt2")?.to_owned())).collect();
    names.sort();
    names
}

#[test]
fn everything_in_the_samples_is_read() {
    for name in samples().iter().filter(|name| *name != "torch_2.3") {
        let archive = sample(name);
        let model = archive.model().unwrap();
        let program = model.program().unwrap_or_else(|error| panic!("{name}: {error}"));
        let GraphModule { graph, signature, .. } = &program.graph_module;
        assert!(!graph.nodes.is_empty(), "{name}");
        assert_eq!(graph.inputs.len(), signature.input_specs.len(), "{name}");
        assert_eq!(graph.outputs.len(), signature.output_specs.len(), "{name}");
        let form = if name.ends_with("_core") { "ATEN" } else { "TRAINING" };
        assert_eq!(program.verifiers, [Text::from(form)], "{name}");
        let users = signature
            .input_specs
            .iter()
            .filter(|spec| matches!(spec, InputSpec::UserInput(_) | InputSpec::ConstantInput(_)))
            .count();
        assert_eq!(program.in_spec().unwrap().unwrap().num_leaves(), users, "{name}");
        let users = signature.output_specs.iter().filter(|spec| matches!(spec, OutputSpec::UserOutput(_))).count();
        assert_eq!(program.out_spec().unwrap().unwrap().num_leaves(), users, "{name}");
        let weights = model.weights().unwrap();
        let constants = model.constants().unwrap();
        for spec in &signature.input_specs {
            let (source, path) = match spec {
                InputSpec::Parameter(spec) => (&weights, &spec.parameter_name),
                InputSpec::Buffer(spec) if spec.persistent => (&weights, &spec.buffer_name),
                InputSpec::Buffer(spec) => (&constants, &spec.buffer_name),
                InputSpec::TensorConstant(spec) => (&constants, &spec.tensor_constant_name),
                _ => continue,
            };
            source.get(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
