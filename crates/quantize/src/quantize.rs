//! Quantizes a model without PyTorch, with or without the inputs of a calibration.

use rushlight_compiler::prepare_layers;
use rushlight_compiler::quantization::{Quantizer, Recurrent};
use rushlight_graph::{Error, ErrorKind, Model};

use super::calibration::Calibration;
use super::kept;
use super::noise::Deviation;
use super::report::{GIVE, Inputs, Report};
use super::settings::{Rounding, Settings};
use super::work::{Quantized, Work};

/// Quantizes all methods of a model from a front end, as a backend's policy has it, and advances the model to the stage where
/// backends claim nodes. Layers are not decomposed.
///
/// # Errors
/// `Output` if scales need inputs and there are none: neither those of a calibration nor examples of the export. `Unsupported` for a model without anything that is quantized, and for a
/// scheme or a form of quantization that there is not.
/// Errors of the passes, and of running programs on the calibration.
pub fn quantize(
    model: &mut Model,
    quantizer: &dyn Quantizer,
    settings: &Settings,
    calibration: &mut dyn Calibration,
) -> Result<Report, Error> {
    let modules = kept::modules(model);
    let recurrent = Recurrent::of(model);
    prepare_layers(model, &quantizer.composites(), &settings.progress)?;
    let mut warnings = kept::check(&modules, model, &recurrent, &settings.keep)?;
    let methods: Vec<String> = model.methods.keys().cloned().collect();
    let count = |of| methods.iter().map(|method| calibration.samples(method, of)).sum();
    let (samples, examples): (usize, usize) = (count(Inputs::Calibration), count(Inputs::Example));
    check(quantizer, settings, samples, examples)?;
    let mut report = Report {
        scheme: settings.scheme,
        observer: settings.observer,
        rounding: settings.rounding,
        samples,
        calibrated_on: None,
        layers: Vec::new(),
        output_snr: None,
        outputs: Vec::new(),
        compared_on: None,
        not_compared: None,
        proposals: Vec::new(),
        warnings: Vec::new(),
    };
    let mut total = Deviation::default();
    for method in &methods {
        let mut work = Work::new(model, method, (quantizer, &recurrent), settings, calibration)?;
        if work.is_empty() {
            report.layers.extend(work.kept());
            continue;
        }
        let Quantized { model: quantized, layers, outputs, proposals } = work.run()?;
        if settings.scheme.is_static() && report.calibrated_on != Some(Inputs::Example) {
            report.calibrated_on = Some(work.measured);
        }
        match work.compared {
            Ok(inputs) => report.compared_on = Some(inputs),
            Err(reason) => {
                report.not_compared.get_or_insert(format!("method `{method}`: {reason}"));
            }
        }
        *model = quantized;
        report.layers.extend(layers);
        report.proposals.extend(proposals);
        for (output, deviation) in outputs {
            total.merge(&deviation);
            report.outputs.push(output);
        }
    }
    if !report.layers.iter().any(|layer| layer.kept.is_none()) && settings.min_snr.is_none() {
        let reasons = report.layers.first().and_then(|layer| layer.kept.clone());
        let error = Error::unsupported(format!("nothing in this model becomes `{}`", settings.scheme.name));
        let layers = if settings.scheme.has_convolutions {
            "convolutions and linear layers of f32 with constant weights"
        } else {
            "linear layers of f32 with constant weights"
        };
        let got = reasons.map_or_else(|| "none".to_owned(), |reason| format!("only layers that stay floats: {reason}"));
        return Err(error.expected(layers).got(got));
    }
    report.output_snr = total.ratio();
    report.sort();
    report.warn_of_example();
    report.warn_of_noise();
    if settings.min_snr.is_none() {
        report.warn_of_spread_noise();
    }
    report.warnings.append(&mut warnings);
    Ok(report)
}

/// Refuses settings that need inputs if there are none, schemes that the backend has not, and unsupported numbers of bits.
fn check(quantizer: &dyn Quantizer, settings: &Settings, samples: usize, examples: usize) -> Result<(), Error> {
    if let Some(bits) = settings.embedding_bits.filter(|bits| !matches!(bits, 4 | 8)) {
        return Err(Error::unsupported("tables of embeddings with this number of bits")
            .expected("4 or 8")
            .got(bits.to_string()));
    }
    let schemes = quantizer.schemes();
    if !schemes.iter().any(|scheme| scheme.name == settings.scheme.name) {
        let names: Vec<String> = schemes.iter().map(|scheme| format!("`{}`", scheme.name)).collect();
        return Err(Error::unsupported("the backend has no such scheme")
            .expected(names.join(", "))
            .got(format!("`{}`", settings.scheme.name)));
    }
    let without: Vec<&str> = schemes.iter().filter(|scheme| !scheme.is_static()).map(|scheme| scheme.name).collect();
    let dynamic = match without.join(", ") {
        names if names.is_empty() => "leave the model in floats".to_owned(),
        names => format!("a scheme that needs none: {names}"),
    };
    let needs = [
        (
            settings.scheme.is_static() && examples == 0,
            "scales of activations are chosen from inputs",
            dynamic.as_str(),
        ),
        (settings.rounding == Rounding::Gptq, "GPTQ rounds weights for inputs", "leave out GPTQ"),
        (
            settings.min_snr.is_some(),
            "whether outputs are near enough is seen on inputs",
            "leave out the least signal-to-noise",
        ),
    ];
    match needs.iter().find(|(needs, ..)| *needs && samples == 0) {
        Some((_, why, or)) => {
            Err(Error::new(ErrorKind::Output, format!("{why}, and there are none")).help(format!("{GIVE}, or {or}")))
        }
        None => Ok(()),
    }
}
