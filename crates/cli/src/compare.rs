//! `rushlight compare`.

use std::path::PathBuf;

use clap::Args;
use rushlight::{Compiler, Module};
use rushlight_devtools::compare::{Comparison, Incomparable, Reference, Row};
use serde_json::json;

use crate::arguments::{Method, Model};
use crate::failure::Failure;
use crate::inputs::{Inputs, borrow};
use crate::output;

/// Runs a model as it was exported and as it was compiled, node by node, and shows where the numbers part.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight compare model.pt2 model.pte                   random inputs of the declared shapes
  rushlight compare model.pt2 model.pte -i x.npy --worst 20")]
pub struct Compare {
    /// The .pt2 file: every node of it is run by the reference operators
    reference: PathBuf,
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    method: Method,
    #[command(flatten)]
    inputs: Inputs,

    /// How many of the results that differ most to show
    #[arg(long, default_value_t = 5, value_name = "N")]
    worst: usize,

    /// The difference, relative to a result's largest element, that counts
    #[arg(long, default_value_t = 1e-4)]
    tolerance: f64,

    /// Print all results as JSON
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub fn run(self) -> Result<(), Failure> {
        let mut candidate = self.model.load()?;
        let method = self.method.choose(&candidate);
        let values = self.inputs.values(&candidate.meta(&method)?)?;
        let inputs = borrow(&values)?;
        let mut reference = Reference::new(Compiler::new().method(&method, &self.reference), Module::builder())?;
        let comparison = reference.compare(&mut candidate, &method, &inputs).map_err(|error| match error {
            Incomparable::Failed(error) => error.into(),
            Incomparable::NoDebugMap { .. } => Failure::Other(format!("`{}`: {error}", self.model.model.display())),
        })?;
        self.print(&comparison);
        Ok(())
    }

    fn print(&self, comparison: &Comparison) {
        if self.json {
            let rows: Vec<_> = comparison.rows.iter().map(json_row).collect();
            output::print_json(&json!({ "results": rows, "only_in_reference": comparison.only_in_reference }));
            return;
        }
        let rows = comparison.worst(self.worst).into_iter().map(|row| {
            vec![
                row.result.clone(),
                row.op.clone(),
                row.shapes.as_ref().map_or_else(|| format!("{:.2e}", row.max_abs), |(a, b)| format!("{a:?} or {b:?}")),
                format!("{:.2e}", row.relative()),
                format!("{:.1} dB", row.snr_db),
                row.source.clone().unwrap_or_default(),
            ]
        });
        output::print(&output::table(&["result", "operator", "largest ", "relative ", "snr ", "source"], rows));
        let (compared, only) = (comparison.rows.len(), comparison.only_in_reference);
        output::print(&format!(
            "\n{compared} results compared; {only} are only in the reference, folded or fused away"
        ));
        match comparison.first_difference(self.tolerance) {
            None => output::print(&format!("no result differs by more than {:e} of its scale", self.tolerance)),
            Some(row) => {
                let source = row.source.as_deref().unwrap_or("an unknown line");
                let module = if row.module.is_empty() { "the model itself" } else { &row.module };
                output::print(&format!(
                    "the numbers part at `{}` ({}), relative {:.2e}\n  module  {module}\n  source  {source}",
                    row.result,
                    row.op,
                    row.relative()
                ));
            }
        }
    }
}

fn json_row(row: &Row) -> serde_json::Value {
    json!({
        "result": row.result,
        "node": row.node,
        "operator": row.op,
        "module": row.module,
        "source": row.source,
        "max_abs": row.max_abs,
        "relative": row.relative(),
        "snr_db": row.snr_db,
        "shapes": row.shapes,
    })
}
