//! The `rushlight` command. Speaks to the facade and the tools; each subcommand is a module.
#![forbid(unsafe_code)]

mod arguments;
mod backends;
mod bench;
mod browser;
mod build;
mod calibration;
mod compare;
mod compile;
mod completions;
mod demo;
mod doctor;
mod export_llm;
mod failure;
mod firmware;
mod help;
mod hwbench;
mod inputs;
mod inspect;
#[cfg(feature = "llm")]
mod llm;
mod machine;
mod new;
mod npm;
mod op_paths;
mod ops;
mod option_args;
mod output;
mod profile;
mod progress;
mod quantize;
mod ranking;
mod run;
mod size;
mod stderr;
mod validate;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use failure::Failure;

/// Compiles PyTorch models to ExecuTorch's .pte format, and runs them.
#[derive(Parser)]
#[command(name = "rushlight", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  rushlight demo                                    classify digits
  rushlight compile model.pt2 -o model.pte          compile an export
  rushlight quantize model.pt2 --calibrate in.npz   convert it to int8
  rushlight llm chat llama.pte                      talk to a model
  rushlight new digits -t classify -l python        write a project
  rushlight run model.pte --input x.npy             print its outputs
  rushlight run model.pte --input cat.jpg --top 3   classify an image
  rushlight bench model.pte                         measure its times
  rushlight inspect model.pte                       what is inside
  rushlight doctor model.pte                        what would run slowly here

Exit codes:
  0    success
  1    other failures
  2    wrong usage
  3    a file cannot be read or written
  4    the model file is invalid
  5    operators, backends or external data are missing
  6    the inputs do not fit the model
  7    compare: results differ
  8    there is not enough memory, or a limit on memory or time was reached
  130  Ctrl-C: nothing is left half-written")]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    verbosity: progress::Verbosity,
}

#[derive(Subcommand)]
enum Command {
    /// Compile .pt2 files to a .pte file
    Compile(compile::Compile),
    /// Export a language model with transformers and compile it to a .pte file
    ExportLlm(export_llm::ExportLlm),
    /// Run language models: continue a text, chat, bench, tokenize
    #[cfg(feature = "llm")]
    Llm(Box<llm::Llm>),
    /// Quantize a .pt2 file and compile it to a .pte file
    Quantize(quantize::Quantize),
    /// Show where the results of a .pt2 and a compiled .pte diverge
    Compare(compare::Compare),
    /// Run a method and print or save its outputs
    Run(run::Run),
    /// Time loading and running separately
    Bench(bench::Bench),
    /// Show methods, inputs, outputs, operators, delegates, memory plan and segments
    Inspect(inspect::Inspect),
    /// List the operators that a program needs, and what is missing
    Ops(ops::Ops),
    /// List the backends and their options
    Backends(backends::Backends),
    /// Check that a file is well-formed and can be loaded
    Validate(validate::Validate),
    /// Show the memory that a method takes, and the Rust static that provides it
    Size(size::Size),
    /// Describe this machine, and what of a program would run slowly on it
    Doctor(doctor::Doctor),
    /// Measure what this machine can do, and each variant of each kernel
    Hwbench(hwbench::Hwbench),
    /// Write a small project that runs a model, in Python, Rust, C, C++ or JavaScript
    New(new::New),
    /// Classify ten handwritten digits with the built-in model
    Demo(demo::Demo),
    /// Print the completion script of a shell
    Completions(completions::Completions),
}

fn main() -> ExitCode {
    match without_panics(parse_and_run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if progress::is_cancelled() => {
            output::to_stderr("cancelled");
            ExitCode::from(progress::INTERRUPTED)
        }
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}

/// Parses the arguments, runs the command and writes what it printed.
fn parse_and_run() -> Result<(), Failure> {
    let parse = || Cli::from_arg_matches_mut(&mut help::fitted(Cli::command()).try_get_matches()?);
    match parse() {
        Ok(cli) => {
            cli.verbosity.apply();
            run(cli.command)?;
        }
        // It has an exit code of its own.
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => output::print(help.render().ansi().to_string().trim_end()),
    }
    output::printed()
}

/// Has a panic, whose line the standard hook prints, end as any other failure.
fn without_panics(act: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(Failure::Model(rushlight::panic_error(&*panic))))
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Compile(compile) => compile.run(),
        Command::ExportLlm(export) => export.run(),
        #[cfg(feature = "llm")]
        Command::Llm(llm) => llm.run(),
        Command::Quantize(quantize) => quantize.run(),
        Command::Compare(compare) => compare.run(),
        Command::Run(run) => run.run(),
        Command::Bench(bench) => bench.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Ops(ops) => ops.run(),
        Command::Backends(backends) => {
            backends.run();
            Ok(())
        }
        Command::Validate(validate) => validate.run(),
        Command::Size(size) => size.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Hwbench(hwbench) => hwbench.run(),
        Command::New(new) => new.run(),
        Command::Demo(_) => demo::Demo::run(),
        Command::Completions(completions) => completions.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure() {
        let failure = without_panics(|| panic!("a deliberate one")).expect_err("a panic");
        let Failure::Model(error) = failure else { panic!("an error of the library") };
        assert_eq!(error.code(), rushlight::Code::Internal);
        assert!(error.to_string().contains("a defect of the library: a deliberate one"), "{error}");
    }
}
