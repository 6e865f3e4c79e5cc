//! Emitted programs and their memory plans as text.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use rushlight_compiler::emit::{EmitOptions, Emitted, MethodMap, emit};
use rushlight_compiler::memory::{Recovered, check, lower_bound, recover};
use rushlight_format::Program;
use rushlight_format::pte::{
    InstructionModel, OperatorModel, PlanModel, ShapeDynamism, StorageModel, TensorModel, ValueModel,
};
use rushlight_graph::types::dtype_name;
use rushlight_graph::{Error, ErrorKind, Graph, Input, Model};

/// The tensors, inputs, instructions and outputs of each method of the program that a model becomes.
pub fn program(model: &Model, options: &EmitOptions) -> Result<String, Error> {
    let Emitted { program, debug, .. } = emit(model, options)?;
    let methods = program.methods.iter().zip(&debug).map(|(plan, map)| Listing::new(plan, map).print());
    Ok(methods.collect::<Vec<_>>().join("\n"))
}

/// The buffers of each method of the program that a model becomes, by offset, and for how many instructions they live.
pub fn memory_plan(model: &Model, options: &EmitOptions) -> Result<String, Error> {
    let Emitted { program, debug, .. } = emit(model, options)?;
    let file = program.to_bytes().unwrap();
    let parsed = Program::parse(&file).unwrap();
    let mut text = String::new();
    for ((method, plan), map) in parsed.methods().zip(&program.methods).zip(&debug) {
        let Recovered { buffers, values, plan: memory } = recover(&method);
        check(&buffers, &memory)
            .map_err(|conflict| Error::new(ErrorKind::Verification, format!("buffers share memory: {conflict}")))?;
        let bound = lower_bound(&buffers);
        let names = names(plan, map, model.methods.get(&plan.name));
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "method {:?}", plan.name);
        for (arena, bytes) in &memory.arenas {
            let bound = bound.get(arena).copied().unwrap_or(0);
            let _ = writeln!(text, "  arena {arena}: {bytes} bytes, lower bound {bound}");
            let mut members: Vec<_> =
                buffers.iter().zip(&memory.offsets).zip(&values).filter(|((b, _), _)| b.memory_id == *arena).collect();
            members.sort_by_key(|((buffer, offset), value)| (**offset, buffer.first, **value));
            for ((buffer, offset), value) in members {
                let name = names.get(value).cloned().unwrap_or_else(|| format!("v{value}"));
                let (bytes, first, last) = (buffer.bytes, buffer.first, buffer.last);
                let line = format!("    offset {offset:>4}  bytes {bytes:>4}  in use {first}..={last}  {name}");
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
    Ok(text)
}

/// Names of values: those of states, and in the graph of inputs, outputs and the results of calls.
fn names(plan: &PlanModel<'_>, map: &MethodMap, graph: Option<&Graph>) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for (index, value) in plan.values.iter().enumerate() {
        if let ValueModel::Tensor(TensorModel { fully_qualified_name: Some(name), .. }) = value {
            names.insert(index as u32, format!("${name}"));
        }
    }
    let mut add = |value: u32, name: &str| {
        names.entry(value).or_insert_with(|| format!("%{name}"));
    };
    for (instruction, origin) in plan.instructions.iter().zip(&map.instructions) {
        let (InstructionModel::Kernel { args, .. } | InstructionModel::Delegate { args, .. }, Some(origin)) =
            (instruction, origin)
        else {
            continue;
        };
        // Several instructions of control flow have one node, whose results are not theirs.
        if !origin.op.contains("::") && matches!(instruction, InstructionModel::Kernel { .. }) {
            continue;
        }
        let results = match args.last().and_then(|last| plan.values.get(*last as usize)) {
            Some(ValueModel::TensorList(results)) => results,
            _ => args,
        };
        let from = results.len().saturating_sub(origin.results.len());
        results[from..].iter().zip(&origin.results).for_each(|(value, name)| add(*value, name));
    }
    if let Some(graph) = graph {
        for (value, input) in plan.inputs.iter().zip(&graph.inputs) {
            if let Input::Value(id) = input {
                add(*value, &graph.values[*id].name);
            }
        }
        for (value, output) in plan.outputs.iter().zip(&graph.outputs) {
            if let Some(id) = output.as_value() {
                add(*value, &graph.values[id].name);
            }
        }
    }
    names
}

/// A method of a program.
struct Listing<'p> {
    plan: &'p PlanModel<'static>,
    map: &'p MethodMap,
    /// Numbers that instructions write, which stand by name.
    written: HashSet<u32>,
}

impl<'p> Listing<'p> {
    fn new(plan: &'p PlanModel<'static>, map: &'p MethodMap) -> Self {
        let written = plan.instructions.iter().filter_map(|instruction| match instruction {
            InstructionModel::Kernel { args, .. } => args.last().copied(),
            InstructionModel::Move { to, .. } => Some(*to),
            _ => None,
        });
        let written = written.chain(plan.inputs.iter().copied()).collect();
        Self { plan, map, written }
    }

