//! `rushlight ops`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use rushlight::kernels::ALL;
use rushlight::{MethodMeta, Module, OpSet, Registry};
use serde_json::json;

use crate::failure::Failure;
use crate::op_paths::PATHS;
use crate::output;

/// Lists the operators that programs need, which set has each, and what is missing.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight ops model.pte                      what it needs and where that is
  rushlight ops --rust a.pte b.pte > ops.rs    a set with exactly their operators, for small builds
  rushlight ops                                every operator of this build")]
pub struct Ops {
    /// The .pte files; without any, lists the operators of this build
    models: Vec<PathBuf>,

    /// Print the Rust constant with exactly these operators
    #[arg(long)]
    rust: bool,

    /// Print JSON
    #[arg(long, conflicts_with = "rust")]
    json: bool,
}

impl Ops {
    pub fn run(self) -> Result<(), Failure> {
        if self.models.is_empty() {
            return self.list_all();
        }
        let mut needed: BTreeMap<String, usize> = BTreeMap::new();
        for path in &self.models {
            let module = Module::load(path)?;
            for plan in module.program().parsed().methods() {
                for op in MethodMeta::of(&plan).operators {
                    *needed.entry(op.name).or_default() += op.calls;
                }
            }
        }
        let missing: Vec<&str> = needed.keys().map(String::as_str).filter(|name| set_of(name).is_none()).collect();
        if self.rust {
            return print_rust(needed.keys().map(String::as_str), &missing);
        }
        if self.json {
            let row = |(name, calls): (&String, &usize)| json!({ "name": name, "calls": calls, "set": set_of(name).map(|set| set.name) });
            let operators: Vec<_> = needed.iter().map(row).collect();
            output::print_json(&json!({ "operators": operators, "missing": missing }));
        } else {
            let rows = needed.iter().map(|(name, calls)| {
                let set = set_of(name).map_or("MISSING", |set| set.name);
                vec![name.clone(), calls.to_string(), set.to_owned()]
            });
            output::print(&output::table(&["operator", "calls ", "set"], rows));
            output::print(&format!("{} operators, {} missing", needed.len(), missing.len()));
        }
        Ok(())
    }

    fn list_all(&self) -> Result<(), Failure> {
        if self.json {
            let sets: Vec<_> = ALL.iter().map(|set| json!({ "set": set.name, "operators": names(set) })).collect();
            output::print_json(&json!(sets));
            return Ok(());
        }
        if self.rust {
            return Err(Failure::Arguments("--rust needs the programs whose operators to select".to_owned()));
        }
        for set in ALL {
            for name in names(set) {
                output::print(&format!("{name}  {}", set.name));
            }
        }
        Ok(())
    }
}

fn names(set: &OpSet) -> Vec<&'static str> {
    set.iter().map(|op| op.name).collect()
}

fn set_of(name: &str) -> Option<&'static OpSet> {
    ALL.iter().copied().find(|set| Registry::new(&[*set]).find(name, "").is_some())
}

fn print_rust<'a>(needed: impl Iterator<Item = &'a str>, missing: &[&str]) -> Result<(), Failure> {
    if !missing.is_empty() {
        return Err(Failure::Other(format!("these operators are in no set: {}", missing.join(", "))));
    }
    let mut lines = Vec::new();
    for name in needed {
        let Some((_, path)) = PATHS.iter().find(|(op, _)| *op == name) else {
            return Err(Failure::Other(format!("the path of {name} is not known")));
        };
        lines.push(format!("    rushlight::{path},"));
    }
    output::print(&format!(
        "/// The operators that the program needs, and no others.\n\
         pub const OPS: rushlight::OpSet = rushlight::OpSet {{ name: \"OPS\", groups: &[&[&[\n{}\n]]] }};",
        lines.join("\n")
    ));
    Ok(())
}
