//! `rushlight ops`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use rushlight::kernels::ALL;
use rushlight::{Error, MethodMeta, Module, ModuleBuilder, OpSet, Portability, Program, Registry};
use serde_json::json;

use crate::failure::Failure;
use crate::firmware;
use crate::npm;
use crate::op_paths::PATHS;
use crate::output;

/// Lists the operators that programs need, the set of each, and the missing ones.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight ops model.pte                      what it needs and where that is
  rushlight ops --rust a.pte b.pte > ops.rs    a set with exactly their operators, for small builds
  rushlight ops --npm small a.pte b.pte        the npm package with exactly their operators, for small downloads
  rushlight ops                                every operator of this build")]
pub struct Ops {
    /// The .pte files; without any, the operators of this build are listed
    models: Vec<PathBuf>,

    /// A .ptd file with constants that are not in the programs; may be repeated
    #[arg(long, value_name = "FILE.ptd")]
    data: Vec<PathBuf>,

    /// Print the Rust constant with exactly these operators
    #[arg(long)]
    rust: bool,

    /// Write the npm package with exactly these operators to a new folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "rust")]
    npm: Option<PathBuf>,

    /// The npm package that --npm makes smaller
    #[arg(long, value_name = "FOLDER", default_value = "node_modules/rushlight", requires = "npm")]
    package: PathBuf,

    /// Print JSON
    #[arg(long, conflicts_with_all = ["rust", "npm"])]
    json: bool,
}

impl Ops {
    pub fn run(self) -> Result<(), Failure> {
        if self.models.is_empty() {
            return self.list_all();
        }
        let mut needed: BTreeMap<String, usize> = BTreeMap::new();
        for path in &self.models {
            let module = self.data.iter().fold(Module::builder(), ModuleBuilder::external_data).load(path)?;
            add(module.program(), &mut needed);
            if self.npm.is_none() {
                firmware::check(path, module.program())?;
            } else {
                add_lowered(path, &module, &mut needed)?;
            }
        }
        let missing: Vec<&str> = needed.keys().map(String::as_str).filter(|name| set_of(name).is_none()).collect();
        if let Some(folder) = &self.npm {
            check_none(&missing)?;
            return self.write_npm(folder, &needed.keys().map(String::as_str).collect());
        }
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

    fn write_npm(&self, folder: &Path, needed: &BTreeSet<&str>) -> Result<(), Failure> {
        let kilobytes = |bytes: usize| format!("{} kB", bytes.div_ceil(1000));
        let modules = npm::write(&self.package, folder, needed)?;
        let rows = modules.into_iter().map(|(name, before, after)| vec![name, kilobytes(before), kilobytes(after)]);
        output::print(&output::table(&["module", "before ", "after "], rows));
        output::print(&format!("{} operators in {}", needed.len(), folder.display()));
        Ok(())
    }

    fn list_all(&self) -> Result<(), Failure> {
        if self.json {
            let sets: Vec<_> = ALL.iter().map(|set| json!({ "set": set.name, "operators": names(set) })).collect();
            output::print_json(&json!(sets));
            return Ok(());
        }
        if self.rust || self.npm.is_some() {
            return Err(Failure::Arguments("--rust and --npm need the programs whose operators to select".to_owned()));
        }
        for set in ALL {
            for name in names(set) {
                output::print(&format!("{name}  {}", set.name));
            }
        }
        Ok(())
    }
}

/// Adds the operators that a program calls after a page has lowered it; lowering may change them. A program that cannot
/// be lowered here is not lowered by the page either, unless it is for a foreign backend.
fn add_lowered(path: &Path, module: &Module, needed: &mut BTreeMap<String, usize>) -> Result<(), Failure> {
    let portability = module.portability();
    if matches!(portability, Portability::Compiled | Portability::Small) {
        return Ok(());
    }
    match module.to_lowered() {
        Ok(lowered) => add(&Program::parse(&lowered).map_err(Error::from)?, needed),
        Err(error) if portability == Portability::Foreign => return Err(error.into()),
        Err(error) => output::warn(&format!("`{}` is taken as it is, not lowered: {error}", path.display())),
    }
    Ok(())
}

/// Adds the operators that a program calls.
fn add(program: &Program<'_>, needed: &mut BTreeMap<String, usize>) {
    for plan in program.parsed().methods() {
        for op in MethodMeta::of(&plan).operators {
            *needed.entry(op.name).or_default() += op.calls;
        }
    }
}

fn names(set: &OpSet) -> Vec<&'static str> {
    set.iter().map(|op| op.name).collect()
}

fn set_of(name: &str) -> Option<&'static OpSet> {
    ALL.iter().copied().find(|set| Registry::new(&[*set]).find(name, "").is_some())
}

fn check_none(missing: &[&str]) -> Result<(), Failure> {
    match missing {
        [] => Ok(()),
        _ => Err(Failure::Other(format!("these operators are in no set: {}", missing.join(", ")))),
    }
}

fn print_rust<'a>(needed: impl Iterator<Item = &'a str>, missing: &[&str]) -> Result<(), Failure> {
    check_none(missing)?;
    output::print(&rust_constant(needed)?);
    Ok(())
}

/// The Rust constant `OPS` with these operators.
pub fn rust_constant<'a>(needed: impl Iterator<Item = &'a str>) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for name in needed {
        let Some((_, path)) = PATHS.iter().find(|(op, _)| *op == name) else {
            return Err(Failure::Other(format!("the path of {name} is not known")));
        };
        lines.push(format!("    rushlight::{path},"));
    }
    Ok(format!(
        "/// The operators that the program needs, and no others.\n\
         pub const OPS: rushlight::OpSet = rushlight::OpSet {{ name: \"OPS\", groups: &[&[&[\n{}\n]]] }};",
        lines.join("\n")
    ))
}
