//! The time of an execution, by operator and by instruction. Each instruction names its node and its line of Python.

use std::time::Duration;

use rushlight::Module;
use rushlight_compiler::debug_map;
use rushlight_compiler::emit::{InstructionOrigin, MethodMap};
use serde_json::{Value as Json, json};

use crate::profile::{Profiler, Timing};

/// The times that a [`Profiler`] recorded for a method, per execution.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    /// The average time of a whole execution.
    pub execution: Duration,
    /// The times by operator, the most expensive first.
    pub operators: Vec<Part>,
    /// The times by instruction, in the method's order. An instruction that a loop repeats has one entry.
    pub instructions: Vec<InstructionTime>,
}

/// The time of some instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The operator, the delegate's backend, or the name of the instruction.
    pub name: String,
    /// Number of runs per execution, rounded down.
    pub calls: usize,
    /// The time per execution.
    pub time: Duration,
    /// Fraction of the time of all instructions, from 0 to 1.
    pub share: f64,
}

/// The time of an instruction, and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct InstructionTime {
    /// Index of the instruction in the method.
    pub instruction: usize,
    pub part: Part,
    /// The origin in the program's debug map, if the program has one.
    pub origin: Option<InstructionOrigin>,
}

/// Returns the origins of the instructions that run for a method: from its lowering, or else from the debug map of the
/// program. `None` if the program was compiled without a map, or by another compiler.
pub fn map_of(module: &Module, method: &str) -> Option<MethodMap> {
    if let Some(map) = module.lowered_map(method) {
        return Some(map.clone());
    }
    debug_map::of_program(&module.program().parsed()).into_iter().find(|map| map.method == method)
}

impl Breakdown {
    /// Combines the recorded times with the debug map of the same method.
    pub fn of(profiler: &Profiler, map: Option<&MethodMap>) -> Self {
        let executions = u32::try_from(profiler.executions().len()).unwrap_or(u32::MAX).max(1);
        let total: f64 = profiler.instructions().map(|timing| timing.total.as_secs_f64()).sum();
        let part = |timing: &Timing| Part {
            name: timing.name.clone(),
            calls: timing.calls / executions as usize,
            time: timing.total / executions,
            share: if total > 0.0 { timing.total.as_secs_f64() / total } else { 0.0 },
        };
        let origin = |instruction: usize| map?.instructions.get(instruction)?.clone();
        let instruction = |timing: &Timing| InstructionTime {
            instruction: timing.instruction,
            part: part(timing),
            origin: origin(timing.instruction),
        };
        Self {
            execution: profiler.executions().iter().sum::<Duration>() / executions,
            operators: profiler.by_name().iter().map(part).collect(),
            instructions: profiler.instructions().map(instruction).collect(),
        }
    }

    /// The slowest instructions, the slowest first.
    pub fn slowest(&self, count: usize) -> Vec<&InstructionTime> {
        let mut rows: Vec<_> = self.instructions.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.part.time));
        rows.truncate(count);
        rows
    }

    /// Times in nanoseconds; instructions in the method's order.
    pub fn json(&self) -> Json {
        let part = |part: &Part| {
            json!({
                "name": part.name,
                "calls": part.calls,
                "ns": nanoseconds(part.time),
                "share": part.share,
            })
        };
        let instruction = |row: &InstructionTime| {
            let mut json = part(&row.part);
            json["instruction"] = row.instruction.into();
            if let Some(origin) = &row.origin {
                json["operator"] = origin.op.as_str().into();
                json["node"] = origin.node.as_str().into();
                json["module"] = origin.module.as_str().into();
                json["source"] = origin.source.as_deref().into();
            }
            json
        };
        json!({
            "execution_ns": nanoseconds(self.execution),
            "operators": self.operators.iter().map(part).collect::<Vec<_>>(),
            "instructions": self.instructions.iter().map(instruction).collect::<Vec<_>>(),
        })
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `file:line` of an origin's source, without the function and the code after it.
pub fn place(origin: &InstructionOrigin) -> &str {
    let source = origin.source.as_deref().unwrap_or_default();
    source.split_once(" in ").map_or(source, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use rushlight::runtime::{Event, EventTracer};
    use rushlight_graph::operators::aten;

    use super::*;

    #[test]
    fn instructions_carry_their_origin_and_operators_their_sum() {
        let mut profiler = Profiler::default();
        let execute = Event::Execute { method: "forward" };
        for _ in 0..2 {
            profiler.begin(execute);
            for (instruction, operator) in [aten::EXP_OUT, aten::NEG_OUT, aten::EXP_OUT].into_iter().enumerate() {
                let event = Event::Operator { instruction, operator };
                profiler.begin(event);
                profiler.end(event);
            }
            profiler.end(execute);
        }
        let origin = InstructionOrigin {
            op: aten::EXP.into(),
            node: "exp_1".into(),
            module: "block.act".into(),
            source: Some("model.py:7 in forward: return x.exp()".into()),
            results: vec!["exp_1".into()],
            nodes: Vec::new(),
        };
        let map = MethodMap { method: "forward".into(), instructions: vec![None, None, Some(origin.clone())] };
        let breakdown = Breakdown::of(&profiler, Some(&map));
        let calls: Vec<_> = breakdown.instructions.iter().map(|row| (row.instruction, row.part.calls)).collect();
        assert_eq!(calls, [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(breakdown.instructions[2].origin.as_ref(), Some(&origin));
        assert!(breakdown.instructions[0].origin.is_none());
        let mut operators: Vec<_> = breakdown.operators.iter().map(|part| (part.name.as_str(), part.calls)).collect();
        operators.sort_unstable();
        assert_eq!(operators, [(aten::EXP_OUT, 2), (aten::NEG_OUT, 1)]);
        assert_eq!(breakdown.slowest(1).len(), 1);
        assert_eq!(place(&origin), "model.py:7");
        let json = breakdown.json();
        assert_eq!(json["instructions"][2]["module"], "block.act");
        assert_eq!(json["instructions"][0]["node"], Json::Null);
    }
}
