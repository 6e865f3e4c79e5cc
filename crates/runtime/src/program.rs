//! A parsed program together with the bytes that it reads.

#[cfg(feature = "alloc")]
use alloc::sync::Arc;

use rushlight_format as format;

use crate::error::Result;
use crate::fault::Fault;
#[cfg(feature = "alloc")]
use crate::memory::{SharedBytes, StableBytes};

/// A program, ready to load methods from. Cheap to clone and shared between threads.
///
/// `'p` is the lifetime of the bytes; a program that [owns](Self::from_owned) them is a `Program<'static>`.
#[derive(Clone)]
pub struct Program<'p> {
    parsed: format::Program<'p>,
    #[cfg(feature = "alloc")]
    owner: Option<SharedBytes>,
}

impl<'p> Program<'p> {
    /// Parses and verifies a `.pte` file. Constants are used in place, so `bytes` must be aligned to 16 for most
    /// programs; loading a method checks it.
    pub fn parse(bytes: &'p [u8]) -> Result<Self> {
        Ok(Self {
            parsed: format::Program::parse(bytes)?,
            #[cfg(feature = "alloc")]
            owner: None,
        })
    }

    /// The parsed file, for inspection.
    pub fn parsed(&self) -> format::Program<'_> {
        self.parsed
    }

    pub fn num_methods(&self) -> usize {
        self.parsed.num_methods()
    }

    /// Name of a method by its position in the file.
    pub fn method_name(&self, index: usize) -> Option<&str> {
        self.parsed.method(index).map(|plan| plan.name())
    }

    pub(crate) fn plan(&self, name: &str) -> Result<format::pte::Plan<'p>> {
        self.parsed.method_named(name).ok_or_else(|| Fault::NoMethod.into())
    }

    pub(crate) fn inner(&self) -> &format::Program<'p> {
        &self.parsed
    }

    #[cfg(feature = "alloc")]
    pub(crate) fn owner(&self) -> Option<SharedBytes> {
        self.owner.clone()
    }
}

#[cfg(feature = "alloc")]
impl Program<'static> {
    /// Parses a program that keeps its bytes alive, as do the methods loaded from it.
    pub fn from_owned(bytes: Arc<dyn StableBytes>) -> Result<Self> {
        let owner = SharedBytes::new(bytes);
        let parsed = owner.with(format::Program::parse)?;
        Ok(Self { parsed, owner: Some(owner) })
    }
}

impl core::fmt::Debug for Program<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Program").field("methods", &self.num_methods()).finish_non_exhaustive()
    }
}
