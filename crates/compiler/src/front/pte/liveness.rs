//! Liveness: the values that are still read after a part of a method.

use std::collections::HashSet;

use rushlight_format::pte::ValueModel;

use rushlight_graph::Error;

use super::method::Method;
use super::scope::Place;

/// Places and numbers that are read later.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub places: HashSet<Place>,
    pub numbers: HashSet<u32>,
}

impl Method<'_, '_> {
    /// Finds the values that are read after instruction `end` before they are written. The control flow of instruction
    /// `at` ends at `end`. The result may have more values than are read, never fewer.
    pub(super) fn live_after(&mut self, at: usize, end: usize) -> Result<Live, Error> {
        let mut live = Live::default();
        let last = self.accesses.len();
        self.read_later(&mut live, at, end, last)?;
        for region in self.regions.loops_around(at).collect::<Vec<_>>() {
            self.read_later(&mut live, at, region.start, at)?;
        }
        let ends = self.plan.outputs.iter().copied().chain(self.kept().collect::<Vec<_>>());
        for value in ends.collect::<Vec<_>>() {
            self.note(value, &mut live, &Live::default());
        }
        Ok(live)
    }

    fn read_later(&mut self, live: &mut Live, at: usize, start: usize, end: usize) -> Result<(), Error> {
        self.spend(end.saturating_sub(start) as u64)?;
        let mut killed = Live::default();
        for index in start..end {
            let Some(access) = self.accesses.get(index) else { break };
            for value in access.reads.iter().chain(&access.stack) {
                self.note(*value, live, &killed);
            }
            // An instruction that may be skipped does not overwrite for certain.
            if self.regions.runs_with(index, at) {
                for value in &access.writes {
                    self.note(*value, &mut killed, &Live::default());
                }
            }
        }
        Ok(())
    }

    fn note(&self, value: u32, to: &mut Live, except: &Live) {
        if let Some(ValueModel::Tensor(_)) = self.plan.values.get(value as usize) {
            if let Ok(Some(place)) = self.place(value)
                && !except.places.contains(&place)
            {
                to.places.insert(place);
            }
        } else if !except.numbers.contains(&value) {
            to.numbers.insert(value);
        }
    }
}
