//! Proposals of layers to keep in floats.

use rushlight_compiler::quantization::Layer;
use rushlight_graph::Error;

use super::{Outputs, Work};
use crate::noise::{Deviation, Noise};
use crate::report::{Proposal, TYPICAL_SNR};

/// Minimum gain of a proposal, in dB.
const GAIN: f64 = 1.0;

/// Denominators of the shares of layers that are tried in floats.
const PARTS: [usize; 3] = [20, 8, 3];

impl Work<'_> {
    /// Keeps a few of the worst layers in floats, then more of them, and measures what each number gains. `off` has the deviations
    /// of the outputs without any. Returns the numbers that gain something.
    pub(super) fn proposals(&mut self, off: &[Deviation], expected: &[Outputs]) -> Result<Vec<Proposal>, Error> {
        let Some(mut best) = total(off).filter(|ratio| *ratio < TYPICAL_SNR) else { return Ok(Vec::new()) };
        let worst = self.worst_first();
        let mut proposals = Vec::new();
        let mut tried = 0;
        for part in PARTS {
            let count = worst.len().div_ceil(part);
            // All layers in floats are no quantization.
            if count == tried || count == worst.len() {
                continue;
            }
            tried = count;
            let (_, off) = self.with_integers(&worst[count..], expected)?;
            let Some(ratio) = total(&off).filter(|ratio| *ratio >= best + GAIN) else { continue };
            proposals.push(self.proposal(&worst[..count], ratio));
            best = ratio;
            if ratio >= TYPICAL_SNR {
                break;
            }
        }
        Ok(proposals)
    }

    /// `kept` has the calls of each layer, which share its weight.
    fn proposal(&self, kept: &[Vec<Layer>], ratio: f64) -> Proposal {
        let work = |calls: &mut dyn Iterator<Item = &Layer>| -> f64 {
            calls.map(|call| call.k() as f64 * self.noise.get(&call.node).map_or(0.0, Noise::elements)).sum()
        };
        let layers = || kept.iter().filter_map(|calls| calls.first());
        let bytes = |layer: &Layer| {
            let scales = self.weights.get(&layer.node).map_or(0, |rounded| rounded.scales.len() as u64);
            let bits = u64::from(self.weight_spec(layer).bits());
            (layer.count() as u64 * 4).saturating_sub(layer.count() as u64 * bits / 8 + scales * 4)
        };
        Proposal {
            method: self.method.to_owned(),
            keep: layers().map(|layer| layer.name.clone()).collect(),
            output_snr: ratio,
            bytes: layers().map(bytes).sum(),
            multiplications: work(&mut kept.iter().flatten()) / work(&mut self.layers.iter()).max(1.0),
        }
    }
}

/// The signal-to-noise ratio of all outputs together, in dB.
fn total(off: &[Deviation]) -> Option<f64> {
    let mut total = Deviation::default();
    off.iter().for_each(|off| total.merge(off));
    total.ratio()
}
