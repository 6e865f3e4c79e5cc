//! Schemes of quantization, observers and rounding.

use serde::{Serialize, Serializer};

use rushlight_graph::Error;

/// The quantization of convolutions and linear layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Weights and activations of 8 bits. Scales of activations are chosen from the inputs of a calibration, and the
    /// operators between layers are computed in integers as well.
    #[default]
    Int8,
    /// Weights of 8 bits by channel, and activations of 8 bits, whose scales are chosen when the program runs: for each
    /// row of a linear layer, and for all that a convolution sees.
    Int8Dynamic,
    /// Likewise for linear layers alone, with weights of 4 bits in groups.
    FourBitDynamic,
    /// Linear layers: weights of 4 bits in groups, activations in floats.
    Int4,
    /// Linear layers: weights of 8 bits by channel, activations in floats.
    Int8Weight,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Int8, Self::Int8Dynamic, Self::FourBitDynamic, Self::Int4, Self::Int8Weight];

    /// The name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int8Dynamic => "int8-dynamic",
            Self::FourBitDynamic => "8da4w",
            Self::Int4 => "int4",
            Self::Int8Weight => "int8-weight",
        }
    }

    /// True if the operators between layers are computed in integers as well, with scales that are chosen before the program
    /// runs.
    pub const fn is_static(self) -> bool {
        matches!(self, Self::Int8)
    }

    /// True if convolutions become integers, too, rather than linear layers alone.
    pub const fn takes_convolutions(self) -> bool {
        matches!(self, Self::Int8 | Self::Int8Dynamic)
    }

    /// True if weights have four bits.
    pub const fn has_four_bits(self) -> bool {
        matches!(self, Self::FourBitDynamic | Self::Int4)
    }

    /// True if activations are rounded to scales that are chosen when the program runs.
    pub const fn is_dynamic(self) -> bool {
        matches!(self, Self::Int8Dynamic | Self::FourBitDynamic)
    }
}

/// The choice of a tensor's range from a calibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observer {
    /// Minimum and maximum.
    MinMax,
    /// Their averages over the inputs, of which the last ones count most.
    Average,
    /// The range of all but one in ten thousand elements.
    Percentile,
    /// The range whose rounding, and cutting off of what is outside, has the least expected squared error, as a histogram has
    /// it.
    #[default]
    Histogram,
    /// Likewise, but both ends of the range move towards zero together.
    SquaredError,
    /// Of the histogram's, the percentile's and the minimum and maximum, those that the results of the layers that take
    /// the tensor are the nearest with. Each is tried, which takes its time.
    Best,
}

impl Observer {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::MinMax, Self::Average, Self::Percentile, Self::Histogram, Self::SquaredError, Self::Best];

    /// The name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MinMax => "minmax",
            Self::Average => "average",
            Self::Percentile => "percentile",
            Self::Histogram => "histogram",
            Self::SquaredError => "mse",
            Self::Best => "best",
        }
    }
}

/// Rounding of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, with a scale that the maximum weight of each group just fits.
    Nearest,
    /// The nearest, with the scale of the least squared error.
    #[default]
    SquaredError,
    /// Such scales, and integers that are chosen one after the other so that later ones make up for the error that earlier
    /// ones make on the inputs of a calibration (GPTQ, Frantar et al. 2022).
    Gptq,
}

impl Rounding {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nearest, Self::SquaredError, Self::Gptq];

    /// The name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::SquaredError => "mse",
            Self::Gptq => "gptq",
        }
    }
}

/// Reads a type from its name, and writes it as it.
macro_rules! by_name {
    ($($type:ty, $what:literal;)+) => {$(
        impl std::str::FromStr for $type {
            type Err = Error;

            fn from_str(name: &str) -> Result<Self, Error> {
                named($what, name, &Self::ALL, Self::name)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    )+};
}

by_name! {
    Scheme, "scheme";
    Observer, "observer";
    Rounding, "rounding of weights";
}

fn named<T: Copy>(what: &str, name: &str, all: &[T], of: fn(T) -> &'static str) -> Result<T, Error> {
    all.iter().copied().find(|known| of(*known) == name).ok_or_else(|| {
        let known: Vec<String> = all.iter().map(|known| format!("`{}`", of(*known))).collect();
        Error::unsupported(format!("no {what} has this name")).expected(known.join(", ")).got(format!("`{name}`"))
    })
}
