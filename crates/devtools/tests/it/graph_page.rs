//! The script of the graph page, run as a browser would run it: `cargo test -p rushlight-devtools -- --ignored`.

use std::io::Write;
use std::process::{Command, Stdio};

/// Two thousand nodes in modules of ten, with residual connections, one input that all take, and one node without any.
const CHECKS: &str = r#"
const assert = require("assert");
const nodes = [{ group: "", kind: "input", inputs: [] }];
for (let i = 1; i <= 2000; i++) {
  const inputs = [[i - 1, 0], [0, 0]];
  if (i > 7) inputs.push([i - 7, 0]);
  nodes.push({ group: `net.${Math.floor(i / 10)}`, kind: "operator", inputs });
}
nodes.push({ group: "net.201", kind: "operator", inputs: [] });
nodes.push({ group: "", kind: "output", inputs: [[2001, 0], [2000, 0]] });
const check = collapsed => {
  const drawn = layout(nodes, collapsed, () => 100);
  assert.equal(drawn.boxes.reduce((sum, box) => sum + box.nodes.length, 0), nodes.length);
  for (const items of drawn.layers) {
    for (let i = 1; i < items.length; i++) {
      const distance = drawn.x[items[i]] - drawn.x[items[i - 1]];
      assert(distance >= (drawn.widths[items[i]] + drawn.widths[items[i - 1]]) / 2, "nothing overlaps");
    }
  }
  drawn.below.forEach((below, item) => below.forEach(to => assert.equal(drawn.layer[to], drawn.layer[item] + 1)));
  drawn.sources.forEach((from, box) => from.forEach(source => assert(drawn.layer[source] < drawn.layer[box])));
  return drawn;
};
const open = check(new Set());
assert.equal(open.boxes.length, 2003);
assert.equal(open.layer[2001], open.layer[2002] - 1, "what takes nothing stands near what takes it");
assert.equal(check(new Set(["net"])).boxes.length, 3);
assert.equal(check(new Set(nodes.map(node => node.group).filter(group => group))).boxes.length, 204);
assert.deepEqual(prefixes("a.b.c"), ["a", "a.b", "a.b.c"]);
assert.deepEqual(place([0, 0, 50], [1, 1, 1], [10, 10, 10]), [-14, 14, 50]);
"#;

#[test]
#[ignore = "needs Node.js"]
fn the_layout_keeps_boxes_apart_and_lines_downwards() {
    let script = format!("{}\n{CHECKS}", include_str!("../../src/graph/layout.js"));
    let mut node = Command::new("node").arg("-").stdin(Stdio::piped()).spawn().expect("Node.js is installed");
    node.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("Node.js reads its script");
    assert!(node.wait().expect("Node.js ends").success());
}
