//! The work of one turn of the model, between two tokens of an answer: which answers get a token, and how much of a prompt is read.
//!
//! A unit of work is a token of an answer, or a part of a prompt. Each key has one unit in a turn. If there is one key or none, each
//! tenant has one. More work joins while the turn takes no longer than two of the fastest tenant's tokens. A model that reads its
//! weights once for all answers has room for all in each turn. If each answer adds time, the answers of a tenant take turns, and the
//! answers of others are not slower.

use std::time::Duration;

use crate::fair::Tenant;
use crate::open::Client;

/// Minimum number of a prompt's tokens that are read beside answers.
const MIN_PREFILL: usize = 8;

/// Number of turns after which one has less work, so that the time of an answer by itself is known. At first there are more of them.
const PROBE: u64 = 32;

/// Estimates of the times of calls, from those that were measured.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds of a call, of each answer in it, and of each 1024 tokens before them: recursive least squares with forgetting.
    weights: [f64; 3],
    /// The covariance of the weights.
    covariance: [[f64; 3]; 3],
    /// Number of calls that were measured.
    calls: u64,
    /// Nanoseconds of a prompt's token in the last part, and the number of its tokens.
    prefill: f64,
    prefill_len: usize,
    /// Number of turns with more work than there was room for.
    crowded: u64,
}

impl Default for Pace {
    fn default() -> Self {
        // At first, the time is one of the answers rather than of the call.
        let covariance = [[1.0, 0.0, 0.0], [0.0, 100.0, 0.0], [0.0, 0.0, 100.0]];
        Self { weights: [0.0; 3], covariance, calls: 0, prefill: 0.0, prefill_len: 0, crowded: 0 }
    }
}

/// Answers that get a token in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Call {
    answers: usize,
    /// Positions of all.
    positions: usize,
}

impl Call {
    pub fn add(&mut self, position: usize) {
        self.answers += 1;
        self.positions += position;
    }

    fn with(mut self, position: usize) -> Self {
        self.add(position);
        self
    }

    fn features(self) -> [f64; 3] {
        [1.0, self.answers as f64, self.positions as f64 / 1024.0]
    }
}

/// An answer that can get a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub tenant: Tenant,
    pub position: usize,
    /// The turn in which it had one last.
    pub latest: u64,
}

/// A prompt of which a part can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub tenant: Tenant,
    /// The turn in which a part was read last.
    pub latest: u64,
    /// Maximum number of tokens of a part.
    pub max: usize,
}

/// The work of a turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Indices of answers that get a token.
    pub answers: Vec<usize>,
    /// Number of tokens of the prompt that are read.
    pub prefill: usize,
}

impl Pace {
    /// Notes the time of a call.
    pub fn decoded(&mut self, call: Call, time: Duration) {
        /// Weight of a call beside the next one.
        const FORGETTING: f64 = 0.99;
        /// Maximum uncertainty, beyond which nothing is forgotten.
        const MAX_VARIANCE: f64 = 1e4;
        if call.answers == 0 {
            return;
        }
        let features = call.features();
        let expected = self.estimate(call);
        let mut measured = time.as_nanos() as f64;
        if self.calls >= 8 && expected > 0.0 {
            // A pause of the machine says nothing about the model.
            measured = measured.min(2.0 * expected);
        }
        self.calls += 1;
        let spread = self.covariance.map(|row| row.iter().zip(features).map(|(entry, x)| entry * x).sum::<f64>());
        let variance: f64 = features.iter().zip(spread).map(|(x, entry)| x * entry).sum();
        let variances: f64 = self.covariance.iter().enumerate().filter_map(|(index, row)| row.get(index)).sum();
        let forgetting = if variances < MAX_VARIANCE { FORGETTING } else { 1.0 };
        let scale = forgetting + variance;
        for (weight, entry) in self.weights.iter_mut().zip(spread) {
            // Also below zero: least squares with weights that are clamped one by one diverge.
            *weight += entry / scale * (measured - expected);
        }
        for (row, of_row) in self.covariance.iter_mut().zip(spread) {
            for (entry, of_column) in row.iter_mut().zip(spread) {
                *entry = (*entry - of_row * of_column / scale) / forgetting;
            }
        }
    }

    /// Notes the time in which a part of a prompt was read.
    pub fn prefilled(&mut self, len: usize, time: Duration) {
        if len > 0 {
            (self.prefill, self.prefill_len) = (time.as_nanos() as f64 / len as f64, len);
        }
    }

