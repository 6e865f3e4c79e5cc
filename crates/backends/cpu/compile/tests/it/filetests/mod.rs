//! Tests of the CPU backend's claims and payloads as text files, `tests/filetests/cpu/<folder>/<name>.graph`.
//! [`filetests`](rushlight_graph::testing::filetests) describes the files.

mod command;

use rushlight_graph::testing::filetests::Suite;

#[test]
fn files() {
    let suite = Suite {
        root: concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../tests/filetests/cpu"),
        others: &[],
        package: "rushlight-cpu-compile",
    };
    suite.run(command::run);
}
