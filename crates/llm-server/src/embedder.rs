//! The thread that owns a model of hidden states: it makes embeddings, one text after the other, of all clients in turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::http::StatusCode;
use rushlight_llm::{Model, Pool, Pooling, Session};
use tokio::sync::oneshot;

use crate::error::{Refusal, defect};
use crate::fair::{Held, Shares, Tenant};
use crate::metrics::{Metrics, add, add_time};
use crate::queue::{Receiver, Waits};

/// Maximum number of tokens in a call, after which the thread looks whether the client is still there.
const TURN: usize = 256;

/// Maximum number of requests that take turns, a text each; twice as many if each is the only one of its client.
const MAX_ACTIVE: usize = 16;

/// Texts to be embedded.
#[derive(Debug)]
pub(crate) struct EmbeddingJob {
    /// The client that the work is for.
    pub tenant: Tenant,
    pub prompts: Vec<Vec<u32>>,
    /// Number of elements of an embedding.
    pub dimensions: usize,
    /// When the request has taken too long.
    pub deadline: Instant,
    pub embeddings: oneshot::Sender<Result<Vec<Vec<f32>>, Refusal>>,
}

impl Waits for EmbeddingJob {
    fn tenant(&self) -> Tenant {
        self.tenant
    }

    fn is_over(&self, now: Instant) -> bool {
        self.embeddings.is_closed() || now >= self.deadline
    }

    fn refuse(self, refusal: Refusal) {
        let _ = self.embeddings.send(Err(refusal));
    }
}

/// Texts of a job of which some are embedded.
struct Active {
    job: EmbeddingJob,
    embeddings: Vec<Vec<f32>>,
    /// Number of texts that were embedded before, of all jobs: a job that waits for longer is next.
    turn: u64,
}

/// The model with its session.
pub(crate) struct Embedder {
    model: Model,
    session: Session,
    pooling: Pooling,
    metrics: Arc<Metrics>,
    jobs: Receiver<EmbeddingJob>,
}

impl Embedder {
    pub fn new(
        mut model: Model,
        pooling: Pooling,
        metrics: Arc<Metrics>,
        jobs: Receiver<EmbeddingJob>,
    ) -> rushlight_llm::Result<Self> {
        let session = model.session()?;
        Ok(Self { model, session, pooling, metrics, jobs })
    }

    /// Runs jobs until their senders are gone.
    pub fn run(mut self) {
        let mut active: Vec<Active> = Vec::new();
        let mut shares = Shares::default();
        let mut turn = 0;
        loop {
            if active.is_empty() && !self.jobs.wait() {
                // Nobody sends any more.
                return;
            }
            let over = self.jobs.remove_over();
            self.metrics.queued.fetch_sub(over as u64, Ordering::Relaxed);
            add(&self.metrics.cancelled, over);
            self.take(&mut active, &shares, turn);
            self.metrics.active.store(active.len() as u64, Ordering::Relaxed);
            let tenants: Vec<Tenant> = active.iter().map(|active| active.job.tenant).collect();
            shares.settle(&tenants);
            let next = active.iter().enumerate();
            let next = next.min_by_key(|(index, active)| (shares.of(active.job.tenant), active.turn, *index));
            let Some((index, _)) = next else { continue };
            let Active { job, mut embeddings, .. } = active.remove(index);
            let Some(prompt) = job.prompts.get(embeddings.len()) else {
                self.answer(job, Ok(embeddings));
                self.metrics.active.store(active.len() as u64, Ordering::Relaxed);
                continue;
            };
            shares.charge(job.tenant, prompt.len() as u64);
            // A panic is a defect, which spoils a session until it is reset.
            let embedding =
                catch_unwind(AssertUnwindSafe(|| self.embed(&job, prompt))).unwrap_or_else(|_| Err(defect()));
            match embedding {
                Ok(embedding) => {
                    turn += 1;
                    embeddings.push(embedding);
                    active.push(Active { job, embeddings, turn });
                }
                Err(refusal) => self.answer(job, Err(refusal)),
            }
            self.metrics.active.store(active.len() as u64, Ordering::Relaxed);
        }
    }

    /// Takes jobs from the queue for the tenants that have fewest. The first of a tenant finds more room than its others.
    fn take(&mut self, active: &mut Vec<Active>, shares: &Shares, turn: u64) {
        loop {
            let held: Held = active.iter().map(|active| active.job.tenant).collect();
            let waiting = self.jobs.tenants();
            let next = waiting.iter().enumerate().min_by_key(|(index, tenant)| (held.rank(**tenant, shares), *index));
            let Some((_, tenant)) = next else { return };
            let max = if held.of(*tenant) == 0 { 2 * MAX_ACTIVE } else { MAX_ACTIVE };
            if active.len() >= max {
                return;
            }
            let Some(job) = self.jobs.take(*tenant) else { return };
            self.metrics.queued.fetch_sub(1, Ordering::Relaxed);
            add(&self.metrics.requests, 1);
            active.push(Active { job, embeddings: Vec::new(), turn });
        }
    }

    fn answer(&self, job: EmbeddingJob, embeddings: Result<Vec<Vec<f32>>, Refusal>) {
        if job.embeddings.send(embeddings).is_err() {
            add(&self.metrics.cancelled, 1);
        }
    }

    fn embed(&mut self, job: &EmbeddingJob, prompt: &[u32]) -> Result<Vec<f32>, Refusal> {
        self.session.reset(&mut self.model)?;
        let mut pool = Pool::new(self.pooling);
        for part in prompt.chunks(TURN) {
            if job.embeddings.is_closed() {
                return Err(Refusal::cut_off());
            }
            let start = Instant::now();
            if start >= job.deadline {
                add(&self.metrics.cancelled, 1);
                return Err(Refusal::timeout());
            }
            self.session.embed(&mut self.model, part, &mut pool)?;
            add(&self.metrics.prompt_tokens, part.len());
            add_time(&self.metrics.prefill_nanoseconds, start.elapsed());
        }
        let embedding = pool.normalized(job.dimensions);
        if embedding.iter().all(|x| x.is_finite()) {
            Ok(embedding)
        } else {
            let message = "the model computed NaN or infinity for this text";
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
    }
}
