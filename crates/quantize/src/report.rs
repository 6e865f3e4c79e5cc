//! The report of a quantization.

use std::fmt;

use serde::{Serialize, Serializer};

use rushlight_compiler::quantization::Scheme;

use super::settings::{Observer, Rounding};

/// A report warns of an output whose signal-to-noise ratio, in dB, is below this. The noise of rounding is then more
/// than a tenth of the output's power.
pub const LOW_SNR: f64 = 10.0;

/// Outputs whose signal-to-noise ratio, in dB, is below this are worth the time of proposals. The noise of rounding is then more than
/// three percent of the output.
pub(super) const TYPICAL_SNR: f64 = 30.0;

/// The advice to give a calibration.
pub(super) const GIVE: &str = "give typical inputs as a calibration (`--calibrate`; in Python `calibration=`)";

/// Maximum number of layers or outputs that a warning names.
const NAMED: usize = 3;

/// Settings and outcome of a quantization.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(serialize_with = "name_of")]
    pub scheme: Scheme,
    pub observer: Observer,
    pub rounding: Rounding,
    /// Inputs of the calibration, over all methods.
    pub samples: usize,
    /// The inputs that the scales of activations come from; `None` for a scheme that needs none.
    pub calibrated_on: Option<Inputs>,
    /// The layers, the worst first: by signal-to-noise ratio, those in floats last.
    pub layers: Vec<LayerReport>,
    /// Signal-to-noise ratio of all floating-point outputs together, in dB; `None` if they were not compared.
    pub output_snr: Option<f64>,
    /// The floating-point outputs.
    pub outputs: Vec<OutputReport>,
    /// The inputs of the comparison of layers and outputs; `None` if they were not compared.
    pub compared_on: Option<Inputs>,
    /// The reason why outputs were not compared, if they were not.
    pub not_compared: Option<String>,
    /// Layers that could stay in floats, if the outputs are below 30 dB and no minimum was given. The later proposals keep more.
    pub proposals: Vec<Proposal>,
    /// Warnings about the quality of the quantized model, each with advice.
    pub warnings: Vec<String>,
}

/// Layers that could stay in floats, with the measured effect.
#[derive(Clone, Debug, Serialize)]
pub struct Proposal {
    pub method: String,
    /// The names of the layers, the worst first, as [`Settings::keep`](crate::Settings::keep) takes them.
    pub keep: Vec<String>,
    /// Signal-to-noise ratio of the method's outputs with these layers in floats, in dB.
    pub output_snr: f64,
    /// Bytes of weights that this adds.
    pub bytes: u64,
    /// The part of the layers' multiplications that is in floats then, from 0 to 1.
    pub multiplications: f64,
}

/// `3 more layers in floats: outputs 31.2 dB, weights +1.2 MB, 4 % of the multiplications`.
impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keep, output_snr, bytes, multiplications, .. } = self;
        let s = if keep.len() == 1 { "" } else { "s" };
        let (ratio, kilobytes, share) = (Decibels(Some(*output_snr)), *bytes as f64 / 1e3, 100.0 * multiplications);
        write!(f, "{} more layer{s} in floats: outputs {ratio}, weights +{kilobytes:.1} kB, ", keep.len())?;
        write!(f, "{share:.1} % of the multiplications in floats")
    }
}

fn name_of<S: Serializer>(scheme: &Scheme, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(scheme.name)
}

/// Inputs that a model is run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Inputs {
    /// The inputs of the calibration.
    Calibration,
    /// The example inputs of the export. They measure the deviation of outputs. Scales come from them only if there is no calibration.
    Example,
}

/// The signal-to-noise ratio of an output.
#[derive(Clone, Debug, Serialize)]
pub struct OutputReport {
    pub method: String,
    /// Position among the outputs of the method.
    pub index: usize,
    /// The name among the outputs of the exported function, or else the value's name in the exported program.
    pub name: String,
    /// Signal-to-noise ratio in dB; `None` if both signal and noise are zero.
    pub snr: Option<f64>,
    /// Number of elements that are NaN or infinite here, but finite in floats.
    pub non_finite: u64,
}

impl OutputReport {
    /// True if the output's signal-to-noise ratio is below a limit in dB, or an element became NaN or infinite.
    pub fn is_below(&self, limit: f64) -> bool {
        self.non_finite > 0 || self.snr.is_some_and(|ratio| ratio < limit)
    }
}

