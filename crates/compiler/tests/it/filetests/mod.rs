//! Tests of passes, memory plans and emission as text files, `tests/filetests/<folder>/<name>.graph`. The steps of `# run:` are
//! passes by name, and the commands of [`command`]; [`filetests`](rushlight_graph::testing::filetests) describes the files.

mod command;
mod listing;

use std::collections::HashSet;
use std::fs;

use rushlight_compiler::passes;
use rushlight_graph::testing::filetests::{File, Suite};

const SUITE: Suite = Suite {
    root: concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/filetests"),
    others: &["cpu"],
    package: "rushlight-compiler",
};

#[test]
fn files() {
    SUITE.run(command::run);
}

#[test]
fn every_pass_has_a_file_and_a_name_of_its_own() {
    let texts: Vec<String> = SUITE.paths().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let files: Vec<File<'_>> = texts.iter().map(|text| File::parse(text).unwrap()).collect();
    let mut names = HashSet::new();
    for pass in passes::all() {
        let name = pass.name();
        assert!(names.insert(name.to_owned()), "two passes are called `{name}`");
        let has_file = files.iter().any(|file| file.steps.iter().any(|step| step.name == name));
        assert!(has_file, "no file of tests/filetests runs `{name}`");
    }
}
