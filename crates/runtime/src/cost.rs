//! The work of a step, and the most that a device can do of it.

/// The work of one call of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Additions and multiplications, counted by the definition of the operator: Winograd's algorithm does fewer. A
    /// transcendental function counts as one.
    pub flops: f64,
    /// Bytes of the tensors that are read and written, each counted once.
    pub bytes: f64,
}

/// Peak rates of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// f32 additions and multiplications per second.
    pub flop_rate: f64,
    /// Bytes read from memory per second. Caches are faster.
    pub byte_rate: f64,
}

/// The binding limit of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Compute,
    Memory,
}

impl Bound {
    /// Returns `compute` or `memory`.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
        }
    }
}

impl Limits {
    /// Returns the fraction of the roofline that a step with these rates reaches, and the binding limit: Williams, Waterman
    /// and Patterson, "Roofline", 2009. It exceeds 1 if data comes from a cache, if the algorithm does fewer operations than
    /// are counted, or with a narrower element type.
    pub fn share(&self, flop_rate: f64, byte_rate: f64) -> (f64, Bound) {
        let of = |rate: f64, limit: f64| if limit > 0.0 { rate / limit } else { 0.0 };
        let (compute, memory) = (of(flop_rate, self.flop_rate), of(byte_rate, self.byte_rate));
        if compute >= memory { (compute, Bound::Compute) } else { (memory, Bound::Memory) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_limit_binds() {
        let limits = Limits { flop_rate: 100.0, byte_rate: 10.0 };
        assert_eq!(limits.share(50.0, 1.0), (0.5, Bound::Compute));
        assert_eq!(limits.share(50.0, 20.0), (2.0, Bound::Memory));
        assert_eq!(Limits { flop_rate: 0.0, byte_rate: 0.0 }.share(1.0, 1.0), (0.0, Bound::Compute));
    }
}
