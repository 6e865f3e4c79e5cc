//! The thread that owns the model: answers take turns, a token or a part of a prompt each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use rushlight_llm::{Generator, Model, Result, Session, TokenScore, Tokenizer};
use tokio::sync::mpsc::{self, error::TryRecvError, error::TrySendError};

use crate::error::Refusal;
use crate::job::{Event, Job};
use crate::metrics::{Metrics, add, add_time};

/// Maximum number of a prompt's tokens that are read in a turn, so that other answers go on meanwhile.
const PREFILL_TURN: usize = 256;

/// How long the thread sleeps when all clients are slower than the model.
const BACKPRESSURE_SLEEP: Duration = Duration::from_millis(1);

/// The model with its sessions.
pub(crate) struct Scheduler {
    model: Model,
    tokenizer: Arc<Tokenizer>,
    metrics: Arc<Metrics>,
    jobs: mpsc::Receiver<Job>,
    /// Maximum number of sessions.
    max_sessions: usize,
    /// Sessions without an answer, which keep what they read. The latest is the last.
    idle: Vec<Session>,
    answers: Vec<Answer>,
    /// A job that waits for sessions.
    waiting: Option<Job>,
}

/// An answer that is being generated.
struct Answer {
    choice: usize,
    session: Session,
    job: Arc<Job>,
    state: State,
    /// Tokens of the prompt that the session had already.
    cached: usize,
    /// Those of the prompt's tokens, if they are asked for.
    scores: Vec<Option<TokenScore>>,
    prefill: Duration,
}

enum State {
    /// The prompt is read up to the session's position.
    Prefill,
    Generate(Box<Generator>),
}

/// What becomes of an answer after its turn.
enum Turn {
    GoesOn,
    /// The client has not yet taken what there is.
    Waits,
    Over,
}

impl Scheduler {
    /// Makes the first session, so that a model that has none is an error at once.
    pub fn new(
        mut model: Model,
        tokenizer: Arc<Tokenizer>,
        metrics: Arc<Metrics>,
        jobs: mpsc::Receiver<Job>,
        max_sessions: usize,
    ) -> Result<Self> {
        let first = model.session()?;
        Ok(Self {
            model,
            tokenizer,
            metrics,
            jobs,
            max_sessions: max_sessions.max(1),
            idle: vec![first],
            answers: Vec::new(),
            waiting: None,
        })
    }

    /// Runs jobs until their senders are gone and all are over.
    pub fn run(mut self) {
        loop {
            if !self.accept() {
                return;
            }
            let mut waits = !self.answers.is_empty();
            let mut index = 0;
            while index < self.answers.len() {
                match self.turn(index) {
                    Turn::Over => {
                        let answer = self.answers.swap_remove(index);
                        self.keep(answer.session);
                        waits = false;
                    }
                    Turn::GoesOn => {
                        waits = false;
                        index += 1;
                    }
                    Turn::Waits => index += 1,
                }
            }
            self.metrics.active.store(self.answers.len() as u64, Ordering::Relaxed);
            if waits {
                std::thread::sleep(BACKPRESSURE_SLEEP);
            }
        }
    }

    /// Takes jobs for which there are sessions; waits for one if there is nothing else to do. False if all is over.
    fn accept(&mut self) -> bool {
        loop {
            let next = match self.waiting.take() {
                Some(job) => job,
                None if self.answers.is_empty() => match self.jobs.blocking_recv() {
                    Some(job) => job,
                    None => return false,
                },
                None => match self.jobs.try_recv() {
                    Ok(job) => job,
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
                },
            };
            if next.events.is_closed() {
                self.forget_queued();
                add(&self.metrics.cancelled, 1);
                continue;
            }
            if self.answers_to_be() + next.choices > self.max_sessions {
                self.waiting = Some(next);
                return true;
            }
            self.forget_queued();
            let job = Arc::new(next);
            if let Err(error) = self.start(&job) {
                // A client that has gone needs no answer.
                let _ = job.events.try_send(Event::Failed(error.into()));
            }
        }
    }

    /// Number of answers once all prompts are read.
    fn answers_to_be(&self) -> usize {
        let choices = |answer: &Answer| match answer.state {
            State::Prefill => answer.job.choices,
            State::Generate(_) => 1,
        };
        self.answers.iter().map(choices).sum()
    }

    fn forget_queued(&self) {
        self.metrics.queued.fetch_sub(1, Ordering::Relaxed);
    }

    fn start(&mut self, job: &Arc<Job>) -> Result<()> {
        let mut session = self.session_for(&job.prompt)?;
        let cached = if job.scores_prompt {
            // What is scored is read as a whole.
            session.reset(&mut self.model)?;
            0
        } else {
            session.keep_common_prefix(&mut self.model, &job.prompt)?
        };
        add(&self.metrics.requests, 1);
        add(&self.metrics.prompt_tokens, job.prompt.len());
        add(&self.metrics.cached_tokens, cached);
        let job = job.clone();
        let (state, scores, prefill) = (State::Prefill, Vec::new(), Duration::ZERO);
        self.answers.push(Answer { choice: 0, session, job, state, cached, scores, prefill });
        Ok(())
    }

