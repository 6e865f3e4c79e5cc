//! All tests, in stages. A stage whose tools are missing installs them first.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::book;
use crate::budgets;
use crate::c;
use crate::check;
use crate::command::{ARCH_DEPENDENT, cargo, checked, command, exists, output, root, run};
use crate::counts;
use crate::jvm;
use crate::npm;
use crate::setup::{self, book_python, ray_python, tokenizers_python, venv_python};
use crate::size;
use crate::steps::{Folder, Round, Step, Steps};
use crate::writers;

/// The stages of a whole run. Their budgets hold on two cores once the tools are installed, with both columns of a round running. The
/// longer columns make up half an hour.
pub const ROUNDS: &[Round] = &[
    // The library and the tests are built while other targets are tested.
    Round {
        steps: &[Step::new("check", check::all).within(300), Step::new("rust", rust).within(580)],
        beside: &[
            Step::new("aarch64", aarch64).within(440),
            Step::new("wasm", wasm).within(140),
            Step::new("tools", tools).within(30),
            Step::new("modules", modules).within(250),
        ],
        folder: Folder::Own,
    },
    // Stages that use them. Packages of C, JavaScript and Java are made in the second column alone.
    Round {
        steps: &[Step::new("python", python).within(480), Step::new("models", models).within(300)],
        beside: &[
            Step::new("embedded", embedded).within(60),
            Step::new("hostile", hostile).within(40),
            Step::new("c", c::test).within(180),
            Step::new("js", js).within(150),
            Step::new("jvm", jvm::test).within(50),
            Step::new("book", book_and_examples).within(360),
        ],
        folder: Folder::Shared,
    },
];

/// All stages of the rounds.
pub fn stages() -> impl Iterator<Item = &'static Step> {
    ROUNDS.iter().flat_map(|round| round.steps.iter().chain(round.beside))
}

/// Stages that take long, which only run when they are named.
const LONG_STAGES: &[Step] = &[
    Step::new("loom", loom),
    Step::new("portable-tiles", portable_tiles),
    Step::new("wheel", wheel),
    Step::new("transcript", transcript),
    Step::new("projects", projects),
    Step::new("server-load", server_load),
    Step::new("ray", ray),
    Step::new("tokenizers-whole", tokenizers_whole),
    Step::new("models-whole", models_whole),
    Step::new("writers", written_by_others),
    Step::new("zoo", zoo),
    Step::new("random-programs", random_programs),
    Step::new("xnnpack-tests", xnnpack_tests),
    Step::new("aarch64-counts", counts::check),
    Step::new("aarch64-whole", aarch64_whole),
    Step::new("wasm-whole", wasm_whole),
    Step::new("js-whole", js_whole),
    Step::new("jvm-whole", jvm::test_whole),
];

/// With `UPDATE_DOCS`, writes the times to the page on tests. With `ENFORCE_BUDGETS`, fails if a stage takes longer than its budget.
pub fn all() -> Result<()> {
    // It mostly waits for the network, and the first stages do without. Those that need it wait for it, and try again and
    // say why if it failed.
    thread::spawn(|| setup::one("python"));
    // Tools that two stages at once would install. Each tries again, and says why if it fails.
    let _ = setup::one("cross").and_then(|()| setup::one("qemu"));
    let done = Steps::run_rounds("test", ROUNDS)?;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        budgets::write(&done)?;
    }
    budgets::enforce(&done)
}

/// The tests to run before each commit: nothing is downloaded, and no test runs for long.
const QUICK: &[Step] = &[Step::new("build", quick_build), Step::new("check and tests", quick_check_and_tests)];

pub fn quick() -> Result<()> {
    Steps::run("quick", QUICK)
}