    /// Nanoseconds of a call.
    fn expected(&self, call: Call) -> f64 {
        self.estimate(call).max(0.0)
    }

    /// As [`expected`](Self::expected); below zero where nothing like the call was measured.
    fn estimate(&self, call: Call) -> f64 {
        self.weights.iter().zip(call.features()).map(|(weight, x)| weight * x).sum()
    }

    /// Number of a prompt's tokens that take `time` nanoseconds.
    fn prefill_in(&self, time: f64, max: usize) -> usize {
        let len = if self.prefill > 0.0 { (time / self.prefill) as usize } else { MIN_PREFILL };
        // At most double, as longer calls take less time for each token.
        len.min(2 * self.prefill_len).max(MIN_PREFILL).min(max)
    }

    /// Chooses the work of a turn.
    pub fn work(&mut self, ready: &[Ready], reading: Option<Reading>) -> Work {
        if ready.is_empty() {
            return Work { answers: Vec::new(), prefill: reading.map_or(0, |reading| reading.max) };
        }
        let first = ready.first().map(|answer| answer.tenant);
        let is_one = |tenant: Tenant| Some(tenant) == first;
        if ready.iter().all(|answer| is_one(answer.tenant)) && reading.is_none_or(|reading| is_one(reading.tenant)) {
            let mut call = Call::default();
            ready.iter().for_each(|answer| call.add(answer.position));
            let prefill = reading.map_or(0, |reading| self.prefill_in(self.expected(call), reading.max));
            return Work { answers: (0..ready.len()).collect(), prefill };
        }
        self.shared(ready, reading)
    }

    /// As [`work`](Self::work), if several tenants have some.
    fn shared(&mut self, ready: &[Ready], reading: Option<Reading>) -> Work {
        // In order of the time that they waited, the longest first.
        let mut order: Vec<usize> = (0..ready.len()).collect();
        order.sort_by_key(|index| ready.get(*index).map(|answer| answer.latest));
        let mut keys = ready.iter().map(|answer| answer.tenant.key).chain(reading.map(|reading| reading.tenant.key));
        let first = keys.next();
        let has_several_keys = keys.any(|key| Some(key) != first);
        // With several keys, all clients of a key are one tenant.
        let unit =
            |tenant: Tenant| if has_several_keys { Tenant { client: Client::default(), ..tenant } } else { tenant };
        let mut units: Vec<Tenant> = Vec::new();
        let mut work = Work::default();
        let mut rest = Vec::new();
        let mut call = Call::default();
        let mut least = f64::INFINITY;
        // A prompt is the unit of its tenant if it has waited for longer than the tenant's answers.
        let is_unit = reading.is_some_and(|reading| {
            let own = ready.iter().filter(|answer| unit(answer.tenant) == unit(reading.tenant));
            own.map(|answer| answer.latest).min().is_none_or(|latest| reading.latest <= latest)
        });
        units.extend(reading.filter(|_| is_unit).map(|reading| unit(reading.tenant)));
        for index in order {
            let Some(answer) = ready.get(index) else { continue };
            least = least.min(self.expected(Call::default().with(answer.position)));
            if units.contains(&unit(answer.tenant)) {
                rest.push((index, *answer));
            } else {
                units.push(unit(answer.tenant));
                call.add(answer.position);
                work.answers.push(index);
            }
        }
        let budget = 2.0 * least;
        // Half a token's time is left for the prompt.
        let most = if is_unit { budget - least / 2.0 } else { budget };
        for (index, answer) in &rest {
            if self.expected(call.with(answer.position)) <= most {
                call.add(answer.position);
                work.answers.push(*index);
            }
        }
        let taken = work.answers.len();
        if let Some(reading) = reading {
            let left = budget - self.expected(call);
            if is_unit {
                work.prefill = self.prefill_in(left.clamp(least / 2.0, least), reading.max);
            } else if self.prefill * MIN_PREFILL as f64 <= left {
                work.prefill = self.prefill_in(left, reading.max);
            }
        }
        if taken < ready.len() {
            self.crowded += 1;
            if self.crowded.is_multiple_of(PROBE) || self.crowded.is_power_of_two() {
                lessen(&mut work, ready, &rest, unit);
            }
        }
        work.answers.sort_unstable();
        work
    }
}

