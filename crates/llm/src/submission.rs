//! Prompts and tokens that a model reads while the host does other work.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::error::Result;

/// Tokens or embeddings that a model reads while it is polled ([`Session::submit`](crate::Session::submit)). Once it is ready, the
/// session has them, with the logits after the last.
///
/// It is also a future. Devices have no wakers, so it wakes its own task while it is pending, and an executor polls it
/// again after its other tasks. Dropping it cancels the rest, and poisons the session if a call has begun.
#[must_use = "nothing is read until it is polled"]
pub struct Submission<'s> {
    /// `None` once it is complete.
    future: Option<Pin<Box<dyn Future<Output = Result<()>> + 's>>>,
}

impl<'s> Submission<'s> {
    pub(crate) fn new(future: impl Future<Output = Result<()>> + 's) -> Self {
        Self { future: Some(Box::pin(future)) }
    }

    /// Proceeds as far as possible without waiting. Ready when the model has read all.
    ///
    /// # Errors
    /// The error of a call. It ends the submission and poisons the session.
    pub fn poll(&mut self) -> Result<Poll<()>> {
        match Pin::new(self).poll_in(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map(Poll::Ready),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    fn poll_in(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(future) = &mut self.future else { return Poll::Ready(Ok(())) };
        let result = future.as_mut().poll(context);
        if result.is_ready() {
            self.future = None;
        }
        result
    }
}

impl Future for Submission<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_in(context)
    }
}

impl fmt::Debug for Submission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("is_complete", &self.future.is_none()).finish()
    }
}
