//! The thread that owns the model: all answers get a token in one call of it, and a prompt is read in parts between these calls.
//!
//! [`fair`](crate::fair) decides which client's work begins, is read next, or gives its session to another client. The session of a paused
//! answer may be dropped. Its tokens are then read again when it continues.

use std::cmp::Reverse;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rushlight_llm::{Adapter, Constraint, Error, Generator, Model, Result, Session, TokenScore, Tokenizer};
use tokio::sync::mpsc::error::TrySendError;

use crate::error::{Refusal, defect};
use crate::fair::{Admission, Running, Shares, Tenant, admit};
use crate::job::{Event, Job, Owner};
use crate::metrics::{Metrics, add, add_time};
use crate::pace::{Call, Pace, Reading, Ready, Work};
use crate::preparing::yield_to_answers;
use crate::queue::Receiver;

/// Maximum number of a prompt's tokens that are read in a turn, so that other answers continue meanwhile.
const PREFILL_TURN: usize = 256;

/// As [`PREFILL_TURN`], of tokens that are scored: a program may be called for each.
const SCORE_TURN: usize = 16;

/// Minimum number of tokens that a prompt has in common with an answer in the making, for a copy of its session.
const MIN_SHARED: usize = 32;

/// Minimum number of tokens of an answer before it is paused.
const QUANTUM: usize = 16;

/// Service that a token of an answer counts for; a token of a prompt counts for one.
const DECODE_COST: u64 = 2;

/// Time that the thread sleeps when all clients are slower than the model.
const BACKPRESSURE_SLEEP: Duration = Duration::from_millis(1);

/// Maximum time that a client may leave its answer unread.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// The model with its sessions.
pub(crate) struct Scheduler {
    model: Model,
    tokenizer: Arc<Tokenizer>,
    metrics: Arc<Metrics>,
    jobs: Receiver<Job>,
    /// Maximum number of sessions; fewer if the model turns out to make fewer.
    max_sessions: usize,
    /// Idle sessions with their owners. They keep their caches. The latest is the last.
    idle: Vec<(Owner, Session)>,
    /// Answers with a session, in the order in which they got it.
    answers: Vec<Answer>,
    /// Work of jobs that have begun, without a session.
    paused: Vec<Paused>,
    /// Tokens that the model read for each tenant.
    shares: Shares,
    pace: Pace,
    /// Number of turns so far.
    turn: u64,
    /// Each thread that prepares a constraint has a copy.
    grammar_threads: Arc<()>,
}

/// An answer that is being generated.
struct Answer {
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
    /// Number of tokens since the answer has its session.
    turns: usize,
    /// The turn of the model in which it had its last token, or a part of its prompt was read.
    latest: u64,
    /// Receives the constraint while another thread prepares it.
    prepared: Option<mpsc::Receiver<Constraint>>,
}

enum Phase {
    /// The tokens are read up to the session's position.
    Prefill(Next),
    Decode {
        choice: usize,
        generator: Box<Generator>,
    },
}

/// The next tokens that the model reads.
enum Next {
    /// These choices of the job, after the prompt.
    Begin(Range<usize>),
    /// An answer that was paused after these tokens.
    GoOn { choice: usize, generator: Box<Generator>, tokens: Vec<u32> },
}

impl Next {
    fn tokens<'t>(&'t self, job: &'t Job) -> &'t [u32] {
        match self {
            Self::Begin(_) => &job.prompt,
            Self::GoOn { tokens, .. } => tokens,
        }
    }

    /// True if the prompt's tokens are scored as they are read.
    fn is_scored(&self, job: &Job) -> bool {
        job.scores_prompt && matches!(self, Self::Begin(choices) if choices.start == 0)
    }
}

