//! What handlers share: options, the tokenizer, and the way to the model.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use rushlight_llm::{ChatTemplate, Generation, Limits, Tokenizer};
use tokio::sync::mpsc;

use crate::error::Refusal;
use crate::job::{Event, Job};
use crate::metrics::Metrics;

/// How a server listens, and what it allows.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens: this machine alone by default. Port 0 is one that is free.
    pub address: SocketAddr,
    /// What clients call the model.
    pub model_name: String,
    /// Keys of which a client must have one, if there are some.
    pub api_keys: Vec<String>,
    /// Maximum number of answers at a time, each with a KV cache.
    pub max_sessions: usize,
    /// Maximum number of requests that wait; more are told to come again.
    pub max_queue: usize,
    /// Maximum bytes of a request.
    pub max_body: usize,
    /// Maximum time of a request, with that in the queue.
    pub timeout: Duration,
    /// How long answers may go on when the server is told to stop.
    pub shutdown_timeout: Duration,
    /// What requests leave open; a model's authors recommend a temperature, for example.
    pub generation: Generation,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            model_name: "model".to_owned(),
            api_keys: Vec::new(),
            max_sessions: 4,
            max_queue: 64,
            max_body: 4 << 20,
            timeout: Duration::from_mins(10),
            shutdown_timeout: Duration::from_secs(10),
            generation: Generation::default(),
        }
    }
}

/// What handlers share.
pub(crate) struct Service {
    pub tokenizer: Arc<Tokenizer>,
    /// `None` if the tokenizer has none.
    pub template: Option<ChatTemplate>,
    pub limits: Limits,
    pub options: Options,
    pub metrics: Arc<Metrics>,
    /// When the server began, in seconds since 1970.
    pub created: u64,
    pub jobs: mpsc::Sender<Job>,
}

/// Number of steps that wait for a client; the model goes on with other answers meanwhile.
const EVENTS: usize = 32;

impl Service {
    /// Hands a job to the model. `job` makes it of its deadline and the channel of its events.
    pub fn submit(
        &self,
        job: impl FnOnce(Instant, mpsc::Sender<Event>) -> Job,
    ) -> Result<mpsc::Receiver<Event>, Refusal> {
        let (sender, events) = mpsc::channel(EVENTS);
        let job = job(Instant::now() + self.options.timeout, sender);
        let capacity = self.limits.max_context_len;
        if job.prompt.len() > capacity {
            let tokens = job.prompt.len();
            return Err(Refusal::invalid(format!("the prompt has {tokens} tokens, and the context {capacity}")));
        }
        let most = self.options.max_sessions;
        if !(1..=most).contains(&job.choices) {
            return Err(Refusal::of("n", format!("expected 1 to {most} answers, got {}", job.choices)));
        }
        self.metrics.queued.fetch_add(1, Ordering::Relaxed);
        self.jobs.try_send(job).map_err(|error| {
            self.metrics.queued.fetch_sub(1, Ordering::Relaxed);
            match error {
                mpsc::error::TrySendError::Full(_) => {
                    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "as many requests wait as the server allows")
                }
                mpsc::error::TrySendError::Closed(_) => {
                    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is about to stop")
                }
            }
        })?;
        Ok(events)
    }
}
