//! The thread that owns a model of hidden states: it makes embeddings, one text after the other, of all requests in turn.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::http::StatusCode;
use rushlight_llm::{Model, Pool, Pooling, Session};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Refusal, defect};
use crate::metrics::{Metrics, add, add_time};

/// Maximum number of tokens in a call, after which the thread looks whether the client is still there.
const TURN: usize = 256;

/// Maximum number of requests that take turns, a text each.
const MAX_ACTIVE: usize = 16;

/// Texts to be embedded.
#[derive(Debug)]
pub(crate) struct EmbeddingJob {
    pub prompts: Vec<Vec<u32>>,
    /// Number of elements of an embedding.
    pub dimensions: usize,
    /// When the request has taken too long.
    pub deadline: Instant,
    pub embeddings: oneshot::Sender<Result<Vec<Vec<f32>>, Refusal>>,
}

/// The model with its session.
pub(crate) struct Embedder {
    model: Model,
    session: Session,
    pooling: Pooling,
    metrics: Arc<Metrics>,
    jobs: mpsc::Receiver<EmbeddingJob>,
}

impl Embedder {
    pub fn new(
        mut model: Model,
        pooling: Pooling,
        metrics: Arc<Metrics>,
        jobs: mpsc::Receiver<EmbeddingJob>,
    ) -> rushlight_llm::Result<Self> {
        let session = model.session()?;
        Ok(Self { model, session, pooling, metrics, jobs })
    }

    /// Runs jobs until their senders are gone.
    pub fn run(mut self) {
        let mut active: VecDeque<(EmbeddingJob, Vec<Vec<f32>>)> = VecDeque::new();
        loop {
            self.metrics.active.store(active.len() as u64, Ordering::Relaxed);
            while active.len() < MAX_ACTIVE {
                let next = if active.is_empty() { self.jobs.blocking_recv() } else { self.jobs.try_recv().ok() };
                let Some(job) = next else { break };
                self.metrics.queued.fetch_sub(1, Ordering::Relaxed);
                add(&self.metrics.requests, 1);
                active.push_back((job, Vec::new()));
            }
            self.metrics.active.store(active.len() as u64, Ordering::Relaxed);
            // Nobody sends any more.
            let Some((job, mut embeddings)) = active.pop_front() else { return };
            let Some(prompt) = job.prompts.get(embeddings.len()) else {
                self.answer(job, Ok(embeddings));
                continue;
            };
            // A panic is a defect, which spoils a session until it is reset.
            let embedding =
                catch_unwind(AssertUnwindSafe(|| self.embed(&job, prompt))).unwrap_or_else(|_| Err(defect()));
            match embedding {
                Ok(embedding) => {
                    embeddings.push(embedding);
                    active.push_back((job, embeddings));
                }
                Err(refusal) => self.answer(job, Err(refusal)),
            }
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
