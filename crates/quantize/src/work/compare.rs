//! Comparison of layers and outputs with their float originals.

use rushlight_engine::on_threads_of;
use rushlight_graph::{Error, Model};

use super::{Outputs, Work};
use crate::calibration::Shown;
use crate::noise::{Deviation, Noise};
use crate::report::Inputs;
use crate::sites::Sites;
use crate::{rewrite, taps};

impl Work<'_> {
    /// Compares each quantized layer with its float original, and corrects biases. Returns the float results of the
    /// model for each input.
    pub(super) fn compare_layers(&mut self, sites: &Sites, scales: &[(f32, i32)]) -> Result<Vec<Outputs>, Error> {
        let (noise, outputs) = self.compare(sites, scales)?;
        for (layer, mut noise) in sites.compared().zip(noise) {
            // Example inputs of the export only measure deviations; they change no bias.
            if self.settings.bias_correction
                && self.compared == Ok(Inputs::Calibration)
                && !layer.is_linear(self.graph)
                && let Some(bias) = self.reader.bias(layer, noise.channels())
            {
                let corrections = noise.correct();
                let corrected = bias.iter().zip(&corrections).map(|(bias, more)| bias + more).collect();
                self.biases.insert(layer.node, corrected);
            }
            self.noise.insert(layer.node, noise);
        }
        Ok(outputs)
    }

    /// Measures the noise of each layer that is [compared](Sites::compared) on its float inputs, and returns the float results of the model. Both
    /// are empty without inputs.
    pub(super) fn compare(
        &mut self,
        sites: &Sites,
        scales: &[(f32, i32)],
    ) -> Result<(Vec<Noise>, Vec<Outputs>), Error> {
        let Ok(inputs) = self.compared.clone() else { return Ok(Default::default()) };
        let mut twins = taps::alone(self.model, self.method);
        let mut values = rewrite::add_twins(&mut twins, self.method, &self.decisions(sites, scales))?;
        let pairs = values.len();
        values.extend(taps::float_outputs(self.graph));
        if values.is_empty() {
            self.compared = Err("no output of the model is floats".to_owned());
            return Ok(Default::default());
        }
        let twins = taps::with_outputs(&twins, self.method, &values, pairs)?;
        let mut noise: Vec<Noise> = sites.compared().map(|_| Noise::default()).collect();
        let mut outputs = Vec::new();
        let engine = &self.engine;
        let run = self.calibration.run(twins, self.method, Shown::compared(inputs), &mut |seen| {
            let (seen, results) = seen.split_at_checked(pairs).unwrap_or_default();
            outputs.push(results.iter().map(|result| result.numbers.to_vec()).collect());
            let work: Vec<_> = noise.iter_mut().zip(seen.chunks(2)).collect();
            on_threads_of(engine, work, |(noise, pair)| {
                if let [floats, integers] = pair {
                    noise.add(floats.sizes, floats.numbers, integers.numbers);
                }
            });
            Ok(())
        });
        match (run, inputs) {
            (Ok(()), _) => Ok((noise, outputs)),
            (Err(error), Inputs::Calibration) => Err(error),
            // The caller did not ask for these inputs, therefore their failure is not an error.
            (Err(error), Inputs::Example) => {
                self.compared = Err(format!("the example inputs of the export do not run: {}", error.message()));
                Ok(Default::default())
            }
        }
    }

    /// Measures the deviation of each floating-point output of a model; empty if outputs are not compared.
    pub(super) fn deviations(&mut self, model: &Model, expected: &[Outputs]) -> Result<Vec<Deviation>, Error> {
        let values = model.methods.get(self.method).map_or_else(Vec::new, taps::float_outputs);
        let (Ok(inputs), false) = (self.compared.clone(), expected.is_empty()) else { return Ok(Vec::new()) };
        if values.is_empty() {
            self.compared = Err("no output of the model is floats".to_owned());
            return Ok(Vec::new());
        }
        let mut off = vec![Deviation::default(); values.len()];
        let tapped = taps::with_outputs(model, self.method, &values, 0)?;
        let mut expected = expected.iter();
        self.calibration.run(tapped, self.method, Shown::compared(inputs), &mut |seen| {
            for ((off, floats), seen) in off.iter_mut().zip(expected.next().into_iter().flatten()).zip(seen) {
                off.add(floats, seen.numbers);
            }
            Ok(())
        })?;
        Ok(off)
    }
}
