//! Data by name: the named data of a program and of `.ptd` files.

#[cfg(feature = "alloc")]
use alloc::sync::Arc;

use rushlight_format::{self as format, ptd::FlatTensor, ptd::NamedTensor};

use crate::error::{Code, Detail, Error, Result};
#[cfg(feature = "alloc")]
use crate::memory::{SharedBytes, StableBytes};

/// A parsed `.ptd` file together with the bytes that it reads.
#[derive(Clone)]
pub struct DataMap<'p> {
    parsed: FlatTensor<'p>,
    /// Pointers, so that a program without data files links nothing that looks into them.
    find: for<'f> fn(&FlatTensor<'f>, &str) -> Option<NamedTensor<'f>>,
    any_key: fn(&FlatTensor<'_>, &dyn Fn(&str) -> bool) -> bool,
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
            any_key,
            #[cfg(feature = "alloc")]
            owner: None,
        })
    }

    /// What the file says, for inspection.
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
        Ok(Self { parsed, find, any_key, owner: Some(owner) })
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

fn any_key(map: &FlatTensor<'_>, test: &dyn Fn(&str) -> bool) -> bool {
    map.keys().any(test)
}

fn external(error: format::FormatError) -> Error {
    Error::new(Code::InvalidExternalData, Detail::Format(error))
}

/// Everything that a method can look up by name.
pub(crate) struct NamedData<'m, 'a> {
    pub(crate) program: format::Program<'m>,
    pub(crate) external: &'a [&'a DataMap<'m>],
}

impl<'m> NamedData<'m, '_> {
    /// The bytes called `key`. Keys are unique over all sources: see [`check_unique`](Self::check_unique).
    pub(crate) fn get(&self, key: &str) -> Option<&'m [u8]> {
        self.program.named(key).or_else(|| self.tensor(key).map(|tensor| tensor.data))
    }

    pub(crate) fn tensor(&self, key: &str) -> Option<NamedTensor<'m>> {
        self.external.iter().find_map(|map| map.get(key))
    }

    /// Fails if two sources have the same key.
    pub(crate) fn check_unique(&self) -> Result<()> {
        for (i, map) in self.external.iter().enumerate() {
            let others = self.external.get(..i).unwrap_or_default();
            let is_taken =
                |key: &str| self.program.named(key).is_some() || others.iter().any(|other| other.get(key).is_some());
            if (map.any_key)(&map.parsed, &is_taken) {
                let text = "two sources of named data have the same key";
                return Err(Error::new(Code::InvalidExternalData, Detail::Text(text)));
            }
        }
        Ok(())
    }
}

impl core::fmt::Debug for NamedData<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NamedData").field("external", &self.external.len()).finish_non_exhaustive()
    }
}
