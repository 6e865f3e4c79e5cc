//! Engines that hold a model, measured in turns.

use std::time::Duration;

use anyhow::Result;

use super::engines::Session;
use crate::interleaved::{in_turns, median};
use crate::others::Others;

pub const ROUNDS: usize = 7;
pub const TURN: Duration = Duration::from_millis(120);
const CALLS: usize = 2;

/// Untimed work at the start of a turn, since others have just used the caches and an engine's threads slept.
const WARM_UP: Duration = Duration::from_millis(30);

/// What takes turns, each with the place of its time in a table.
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

    /// The nanoseconds of an execution for each place, and how many cores other programs kept busy meanwhile.
    pub fn measure(&mut self) -> Result<(Vec<(P, f64)>, f64)> {
        let others = Others::than(self.sessions.iter().map(|session| session.peer.id()))?;
        let medians = in_turns(ROUNDS, median, self.sessions.len(), |side| {
            let peer = &mut self.sessions[side].peer;
            peer.time(1, WARM_UP)?;
            peer.time(CALLS, TURN)
        })?;
        Ok((self.places.iter().copied().zip(medians).collect(), others.cores()?))
    }
}
