//! Quantization schemes, observers and rounding.

use serde::{Serialize, Serializer};

use rushlight_graph::Error;

/// The quantization of convolutions and linear layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// 8-bit weights and activations. Scales of activations are chosen from the inputs of a calibration, and the
    /// operators between layers are computed in integers too.
    #[default]
    Int8,
    /// 8-bit weights with a scale per channel, and 8-bit activations with scales that are chosen at run time. A linear
    /// layer has a scale for each row of its input, a convolution one for its whole input.
    Int8Dynamic,
    /// Like `Int8Dynamic`, for linear layers only, with 4-bit weights in groups.
    FourBitDynamic,
    /// Linear layers: 4-bit weights in groups, activations in floats.
    Int4,
    /// Linear layers: 8-bit weights with a scale per channel, activations in floats.
    Int8Weight,
}

impl Scheme {
    /// All schemes.
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

    /// True if the operators between layers are computed in integers too, with scales that are chosen before the
    /// program runs.
    pub const fn is_static(self) -> bool {
        matches!(self, Self::Int8)
    }

    /// True if convolutions are quantized too, not only linear layers.
    pub const fn takes_convolutions(self) -> bool {
        matches!(self, Self::Int8 | Self::Int8Dynamic)
    }

    /// True if weights have 4 bits.
    pub const fn has_four_bits(self) -> bool {
        matches!(self, Self::FourBitDynamic | Self::Int4)
    }

    /// True if the scales of activations are chosen at run time.
    pub const fn is_dynamic(self) -> bool {
        matches!(self, Self::Int8Dynamic | Self::FourBitDynamic)
    }
}

/// The choice of a tensor's range from a calibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observer {
    /// Minimum and maximum.
    MinMax,
    /// The moving averages of minimum and maximum over the inputs; the last ones count most.
    Average,
    /// The range of all but one in ten thousand elements.
    Percentile,
    /// The range with the smallest expected squared error of rounding and clipping, computed from a histogram.
    #[default]
    Histogram,
    /// Like `Histogram`, but both ends of the range move towards zero together.
    SquaredError,
    /// The best of histogram, percentile and minimum and maximum, by the results of the layers that read the tensor.
    /// Each is tried, which takes time.
    Best,
}

impl Observer {
    /// All observers.
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
    /// To the nearest integer, with a scale at which the largest weight of each group just fits.
    Nearest,
    /// To the nearest integer, with the scale that has the smallest squared error.
    #[default]
    SquaredError,
    /// With the same scales as `SquaredError`. The integers are chosen one after the other, so that later ones
    /// compensate for the errors of earlier ones on the inputs of a calibration (GPTQ, Frantar et al. 2022).
    Gptq,
}

impl Rounding {
    /// All kinds of rounding.
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

/// Reads a type from its name, and serializes it as its name.
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
