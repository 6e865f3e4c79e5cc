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

    /// The reports of all layers. `ranges` has those of their quantized inputs.
    pub(super) fn reports(&self, ranges: &FxHashMap<NodeId, (f32, f32)>) -> Vec<LayerReport> {
        let kept =
            |layer: &Layer| self.kept.iter().find(|(kept, _)| kept.node == layer.node).map(|(_, why)| why.clone());
        let others = self.kept.iter().map(|(layer, _)| layer);
        let others = others.filter(|layer| !self.layers.iter().any(|known| known.node == layer.node));
        let report = |layer: &Layer| {
            let (node, reason) = (&self.graph.nodes[layer.node], kept(layer));
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
                snr: self.noise.get(&layer.node).and_then(Noise::ratio),
                range: ranges.get(&layer.node).copied(),
                kept: reason,
            }
        };
        self.layers.iter().chain(others).chain(&self.tables).map(report).collect()
    }
}
