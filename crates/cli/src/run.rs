//! `rushlight run`.

use std::path::PathBuf;

use clap::Args;
use rushlight::{Tensor, Value};
use rushlight_devtools::npy;
use rushlight_devtools::numbers::doubles;
use serde_json::json;

use crate::arguments::{Method, Model, Running};
use crate::failure::Failure;
use crate::inputs::{Inputs, borrow};
use crate::output;
use crate::profile::{Measurement, Profile};

/// Runs a method and prints its outputs, or writes them to files.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight run model.pte                                  random inputs of the declared shapes
  rushlight run model.pte -i x.npy -i mask.npy -o out      writes out/output_0.npy and so on
  rushlight run model.pte -i cat.jpg --normalize imagenet --top 5
  rushlight run model.pte --shape 0=4x128 --profile        a dynamic input; where the time goes
  rushlight run model.pte --profile --json > times.json    each instruction with its node and line of Python
  rushlight run model.pte --repeat 5 --trace trace.json    a timeline for ui.perfetto.dev")]
pub struct Run {
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    method: Method,
    #[command(flatten)]
    inputs: Inputs,

    /// Write tensor outputs to this folder as output_0.npy and so on
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,

    /// Print the largest N elements of each output with their indices
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Elements of each output to print
    #[arg(long, default_value_t = 16)]
    limit: usize,

    #[command(flatten)]
    profile: Profile,

    /// Call the method this often; state is kept from call to call, the last outputs are shown
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Print the outputs, and with --profile the times, as JSON
    #[arg(long)]
    json: bool,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        let mut measured = self.profile.measurement();
        let steps = measured.as_ref().map(Measurement::steps);
        let mut module = self.model.load_to_run(&self.running, steps)?;
        let method = self.method.choose(&module);
        let meta = module.meta(&method)?;
        let values = self.inputs.values(&meta)?;
        let inputs = borrow(&values)?;
        let mut outputs = Vec::new();
        for _ in 0..self.repeat {
            outputs = match &mut measured {
                Some(measured) => module.run_traced(&method, &inputs, &mut measured.profiler)?,
                None => module.run(&method, &inputs)?,
            };
        }
        if let Some(folder) = &self.output {
            write(folder, &outputs, self.json)?;
        } else if !self.json {
            self.print(&outputs);
        }
        if self.json {
            let outputs: Vec<_> = outputs.iter().map(|value| output::value_json(value, self.limit)).collect();
            let mut json = json!({ "method": method, "outputs": outputs });
            if let Some(measured) = &measured {
                json["profile"] = measured.json(&mut module, &method)?;
            }
            output::print_json(&json);
        } else if let Some(measured) = &measured {
            self.profile.print(measured, &mut module, &method)?;
        }
        measured.map_or(Ok(()), |measured| self.profile.write_trace(&measured))
    }

    fn print(&self, outputs: &[Value]) {
        for (i, value) in outputs.iter().enumerate() {
            match (value, self.top) {
                (Value::Tensor(tensor), Some(top)) => output::print(&format!("output {i}\n{}", largest(tensor, top))),
                _ => output::print(&format!("output {i}  {}", output::value(value, self.limit))),
            }
        }
    }
}

fn write(folder: &std::path::Path, outputs: &[Value], quiet: bool) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|e| Failure::write(folder, e))?;
    for (i, value) in outputs.iter().enumerate() {
        let Value::Tensor(tensor) = value else {
            if !quiet {
                output::print(&format!("output {i}  {}", output::value(value, 1)));
            }
            continue;
        };
        let path = folder.join(format!("output_{i}.npy"));
        output::write_file(&path, |bytes| {
            npy::write(tensor, bytes).map_err(|e| Failure::Other(format!("output {i}: {e}")))
        })?;
        if !quiet {
            output::print(&format!("{}  {} {:?}", path.display(), tensor.dtype(), tensor.shape()));
        }
    }
    Ok(())
}

fn largest(tensor: &Tensor, count: usize) -> String {
    let mut ranked: Vec<(usize, f64)> = doubles(tensor).into_iter().enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let lines: Vec<String> = ranked.iter().take(count).map(|(i, v)| format!("  {i:>6}  {v:.6}")).collect();
    lines.join("\n")
}
