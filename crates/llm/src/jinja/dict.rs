//! Dicts: entries in the order of their insertion, found by Python's hash and equality.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;

use super::failure::{Result, fail};
use super::meter::{MAX_VALUE_DEPTH, Meter};
use super::operators::equal;
use super::value::{OVERHEAD, Value};

#[derive(Debug)]
pub(super) struct Dict {
    entries: Vec<(Value, Value)>,
    /// Places of entries by their hash.
    places: HashMap<u64, Vec<usize>>,
    depth: u32,
    meter: Rc<Meter>,
}

/// Bytes of an entry.
const ENTRY: usize = 2 * size_of::<Value>() + OVERHEAD;

impl Drop for Dict {
    fn drop(&mut self) {
        self.meter.give(self.entries.len() * ENTRY + OVERHEAD);
    }
}

impl Dict {
    pub(super) fn new(meter: &Rc<Meter>) -> Result<Self> {
        meter.take(OVERHEAD)?;
        Ok(Self { entries: Vec::new(), places: HashMap::new(), depth: 1, meter: meter.clone() })
    }

    /// A copy, whose values are the same.
    pub(super) fn copy(&self) -> Result<Self> {
        self.meter.steps(self.entries.len())?;
        let mut copy = Self::new(&self.meter)?;
        self.meter.take(self.entries.len() * ENTRY)?;
        (copy.entries, copy.places, copy.depth) = (self.entries.clone(), self.places.clone(), self.depth);
        Ok(copy)
    }

    /// Sets the value of a key. The place of a known key stays.
    pub(super) fn insert(&mut self, key: Value, value: Value) -> Result<()> {
        let hash = hash(&key, &self.meter)?;
        let depth = key.depth().max(value.depth()) + 1;
        if depth > MAX_VALUE_DEPTH {
            fail!("a value is nested deeper than {MAX_VALUE_DEPTH} levels, which is the limit");
        }
        let place = self.place(hash, &key)?;
        self.depth = self.depth.max(depth);
        match place.and_then(|place| self.entries.get_mut(place)) {
            Some(entry) => entry.1 = value,
            None => {
                self.meter.take(ENTRY)?;
                self.places.entry(hash).or_default().push(self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &Value) -> Result<Option<&Value>> {
        let place = self.place(hash(key, &self.meter)?, key)?;
        Ok(place.and_then(|place| self.entries.get(place)).map(|(_, value)| value))
    }

    /// The value of a key that is a string.
    pub(super) fn get_str(&self, key: &str) -> Result<Option<&Value>> {
        let hash = hash_str(key, &self.meter)?;
        for place in self.places.get(&hash).into_iter().flatten() {
            self.meter.bytes(key.len())?;
            if let Some((known, value)) = self.entries.get(*place)
                && known.as_str() == Some(key)
            {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn place(&self, hash: u64, key: &Value) -> Result<Option<usize>> {
        for place in self.places.get(&hash).into_iter().flatten() {
            if let Some((known, _)) = self.entries.get(*place)
                && equal(known, key, &self.meter)?
            {
                return Ok(Some(*place));
            }
        }
        Ok(None)
    }

    pub(super) fn entry(&self, index: usize) -> Option<&(Value, Value)> {
        self.entries.get(index)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &(Value, Value)> {
        self.entries.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }
}

fn hash_str(text: &str, meter: &Meter) -> Result<u64> {
    meter.bytes(text.len())?;
    Ok(meter.hasher.hash_one(text))
}

/// The hash of a value, which is the same for equal ones.
pub(super) fn hash(value: &Value, meter: &Meter) -> Result<u64> {
    Ok(match value {
        Value::Text(text) => hash_str(text, meter)?,
        Value::Undefined(_) => 1,
        Value::None => 2,
        Value::Bool(_) | Value::Int(_) => meter.hasher.hash_one(value.as_int()),
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 1e38 => {
            meter.hasher.hash_one(Some(*float as i128))
        }
        Value::Float(float) => meter.hasher.hash_one(float.to_bits()),
        Value::Tuple(items) => {
            let _level = meter.deeper()?;
            meter.steps(items.len())?;
            let mut hasher = meter.hasher.build_hasher();
            for item in items.iter() {
                hash(item, meter)?.hash(&mut hasher);
            }
            hasher.finish()
        }
        Value::Range(range) => meter.hasher.hash_one(range.len()),
        Value::Function(_) | Value::Namespace(_) | Value::Loop(_) | Value::Generator(_) => 3,
        Value::List(_) | Value::Dict(_) | Value::View(..) => fail!("unhashable type: '{}'", value.type_name()),
    })
}