    /// The session that knows most of a prompt, or a new one if none knows any of it.
    fn session_for(&mut self, prompt: &[u32]) -> Result<Session> {
        let known = |session: &Session| session.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let best =
            self.idle.iter().enumerate().max_by_key(|(index, session)| (known(session), std::cmp::Reverse(*index)));
        let best = best.map(|(index, session)| (index, known(session)));
        let has_room = self.idle.len() + self.answers.len() < self.max_sessions;
        match best {
            Some((index, known)) if known > 0 || !has_room => Ok(self.idle.remove(index)),
            _ => match self.model.session() {
                Ok(session) => Ok(session),
                Err(error) => match best {
                    Some((index, _)) => Ok(self.idle.remove(index)),
                    None => Err(error),
                },
            },
        }
    }

    fn keep(&mut self, session: Session) {
        self.idle.push(session);
        self.drop_surplus();
    }

    /// Drops the sessions that were idle for longest, if there are too many.
    fn drop_surplus(&mut self) {
        let room = self.max_sessions.saturating_sub(self.answers.len()).max(1);
        let surplus = self.idle.len().saturating_sub(room);
        self.idle.drain(..surplus);
    }

    /// Goes on with an answer.
    fn turn(&mut self, index: usize) -> Turn {
        let Some(answer) = self.answers.get_mut(index) else { return Turn::Over };
        let job = answer.job.clone();
        let permit = match job.events.try_reserve() {
            Ok(permit) => permit,
            Err(TrySendError::Full(())) if Instant::now() < job.deadline => return Turn::Waits,
            Err(_) => {
                add(&self.metrics.cancelled, 1);
                return Turn::Over;
            }
        };
        if Instant::now() >= job.deadline {
            add(&self.metrics.cancelled, 1);
            let message = "the request took longer than the server allows";
            permit.send(Event::Failed(Refusal::new(StatusCode::GATEWAY_TIMEOUT, message)));
            return Turn::Over;
        }
        let next = match &mut answer.state {
            State::Prefill => self.prefill(index),
            State::Generate(generator) => match generator.step(&mut self.model, &mut answer.session, &self.tokenizer) {
                Ok(Some(step)) => Ok(Some(Event::Step { choice: answer.choice, step })),
                Ok(None) => {
                    let usage = generator.usage();
                    add(&self.metrics.generated_tokens, usage.generated_tokens);
                    add_time(&self.metrics.decode_nanoseconds, usage.decode);
                    let prefill = answer.prefill + usage.prefill;
                    add_time(&self.metrics.prefill_nanoseconds, prefill);
                    let usage = rushlight_llm::Usage { prefill, prompt_tokens: job.prompt.len(), ..usage };
                    let (choice, cached) = (answer.choice, answer.cached);
                    permit.send(Event::Finished { choice, reason: usage.finish_reason, usage, cached });
                    return Turn::Over;
                }
                Err(error) => Err(error),
            },
        };
        match next {
            Ok(Some(event)) => permit.send(event),
            Ok(None) => {}
            Err(error) => {
                permit.send(Event::Failed(error.into()));
                return Turn::Over;
            }
        }
        Turn::GoesOn
    }

    /// Reads a part of a prompt. Once it is read, all answers of its job begin.
    fn prefill(&mut self, index: usize) -> Result<Option<Event>> {
        let Some(answer) = self.answers.get_mut(index) else { return Ok(None) };
        let job = answer.job.clone();
        let rest = job.prompt.get(answer.session.position()..).unwrap_or_default();
        let part = rest.get(..PREFILL_TURN).unwrap_or(rest);
        let start = Instant::now();
        if job.scores_prompt {
            let alternatives = job.generation.log_probabilities.unwrap_or(0);
            answer.scores.extend(answer.session.score_tokens(&mut self.model, part, alternatives)?);
        } else {
            answer.session.prefill(&mut self.model, part)?;
        }
        answer.prefill += start.elapsed();
        if answer.session.position() < job.prompt.len() {
            return Ok(None);
        }
        let scores = std::mem::take(&mut answer.scores);
        self.generate(index)?;
        Ok(job.scores_prompt.then_some(Event::Prompt(scores)))
    }

    /// Begins all answers of a job whose prompt is read.
    fn generate(&mut self, index: usize) -> Result<()> {
        let Self { model, tokenizer, answers, .. } = self;
        let Some(answer) = answers.get_mut(index) else { return Ok(()) };
        let mut others = Vec::new();
        for choice in 1..answer.job.choices {
            let mut session = answer.session.fork()?;
            let state = begin(model, &mut session, tokenizer, &answer.job, choice)?;
            let (job, cached) = (answer.job.clone(), answer.cached);
            let (scores, prefill) = (Vec::new(), Duration::ZERO);
            others.push(Answer { choice, session, job, state, cached, scores, prefill });
        }
        answer.state = begin(model, &mut answer.session, tokenizer, &answer.job, 0)?;
        answers.extend(others);
        self.drop_surplus();
        Ok(())
    }
}

/// An answer from where the session is. Each choice has a seed of its own.
fn begin(model: &mut Model, session: &mut Session, tokenizer: &Tokenizer, job: &Job, choice: usize) -> Result<State> {
    let mut generation = job.generation.clone();
    generation.sampling.seed = generation.sampling.seed.wrapping_add(choice as u64);
    Ok(State::Generate(Box::new(Generator::start(model, session, tokenizer, &[], generation)?)))
}
