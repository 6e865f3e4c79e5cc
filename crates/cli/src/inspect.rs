//! `rushlight inspect`.

use std::path::PathBuf;

use clap::Args;
use rushlight::{MethodMeta, ValueInfo};
use rushlight_devtools::describe;
use rushlight_devtools::memory::{self, MemoryMap};

use crate::arguments::Model;
use crate::failure::Failure;
use crate::output;

/// Shows what a program holds. Nothing is loaded or run.
#[derive(Args)]
pub struct Inspect {
    #[command(flatten)]
    model: Model,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Draw which tensors are where in planned memory, and when
    #[arg(long, conflicts_with = "json")]
    memory: bool,

    /// Write the drawing as a web page instead
    #[arg(long, value_name = "FILE", requires = "memory")]
    html: Option<PathBuf>,
}

/// Columns of the drawing, which leave room for its axis in a terminal of 80.
const WIDTH: usize = 66;

impl Inspect {
    pub fn run(self) -> Result<(), Failure> {
        let module = self.model.load()?;
        let program = module.program().parsed();
        if self.json {
            output::print_json(&describe::program(&program));
            return Ok(());
        }
        if self.memory {
            let maps: Vec<MemoryMap> = program.methods().map(|method| MemoryMap::of(&method)).collect();
            if let Some(path) = &self.html {
                let name = self.model.model.file_name().unwrap_or_default().to_string_lossy();
                let page = memory::html(&name, &maps);
                return output::write_file(path, |bytes| {
                    bytes.extend_from_slice(page.as_bytes());
                    Ok(())
                });
            }
            let texts: Vec<String> = maps.iter().map(|map| memory::text(map, WIDTH)).collect();
            output::print(texts.join("\n").trim_end());
            return Ok(());
        }
        let header = if program.header().is_some() { "extended header" } else { "no extended header" };
        output::print(&format!(
            "{}  {}, version {}, {header}",
            self.model.model.display(),
            output::bytes(program.bytes().len() as u64),
            program.version()
        ));
        for i in 0..program.num_segments() {
            let len = program.segment(i).map_or(0, <[u8]>::len);
            output::print(&format!("  segment {i}    {}", output::bytes(len as u64)));
        }
        for (key, data) in program.named_data() {
            output::print(&format!("  named data   {key}  {}", output::bytes(data.len() as u64)));
        }
        for plan in program.methods() {
            print_method(&MethodMeta::of(&plan));
        }
        Ok(())
    }
}

fn print_method(meta: &MethodMeta) {
    output::print(&format!("\nmethod {}  {} instructions", meta.name, meta.num_instructions));
    let values = |name: &str, infos: &[ValueInfo]| {
        for (i, info) in infos.iter().enumerate() {
            let tensor = info.as_tensor();
            let memory = tensor.map_or("", |t| if t.is_memory_planned { "" } else { "  (not planned)" });
            let label = tensor.and_then(|t| t.name.as_deref()).map_or_else(String::new, |name| format!("  {name}"));
            output::print(&format!("  {name} {i}    {info}{label}{memory}"));
        }
    };
    values("input", &meta.inputs);
    values("output", &meta.outputs);
    for attribute in &meta.attributes {
        output::print(&format!("  attribute  {}  {attribute}", attribute.name.as_deref().unwrap_or_default()));
    }
    for (i, size) in meta.planned_buffers.iter().enumerate() {
        output::print(&format!("  memory {}   {} planned", i + 1, output::bytes(*size)));
    }
    for backend in &meta.backends {
        output::print(&format!("  delegate   {backend}"));
    }
    let mut operators: Vec<_> = meta.operators.iter().collect();
    operators.sort_by_key(|op| std::cmp::Reverse(op.calls));
    if !operators.is_empty() {
        let rows = operators.iter().map(|op| vec![format!("  {}", op.name), op.calls.to_string()]);
        output::print(&output::table(&["  operator", "calls "], rows));
    }
}
