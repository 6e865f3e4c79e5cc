//! Keeps the worst layers in floats until the outputs are good enough.

use rushlight_compiler::quantization::Layer;
use rushlight_graph::{Error, Model};

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
        for layer in self.worst_first().into_iter().take(count) {
            self.kept.push((layer, too_far(least)));
        }
        Ok(found)
    }

    /// Returns the model with only these layers quantized, and the deviations of its outputs.
    pub(super) fn with_integers(
        &mut self,
        layers: &[Layer],
        expected: &[Outputs],
    ) -> Result<(Model, Vec<Deviation>), Error> {
        let sites = self.sites(layers.to_vec())?;
        self.observe(&sites)?;
        let scales = self.scales(&sites)?;
        let model = self.quantized(&sites, &scales)?;
        let off = self.deviations(&model, expected)?;
        Ok((model, off))
    }

    /// The layers, those with the lowest signal-to-noise first.
    pub(super) fn worst_first(&self) -> Vec<Layer> {
        let ratio = |layer: &Layer| self.noise.get(&layer.node).and_then(Noise::ratio).unwrap_or(f64::INFINITY);
        let mut layers = self.layers.clone();
        layers.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        layers
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
