//! An archive of an exported program that parses can be read to its last field.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_compiler::front::pt2::expr::SymExpr;
use rushlight_compiler::front::pt2::schema::SymInt;
use rushlight_compiler::front::pt2::{Archive, Error, ExportedProgram, Weight, Weights};
use rushlight_graph::Bytes;

fn read_program(program: &ExportedProgram<'_>) {
    let _ = (program.in_spec(), program.out_spec());
    for meta in program.graph_module.graph.tensor_values.values() {
        for size in &meta.sizes {
            if let SymInt::Expr(text) = size {
                let _ = SymExpr::parse(&text.expr_str);
            }
        }
    }
}

fn read_weights(weights: Result<Weights<'_>, Error>) {
    let Ok(weights) = weights else { return };
    for name in weights.names() {
        if let Ok(Weight::Tensor(tensor)) = weights.get(name)
            && tensor.nbytes() <= 1 << 16
        {
            assert_eq!(tensor.to_contiguous().len(), tensor.nbytes());
        }
    }
}

fuzz_target!(|file: &[u8]| {
    let Ok(archive) = Archive::parse(Bytes::from(file.to_vec())) else { return };
    for name in archive.models() {
        let Ok(model) = archive.model_named(name) else { continue };
        if let Ok(program) = model.program() {
            read_program(&program);
        }
        read_weights(model.weights());
        read_weights(model.constants());
        let _ = model.sample_inputs();
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::archive(data, size, max_size, seed)
});
