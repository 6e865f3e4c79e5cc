//! The project's chores, one module each. Run `cargo xtask` for the list.
#![forbid(unsafe_code)]

mod bench;
mod book;
mod budgets;
mod c;
mod check;
mod command;
mod counts;
mod dist;
mod fuzz;
mod header;
mod jvm;
mod npm;
mod sanitize;
mod semver;
mod setup;
mod size;
mod source;
mod steps;
mod test;
mod writers;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask <chore>

  setup [what]   install what the tests need, pinned: python, cross, qemu (all by default); peers for benchmarks,
                 tokenizers for the tests of these, ray for its example, book, wasm-bindgen, js, rust-src, jvm, dist for what
                 users download, semver for that chore
  check [what]   format; fences: the direction of dependencies, licences, the list of unsafe code, circles; prose: plain English
                 and links in documents and comments; clippy; docs; api: the public API is what docs/api says
  api            writes docs/api
  c-package [folder]
                 the C library for this machine: header, static and shared library, and what pkg-config and CMake look for, in
                 target/c by default
  header         writes the C header, and the list of what it declares
  book           builds the book of docs/ in target/book
  semver [revision]
                 what the public API breaks beside the last release, or a revision
  test quick     what one runs before each commit: format, fences, clippy, unit tests, operator cases, the corpus
  test [stage]   every test, in stages: check, rust, embedded, hostile, c, python, book, models,
                 aarch64, wasm, js, jvm;
                 models-whole, tokenizers-whole, ray, zoo (hours), aarch64-counts, aarch64-whole, js-whole and jvm-whole only by their names
  sanitize [what]
                 with a nightly compiler: runtime, its tests in Miri; engine, its tests under the address sanitizer; python,
                 the extension's tests under it, beside torch (all by default)
  fuzz [target] [seconds|executions|minimise]
                 libFuzzer with the address sanitizer, with a nightly compiler: all targets for 60 seconds each by default;
                 `1000000x` runs a million executions of each; minimise keeps what was found in fuzz/seeds
  dist [target] [--verify]
                 archives of the command line and the C library, and Python wheels, into target/dist, for all targets by
                 default, and runs those that this machine can run; --verify builds one in another folder too, and compares the bytes
  jvm            builds the jar for this machine and the Android library into target/jvm
  npm            builds the npm package into target/npm, and prints the sizes of its modules
  demo           builds it, and the page of examples/web with it into target/demo
  size           size of the runtime and of the digits firmware for thumbv7em-none-eabihf
  bench [what]   times beside ExecuTorch's and other engines', into docs/benchmarks.md: portable, overhead, call, compile,
                 quantize, concurrency, tokenizers, text, web, llm, cpu (all by default); portable <text> only prints
                 the operators whose line contains the text; cpu <table> makes one of latency, int8, sources, loading,
                 scaling, and cpu <table> <model> only prints it for that model, as llm <model> does";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["setup"] => setup::all(),
        ["setup", what] => setup::one(what),
        ["check"] => check::all(),
        ["check", what] => check::one(what),
        ["api"] => check::api::write(),
        ["c-package"] => c::package(None),
        ["c-package", folder] => c::package(Some(folder)),
        ["header"] => header::write(),
        ["book"] => book::build(),
        ["semver"] => semver::check(None),
        ["semver", revision] => semver::check(Some(revision)),
        ["test"] => test::all(),
        ["test", "quick"] => test::quick(),
        ["test", stage] => test::one(stage),
        ["bench", ref what @ ..] => bench::measure(what),
        ["sanitize"] => sanitize::all(),
        ["sanitize", what] => sanitize::one(what),
        ["fuzz", ref what @ ..] => fuzz::fuzz(what),
        ["dist", ref what @ ..] => dist::dist(what),
        ["jvm"] => jvm::package(),
        ["npm"] => npm::package().map(drop),
        ["demo"] => npm::package_demo(),
        ["size"] => size::report(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown chore: {}\n\n{USAGE}", arguments.join(" ")),
    }
}
