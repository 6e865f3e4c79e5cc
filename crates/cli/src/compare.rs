//! `rushlight compare`.

use std::path::PathBuf;

use clap::Args;
use rushlight::{Compiler, Lower, Module, open_exported};
use rushlight_devtools::compare::{Comparison, Difference, Incomparable, OutputRow, Reference, Row};
use rushlight_devtools::inputs::example;
use serde_json::json;

use crate::arguments::{Limits, Method, Model, count, finite, magnitude};
use crate::failure::Failure;
use crate::inputs::{Inputs, borrow};
use crate::output::{self, number_json};
use crate::progress::{Follower, is_verbose};

/// Runs a model as it was exported and as it was compiled, node by node, and shows where the results start to differ.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight compare model.pt2 model.pte                   the inputs of the export
  rushlight compare model.pt2 model.pte -i x.npy --worst 20
  rushlight compare model.pt2 quantized.pte --fail-below 20    for scripts

Without inputs, compare uses the example inputs in the .pt2 file. It generates inputs if the file has none, or if one is
constant, as torch.zeros is. --fill, --seed and --shape also generate inputs.

Exit code 7 says that results diverge: a result differs by more than the tolerance, or, with --fail-below, has a lower
signal-to-noise. What is quantized or rounded to 16 bits differs by more than the default tolerance: use --fail-below.")]
pub struct Compare {
    /// The .pt2 file: the reference operators run each of its nodes
    reference: PathBuf,
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    method: Method,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    limits: Limits,

    /// Number of results to show, those that differ most [default: 5, and with --json all, in order]
    #[arg(long, value_name = "N", value_parser = count)]
    worst: Option<usize>,

    /// The smallest difference that counts, relative to a result's largest element
    #[arg(long, default_value = "1e-4", value_parser = magnitude)]
    tolerance: f64,

    /// Fail only if a result has a signal-to-noise below this, in dB
    #[arg(long, value_name = "DB", value_parser = finite, allow_negative_numbers = true)]
    fail_below: Option<f64>,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub fn run(self) -> Result<(), Failure> {
        let mut candidate = self.model.load_with(|builder| self.limits.add_to(builder.lower(Lower::Off)))?;
        let method = self.method.choose(&candidate)?;
        let exported = open_exported(&self.reference)?;
        let values = self.inputs.values_or(&candidate.meta(&method)?, |count| example(&exported, count))?;
        let inputs = borrow(&values)?;
        let compiler = Compiler::new().method_bytes(&method, exported);
        let follower = Follower::start()?;
        let mut reference = Reference::new(compiler, self.limits.add_to(Module::builder())?, follower.progress())?;
        let comparison = reference.compare(&mut candidate, &method, &inputs).map_err(|error| match error {
            Incomparable::Failed(error) => error.into(),
            Incomparable::NoDebugMap { .. } => Failure::Other(format!(
                "`{}`: {error}; compile `{}` again with `rushlight compile`, without --no-debug-map",
                self.model.model.display(),
                self.reference.display()
            )),
        })?;
        drop(follower);
        if comparison.rows.is_empty() && comparison.outputs.is_empty() {
            let count = comparison.only_in_reference.len();
            return Err(Failure::Other(format!(
                "nothing was compared: none of the {count} results of `{}` is in `{}`",
                self.reference.display(),
                self.model.model.display()
            )));
        }
        self.print(&comparison);
        self.judge(&comparison)
    }

    /// Fails if the results differ.
    fn judge(&self, comparison: &Comparison) -> Result<(), Failure> {
        let differs = match self.fail_below {
            Some(least) => {
                let ratio = comparison.min_snr();
                (ratio < least).then(|| format!("a signal-to-noise of {ratio:.1} dB is below {least} dB"))
            }
            None => {
                let agrees = comparison.agrees(self.tolerance);
                (!agrees).then(|| format!("a result differs by more than {:e} of its scale", self.tolerance))
            }
        };
        let help = if self.fail_below.is_some() && self.inputs.is_empty() {
            "\n  help      quantized models differ more on inputs that are not typical: give typical inputs (`-i`)"
        } else {
            ""
        };
        differs.map_or(Ok(()), |text| Err(Failure::Differs(text + help)))
    }

