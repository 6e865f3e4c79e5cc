//! The error for a missing data file.

use std::path::{Path, PathBuf};

use rushlight_format::FlatTensor;
use rushlight_format::pte::{Plan, TensorStorage, ValueSpec};
use rushlight_runtime::Program;

use super::Module;
use crate::error::Error;
use crate::source::{self, LoadMode};

impl Module {
    /// Returns the error of a method that needs weights of a missing data file. It names the weights, and the files beside the
    /// program that have them. Returns `error` if no weight is missing.
    pub(super) fn missing_data_error(&self, error: Error, program: &Program<'static>, method: &str) -> Error {
        let parsed = program.parsed();
        let given = &self.options.external_data;
        let is_known =
            |key: &str| parsed.named(key).is_some() || given.iter().any(|data| data.parsed().get(key).is_some());
        let plan = parsed.method_named(method);
        let mut missing: Vec<&str> = plan.iter().flat_map(Plan::values).filter_map(external_key).collect();
        missing.retain(|key| !is_known(key));
        missing.sort_unstable();
        missing.dedup();
        let Some(first) = missing.first() else { return error };
        let count = if missing.len() == 1 { "a weight".to_owned() } else { format!("{} weights", missing.len()) };
        let more = match missing.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let site = error.location().map(ToOwned::to_owned);
        let message = format!("{count} of `{method}` must come from a data file (.ptd), which is missing");
        let got = match &self.options.external_names[..] {
            [] => "no data file".to_owned(),
            names => format!("{}, without", names.join(", ")),
        };
        let mut explained = Error::new(error.code(), message).expected(format!("`{first}`{more}")).got(got);
        if let Some(site) = site {
            explained = explained.site(site);
        }
        let bindings = "`data=` in Python, `ModuleBuilder::external_data` in Rust";
        let beside = self.options.path.as_deref().map(|path| data_beside(path, first)).unwrap_or_default();
        explained.help(match &beside[..] {
            [] => {
                let path = self.options.path.as_deref().unwrap_or(Path::new("model.pte"));
                let usual = path.with_extension("ptd");
                format!(
                    "give the file that was written with the program, `{}` unless it has a name of its own: \
                     `--data FILE.ptd`, {bindings}",
                    usual.display()
                )
            }
            files => {
                let files: Vec<String> = files.iter().map(|file| format!("--data {}", file.display())).collect();
                format!("a file beside the program has it: `{}`, {bindings}", files.join("` or `"))
            }
        })
    }
}

/// Returns the name by which a tensor is looked up outside of the program.
fn external_key(value: ValueSpec<'_>) -> Option<&str> {
    match value {
        ValueSpec::Tensor(spec) => match spec.storage {
            TensorStorage::External { name } | TensorStorage::ExternalPlanned { name, .. } => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Finds the data files in a program's folder that have a tensor of this name.
fn data_beside(program: &Path, key: &str) -> Vec<PathBuf> {
    /// Maximum number of files that are searched for an error message.
    const MAX_FILES: usize = 64;
    let folder = program.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|ending| ending == "ptd")).collect();
    files.sort();
    files.truncate(MAX_FILES);
    files.retain(|file| {
        let bytes = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file);
        let bytes = bytes.and_then(|_| source::open(file, LoadMode::Mmap).ok());
        bytes.is_some_and(|bytes| FlatTensor::parse(bytes.bytes()).is_ok_and(|data| data.get(key).is_some()))
    });
    files
}
