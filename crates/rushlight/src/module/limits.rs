//! The peak rates of the devices that a module computes on.

use rushlight_runtime::{Backend, Code, Limits};

use super::Module;
use super::builder::declared;
use super::built_in;
use crate::clock::HAS_CLOCK;
use crate::error::Error;

/// The peak rates of the device of a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceLimits {
    /// The name of the backend in programs.
    pub backend: String,
    /// The device and its settings, such as `avx512, threads: 2`; empty if the backend does not tell.
    pub device: String,
    pub limits: Limits,
}

impl Module {
    /// Measures the peak rates of the device of a backend, to compare the times of its steps with. `id` is its name in
    /// programs, which events have. Takes about a fifth of a second for the CPU. `None` if the backend measures nothing.
    ///
    /// # Errors
    /// `NotFound` if the module has no such backend; `NotSupported` if the system has no clock; those of opening the device.
    pub fn measure_limits(&self, id: &str) -> Result<Option<DeviceLimits>, Error> {
        if !HAS_CLOCK {
            return Err(Error::new(Code::NotSupported, "this system has no clock, so that nothing can be measured"));
        }
        let of = |backend: &dyn Backend| {
            let limits = backend.limits()?;
            let device = backend.device().unwrap_or_default().to_owned();
            Some(DeviceLimits { backend: backend.id().to_owned(), device, limits })
        };
        if let Some(own) = self.options.backends.iter().find(|own| own.id() == id) {
            return Ok(of(&**own));
        }
        if let Some(half) = built_in::run_half(id, &self.options.host) {
            return Ok(of(&*half?));
        }
        let known = declared(&self.options.backends).map(|known| format!("`{}`", known.id));
        let known = known.collect::<Vec<_>>().join(", ");
        Err(Error::new(Code::NotFound, format!("the module has no backend `{id}`")).expected(known))
    }
}
