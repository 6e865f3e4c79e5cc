//! What became of a model's products.

use std::fmt;

use serde::Serialize;

use super::scheme::{Observer, Rounding, Scheme};

/// What a quantization did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub scheme: Scheme,
    pub observer: Observer,
    pub rounding: Rounding,
    /// Inputs that it saw, over all methods.
    pub samples: usize,
    /// The worst first: by signal-to-noise, those in floats last.
    pub layers: Vec<LayerReport>,
    /// Of the outputs that are floats, in dB; `None` without inputs to compare with.
    pub output_snr: Option<f64>,
}

/// What became of a layer.
#[derive(Clone, Debug, Serialize)]
pub struct LayerReport {
    pub method: String,
    /// The path of the module, or else the name of the node.
    pub name: String,
    /// Full name of the operator.
    pub op: String,
    /// The line of Python, if known.
    pub source: Option<String>,
    /// Of its weights.
    pub sizes: Vec<usize>,
    /// Why it computes in floats, if it does.
    pub kept: Option<String>,
    /// Of its weights: in floats, and as integers with scales of 32 bits, of which a back end may keep fewer.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Of its weights against their rounding, in dB.
    pub weight_snr: Option<f64>,
    /// Of its results against those with rounded weights and inputs, in dB; `None` without a calibration.
    pub snr: Option<f64>,
    /// The range that its inputs are rounded within, if it is known before the program runs.
    pub range: Option<(f32, f32)>,
}

impl LayerReport {
    /// What says how good it is: its results if a calibration showed them, or else its weights.
    pub fn quality(&self) -> Option<f64> {
        self.snr.or(self.weight_snr)
    }
}

impl Report {
    /// Bytes of the weights of all layers: in floats, and as they are written.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |of: fn(&LayerReport) -> u64| self.layers.iter().map(of).sum();
        (sum(|layer| layer.bytes_before), sum(|layer| layer.bytes_after))
    }

    /// How many layers compute in integers.
    pub fn quantized(&self) -> usize {
        self.layers.iter().filter(|layer| layer.kept.is_none()).count()
    }

    /// Sorts the layers, the worst first.
    pub(super) fn sort(&mut self) {
        let key = |layer: &LayerReport| (layer.kept.is_some(), layer.quality().unwrap_or(f64::INFINITY));
        self.layers.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    }
}

/// A ratio of squares in dB; infinite where there is no noise. `None` where there is no signal either, or it is no number.
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

/// What became of the whole, then a line for each layer, the worst first.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.bytes();
        let (quantized, layers) = (self.quantized(), self.layers.len());
        writeln!(f, "scheme {}, weights rounded to {}", self.scheme.name(), self.rounding.name())?;
        if self.scheme.is_static() {
            writeln!(f, "ranges of activations by {}", self.observer.name())?;
        }
        writeln!(f, "{quantized} of {layers} layers quantized, {} inputs seen", self.samples)?;
        let share = 100.0 * after as f64 / before.max(1) as f64;
        let kilobytes = |bytes: u64| bytes as f64 / 1e3;
        writeln!(f, "weights of layers {:.1} kB -> {:.1} kB ({share:.1} %)", kilobytes(before), kilobytes(after))?;
        if self.output_snr.is_some() {
            writeln!(f, "outputs {}", Decibels(self.output_snr))?;
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
