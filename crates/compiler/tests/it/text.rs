//! Exported programs as text, and back.

use std::path::Path;

use rushlight_compiler::front::pt2::{self, Archive, ImportOptions};
use rushlight_compiler::passes::{EliminateDeadCode, Functionalise, MergeCommonSubexpressions, MergeConstants};
use rushlight_graph::Model;
use rushlight_graph::Pass;
use rushlight_graph::text::Detail;

/// The programs of `tests/corpus/pt2` that can be read.
fn samples() -> Vec<(String, Model)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/pt2");
    let mut samples = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        // Written by a version whose programs are not read.
        if path.extension().is_some_and(|extension| extension == "pt2") && name != "torch_2.3" {
            let archive = Archive::parse(std::fs::read(&path).unwrap().into()).unwrap();
            let source = archive.model().unwrap();
            let model = pt2::import(&[("forward", &source)], ImportOptions::default());
            samples.push((name, model.unwrap()));
        }
    }
    assert!(samples.len() >= 14);
    samples
}

fn assert_reads_back(name: &str, model: &Model) {
    let (text, contents) = model.to_text(Detail::Exact).unwrap();
    let read = Model::parse(&text, &contents).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    assert_eq!(read.to_text(Detail::Exact).unwrap().0, text, "{name}");
    read.verify().unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
}

#[test]
fn programs_read_back_before_and_after_passes() {
    let passes: [&dyn Pass; 4] = [&Functionalise, &MergeConstants, &MergeCommonSubexpressions, &EliminateDeadCode];
    for (name, mut model) in samples() {
        model.verify().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_reads_back(&name, &model);
        for pass in passes {
            pass.run(&mut model).unwrap();
            model.verify().unwrap_or_else(|error| panic!("{name} after {}: {error}", pass.name()));
        }
        assert_reads_back(&name, &model);
        let (review, _) = model.to_text(Detail::Review).unwrap();
        let in_place = review.lines().find(|line| line.contains("_(") || line.contains("_.Tensor("));
        assert_eq!(in_place, None, "{name}");
    }
}
