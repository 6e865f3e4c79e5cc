//! Executions leave no memory behind: of programs as they are, lowered, compiled for the CPU and quantized, with changing
//! sizes, and with calls that fail between. A binary of its own, whose allocator counts.
//!
//! `RUSHLIGHT_EXECUTIONS` says how many there are.

use std::time::Duration;

use cap::Cap;
use rushlight::{Compiler, Input, Module, ModuleBuilder, TensorView, Value};

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

const FEW_EXECUTIONS: usize = 3_000;

fn corpus(name: &str) -> String {
    format!("{}/../../tests/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn compiled(name: &str, builder: ModuleBuilder) -> Module {
    let compiler = Compiler::new().method("forward", corpus(name)).backend("cpu");
    let program = compiler.compile().and_then(|program| program.to_bytes()).expect("it compiles");
    builder.load_bytes(&program).expect("a program")
}

fn loaded(name: &str, builder: ModuleBuilder) -> Module {
    builder.load(corpus(name)).expect("the corpus is part of the repository")
}

/// A program, and the sizes that it is called with in turn: some that it takes, then some that it refuses.
struct Case {
    name: &'static str,
    module: Module,
    taken: Vec<Vec<Vec<usize>>>,
    refused: Vec<Vec<Vec<usize>>>,
}

fn cases() -> Vec<Case> {
    let builder = |lower| Module::builder().lower(lower).threads(1);
    let mlp = || (vec![vec![vec![2, 8]]], vec![vec![vec![2, 9]], vec![vec![8]], vec![]]);
    let scaled =
        || (vec![vec![vec![3, 8]], vec![vec![8, 8]], vec![vec![1, 8]]], vec![vec![vec![3, 1]], vec![vec![9, 8]]]);
    let case = |name, module, (taken, refused)| Case { name, module, taken, refused };
    vec![
        case("as it is", loaded("corpus/1.5.1/mlp.pte", builder("off")), mlp()),
        case("lowered", loaded("corpus/1.5.1/mlp.pte", builder("cpu")), mlp()),
        case(
            "lowered, by two threads",
            loaded("corpus/1.5.1/mlp.pte", Module::builder().lower("cpu").threads(2)),
            mlp(),
        ),
        case(
            "out of time",
            loaded("corpus/1.5.1/mlp.pte", builder("cpu").time_limit(Duration::ZERO)),
            (vec![], vec![vec![vec![2, 8]]]),
        ),
        case("compiled for the CPU, changing sizes", compiled("shapes/scaled.pt2", builder("off")), scaled()),
        case(
            "compiled for the CPU, computed sizes",
            compiled("shapes/twice_as_many.pt2", builder("off")),
            (
                (1..=8).map(|n| vec![vec![n, 2], vec![2 * n, 2]]).collect(),
                vec![vec![vec![3, 2], vec![5, 2]], vec![vec![9, 2], vec![18, 2]]],
            ),
        ),
        case(
            "convolution, changing sizes",
            compiled("shapes/convolved.pt2", builder("off")),
            (
                vec![vec![vec![1, 3, 8, 10]], vec![vec![2, 3, 4, 12]], vec![vec![2, 3, 12, 5]]],
                vec![vec![vec![1, 1, 8, 10]]],
            ),
        ),
        case("quantized", compiled("corpus/pt2/int8.pt2", builder("off")), int8()),
    ]
}

/// The sizes of the quantized program are those that it declares.
fn int8() -> (Vec<Vec<Vec<usize>>>, Vec<Vec<Vec<usize>>>) {
    let module = compiled("corpus/pt2/int8.pt2", Module::builder().lower("off"));
    let meta = module.meta("forward").expect("a method");
    let sizes: Vec<_> = meta.inputs.iter().filter_map(|input| Some(input.as_tensor()?.sizes.clone())).collect();
    (vec![sizes], vec![vec![vec![1]]])
}

fn call(module: &mut Module, shapes: &[Vec<usize>], floats: &[f32]) -> Option<Vec<Value>> {
    let views = shapes.iter().map(|shape| TensorView::of(shape, &floats[..shape.iter().product()]).expect("a view"));
    let inputs: Vec<Input<'_>> = views.map(Input::from).collect();
    module.forward(&inputs).ok()
}

/// The pages of the process that are in memory; 0 where the system does not tell.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

#[test]
fn executions_leave_no_memory_behind() {
    let executions = std::env::var("RUSHLIGHT_EXECUTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(FEW_EXECUTIONS);
    let floats: Vec<f32> = (0..1 << 16).map(|at| (at as f32 * 0.37).sin()).collect();
    for Case { name, mut module, taken, refused } in cases() {
        let mut round = |from: usize, to: usize| {
            for at in from..to {
                // One call of 16 fails.
                let fails = taken.is_empty() || (at % 16 == 15 && !refused.is_empty());
                let shapes = if fails { &refused[at / 16 % refused.len()] } else { &taken[at % taken.len()] };
                assert_eq!(call(&mut module, shapes, &floats).is_none(), fails, "{name}: {shapes:?}");
            }
        };
        round(0, 256);
        // Threads that start late allocate their names.
        std::thread::sleep(Duration::from_millis(200));
        let (before, pages) = (ALLOCATOR.allocated(), resident());
        round(0, executions);
        let (after, more) = (ALLOCATOR.allocated(), resident().saturating_sub(pages));
        println!("{name}: {executions} executions, {} bytes and {more} pages more", after.saturating_sub(before));
        assert_eq!(after, before, "{name}");
        assert!(more < 256, "{name}: {more} pages more are in memory");
    }
}
