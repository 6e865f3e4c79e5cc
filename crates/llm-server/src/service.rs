//! The state that handlers share: options, the tokenizer, and the queue of the model.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use rushlight_llm::{
    Adapter, ChatTemplate, Constraint, GenerationOptions, Grammar, GrammarCompiler, Limits, Pooling, Tokenizer,
};
use tokio::sync::{mpsc, oneshot};

use crate::embedder::EmbeddingJob;
use crate::error::{Refusal, shown};
use crate::job::{Event, Job};
use crate::metrics::{Metrics, add};
use crate::origin::Origin;
use crate::preparing::Preparing;
use crate::queue::{Full, Gone, Sender, Waits};

/// Options of a server: its address, and its limits.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on; by default one that only the same machine reaches. Port 0 selects a free port.
    pub address: SocketAddr,
    /// The model's name in requests and responses.
    pub model_name: String,
    /// LoRA adapters, and what clients call the model with each.
    pub adapters: Vec<(String, Adapter)>,
    /// Keys of which a client must have one, if there are some.
    pub api_keys: Vec<String>,
    /// Maximum number of answers at a time, each with a KV cache.
    pub max_sessions: usize,
    /// Maximum number of requests that wait; more are told to come again.
    pub max_queue: usize,
    /// Maximum bytes of a request.
    pub max_body: usize,
    /// Maximum number of connections at a time; more wait.
    pub max_connections: usize,
    /// Maximum time for each of these: sending the head of a request, sending its body, an answer of which the client reads nothing,
    /// and an unused connection.
    pub client_timeout: Duration,
    /// Maximum time of a request, with that in the queue.
    pub timeout: Duration,
    /// Time that answers may continue after a request to terminate; one second after an interrupt.
    pub shutdown_timeout: Duration,
    /// Origins of pages of other sites that may send requests.
    pub cors_origins: Vec<Origin>,
    /// Names of this server in the `Host` of requests beside `localhost` and addresses, where there are no keys.
    pub allowed_hosts: Vec<String>,
    /// Gets each request when the head of its response is ready.
    pub on_request: Option<fn(&Handled)>,
    /// Pools the hidden states of a text into its embedding.
    pub pooling: Pooling,
    /// Defaults of requests, such as the temperature that a model's authors recommend.
    pub generation: GenerationOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            model_name: "model".to_owned(),
            adapters: Vec::new(),
            api_keys: Vec::new(),
            max_sessions: 4,
            max_queue: 64,
            max_body: 4 << 20,
            max_connections: 1000,
            client_timeout: Duration::from_secs(30),
            timeout: Duration::from_mins(10),
            shutdown_timeout: Duration::from_secs(10),
            cors_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            on_request: None,
            pooling: Pooling::default(),
            generation: GenerationOptions::default(),
        }
    }
}

/// A request that was answered, or whose answer begins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Handled {
    pub method: String,
    /// The path, in at most 200 bytes.
    pub path: String,
    /// The status of the response.
    pub status: u16,
    /// Time from the head of the request to that of the response.
    pub time: Duration,
}

/// The shared state of handlers.
pub(crate) struct Service {
    pub tokenizer: Arc<Tokenizer>,
    /// `None` if the tokenizer has none.
    pub template: Option<ChatTemplate>,
    /// Made for the first grammar; `None` if there can be none for these tokens.
    pub grammars: OnceLock<Option<GrammarCompiler>>,
    /// Tokens that end repetitions, made for the first request that penalizes these.
    pub dry_breakers: OnceLock<BTreeSet<u32>>,
    pub limits: Limits,
    pub options: Options,
    pub metrics: Arc<Metrics>,
    /// Permits to receive requests, and to prepare them for the queue.
    pub preparing: Preparing,
    /// True if requests must name a model that is served: a name may be that of an adapter, which changes the answer.
    pub has_names: bool,
    /// When the server began, in seconds since 1970.
    pub created: u64,
    pub queue: Queue,
}

/// Requests that wait for the model.
pub(crate) enum Queue {
    Answers(Sender<Job>),
    /// `size` is the number of elements of an embedding.
    Embeddings {
        jobs: Sender<EmbeddingJob>,
        size: usize,
    },
}

/// Maximum number of steps that wait for a client. The model continues with other answers meanwhile.
const EVENTS: usize = 32;

impl Service {
    /// The tokens that end repetitions.
    pub fn dry_breakers(&self) -> rushlight_llm::Result<BTreeSet<u32>> {
        if let Some(known) = self.dry_breakers.get() {
            return Ok(known.clone());
        }
        let breakers = self.options.generation.dry_breakers(&self.tokenizer)?;
        Ok(self.dry_breakers.get_or_init(|| breakers).clone())
    }

    /// Compiles the form of an answer.
    pub fn constraint(&self, grammar: Option<&Grammar>) -> Result<Option<Constraint>, Refusal> {
        let Some(grammar) = grammar else { return Ok(None) };
        match self.grammars() {
            Some(grammars) => Ok(Some(grammars.compile(grammar)?)),
            None => Err(Refusal::invalid("the model's tokens are not such that the form of an answer can be given")),
        }
    }

    fn grammars(&self) -> Option<&GrammarCompiler> {
        self.grammars.get_or_init(|| GrammarCompiler::new(&self.tokenizer, &self.limits).ok()).as_ref()
    }

