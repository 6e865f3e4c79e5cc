//! `rushlight llm bench`.

use std::time::{Duration, Instant};

use clap::Args;
use rushlight_llm::{Model, Session};
use serde_json::json;

use super::generation::Lora;
use super::source::{Running, Source};
use crate::arguments::count;
use crate::failure::Failure;
use crate::output;

/// Times prefill and decode.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight llm bench llama.pte
  rushlight llm bench llama.pte --prompt 128,512 --at 0,2048 --threads 4 --json
  rushlight llm bench llama.pte --at 128 --sessions 1,4,8

`prefill N` is a prompt of N tokens; `decode at P` are tokens one by one after P others. `x S` are S sessions, each of which gets
a token in every call; their rate is that of all together. The rates are medians. Tokens are made up.")]
pub struct Bench {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    lora: Lora,

    /// Lengths of prompts, which must fit in the context
    #[arg(short = 'p', long, value_name = "TOKENS,...", value_delimiter = ',', default_value = "128,512", value_parser = count)]
    prompt: Vec<usize>,

    /// Positions at which to decode
    #[arg(long, value_name = "POSITION,...", value_delimiter = ',', default_value = "128,512")]
    at: Vec<usize>,

    /// Numbers of sessions that decode at the same time
    #[arg(long, value_name = "SESSIONS,...", value_delimiter = ',', default_value = "1", value_parser = count)]
    sessions: Vec<usize>,

    /// Tokens to decode at each position
    #[arg(long, short = 'n', value_name = "TOKENS", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,

    /// Number of runs of each measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One measurement.
struct Measured {
    what: &'static str,
    /// Length of the prompt, or the position.
    at: usize,
    sessions: usize,
    /// Tokens of all sessions together.
    tokens: usize,
    median: Duration,
}

impl Bench {
    pub fn run(self) -> Result<(), Failure> {
        self.source.check_generates()?;
        let mut model = self.lora.load(&self.source, &self.running)?;
        let mut session = model.session()?;
        let mut measured = Vec::new();
        let new = self.tokens as usize;
        // The first call also pays for the first touch of memory.
        prefill(&mut model, &mut session, 1)?;
        let capacity = model.limits().max_context_len;
        let fits = |what: &str, at: usize, tokens: usize| {
            if tokens > capacity {
                output::warn(&format!("{what} {at} is left out: it takes {tokens} of {capacity} positions"));
            }
            tokens <= capacity
        };
        for &len in self.prompt.iter().filter(|len| fits("prefill", **len, **len)) {
            let time = || prefill(&mut model, &mut session, len);
            let median = self.median(time)?;
            measured.push(Measured { what: "prefill", at: len, sessions: 1, tokens: len, median });
        }
        for &at in self.at.iter().filter(|at| fits("decode at", **at, at.saturating_add(new))) {
            for &count in &self.sessions {
                let time = || {
                    prefill(&mut model, &mut session, at)?;
                    let more = (1..count).map(|_| session.fork()).collect::<Result<Vec<_>, _>>();
                    decode(&mut model, &mut session, more?, new)
                };
                let median = self.median(time)?;
                measured.push(Measured { what: "decode", at, sessions: count, tokens: new * count, median });
            }
        }
        if measured.is_empty() {
            return Err(Failure::Arguments(
                "nothing fits into the context\n  help      shorter `--prompt` and `--at`".to_owned(),
            ));
        }
        self.print(&measured);
        Ok(())
    }

    fn median(&self, mut time: impl FnMut() -> Result<Duration, Failure>) -> Result<Duration, Failure> {
        let mut times = (0..self.repeat).map(|_| time()).collect::<Result<Vec<_>, _>>()?;
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    fn print(&self, measured: &[Measured]) {
        let rate = |row: &Measured| row.tokens as f64 / row.median.as_secs_f64();
        if self.json {
            let row = |row: &Measured| {
                json!({
                    "test": row.what,
                    "at": row.at,
                    "sessions": row.sessions,
                    "tokens": row.tokens,
                    "seconds": row.median.as_secs_f64(),
                    "tokens_per_second": rate(row),
                })
            };
            output::print_json(&measured.iter().map(row).collect());
            return;
        }
        let rows = measured.iter().map(|row| {
            let mut name =
                if row.what == "prefill" { format!("prefill {}", row.at) } else { format!("decode at {}", row.at) };
            if row.sessions > 1 {
                name.push_str(&format!(" x {}", row.sessions));
            }
            let each = row.median.as_secs_f64() * 1e3 / row.tokens as f64;
            vec![name, format!("{:.1}", rate(row)), format!("{each:.3}")]
        });
        output::print(&output::table(&["", "tokens/s ", "ms/token "], rows));
    }
}

/// Starts again with a prompt of this length. Returns the duration.
fn prefill(model: &mut Model, session: &mut Session, len: usize) -> Result<Duration, Failure> {
    session.reset(model)?;
    let tokens = tokens_of(model, len);
    let start = Instant::now();
    if len > 0 {
        session.prefill(model, &tokens)?;
    }
    Ok(start.elapsed())
}

/// Adds `count` tokens to each session, one to all of them at a time. Returns the duration.
fn decode(model: &mut Model, first: &mut Session, mut more: Vec<Session>, count: usize) -> Result<Duration, Failure> {
    let tokens = tokens_of(model, count);
    let start = Instant::now();
    for token in tokens {
        let mut batch: Vec<_> = std::iter::once(&mut *first).chain(&mut more).map(|session| (session, token)).collect();
        Session::prefill_batch(model, &mut batch)?;
    }
    Ok(start.elapsed())
}

/// Returns tokens from the whole vocabulary.
fn tokens_of(model: &Model, count: usize) -> Vec<u32> {
    const STEP: usize = 7919;
    let vocab_size = model.limits().vocab_size;
    (1..=count).map(|index| (index * STEP % vocab_size) as u32).collect()
}
