//! Takes programs through what follows reading them, under limits.

use rushlight::{Lower, Module, ModuleBuilder};
use rushlight_compiler::{CompileOptions, compile};
use rushlight_cpu_compile::Cpu;
use rushlight_graph::Model;
use rushlight_testing::zeros::Zeros;

/// Memory limit of a method with its delegates, in bytes.
pub const MEMORY: usize = 1 << 18;

/// Inputs larger than this are not given.
const INPUT: u64 = 1 << 14;

/// Compiles a model for the CPU backend, or for the reference operators. Loads and executes the program.
pub fn compile_and_run(model: Model, cpu: bool) {
    let mut options = CompileOptions::default();
    if cpu {
        options.backends.push(Box::new(Cpu { threads: std::num::NonZeroUsize::new(1), ..Cpu::default() }));
    }
    match compile(model, &options) {
        Ok(compiled) => {
            // Constants that a view repeats take their full size in the file.
            let size = compiled.program.write(&Default::default()).map(|image| image.size());
            if let Ok(size) = size
                && size <= 1 << 20
                && let Ok(file) = compiled.program.to_bytes()
            {
                load_and_run(&file, limited());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A module of one thread and little memory.
pub fn limited() -> ModuleBuilder {
    Module::builder().lower(Lower::Off).memory_limit(MEMORY).threads(1)
}

/// Loads all methods of a program and executes each once, with zeros.
pub fn load_and_run(file: &[u8], builder: ModuleBuilder) {
    match builder.load_bytes(file) {
        Ok(mut module) => run(&mut module),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Executes each method of a module once, with zeros.
pub fn run(module: &mut Module) {
    let names: Vec<String> = module.method_names().take(4).map(str::to_owned).collect();
    for name in names {
        let Ok(meta) = module.meta(&name) else { continue };
        if module.load_method(&name).is_err() {
            continue;
        }
        let zeros = Zeros::of(&meta, INPUT);
        if let Err(error) = module.run(&name, &zeros.inputs()) {
            assert!(!error.to_string().is_empty());
        }
    }
}

/// A tiny language model, as the tests have it, whose caches have this many positions.
pub fn language_model(context: usize) -> rushlight_llm::Model {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/decoders/llama");
    let options = rushlight::LanguageModelOptions {
        max_context_len: Some(context),
        max_seq_len: Some(context.min(8)),
        ..Default::default()
    };
    let compiled = rushlight::Compiler::new().language_model(folder, options).backend("cpu").compile();
    let bytes = compiled.and_then(|compiled| compiled.to_bytes()).expect("a model");
    let module = Module::builder().lower(Lower::Off).threads(1).load_bytes(&bytes).expect("a module");
    rushlight_llm::Model::new(module).expect("a language model")
}