/// Work without a session.
struct Paused {
    job: Arc<Job>,
    next: Next,
    /// `None` if the job has not begun.
    cached: Option<usize>,
    prefill: Duration,
    stalled: Option<Instant>,
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
        jobs: Receiver<Job>,
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
            paused: Vec::new(),
            shares: Shares::default(),
            pace: Pace::default(),
            turn: 0,
            grammar_threads: Arc::default(),
        })
    }

    /// Runs jobs until their senders are gone and all are over.
    pub fn run(mut self) {
        while self.accept() {
            self.show_active();
            self.turn += 1;
            let all_wait = self.run_turn();
            self.show_active();
            if all_wait {
                std::thread::sleep(BACKPRESSURE_SLEEP);
            }
        }
    }

    /// Gives answers a token, and reads a part of a prompt. True if all wait for their clients.
    fn run_turn(&mut self) -> bool {
        let reading = self.next_prefill();
        let (ready, work) = self.work(reading);
        let chosen: Vec<usize> = work.answers.iter().filter_map(|place| ready.get(*place)).copied().collect();
        let mut call = Call::default();
        for index in &chosen {
            if let Some(answer) = self.answers.get(*index) {
                call.add(answer.session.position());
            }
        }
        // Answers that are over go; the others keep their order.
        let reading = reading.and_then(|index| self.answers.get(index)).map(Answer::id);
        let chosen: Vec<Id> = chosen.iter().filter_map(|index| self.answers.get(*index)).map(Answer::id).collect();
        let mut all_wait = !self.answers.is_empty();
        let start = Instant::now();
        self.read_batch(&chosen);
        let mut has_decoded = false;
        let mut index = 0;
        while let Some(answer) = self.answers.get(index) {
            let is_prefill = matches!(answer.phase, Phase::Prefill(_));
            if is_prefill {
                index += 1;
                continue;
            }
            let steps = chosen.contains(&answer.id());
            let turn = self.guarded_turn(index, steps.then_some(0));
            has_decoded |= steps && matches!(turn, Turn::GoesOn);
            all_wait &= matches!(turn, Turn::Waits);
            index += usize::from(!matches!(turn, Turn::Over));
        }
        if has_decoded {
            self.pace.decoded(call, start.elapsed());
        }
        let reading = self.answers.iter().position(|answer| Some(answer.id()) == reading);
        if let Some(index) = reading {
            let turn = if work.prefill > 0 { self.guarded_prefill(index, work.prefill) } else { Turn::GoesOn };
            all_wait &= matches!(turn, Turn::Waits);
        }
        all_wait
    }

    /// The work of a turn, and the indices of the answers that it chooses from.
    fn work(&mut self, reading: Option<usize>) -> (Vec<usize>, Work) {
        let now = Instant::now();
        let is_ready = |answer: &Answer| {
            let events = &answer.job.events;
            matches!(answer.phase, Phase::Decode { .. })
                && answer.prepared.is_none()
                && events.capacity() > 0
                && !events.is_closed()
                && now < answer.job.deadline
        };
        let indices: Vec<usize> =
            self.answers.iter().enumerate().filter(|(_, answer)| is_ready(answer)).map(|(index, _)| index).collect();
        let ready = indices.iter().filter_map(|index| self.answers.get(*index)).map(|answer| Ready {
            tenant: answer.job.tenant,
            position: answer.session.position(),
            latest: answer.latest,
        });
        let ready: Vec<Ready> = ready.collect();
        let reading = reading.and_then(|index| self.answers.get(index)).map(|answer| {
            let is_scored = matches!(&answer.phase, Phase::Prefill(next) if next.is_scored(&answer.job));
            let max = if is_scored { SCORE_TURN } else { PREFILL_TURN };
            Reading { tenant: answer.job.tenant, latest: answer.latest, max }
        });
        let work = self.pace.work(&ready, reading);
        (indices, work)
    }

    fn show_active(&self) {
        self.metrics.active.store((self.answers.len() + self.paused.len()) as u64, Ordering::Relaxed);
    }

    /// Reads a part of a prompt. If it is the last, the first token follows at once.
    fn guarded_prefill(&mut self, index: usize, len: usize) -> Turn {
        let turn = self.guarded_turn(index, Some(len));
        let begins = self.answers.get(index).is_some_and(|answer| matches!(answer.phase, Phase::Decode { .. }));
        if matches!(turn, Turn::GoesOn) && begins { self.guarded_turn(index, Some(0)) } else { turn }
    }

    /// Goes on with an answer, and removes it at its end. `len` is the number of tokens of a prompt to read; with `None` it only ends an
    /// answer whose client has left.
    fn guarded_turn(&mut self, index: usize, len: Option<usize>) -> Turn {
        let turn = catch_unwind(AssertUnwindSafe(|| self.turn(index, len)));
        match turn {
            Ok(Turn::Over) if index < self.answers.len() => {
                let answer = self.answers.remove(index);
                self.count(&answer.phase, answer.prefill);
                self.keep(answer.job.owner.clone(), answer.session);
            }
            Ok(_) => {}
            // A defect, which spoils one session.
            Err(_) if index < self.answers.len() => {
                let answer = self.answers.remove(index);
                let _ = answer.job.events.try_send(Event::Failed(defect()));
            }
            Err(_) => {}
        }
        turn.unwrap_or(Turn::Over)
    }

    /// Gives sessions to jobs; waits for a job if there is nothing else to do. False if all is over.
    fn accept(&mut self) -> bool {
        if self.answers.is_empty() && self.paused.is_empty() && !self.jobs.wait() {
            return false;
        }
        self.remove_left();
        loop {
            let mut waiting: Vec<Tenant> = self.paused.iter().map(|paused| paused.job.tenant).collect();
            waiting.extend(self.jobs.tenants());
            let running: Vec<Running> = self.answers.iter().map(Answer::running).collect();
            let active: Vec<Tenant> =
                running.iter().map(|answer| answer.tenant).chain(waiting.iter().copied()).collect();
            self.shares.settle(&active);
            match admit(&running, &waiting, self.max_sessions, &self.shares) {
                Some(Admission::Begin(index)) => {
                    let paused = match waiting.get(index) {
                        _ if index < self.paused.len() => self.paused.remove(index),
                        Some(tenant) => match self.take(*tenant) {
                            Some(paused) => paused,
                            None => continue,
                        },
                        None => return true,
                    };
                    if let Err(paused) = self.begin(paused) {
                        // The model makes no more sessions than there are: the job waits for one of them.
                        self.max_sessions = self.answers.len().max(1);
                        self.paused.insert(0, paused);
                        return true;
                    }
                }
                Some(Admission::Pause(index)) => self.pause(index),
                None => return true,
            }
        }
    }

    /// Removes jobs for which nobody waits, and those that have waited for too long.
    fn remove_left(&mut self) {
        let left = self.jobs.remove_over();
        self.metrics.queued.fetch_sub(left as u64, Ordering::Relaxed);
        add(&self.metrics.cancelled, left);
        let now = Instant::now();
        let is_over = |paused: &Paused| paused.job.events.is_closed() || now >= paused.job.deadline;
        while let Some(index) = self.paused.iter().position(is_over) {
            let paused = self.paused.remove(index);
            let _ = paused.job.events.try_send(Event::Failed(Refusal::timeout()));
            add(&self.metrics.cancelled, 1);
            if let Next::GoOn { choice, generator, .. } = paused.next {
                self.count(&Phase::Decode { choice, generator }, paused.prefill);
            }
        }
    }

    /// Takes the next job of a tenant from the queue.
    fn take(&self, tenant: Tenant) -> Option<Paused> {
        let job = self.jobs.take(tenant)?;
        self.metrics.queued.fetch_sub(1, Ordering::Relaxed);
        let next = Next::Begin(0..job.choices);
        Some(Paused { job: Arc::new(job), next, cached: None, prefill: Duration::ZERO, stalled: None })
    }

    /// Gives a session to work that has none. Returns the work if the model makes no more sessions.
    fn begin(&mut self, paused: Paused) -> std::result::Result<(), Paused> {
        let Paused { job, next, cached, prefill, stalled } = paused;
        match self.session_at(&next, &job) {
            Ok((session, known)) => {
                if cached.is_none() {
                    add(&self.metrics.requests, 1);
                    add(&self.metrics.prompt_tokens, job.prompt.len());
                    add(&self.metrics.cached_tokens, known);
                }
                self.answers.push(Answer {
                    session,
                    job,
                    phase: Phase::Prefill(next),
                    cached: cached.unwrap_or(known),
                    scores: Vec::new(),
                    prefill,
                    stalled,
                    turns: 0,
                    latest: self.turn,
                    prepared: None,
                });
                Ok(())
            }
            Err(Error::NotSupported(_)) if !self.answers.is_empty() => {
                Err(Paused { job, next, cached, prefill, stalled })
            }
            Err(error) => {
                // A client that has gone needs no answer.
                let _ = job.events.try_send(Event::Failed(error.into()));
                Ok(())
            }
        }
    }

    /// A session for work of a job, and the number of tokens that it knows.
    fn session_at(&mut self, next: &Next, job: &Job) -> Result<(Session, usize)> {
        // A scored prompt is read as a whole.
        if next.is_scored(job) {
            let mut session = self.session_for(&[], job)?;
            session.rewind(&mut self.model, 0)?;
            return Ok((session, 0));
        }
        let mut session = self.session_for(next.tokens(job), job)?;
        let known = session.keep_common_prefix(&mut self.model, next.tokens(job))?;
        Ok((session, known))
    }

    /// Takes the session of an answer, which continues later.
    fn pause(&mut self, index: usize) {
        if index >= self.answers.len() {
            return;
        }
        let Answer { session, job, phase, cached, prefill, stalled, .. } = self.answers.remove(index);
        let next = match phase {
            Phase::Prefill(next) => next,
            Phase::Decode { choice, generator } => Next::GoOn { choice, generator, tokens: session.tokens().to_vec() },
        };
        add(&self.metrics.paused, 1);
        self.keep(job.owner.clone(), session);
        self.paused.push(Paused { job, next, cached: Some(cached), prefill, stalled });
    }

    /// The answer whose tokens are read next: of the tenant for which the model has read least. One whose client does not read is last.
    fn next_prefill(&self) -> Option<usize> {
        let reading = self.answers.iter().enumerate();
        let reading = reading.filter(|(_, answer)| matches!(answer.phase, Phase::Prefill(_)));
        let is_full = |answer: &Answer| answer.job.events.capacity() == 0 && !answer.job.events.is_closed();
        let rank = |answer: &Answer| (is_full(answer), self.shares.of(answer.job.tenant));
        reading.min_by_key(|(index, answer)| (rank(answer), *index)).map(|(index, _)| index)
    }

    /// Returns a session of the job's owner, with the adapter of the job or else the model's own. It is the session that knows most
    /// of the prompt, a copy of one that is in use, or a new one. While there is room, a conversation is not forgotten for another
    /// that only begins alike.
    fn session_for(&mut self, prompt: &[u32], job: &Job) -> Result<Session> {
        let adapter = job.adapter.as_ref().or(self.model.adapter()).cloned();
        let is_fit = |owner: &Owner, session: &Session| *owner == job.owner && has_adapter(session, adapter.as_ref());
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
        if !has_room && let Some(session) = self.recycled(adapter.as_ref())? {
            return Ok(session);
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

    /// Empties the session with this adapter that was idle for longest. A new session would take longer than many tokens, because its
    /// caches are new memory.
    fn recycled(&mut self, adapter: Option<&Adapter>) -> Result<Option<Session>> {
        let Some(index) = self.idle.iter().position(|(_, session)| has_adapter(session, adapter)) else {
            return Ok(None);
        };
        let (_, mut session) = self.idle.remove(index);
        session.rewind(&mut self.model, 0)?;
        Ok(Some(session))
    }

    /// Counts what an answer took, however it ended.
    fn count(&self, phase: &Phase, mut prefill: Duration) {
        if let Phase::Decode { generator, .. } | Phase::Prefill(Next::GoOn { generator, .. }) = phase {
            let usage = generator.usage();
            add(&self.metrics.generated_tokens, usage.generated_tokens);
            add_time(&self.metrics.decode_nanoseconds, usage.decode);
            prefill += usage.prefill;
        }
        add_time(&self.metrics.prefill_nanoseconds, prefill);
    }

    fn keep(&mut self, owner: Owner, session: Session) {
        self.idle.push((owner, session));
        self.drop_surplus(0);
    }

    /// Drops the sessions that were idle for longest, so that there is room for `wanted` more.
    fn drop_surplus(&mut self, wanted: usize) {
        let room = self.max_sessions.saturating_sub(self.answers.len() + wanted);
        let surplus = self.idle.len().saturating_sub(room);
        self.idle.drain(..surplus);
    }

    /// Gives the model the last tokens of the chosen answers, if they are several.
    fn read_batch(&mut self, chosen: &[Id]) {
        let Self { model, answers, .. } = self;
        let mut batch = Vec::new();
        for answer in answers.iter_mut().filter(|answer| chosen.contains(&answer.id())) {
            if let Phase::Decode { generator, .. } = &mut answer.phase {
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
        while let Some(index) = self.answers.iter().position(|answer| chosen.contains(&answer.id())) {
            let answer = self.answers.remove(index);
            let _ = answer.job.events.try_send(Event::Failed(refusal.clone()));
            self.count(&answer.phase, answer.prefill);
            if !is_defect {
                self.keep(answer.job.owner.clone(), answer.session);
            }
        }
    }

    /// Goes on with an answer.
    fn turn(&mut self, index: usize, len: Option<usize>) -> Turn {
        let Some(answer) = self.answers.get_mut(index) else { return Turn::Over };
        let job = answer.job.clone();
        let now = Instant::now();
        // First, so that an answer whose client reads nothing can be paused.
        let is_prepared = answer.take_back();
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
        match is_prepared {
            Ok(true) => {}
            // An answer without its constraint would ignore the grammar.
            Ok(false) => return Turn::Waits,
            Err(refusal) => {
                permit.send(Event::Failed(refusal));
                return Turn::Over;
            }
        }
        let Some(len) = len else { return Turn::GoesOn };
        answer.latest = self.turn;
        let next = match &mut answer.phase {
            Phase::Prefill(_) => self.prefill(index, len),
            Phase::Decode { choice, generator } => {
                match generator.step(&mut self.model, &mut answer.session, &self.tokenizer) {
                    Ok(Some(step)) => {
                        answer.turns += 1;
                        self.shares.charge(job.tenant, DECODE_COST);
                        answer.prepared = prepare(generator, &self.grammar_threads);
                        Ok(Some(Event::Step { choice: *choice, step }))
                    }
                    Ok(None) => {
                        let usage = generator.usage();
                        let (choice, cached) = (*choice, answer.cached);
                        let usage = rushlight_llm::Usage {
                            prefill: answer.prefill + usage.prefill,
                            prompt_tokens: job.prompt.len(),
                            ..usage
                        };
                        permit.send(Event::Finished { choice, reason: usage.finish_reason, usage, cached });
                        return Turn::Over;
                    }
                    Err(error) => Err(error),
                }
            }
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

    /// Reads up to `max` of the tokens before an answer. Once they are read, the answer begins, or continues.
    fn prefill(&mut self, index: usize, max: usize) -> Result<Option<Event>> {
        let Some(answer) = self.answers.get_mut(index) else { return Ok(None) };
        let job = answer.job.clone();
        let Phase::Prefill(next) = &answer.phase else { return Ok(None) };
        let tokens = next.tokens(&job);
        let is_scored = next.is_scored(&job);
        let rest = tokens.get(answer.session.position()..).unwrap_or_default();
        let part = rest.get(..max).unwrap_or(rest);
        let (len, is_last) = (part.len(), part.len() == rest.len());
        let start = Instant::now();
        if is_scored {
            let alternatives = job.generation.log_probabilities.unwrap_or(0);
            answer.scores.extend(answer.session.score_tokens(&mut self.model, part, alternatives)?);
        } else {
            answer.session.prefill(&mut self.model, part)?;
        }
        let took = start.elapsed();
        answer.prefill += took;
        self.pace.prefilled(len, took);
        self.shares.charge(job.tenant, len as u64);
        if !is_last {
            return Ok(None);
        }
        let scores = std::mem::take(&mut answer.scores);
        self.decode(index)?;
        Ok(is_scored.then_some(Event::Prompt(scores)))
    }

    /// Begins the choices whose prompt is read, or continues a paused answer. Choices for which there is no session wait for one.
    fn decode(&mut self, index: usize) -> Result<()> {
        let room = self.max_sessions.saturating_sub(self.answers.len());
        let Self { model, tokenizer, answers, paused, turn, grammar_threads, .. } = self;
        let Some(answer) = answers.get_mut(index) else { return Ok(()) };
        let nothing = Phase::Prefill(Next::Begin(0..0));
        let choices = match std::mem::replace(&mut answer.phase, nothing) {
            Phase::Prefill(Next::Begin(choices)) => choices,
            Phase::Prefill(Next::GoOn { choice, generator, .. }) | Phase::Decode { choice, generator } => {
                answer.phase = Phase::Decode { choice, generator };
                return Ok(());
            }
        };
        let (job, cached) = (answer.job.clone(), answer.cached);
        let mut others = Vec::new();
        let mut next = choices.start + 1;
        while next < choices.end && others.len() < room {
            let mut session = match answer.session.fork() {
                Ok(session) => session,
                // A program with one session.
                Err(Error::NotSupported(_)) => break,
                Err(error) => return Err(error),
            };
            let (phase, prepared) = begin((&mut *model, &mut session, tokenizer), &job, next, grammar_threads)?;
            others.push(Answer {
                session,
                job: job.clone(),
                phase,
                cached,
                scores: Vec::new(),
                prefill: Duration::ZERO,
                stalled: None,
                turns: 0,
                latest: *turn,
                prepared,
            });
            next += 1;
        }
        (answer.phase, answer.prepared) =
            begin((model, &mut answer.session, tokenizer), &job, choices.start, grammar_threads)?;
        answer.turns = 0;
        answers.extend(others);
        if next < choices.end {
            let next = Next::Begin(next..choices.end);
            paused.push(Paused { job, next, cached: Some(cached), prefill: Duration::ZERO, stalled: None });
        }
        self.drop_surplus(0);
        Ok(())
    }
}

/// True if the session has this adapter. `None` stands for a session without one.
fn has_adapter(session: &Session, adapter: Option<&Adapter>) -> bool {
    match (session.adapter(), adapter) {
        (Some(own), Some(adapter)) => own.is_same(adapter),
        (own, adapter) => own.is_none() && adapter.is_none(),
    }
}

/// The identity of an answer among those with a session: its job, and its first choice.
type Id = (usize, usize);

impl Answer {
    fn id(&self) -> Id {
        let choice = match &self.phase {
            Phase::Prefill(Next::Begin(choices)) => choices.start,
            Phase::Prefill(Next::GoOn { choice, .. }) | Phase::Decode { choice, .. } => *choice,
        };
        (Arc::as_ptr(&self.job).addr(), choice)
    }

    /// The answer as admission sees it.
    fn running(&self) -> Running {
        let may_pause = match self.phase {
            Phase::Prefill(_) => true,
            Phase::Decode { .. } if self.prepared.is_some() => false,
            Phase::Decode { .. } => self.is_stalled() || self.turns >= QUANTUM,
        };
        Running { tenant: self.job.tenant, loss: may_pause.then(|| self.session.position()) }
    }

    /// Takes the constraint back from the thread that prepares it. Returns false while the thread works.
    fn take_back(&mut self) -> std::result::Result<bool, Refusal> {
        let (Phase::Decode { generator, .. }, Some(prepared)) = (&mut self.phase, &self.prepared) else {
            return Ok(true);
        };
        match prepared.try_recv() {
            Ok(constraint) => generator.constrain(constraint),
            Err(mpsc::TryRecvError::Empty) => return Ok(false),
            // The thread panicked.
            Err(mpsc::TryRecvError::Disconnected) => return Err(defect()),
        }
        self.prepared = None;
        Ok(true)
    }

    /// True if the client does not read its answer.
    fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }
}

/// Starts an answer at the session's position. Returns its phase, and its constraint if a thread prepares it. Each choice has its own
/// seed.
fn begin(
    (model, session, tokenizer): (&mut Model, &mut Session, &Tokenizer),
    job: &Job,
    choice: usize,
    grammar_threads: &Arc<()>,
) -> Result<(Phase, Option<mpsc::Receiver<Constraint>>)> {
    let mut generation = job.generation.clone();
    generation.sampling.seed = generation.sampling.seed.wrapping_add(choice as u64);
    let mut generator = Generator::start(model, session, tokenizer, &[], generation)?;
    if let Some(constraint) = &job.constraint {
        generator.constrain(constraint.clone());
    }
    let prepared = prepare(&mut generator, grammar_threads);
    Ok((Phase::Decode { choice, generator: Box::new(generator) }, prepared))
}

/// Prepares an answer's constraint in another thread while the model computes, if that takes long or its time is not known yet. `threads`
/// counts these threads: they end after their work, even if the client has left.
fn prepare(generator: &mut Generator, threads: &Arc<()>) -> Option<mpsc::Receiver<Constraint>> {
    /// Time that is longer than a thread takes to start.
    const LONG: Duration = Duration::from_micros(500);
    /// Maximum number of threads. Beyond it, the model's thread prepares constraints.
    const MAX_THREADS: usize = 8;
    let constraint = generator.take_constraint()?;
    let is_short = constraint.preparation().is_some_and(|took| took < LONG);
    if is_short || Arc::strong_count(threads) > MAX_THREADS {
        generator.constrain(constraint);
        return None;
    }
    // A thread that does not start leaves it there.
    let slot = Arc::new(Mutex::new(Some(constraint)));
    let (sender, prepared) = mpsc::channel();
    let (in_thread, counted) = (slot.clone(), threads.clone());
    let work = move || {
        yield_to_answers();
        if let Some(mut constraint) = taken(&in_thread) {
            constraint.prepare();
            // Nobody receives it if the client has left.
            let _ = sender.send(constraint);
        }
        drop(counted);
    };
    if std::thread::Builder::new().name("rushlight-grammar".to_owned()).spawn(work).is_ok() {
        return Some(prepared);
    }
    taken(&slot).into_iter().for_each(|constraint| generator.constrain(constraint));
    None
}

fn taken(slot: &Mutex<Option<Constraint>>) -> Option<Constraint> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}
