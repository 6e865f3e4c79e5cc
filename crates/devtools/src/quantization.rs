//! A report of a quantization, as a self-contained web page.

use rushlight::{Decibels, LayerReport, QuantizationReport};

use crate::markup::escaped;
use crate::units::{bytes, rounded};

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; max-width: 90rem; }
table { border-collapse: collapse; }
td, th { padding: 0.1rem 1rem 0.1rem 0; text-align: left; font-weight: normal; vertical-align: top; }
th { opacity: 0.7; border-bottom: 1px solid #8888; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.bar { width: 16rem; }
.bar div { height: 0.8rem; margin-top: 0.35rem; border-radius: 2px; }
.kept { opacity: 0.7; }
code { font-size: 12px; }
";

/// Ratios above this fill the bar.
const GOOD: f64 = 60.0;

/// A page with the overall result and a row for each layer, the worst first.
pub fn html(title: &str, report: &QuantizationReport) -> String {
    let title = escaped(title);
    let (before, after) = report.bytes();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Quantization of {title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n<table>\n"
    );
    let mut fact = |name: &str, text: String| {
        page.push_str(&format!("<tr><td>{name}</td><td>{}</td></tr>\n", escaped(&text)));
    };
    fact("Scheme", report.scheme.name.to_owned());
    if let Some(ranges) = report.ranges() {
        fact("Ranges of activations", ranges);
    }
    fact("Rounding of weights", report.rounding.name().to_owned());
    fact("Inputs seen", report.samples.to_string());
    fact("Layers in integers", format!("{} of {}", report.quantized(), report.layers.len()));
    let share = 100.0 * after as f64 / before.max(1) as f64;
    fact("Weights of layers", format!("{} → {} ({share:.1} %)", bytes(before), bytes(after)));
    if report.output_snr.is_some() {
        fact("Outputs", decibels(report.output_snr));
    }
    if let Some(reason) = &report.not_compared {
        fact("Not compared", reason.clone());
    }
    for warning in &report.warnings {
        fact("Warning", warning.clone());
    }
    for proposal in &report.proposals {
        fact("Proposal", format!("{proposal}: {}", proposal.keep.join(", ")));
    }
    page.push_str(
        "</table>\n<h2>Layers, the worst first</h2>\n<table>\n<tr><th>Layer</th><th>Results</th><th></th>\
         <th>Weights</th><th>Before</th><th>After</th><th>Inputs within</th><th>From</th></tr>\n",
    );
    report.layers.iter().for_each(|layer| page.push_str(&row(layer)));
    page.push_str(LEGEND);
    page.push_str("</html>\n");
    page
}

/// The meaning of the columns.
const LEGEND: &str = "</table>\n<h2>Columns</h2>\n<table>\n\
    <tr><td>Results</td><td>the signal-to-noise ratio of the layer's results against the model in floats; 40 dB are an error of one \
    percent</td></tr>\n\
    <tr><td>Bar</td><td>the lower ratio of results and weights; it is full from 60 dB on, and red where the layer loses most</td></tr>\n\
    <tr><td>Weights</td><td>the signal-to-noise ratio of the rounded weights alone</td></tr>\n\
    <tr><td>Before, After</td><td>the size of the weights in floats, and in integers with their scales</td></tr>\n\
    <tr><td>Inputs within</td><td>the range of the layer's input that the integers cover, from the calibration</td></tr>\n\
    <tr><td>From</td><td>the line of Python</td></tr>\n</table>\n";

fn row(layer: &LayerReport) -> String {
    let sizes: Vec<String> = layer.sizes.iter().map(ToString::to_string).collect();
    let (class, reason) = match &layer.kept {
        Some(reason) => (" class=\"kept\"", format!("<br>in floats: {}", escaped(reason))),
        None => ("", String::new()),
    };
    let share = layer.quality().map_or(0.0, |ratio| (ratio / GOOD).clamp(0.02, 1.0));
    let bar = if layer.kept.is_none() {
        format!("<div style=\"width: {:.0}%; background: hsl({:.0} 60% 50%)\"></div>", share * 100.0, share * 120.0)
    } else {
        String::new()
    };
    let range = layer.range.map_or_else(String::new, |(low, high)| {
        let [low, high] = [low, high].map(|bound| rounded(f64::from(bound), 4));
        format!("{low} to {high}")
    });
    format!(
        "<tr{class}><td>{}{reason}<br><code>{} [{}]</code></td><td class=\"n\">{}</td><td class=\"bar\">{bar}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{range}</td>\
         <td><code>{}</code></td></tr>\n",
        escaped(&layer.name),
        escaped(&layer.op),
        sizes.join(" × "),
        decibels(layer.snr),
        decibels(layer.weight_snr),
        bytes(layer.bytes_before),
        bytes(layer.bytes_after),
        escaped(layer.source.as_deref().unwrap_or_default()),
    )
}

fn decibels(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| Decibels(Some(ratio)).to_string())
}