/// The outcome for a layer.
#[derive(Clone, Debug, Serialize)]
pub struct LayerReport {
    pub method: String,
    /// The path of the module, or else the name of the node.
    pub name: String,
    /// Full name of the operator.
    pub op: String,
    /// The line of Python source, if known.
    pub source: Option<String>,
    /// Sizes of the weights.
    pub sizes: Vec<usize>,
    /// The reason why the layer stays in floats, if it does.
    pub kept: Option<String>,
    /// Bytes of the weights: in floats, and as integers with 32-bit scales. A backend may store smaller scales.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Signal-to-noise ratio of the rounded weights, in dB.
    pub weight_snr: Option<f64>,
    /// Signal-to-noise ratio of the results with rounded weights and inputs, in dB; `None` if they were not compared.
    pub snr: Option<f64>,
    /// The range of the quantized inputs, if it is known before the program runs.
    pub range: Option<(f32, f32)>,
}

impl LayerReport {
    /// Signal-to-noise ratio of the results if they were compared, or else of the weights.
    pub fn quality(&self) -> Option<f64> {
        self.snr.or(self.weight_snr)
    }
}

impl Report {
    /// Bytes of the weights of all layers: in floats, and in the written program.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |of: fn(&LayerReport) -> u64| self.layers.iter().map(of).sum();
        (sum(|layer| layer.bytes_before), sum(|layer| layer.bytes_after))
    }

    /// Number of quantized layers.
    pub fn quantized(&self) -> usize {
        self.layers.iter().filter(|layer| layer.kept.is_none()).count()
    }

    /// The observer of the ranges of activations, and the inputs that they come from; `None` for a scheme without a calibration.
    pub fn ranges(&self) -> Option<String> {
        let inputs = match self.calibrated_on {
            Some(Inputs::Example) => "the example inputs of the export, without a calibration",
            _ => "the inputs of the calibration",
        };
        self.scheme.is_static().then(|| format!("{}, on {inputs}", self.observer.name()))
    }

    /// Adds a warning if scales come from the example inputs of the export.
    pub(super) fn warn_of_example(&mut self) {
        if self.calibrated_on == Some(Inputs::Example) {
            self.warnings.push(format!(
                "no calibration: the ranges of activations are those of the example inputs of the export, which may be \
                 untypical; {GIVE}"
            ));
        }
    }

    /// Adds a warning that names the outputs that are mostly noise, with advice.
    pub(super) fn warn_of_noise(&mut self) {
        let noisy: Vec<&OutputReport> = self.outputs.iter().filter(|output| output.is_below(LOW_SNR)).collect();
        if noisy.is_empty() {
            return;
        }
        let each = noisy.iter().take(NAMED).map(|output| {
            let several = if self.outputs.len() > 1 {
                format!("output {} `{}`", output.index, output.name)
            } else {
                "the output".to_owned()
            };
            match output.non_finite {
                0 => format!("{several} has a signal-to-noise of {}", Decibels(output.snr)),
                count => format!("{several} has {count} elements that are NaN or infinite, and are not so in floats"),
            }
        });
        let mut text = each.collect::<Vec<_>>().join(", ");
        if noisy.len() > NAMED {
            text += &format!(", and {} more", noisy.len() - NAMED);
        }
        let inputs = match self.compared_on {
            Some(Inputs::Example) => "the example inputs of the export",
            _ => "the inputs of the calibration",
        };
        self.warnings
            .push(format!("{text}, on {inputs}: below {LOW_SNR} dB it is mostly rounding noise; {}", self.advice()));
    }

    /// Adds a warning if the outputs are noisy and no small number of layers is the reason, with a scheme that rounds less.
    pub(super) fn warn_of_spread_noise(&mut self) {
        let is_noisy = self.output_snr.is_some_and(|ratio| (LOW_SNR..TYPICAL_SNR).contains(&ratio));
        let has_parts = self.quantized() > NAMED;
        if is_noisy && has_parts && self.proposals.is_empty() && !self.scheme.finer.is_empty() {
            self.warnings.push(format!(
                "the outputs have a signal-to-noise of {}, and no few layers are the reason; choose the scheme {}",
                Decibels(self.output_snr),
                self.scheme.finer.join(" or ")
            ));
        }
    }

    /// Suggests settings that improve the outputs.
    fn advice(&self) -> String {
        let mut ways = Vec::new();
        let worst = self.layers.iter().filter(|layer| layer.kept.is_none() && layer.quality().is_some());
        let worst: Vec<String> = worst.take(NAMED).map(|layer| format!("`{}`", layer.name)).collect();
        if !worst.is_empty() {
            ways.push(format!("keep the worst layers in floats ({})", worst.join(", ")));
        }
        ways.push(if self.samples > 0 {
            "set a minimum, for which as many layers stay in floats (`--min-snr`; in Python `min_snr=`)".to_owned()
        } else {
            "give a calibration (`--calibrate`) and a minimum, for which as many layers stay in floats (`--min-snr`)"
                .to_owned()
        });
        if self.scheme.weight.bits() <= 4 && self.rounding != Rounding::Gptq {
            ways.push("round weights by gptq".to_owned());
        }
        if !self.scheme.finer.is_empty() {
            ways.push(format!("choose the scheme {}", self.scheme.finer.join(" or ")));
        }
        ways.join(", or ")
    }

    /// Sorts the layers, the worst first.
    pub(super) fn sort(&mut self) {
        let key = |layer: &LayerReport| (layer.kept.is_some(), layer.quality().unwrap_or(f64::INFINITY));
        self.layers.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    }
}

