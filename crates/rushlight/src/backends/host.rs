//! The resources of the machine that a module uses: threads, and devices, which are opened once.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;

/// The machine that run-time halves compute on.
#[derive(Default)]
pub(crate) struct Host {
    /// Number of threads of a call, the caller's included; the number that the machine runs at once if `None`.
    pub threads: Option<usize>,
    /// The devices that run-time halves opened, by type.
    devices: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Host {
    /// Returns the device of a type. `open` opens it at the first call.
    ///
    /// # Errors
    /// Those of `open`. The next call tries again.
    #[allow(dead_code, reason = "backends open devices, and a build may have none")]
    pub fn device<D: Any + Send + Sync>(&self, open: impl FnOnce() -> Result<D, Error>) -> Result<Arc<D>, Error> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.get(&TypeId::of::<D>()).cloned().and_then(|device| device.downcast().ok()) {
            return Ok(device);
        }
        let device = Arc::new(open()?);
        devices.insert(TypeId::of::<D>(), device.clone());
        Ok(device)
    }
}

/// Default number of threads of a call: the number that the machine runs at once.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_opened_once() {
        let host = Host::default();
        assert!(host.device::<u8>(|| Err(Error::invalid("no such device"))).is_err());
        let first = host.device(|| Ok(1_u8)).unwrap();
        let again = host.device(|| Ok(2_u8)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!((*first, *host.device(|| Ok(3_u16)).unwrap()), (1, 3));
    }
}
