//! A timeline of executions that Perfetto and Chrome's `about:tracing` show.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::profile::Profiler;
use crate::steps::per_second;

/// The timeline in Chrome's JSON format: executions, their instructions, and the steps of delegates that the host timed, in
/// microseconds from the first.
pub fn chrome(profiler: &Profiler) -> Json {
    let (spans, times, runs) = (profiler.spans(), profiler.steps().times(), profiler.steps().runs());
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
        let step = times.get(run.index)?;
        let args = json!({
            "kind": step.kind,
            "step": step.step,
            "backend": step.backend,
            "gflops": per_second(step.cost.flops, run.time) / 1e9,
            "gbytes_per_s": per_second(step.cost.bytes, run.time) / 1e9,
        });
        Some(event(&step.value, "step", run.start, run.time, args))
    });
    let events: Vec<Json> = instructions.chain(steps).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ns" })
}

#[cfg(test)]
mod tests {
    use rushlight::runtime::{DelegateEvent, Event, EventTracer};

    use super::*;

    #[test]
    fn events_lie_where_they_happened() {
        let mut profiler = Profiler::with_spans();
        let (execution, call) = (Event::Execute { method: "forward" }, Event::Delegate { instruction: 4, id: "Gpu" });
        let step = DelegateEvent { name: "matmul", step: Some(0), value: "linear", cost: None };
        profiler.begin(execution);
        profiler.begin(call);
        let steps = profiler.delegate_events().expect("a tracer of steps");
        steps.begin(step);
        steps.end(step);
        profiler.end(call);
        profiler.end(execution);
        let trace = chrome(&profiler);
        let events = trace["traceEvents"].as_array().expect("events");
        let names: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["Gpu", "forward", "linear"]);
        assert_eq!((&events[1]["ts"], &events[2]["args"]["backend"]), (&json!(0.0), &json!("Gpu")));
        let end = |event: &Json| event["ts"].as_f64().unwrap_or(0.0) + event["dur"].as_f64().unwrap_or(0.0);
        assert!(end(&events[2]) <= end(&events[0]) && end(&events[0]) <= end(&events[1]), "{trace:#}");
        assert_eq!(chrome(&Profiler::with_spans())["traceEvents"], json!([]));
    }
}