    fn print(&self, comparison: &Comparison) {
        let first = comparison.first_difference(self.tolerance);
        if self.json {
            let rows: Vec<_> = match self.worst {
                Some(worst) => comparison.worst(worst).into_iter().map(json_row).collect(),
                None => comparison.rows.iter().map(json_row).collect(),
            };
            output::print_json(&json!({
                "outputs": comparison.outputs.iter().map(json_output).collect::<Vec<_>>(),
                "results": rows,
                "compared": comparison.rows.len(),
                "only_in_reference": comparison.only_in_reference,
                "tolerance": self.tolerance,
                "first_difference": first.map(json_row),
                "min_snr_db": number_json(comparison.min_snr()),
            }));
            return;
        }
        if !comparison.outputs.is_empty() {
            let rows = comparison.outputs.iter().map(|row| {
                let [largest, relative, snr] = cells(&row.difference);
                vec![row.name.clone(), largest, relative, snr]
            });
            output::print(&format!("{}\n", output::table(&["output", "largest ", "relative ", "snr "], rows)));
        }
        let rows = comparison.worst(self.worst.unwrap_or(WORST)).into_iter().map(|row| {
            let [largest, relative, snr] = cells(&row.difference);
            vec![
                row.result.clone(),
                row.op.clone(),
                largest,
                relative,
                snr,
                row.source.as_deref().map(output::short_source).unwrap_or_default(),
            ]
        });
        let header = ["result", "operator", "largest ", "relative ", "snr ", "source"];
        output::print(&output::fitted(&output::table(&header, rows)));
        output::print(&format!("\n{}", counts(comparison)));
        let Some((row, parting)) = first.zip(comparison.parting(self.tolerance)) else {
            if comparison.agrees(self.tolerance) {
                output::print(&format!("no result differs by more than {:e} of its scale", self.tolerance));
            }
            return;
        };
        let source = row.source.as_deref().map_or_else(|| "an unknown line".to_owned(), output::short_source);
        let module = if row.module.is_empty() { "the model itself" } else { &row.module };
        // If results before it were not seen, the line is only that of the first known difference.
        let of = if row.unseen == 0 { "" } else { " of the result" };
        output::print(&format!("{parting}\n  module{of}  {module}\n  source{of}  {source}"));
    }
}

/// The number of results that were compared, and which were not.
fn counts(comparison: &Comparison) -> String {
    let (compared, only) = (comparison.rows.len(), &comparison.only_in_reference);
    let counted = format!("{compared} of {} results compared", compared + only.len());
    if only.is_empty() {
        return counted;
    }
    let shown = if is_verbose() { only } else { only.get(..NAMES).unwrap_or(only) };
    let more = if shown.len() < only.len() { ", … (-v lists all)" } else { "" };
    let names = shown.join(", ");
    format!("{counted}; {} are only in the reference, folded, fused or delegated away: {names}{more}", only.len())
}

/// Number of results that were not compared and are named without `--verbose`.
const NAMES: usize = 4;

/// Default number of results that are shown.
const WORST: usize = 5;

/// The cells of a difference: the maximum or the shapes that differ, the relative difference, and the signal-to-noise
/// ratio.
fn cells(difference: &Difference) -> [String; 3] {
    let Difference { max_abs, snr_db, shapes, .. } = difference;
    let largest = shapes.as_ref().map_or_else(|| format!("{max_abs:.2e}"), |(a, b)| format!("{a:?} or {b:?}"));
    [largest, format!("{:.2e}", difference.relative()), format!("{snr_db:.1} dB")]
}

fn json_row(row: &Row) -> serde_json::Value {
    let mut json = json_difference(&row.difference);
    json["result"] = json!(row.result);
    json["node"] = json!(row.node);
    json["operator"] = json!(row.op);
    json["module"] = json!(row.module);
    json["source"] = json!(row.source);
    json["unseen_before"] = json!(row.unseen);
    json
}

fn json_output(row: &OutputRow) -> serde_json::Value {
    let mut json = json_difference(&row.difference);
    json["name"] = json!(row.name);
    json
}

fn json_difference(difference: &Difference) -> serde_json::Value {
    json!({
        "max_abs": number_json(difference.max_abs),
        "relative": number_json(difference.relative()),
        "snr_db": number_json(difference.snr_db),
        "shapes": difference.shapes,
    })
}