    /// The adapter that a request names as its model; `None` for the model itself. A server of a program that takes no adapters takes
    /// any name.
    pub fn adapter(&self, model: Option<&str>) -> Result<Option<Adapter>, Refusal> {
        let Options { adapters, model_name, .. } = &self.options;
        let Some(asked) = model.filter(|asked| *asked != model_name && self.has_names) else { return Ok(None) };
        match adapters.iter().find(|(name, _)| name == asked) {
            Some((_, adapter)) => Ok(Some(adapter.clone())),
            None => Err(self.no_model(asked)),
        }
    }

    /// The refusal of a model that is not served.
    pub fn no_model(&self, asked: &str) -> Refusal {
        let names = self.options.adapters.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = std::iter::once(self.options.model_name.as_str()).chain(names).collect();
        let message = format!("there is no model `{}`: expected `{}`", shown(asked), names.join("`, `"));
        Refusal { code: Some("model_not_found"), ..Refusal::new(StatusCode::NOT_FOUND, message) }
    }

    /// When a request that comes now has taken too long.
    pub fn deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.options.timeout).unwrap_or(now)
    }

    /// True if the thread of the model has ended.
    pub fn is_stopped(&self) -> bool {
        match &self.queue {
            Queue::Answers(jobs) => jobs.is_closed(),
            Queue::Embeddings { jobs, .. } => jobs.is_closed(),
        }
    }

    /// The queue of answers, if the model generates some.
    pub fn answers(&self) -> Result<&Sender<Job>, Refusal> {
        match &self.queue {
            Queue::Answers(jobs) => Ok(jobs),
            Queue::Embeddings { .. } => Err(rushlight_llm::Error::ReturnsHiddenStates.into()),
        }
    }

    /// Number of elements of an embedding, if the model has some.
    pub fn embedding_size(&self) -> Result<usize, Refusal> {
        match &self.queue {
            Queue::Answers(_) => Err(rushlight_llm::Error::ReturnsLogits.into()),
            Queue::Embeddings { size, .. } => Ok(*size),
        }
    }

    /// Embeds texts. `job` is given the channel of the embeddings. If the queue is full, fails, or waits for room.
    pub async fn embed(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<Vec<Vec<f32>>, Refusal>>) -> EmbeddingJob,
        waits: bool,
    ) -> Result<Vec<Vec<f32>>, Refusal> {
        let Queue::Embeddings { jobs, .. } = &self.queue else {
            return Err(rushlight_llm::Error::ReturnsLogits.into());
        };
        let (embeddings, received) = oneshot::channel();
        if waits {
            self.send_later(jobs, job(embeddings)).await?;
        } else {
            self.send(jobs, job(embeddings)).map_err(|(full, _)| Refusal::from(full))?;
        }
        received.await.map_err(|_| Refusal::stopped())?
    }

    /// Checks a job, and fails with the reason of its refusal.
    pub fn check(&self, prompt: &[u32], choices: usize) -> Result<(), Refusal> {
        self.check_prompt("prompt", prompt)?;
        let most = self.options.max_sessions;
        if !(1..=most).contains(&choices) {
            return Err(Refusal::of("n", format!("expected 1 to {most} answers, got {choices}")));
        }
        Ok(())
    }

    /// Checks that the model can read a prompt, which is in the field `param`.
    pub fn check_prompt(&self, param: &'static str, prompt: &[u32]) -> Result<(), Refusal> {
        let (count, capacity, vocabulary) = (prompt.len(), self.limits.max_context_len, self.limits.vocab_size);
        if count == 0 {
            return Err(Refusal::of(param, "expected at least one token"));
        }
        if count > capacity {
            return Err(Refusal::context_full(count, capacity));
        }
        if let Some(token) = prompt.iter().find(|token| **token as usize >= vocabulary) {
            return Err(Refusal::of(param, format!("expected tokens below {vocabulary}, got {token}")));
        }
        Ok(())
    }

    /// Puts a job into the queue. `job` is given the channel of its events.
    pub fn submit(&self, job: impl FnOnce(mpsc::Sender<Event>) -> Job) -> Result<mpsc::Receiver<Event>, Refusal> {
        let (sender, events) = mpsc::channel(EVENTS);
        self.send(self.answers()?, job(sender)).map_err(|(full, _)| Refusal::from(full))?;
        Ok(events)
    }

    /// As [`submit`](Self::submit), but waits for room in the queue.
    pub async fn submit_later(
        &self,
        job: impl FnOnce(mpsc::Sender<Event>) -> Job,
    ) -> Result<mpsc::Receiver<Event>, Refusal> {
        let (sender, events) = mpsc::channel(EVENTS);
        self.send_later(self.answers()?, job(sender)).await?;
        Ok(events)
    }

    /// Puts a job into a queue as soon as there is room.
    async fn send_later<J: Waits>(&self, jobs: &Sender<J>, mut job: J) -> Result<(), Refusal> {
        loop {
            let gone = jobs.gone();
            match self.send(jobs, job) {
                Ok(()) => return Ok(()),
                Err((Full::Full, waits)) => job = waits,
                Err((Full::Closed, _)) => return Err(Refusal::stopped()),
            }
            gone.await;
        }
    }

    fn send<J: Waits>(&self, jobs: &Sender<J>, job: J) -> Result<(), (Full, J)> {
        // Before, as the job may begin at once.
        self.metrics.queued.fetch_add(1, Ordering::Relaxed);
        let sent = jobs.send(job);
        let Gone { over, refused } = match &sent {
            Ok(gone) => *gone,
            Err(_) => Gone { over: 0, refused: 1 },
        };
        self.metrics.queued.fetch_sub((over + refused) as u64, Ordering::Relaxed);
        add(&self.metrics.cancelled, over);
        sent.map(drop)
    }
}
