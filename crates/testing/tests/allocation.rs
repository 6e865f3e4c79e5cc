//! Executing a lowered program allocates nothing, by one thread and by two. A binary of its own, whose allocator counts.

use std::time::Duration;

use cap::Cap;
use rushlight::runtime::Input;
use rushlight::{Module, TensorView};

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// What was allocated so far, once the threads of the pool have started: the system decides when they first run, and each
/// allocates its name.
fn settled() -> usize {
    let mut before = ALLOCATOR.total_allocated();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = ALLOCATOR.total_allocated();
        if now == before {
            return now;
        }
        before = now;
    }
}

#[test]
fn executing_what_was_lowered_allocates_nothing() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1");
    for threads in [1, 2] {
        for name in ["add", "mlp", "conv", "softmax", "channels_last"] {
            let builder = Module::builder().lower("cpu").threads(threads);
            let mut module = builder.load(format!("{corpus}/{name}.pte")).expect("a file of the corpus");
            assert!(module.report().is_ok(), "{name} is not lowered");
            let meta = module.meta("forward").expect("it has the method");
            let tensors = meta.inputs.iter().filter_map(|input| input.as_tensor());
            let data: Vec<_> = tensors.map(|info| (info.clone(), vec![0.5f32; info.nbytes as usize / 4])).collect();
            let method = module.method("forward").expect("it loads");
            let mut execute = || {
                let mut inputs = [const { Input::None }; 4];
                for (slot, (info, floats)) in inputs.iter_mut().zip(&data) {
                    *slot = Input::Tensor(TensorView::of(&info.sizes, floats).expect("a view"));
                }
                let count = method.execute(&inputs[..data.len()]).expect("it runs").len();
                assert!(count > 0);
            };
            execute();
            let before = settled();
            for _ in 0..10 {
                execute();
            }
            assert_eq!(ALLOCATOR.total_allocated(), before, "{name} with {threads} threads");
        }
    }
}
