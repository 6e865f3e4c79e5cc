//! `rushlight inspect`.

use std::path::PathBuf;

use clap::Args;
use rushlight::{Error, MethodMeta, ValueInfo, open_shared};
use rushlight_compiler::front::pte::lift;
use rushlight_compiler::{CompileOptions, Stage, advance, debug_map, import_pt2};
use rushlight_devtools::describe;
use rushlight_devtools::graph::{self, ModelView};
use rushlight_devtools::memory::{self, MemoryMap};
use rushlight_format::pte::Plan;
use rushlight_format::{Program, tokenizer};
use rushlight_graph::Bytes;
use rushlight_graph::text::Detail;
use serde_json::json;

use crate::arguments::{Model, output_file};
use crate::browser;
use crate::failure::Failure;
use crate::output;

/// Shows the contents of a program, or the graph of a model. Runs nothing.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight inspect model.pte                              methods, inputs, outputs, operators, memory
  rushlight inspect model.pte --memory --html memory.html  which tensor is where in planned memory, and when
  rushlight inspect model.pt2                              the graph as text: operators, types, lines of Python
  rushlight inspect model.pt2 --open                       a page to zoom, search and open modules in, in the browser
  rushlight inspect model.pt2 --html graph.html            the same page as a file
  rushlight inspect model.pt2 --stage final --json         what the compiler writes to the program
  rushlight inspect model.pte --graph                      the graph that a program is lifted back to")]
pub struct Inspect {
    #[command(flatten)]
    model: Model,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Draw the place and lifetime of each tensor in planned memory
    #[arg(long, conflicts_with_all = ["json", "graph", "stage"])]
    memory: bool,

    /// Also show the graph of a .pte file; that of a .pt2 file is always shown
    #[arg(long)]
    graph: bool,

    /// The stage of compilation to show
    #[arg(long, value_enum, value_name = "STAGE")]
    stage: Option<GraphStage>,

    /// Write the drawing of the memory or of the graph as a web page
    #[arg(long, value_name = "FILE", conflicts_with = "json", value_parser = output_file())]
    html: Option<PathBuf>,

    /// Open the page of `--html` in the browser; without `--html`, a page in the folder of temporary files
    #[arg(long, conflicts_with = "json")]
    open: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum GraphStage {
    /// The graph of the export, or lifted from a program
    Imported,
    /// Functional and simplified, with operators that kernels have
    Canonical,
    /// The graph that the compiler writes to the program
    Final,
}

impl From<GraphStage> for Stage {
    fn from(stage: GraphStage) -> Self {
        match stage {
            GraphStage::Imported => Self::Imported,
            GraphStage::Canonical => Self::Canonical,
            GraphStage::Final => Self::Final,
        }
    }
}

/// Columns of the drawing, so that it fits with its axis in a terminal of 80 columns.
const WIDTH: usize = 66;

impl Inspect {
    pub fn run(self) -> Result<(), Failure> {
        output::check_outputs(self.model.files(), &self.html)?;
        let is_page = self.html.is_some() || self.open;
        let bytes = open_shared(&self.model.model)?;
        // Archives of torch.export are zip files.
        let is_exported = bytes.starts_with(b"PK\x03\x04");
        if is_exported && self.memory {
            return Err(Failure::Other("only a .pte file has a memory plan: compile the model first".to_owned()));
        }
        if is_exported || self.graph || self.stage.is_some() || (is_page && !self.memory) {
            return self.graph(&bytes, is_exported, is_page);
        }
        drop(bytes);
        let module = self.model.load()?;
        let program = module.program().parsed();
        if self.json {
            output::print_json(&describe::program(&program));
        } else if self.memory {
            let nodes = debug_map::of_program(&program);
            let map =
                |method: Plan<'_>| MemoryMap::of(&method, nodes.iter().find(|nodes| nodes.method == method.name()));
            let maps: Vec<MemoryMap> = program.methods().map(map).collect();
            if is_page {
                return self.write_page(&memory::html(&self.name(), &maps));
            }
            let texts: Vec<String> = maps.iter().map(|map| memory::text(map, WIDTH)).collect();
            output::print(texts.join("\n").trim_end());
        } else {
            self.print_program(&program);
        }
        Ok(())
    }

