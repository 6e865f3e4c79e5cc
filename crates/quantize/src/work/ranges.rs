//! The ranges of activations, and the scales that are chosen from them.

use rushlight_engine::on_threads_of;
use rushlight_graph::{Def, Error, ErrorKind, NodeId, ValueId};
use rustc_hash::FxHashMap;

use rushlight_compiler::quantization::{ActivationScales, Layer};

use super::Work;
use crate::calibration::Shown;
use crate::observe::Histogram;
use crate::settings::Observer;
use crate::sites::{ScaleSet, Sites};
use crate::taps;

impl Work<'_> {
    /// Makes the histograms of all values that need a scale and have no histogram yet.
    pub(super) fn observe(&mut self, sites: &Sites) -> Result<(), Error> {
        let calibrated = sites.sets.iter().filter(|set| set.spec.scales == ActivationScales::Calibrated);
        let unseen = calibrated.flat_map(|set| &set.observed).filter(|value| !self.seen.contains_key(value));
        let values: Vec<ValueId> = unseen.copied().collect();
        if values.is_empty() {
            return Ok(());
        }
        let engine = &self.engine;
        let mut histograms: Vec<Histogram> = values.iter().map(|_| Histogram::new()).collect();
        let tapped = taps::with_outputs(self.model, self.method, &values, values.len())?;
        self.calibration.run(
            tapped,
            self.method,
            Shown { is_rough: true, ..Shown::all("calibrating", self.measured) },
            &mut |seen| {
                let work: Vec<_> = histograms.iter_mut().zip(seen).collect();
                on_threads_of(engine, work, |(histogram, seen)| histogram.add(engine, seen.numbers));
                Ok(())
            },
        )?;
        for (value, histogram) in values.into_iter().zip(histograms) {
            if histogram.wild() > 0 {
                let name = &self.graph.values[value].name;
                // The error is in the inputs, not in the program.
                let what = format!("{} numbers of `{name}` are NaN or infinite", histogram.wild());
                let error = Error::new(ErrorKind::Output, what)
                    .help("look at the inputs of the calibration, or keep the layers that give such numbers as floats");
                return Err(match self.graph.values[value].def {
                    Def::Result(node, _) => self.graph.locate(error, node),
                    _ => error,
                });
            }
            self.seen.insert(value, histogram);
        }
        Ok(())
    }

    /// Chooses an observer for each set of values that share a scale: the one with which the worst layer that reads
    /// such a value is best.
    pub(super) fn choose_observers(&mut self, sites: &Sites) -> Result<(), Error> {
        let mut best: FxHashMap<usize, (f64, Observer)> = FxHashMap::default();
        for observer in [Observer::Histogram, Observer::MinMax, Observer::Percentile] {
            self.chosen = sites.with_scales().map(|(value, _)| (value, observer)).collect();
            let scales = self.scales(sites)?;
            let (noise, _) = self.compare(sites, &scales)?;
            let mut worst: FxHashMap<usize, f64> = FxHashMap::default();
            for (layer, noise) in sites.compared().zip(&noise) {
                let ratio = noise.ratio().unwrap_or(f64::INFINITY);
                if let Some(number) = sites.input_set(layer) {
                    worst.entry(number).and_modify(|worst| *worst = worst.min(ratio)).or_insert(ratio);
                }
            }
            for (number, ratio) in worst {
                let found = best.entry(number).or_insert((ratio, observer));
                if ratio > found.0 {
                    *found = (ratio, observer);
                }
            }
        }
        let chosen = |(value, number): (ValueId, usize)| Some((value, best.get(&number)?.1));
        self.chosen = sites.with_scales().filter_map(chosen).collect();
        Ok(())
    }

    /// Returns the scale and the zero point of each set of values that share them.
    pub(super) fn scales(&self, sites: &Sites) -> Result<Vec<(f32, i32)>, Error> {
        let mut observers = vec![self.settings.observer; sites.sets.len()];
        for (value, number) in sites.with_scales() {
            if let Some((observer, chosen)) = observers.get_mut(number).zip(self.chosen.get(&value)) {
                *observer = *chosen;
            }
        }
        let scale = |(ScaleSet { spec, observed }, observer): (&ScaleSet, Observer)| {
            if let ActivationScales::Fixed { scale, zero_point } = spec.scales {
                return Ok((scale, zero_point));
            }
            let mut all = Histogram::new();
            observed.iter().filter_map(|value| self.seen.get(value)).for_each(|seen| all.absorb(seen));
            all.range(observer, spec).map(|range| spec.parameters(range)).ok_or_else(|| {
                let name = observed.first().map_or("", |value| self.graph.values[*value].name.as_str());
                Error::unsupported(format!("the inputs of the calibration showed no number of `{name}`"))
                    .help("a part of the model that they do not reach cannot be quantized")
            })
        };
        sites.sets.iter().zip(observers).map(scale).collect()
    }

    /// Returns the range of each layer's quantized inputs.
    pub(super) fn ranges(&self, sites: &Sites, scales: &[(f32, i32)]) -> FxHashMap<NodeId, (f32, f32)> {
        let range = |layer: &Layer| {
            let set = sites.input_set(layer)?;
            let ((scale, zero), [min, max]) = (*scales.get(set)?, sites.sets.get(set)?.spec.range);
            let number = |integer: i32| (integer - zero) as f32 * scale;
            Some((layer.node, (number(min), number(max))))
        };
        self.layers.iter().filter_map(range).collect()
    }
}
