//! Methods that share state, in programs that run as their file has them and in those that are lowered.
#![cfg(all(feature = "pt2", feature = "lower", feature = "cpu"))]

use rushlight::{Compiler, Module, TensorView};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/pt2/kv_cache.pt2");

/// Keys of two heads at positions 0 and 1.
const KEYS: [[f32; 8]; 2] = [[1.0, 2.0, 3.0, 4.0, -1.0, 0.5, 2.0, 0.0], [0.5, 1.0, -1.0, 2.0, 3.0, 1.0, 0.5, -2.0]];

/// The scores of position 1, whose keys are the query too, against the key at position 0, after one method read that and the other
/// this.
fn scores(module: &mut Module) -> [f32; 2] {
    let mut run = |method: &str, position: i64| {
        let key = TensorView::of(&[1, 2, 1, 4], &KEYS[position as usize]).expect("a key");
        let position = [position];
        let position = TensorView::of(&[1], &position).expect("a position").into();
        let outputs = module.call(method).named([("position", position), ("x", key.into())]).run();
        outputs.expect("the method runs")[0].as_slice::<f32>().expect("floats").to_vec()
    };
    run("first", 0);
    let scores = run("second", 1);
    [scores[0], scores[8]]
}

#[test]
fn what_one_method_writes_the_other_reads() {
    let dot = |head: usize| (0..4).map(|at| KEYS[0][4 * head + at] * KEYS[1][4 * head + at]).sum::<f32>();
    for (is_shared, expected) in [(true, [dot(0), dot(1)]), (false, [0.0, 0.0])] {
        for backend in [None, Some("cpu")] {
            let compiler = Compiler::new().method("first", MODEL).method("second", MODEL).share_state(is_shared);
            let compiler = backend.into_iter().fold(compiler, Compiler::backend);
            let program = compiler.compile().expect("the model compiles").to_bytes().expect("a small program");
            for lower in ["off", "auto", "cpu"] {
                let mut module = Module::builder().lower(lower).load_bytes(&program).expect("a program");
                assert_eq!(scores(&mut module), expected, "{is_shared} {backend:?} {lower}");
            }
            let mut module = Module::builder().lower("cpu").load_bytes(&program).expect("a program");
            if backend.is_none() {
                module.report().expect("a program that shares state is lowered");
            }
        }
    }
}