    /// The name of the file.
    fn name(&self) -> String {
        self.model.model.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Writes a page, and opens it in the browser if that is asked for.
    fn write_page(&self, text: &str) -> Result<(), Failure> {
        let path = match &self.html {
            Some(path) => path.clone(),
            None => browser::new_folder()?.join(format!("{}.html", self.name())),
        };
        output::write_text(&path, text)?;
        if self.open { browser::open(&path) } else { Ok(()) }
    }

    fn graph(&self, bytes: &Bytes, is_exported: bool, is_page: bool) -> Result<(), Failure> {
        let options = CompileOptions::default();
        let mut model = if is_exported {
            import_pt2(&[("forward", bytes.clone())], options.import)
        } else {
            let external: Result<Vec<Bytes>, _> = self.model.opening.data.iter().map(open_shared).collect();
            lift(bytes, &external?)
        }
        .map_err(Error::from)?;
        let stage = self.stage.map_or(Stage::Imported, Stage::from);
        advance(&mut model, &options, stage).map_err(Error::from)?;
        if self.json {
            output::print_json(&json!(ModelView::of(&model)));
        } else if is_page {
            return self.write_page(&graph::html(&self.name(), &ModelView::of(&model)));
        } else {
            let (text, _) = model.to_text(Detail::Review).map_err(Error::from)?;
            output::print(text.trim_end());
        }
        Ok(())
    }

    fn print_program(&self, program: &Program<'_>) {
        let header = if program.header().is_some() { "extended header" } else { "no extended header" };
        output::print(&format!(
            "{}  {}, version {}, {header}",
            self.model.model.display(),
            output::bytes(program.bytes().len() as u64),
            program.version()
        ));
        for plan in program.methods() {
            print_method(&MethodMeta::of(&plan));
        }
        print_data(program);
    }
}

/// Prints the parts of a file that are not methods.
fn print_data(program: &Program<'_>) {
    let tokenizer: Vec<(&str, &[u8])> = tokenizer::files(program.named_data()).collect();
    let named = || program.named_data().filter(|(key, _)| !key.starts_with(tokenizer::KEY_PREFIX));
    if tokenizer.is_empty() && named().next().is_none() && program.num_segments() == 0 {
        return;
    }
    output::print("\nin the file");
    if !tokenizer.is_empty() {
        let names: Vec<&str> = tokenizer.iter().map(|(name, _)| *name).collect();
        let size = tokenizer.iter().map(|(_, data)| data.len() as u64).sum();
        output::print(&format!("  tokenizer    {}  {}", names.join(", "), output::bytes(size)));
    }
    for (key, data) in named() {
        output::print(&format!("  named data   {key}  {}", output::bytes(data.len() as u64)));
    }
    for i in 0..program.num_segments() {
        let len = program.segment(i).map_or(0, <[u8]>::len);
        output::print(&format!("  segment {i}    {}", output::bytes(len as u64)));
    }
}

fn print_method(meta: &MethodMeta) {
    output::print(&format!("\nmethod {}  {} instructions", meta.name, meta.num_instructions));
    if let Some(signature) = &meta.signature {
        output::print(&format!("  signature  {signature}"));
    }
    let values = |name: &str, infos: &[ValueInfo], names: &[String], shown: fn(&ValueInfo) -> String| {
        for (i, info) in infos.iter().enumerate() {
            let tensor = info.as_tensor();
            let memory = tensor.map_or("", |t| if t.is_memory_planned { "" } else { "  (not planned)" });
            let known = names.get(i).or_else(|| tensor?.name.as_ref()).filter(|name| !name.is_empty());
            let label = known.map_or_else(String::new, |name| format!("  {name}"));
            output::print(&format!("  {name} {i}    {}{label}{memory}", shown(info)));
        }
    };
    values("input", &meta.inputs, &meta.input_names, ValueInfo::to_string);
    values("output", &meta.outputs, &meta.output_names, ValueInfo::as_output);
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
