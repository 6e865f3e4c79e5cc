//! A timeline of executions that Perfetto and Chrome's `about:tracing` show.

use std::time::{Duration, Instant};

use rushlight::{StepRun, StepTime};
use rushlight_engine::hwbench::per_second;
use serde_json::{Value as Json, json};

use crate::profile::Span;

/// The timeline in Chrome's JSON format: executions, their instructions, and the steps of what was compiled for the CPU
/// back end, in microseconds from the first.
pub fn chrome(spans: &[Span], times: &[Vec<StepTime>], runs: &[StepRun]) -> Json {
    let starts = spans.iter().map(|span| span.start).chain(runs.iter().map(|run| run.start));
    let Some(origin) = starts.min() else { return json!({ "traceEvents": [] }) };
    let event = |name: &str, category: &str, start: Instant, time: Duration, args: Json| {
        let micros = |duration: Duration| duration.as_nanos() as f64 / 1e3;
        json!({
            "name": name,
            "cat": category,
            "ph": "X",
            "ts": micros(start - origin),
            "dur": micros(time),
            "pid": 1,
            "tid": 1,
            "args": args,
        })
    };
    let instructions = spans.iter().map(|span| {
        let (category, args) = match span.instruction {
            Some(instruction) => ("instruction", json!({ "instruction": instruction })),
            None => ("execution", json!({})),
        };
        event(&span.name, category, span.start, span.time, args)
    });
    let steps = runs.iter().filter_map(|run| {
        let step = times.get(run.program)?.get(run.step)?;
        let args = json!({
            "kind": step.kind,
            "step": run.step,
            "gflops": per_second(step.cost.flops, run.time) / 1e9,
            "gbytes_per_s": per_second(step.cost.bytes, run.time) / 1e9,
        });
        Some(event(&step.name, "step", run.start, run.time, args))
    });
    let events: Vec<Json> = instructions.chain(steps).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ns" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_lie_where_they_happened() {
        let start = Instant::now();
        let span = Span { name: "forward".into(), instruction: None, start, time: Duration::from_micros(9) };
        let step = StepTime { name: "linear".into(), kind: "matmul", ..StepTime::default() };
        let time = Duration::from_micros(2);
        let run = StepRun { program: 0, step: 0, start: start + Duration::from_micros(3), time };
        let trace = chrome(&[span], &[vec![step]], &[run]);
        let events = trace["traceEvents"].as_array().expect("events");
        assert_eq!(events.len(), 2);
        assert_eq!((&events[0]["ts"], &events[0]["dur"]), (&json!(0.0), &json!(9.0)));
        assert_eq!((&events[1]["name"], &events[1]["ts"]), (&json!("linear"), &json!(3.0)));
        assert_eq!(chrome(&[], &[], &[])["traceEvents"], json!([]));
    }
}
