//! The settings of a quantization.

use std::num::NonZeroUsize;
use std::str::FromStr;

use rushlight_compiler::quantization::Scheme;
use rushlight_graph::{Error, Progress};
use serde::{Serialize, Serializer};

/// Settings of a quantization.
#[derive(Clone, Debug)]
pub struct Settings {
    pub scheme: Scheme,
    pub observer: Observer,
    pub rounding: Rounding,
    /// Bits of the tables of embeddings, 4 or 8; they stay floats if `None`.
    pub embedding_bits: Option<u32>,
    /// Patterns of the names of modules whose layers stay floats; `*` matches any text. A name also stands for
    /// everything inside the module.
    pub keep: Vec<String>,
    /// True if the biases of convolutions are corrected for the shift that rounding causes in the means of their
    /// results. The calibration measures this shift. The biases of linear layers stay, because their rows often include
    /// irrelevant ones, such as padding.
    pub bias_correction: bool,
    /// Minimum signal-to-noise ratio of the outputs, in dB. The worst layers stay floats until it is reached.
    pub min_snr: Option<f64>,
    /// Number of threads; the machine's if `None`.
    pub threads: Option<NonZeroUsize>,
    /// Progress of the quantization, which can be cancelled.
    pub progress: Progress,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheme: Scheme::default(),
            observer: Observer::default(),
            rounding: Rounding::default(),
            embedding_bits: None,
            keep: Vec::new(),
            bias_correction: true,
            min_snr: None,
            threads: None,
            progress: Progress::default(),
        }
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
        impl FromStr for $type {
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
    Observer, "observer";
    Rounding, "rounding of weights";
}

fn named<T: Copy>(what: &str, name: &str, all: &[T], of: fn(T) -> &'static str) -> Result<T, Error> {
    all.iter().copied().find(|known| of(*known) == name).ok_or_else(|| {
        let known: Vec<String> = all.iter().map(|known| format!("`{}`", of(*known))).collect();
        Error::unsupported(format!("no {what} has this name")).expected(known.join(", ")).got(format!("`{name}`"))
    })
}
