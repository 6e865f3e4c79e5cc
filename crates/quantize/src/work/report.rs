//! The reports of layers and outputs.

use rushlight_compiler::quantization::Layer;
use rushlight_graph::{Arg, NodeId, ValueId};
use rustc_hash::FxHashMap;

use super::Work;
use crate::noise::{Deviation, Noise};
use crate::report::{LayerReport, OutputReport};
use crate::taps;

impl Work<'_> {
    /// The reports of the floating-point outputs.
    pub(super) fn output_reports(&self, off: Vec<Deviation>) -> Vec<(OutputReport, Deviation)> {
        let values = self.graph.outputs.iter().map(Arg::as_value).enumerate();
        let floats =
            values.filter_map(|(index, value)| Some((index, value.filter(|it| taps::is_float(self.graph, *it))?)));
        let names = self.model.signature(self.method).map(|signature| signature.output_names()).unwrap_or_default();
        let report = |((index, value), deviation): ((usize, ValueId), Deviation)| {
            let name = names.get(index).filter(|name| !name.is_empty());
            let report = OutputReport {
                method: self.method.to_owned(),
                index,
                name: name.unwrap_or(&self.graph.values[value].name).clone(),
                snr: deviation.ratio(),
                non_finite: deviation.non_finite,
            };
            (report, deviation)
        };
        floats.zip(off).map(report).collect()
    }

    /// The reports of all layers, one for all calls of a layer. `ranges` has those of their quantized inputs.
    pub(super) fn reports(&self, ranges: &FxHashMap<NodeId, (f32, f32)>) -> Vec<LayerReport> {
        let kept =
            |layer: &Layer| self.kept.iter().find(|(kept, _)| kept.node == layer.node).map(|(_, why)| why.clone());
        let others = self.kept.iter().map(|(layer, _)| layer);
        let others = others.filter(|layer| !self.layers.iter().any(|known| known.node == layer.node));
        let report = |calls: &Calls<'_>| {
            let Calls { layer, kept: reason, noise, range } = calls;
            let node = &self.graph.nodes[layer.node];
            let elements = layer.count() as u64;
            let scales = self.weights.get(&layer.node).map_or(0, |rounded| rounded.scales.len() as u64);
            let bits = u64::from(self.weight_spec(layer).bits());
            LayerReport {
                method: self.method.to_owned(),
                name: layer.name.clone(),
                op: node.op.name().to_owned(),
                source: self.graph.origins[node.origin].line(),
                bytes_before: elements * 4,
                bytes_after: if reason.is_some() { elements * 4 } else { elements * bits / 8 + scales * 4 },
                sizes: layer.sizes.clone(),
                weight_snr: self.weight_snr.get(&layer.node).copied().flatten(),
                snr: noise.as_ref().and_then(Noise::ratio),
                range: *range,
                kept: reason.clone(),
            }
        };
        let mut all: Vec<Calls<'_>> = Vec::new();
        let mut places: FxHashMap<(ValueId, &str, Option<String>), usize> = FxHashMap::default();
        for layer in self.layers.iter().chain(others).chain(&self.tables) {
            let (kept, noise, range) = (kept(layer), self.noise.get(&layer.node), ranges.get(&layer.node).copied());
            let place = *places.entry((layer.weight, layer.name.as_str(), kept.clone())).or_insert(all.len());
            let Some(calls) = all.get_mut(place) else {
                all.push(Calls { layer, kept, noise: noise.cloned(), range });
                continue;
            };
            match (&mut calls.noise, noise) {
                (Some(sum), Some(noise)) => sum.merge(noise),
                (none, noise) => *none = none.take().or_else(|| noise.cloned()),
            }
            calls.range = match (calls.range, range) {
                (Some((low, high)), Some(other)) => Some((low.min(other.0), high.max(other.1))),
                (known, other) => known.or(other),
            };
        }
        all.iter().map(report).collect()
    }
}

/// The calls of a layer, such as the steps of an LSTM: they have one weight, and one line of the report.
struct Calls<'a> {
    /// The first call.
    layer: &'a Layer,
    /// The reason if they stay in floats.
    kept: Option<String>,
    noise: Option<Noise>,
    range: Option<(f32, f32)>,
}
