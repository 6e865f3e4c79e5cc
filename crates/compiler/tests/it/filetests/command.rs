//! The steps of `# run:`. A new command is an arm of [`run`].

use rushlight_compiler::emit::EmitOptions;
use rushlight_compiler::passes::{self, FoldConstants, LowerComposites};
use rushlight_compiler::{CompileOptions, Stage, advance};
use rushlight_graph::testing::filetests::{Failure, Outcome, Step, parse_option};
use rushlight_graph::{Model, Pass};

use super::listing;

/// Runs a step:
///
/// | step | gives | options |
/// |---|---|---|
/// | the name of a pass | the model | `fold-constants`: `small`, `allowance`, `dequantize`; `lower-composites`: `keep` (names with `;` between them) |
/// | `canonical`, `final` | the model at this stage of the pipeline, without backends | |
/// | `memory-plan` | the buffers of each method | those of `emit` |
/// | `emit` | the instructions of each method | `plan-inputs`, `plan-outputs`, `keep-results` |
pub fn run(step: &Step, model: &mut Model) -> Result<Outcome, Failure> {
    match step.name.as_str() {
        "canonical" => pipeline(step, model, Stage::Canonical),
        "final" => pipeline(step, model, Stage::Final),
        "memory-plan" => Ok(Outcome::Text(listing::memory_plan(model, &emit_options(step)?)?)),
        "emit" => Ok(Outcome::Text(listing::program(model, &emit_options(step)?)?)),
        name => {
            pass(name, step)?.run(model)?;
            Ok(Outcome::Model)
        }
    }
}

fn pipeline(step: &Step, model: &mut Model, stage: Stage) -> Result<Outcome, Failure> {
    no_options(step)?;
    advance(model, &CompileOptions::default(), stage)?;
    Ok(Outcome::Model)
}

/// The pass of this name with the step's options.
fn pass(name: &str, step: &Step) -> Result<Box<dyn Pass>, Failure> {
    if step.options.is_empty() {
        return passes::named(name).ok_or_else(|| {
            let names: Vec<String> = passes::all().iter().map(|pass| pass.name().to_owned()).collect();
            Failure::Usage(format!("no such step; passes are {}", names.join(", ")))
        });
    }
    Ok(match name {
        "fold-constants" => {
            let mut pass = FoldConstants::default();
            for (key, value) in &step.options {
                match key.as_str() {
                    "small" => pass.small = parse_option(value)?,
                    "allowance" => pass.allowance = parse_option(value)?,
                    "dequantize" => pass.dequantize = parse_option(value)?,
                    _ => return Err(Failure::unknown_option(key)),
                }
            }
            Box::new(pass)
        }
        "lower-composites" => {
            let mut pass = LowerComposites::default();
            for (key, value) in &step.options {
                match key.as_str() {
                    "keep" => pass.keep = value.split(';').map(ToOwned::to_owned).collect(),
                    _ => return Err(Failure::unknown_option(key)),
                }
            }
            Box::new(pass)
        }
        _ => return Err(Failure::unknown_option(&step.options[0].0)),
    })
}

fn emit_options(step: &Step) -> Result<EmitOptions, Failure> {
    let mut options = EmitOptions { debug_map: false, ..EmitOptions::default() };
    for (key, value) in &step.options {
        match key.as_str() {
            "plan-inputs" => options.plan_inputs = parse_option(value)?,
            "plan-outputs" => options.plan_outputs = parse_option(value)?,
            "keep-results" => options.keep_results = parse_option(value)?,
            _ => return Err(Failure::unknown_option(key)),
        }
    }
    Ok(options)
}

fn no_options(step: &Step) -> Result<(), Failure> {
    step.options.first().map_or(Ok(()), |(key, _)| Err(Failure::unknown_option(key)))
}