/// A ratio of powers in dB; infinite without noise. `None` if there is no signal either, or a power is NaN.
pub(super) fn decibels(signal: f64, noise: f64) -> Option<f64> {
    let ratio = 10.0 * (signal / noise).log10();
    (!ratio.is_nan()).then_some(ratio)
}

/// `43.2 dB`, `exact` without noise, or a dash.
#[derive(Clone, Copy, Debug)]
pub struct Decibels(pub Option<f64>);

impl fmt::Display for Decibels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ratio) if ratio.is_infinite() => f.pad("exact"),
            Some(ratio) => f.pad(&format!("{ratio:.1} dB")),
            None => f.pad("-"),
        }
    }
}

/// A summary, then a line for each layer, the worst first.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.bytes();
        let (quantized, layers) = (self.quantized(), self.layers.len());
        writeln!(f, "scheme {}, weights rounded to {}", self.scheme.name, self.rounding.name())?;
        if let Some(ranges) = self.ranges() {
            writeln!(f, "ranges of activations by {ranges}")?;
        }
        let seen = self.samples;
        let s = if seen == 1 { "" } else { "s" };
        writeln!(f, "{quantized} of {layers} layers quantized, {seen} input{s} seen")?;
        let share = 100.0 * after as f64 / before.max(1) as f64;
        let kilobytes = |bytes: u64| bytes as f64 / 1e3;
        writeln!(f, "weights of layers {:.1} kB -> {:.1} kB ({share:.1} %)", kilobytes(before), kilobytes(after))?;
        if self.output_snr.is_some() {
            writeln!(f, "outputs {}", Decibels(self.output_snr))?;
        }
        if let Some(reason) = &self.not_compared {
            writeln!(f, "outputs not compared: {reason}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        for proposal in &self.proposals {
            let names: Vec<String> = proposal.keep.iter().map(|name| format!("`{name}`")).collect();
            writeln!(f, "keep {proposal}: {}", names.join(", "))?;
        }
        if self.layers.is_empty() {
            return Ok(());
        }
        let width = self.layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0).max(5);
        writeln!(f, "\n{:>9}  {:>9}  {:>11}  {:width$}  weights", "results", "weights", "bytes", "layer")?;
        for layer in &self.layers {
            let sizes: Vec<String> = layer.sizes.iter().map(ToString::to_string).collect();
            let line = format!(
                "{:>9}  {:>9}  {:>11}  {:width$}  {} [{}]",
                Decibels(layer.snr),
                Decibels(layer.weight_snr),
                layer.bytes_after,
                layer.name,
                layer.op,
                sizes.join(", "),
            );
            writeln!(f, "{line}")?;
            if let Some(reason) = &layer.kept {
                writeln!(f, "{:>35}in floats: {reason}", "")?;
            }
        }
        Ok(())
    }
}
