//! Counts for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Metrics of the server: counters since its start, and gauges.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub requests: AtomicU64,
    pub refused: AtomicU64,
    /// Requests whose client went away, or that took too long.
    pub cancelled: AtomicU64,
    /// Times that an answer gave its session to another client.
    pub paused: AtomicU64,
    pub prompt_tokens: AtomicU64,
    pub cached_tokens: AtomicU64,
    pub generated_tokens: AtomicU64,
    pub prefill_nanoseconds: AtomicU64,
    pub decode_nanoseconds: AtomicU64,
    /// Gauge: jobs that wait for a session.
    pub queued: AtomicU64,
    /// Gauge: answers that are being generated.
    pub active: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

pub(crate) fn add_time(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl Metrics {
    /// The text format of Prometheus, version 0.0.4.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let seconds = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 / 1e9;
        for (name, kind, about, value) in [
            ("requests_total", "counter", "Requests that reached the model.", count(&self.requests)),
            ("requests_refused_total", "counter", "Requests that were answered with an error.", count(&self.refused)),
            (
                "requests_cancelled_total",
                "counter",
                "Requests whose client left or that timed out.",
                count(&self.cancelled),
            ),
            (
                "answers_paused_total",
                "counter",
                "Times that an answer gave its session to another client.",
                count(&self.paused),
            ),
            ("prompt_tokens_total", "counter", "Tokens of prompts.", count(&self.prompt_tokens)),
            ("prompt_tokens_cached_total", "counter", "Tokens of prompts that were known.", count(&self.cached_tokens)),
            ("generated_tokens_total", "counter", "Tokens of answers.", count(&self.generated_tokens)),
            (
                "prefill_seconds_total",
                "counter",
                "Time in which prompts were read.",
                seconds(&self.prefill_nanoseconds),
            ),
            ("decode_seconds_total", "counter", "Time in which answers were read.", seconds(&self.decode_nanoseconds)),
            ("requests_queued", "gauge", "Requests that wait for a session.", count(&self.queued)),
            ("answers_active", "gauge", "Answers that are being generated.", count(&self.active)),
        ] {
            let _ = writeln!(
                text,
                "# HELP rushlight_{name} {about}\n# TYPE rushlight_{name} {kind}\nrushlight_{name} {value}"
            );
        }
        text
    }
}
