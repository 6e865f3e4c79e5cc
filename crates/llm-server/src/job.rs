//! Requests to the thread that owns the model, and its events.

use std::time::Instant;

use rushlight_llm::{Adapter, Constraint, FinishReason, Generation, Step, TokenScore, Usage};
use tokio::sync::mpsc;

use crate::error::Refusal;
use crate::fair::Tenant;
use crate::queue::Waits;

/// The owner of a request. Only requests of the same owner share its session's cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The number of the key that it came with; 0 where there are none.
    pub key: usize,
    /// The `cache_salt` of the request: requests with another one share nothing.
    pub salt: Option<String>,
}

/// A prompt to be continued.
#[derive(Debug)]
pub(crate) struct Job {
    pub owner: Owner,
    /// The client that the work is for.
    pub tenant: Tenant,
    pub prompt: Vec<u32>,
    /// The adapter that the request names; `None` for the model's default.
    pub adapter: Option<Adapter>,
    pub generation: Generation,
    /// The form of the answers.
    pub constraint: Option<Constraint>,
    /// Number of answers, each from a seed of its own.
    pub choices: usize,
    /// True to score the prompt too, with the same number of alternatives as the answer.
    pub scores_prompt: bool,
    /// When the request has taken too long.
    pub deadline: Instant,
    pub events: mpsc::Sender<Event>,
}

impl Waits for Job {
    fn tenant(&self) -> Tenant {
        self.tenant
    }

    fn is_over(&self, now: Instant) -> bool {
        self.events.is_closed() || now >= self.deadline
    }

    fn refuse(self, refusal: Refusal) {
        // The channel of a job that has not begun is empty.
        let _ = self.events.try_send(Event::Failed(refusal));
    }
}

/// An event of a job. After the end of all choices, or a failure, the channel closes.
#[derive(Debug)]
pub(crate) enum Event {
    /// The scores of the prompt's tokens; `None` for the first of all.
    Prompt(Vec<Option<TokenScore>>),
    Step {
        choice: usize,
        step: Step,
    },
    Finished {
        choice: usize,
        reason: FinishReason,
        usage: Usage,
        /// Tokens of the prompt that an earlier request had left.
        cached: usize,
    },
    Failed(Refusal),
}
