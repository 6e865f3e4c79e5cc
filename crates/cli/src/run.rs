//! `rushlight run`.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use rushlight::{MethodMeta, Structure, Value, ValueInfo};
use rushlight_devtools::npy;
use serde_json::json;

use crate::arguments::{Method, Model, Running, count, output_file};
use crate::failure::Failure;
use crate::inputs::{Inputs, borrow, extension};
use crate::output;
use crate::profile::Profile;
use crate::ranking::{self, Labels, Ranked};

/// Runs a method and prints its outputs, or writes them to files.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight run model.pte                                  random inputs of the declared shapes
  rushlight run model.pte -i x.npy -i mask.npy -o out      writes out/output_0.npy and so on, or out/NAME.npy
  rushlight run model.pte -i x.npy -o y.npy                its only output to a file
  rushlight run bert.pte -i input_ids=ids.npy -i attention_mask=mask.npy
                                                           inputs by name, as `rushlight inspect` shows them
  rushlight run model.pte -i cat.jpg --normalize imagenet --top 5 --labels classes.txt
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

    /// Write tensor outputs to this folder. The files have the names of the model's output keys, or output_0.npy and so
    /// on. A single output may go to a file that ends in .npy
    #[arg(long, short, value_name = "FOLDER|FILE.npy", value_parser = output_file())]
    output: Option<PathBuf>,

    /// Print the largest N elements of each row of an output, with their indices, and with softmax unless they are
    /// probabilities
    #[arg(long, value_name = "N", value_parser = count)]
    top: Option<usize>,

    /// Names of the elements: text with a line for each, a list in JSON, or an object with `id2label`, such as
    /// transformers' config.json
    #[arg(long, value_name = "FILE", requires = "top")]
    labels: Option<PathBuf>,

    /// Number of elements of each output to print
    #[arg(long, default_value_t = 16)]
    limit: usize,

    #[command(flatten)]
    profile: Profile,

    /// Number of calls of the method; state is kept from call to call, and the last outputs are printed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Print the outputs, and with --profile the times, as JSON
    #[arg(long)]
    json: bool,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        let mut measured = self.profile.measurement();
        let mut module = self.model.load_to_run(&self.running)?;
        let method = self.method.choose(&module)?;
        output::say_who_runs(&mut module);
        let meta = module.meta(&method)?;
        let labels = self.labels.as_deref().map(Labels::read).transpose()?;
        let files = self.files(&meta)?;
        let written = files.iter().flatten().chain(&self.profile.trace);
        let read = self.model.files().chain(self.inputs.files()).chain(self.labels.clone());
        output::check_outputs(read, written)?;
        let values = self.inputs.values(&meta)?;
        let inputs = borrow(&values)?;
        let mut outputs = Vec::new();
        for _ in 0..self.repeat {
            outputs = match &mut measured {
                Some(measured) => module.call(&method).inputs(&inputs).tracer(&mut measured.profiler).run()?,
                None => module.run(&method, &inputs)?,
            };
        }
        let ranked = self.ranked(&meta, &outputs, labels.as_ref())?;
        let files = match &self.output {
            Some(_) => self.write(&meta, &outputs, &files)?,
            None => vec![None; outputs.len()],
        };
        if self.json {
            let json = |(index, (value, file)): (usize, (&Value, &Option<PathBuf>))| {
                let mut json = output::value_json(value, self.limit);
                if let Some(Some(ranked)) = ranked.get(index) {
                    json["top"] = ranking::json(ranked);
                }
                json["name"] = meta.output_names.get(index).filter(|name| !name.is_empty()).cloned().into();
                if let Some(file) = file {
                    json["file"] = file.display().to_string().into();
                }
                json
            };
            let outputs: Vec<_> = outputs.iter().zip(&files).enumerate().map(json).collect();
            let mut json = json!({ "method": method, "outputs": outputs });
            if let Some(measured) = &measured {
                json["profile"] = measured.json(&self.profile, &mut module, &method)?;
            }
            output::print_json(&json);
        } else {
            self.print(&meta, &outputs, &files, &ranked);
            if let Some(measured) = &measured {
                self.profile.print(measured, &mut module, &method)?;
            }
        }
        measured.map_or(Ok(()), |measured| self.profile.write_trace(&measured))
    }

    /// The largest elements of each output, if the user asks for them; `None` for outputs that are not tensors.
    fn ranked<'l>(
        &self,
        meta: &MethodMeta,
        outputs: &[Value],
        labels: Option<&'l Labels>,
    ) -> Result<Vec<Option<Vec<Ranked<'l>>>>, Failure> {
        let of = |(index, value): (usize, &Value)| match (value, self.top) {
            (Value::Tensor(tensor), Some(_)) if tensor.shape().len() > MAX_RANK => {
                output::warn(&format!(
                    "{} is a map, {} {:?}, and has no classes to rank: --top takes outputs of at most {MAX_RANK} dimensions",
                    meta.output_label(index),
                    tensor.dtype(),
                    tensor.shape()
                ));
                Ok(None)
            }
            (Value::Tensor(tensor), Some(top)) => {
                ranking::largest(tensor, top, labels, &meta.output_label(index)).map(Some)
            }
            _ => Ok(None),
        };
        outputs.iter().enumerate().map(of).collect()
    }

    /// Returns the files of the outputs, if they are written; `None` for outputs that are not tensors.
    fn files(&self, meta: &MethodMeta) -> Result<Vec<Option<PathBuf>>, Failure> {
        let Some(path) = &self.output else { return Ok(Vec::new()) };
        let is_tensor = |info: &ValueInfo| matches!(info, ValueInfo::Tensor(_));
        let folder = path.display();
        if path.is_dir() || !path.exists() && !FILES.contains(&&*extension(path)) {
            let file = |(info, name): (&ValueInfo, String)| is_tensor(info).then(|| path.join(format!("{name}.npy")));
            return Ok(meta.outputs.iter().zip(file_names(meta)).map(file).collect());
        }
        let tensors = meta.outputs.iter().filter(|info| is_tensor(info)).count();
        if extension(path) != "npy" {
            return Err(Failure::Arguments(format!(
                "--output {folder}: expected a folder, or a file that ends in .npy"
            )));
        }
        if tensors != 1 {
            let name = &meta.name;
            return Err(Failure::Arguments(format!(
                "--output {folder}: `{name}` has {tensors} tensors as outputs; a .npy file holds one, name a folder"
            )));
        }
        Ok(meta.outputs.iter().map(|info| is_tensor(info).then(|| path.clone())).collect())
    }

    /// Writes tensors to their files. Returns the files that were written.
    fn write(
        &self,
        meta: &MethodMeta,
        outputs: &[Value],
        files: &[Option<PathBuf>],
    ) -> Result<Vec<Option<PathBuf>>, Failure> {
        if let Some(folder) = &self.output
            && files.iter().flatten().any(|file| file != folder)
        {
            std::fs::create_dir_all(folder).map_err(|e| Failure::make(folder, e))?;
        }
        let mut written = Vec::with_capacity(outputs.len());
        for (i, value) in outputs.iter().enumerate() {
            let file = files.get(i).cloned().flatten();
            let (Value::Tensor(tensor), Some(path)) = (value, file) else {
                written.push(None);
                continue;
            };
            let mut bytes = Vec::new();
            npy::write(tensor, &mut bytes).map_err(|e| Failure::Other(format!("{}: {e}", meta.output_label(i))))?;
            rushlight::write_file(&path, &bytes)?;
            written.push(Some(path));
        }
        Ok(written)
    }

    /// Prints the file of a tensor, its largest elements, or its first ones.
    fn print(
        &self,
        meta: &MethodMeta,
        outputs: &[Value],
        files: &[Option<PathBuf>],
        ranked: &[Option<Vec<Ranked<'_>>>],
    ) {
        for (i, (value, file)) in outputs.iter().zip(files).enumerate() {
            if let (Value::Tensor(tensor), Some(file)) = (value, file) {
                output::print(&format!("{}  {} {:?}", file.display(), tensor.dtype(), tensor.shape()));
            }
            let label = meta.output_label(i);
            match ranked.get(i).and_then(Option::as_ref) {
                Some(ranked) => output::print(&format!("{label}\n{}", ranking::table(ranked))),
                _ if file.is_some() => {}
                _ => output::print(&format!("{label}  {}", output::value(value, self.limit))),
            }
        }
    }
}

