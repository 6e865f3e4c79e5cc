//! `rushlight backends`.

use clap::Args;
use rushlight::BackendInfo;
use rushlight::compiler::partition::{OptionSpec, OptionValue};
use serde_json::{Value, json};

use crate::output;

/// Lists the backends that models can be compiled for, and the options of each.
#[derive(Args)]
#[command(after_help = "\
Options follow the name of a backend, in `--backend` and `--lower`:
  rushlight compile model.pt2 --backend cpu:precision=bf16,threads=2
  rushlight run portable.pte --lower cpu:precision=bf16")]
pub struct Backends {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

impl Backends {
    pub fn run(self) {
        if self.json {
            output::print_json(&Value::Array(rushlight::backends().map(backend_json).collect()));
            return;
        }
        let width = rushlight::backends().map(|backend| backend.name().len()).max().unwrap_or_default();
        for backend in rushlight::backends() {
            output::print(&format!("{:<width$}  {}", backend.name(), backend.about()));
            for option in backend.options() {
                output::print(&format!("  {}={}", option.name, values(option)));
                output::print(&format!("      {} [default: {}]", option.about, option.default));
            }
        }
    }
}

/// The values of an option as a command writes them.
fn values(option: &OptionSpec) -> String {
    match (option.default, option.choices) {
        (OptionValue::Bool(_), _) => "true|false".to_owned(),
        (OptionValue::Int(_), _) => "N".to_owned(),
        (OptionValue::String(_), []) => "TEXT".to_owned(),
        (OptionValue::String(_), choices) => choices.join("|"),
    }
}

/// A backend with its options as JSON.
fn backend_json(backend: &BackendInfo) -> Value {
    let value = |value: OptionValue<'_>| match value {
        OptionValue::Bool(value) => json!(value),
        OptionValue::Int(value) => json!(value),
        OptionValue::String(value) => json!(value),
    };
    let option = |option: &OptionSpec| {
        json!({
            "name": option.name,
            "about": option.about,
            "default": value(option.default),
            "choices": option.choices,
        })
    };
    json!({
        "name": backend.name(),
        "about": backend.about(),
        "options": backend.options().iter().map(option).collect::<Vec<_>>(),
    })
}