/// Leaves out the tenants of which some answers wait anyway, so that the others' times are known.
fn lessen(work: &mut Work, ready: &[Ready], rest: &[(usize, Ready)], unit: impl Fn(Tenant) -> Tenant) {
    let is_crowded = |index: &usize| {
        let of = ready.get(*index).map(|answer| unit(answer.tenant));
        rest.iter().any(|(_, answer)| Some(unit(answer.tenant)) == of)
    };
    let fewer: Vec<usize> = work.answers.iter().copied().filter(|index| !is_crowded(index)).collect();
    if !fewer.is_empty() {
        work.answers = fewer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(client: u8) -> Tenant {
        Tenant { key: 0, client: Client::of([10, 0, 0, client].into()) }
    }

    /// A machine: nanoseconds of a call, of an answer, of 1024 tokens before it, and of a token of a prompt.
    #[derive(Clone, Copy, Debug)]
    struct Machine([f64; 4]);

    impl Machine {
        fn call(self, positions: &[usize]) -> f64 {
            let [call, answer, before, _] = self.0;
            let before = before * positions.iter().sum::<usize>() as f64 / 1024.0;
            if positions.is_empty() { 0.0 } else { call + answer * positions.len() as f64 + before }
        }
    }

    /// Large models, which take as long for all answers as for one; small models, where each answer adds time; and models in between.
    const MACHINES: [Machine; 4] = [
        Machine([50e6, 0.5e6, 0.2e6, 1e6]),
        Machine([0.02e6, 0.1e6, 0.5e6, 0.05e6]),
        Machine([1e6, 1e6, 0.1e6, 0.5e6]),
        Machine([0.0, 1e6, 0.0, 1e6]),
    ];

    struct Run {
        /// The longest turn after the first hundred, in tokens of the first tenant alone.
        slowest: f64,
        /// Numbers of turns in which each answer had a token, and tokens of the prompt that were read.
        tokens: Vec<usize>,
        read: usize,
    }

    /// The first tenant has one answer, the second `others`, and a prompt if `has_prompt`.
    fn run(machine: Machine, others: usize, has_prompt: bool, turns: u64) -> Run {
        let tenants: Vec<Tenant> = (0..=others).map(|index| tenant(u8::from(index > 0))).collect();
        run_of(machine, &tenants, has_prompt.then(|| tenant(1)), turns)
    }

    /// Each of `tenants` has an answer, and the tenant `prompt` has a prompt.
    fn run_of(machine: Machine, tenants: &[Tenant], prompt: Option<Tenant>, turns: u64) -> Run {
        let mut pace = Pace::default();
        let has_prompt = prompt.is_some();
        let mut ready: Vec<Ready> =
            tenants.iter().map(|tenant| Ready { tenant: *tenant, position: 100, latest: 0 }).collect();
        let mut reading = Reading { tenant: prompt.unwrap_or_default(), latest: 0, max: 256 };
        let mut run = Run { slowest: 0.0, tokens: vec![0; ready.len()], read: 0 };
        for turn in 1..=turns {
            let work = pace.work(&ready, has_prompt.then_some(reading));
            let positions: Vec<usize> = work.answers.iter().map(|index| ready[*index].position).collect();
            let time = machine.call(&positions);
            let mut call = Call::default();
            positions.iter().for_each(|position| call.add(*position));
            pace.decoded(call, Duration::from_nanos(time as u64));
            let prefill = machine.0[3] * work.prefill as f64;
            pace.prefilled(work.prefill, Duration::from_nanos(prefill as u64));
            if work.prefill > 0 {
                reading.latest = turn;
                run.read += work.prefill;
            }
            // The answer of the first tenant is in each turn.
            assert!(work.answers.contains(&0), "turn {turn}");
            for index in work.answers {
                ready[index].latest = turn;
                run.tokens[index] += 1;
            }
            if turn > 100 {
                let alone = machine.call(&[ready[0].position]);
                let one = machine.call(&[ready[1].position]);
                // A part has a minimum.
                let least = machine.0[3] * MIN_PREFILL as f64;
                let bound = alone + one.max(alone).max(if has_prompt { least } else { 0.0 });
                run.slowest = run.slowest.max((time + prefill) / bound);
            }
        }
        run
    }

    /// A turn takes no longer than a token of the one tenant and one of the other, however many answers and prompts that one has.
    #[test]
    fn a_token_waits_for_one_unit_of_another_tenant() {
        for machine in MACHINES {
            for others in [1, 2, 3, 7, 15] {
                for has_prompt in [false, true] {
                    let run = run(machine, others, has_prompt, 1000);
                    let what = format!("{machine:?}, {others} others, a prompt: {has_prompt}");
                    assert!(run.slowest <= 1.1, "{what}: {} of the bound", run.slowest);
                    // All continue.
                    let (least, most) = (run.tokens[1..].iter().min(), run.tokens[1..].iter().max());
                    assert!(
                        least.zip(most).is_some_and(|(least, most)| least * 10 >= *most * 9),
                        "{what}: {:?}",
                        run.tokens
                    );
                    assert!(run.tokens[1] >= 800 / (others + 2), "{what}: {:?}", run.tokens);
                    assert!(!has_prompt || run.read >= MIN_PREFILL * 800 / (others + 2), "{what}: {}", run.read);
                }
            }
        }
    }

    /// Answers start and end at all positions, and times vary by a fifth: the estimates stay near the times.
    #[test]
    fn estimates_do_not_diverge() {
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for machine in MACHINES {
            let mut pace = Pace::default();
            let mut positions = Vec::new();
            for turn in 0..20_000 {
                if turn % 50 == 0 {
                    positions = (0..=random(4)).map(|_| random(4000)).collect();
                }
                positions.iter_mut().for_each(|position| *position += 1);
                let mut call = Call::default();
                positions.iter().for_each(|position| call.add(*position));
                let time = machine.call(&positions);
                let expected = pace.expected(call);
                assert!(turn < 200 || expected < 3.0 * time, "{machine:?}, turn {turn}: {expected} for {time}");
                pace.decoded(call, Duration::from_nanos((time * (0.9 + random(200) as f64 / 1000.0)) as u64));
            }
        }
    }

    /// A token waits for one unit of another key, for any number of its clients.
    #[test]
    fn a_token_waits_for_one_unit_of_another_key() {
        for machine in MACHINES {
            for others in [1, 2, 7, 15] {
                let of = |key, client| Tenant { key, ..tenant(client) };
                let tenants: Vec<Tenant> = (0..=others).map(|index| of(1 + usize::from(index > 0), index)).collect();
                let run = run_of(machine, &tenants, Some(of(2, 1)), 1000);
                assert!(run.slowest <= 1.1, "{machine:?}, {others} others: {} of the bound", run.slowest);
                assert!(run.tokens.iter().all(|tokens| *tokens >= 800 / (usize::from(others) + 2)), "{:?}", run.tokens);
            }
        }
    }

    /// A model that reads its weights once for all answers gives each a token in each turn.
    #[test]
    fn answers_that_cost_nothing_more_are_in_each_turn() {
        for others in [1, 3, 7, 15] {
            let run = run(MACHINES[0], others, false, 1000);
            assert!(run.tokens.iter().all(|tokens| *tokens >= 900), "{:?}", run.tokens);
        }
    }

    /// Answers of one tenant get a token in each turn, whatever it takes; a part of a prompt takes as long as these.
    #[test]
    fn one_tenant_alone_has_all_in_each_turn() {
        let mut pace = Pace::default();
        let ready: Vec<Ready> = (0..8).map(|_| Ready { tenant: tenant(1), position: 10, latest: 0 }).collect();
        let reading = Reading { tenant: tenant(1), latest: 0, max: 256 };
        for _ in 0..100 {
            let work = pace.work(&ready, Some(reading));
            assert_eq!(work.answers, (0..8).collect::<Vec<_>>());
            let mut call = Call::default();
            ready.iter().for_each(|answer| call.add(answer.position));
            pace.decoded(call, Duration::from_millis(8));
            pace.prefilled(work.prefill, Duration::from_micros(100 * work.prefill as u64));
        }
        let work = pace.work(&ready, Some(reading));
        assert!((70..=90).contains(&work.prefill), "{}", work.prefill);
        // Without answers, as much as there may be.
        assert_eq!(pace.work(&[], Some(reading)).prefill, 256);
    }

    /// Pauses of the machine, a hundred times as long as a call, let others add little.
    #[test]
    fn pauses_of_the_machine_change_little() {
        let mut pace = Pace::default();
        let call = Call::default().with(100);
        for turn in 0..1000u64 {
            let time = if turn % 50 == 49 { 100 } else { 1 };
            pace.decoded(call, Duration::from_millis(time));
            assert!(turn < 10 || pace.expected(call) <= 1.5e6, "turn {turn}: {}", pace.expected(call));
        }
    }
}
