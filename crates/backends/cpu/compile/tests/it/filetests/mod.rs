//! Tests of what the CPU back end claims and of the payloads that it makes, as text files,
//! `tests/filetests/cpu/<folder>/<name>.graph`; [`filetests`](rushlight_graph::testing::filetests) describes the files.

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