    fn print(&self) -> String {
        let mut text = format!("method {:?}\n", self.plan.name);
        for (arena, bytes) in self.plan.buffer_sizes.iter().enumerate().skip(1) {
            let _ = writeln!(text, "  arena {arena}: {bytes} bytes");
        }
        for (index, value) in self.plan.values.iter().enumerate() {
            let index = index as u32;
            let kind = match value {
                ValueModel::Tensor(tensor) => tensor_text(tensor),
                ValueModel::Int(_) if self.written.contains(&index) => "int".into(),
                ValueModel::Double(_) if self.written.contains(&index) => "double".into(),
                ValueModel::Bool(_) if self.written.contains(&index) => "bool".into(),
                _ => continue,
            };
            let _ = writeln!(text, "  v{index} : {kind}");
        }
        self.values("inputs", &self.plan.inputs, &mut text);
        for (index, instruction) in self.plan.instructions.iter().enumerate() {
            let call = match instruction {
                InstructionModel::Kernel { operator, args } => {
                    let OperatorModel { name, overload } = &self.plan.operators[*operator as usize];
                    let dot = if overload.is_empty() { "" } else { "." };
                    format!("{name}{dot}{overload}({})", self.args(args))
                }
                InstructionModel::Delegate { delegate, args } => {
                    format!("delegate {:?}({})", self.plan.delegates[*delegate as usize].id, self.args(args))
                }
                InstructionModel::Move { from, to } => format!("move {} to {}", self.value(*from), self.value(*to)),
                InstructionModel::JumpFalse { cond, destination } => {
                    format!("jump to {destination} unless {}", self.value(*cond))
                }
                InstructionModel::Free { value } => format!("free {}", self.value(*value)),
            };
            let results = self.map.instructions.get(index).and_then(Option::as_ref).map(|origin| &origin.results);
            let results: Vec<String> = results.into_iter().flatten().map(|name| format!("%{name}")).collect();
            let comment = if results.is_empty() { String::new() } else { format!("  # {}", results.join(", ")) };
            let _ = writeln!(text, "  {index:>3}  {call}{comment}");
        }
        self.values("outputs", &self.plan.outputs, &mut text);
        text
    }

    fn values(&self, label: &str, values: &[u32], text: &mut String) {
        let _ = writeln!(text, "{}", format!("  {label} {}", self.args(values)).trim_end());
    }

    fn args(&self, args: &[u32]) -> String {
        args.iter().map(|arg| self.value(*arg)).collect::<Vec<_>>().join(", ")
    }

    /// A constant number or a list as it is, others by index.
    fn value(&self, index: u32) -> String {
        match &self.plan.values[index as usize] {
            ValueModel::None => "none".into(),
            _ if self.written.contains(&index) => format!("v{index}"),
            ValueModel::Int(value) => value.to_string(),
            ValueModel::Bool(value) => value.to_string(),
            ValueModel::Double(value) => format!("{value:?}"),
            ValueModel::String(text) => format!("{text:?}"),
            ValueModel::Tensor(_) => format!("v{index}"),
            ValueModel::IntList(items) | ValueModel::TensorList(items) => format!("[{}]", self.args(items)),
            ValueModel::DoubleList(items) => format!("{items:?}"),
            ValueModel::BoolList(items) => format!("{items:?}"),
            ValueModel::OptionalTensorList(items) => {
                let items = items.iter().map(|item| item.map_or("none".into(), |item| self.value(item)));
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn tensor_text(tensor: &TensorModel) -> String {
    let TensorModel { scalar_type, sizes, dim_order, shape_dynamism, storage, .. } = tensor;
    let upper = if *shape_dynamism == ShapeDynamism::Static { "" } else { " at most" };
    let row_major = dim_order.iter().enumerate().all(|(at, dim)| at == usize::from(*dim));
    let order = if row_major { String::new() } else { format!(" order {dim_order:?}") };
    let place = match storage {
        StorageModel::Constant { index } => format!("in constant {index}"),
        StorageModel::Planned { memory_id, offset } => format!("in arena {memory_id} at {offset}"),
        StorageModel::PlannedInit { memory_id, offset, index } => {
            format!("in arena {memory_id} at {offset}, initially data {index}")
        }
        StorageModel::Unplanned => "not planned".into(),
        StorageModel::External => format!("external {:?}", tensor.fully_qualified_name.as_deref().unwrap_or_default()),
        StorageModel::ExternalPlanned { memory_id, offset } => format!("external, arena {memory_id} at {offset}"),
    };
    format!("{}{sizes:?}{order}{upper} {place}", dtype_name(*scalar_type))
}
