//! Cases of operators that the compiler lowers to simpler ones: each is compiled alone and run.

use std::collections::BTreeMap;

use rushlight::{Input, Module, TensorView};
use rushlight_compiler::interpret::{self, Datum};
use rushlight_compiler::{CompileOptions, compile};
use rushlight_cpu_compile::Cpu;
use rushlight_format::ScalarType;
use rushlight_graph::ErrorKind;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::{self, Operands};
use rushlight_graph::schema::{Kind, Param};
use rushlight_graph::{Arg, Expr, Graph, Layout, MemoryFormat, Model, Op, Origin, Symbol, TensorType, Type};

use crate::cases::{self, BadCase, Case, TensorData};
use crate::compare::{self, Limit};
use crate::skips;
use crate::tolerance::{Tolerance, epsilon};

/// The outcome of the cases of a family.
#[derive(Debug, Default)]
pub struct Outcome {
    pub passed: usize,
    /// Cases that need a feature that the compiler lacks, or a size that it must know.
    pub left_out: usize,
    /// The failures by operator, each with its case.
    pub failed: BTreeMap<String, Vec<String>>,
}

/// The sizes that are known to the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All sizes.
    Static,
    /// Sizes of inputs up to 1, and all other sizes. Larger sizes of inputs are symbols; equal ones share a symbol.
    /// Cases that depend on a static size are left out.
    Symbolic,
    /// As `Symbolic`, but inputs' sizes of 0 are symbols too, and any symbol may be 0.
    PossiblyEmpty,
    /// All sizes. Floating-point numbers come from inputs, so their values are known only at run time.
    StaticWithNumbers,
}

impl Sizes {
    /// The lower bound of symbolic sizes; `None` if all are known.
    const fn least(self) -> Option<i64> {
        match self {
            Self::Symbolic => Some(2),
            Self::PossiblyEmpty => Some(0),
            Self::Static | Self::StaticWithNumbers => None,
        }
    }
}

/// Compiles and runs the cases of a family whose operator starts with `filter`.
pub fn run(family: &str, sizes: Sizes, filter: &str) -> Result<Outcome, BadCase> {
    let mut outcome = Outcome::default();
    for case in cases::read(family)?.iter().filter(|case| case.op.starts_with(filter)) {
        if skips::find(&case.op, &case.name).is_some() {
            continue;
        }
        match run_case(case, sizes) {
            Ok(true) => outcome.passed += 1,
            Ok(false) => outcome.left_out += 1,
            Err(what) => outcome.failed.entry(case.op.clone()).or_default().push(format!("{}: {what}", case.name)),
        }
    }
    Ok(outcome)
}

/// Runs a case on the reference operators and, for `PossiblyEmpty`, on the CPU backend too. Returns false if it is left
/// out.
fn run_case(case: &Case, sizes: Sizes) -> Result<bool, String> {
    let mut inputs = Vec::new();
    let model = model(case, sizes, &mut inputs)?;
    if sizes == Sizes::PossiblyEmpty {
        let options = CompileOptions { backends: vec![Box::new(Cpu::default())], ..CompileOptions::default() };
        let Some(file) = compiled(case, sizes, model.clone(), &options)? else { return Ok(false) };
        let outputs = run_module(&file, &inputs).map_err(|error| format!("on the CPU backend: {error}"))?;
        compare_all(case, &outputs).map_err(|what| format!("on the CPU backend: {what}"))?;
    }
    let Some(file) = compiled(case, sizes, model, &CompileOptions::default())? else { return Ok(false) };
    let outputs = interpret::run(&file, METHOD, &inputs).map_err(|error| error.to_string())?;
    compare_all(case, &outputs)?;
    Ok(true)
}

