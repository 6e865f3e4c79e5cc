//! The thread that owns the model: all answers get a token in one call of it, and a prompt is read in parts between these calls.

use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rushlight_llm::{Error, Generator, Model, Result, Session, TokenScore, Tokenizer};
use tokio::sync::mpsc::{self, error::TryRecvError, error::TrySendError};

use crate::error::{Refusal, defect};
use crate::job::{Event, Job, Owner};
use crate::metrics::{Metrics, add, add_time};

/// Maximum number of a prompt's tokens that are read in a turn, so that other answers go on meanwhile.
const PREFILL_TURN: usize = 256;

/// Minimum number of them, if a turn is limited to the time of a token of the other answers.
const MIN_PREFILL_TURN: usize = 8;

/// As [`PREFILL_TURN`], of tokens that are scored: a program may be called for each.
const SCORE_TURN: usize = 16;

/// Minimum number of tokens that a prompt has in common with an answer in the making, for a copy of its session.
const MIN_SHARED: usize = 32;

/// How long the thread sleeps when all clients are slower than the model.
const BACKPRESSURE_SLEEP: Duration = Duration::from_millis(1);

/// How long a client may leave its answer unread.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// The model with its sessions.
pub(crate) struct Scheduler {
    model: Model,
    tokenizer: Arc<Tokenizer>,
    metrics: Arc<Metrics>,
    jobs: mpsc::Receiver<Job>,
    /// Maximum number of sessions; fewer if the model turns out to make fewer.
    max_sessions: usize,
    /// Idle sessions with their owners. They keep their caches. The latest is the last.
    idle: Vec<(Owner, Session)>,
    answers: Vec<Answer>,
    /// A job that waits for sessions.
    waiting: Option<Arc<Job>>,
    pace: Pace,
}

/// The times of the last calls.
#[derive(Debug, Default)]
struct Pace {
    /// A token of all answers.
    decode: Duration,
    /// The last part of a prompt, and its number of tokens.
    prefill: Duration,
    prefill_len: usize,
}

impl Pace {
    /// Number of a prompt's tokens that are read beside answers: a call for them takes no longer than a token of the answers.
    fn prefill_turn(&self) -> usize {
        let (decode, prefill) = (self.decode.as_nanos(), self.prefill.as_nanos().max(1));
        let len = (self.prefill_len as u128).saturating_mul(decode) / prefill;
        // At most double, as longer calls take less time for each token.
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(2 * self.prefill_len);
        len.clamp(MIN_PREFILL_TURN, PREFILL_TURN)
    }
}

/// An answer that is being generated.
struct Answer {
    choice: usize,
    session: Session,
    job: Arc<Job>,
    phase: Phase,
    /// Tokens of the prompt that the session had already.
    cached: usize,
    /// Those of the prompt's tokens, if they are asked for.
    scores: Vec<Option<TokenScore>>,
    prefill: Duration,
    /// Since when the channel of events is full.
    stalled: Option<Instant>,
}

enum Phase {
    /// The prompt is read up to the session's position.
    Prefill,
    Decode(Box<Generator>),
}

