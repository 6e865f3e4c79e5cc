//! The core and the runtime that a program is compiled for.

/// A core of a microcontroller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Core {
    /// Cortex-M0, M0+ and M23.
    M0Plus,
    M3,
    #[default]
    M4,
    M7,
    M33,
    M55,
    M85,
    /// RISC-V with 32 bits.
    Rv32,
}

/// The vector instructions of a core. CMSIS-NN has a set of kernels for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    Scalar,
    Dsp,
    Mve,
}

/// The runtime that runs a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtime {
    #[default]
    Rushlight,
    ExecuTorch,
}

/// The core and the runtime that a program is compiled for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub core: Core,
    pub runtime: Runtime,
}

impl Core {
    /// The names of all cores, the default first.
    pub const NAMES: &'static [&'static str] = &["m4", "m0+", "m3", "m7", "m33", "m55", "m85", "rv32"];

    /// The core with a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "m0+" => Self::M0Plus,
            "m3" => Self::M3,
            "m4" => Self::M4,
            "m7" => Self::M7,
            "m33" => Self::M33,
            "m55" => Self::M55,
            "m85" => Self::M85,
            "rv32" => Self::Rv32,
            _ => return None,
        })
    }
}

impl Runtime {
    /// The names of all runtimes, the default first.
    pub const NAMES: &'static [&'static str] = &["rushlight", "executorch"];

    /// The runtime with a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "rushlight" => Self::Rushlight,
            "executorch" => Self::ExecuTorch,
            _ => return None,
        })
    }
}

impl Target {
    pub(crate) const fn isa(self) -> Isa {
        match self.core {
            Core::M0Plus | Core::M3 | Core::Rv32 => Isa::Scalar,
            Core::M4 | Core::M7 | Core::M33 => Isa::Dsp,
            Core::M55 | Core::M85 => Isa::Mve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_read_and_the_first_is_the_default() {
        assert!(Core::NAMES.iter().all(|name| Core::of_name(name).is_some()));
        assert!(Runtime::NAMES.iter().all(|name| Runtime::of_name(name).is_some()));
        assert_eq!(Core::of_name(Core::NAMES[0]), Some(Core::default()));
        assert_eq!(Runtime::of_name(Runtime::NAMES[0]), Some(Runtime::default()));
    }
}
