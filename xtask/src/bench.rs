//! Timings beside ExecuTorch: builds both sides and starts `benches`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{command, exists, output, root, run};
use crate::setup::{self, venv_python};

/// Everything, or one kind: `portable` (operators and MobileNetV3-small), `overhead` or `compile`. What it measures goes to
/// `docs/benchmarks.md`; with a filter, only operators whose line in `benches/operators.txt` contains it, and nowhere.
pub fn run_kind(kind: Option<&str>, filter: Option<&str>) -> Result<()> {
    setup::one("python")?;
    match (kind, filter) {
        (None, None) => {
            portable()?;
            overhead()?;
            compile()
        }
        (Some("portable"), Some(filter)) => run(&mut beside_runtime(&["operators", filter])?),
        (Some("portable"), None) => portable(),
        (Some("overhead"), None) => overhead(),
        (Some("compile"), None) => compile(),
        _ => bail!("unknown benchmark: portable [filter], overhead, compile"),
    }
}

fn portable() -> Result<()> {
    run(&mut beside_runtime(&["operators"])?)?;
    run(&mut beside_runtime(&["model"])?)
}

fn overhead() -> Result<()> {
    run(beside_runtime(&["overhead"])?.env("PYTHONPATH", python_package()?))
}

/// Measurements beside ExecuTorch's runtime.
fn beside_runtime(arguments: &[&str]) -> Result<Command> {
    let mut bench = benches(arguments)?;
    bench.env("EXECUTORCH_WORKER", worker()?).env("MODELS", models()?).env("EXECUTORCH_LLAMA", llama_libraries()?);
    Ok(bench)
}

/// Measurements beside ExecuTorch's compiler.
fn compile() -> Result<()> {
    let models = root().join("target/models-large");
    run(command(venv_python(), &["tools/models/large.py"]).arg(&models))?;
    run(benches(&["compile"])?.env("MODELS", &models))
}

fn benches(arguments: &[&str]) -> Result<Command> {
    let mut bench = command("cargo", &["run", "--quiet", "--release", "-p", "rushlight-benches", "--"]);
    bench.args(arguments).env("VERSIONS", versions()?).env("PYTHON", venv_python());
    bench.env("DOCUMENT", root().join("docs/benchmarks.md"));
    Ok(bench)
}

fn folder() -> Result<PathBuf> {
    let folder = root().join("target/bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The programs, exported by ExecuTorch's own compiler.
fn models() -> Result<PathBuf> {
    let folder = root().join("target/models");
    let only = ["--only", "mobilenet_v3_small_224,chain2,chain100"];
    run(command(venv_python(), &["tools/models/generate.py"]).arg(&folder).args(only))?;
    Ok(folder)
}

/// ExecuTorch's side, built against the headers and libraries of the executorch wheel.
fn worker() -> Result<PathBuf> {
    if !exists("c++") {
        bail!("a C++ compiler is needed, for example: apt-get install g++");
    }
    let find = "import importlib.util as u; print(u.find_spec('executorch').submodule_search_locations[0])";
    let package = PathBuf::from(output(&mut command(venv_python(), &["-c", find]))?.trim());
    let (include, library) = (package.join("include"), package.join("lib"));
    let worker = folder()?.join("executorch-worker");
    let mut compile = command("c++", &["-std=c++17", "-O2", "-w", "-DC10_USING_CUSTOM_GENERATED_MACROS"]);
    compile.arg("-I").arg(&include).arg("-I").arg(include.join("executorch/runtime/core/portable_type/c10"));
    compile.arg("benches/executorch/worker.cpp").arg("-o").arg(&worker).arg("-L").arg(&library);
    // The kernels register themselves when their library is loaded; nothing else names it.
    compile.arg(format!("-Wl,-rpath,{}", library.display())).arg("-Wl,--no-as-needed");
    for name in ["executorch", "executorch_kernels_optimized", "executorch_kernels_quantized", "executorch_threadpool"]
    {
        compile.arg(format!("-l{name}"));
    }
    compile.arg("-ldl");
    run(&mut compile)?;
    Ok(worker)
}

/// The library of the kernels for large language models, after the interpreter that its PyTorch needs.
fn llama_libraries() -> Result<String> {
    let find = "import importlib.util as u, os, sysconfig as s; \
                print(os.path.join(s.get_config_var('LIBDIR'), s.get_config_var('LDLIBRARY')) + ':' + os.path.join(\
                u.find_spec('executorch').submodule_search_locations[0], \
                'extension/llm/custom_ops/libcustom_ops_aot_lib.so'))";
    Ok(output(&mut command(venv_python(), &["-c", find]))?.trim().to_owned())
}

/// A folder with Rushlight's Python package as users get it, apart from the environment of the tests.
fn python_package() -> Result<PathBuf> {
    let (wheels, package) = (folder()?.join("wheels"), folder()?.join("python"));
    for folder in [&wheels, &package] {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
    }
    let mut build = command(venv_python(), &["-m", "maturin", "build", "--release", "--locked", "--quiet"]);
    build.args(["--manifest-path", "bindings/python/Cargo.toml", "--target-dir", "target/wheel", "--out"]).arg(&wheels);
    run(&mut build)?;
    let wheel = std::fs::read_dir(&wheels)?.next().context("maturin built no wheel")??.path();
    let mut install = command(venv_python(), &["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(install.args(["--no-deps", "--target"]).arg(&package).arg(wheel))?;
    Ok(package)
}

fn versions() -> Result<String> {
    let print =
        "from importlib.metadata import version as v; print('executorch', v('executorch') + ', torch', v('torch'))";
    Ok(output(&mut command(venv_python(), &["-c", print]))?.trim().to_owned())
}
