//! The integers of weights.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rushlight_compiler::quantization::{Layer, WeightSpec};
use rushlight_engine::{Engine, parallel_map};
use rushlight_graph::{Error, NodeId, OriginId};

use super::Work;
use crate::calibration::Shown;
use crate::gptq::{self, Gram};
use crate::read::{Part, Reader};
use crate::report::{Inputs, decibels};
use crate::settings::Rounding;
use crate::taps::{self, LhsSource};
use crate::weights::{self, Integers, Nearest, Rounded};

/// The stage of progress that rounds the weights.
const ROUNDING: &str = "rounding weights";
/// Maximum bytes of the Gram matrices that are computed at a time.
const GATHERED: usize = 1 << 28;

impl Work<'_> {
    /// Rounds the weights of all layers and tables.
    pub(super) fn round_weights(&mut self) -> Result<(), Error> {
        let (rounding, reader) = (self.settings.rounding, self.reader);
        if rounding == Rounding::Gptq {
            self.round_for_inputs()?;
        }
        let engine = &self.engine;
        // Layers with the same weights, such as tied embeddings, are rounded once.
        let mut plain: Vec<(&Layer, WeightSpec, Vec<NodeId>)> = Vec::new();
        let all = self.layers.iter().chain(&self.tables);
        for layer in all.filter(|layer| !self.weights.contains_key(&layer.node)) {
            let spec = self.weight_spec(layer);
            let is_same = |known: &(&Layer, WeightSpec, _)| {
                (known.0.weight, known.0.axis, known.1) == (layer.weight, layer.axis, spec)
            };
            match plain.iter_mut().find(|known| is_same(known)) {
                Some((.., nodes)) => nodes.push(layer.node),
                None => plain.push((layer, spec, vec![layer.node])),
            }
        }
        // Layers are split into parts, so that all threads get equal work.
        let mut parts = Vec::new();
        for (index, (layer, spec, _)) in plain.iter().enumerate() {
            parts.extend(reader.parts(layer, *spec).into_iter().map(|part| (index, *layer, *spec, part)));
        }
        let (progress, done, total) = (&self.settings.progress, AtomicU64::new(0), parts.len() as u64);
        let scan = |(index, layer, spec, part): (usize, &Layer, WeightSpec, Part)| -> Result<_, Error> {
            let mut scanned = Scanned { is_read_again: matches!(part, Part::Rows(_)), ..Scanned::default() };
            let group = spec.group(layer.count(), layer.k());
            reader.for_floats(layer, &part, |weights, _| scanned.add(engine, weights, group, spec, rounding))?;
            progress.report(ROUNDING, done.fetch_add(1, Ordering::Relaxed) + 1, total)?;
            Ok((index, scanned))
        };
        let mut found: Vec<Vec<Scanned>> = plain.iter().map(|_| Vec::new()).collect();
        for scanned in parallel_map(parts, self.threads(), scan) {
            let (index, scanned) = scanned?;
            found[index].push(scanned);
        }
        let all = plain.into_iter().zip(found);
        let rounded = all.map(|((layer, spec, nodes), parts)| (nodes, joined(reader, layer, spec, parts)));
        for (nodes, (rounded, ratio)) in rounded.collect::<Vec<_>>() {
            for node in nodes {
                self.weights.insert(node, rounded.clone());
                self.weight_snr.insert(node, ratio);
            }
        }
        Ok(())
    }

    /// Rounds weights with GPTQ for the inputs of the calibration, some layers at a time.
    fn round_for_inputs(&mut self) -> Result<(), Error> {
        let (reader, threads) = (self.reader, self.threads());
        let rows = |layer: &Layer| Some((layer.clone(), LhsSource::of(reader, layer)?));
        let layers: Vec<(Layer, LhsSource)> = self.layers.iter().filter_map(rows).collect();
        let (mut rounded_layers, total) = (0, layers.len() as u64);
        let mut rest = layers.into_iter().peekable();
        while rest.peek().is_some() {
            // Layers with the same input rows are mostly neighbours, such as those of an attention.
            let mut kinds: Vec<(LhsSource, OriginId, Gram)> = Vec::new();
            let mut part: Vec<(Layer, usize)> = Vec::new();
            let mut bytes = 0;
            while let Some((layer, rows)) = rest.peek() {
                let known = kinds.iter().position(|(known, ..)| known == rows);
                if known.is_none() {
                    let k: usize = layer.sizes.iter().skip(1).product();
                    if bytes > 0 && bytes + k * k * size_of::<f32>() > GATHERED {
                        break;
                    }
                    bytes += k * k * size_of::<f32>();
                    kinds.push((rows.clone(), self.graph.nodes[layer.node].origin, Gram::new(k)));
                }
                part.push((layer.clone(), known.unwrap_or(kinds.len() - 1)));
                rest.next();
            }
            let wanted: Vec<_> = kinds.iter().map(|(rows, origin, _)| (rows, *origin)).collect();
            let tapped = taps::with_gram_matrices(self.model, self.method, &wanted)?;
            self.calibration.run(tapped, self.method, Shown::all("calibrating", Inputs::Calibration), &mut |seen| {
                kinds.iter_mut().zip(seen).for_each(|((.., gram), seen)| gram.add(seen.numbers));
                Ok(())
            })?;
            for (layer, kind) in part {
                self.settings.progress.report(ROUNDING, rounded_layers, total)?;
                rounded_layers += 1;
                let (matrix, gram) = (reader.weights(&layer)?, &kinds[kind].2);
                let spec = self.weight_spec(&layer);
                let group = spec.group(layer.count(), matrix.k);
                let rounded = gptq::round(&self.engine, &matrix.by_tap(), gram, group, spec, threads);
                let Some(mut rounded) = rounded else { continue };
                rounded.integers = Integers::held(matrix.as_weights(&rounded.integers.read()?));
                self.weight_snr.insert(layer.node, rounded.ratio(&matrix.numbers)?);
                self.weights.insert(layer.node, rounded);
            }
        }
        Ok(())
    }
}

