//! Cases whose operators read views: parts of tensors that were computed before.

use std::num::NonZeroUsize;

use rushlight::{Lower, Module};
use rushlight_compiler::front::pte::lift;
use rushlight_compiler::{CompileOptions, compile};
use rushlight_cpu_compile::Cpu;
use rushlight_format::ScalarType;
use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Builder, Def, Graph, Node, NodeId, Target, ValueId};

use crate::cases::Case;
use crate::program::{self, METHOD, Placement};
use crate::runner::{Lowered, execute};
use crate::tolerance;

/// Runs a case as [`run_lowered`](crate::runner::run_lowered) does, with each tensor of floats among the inputs as the second half of a tensor that is computed: a view
/// with an offset, and with gaps unless `dim` is the outermost dimension. Negative dimensions are counted from the end.
pub fn run_on_views(case: &Case, dim: i64) -> Lowered {
    let differs = |what: &str, error: &dyn std::fmt::Display| Lowered::Differs(format!("{what}: {error}"));
    let written = match program::write(case, Placement::Planned) {
        Ok(written) => written,
        Err(error) => return differs("writing the program", &error),
    };
    let mut model = match lift(&written.bytes.clone().into(), &[]) {
        Ok(model) => model,
        Err(error) => return Lowered::Left(error.to_string()),
    };
    let writes_inputs = |graph: &Graph| graph.updates.iter().any(|update| matches!(update.target, Target::Input(_)));
    if model.methods.values().any(writes_inputs) {
        return Lowered::Left("what it writes to inputs would come before its results".to_owned());
    }
    match model.rewrite(|builder, node| of_views(builder, node, dim)) {
        Ok(true) => {}
        Ok(false) => return Lowered::Left("it has no tensor of floats among its inputs".to_owned()),
        Err(error) => return differs("making views", &error),
    }
    let mut options = CompileOptions::default();
    options.backends.push(Box::new(Cpu { threads: NonZeroUsize::new(1), ..Cpu::default() }));
    let compiled = match compile(model, &options) {
        Ok(compiled) if compiled.report.entries.iter().any(|entry| entry.is_returned) => {
            return Lowered::Differs(format!("a node was claimed and not compiled:\n{}", compiled.report));
        }
        Ok(compiled) => compiled.program.to_bytes(),
        Err(error) => return differs("compiling", &error),
    };
    let module = match compiled {
        Ok(file) => Module::builder().lower(Lower::Off).threads(1).load_bytes(&file),
        Err(error) => return differs("writing", &error),
    };
    let result = match module {
        Ok(mut module) => match module.method(METHOD) {
            Ok(method) => execute(case, &written, method, tolerance::lowered),
            Err(error) => return differs("loading the method", &error),
        },
        Err(error) => return differs("loading", &error),
    };
    result.map_or_else(Lowered::Differs, |()| Lowered::Passed)
}

/// Calls the operator of a node on views of its inputs.
fn of_views(builder: &mut Builder<'_>, node: NodeId, dim: i64) -> Result<Action, Error> {
    let Node { op, args, results, .. } = builder.graph.nodes[node].clone();
    let mut views: Vec<(ValueId, ValueId)> = Vec::new();
    let mut inputs = Vec::new();
    args.iter().for_each(|arg| arg.for_each_value(&mut |value| inputs.push(value)));
    for input in inputs {
        let Ok(ty) = builder.graph.tensor(input) else { continue };
        let at = if dim < 0 { dim + ty.rank() as i64 } else { dim };
        let size = usize::try_from(at).ok().and_then(|at| ty.shape.get(at)?.as_int());
        let is_input = matches!(builder.graph.values[input].def, Def::Param(_));
        let is_plain = ty.dtype == ScalarType::Float && ty.is_contiguous();
        let Some(size) = size.filter(|_| is_input && is_plain) else { continue };
        if views.iter().all(|(known, _)| *known != input) {
            let twice = Arg::List(vec![input.into(), input.into()]);
            let twice = builder.one(aten::CAT, vec![twice, at.into()])?;
            let args = vec![twice.into(), at.into(), size.into(), (2 * size).into(), 1.into()];
            views.push((input, builder.one(aten::SLICE_COPY_TENSOR, args)?));
        }
    }
    if views.is_empty() {
        return Ok(Action::Keep);
    }
    let view_of = |value: ValueId| views.iter().find(|(input, _)| *input == value).map_or(value, |(_, view)| *view);
    let args = args.into_iter().map(|arg| with_values(arg, &view_of)).collect();
    let types = results.iter().map(|result| builder.graph.values[*result].ty.clone()).collect();
    Ok(Action::Replace(builder.push(op, args, types)))
}

fn with_values(arg: Arg, of: &impl Fn(ValueId) -> ValueId) -> Arg {
    match arg {
        Arg::Value(value) => Arg::Value(of(value)),
        Arg::List(items) => Arg::List(items.into_iter().map(|item| with_values(item, of)).collect()),
        other => other,
    }
}
