//! A build without the compiler: every program runs as its file has it.

use std::sync::Arc;

use rushlight_runtime::StableBytes;

use super::Module;
use crate::error::Error;
use crate::instance::MethodInstance;
use crate::meta::MethodMeta;
use crate::source::LoadMode;

/// There is nothing to choose.
#[derive(Default)]
pub(super) struct Options;

impl Options {
    pub fn check(self) -> Result<Self, Error> {
        Ok(self)
    }

    pub fn start(self, _: LoadMode, _: Arc<dyn StableBytes>, _: Vec<Arc<dyn StableBytes>>) -> Lowering {
        Lowering
    }
}

/// The lowering of a program that is never lowered.
pub(super) struct Lowering;

impl Lowering {
    pub fn forget(&mut self) {}
}

impl Module {
    pub(super) fn lowered_instance(&mut self, _: &MethodMeta, _: bool) -> Option<Result<MethodInstance, Error>> {
        None
    }

    pub(super) fn untranslated(&self, error: Error, _: &str) -> Error {
        error
    }
}