/// Clippy leaves a core free for most of its time, and so do tests. It comes after checks that compile nothing, as cargo would
/// let the tests wait for it.
fn quick_check_and_tests() -> Result<()> {
    let check = || {
        check::format()?;
        check::prose::check()?;
        check::fences()?;
        check::clippy_of(QUICK_PACKAGES)
    };
    thread::scope(|scope| {
        let steps = [scope.spawn(quick_unit), scope.spawn(quick_suites), scope.spawn(check)];
        let results = steps.map(|step| step.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results.into_iter().collect()
    })
}

/// All crates but the server of language models and grammars, whose dependencies take a tenth of the time of a build from nothing.
/// `cargo xtask test rust` tests them.
const QUICK_PACKAGES: &[&str] =
    &["--workspace", "--exclude", "rushlight-llm-server", "--no-default-features", "--features", "rushlight-cli/llm"];

/// `cargo test` in the profile `dev`, which compiles in a fraction of the time that `checked` takes: the libraries and
/// programs, and the integration tests that are one binary a crate.
fn quick_tests(targets: &[&str]) -> Command {
    command("cargo", &[&["test", "--quiet"], QUICK_PACKAGES, targets].concat())
}

fn quick_build() -> Result<()> {
    run(quick_tests(&["--lib", "--bins", "--test", "it"]).arg("--no-run"))
}

/// Unit tests that compute for seconds where nothing is optimized. `cargo xtask test rust` runs them.
const SLOW_UNITS: &[&str] = &[
    "arch::math::tests::functions_keep_their_bounds",
    "calls::tests::the_program_of_every_call_loads",
    "images::tests::images_of_one_colour_",
    "lower::cache::key::tests::content_does_not_",
    "memory::tests::large_sets_",
    "memory::tests::plans_of_anything_",
    "packed_matrix::tests::parts_together_",
    "qdq_int16::tests::no_more_than_a_few_",
    "support::math::tests::",
    "text::tests::mutations_of_texts_",
];

fn quick_unit() -> Result<()> {
    let mut test = quick_tests(&["--lib", "--bins"]);
    run(test.arg("--").args(SLOW_UNITS.iter().flat_map(|name| ["--skip", name])))
}

/// Suites of `tests/it` that show most for their time: the filetests, the operator cases, and the corpus by all crates that read it. Not
/// `lowered` and `composites`, which compile a program for each case: long, where the compiler is not optimized.
const QUICK_SUITES: &[&str] = &["filetests::", "operators::", "inference::", "corpus::", "text::", "emit::"];

/// Of the engine those that compute least, where nothing is optimized.
const QUICK_ENGINE_SUITES: &[&str] = &[
    "bf16::depthwise",
    "conv::",
    "convert::",
    "copy::",
    "elementwise::",
    "finite_range::",
    "gemm::",
    "hwbench::a_variant_is_timed_",
    "hwbench::atypical_cases_",
    "pool_resize::",
    "quantization_error::",
    "quantized::",
    "softmax_norm_reduce::",
];

/// Tests of these modules that compute for seconds there.
const SLOW_SUITES: &[&str] = &[
    "conv::conv2d_agrees_",
    "conv::conv_transpose2d_agrees_",
    "conv::winograd_",
    "convert::narrowing_",
    "copy::copies_every_element",
    "elementwise::programs_broadcast_",
    "elementwise::unary_functions_",
    "gemm::agrees_with_f64",
    "quantized::resize_u8_",
    "quantized::conv_transpose2d_",
    "quantized::gemm_u8_with_per_row_",
];

fn quick_suites() -> Result<()> {
    let mut test = quick_tests(&["--test", "it"]);
    test.arg("--").args(QUICK_SUITES).args(QUICK_ENGINE_SUITES);
    run(test.args(SLOW_SUITES.iter().flat_map(|name| ["--skip", name])))
}

pub fn one(name: &str) -> Result<()> {
    let stages: Vec<Step> = stages().chain(LONG_STAGES).copied().collect();
    Steps::one("test", &stages, name)
}

fn tests() -> Command {
    checked("test")
}

/// Tests of modules of the crates' `tests/it` that are ignored otherwise: they need what their stage has made.
fn ignored(modules: &[&str]) -> Command {
    let mut test = tests();
    test.args(["--test", "it", "--", "--ignored"]).args(modules.iter().map(|module| format!("{module}::")));
    test
}

/// Unit tests, operator cases, corpus, and a few of the mutations.
fn rust() -> Result<()> {
    run(tests().arg("--no-fail-fast").env("RUSHLIGHT_MUTATIONS", FEW_MUTATIONS))?;
    if exists("node") {
        run(&mut ignored(&["graph_page"]))?;
    } else {
        println!("NOT RUN: the layout of the graph's page, which needs Node.js");
    }
    println!("NOT RUN: all interleavings of the thread pool's protocol; `cargo xtask test loom` takes them");
    Ok(())
}

/// The engine's tests, also with its portable code: scalar loops, and the AVX-512 tile for machines without AVX-512.
fn portable_tiles() -> Result<()> {
    run(&mut command(
        "cargo",
        &["test", "--profile", "checked", "--quiet", "-p", "rushlight-engine", "--features", "wide-scalar"],
    ))
}

/// All interleavings of the thread pool's protocol.
fn loom() -> Result<()> {
    let mut loom = command("cargo", &["test", "--release", "--quiet", "--target-dir", "target/loom"]);
    loom.args(["--manifest-path", "crates/engine/loom/Cargo.toml"]);
    run(loom.env("RUSTFLAGS", "--cfg loom"))
}

/// Numbers of mutations if the `hostile` tests run along with others, and in an emulator.
const FEW_MUTATIONS: &str = "2000";
const EMULATED_MUTATIONS: &str = "100";

/// All mutations of the corpus: programs through parse, load and execute, and through lifting and compiling; archives and
/// payloads through their readers.
fn hostile() -> Result<()> {
    run(tests().args(["--test", "hostile", "--test", "hostile_lift", "--", "--nocapture"]))?;
    run(tests().args(["--test", "it", "--", "--nocapture", "hostile_cpu::"]))
}

/// The firmware on an emulated Cortex-M4, whose results must be this machine's, the limit of the runtime's size, and the
/// no_std crates: the runtime's for cores without atomic exchange, and the payload of the CPU backend, with the engine
/// whose enums it uses.
fn embedded() -> Result<()> {
    setup::one("cross")?;
    setup::one("qemu")?;
    cargo(&["check", "--quiet", "-p", "rushlight", "--no-default-features", "--target", "thumbv6m-none-eabi"])?;
    cargo(&["check", "--quiet", "-p", "rushlight-cpu-payload", "--target", "thumbv7em-none-eabihf"])?;
    size::report()?;
    let printed = size::run_firmware("digits")?;
    let path = root().join("target/firmware.txt");
    std::fs::create_dir_all(root().join("target"))?;
    std::fs::write(&path, printed)?;
    run(ignored(&["firmware"]).env("FIRMWARE_OUTPUT", &path))
}

/// Generated files are up to date. The tests of the Python package with the library of the profile `checked`, without torch and
/// numpy, and beside both: `wheel` tests what users install. Tokenizers beside their originals, and chat templates beside
/// transformers. And OpenAI's client, with our server,
/// and conversations in a terminal.
fn python() -> Result<()> {
    setup::one("python")?;
    run(&mut command(venv_python(), &["tools/op_schemas.py", "--check"]))?;
    // With the tests, so that all crates have the features that they have there, and are not compiled again.
    run(checked("build").args(["--tests", "--lib"]))?;
    run(&mut command(venv_python(), &["tools/test_wheel.py", "--library", "target/checked/lib_rushlight.so"]))?;
    if let Err(error) = setup::one("tokenizers") {
        println!(
            "NOT RUN: tokenizers beside their originals, and chat templates, which cannot be installed: {error:#}"
        );
    } else {
        println!(
            "NOT RUN: each character and long text with each tokenizer; `cargo xtask test tokenizers-whole` takes them"
        );
        run(tokenizers().env("RUSHLIGHT_PART", commits().to_string()))?;
        run(command(venv_python(), &["-m", "pytest", "-q", "tests/templates"]).env("PYTHONPATH", PYTHON_PACKAGE))?;
    }
    run(command(venv_python(), &["-m", "pytest", "-q", SLOWEST, "tests/server", "tests/terminal"])
        .env("RUSHLIGHT", "target/checked/rushlight"))
}

/// Tools of the last stages, which take minutes to build where they are not there. These wait for them.
fn tools() -> Result<()> {
    setup::one("mdbook")?;
    setup::one("wasm-bindgen")
}

/// The book is built, what its pages show runs, and so do the scripts and notebooks of `examples/python`.
fn book_and_examples() -> Result<()> {
    let package = packages_of_users()?;
    book::build()?;
    let mut pages = command(book_python(), &["tools/book.py"]);
    run(pages.env("PYTHONPATH", &package).env("RUSHLIGHT", root().join("target/checked/rushlight")))?;
    println!("NOT RUN: projects whose crates take long to compile; `cargo xtask test projects` takes all");
    let tests = ["-m", "pytest", "-q", SLOWEST, "--numprocesses", "2", "tests/book", "tests/examples"];
    run(command(book_python(), &tests).env("PYTHONPATH", &package))
}

/// All projects of `rushlight new`.
fn projects() -> Result<()> {
    let package = packages_of_users()?;
    let mut tests = command(book_python(), &["-m", "pytest", "-q", SLOWEST, "tests/examples/test_new.py"]);
    run(tests.env("PYTHONPATH", &package).env("RUSHLIGHT_WHOLE", "1"))
}

/// Builds the packages of all languages. Returns that of Python.
fn packages_of_users() -> Result<PathBuf> {
    setup::one("book")?;
    // The page of firmware runs it.
    setup::one("cross")?;
    setup::one("qemu")?;
    run(checked("build").args(["--tests", "--lib"]))?;
    // Its own, as the Python tests, which run beside, make theirs anew. mdBook empties `target/book`.
    let package = root().join("target/book-package");
    setup::assemble(venv_python(), "checked", &package)?;
    c::package_for_tests()?;
    if exists("javac") {
        jvm::package_for_tests()?;
    }
    if exists("node") {
        npm::test_package(&root().join(NPM_PACKAGE))?;
    }
    Ok(package)
}

/// Runs the first hour of a new user, which trains a model, and compares its output with `docs/start/transcript.md`.
fn transcript() -> Result<()> {
    setup::one("book")?;
    run(&mut checked("build"))?;
    let package = root().join("target/book-package");
    setup::assemble(venv_python(), "checked", &package)?;
    let mut transcript = command(book_python(), &["tools/transcript.py"]);
    run(transcript.env("PYTHONPATH", &package).env("RUSHLIGHT", root().join("target/checked/rushlight")))
}

/// Lets pytest print its slowest tests with their times.
const SLOWEST: &str = "--durations=10";

/// The Python package that `tools/test_wheel.py` puts together.
const PYTHON_PACKAGE: &str = "target/wheel/package";

/// Tokenizers beside their originals.
fn tokenizers() -> Command {
    let mut tests = command(tokenizers_python(), &["-m", "pytest", "-q", SLOWEST, "--numprocesses", "2"]);
    tests.arg("tests/tokenizers").env("PYTHONPATH", PYTHON_PACKAGE);
    tests
}

/// The same with each character and long text for each tokenizer.
fn tokenizers_whole() -> Result<()> {
    setup::one("tokenizers")?;
    run(checked("build").args(["--tests", "--lib"]))?;
    setup::assemble(tokenizers_python(), "checked", Path::new(PYTHON_PACKAGE))?;
    run(tokenizers().env("RUSHLIGHT_WHOLE", "1"))
}

/// The server with 32 clients for ten minutes, of which a third go away in the middle of an answer; with 32 that misbehave beside one that
/// does not; what one key's client learns of another's; and with ten thousand requests of which bytes are changed.
fn server_load() -> Result<()> {
    setup::one("python")?;
    run(&mut checked("build"))?;
    for script in [
        &["tests/server/load.py", "--seconds", "600"][..],
        &["tests/server/misbehave.py", "--seconds", "600"],
        &["tests/server/isolation.py", "--trials", "1000"],
    ] {
        run(command(venv_python(), script).env("RUSHLIGHT", "target/checked/rushlight"))?;
    }
    let mut wrong = tests();
    run(wrong.args(["--test", "it", "--", "llm_serve::wrong_requests_"]).env("RUSHLIGHT_MUTATIONS", "10000"))
}

/// `examples/ray`: batches on actors, and servers behind HAProxy.
fn ray() -> Result<()> {
    setup::one("python")?;
    setup::one("ray").context("NOT RUN: all of this stage, as Ray is not there")?;
    run(&mut checked("build"))?;
    let package = root().join("target/ray/package");
    setup::assemble(venv_python(), "checked", &package)?;
    // Ray's workers have other working directories.
    run(command(ray_python(), &["tests/ray/check.py"])
        .env("PYTHONPATH", &package)
        .env("RUSHLIGHT", root().join("target/checked/rushlight")))
}

/// Files of all versions of ExecuTorch, torch and what they write by.
fn written_by_others() -> Result<()> {
    let written = writers::write();
    let mut files = tests();
    files.args(["-p", "rushlight-testing", "--test", "it", "--", "--ignored", "--nocapture"]);
    run(files.arg("corpus::files_of_all_versions_"))?;
    written
}

/// ExecuTorch's tests of XNNPACK's operators, on both runtimes.
fn xnnpack_tests() -> Result<()> {
    setup::one("python")?;
    run(checked("build").args(["-p", "rushlight-python"]))?;
    setup::assemble(venv_python(), "checked", Path::new(PYTHON_PACKAGE))?;
    run(command(venv_python(), &["tools/xnnpack_tests.py"]).env("PYTHONPATH", PYTHON_PACKAGE))
}

/// The wheel, which takes minutes to optimize: its size, and the same tests.
fn wheel() -> Result<()> {
    setup::one("python")?;
    run(&mut command(venv_python(), &["tools/test_wheel.py"]))
}

/// Models for XNNPACK that take little memory to export; without `--only` the script makes all.
const SMALL_XNNPACK_MODELS: &[&str] =
    &["edsr", "feed_forward", "mobilenet_v2", "mobilenet_v3_small", "resnet18", "wav2letter"];

/// Those of them that differ most in their operators.
const FEW_XNNPACK_MODELS: &[&str] = &["edsr", "feed_forward", "mobilenet_v3_small"];

/// Decoders that differ in their caches and in their methods; without `--only` the script makes all.
const FEW_LLAMA_MODELS: &[&str] =
    &["8da4w", "fp32", "lora_methods", "quantized_cache", "ring_and_global", "transformers_llama"];

/// Architectures of the zoo that are small and as different as they can be.
const FEW_ARCHITECTURES: &[&str] = &[
    "torchvision.shufflenet_v2_x0_5",
    "transformers.clap_audio",
    "transformers.convbert",
    "transformers.deberta_v2",
    "transformers.deepseek_v3",
    "transformers.mamba",
    "transformers.qwen2_moe",
    "transformers.recurrent_gemma",
    "transformers.speech_to_text",
    "transformers.xlnet",
];

/// Some architectures of the zoo, without what PyTorch's quantizers make of them.
fn few_architectures(architectures: &[&str]) -> Result<()> {
    let names = architectures.join(",");
    let generate = ["tools/models/generate.py", "target/zoo", "--zoo", "--stages", "lower", "--only", &names];
    run(&mut command(venv_python(), &generate))?;
    let made = |name: &&&str| root().join("target/zoo").join(name).join("cases.json").exists();
    if let Some(name) = architectures.iter().find(|name| !made(name)) {
        bail!("{name} was not exported: target/zoo/refused says why");
    }
    run(ignored(&["zoo"]).env("RUSHLIGHT_ONLY", names).env_remove("UPDATE_DOCS"))
}

/// Random programs beside eager PyTorch: 100,000 of common element types, in parts that restart PyTorch, whose caches grow, and some
/// of rare ones. `RANDOM_PROGRAMS` is another number.
fn random_programs() -> Result<()> {
    const AT_A_TIME: usize = 5_000;
    setup::one("python")?;
    run(checked("build").args(["-p", "rushlight-python"]))?;
    let assemble =
        ["tools/test_wheel.py", "--library", "target/checked/lib_rushlight.so", "--assemble", PYTHON_PACKAGE];
    run(&mut command(venv_python(), &assemble))?;
    let wanted = match std::env::var("RANDOM_PROGRAMS") {
        Ok(number) => number.parse()?,
        Err(_) => 100_000,
    };
    let part = |first: usize, rare: bool| {
        let (first, count) = (first.to_string(), AT_A_TIME.min(wanted).to_string());
        let arguments = ["tools/random_programs.py", "--first", &*first, "--count", &*count];
        let mut command = command(venv_python(), &arguments);
        command.args(rare.then_some("--rare")).env("PYTHONPATH", PYTHON_PACKAGE);
        run(&mut command).is_err()
    };
    let failed: Vec<usize> = (0..wanted).step_by(AT_A_TIME).filter(|first| part(*first, false)).collect();
    if part(0, true) || !failed.is_empty() {
        bail!("random programs differ from eager: of the seeds from {failed:?} on, or of rare element types");
    }
    Ok(())
}

/// All architectures of the zoo, a few at a time, as they are large together. With UPDATE_DOCS, their section of
/// `docs/models.md` is written.
fn zoo() -> Result<()> {
    const AT_A_TIME: usize = 8;
    setup::one("python")?;
    let listed = output(&mut command(venv_python(), &["tools/models/generate.py", "--zoo", "--list"]))?;
    let names: Vec<&str> = listed.lines().collect();
    let mut failed = Vec::new();
    for part in names.chunks(AT_A_TIME) {
        let only = part.join(",");
        run(&mut command(venv_python(), &["tools/models/generate.py", "target/zoo", "--zoo", "--only", &only]))?;
        if run(ignored(&["zoo"]).arg("--nocapture").env("RUSHLIGHT_ONLY", &only)).is_err() {
            failed.push(only);
        }
        for name in part {
            let folder = root().join("target/zoo").join(name);
            if folder.exists() {
                std::fs::remove_dir_all(folder)?;
            }
        }
    }
    run(tests().args(["--test", "it", "--", "zoo::"]))?;
    if !failed.is_empty() {
        bail!("defects among {}: target/zoo-results says which", failed.join("; "));
    }
    Ok(())
}

/// Compares whole models with eager PyTorch. Our compiler compiles them, and ExecuTorch's compiles a few, which takes most
/// of the time. Programs are also lifted and compiled again. Those of our compiler run in ExecuTorch's runtime too. Then
/// come models that ExecuTorch lowered for XNNPACK, against its results; decoders that it or transformers exported; and a
/// few architectures of the zoo.
///
/// Takes a twelfth of the models and one of each other kind, chosen by the commit. `models-whole` takes all.
fn models() -> Result<()> {
    setup::one("python")?;
    let commits = commits();
    let part = commits % PARTS;
    println!("part {part} of {PARTS} of the models: `cargo xtask test models-whole` takes all");
    generated_models(Some(format!("{part}/{PARTS}")), 4, 2)?;
    let one_of = |names: &[&'static str]| names[commits % names.len()];
    exported_models(&[one_of(FEW_XNNPACK_MODELS)], &[one_of(FEW_LLAMA_MODELS)])?;
    few_architectures(&[one_of(FEW_ARCHITECTURES)])
}

/// The number of commits, which chooses the parts that a run tests; 0 without git's history.
fn commits() -> usize {
    let commits = output(&mut command("git", &["rev-list", "--count", "HEAD"])).unwrap_or_default();
    commits.trim().parse().unwrap_or(0)
}

/// Parts that models are divided into.
const PARTS: usize = 12;

/// All models, ExecuTorch's programs of all, and more that it lowered for XNNPACK.
fn models_whole() -> Result<()> {
    setup::one("python")?;
    generated_models(None, 1, 190)?;
    exported_models(SMALL_XNNPACK_MODELS, FEW_LLAMA_MODELS)?;
    few_architectures(FEW_ARCHITECTURES)
}

/// A part of the models, or all; ExecuTorch's compiler makes a program of one in `programs_of`, `min_programs` in all at
/// least.
fn generated_models(part: Option<String>, programs_of: usize, min_programs: usize) -> Result<()> {
    let script = |arguments: &[&str]| command(venv_python(), &[&["tools/models/generate.py"], arguments].concat());
    let mut generate = script(&["target/models", "--programs-of", &programs_of.to_string()]);
    let mut test = ignored(&["compile", "lift", "memory_plans", "models", "precision"]);
    if let Some(part) = part {
        let names = output(&mut script(&["--list", "--part", &part]))?;
        test.env("RUSHLIGHT_ONLY", names.lines().collect::<Vec<_>>().join(","));
        // The page of models needs all of them.
        test.env_remove("UPDATE_DOCS");
        generate.args(["--part", &part]);
    }
    run(&mut generate)?;
    let compiled = root().join("target/compiled-models");
    if compiled.exists() {
        std::fs::remove_dir_all(&compiled)?;
    }
    run(test.env("RUSHLIGHT_SAVE", &compiled).env("RUSHLIGHT_MIN_PROGRAMS", min_programs.to_string()))?;
    run(&mut command(
        venv_python(),
        &["tools/check_cases.py", "--allow", "tools/models/differences.json", "target/compiled-models"],
    ))
}

/// Models that ExecuTorch lowered for XNNPACK, and decoders that it or transformers exported.
fn exported_models(xnnpack: &[&str], llama: &[&str]) -> Result<()> {
    // Exporters have one thread.
    thread::scope(|scope| {
        let lowered = scope.spawn(|| {
            let mut lower = command(venv_python(), &["tools/models/xnnpack.py", "target/xnnpack-models"]);
            run(lower.args(xnnpack.iter().flat_map(|name| ["--only", name])))
        });
        let mut decoders = command(venv_python(), &["tools/models/export_llama.py", "target/llama-models"]);
        run(decoders.args(llama.iter().flat_map(|name| ["--only", name])))?;
        lowered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    run(&mut ignored(&["llama", "xnnpack"]))
}

/// Tests that measure the machine, that need other programs of it, or that go through all numbers of a type.
const NOT_EMULATED: &[&str] = &[
    "a_pipe_gets_a_plain_table",
    "copies_every_element",
    "disks_are_full",
    "every_case_can_be_computed",
    "limits_and_kernels_are_measured",
    "narrowing_gives_the_nearest_number",
    "own_work_does_not_count_as_that_of_others",
    "processes_share_a_folder",
    "steps_are_shown_beside_the_limits",
    "writers_are_killed_at_any_time",
];

/// The tests of [`ARCH_DEPENDENT`] for aarch64, and the instruction counts of kernels. Both use the profile `release`, so that the
/// engine is compiled once. The stage `aarch64-whole` tests with the checks of the profile `checked`.
fn aarch64() -> Result<()> {
    let mut test = command("cargo", &["test", "--release", "--quiet"]);
    test.args(ARCH_DEPENDENT.iter().flat_map(|name| ["-p", name]));
    on_aarch64(test, EMULATED_MUTATIONS)?;
    counts::check()
}

/// All Rust tests again, for aarch64.
fn aarch64_whole() -> Result<()> {
    on_aarch64(tests(), FEW_MUTATIONS)
}

/// Runs tests for aarch64, in an emulator where this machine is another one. Tests that start a program read the variable of
/// the emulator too.
fn on_aarch64(mut test: Command, mutations: &str) -> Result<()> {
    test.args(["--target", "aarch64-unknown-linux-gnu", "--"]).env("RUSHLIGHT_MUTATIONS", mutations);
    if cfg!(not(target_arch = "aarch64")) {
        setup::one("cross")?;
        setup::one("qemu")?;
        println!("NOT RUN in the emulator: {}", NOT_EMULATED.join(", "));
        test.args(NOT_EMULATED.iter().flat_map(|name| ["--skip", name]));
        test.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc").env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            "qemu-aarch64-static -L /usr/aarch64-linux-gnu -cpu max",
        );
    }
    run(&mut test)
}

/// Flags of WebAssembly, and the crates whose tests run with them.
type WasmBuild = (&'static str, &'static [&'static str]);

/// The build for browsers.
const WASM: &[WasmBuild] =
    &[("-C target-feature=+simd128", &["rushlight-engine", "rushlight-format", "rushlight-runtime"])];

/// The reference kernels, whose operator cases the tests in JavaScript run, too. Without vectors; and with relaxed ones, where these, the
/// others and portable code are compared. There the compiler must make no vectors of its own: LLVM (22 at least) takes the greater and the
/// lesser of their elements by instructions for which NaN may be any number.
const MORE_WASM: &[WasmBuild] = &[
    ("-C target-feature=+simd128", &["rushlight-kernels"]),
    ("", &["rushlight-engine"]),
    ("-C target-feature=+simd128,+relaxed-simd -C no-vectorize-loops -C no-vectorize-slp", &["rushlight-engine"]),
];

/// The engine's tests and those of the crates below the backend again, as WebAssembly in Node.js.
fn wasm() -> Result<()> {
    wasm_builds(WASM)
}

/// The same, the engine's tests with other instruction sets, and `examples/wasm`, whose crates the package of JavaScript has too.
fn wasm_whole() -> Result<()> {
    wasm_builds(&[WASM, MORE_WASM].concat())?;
    if exists("node") { bare_wasm() } else { Ok(()) }
}

fn wasm_builds(builds: &[WasmBuild]) -> Result<()> {
    setup::one("cross")?;
    if !exists("node") {
        println!("NOT RUN: all of this stage, which needs Node.js");
        return Ok(());
    }
    // The tests have one thread: while those of one build run, the next is made.
    thread::scope(|scope| {
        let builds: Vec<_> = builds.iter().map(|build| scope.spawn(|| wasm_tests(build))).collect();
        builds.into_iter().try_for_each(|build| match build.join() {
            Ok(printed) => {
                println!("{}", printed?);
                Ok(())
            }
            Err(_) => bail!("the thread that waits for a build panicked"),
        })
    })
}

/// Programs that the whole facade loads, lowers and runs where there are no files, threads and clock.
const BARE_WASM: &[&str] = &["add", "mlp", "conv", "softmax"];

fn bare_wasm() -> Result<()> {
    let (target, folder) = ("wasm32-unknown-unknown", npm::test_modules_folder());
    let mut build = command("cargo", &["build", "--quiet", "-p", "rushlight-example-wasm", "--target", target]);
    run(build.arg("--target-dir").arg(&folder))?;
    let mut host = command("node", &["tools/wasm.mjs"]);
    host.arg(folder.join(target).join("debug/rushlight_example_wasm.wasm"));
    run(host.args(BARE_WASM.iter().map(|name| format!("tests/corpus/1.5.1/{name}.json"))))
}

/// Compiles the modules that the tests of JavaScript run.
fn modules() -> Result<()> {
    npm::test_modules()
}

fn wasm_tests((flags, packages): &WasmBuild) -> Result<String> {
    let run = |packages: &[&str], targets: &[&str]| {
        let mut test = command("cargo", &["test", "--profile", "checked", "--quiet", "--target", "wasm32-wasip1"]);
        test.args(packages.iter().flat_map(|package| ["-p", package])).args(targets);
        // A panic ends the program, so that what a failed test printed cannot be shown later.
        output(test.args(["--", "--nocapture"]).env("RUSTFLAGS", flags))
    };
    let units = run(packages, &["--lib"])?;
    let kernels = run(&["rushlight-engine"], &["--test", "it"])?;
    Ok(format!("{} [{flags}]\n{units}{kernels}", packages.join(", ")))
}

/// The tests of the npm package that say the same of both engines.
const JS_ENGINE_TESTS: &[&str] =
    &["api.test.js", "corpus.test.js", "hostile.test.js", "llm.test.js", "memory.test.js", "operators.test.js"];

/// The npm package that tests are run with.
const NPM_PACKAGE: &str = "target/npm-test";

/// WebAssembly without a system interface; and the npm package through its public interface, in Node.js and in Chromium.
fn js() -> Result<()> {
    if !exists("node") {
        println!("NOT RUN: all of this stage, which needs Node.js");
        return Ok(());
    }
    let package = root().join(NPM_PACKAGE);
    npm::test_package(&package)?;
    js_tests(&package, &[])
}

/// The same with the package as it is published.
fn js_whole() -> Result<()> {
    js_tests(&npm::package()?, &[("RUSHLIGHT_WHOLE", "1")])
}

fn js_tests(package: &Path, variables: &[(&str, &str)]) -> Result<()> {
    setup::one("js")?;
    // The program that compiles the language model of the tests.
    run(checked("build").args(["--tests", "--lib"]))?;
    let operators = root().join("target/operators");
    if operators.exists() {
        std::fs::remove_dir_all(&operators)?;
    }
    run(ignored(&["operator_programs"]).env("RUSHLIGHT_OPERATORS", &operators))?;
    let demo = root().join("target/demo");
    npm::demo(package, &demo)?;
    let tests = |engine, files: &[&str]| {
        let mut tests = command("node", &["--test", "--test-reporter", "spec", "--expose-gc"]);
        run(tests
            .args(files.iter().map(|file| format!("bindings/js/tests/{file}")))
            .env("RUSHLIGHT_DEMO", &demo)
            .env("RUSHLIGHT_OPERATORS", &operators)
            .envs(variables.iter().copied())
            .env("RUSHLIGHT_ENGINE", engine)
            .env("RUSHLIGHT_PACKAGE", package)
            .env("RUSHLIGHT", root().join("target/checked/rushlight")))
    };
    tests("wasm", &[""])?;
    tests("native", JS_ENGINE_TESTS)
}
