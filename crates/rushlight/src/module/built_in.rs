//! The backends that come with this build, as far as a module needs them.

#[cfg(feature = "_backends")]
pub(super) use crate::backends::{Blobs, Host, declared, run_half, running};
#[cfg(not(feature = "_backends"))]
pub(super) use none::{Blobs, Host, declared, run_half, running};

/// A build without backends: a module has the caller's own.
#[cfg(not(feature = "_backends"))]
mod none {
    use std::sync::Arc;

    use rushlight_format::pte::Plan;
    use rushlight_runtime::Backend;

    use crate::backend_options::Declared;
    use crate::error::Error;

    #[derive(Default)]
    pub struct Host;

    pub type Blobs = ();
    type Running = Box<dyn Backend + Send>;

    pub fn declared<'a>() -> impl Iterator<Item = Declared<'a>> + Clone {
        std::iter::empty()
    }

    pub fn running(_: Option<Plan<'_>>, _: &Host, _: &Arc<Blobs>) -> Result<Vec<Running>, Error> {
        Ok(Vec::new())
    }

    pub fn run_half(_: &str, _: &Host) -> Option<Result<Running, Error>> {
        None
    }
}