/// Maximum rank of scores: `[classes]`, with a batch, and with a sequence. The last dimension of images and maps is their width.
const MAX_RANK: usize = 3;

/// True for names of devices on Windows, which exist in all folders.
fn is_device(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_numbered = |of: &str| {
        name.strip_prefix(of).is_some_and(|number| number.len() == 1 && number.bytes().all(|c| c.is_ascii_digit()))
    };
    matches!(&*name, "con" | "prn" | "aux" | "nul") || is_numbered("com") || is_numbered("lpt")
}

/// The files of the outputs, without their extension: their keys, if they have any, in characters that are safe in any
/// folder.
fn file_names(meta: &MethodMeta) -> Vec<String> {
    let numbered = || (0..meta.outputs.len()).map(|index| format!("output_{index}")).collect();
    let signature = meta.signature.as_ref().map(|signature| &signature.outputs);
    if !matches!(signature, Some(Structure::Dict(_) | Structure::Record { .. })) {
        return numbered();
    }
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let safe = |name: &String| name.chars().map(|c| if is_safe(c) { c } else { '_' }).collect::<String>();
    let names: Vec<String> = meta.output_names.iter().map(safe).collect();
    // Some file systems limit names to 255 bytes, and do not distinguish upper and lower case.
    let distinct: HashSet<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let fit = names.iter().all(|name| {
        !name.is_empty()
            && name.len() <= 200
            && !name.starts_with('.')
            && !is_device(name.split('.').next().unwrap_or(name))
    });
    if fit && distinct.len() == meta.outputs.len() { names } else { numbered() }
}

/// File extensions. An output path with one of them is not a folder.
const FILES: [&str; 14] =
    ["npy", "npz", "bin", "raw", "json", "txt", "csv", "png", "jpg", "jpeg", "pt", "pt2", "pte", "ptd"];

#[cfg(test)]
mod tests {
    use super::is_device;

    #[test]
    fn names_of_devices_are_known() {
        assert!(["aux", "CON", "nul", "com1", "LPT9"].into_iter().all(is_device));
        assert!(["auxiliary", "com", "com10", "logits", ""].into_iter().all(|name| !is_device(name)));
    }
}
