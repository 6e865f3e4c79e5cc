//! Every operator case, through the compiler's inference of dtypes and shapes. The functional twin of the out variant
//! is called in a graph on tensors of the case's types, and the inferred types must be PyTorch's.
//!
//! `RUSHLIGHT_OP=aten::add.out` checks one operator, `RUSHLIGHT_FAILURES=50` lists up to 50 failures of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rushlight_format::ScalarType;
use rushlight_graph::ErrorKind;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::{self, Operands};
use rushlight_graph::{self as graph, Graph, Kind, Schema, Schemas, TensorType, Type, bind};
use rushlight_testing::cases::{self, Arg, Case, TensorData};
use rushlight_testing::runner::FILTER;

/// Operators with sizes that depend on the contents of tensors. Inference refuses these cases.
const DATA_DEPENDENT: &[&str] = &[
    aten::INDEX_TENSOR_OUT,
    aten::NONZERO_OUT,
    aten::MASKED_SELECT_OUT,
    aten::REPEAT_INTERLEAVE_TENSOR_OUT,
    aten::_UNIQUE2_OUT,
    aten::UNIQUE_DIM_OUT,
    aten::UNIQUE_CONSECUTIVE_OUT,
    aten::BINCOUNT_OUT,
];

/// Operators in programs that have no functional form.
const NOT_FUNCTIONAL: &[(&str, &str)] = &[
    (aten::COPY_, "writes to its argument"),
    (aten::INDEX_PUT_, "writes to its argument"),
    (aten::_NATIVE_BATCH_NORM_LEGIT_OUT, "writes its running statistics"),
    (aten::_LOCAL_SCALAR_DENSE, "gives a number"),
    (aten::SYM_IS_CONTIGUOUS, "gives a number"),
    (aten::SYM_NUMEL, "gives a number"),
    (aten::SYM_SIZE_INT, "gives a number"),
    (aten::SYM_STORAGE_OFFSET, "gives a number"),
    (aten::SYM_STRIDE_INT, "gives a number"),
    ("et_copy::_d2h_copy.out", "moves between devices"),
    ("et_copy::_h2d_copy.out", "moves between devices"),
    ("preprocess::tile_crop.out", "has no schema in PyTorch's registry"),
];

/// The outcome of the cases of an operator.
#[derive(Default)]
struct Tally {
    agreed: usize,
    dependent: usize,
    failed: Vec<String>,
}

#[test]
fn types_are_what_pytorch_gives() {
    let schemas = Schemas::new();
    let twins = twins();
    let limit = std::env::var("RUSHLIGHT_FAILURES").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let filter = std::env::var(FILTER).ok();
    let mut report: BTreeMap<String, Tally> = BTreeMap::new();
    for family in cases::families().unwrap() {
        for case in cases::read(&family).unwrap() {
            // ExecuTorch gives the operators of microcontrollers in programs alone, and no graph has them.
            let is_program_only = case.op.contains("_prim::") || case.op.starts_with("cortex_m::");
            let skipped = is_program_only || NOT_FUNCTIONAL.iter().any(|(name, _)| *name == case.op);
            // Out variants accept outputs of other dtypes than the functional operator returns.
            let converted = case.name.starts_with("out-dtype");
            if skipped
                || converted
                || filter.as_ref().is_some_and(|wanted| !case.op.starts_with(wanted.trim_end_matches('*')))
            {
                continue;
            }
            let tally = report.entry(case.op.clone()).or_default();
            match check(&case, &schemas, &twins) {
                Ok(true) => tally.agreed += 1,
                Ok(false) => tally.dependent += 1,
                Err(why) => tally.failed.push(format!("{}: {why}", case.name)),
            }
        }
    }
    let mut text = String::new();
    for (op, tally) in report.iter().filter(|(_, tally)| !tally.failed.is_empty()) {
        text += &format!("{op}: {} of {} cases\n", tally.failed.len(), tally.failed.len() + tally.agreed);
        tally.failed.iter().take(limit).for_each(|failure| text += &format!("    {failure}\n"));
    }
    let (operators, agreed) = (report.len(), report.values().map(|tally| tally.agreed).sum::<usize>());
    let dependent: usize = report.values().map(|tally| tally.dependent).sum();
    println!(
        "{agreed} cases of {operators} operators have the types that PyTorch gives; the sizes of {dependent} depend on data"
    );
    assert!(text.is_empty(), "not these:\n{text}");
    assert!(filter.is_some() || (operators > 200 && agreed > 20_000));
}

/// Core ATen operators without a definition, because they return no tensors.
const NO_TENSORS: &[&str] = &[
    aten::_LOCAL_SCALAR_DENSE,
    aten::SYM_IS_CONTIGUOUS,
    aten::SYM_NUMEL,
    aten::SYM_SIZE_INT,
    aten::SYM_STORAGE_OFFSET,
    aten::SYM_STRIDE_INT,
];

/// Lists the functional operators without a definition if it is run with `--nocapture`.
#[test]
fn every_core_operator_has_a_definition() {
    let functional = Schemas::table().map(|schema| schema.unwrap()).filter(|schema| {
        !schema.flags.in_place && !schema.name.ends_with("out") && schema.params.iter().all(|param| !param.writes)
    });
    let (known, unknown): (Vec<_>, Vec<_>) = functional.partition(|schema| ops::definition(&schema.name).is_some());
    println!("{} functional operators have definitions, {} have none:", known.len(), unknown.len());
    unknown.iter().for_each(|schema| println!("    {}", schema.name));
    let missing: Vec<_> =
        unknown.iter().filter(|schema| schema.flags.core).map(|schema| schema.name.as_str()).collect();
    assert_eq!(missing, NO_TENSORS);
}

