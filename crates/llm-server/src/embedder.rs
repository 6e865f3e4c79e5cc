//! The thread that owns a model of hidden states: it makes embeddings, one text after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::http::StatusCode;
use rushlight_llm::{Model, Pool, Pooling, Session};
use tokio::sync::{mpsc, oneshot};

use crate::error::Refusal;
use crate::metrics::{Metrics, add, add_time};

/// Maximum number of tokens in a call, after which the thread looks whether the client is still there.
const TURN: usize = 256;

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
        while let Some(job) = self.jobs.blocking_recv() {
            self.metrics.queued.fetch_sub(1, Ordering::Relaxed);
            add(&self.metrics.requests, 1);
            self.metrics.active.store(1, Ordering::Relaxed);
            // A panic is a defect, which spoils a session until it is reset.
            let embeddings = catch_unwind(AssertUnwindSafe(|| self.embed(&job))).unwrap_or_else(|_| {
                Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed at this request"))
            });
            self.metrics.active.store(0, Ordering::Relaxed);
            if job.embeddings.send(embeddings).is_err() {
                add(&self.metrics.cancelled, 1);
            }
        }
    }

    fn embed(&mut self, job: &EmbeddingJob) -> Result<Vec<Vec<f32>>, Refusal> {
        let mut embeddings = Vec::with_capacity(job.prompts.len());
        for prompt in &job.prompts {
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
            if !embedding.iter().all(|x| x.is_finite()) {
                let message = "the model computed NaN or infinity for this text";
                return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message));
            }
            embeddings.push(embedding);
        }
        Ok(embeddings)
    }
}