/// The state of an answer after its turn.
enum Turn {
    GoesOn,
    /// The channel of events is full.
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
        let max_sessions = max_sessions.max(1);
        Ok(Self {
            model,
            tokenizer,
            metrics,
            jobs,
            max_sessions,
            idle: vec![(Owner::default(), first)],
            answers: Vec::new(),
            waiting: None,
            pace: Pace::default(),
        })
    }

    /// Runs jobs until their senders are gone and all are over.
    pub fn run(mut self) {
        while self.accept() {
            self.metrics.active.store(self.answers.len() as u64, Ordering::Relaxed);
            let mut all_wait = !self.answers.is_empty();
            let start = Instant::now();
            self.read_batch();
            let mut prefilling = Duration::ZERO;
            let mut has_decoded = false;
            let mut has_prefilled = false;
            let mut index = 0;
            while let Some(answer) = self.answers.get(index) {
                let is_prefill = matches!(answer.phase, Phase::Prefill);
                if is_prefill && has_prefilled {
                    // One part of a prompt for each token of the others.
                    index += 1;
                    continue;
                }
                has_prefilled |= is_prefill;
                has_decoded |= !is_prefill;
                let turn = Instant::now();
                let after = catch_unwind(AssertUnwindSafe(|| self.turn(index)));
                if is_prefill {
                    prefilling = turn.elapsed();
                }
                match after {
                    Ok(Turn::GoesOn) => {
                        all_wait = false;
                        index += 1;
                    }
                    Ok(Turn::Waits) => index += 1,
                    Ok(Turn::Over) => {
                        let answer = self.answers.swap_remove(index);
                        self.count(&answer);
                        self.keep(answer);
                        all_wait = false;
                    }
                    // A defect, which spoils one session.
                    Err(_) => {
                        let answer = self.answers.swap_remove(index);
                        let _ = answer.job.events.try_send(Event::Failed(defect()));
                    }
                }
            }
            if has_decoded && !all_wait {
                self.pace.decode = start.elapsed().saturating_sub(prefilling);
            }
            self.metrics.active.store(self.answers.len() as u64, Ordering::Relaxed);
            if all_wait {
                std::thread::sleep(BACKPRESSURE_SLEEP);
            }
        }
    }

    /// Takes jobs for which there are sessions; waits for one if there is nothing else to do. False if all is over.
    fn accept(&mut self) -> bool {
        loop {
            let job = match self.waiting.take() {
                Some(job) => job,
                None if self.answers.is_empty() => match self.jobs.blocking_recv() {
                    Some(job) => Arc::new(job),
                    None => return false,
                },
                None => match self.jobs.try_recv() {
                    Ok(job) => Arc::new(job),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
                },
            };
            if job.events.is_closed() {
                self.dequeue();
                add(&self.metrics.cancelled, 1);
                continue;
            }
            if self.answers_to_be() + job.choices > self.max_sessions && !self.answers.is_empty() {
                self.waiting = Some(job);
                return true;
            }
            match self.start(&job) {
                Ok(()) => self.dequeue(),
                // The model makes no more sessions than there are: the job waits for one of them.
                Err(Error::NotSupported(_)) if !self.answers.is_empty() => {
                    self.max_sessions = self.answers_to_be().max(1);
                    self.waiting = Some(job);
                    return true;
                }
                Err(error) => {
                    self.dequeue();
                    // A client that has gone needs no answer.
                    let _ = job.events.try_send(Event::Failed(error.into()));
                }
            }
        }
    }

    /// Number of answers once all prompts are read.
    fn answers_to_be(&self) -> usize {
        let choices = |answer: &Answer| match answer.phase {
            Phase::Prefill => answer.job.choices,
            Phase::Decode(_) => 1,
        };
        self.answers.iter().map(choices).sum()
    }

    fn dequeue(&self) {
        self.metrics.queued.fetch_sub(1, Ordering::Relaxed);
    }

    fn start(&mut self, job: &Arc<Job>) -> Result<()> {
        // A scored prompt is read as a whole.
        let known = if job.scores_prompt { &[][..] } else { &job.prompt };
        let mut session = self.session_for(known, job)?;
        let cached = if job.scores_prompt {
            session.reset(&mut self.model)?;
            0
        } else {
            session.keep_common_prefix(&mut self.model, &job.prompt)?
        };
        add(&self.metrics.requests, 1);
        add(&self.metrics.prompt_tokens, job.prompt.len());
        add(&self.metrics.cached_tokens, cached);
        self.answers.push(Answer {
            choice: 0,
            session,
            job: job.clone(),
            phase: Phase::Prefill,
            cached,
            scores: Vec::new(),
            prefill: Duration::ZERO,
            stalled: None,
        });
        Ok(())
    }

    /// The session that knows most of a prompt, a copy of one that is in use, or a new one, with the adapter of a job or the model's
    /// own. What other owners' sessions know makes no difference. While there is room, a conversation is not forgotten for another that
    /// only begins alike.
    fn session_for(&mut self, prompt: &[u32], job: &Job) -> Result<Session> {
        let adapter = job.adapter.as_ref().or(self.model.adapter()).cloned();
        let is_fit = |owner: &Owner, session: &Session| {
            *owner == job.owner
                && match (session.adapter(), &adapter) {
                    (Some(own), Some(adapter)) => own.is_same(adapter),
                    (own, adapter) => own.is_none() && adapter.is_none(),
                }
        };
        let known = |session: &Session| session.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let has_room = self.idle.len() + self.answers.len() < self.max_sessions;
        let idle = self.idle.iter().enumerate().filter(|(_, (owner, session))| is_fit(owner, session));
        let idle = idle.map(|(index, (_, session))| (known(session), Reverse(index)));
        let best = idle.max().map(|(known, Reverse(index))| (index, known));
        // The prompt continues the session, rather than sharing only a beginning with it.
        let is_same = |index: usize, known: usize| {
            known > 0 && 2 * known >= self.idle.get(index).map_or(0, |(_, session)| session.position())
        };
        let shared = self.answers.iter().filter(|answer| is_fit(&answer.job.owner, &answer.session));
        let shared = shared.map(|answer| (known(&answer.session), &answer.session));
        let shared = shared.max_by_key(|(known, _)| *known).filter(|(known, _)| *known >= MIN_SHARED);
        if let Some((count, session)) = shared
            && has_room
            && best.is_none_or(|(_, known)| known < count)
            && let Ok(copy) = session.fork()
        {
            return Ok(copy);
        }
        match best {
            Some((index, known)) if !has_room || is_same(index, known) => return Ok(self.idle.remove(index).1),
            _ => {}
        }
        if !has_room {
            self.drop_surplus(1);
        }
        match (self.model.session_with(adapter.clone()), best) {
            (Err(_), Some((index, _))) if index < self.idle.len() => Ok(self.idle.remove(index).1),
            // The model makes no more sessions than there are, and those that are idle are others' or have other adapters.
            (Err(_), _) if !self.idle.is_empty() => {
                self.idle.clear();
                self.model.session_with(adapter)
            }
            (session, _) => session,
        }
    }

    /// Counts what an answer took, however it ended.
    fn count(&self, answer: &Answer) {
        let mut prefill = answer.prefill;
        if let Phase::Decode(generator) = &answer.phase {
            let usage = generator.usage();
            add(&self.metrics.generated_tokens, usage.generated_tokens);
            add_time(&self.metrics.decode_nanoseconds, usage.decode);
            prefill += usage.prefill;
        }
        add_time(&self.metrics.prefill_nanoseconds, prefill);
    }

    fn keep(&mut self, answer: Answer) {
        self.idle.push((answer.job.owner.clone(), answer.session));
        self.drop_surplus(0);
    }

    /// Drops the sessions that were idle for longest, so that there is room for `wanted` more.
    fn drop_surplus(&mut self, wanted: usize) {
        let room = self.max_sessions.saturating_sub(self.answers.len() + wanted);
        let surplus = self.idle.len().saturating_sub(room);
        self.idle.drain(..surplus);
    }

    /// Gives the model the last tokens of all answers that can go on, if they are several.
    fn read_batch(&mut self) {
        let now = Instant::now();
        let can_go_on = |answer: &Answer| {
            let events = &answer.job.events;
            matches!(answer.phase, Phase::Decode(_))
                && events.capacity() > 0
                && !events.is_closed()
                && now < answer.job.deadline
        };
        let Self { model, answers, .. } = self;
        let ready: Vec<bool> = answers.iter().map(can_go_on).collect();
        let mut batch = Vec::new();
        for (answer, _) in answers.iter_mut().zip(&ready).filter(|(_, is_ready)| **is_ready) {
            if let Phase::Decode(generator) = &mut answer.phase {
                batch.push((&mut **generator, &mut answer.session));
            }
        }
        if batch.len() < 2 {
            return;
        }
        let read = catch_unwind(AssertUnwindSafe(|| Generator::read_batch(model, &mut batch)));
        let (refusal, is_defect) = match read {
            Ok(Ok(())) => return,
            Ok(Err(error)) => (Refusal::from(error), false),
            Err(_) => (defect(), true),
        };
        let failed = ready.iter().enumerate().filter(|(_, is_ready)| **is_ready);
        for (index, _) in failed.rev() {
            let answer = self.answers.remove(index);
            let _ = answer.job.events.try_send(Event::Failed(refusal.clone()));
            self.count(&answer);
            if !is_defect {
                self.keep(answer);
            }
        }
    }

    /// Goes on with an answer.
    fn turn(&mut self, index: usize) -> Turn {
        let Some(answer) = self.answers.get_mut(index) else { return Turn::Over };
        let job = answer.job.clone();
        let now = Instant::now();
        let permit = match job.events.try_reserve() {
            Ok(permit) => permit,
            Err(TrySendError::Full(())) => {
                let since = *answer.stalled.get_or_insert(now);
                if now < job.deadline && now.duration_since(since) < STALL_LIMIT {
                    return Turn::Waits;
                }
                add(&self.metrics.cancelled, 1);
                return Turn::Over;
            }
            Err(TrySendError::Closed(())) => {
                add(&self.metrics.cancelled, 1);
                return Turn::Over;
            }
        };
        answer.stalled = None;
        if now >= job.deadline {
            add(&self.metrics.cancelled, 1);
            permit.send(Event::Failed(Refusal::timeout()));
            return Turn::Over;
        }
        let next = match &mut answer.phase {
            Phase::Prefill => self.prefill(index),
            Phase::Decode(generator) => match generator.step(&mut self.model, &mut answer.session, &self.tokenizer) {
                Ok(Some(step)) => Ok(Some(Event::Step { choice: answer.choice, step })),
                Ok(None) => {
                    let usage = generator.usage();
                    let (choice, cached) = (answer.choice, answer.cached);
                    let usage = rushlight_llm::Usage {
                        prefill: answer.prefill + usage.prefill,
                        prompt_tokens: job.prompt.len(),
                        ..usage
                    };
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
        let is_alone = !self.answers.iter().any(|answer| matches!(answer.phase, Phase::Decode(_)));
        let Some(answer) = self.answers.get_mut(index) else { return Ok(None) };
        let job = answer.job.clone();
        let rest = job.prompt.get(answer.session.position()..).unwrap_or_default();
        let len = match (job.scores_prompt, is_alone) {
            (true, true) => SCORE_TURN,
            (false, true) => PREFILL_TURN,
            (true, false) => self.pace.prefill_turn().min(SCORE_TURN),
            (false, false) => self.pace.prefill_turn(),
        };
        let part = rest.get(..len).unwrap_or(rest);
        let start = Instant::now();
        if job.scores_prompt {
            let alternatives = job.generation.log_probabilities.unwrap_or(0);
            answer.scores.extend(answer.session.score_tokens(&mut self.model, part, alternatives)?);
        } else {
            answer.session.prefill(&mut self.model, part)?;
        }
        let took = start.elapsed();
        answer.prefill += took;
        (self.pace.prefill, self.pace.prefill_len) = (took, part.len());
        if answer.session.position() < job.prompt.len() {
            return Ok(None);
        }
        let scores = std::mem::take(&mut answer.scores);
        self.decode(index)?;
        Ok(job.scores_prompt.then_some(Event::Prompt(scores)))
    }

    /// Begins all answers of a job whose prompt is read.
    fn decode(&mut self, index: usize) -> Result<()> {
        let choices = self.answers.get(index).map_or(1, |answer| answer.job.choices);
        self.drop_surplus(choices - 1);
        let Self { model, tokenizer, answers, .. } = self;
        let Some(answer) = answers.get_mut(index) else { return Ok(()) };
        let mut others = Vec::new();
        for choice in 1..choices {
            let mut session = answer.session.fork()?;
            let phase = begin(model, &mut session, tokenizer, &answer.job, choice)?;
            let (job, cached) = (answer.job.clone(), answer.cached);
            let (scores, prefill) = (Vec::new(), Duration::ZERO);
            others.push(Answer { choice, session, job, phase, cached, scores, prefill, stalled: None });
        }
        answer.phase = begin(model, &mut answer.session, tokenizer, &answer.job, 0)?;
        answers.extend(others);
        Ok(())
    }
}

/// An answer from where the session is. Each choice has a seed of its own.
fn begin(model: &mut Model, session: &mut Session, tokenizer: &Tokenizer, job: &Job, choice: usize) -> Result<Phase> {
    let mut generation = job.generation.clone();
    generation.sampling.seed = generation.sampling.seed.wrapping_add(choice as u64);
    let mut generator = Generator::start(model, session, tokenizer, &[], generation)?;
    if let Some(constraint) = &job.constraint {
        generator.constrain(constraint.clone());
    }
    Ok(Phase::Decode(Box::new(generator)))
}