/// The functional operator of each out variant.
fn twins() -> HashMap<String, String> {
    let schemas = Schemas::table().map(|schema| schema.unwrap());
    schemas.filter_map(|schema| Some((schema.out_variant?, schema.name))).collect()
}

/// Checks that the inferred types agree. Returns false if the sizes depend on data.
fn check(case: &Case, schemas: &Schemas, twins: &HashMap<String, String>) -> Result<bool, String> {
    let name = twins.get(&case.op).ok_or("no functional operator has this out variant")?;
    let (functional, out) = (schemas.get(name).ok_or("no schema")?, schemas.get(&case.op).ok_or("no schema")?);
    let mut graph = Graph::new();
    let args = arguments(case, &functional, &out, &mut graph)?;
    let types = match ops::infer(&Operands::new(&functional, &args), &graph) {
        Err(error) if DATA_DEPENDENT.contains(&case.op.as_str()) && error.kind() == ErrorKind::Unsupported => {
            return Ok(false);
        }
        types => types.map_err(|e| e.to_string())?,
    };
    let expected: Vec<&TensorData> = results(case);
    if types.len() != expected.len() {
        return Err(format!("{} results instead of {}", types.len(), expected.len()));
    }
    for (index, (inferred, expected)) in types.iter().zip(expected).enumerate() {
        let Type::Tensor(inferred) = inferred else { return Err(format!("result {index} is not a tensor")) };
        let sizes: Vec<i64> = expected.sizes.iter().map(|size| *size as i64).collect();
        let same_shape = inferred.static_sizes().as_ref() == Some(&sizes);
        if inferred.dtype != expected.dtype || (!same_shape && !case.unspecified.contains(&index)) {
            let got = (inferred.dtype.name(), inferred.static_sizes());
            return Err(format!("result {index} is {got:?} instead of ({:?}, {sizes:?})", expected.dtype.name()));
        }
    }
    Ok(true)
}

/// The results in the order of the outputs.
fn results(case: &Case) -> Vec<&TensorData> {
    let indices = case.args.iter().flat_map(|arg| match arg {
        Arg::Out(index) => vec![*index],
        Arg::OutList(indices) => indices.clone(),
        _ => Vec::new(),
    });
    let result = |index: usize| match case.expect.get(index) {
        Some(Arg::Tensor(tensor)) => Some(tensor),
        _ => None,
    };
    indices.filter_map(result).collect()
}

/// The arguments of the functional operator. They are those of the out variant by name, and the dtype of the result if
/// the out variant takes it from its output.
fn arguments(
    case: &Case,
    functional: &Schema,
    out: &Arc<Schema>,
    graph: &mut Graph,
) -> Result<Vec<graph::Arg>, String> {
    let mut named = Vec::new();
    for (position, param) in functional.params.iter().enumerate() {
        let found = out.position(&param.name).or_else(|| {
            // The first parameters may have different names.
            (position == 0 && functional.params.first() == Some(param)).then_some(0)
        });
        let arg = match found.and_then(|index| case.args.get(index)) {
            Some(arg) => argument(arg, &param.kind, graph)?,
            None if param.name == "dtype" => {
                results(case).first().map_or(graph::Arg::None, |result| graph::Arg::DType(result.dtype))
            }
            None => continue,
        };
        named.push((param.name.as_str(), arg));
    }
    bind(functional, Vec::new(), &named).map_err(|e| e.to_string())
}

fn argument(arg: &Arg, kind: &Kind, graph: &mut Graph) -> Result<graph::Arg, String> {
    let kind = if let Kind::Optional(inner) = kind { inner } else { kind };
    let mut tensor = |data: &TensorData| {
        let sizes: Vec<i64> = data.sizes.iter().map(|size| *size as i64).collect();
        graph::Arg::Value(graph.input("x", Type::Tensor(TensorType::of(data.dtype, &sizes))))
    };
    let list = |items: Vec<graph::Arg>| graph::Arg::List(items);
    Ok(match arg {
        Arg::None => graph::Arg::None,
        Arg::Int(code) if *kind == Kind::DType => {
            let dtype = u8::try_from(*code).ok().and_then(ScalarType::from_code);
            graph::Arg::DType(dtype.ok_or_else(|| format!("{code} is no dtype"))?)
        }
        Arg::Int(_) if matches!(kind, Kind::MemoryFormat | Kind::Layout) => graph::Arg::None,
        Arg::Int(value) => graph::Arg::from(*value),
        Arg::Double(value) => graph::Arg::Float(*value),
        Arg::Bool(value) => graph::Arg::Bool(*value),
        Arg::Str(text) => graph::Arg::Str(text.clone()),
        Arg::IntList(items) => graph::Arg::from(items.as_slice()),
        Arg::DoubleList(items) => list(items.iter().map(|item| graph::Arg::Float(*item)).collect()),
        Arg::BoolList(items) => list(items.iter().map(|item| graph::Arg::Bool(*item)).collect()),
        Arg::Tensor(data) | Arg::InOut(data, _) => tensor(data),
        Arg::TensorList(items) => list(items.iter().map(tensor).collect()),
        Arg::OptionalTensorList(items) => {
            list(items.iter().map(|item| item.as_ref().map_or(graph::Arg::None, &mut tensor)).collect())
        }
        Arg::Out(_) | Arg::OutList(_) => return Err("an output among the inputs".into()),
    })
}
