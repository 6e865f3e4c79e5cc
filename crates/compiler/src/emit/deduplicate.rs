//! The data of constants, each content once.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rushlight_format::Blob;
use rushlight_graph::{Bytes, Constant, ConstantData, Error};
use rustc_hash::{FxHashMap, FxHasher};

/// Data without repetition. Entry 0 means no data.
#[derive(Default)]
pub(super) struct Pool {
    entries: Vec<Arc<Constant>>,
    by_hash: FxHashMap<u64, Vec<u32>>,
}

/// Maximum bytes of data that are read at once. Larger data are read when they are written.
const MAX_EAGER: usize = 1 << 14;

impl Pool {
    /// The index of the data, which are added if they are new.
    pub fn insert(&mut self, constant: &Constant) -> Result<u32, Error> {
        let mut constant = constant.clone();
        if constant.len()? <= MAX_EAGER {
            constant.data = ConstantData::Dense(constant.read()?);
        }
        let mut hasher = FxHasher::default();
        match identity(&constant) {
            Identity::Content(bytes) => bytes.hash(&mut hasher),
            Identity::View(view) => view.hash(&mut hasher),
            Identity::Computed(number) | Identity::Zeros(number) => number.hash(&mut hasher),
        }
        let same = self.by_hash.entry(hasher.finish()).or_default();
        let is_known = |index: &u32| {
            self.entries.get(*index as usize - 1).is_some_and(|entry| identity(entry) == identity(&constant))
        };
        if let Some(known) = same.iter().copied().find(is_known) {
            return Ok(known);
        }
        self.entries.push(Arc::new(constant));
        let index = self.entries.len() as u32;
        same.push(index);
        Ok(index)
    }

    /// The data as a program holds them.
    pub fn into_data(self) -> Vec<Blob<'static>> {
        std::iter::once(Blob::from([].as_slice())).chain(self.entries.into_iter().map(data)).collect()
    }
}

fn data(constant: Arc<Constant>) -> Blob<'static> {
    match constant.in_place() {
        Some(bytes) if bytes.len() <= MAX_EAGER => Blob::from(bytes.to_vec()),
        _ => Blob::Made(constant),
    }
}

/// The identity of a constant's data, compared without reading it.
#[derive(PartialEq)]
enum Identity<'c> {
    Content(Bytes),
    /// Place and length of the storage, and the elements that are picked.
    View((usize, usize, usize, &'c [usize], Vec<usize>, usize)),
    Computed(usize),
    Zeros(usize),
}

fn identity(constant: &Constant) -> Identity<'_> {
    match (constant.in_place(), &constant.data) {
        (Some(bytes), _) => Identity::Content(bytes),
        (None, ConstantData::Strided { storage, offset, strides }) => {
            let sizes = constant.sizes().unwrap_or_default();
            let width = constant.ty.dtype.size();
            Identity::View((storage.as_ptr().addr(), storage.len(), *offset, strides, sizes, width))
        }
        (None, ConstantData::Computed(computed)) => Identity::Computed(Arc::as_ptr(computed).addr()),
        (None, ConstantData::Zeros | ConstantData::Dense(_)) => Identity::Zeros(constant.len().unwrap_or(0)),
    }
}