/// The file of a compiled case; `None` if the case is left out.
fn compiled(case: &Case, sizes: Sizes, model: Model, options: &CompileOptions) -> Result<Option<Vec<u8>>, String> {
    let compiled = match compile(model, options) {
        Err(error) if sizes.least().is_some() && needs_known_sizes(&error) => return Ok(None),
        Err(error) if sizes == Sizes::StaticWithNumbers && needs_known_numbers(&error) => return Ok(None),
        Err(error) if is_unsupported(&case.op, &error) => return Ok(None),
        compiled => compiled.map_err(|error| error.to_string())?,
    };
    compiled.program.to_bytes().map(Some).map_err(|error| error.to_string())
}

/// Runs a file with the delegates of the facade.
fn run_module(file: &[u8], inputs: &[Datum]) -> Result<Vec<Datum>, rushlight::Error> {
    let mut module = Module::builder().lower("off").threads(1).load_bytes(file)?;
    let mut given = Vec::new();
    for input in inputs {
        if let Datum::Tensor(tensor) = input {
            given.push(Input::from(TensorView::new(tensor.dtype, &tensor.sizes, &tensor.bytes)?));
        }
    }
    let mut outputs = Vec::new();
    for value in module.run(METHOD, &given)? {
        let tensor = value.as_tensor()?;
        let (dtype, sizes, bytes) = (tensor.dtype(), tensor.shape().to_vec(), tensor.bytes().to_vec());
        outputs.push(Datum::Tensor(interpret::TensorData { dtype, sizes, bytes }));
    }
    Ok(outputs)
}

/// Compares the outputs of a case's model with PyTorch's results.
fn compare_all(case: &Case, outputs: &[Datum]) -> Result<(), String> {
    let results: Vec<&TensorData> = case.expect.iter().filter_map(as_tensor).collect();
    // A training batch norm returns the statistics that it writes to inputs first.
    let written = if case.op.contains("batch_norm") { outputs.len().saturating_sub(results.len()) } else { 0 };
    let outputs = outputs.get(written..).unwrap_or_default();
    if outputs.len() != results.len() {
        return Err(format!("{} results for {}", outputs.len(), results.len()));
    }
    for (index, (got, expected)) in outputs.iter().zip(results).enumerate() {
        if case.unspecified.contains(&index) {
            continue;
        }
        compare(got, expected).map_err(|what| format!("result {index}: {what}"))?;
    }
    Ok(())
}

const METHOD: &str = "forward";

/// Errors of unsupported calls, by operator.
const UNSUPPORTED: &[(&str, &str)] = &[(aten::ONE_HOT, "`one_hot` without a number of classes")];

/// True if the error is an expected one of the operator.
fn is_unsupported(op: &str, error: &rushlight_graph::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
        && UNSUPPORTED.iter().any(|(name, message)| *name == op && error.message().starts_with(message))
}

/// True if an error states that a size must be known.
fn needs_known_sizes(error: &rushlight_graph::Error) -> bool {
    let text = error.to_string();
    ["depend", "known size", "is only known", "no fixed size", "static"].iter().any(|part| text.contains(part))
}

/// True if an error states that a number must be known.
fn needs_known_numbers(error: &rushlight_graph::Error) -> bool {
    error.to_string().contains("known when the program is compiled")
}

