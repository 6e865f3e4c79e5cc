//! Engines with loaded models, measured in turns.

use std::time::Duration;

use anyhow::Result;

use super::engines::Session;
use crate::interleaved::{in_turns, median};
use crate::others::Others;

pub const ROUNDS: usize = 7;
pub const TURN: Duration = Duration::from_millis(120);

/// Number and duration of the measurements of each side.
pub struct Turns {
    /// Number of rounds, after one warm-up round.
    pub rounds: usize,
    /// Untimed work at the start of a turn. Other engines have just used the caches, and this engine's threads have
    /// slept.
    pub warm_up: Option<Duration>,
    /// Minimum number of calls.
    pub calls: usize,
    pub at_least: Duration,
}

impl Turns {
    pub const SHORT: Self = Self { rounds: ROUNDS, warm_up: Some(Duration::from_millis(30)), calls: 2, at_least: TURN };
}

/// The engines that take turns, each with its place in a table.
pub struct Sides<P> {
    sessions: Vec<Session>,
    places: Vec<P>,
}

impl<P: Copy> Sides<P> {
    pub fn none() -> Self {
        Self { sessions: Vec::new(), places: Vec::new() }
    }

    pub fn add(&mut self, place: P, session: Session) {
        self.sessions.push(session);
        self.places.push(place);
    }

    pub fn sessions(&mut self) -> &mut [Session] {
        &mut self.sessions
    }

    /// Returns the nanoseconds of an execution for each place, and the number of cores that other programs kept busy.
    pub fn measure(&mut self) -> Result<(Vec<(P, f64)>, f64)> {
        self.measure_in(&Turns::SHORT)
    }

    /// Like [`measure`](Self::measure), with other turns.
    pub fn measure_in(&mut self, turns: &Turns) -> Result<(Vec<(P, f64)>, f64)> {
        let others = Others::than(self.sessions.iter().map(|session| session.peer.id()))?;
        let medians = in_turns(turns.rounds, median, self.sessions.len(), |side| {
            let peer = &mut self.sessions[side].peer;
            if let Some(warm_up) = turns.warm_up {
                peer.time(1, warm_up)?;
            }
            peer.time(turns.calls, turns.at_least)
        })?;
        Ok((self.places.iter().copied().zip(medians).collect(), others.cores()?))
    }
}