/// The scales of a part of a layer's weights.
#[derive(Default)]
struct Scanned {
    scales: Vec<f32>,
    integers: Vec<u8>,
    /// True if the integers are not kept, because they can be computed again.
    is_read_again: bool,
    signal: f64,
    noise: f64,
}

impl Scanned {
    /// Adds weights: chooses their scales and rounds them.
    fn add(&mut self, engine: &Engine, weights: &[f32], group: usize, spec: WeightSpec, rounding: Rounding) {
        let scales = weights::scales(engine, weights, group, spec, rounding, None);
        if self.is_read_again {
            self.integers.clear();
        }
        let start = self.integers.len();
        weights::round_into(weights, &scales, group, spec, &mut self.integers);
        let (signal, noise) = weights::noise(weights, &self.integers[start..], &scales, group);
        (self.signal, self.noise) = (self.signal + signal, self.noise + noise);
        self.scales.extend(scales);
    }
}

/// Joins the parts of a layer. Returns the integers with their scales, and the signal-to-noise ratio.
fn joined(reader: Reader<'_>, layer: &Layer, spec: WeightSpec, parts: Vec<Scanned>) -> (Rounded, Option<f64>) {
    let (mut integers, mut scales) = (Vec::new(), Vec::new());
    let (mut signal, mut noise, mut is_read_again) = (0.0, 0.0, false);
    for scanned in parts {
        (signal, noise) = (signal + scanned.signal, noise + scanned.noise);
        scales.extend(scanned.scales);
        is_read_again |= scanned.is_read_again;
        if !is_read_again {
            integers.extend(scanned.integers);
        }
    }
    let (group, scales) = (spec.group(layer.count(), layer.k()), Arc::new(scales));
    let integers = match reader.constant(layer).filter(|_| is_read_again) {
        Some(weights) => {
            let (weights, groups) = (weights.clone(), 0..scales.len());
            Integers::Nearest(Arc::new(Nearest { weights, scales: scales.clone(), groups, group, spec }))
        }
        None => Integers::held(bytemuck::cast_vec(integers)),
    };
    (Rounded { integers, scales, group }, decibels(signal, noise))
}
