//! The contents of memory, and the values of numbers, at a point of a method.

use std::collections::{BTreeMap, HashMap};

use rushlight_graph::{Arg, ValueId};

/// The place of a tensor's elements: a memory and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// In planned memory.
    Planned { memory_id: u32, offset: u64 },
    /// Memory of its own: of the caller, empty, or of a handle that was moved.
    Own(u32),
}

/// The content of a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Content {
    /// Bytes at the largest size.
    pub len: u64,
    pub value: ValueId,
    /// The program's value that was written there.
    pub by: u32,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    contents: BTreeMap<Place, Content>,
    /// Numbers that instructions computed.
    pub numbers: HashMap<u32, Arg>,
    /// Tensors whose memory an instruction set.
    pub handles: HashMap<u32, Place>,
    /// Views that were made, by the viewed value and the program's value.
    pub views: HashMap<(ValueId, u32), ValueId>,
}

impl Scope {
    pub fn get(&self, place: Place) -> Option<Content> {
        self.contents.get(&place).copied()
    }

    /// Puts a value in a place, and drops the values that it overlaps.
    pub fn write(&mut self, place: Place, content: Content) {
        self.forget(place, content.len);
        self.contents.insert(place, content);
    }

    /// Drops the values that overlap a range.
    pub fn forget(&mut self, place: Place, len: u64) {
        self.contents.remove(&place);
        let overlapped: Vec<Place> = self.overlapping(place, len).map(|(place, _)| place).collect();
        for place in overlapped {
            self.contents.remove(&place);
        }
    }

    /// True if a range holds a value other than the one that begins at `place`.
    pub fn is_taken(&self, place: Place, len: u64) -> bool {
        self.overlapping(place, len).next().is_some()
    }

    pub fn contents(&self) -> impl Iterator<Item = (Place, Content)> + '_ {
        self.contents.iter().map(|(place, content)| (*place, *content))
    }

    /// Returns a scope with the same views and nothing else.
    pub fn emptied(&self) -> Self {
        Self { views: self.views.clone(), ..Self::default() }
    }

    /// Returns the size of the scope, to bound the work of copying it.
    pub fn weight(&self) -> u64 {
        (self.contents.len() + self.numbers.len() + self.handles.len() + self.views.len()) as u64
    }

    fn overlapping(&self, place: Place, len: u64) -> impl Iterator<Item = (Place, Content)> + '_ {
        let (memory_id, start) = match place {
            Place::Planned { memory_id, offset } => (memory_id, offset),
            Place::Own(_) => (u32::MAX, u64::MAX),
        };
        let end = start.saturating_add(len);
        let (first, last) = (Place::Planned { memory_id, offset: 0 }, Place::Planned { memory_id, offset: end });
        let is_planned = matches!(place, Place::Planned { .. }) && len > 0;
        let before = self.contents.range(first..last).rev().filter(move |_| is_planned);
        // Contents never overlap. So once one ends before the range, all earlier ones do, too.
        before
            .take_while(move |(place, content)| match place {
                Place::Planned { offset, .. } => offset.saturating_add(content.len) > start,
                Place::Own(_) => false,
            })
            .map(|(place, content)| (*place, *content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Place {
        Place::Planned { memory_id: 1, offset }
    }

    fn content(len: u64, value: u32) -> Content {
        Content { len, value: ValueId::new(value), by: value }
    }

    #[test]
    fn a_write_drops_what_it_overlaps() {
        let mut scope = Scope::default();
        scope.write(at(0), content(16, 0));
        scope.write(at(16), content(16, 1));
        scope.write(at(32), content(16, 2));
        scope.write(Place::Planned { memory_id: 2, offset: 8 }, content(16, 3));
        scope.write(Place::Own(0), content(16, 4));
        scope.write(at(8), content(16, 5));
        assert_eq!(scope.get(at(0)), None);
        assert_eq!(scope.get(at(16)), None);
        assert_eq!(scope.get(at(8)), Some(content(16, 5)));
        assert_eq!(scope.get(at(32)), Some(content(16, 2)));
        assert_eq!(scope.contents().count(), 4);
        scope.write(at(8), content(24, 6));
        assert!(scope.is_taken(at(31), 1) && !scope.is_taken(at(0), 8) && scope.is_taken(at(40), 1));
        assert_eq!(scope.contents().count(), 4);
    }
}