const fn as_tensor(arg: &cases::Arg) -> Option<&TensorData> {
    match arg {
        cases::Arg::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

/// Makes a method that makes the case's call on its tensors.
fn model(case: &Case, sizes: Sizes, inputs: &mut Vec<Datum>) -> Result<Model, String> {
    let mut model = Model::default();
    let schema = model.schemas.expect(&case.op).map_err(|error| error.to_string())?;
    let mut graph = Graph::new();
    let mut args = Vec::new();
    for (arg, param) in case.args.iter().zip(&schema.params) {
        args.push(argument(&mut graph, arg, param, sizes, inputs));
    }
    let expected = case.expect.iter().filter_map(as_tensor).map(|tensor| Type::Tensor(static_type(tensor)));
    let expected: Vec<Type> = expected.collect();
    let inferred = ops::infer(&Operands::new(&schema, &args), &graph);
    let types = match inferred {
        Ok(types) => {
            check_types(&types, &expected, &graph, &case.unspecified)?;
            types
        }
        // If sizes depend on data, the types are those of the exported program.
        Err(_) => expected,
    };
    let origin = graph.origins.push(Origin { node: case.name.clone(), ..Origin::default() });
    let results = types.into_iter().enumerate().map(|(index, ty)| (format!("result_{index}"), ty));
    let node = graph.push_node(graph.body, Op::Call(schema), args, origin, results);
    graph.outputs = graph.nodes[node].results.iter().map(|value| Arg::Value(*value)).collect();
    model.methods.insert(METHOD.into(), graph);
    Ok(model)
}

fn static_type(tensor: &TensorData) -> TensorType {
    let sizes: Vec<i64> = tensor.sizes.iter().map(|size| *size as i64).collect();
    TensorType::of(tensor.dtype, &sizes)
}

/// Fails if the inferred types differ from PyTorch's, as far as sizes are known.
fn check_types(types: &[Type], expected: &[Type], graph: &Graph, unspecified: &[usize]) -> Result<(), String> {
    let text =
        |types: &[Type]| types.iter().map(|ty| ty.display(&graph.symbols).to_string()).collect::<Vec<_>>().join(", ");
    let fits = |(index, (ty, expected)): (usize, (&Type, &Type))| match (ty, expected) {
        _ if unspecified.contains(&index) => true,
        (Type::Tensor(ty), Type::Tensor(expected)) => {
            let same = |(size, expected): (&Expr, &Expr)| {
                let value = size.evaluate(&|symbol| value_of(&graph.symbols[symbol]));
                value.is_none_or(|value| Some(value) == expected.as_int())
            };
            ty.dtype == expected.dtype && ty.rank() == expected.rank() && ty.shape.iter().zip(&expected.shape).all(same)
        }
        _ => false,
    };
    if types.len() == expected.len() && types.iter().zip(expected).enumerate().all(fits) {
        Ok(())
    } else {
        Err(format!("inferred {}, expected {}", text(types), text(expected)))
    }
}

fn argument(graph: &mut Graph, arg: &cases::Arg, param: &Param, sizes: Sizes, inputs: &mut Vec<Datum>) -> Arg {
    let kind = match &param.kind {
        Kind::Optional(inner) => inner,
        kind => kind,
    };
    match (arg, kind) {
        (cases::Arg::Int(code), Kind::DType) => {
            let dtype = ScalarType::ALL.into_iter().find(|dtype| i64::from(dtype.code()) == *code);
            dtype.map_or(Arg::None, Arg::DType)
        }
        (cases::Arg::Int(_), Kind::Layout) => Arg::Layout(Layout::Strided),
        (cases::Arg::Int(_), Kind::MemoryFormat) => Arg::MemoryFormat(MemoryFormat::Contiguous),
        (cases::Arg::Int(value), _) => Arg::from(*value),
        (cases::Arg::Double(value), Kind::Scalar | Kind::Float) if sizes == Sizes::StaticWithNumbers => {
            number(graph, *value, inputs)
        }
        (cases::Arg::Double(value), _) => Arg::Float(*value),
        (cases::Arg::Bool(value), _) => Arg::Bool(*value),
        (cases::Arg::Str(text), Kind::Device) => Arg::Device(text.clone()),
        (cases::Arg::Str(text), _) => Arg::Str(text.clone()),
        (cases::Arg::IntList(values), _) => Arg::from(values.as_slice()),
        (cases::Arg::DoubleList(values), _) => Arg::List(values.iter().map(|value| Arg::Float(*value)).collect()),
        (cases::Arg::BoolList(values), _) => Arg::List(values.iter().map(|value| Arg::Bool(*value)).collect()),
        (cases::Arg::Tensor(tensor), _) => input(graph, tensor, sizes, inputs),
        (cases::Arg::TensorList(tensors), _) => {
            Arg::List(tensors.iter().map(|tensor| input(graph, tensor, sizes, inputs)).collect())
        }
        (cases::Arg::OptionalTensorList(tensors), _) => {
            let item = |tensor: &Option<TensorData>| {
                tensor.as_ref().map_or(Arg::None, |tensor| input(graph, tensor, sizes, inputs))
            };
            Arg::List(tensors.iter().map(item).collect())
        }
        _ => Arg::None,
    }
}

/// Adds an input for a number, and the node that reads it.
fn number(graph: &mut Graph, value: f64, inputs: &mut Vec<Datum>) -> Arg {
    let ty = TensorType::of(ScalarType::Double, &[]);
    let bytes = value.to_le_bytes().to_vec();
    inputs.push(Datum::Tensor(interpret::TensorData { dtype: ScalarType::Double, sizes: Vec::new(), bytes }));
    let tensor = graph.input(&format!("number_{}", inputs.len()), Type::Tensor(ty));
    let schema = rushlight_graph::Schemas::new().expect(aten::_LOCAL_SCALAR_DENSE);
    let Ok(schema) = schema else { return Arg::Float(value) };
    let origin = graph.origins.push(Origin::default());
    let result = [("number".to_owned(), Type::Float)];
    let node = graph.push_node(graph.body, Op::Call(schema), vec![tensor.into()], origin, result);
    graph.nodes[node].result().into()
}

/// The size that a symbol stands for in the case.
fn value_of(symbol: &Symbol) -> Option<i64> {
    symbol.name.strip_prefix('s')?.parse().ok()
}

fn input(graph: &mut Graph, tensor: &TensorData, sizes: Sizes, inputs: &mut Vec<Datum>) -> Arg {
    let mut ty = static_type(tensor);
    if let Some(least) = sizes.least() {
        for size in &mut ty.shape {
            // A size of 1 broadcasts.
            let value = size.as_int().filter(|value| *value >= least && *value != 1);
            if let Some(value) = value {
                let name = format!("s{value}");
                let known = graph.symbols.iter().find(|(_, symbol)| symbol.name == name).map(|(id, _)| id);
                let fresh = || Symbol { name: name.clone(), min: least, max: Some(if value == 0 { 4 } else { value }) };
                *size = known.unwrap_or_else(|| graph.symbols.push(fresh())).into();
            }
        }
    }
    let data = interpret::TensorData { dtype: tensor.dtype, sizes: tensor.sizes.clone(), bytes: tensor.bytes.clone() };
    inputs.push(Datum::Tensor(data));
    Arg::Value(graph.input(&format!("input_{}", inputs.len()), Type::Tensor(ty)))
}

/// Compares results: integers must be equal, and numbers close relative to the largest.
fn compare(got: &Datum, expected: &TensorData) -> Result<(), String> {
    let Datum::Tensor(got) = got else { return Err(format!("{got:?}")) };
    if got.dtype != expected.dtype || got.sizes != expected.sizes {
        return Err(format!("{:?} {:?}, expected {:?} {:?}", got.dtype, got.sizes, expected.dtype, expected.sizes));
    }
    let dim_order = (0..got.sizes.len() as u8).collect();
    let got = TensorData { dtype: got.dtype, sizes: got.sizes.clone(), dim_order, bytes: got.bytes.clone() };
    let relative = match expected.dtype {
        ScalarType::Half => 4e-3,
        ScalarType::BFloat16 => 3e-2,
        ScalarType::Double | ScalarType::ComplexDouble => 1e-7,
        _ => 2e-5,
    };
    let tolerance = if expected.dtype.is_floating() || expected.dtype.is_complex() {
        let steps = relative / epsilon(expected.dtype);
        Tolerance::Close { rel: steps, abs: steps * compare::largest(expected) }
    } else {
        Tolerance::Exact
    };
    compare::values(&got, expected, Limit { tolerance, epsilon: epsilon(expected.dtype), magnitude: 0.0 })
}
