//! Data by name: the named data of a program and of `.ptd` files.

#[cfg(feature = "alloc")]
use alloc::sync::Arc;

use rushlight_format::pte::TensorSpec;
use rushlight_format::{self as format, ptd::FlatTensor, ptd::NamedTensor};

use crate::error::{Code, Detail, Error, Result};
use crate::fault::{Checked, Fault, Report};
#[cfg(feature = "alloc")]
use crate::memory::{SharedBytes, StableBytes};

/// A parsed `.ptd` file together with the bytes that it reads.
#[derive(Clone)]
pub struct DataMap<'p> {
    parsed: FlatTensor<'p>,
    /// Function pointers, so that a firmware without data files does not link the code of the lookups.
    find: for<'f> fn(&FlatTensor<'f>, &str) -> Option<NamedTensor<'f>>,
    find_for: for<'f> fn(&FlatTensor<'f>, &TensorSpec<'_>, &str) -> Option<Result<&'f [u8]>>,
    clashes: fn(&FlatTensor<'_>, &NamedData<'_, '_>) -> bool,
    #[cfg(feature = "alloc")]
    owner: Option<SharedBytes>,
}

impl<'p> DataMap<'p> {
    /// Parses and verifies a `.ptd` file. Tensors are used in place, so `bytes` must be aligned to 16.
    pub fn parse(bytes: &'p [u8]) -> Result<Self> {
        let parsed = FlatTensor::parse(bytes).map_err(external)?;
        Ok(Self {
            parsed,
            find,
            find_for,
            clashes,
            #[cfg(feature = "alloc")]
            owner: None,
        })
    }

    /// The parsed file, for inspection.
    pub fn parsed(&self) -> FlatTensor<'_> {
        self.parsed
    }

    pub(crate) fn get(&self, key: &str) -> Option<NamedTensor<'p>> {
        (self.find)(&self.parsed, key)
    }

    #[cfg(feature = "alloc")]
    pub(crate) fn owner(&self) -> Option<SharedBytes> {
        self.owner.clone()
    }
}

#[cfg(feature = "alloc")]
impl DataMap<'static> {
    /// Parses a `.ptd` file that keeps its bytes alive, as do the methods loaded with it.
    pub fn from_owned(bytes: Arc<dyn StableBytes>) -> Result<Self> {
        let owner = SharedBytes::new(bytes);
        let parsed = owner.with(FlatTensor::parse).map_err(external)?;
        Ok(Self { parsed, find, find_for, clashes, owner: Some(owner) })
    }
}

impl core::fmt::Debug for DataMap<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DataMap").finish_non_exhaustive()
    }
}

fn find<'f>(map: &FlatTensor<'f>, key: &str) -> Option<NamedTensor<'f>> {
    map.get(key)
}

/// Returns the data called `key`, or an error if it does not have the layout of the tensor; `None` if the file has no such
/// key.
fn find_for<'f>(map: &FlatTensor<'f>, spec: &TensorSpec<'_>, key: &str) -> Option<Result<&'f [u8]>> {
    let tensor = map.get(key)?;
    if tensor.layout.is_some_and(|layout| !spec.has_layout(&layout)) {
        return Some(Err(Fault::ExternalLayout.into()));
    }
    if tensor.data.len() < spec.nbytes {
        return Some(Err(Error::fault(Fault::ExternalData, spec.nbytes, tensor.data.len())));
    }
    Some(Ok(tensor.data))
}

/// True if one of the `others` has a key of this file.
fn clashes(map: &FlatTensor<'_>, others: &NamedData<'_, '_>) -> bool {
    map.keys().any(|key| others.get(key).is_some())
}

fn external(error: format::FormatError) -> Error {
    Error::new(Code::InvalidExternalData, Detail::Format(error))
}

/// Everything that a method can look up by name.
pub(crate) struct NamedData<'m, 'a> {
    pub(crate) program: &'a format::Program<'m>,
    pub(crate) external: &'a [&'a DataMap<'m>],
}

impl<'m, 'a> NamedData<'m, 'a> {
    /// Every key, the program's first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'m str> + use<'m, 'a> {
        let external = self.external.iter().flat_map(|map| map.parsed.keys());
        self.program.named_data().map(|(key, _)| key).chain(external)
    }

    /// The bytes called `key`. Keys are unique over all sources: see [`is_unique`](Self::is_unique).
    pub(crate) fn get(&self, key: &str) -> Option<&'m [u8]> {
        self.program.named(key).or_else(|| self.external.iter().find_map(|map| map.get(key)).map(|tensor| tensor.data))
    }

    /// The external data called `key` for a tensor. Fails if it has another layout, or there is none.
    pub(crate) fn tensor(&self, spec: &TensorSpec<'_>, key: &str, report: &mut Report) -> Checked<&'m [u8]> {
        for map in self.external {
            if let Some(data) = (map.find_for)(&map.parsed, spec, key) {
                return data.map_err(|error| report.error(error));
            }
        }
        Err(report.plain(Fault::NoExternalData))
    }

    /// False if two sources have the same key.
    pub(crate) fn is_unique(&self) -> bool {
        let mut external = self.external;
        while let [others @ .., map] = external {
            if (map.clashes)(&map.parsed, &NamedData { program: self.program, external: others }) {
                return false;
            }
            external = others;
        }
        true
    }
}

impl core::fmt::Debug for NamedData<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NamedData").field("external", &self.external.len()).finish_non_exhaustive()
    }
}
