//! Keeps the worst layers in floats until the outputs are good enough.

use rushlight_compiler::quantization::Layer;
use rushlight_graph::{Error, Model, ValueId};
use rustc_hash::FxHashMap;

use super::{Outputs, Work};
use crate::noise::{Deviation, Noise};
use crate::sites::Sites;

impl Work<'_> {
    /// Keeps the worst layers in floats if the outputs of the quantized model are below `least` dB. Returns the model that reaches
    /// it, with the deviations of its outputs.
    pub(super) fn keep_worst(
        &mut self,
        least: f64,
        expected: &[Outputs],
        (model, off): (Model, Vec<Deviation>),
    ) -> Result<(Model, Vec<Deviation>), Error> {
        if is_reached(&off, least) {
            return Ok((model, off));
        }
        let (found, count) = self.fall_back(least, expected)?;
        for layer in self.worst_first().into_iter().take(count).flatten() {
            self.kept.push((layer, too_far(least)));
        }
        Ok(found)
    }

    /// Returns the model with only these layers quantized, and the deviations of its outputs. Each layer is the list of its calls.
    pub(super) fn with_integers(
        &mut self,
        layers: &[Vec<Layer>],
        expected: &[Outputs],
    ) -> Result<(Model, Vec<Deviation>), Error> {
        let sites = self.sites(layers.concat())?;
        self.observe(&sites)?;
        let scales = self.scales(&sites)?;
        let model = self.quantized(&sites, &scales)?;
        let off = self.deviations(&model, expected)?;
        Ok((model, off))
    }

    /// The layers, those with the lowest signal-to-noise first. All calls of a layer, which share its weight, are together.
    pub(super) fn worst_first(&self) -> Vec<Vec<Layer>> {
        let mut layers: Vec<(Noise, Vec<Layer>)> = Vec::new();
        let mut places: FxHashMap<ValueId, usize> = FxHashMap::default();
        for layer in &self.layers {
            let place = *places.entry(layer.weight).or_insert(layers.len());
            if place == layers.len() {
                layers.push(Default::default());
            }
            let (sum, calls) = &mut layers[place];
            if let Some(noise) = self.noise.get(&layer.node) {
                sum.merge(noise);
            }
            calls.push(layer.clone());
        }
        let ratio = |noise: &Noise| noise.ratio().unwrap_or(f64::INFINITY);
        layers.sort_by(|(a, _), (b, _)| ratio(a).total_cmp(&ratio(b)));
        layers.into_iter().map(|(_, calls)| calls).collect()
    }

    /// Finds the smallest number of worst layers that must stay in floats for the outputs to be good enough. Returns
    /// that model and the number.
    fn fall_back(&mut self, least: f64, expected: &[Outputs]) -> Result<((Model, Vec<Deviation>), usize), Error> {
        let worst = self.worst_first();
        // With 0 layers in floats the outputs are not good enough; with all of them they are exact.
        let (mut too_few, mut enough) = (0, worst.len());
        let mut found = self.tables_alone(least, expected)?;
        while enough - too_few > 1 {
            let count = too_few.midpoint(enough);
            let (model, off) = self.with_integers(&worst[count..], expected)?;
            if is_reached(&off, least) {
                (enough, found) = (count, (model, off));
            } else {
                too_few = count;
            }
        }
        Ok((found, enough))
    }

    /// Returns the model with only the tables of embeddings quantized, and the deviations of its outputs. If these are
    /// too large, returns the float model.
    fn tables_alone(&mut self, least: f64, expected: &[Outputs]) -> Result<(Model, Vec<Deviation>), Error> {
        if !self.tables.is_empty() {
            let model = self.quantized(&Sites::default(), &[])?;
            let off = self.deviations(&model, expected)?;
            if is_reached(&off, least) {
                return Ok((model, off));
            }
            let tables = std::mem::take(&mut self.tables);
            self.kept.extend(tables.into_iter().map(|table| (table, too_far(least))));
        }
        let model = self.model.clone();
        let off = self.deviations(&model, expected)?;
        Ok((model, off))
    }
}

/// The reason of a layer that stays in floats because the outputs would deviate too much.
fn too_far(least: f64) -> String {
    format!("outputs would be below {least} dB with it in integers")
}

/// True if all outputs reach a signal-to-noise of `least` dB.
fn is_reached(off: &[Deviation], least: f64) -> bool {
    off.iter().all(|off| off.reaches(least))
}
