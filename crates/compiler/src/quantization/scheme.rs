//! Quantization schemes.

use std::str::FromStr;

use rushlight_graph::Error;

use super::spec::{ActivationScales, ActivationSpec, WeightSpec};

/// A choice of users: a name for the quantization of layers and activations. A backend's [`Quantizer`](super::Quantizer) decides the
/// details for each operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme {
    /// The name in options and reports.
    pub name: &'static str,
    /// One line of documentation.
    pub about: &'static str,
    /// True if convolutions are quantized too, not only linear layers.
    pub has_convolutions: bool,
    pub weight: WeightSpec,
    /// The quantization of the layers' inputs; `None` for floats.
    pub activation: Option<ActivationSpec>,
    /// The names of schemes that lose less, for advice.
    pub finer: &'static [&'static str],
}

impl Scheme {
    /// 8-bit weights and activations. Scales of activations are chosen from the inputs of a calibration, and the
    /// operators between layers are computed in integers too.
    pub const INT8: Self = Self {
        name: "int8",
        about: "weights and activations of 8 bits; scales of activations come from the inputs of --calibrate",
        has_convolutions: true,
        weight: WeightSpec::INT8,
        activation: Some(ActivationSpec::INT8),
        finer: &["int8-dynamic"],
    };
    /// 8-bit weights with a scale per channel, and 8-bit activations with scales that are chosen at run time. A linear
    /// layer has a scale for each row of its input, a convolution one for its whole input.
    pub const INT8_DYNAMIC: Self = Self {
        name: "int8-dynamic",
        about: "weights of 8 bits, activations rounded when the program runs: row by row for linear layers",
        activation: Some(ActivationSpec { scales: ActivationScales::PerToken, ..ActivationSpec::INT8 }),
        finer: &["int8-weight"],
        ..Self::INT8
    };
    /// Like `INT8_DYNAMIC`, for linear layers only, with 4-bit weights in groups.
    pub const FOUR_BIT_DYNAMIC: Self = Self {
        name: "8da4w",
        about: "linear layers likewise, with weights of 4 bits in groups of 32",
        has_convolutions: false,
        weight: WeightSpec::INT4,
        finer: &["int8-dynamic", "int8-weight"],
        ..Self::INT8_DYNAMIC
    };
    /// Linear layers: 4-bit weights in groups, activations in floats.
    pub const INT4: Self = Self {
        name: "int4",
        about: "linear layers: weights of 4 bits in groups of 32, activations in floats",
        has_convolutions: false,
        weight: WeightSpec::INT4,
        activation: None,
        finer: &["int8-weight"],
    };
    /// Linear layers: 8-bit weights with a scale per channel, activations in floats.
    pub const INT8_WEIGHT: Self = Self {
        name: "int8-weight",
        about: "linear layers: weights of 8 bits, activations in floats",
        weight: WeightSpec::INT8,
        finer: &[],
        ..Self::INT4
    };

    /// The schemes that users choose by name. The interfaces follow this table.
    pub const ALL: [Self; 5] = [Self::INT8, Self::INT8_DYNAMIC, Self::FOUR_BIT_DYNAMIC, Self::INT4, Self::INT8_WEIGHT];

    /// True if scales of activations are chosen from the inputs of a calibration.
    pub fn is_static(&self) -> bool {
        self.activation.is_some_and(|spec| !spec.is_dynamic())
    }

    /// True if the scales of activations are chosen at run time.
    pub fn is_dynamic(&self) -> bool {
        self.activation.is_some_and(|spec| spec.is_dynamic())
    }
}

impl Default for Scheme {
    fn default() -> Self {
        Self::INT8
    }
}

/// Finds a scheme of [`Scheme::ALL`] by its name.
impl FromStr for Scheme {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|scheme| scheme.name == name).ok_or_else(|| {
            let known = Self::ALL.map(|scheme| format!("`{}`", scheme.name)).join(", ");
            Error::unsupported("no scheme has this name").expected(known).got(format!("`{name}`"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name.parse::<Scheme>().unwrap(), scheme);
            assert!(!scheme.about.is_empty() && !scheme.about.contains('\n'), "{}", scheme.name);
            assert_eq!(scheme.activation.map_or(Ok(()), |spec| spec.check()), Ok(()), "{}", scheme.name);
            let is_known = |name: &&str| name.parse::<Scheme>().is_ok() && *name != scheme.name;
            assert!(scheme.finer.iter().all(is_known), "{}", scheme.name);
        }
        let error = "int3".parse::<Scheme>().unwrap_err().to_string();
        assert!(error.contains("`int8`, `int8-dynamic`") && error.contains("`int3`"), "{error}");
    }
}
