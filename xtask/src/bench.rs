//! Timings beside ExecuTorch and other engines: builds and installs all sides and starts `benches`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{command, exists, output, root, run, target_folder};
use crate::jvm;
use crate::npm;
use crate::setup::{self, peers_python, tokenizers_python, venv_python};

/// Tables of the CPU engine beside its peers.
const CPU_TABLES: &[&str] = &["latency", "int8", "linear", "sources", "loading", "scaling"];

/// Everything, or one kind: `portable` (operators and MobileNetV3-small), `overhead`, `call`, `compile`, `quantize`, `concurrency`,
/// `tokenizers`, `text`, `web`, `llm`, or `cpu` with all its tables or one. Results go to `docs/benchmarks.md`. With a filter, it
/// only prints: the operators whose line in `benches/operators.txt` contains it, or one model of a table.
pub fn measure(what: &[&str]) -> Result<()> {
    setup::one("python")?;
    match what {
        [] => {
            portable()?;
            overhead()?;
            call()?;
            compile()?;
            quantize()?;
            concurrency()?;
            tokenizers()?;
            text()?;
            web()?;
            cpu(CPU_TABLES, None)?;
            llm(None)
        }
        ["portable", filter] => run(&mut beside_runtime(&["operators", filter], &models()?)?),
        ["portable"] => portable(),
        ["overhead"] => overhead(),
        ["call"] => call(),
        ["compile"] => compile(),
        ["quantize"] => quantize(),
        ["concurrency"] => concurrency(),
        ["tokenizers"] => tokenizers(),
        ["text"] => text(),
        ["web"] => web(),
        ["llm"] => llm(None),
        ["llm", model] => llm(Some(model)),
        ["cpu"] => cpu(CPU_TABLES, None),
        ["cpu", table] => cpu(&[table], None),
        ["cpu", table, model] => cpu(&[table], Some(model)),
        _ => {
            bail!(
                "unknown benchmark: portable [filter], overhead, call, compile, quantize, concurrency, tokenizers, text, web, \
                 llm [model], cpu [table] [model]"
            )
        }
    }
}

fn portable() -> Result<()> {
    need_taskset()?;
    let models = models()?;
    run(&mut beside_runtime(&["operators"], &models)?)?;
    run(&mut beside_runtime(&["model"], &models)?)
}

fn overhead() -> Result<()> {
    let mut bench = beside_runtime(&["overhead"], &models()?)?;
    let chains = ["chain2", "chain100"].map(|name| root().join("target/models").join(name));
    run(command(venv_python(), &["tools/models/peers.py", "--xnnpack"]).args(chains))?;
    run(bench.env("PYTHONPATH", python_package()?))
}

/// Times a call from each language: runs the programs of `benches/call` against Rushlight and its peers. Another binding adds a row to
/// `callers`.
fn call() -> Result<()> {
    setup::one("peers")?;
    run(&mut command("cargo", &["build", "--locked", "--quiet", "--release", "-p", "rushlight-c"]))?;
    let built = target_folder().join("release/librushlight_c.a");
    let model = root().join("tests/corpus/1.5.1/add.pte");
    let onnx = folder()?.join("add.onnx");
    run(command(peers_python(), &["benches/call/add.py"]).arg(&onnx))?;
    let find = "import glob, importlib.util as u; \
                print(glob.glob(u.find_spec('onnxruntime').submodule_search_locations[0] + '/capi/libonnxruntime.so.*')[0])";
    let onnxruntime = output(&mut command(peers_python(), &["-c", find]))?.trim().to_owned();

    let include = ["-Ibindings/c/include", "-Ibindings/cpp/include"];
    let ours = |source: &str, compiler: &str, standard: &str| -> Result<PathBuf> {
        let program = folder()?.join(format!("call-{}", source.replace('.', "-")));
        let mut build = command(compiler, &[standard, "-O2", "-DNDEBUG"]);
        build.args(include).arg(format!("benches/call/{source}")).arg("-o").arg(&program).arg(&built);
        run(build.args(["-lpthread", "-ldl", "-lm"]))?;
        Ok(program)
    };
    let theirs = folder()?.join("call-of-executorch");
    run(&mut executorch_program("benches/call/executorch.cpp", &theirs)?)?;
    let peer = folder()?.join("call-of-onnxruntime");
    let mut build = command("cc", &["-std=c99", "-O2", "-DNDEBUG", "benches/call/onnxruntime.c", "-o"]);
    run(build.arg(&peer).arg("-ldl"))?;

    let [model, onnx] = [model, onnx].map(|file| file.display().to_string());
    let mut callers = vec![
        ("Rushlight, C: `rl_module_run`", ours("c.c", "cc", "-std=c99")?, vec![model.clone()]),
        ("Rushlight, C++: `rushlight.hpp`", ours("rushlight.cpp", "c++", "-std=c++17")?, vec![model.clone()]),
        (
            "Rushlight, C++: ExecuTorch's `Module::forward`",
            ours("executorch.cpp", "c++", "-std=c++17")?,
            vec![model.clone()],
        ),
        ("ExecuTorch, C++: `Module::forward`", theirs, vec![model.clone()]),
        ("ONNX Runtime, C: `Run`, with inputs made once", peer, vec![onnx, onnxruntime]),
    ];
    match jvm::class_path_with("benches/call/Call.java")? {
        Some(path) => {
            let arguments = vec!["-cp".to_owned(), path, "Call".to_owned(), model.clone()];
            callers.push(("Rushlight, Java: ExecuTorch's `Module.forward`", "java".into(), arguments));
        }
        None => println!("NOT RUN: the calls from Java, which need a JDK"),
    }
    let line = |(name, program, arguments): (&str, PathBuf, Vec<String>)| {
        format!("{name}\t{}\t{}", program.display(), arguments.join("\t"))
    };
    let callers = callers.into_iter().map(line).collect::<Vec<_>>().join("\n");
    let versions = [versions()?, versions_of(peers_python(), "onnxruntime")?].join(", ");
    let mut bench = benches(&["call"])?;
    run(bench.env("EXECUTORCH_WORKER", worker()?).env("CALLERS", callers).env("MODEL", model).env("VERSIONS", versions))
}

/// Measurements beside ExecuTorch's runtime.
fn beside_runtime(arguments: &[&str], models: &Path) -> Result<Command> {
    let mut bench = benches(arguments)?;
    bench.env("EXECUTORCH_WORKER", worker()?).env("MODELS", models).env("EXECUTORCH_LLAMA", llama_libraries()?);
    Ok(bench)
}

/// Measurements beside ExecuTorch's compiler.
fn compile() -> Result<()> {
    let models = root().join("target/models-large");
    run(command(venv_python(), &["tools/models/large.py"]).arg(&models))?;
    run(benches(&["compile"])?.env("MODELS", &models))
}

/// Measurements beside PyTorch's quantization and ExecuTorch's compiler.
fn quantize() -> Result<()> {
    let models = root().join("target/peer-models");
    run(command(venv_python(), &["tools/models/peers.py"])
        .arg(&models)
        .args(["--only", "resnet50", "--forms", "pt2"]))?;
    run(benches(&["quantize"])?.env("MODELS", &models))
}

/// Calls of one model from several threads of Python, beside ONNX Runtime.
fn concurrency() -> Result<()> {
    setup::one("peers")?;
    let models = root().join("target/peer-models");
    let only = ["--only", "mobilenet_v3_small", "resnet50", "--forms"];
    run(command(venv_python(), &["tools/models/peers.py"]).arg(&models).args(only).arg("pt2"))?;
    run(command(peers_python(), &["tools/models/peers.py"]).arg(&models).args(only).arg("onnx"))?;
    let versions = [versions()?, versions_of(peers_python(), "onnxruntime")?].join(", ");
    let mut bench = benches(&["concurrency"])?;
    bench.env("MODELS", &models).env("PEERS_PYTHON", peers_python()).env("PYTHONPATH", python_package()?);
    run(bench.env("VERSIONS", versions))
}

/// Tokenizers beside the packages that they come from, from Python on both sides.
fn tokenizers() -> Result<()> {
    setup::one("tokenizers")?;
    run(&mut command("cargo", &["build", "--quiet", "--release", "-p", "rushlight-python"]))?;
    let package = folder()?.join("python-library");
    setup::assemble(tokenizers_python(), "release", &package)?;
    let versions = versions_of(tokenizers_python(), "tokenizers tiktoken sentencepiece")?;
    run(benches(&["tokenizers"])?
        .env("PYTHON", tokenizers_python())
        .env("PYTHONPATH", &package)
        .env("VERSIONS", versions))
}

/// The costs of text beside decoding, with the vocabulary of GPT-4o that litellm brings.
fn text() -> Result<()> {
    const O200K: &str = "litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790";
    setup::one("tokenizers")?;
    let find = "import importlib.util as u; print(u.find_spec('litellm').submodule_search_locations[0])";
    let package = PathBuf::from(output(&mut command(tokenizers_python(), &["-c", find]))?.trim());
    let versions = versions_of(tokenizers_python(), "litellm")?;
    run(benches(&["text"])?.env("VOCABULARY", package.join(O200K)).env("VERSIONS", versions))
}

/// The npm package in a page beside onnxruntime-web.
fn web() -> Result<()> {
    const FOLDER: &str = "benches/web";
    setup::one("peers")?;
    let models = root().join("target/peer-models");
    let only = ["--only", "mobilenet_v2", "minilm", "smallest", "--forms"];
    run(command(venv_python(), &["tools/models/peers.py"]).arg(&models).args(only).arg("pt2"))?;
    run(command(peers_python(), &["tools/models/peers.py"]).arg(&models).args(only).arg("onnx"))?;
    run(command("npm", &["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(root().join(FOLDER)))?;
    let package = npm::package()?;
    let installed =
        output(command("npm", &["ls", "--depth=0", "--parseable", "--long"]).current_dir(root().join(FOLDER)))?;
    let installed =
        installed.lines().filter_map(|line| Some(line.rsplit_once(':')?.1.trim_end_matches('@').replace('@', " ")));
    let versions: Vec<String> = installed.filter(|package| package.contains(' ')).collect();
    run(benches(&["web"])?.env("MODELS", &models).env("PACKAGE", package).env("VERSIONS", versions.join(", ")))
}

/// The CPU engine beside its peers.
fn cpu(tables: &[&str], model: Option<&str>) -> Result<()> {
    setup::one("peers")?;
    need_taskset()?;
    let (models, worker) = (root().join("target/peer-models"), worker()?);
    let mut make = vec!["tools/models/peers.py".to_owned(), models.display().to_string()];
    if let Some(model) = model {
        make.extend(["--only".to_owned(), model.to_owned()]);
    }
    if tables != ["linear"] {
        let forms = ["--forms", "onnx", "openvino", "tflite", "onnx_int8", "openvino_int8", "tflite_int8"];
        run(command(venv_python(), &[]).args(&make))?;
        run(command(peers_python(), &[]).args(&make).args(forms))?;
    }
    if tables.contains(&"linear") {
        run(command(venv_python(), &["tools/models/peers.py"]).arg(&models).arg("--linear"))?;
    }
    for table in tables {
        let arguments: Vec<&str> = ["cpu", table].into_iter().chain(model).collect();
        let mut bench = benches(&arguments)?;
        bench.env("EXECUTORCH_WORKER", &worker).env("MODELS", &models).env("PEERS_PYTHON", peers_python());
        run(bench.env("VERSIONS", format!("{}, {}", versions()?, peers_versions()?)))?;
    }
    Ok(())
}

/// Language models beside ExecuTorch and llama.cpp. The first run exports them, which takes long.
fn llm(model: Option<&str>) -> Result<()> {
    setup::one("peers")?;
    need_taskset()?;
    let models = root().join("target/language-models");
    let mut make = command(venv_python(), &["tools/models/language_models.py"]);
    make.arg(&models);
    if let Some(model) = model {
        make.args(["--only", model]);
    }
    run(&mut make)?;
    let arguments: Vec<&str> = ["llm"].into_iter().chain(model).collect();
    let mut bench = beside_runtime(&arguments, &models)?;
    let versions = [versions()?, versions_of(peers_python(), "torchao llama-cpp-python")?].join(", ");
    run(bench.env("PEERS_PYTHON", peers_python()).env("VERSIONS", versions))
}

/// Processes that are compared stay on the same cores.
fn need_taskset() -> Result<()> {
    if !exists("taskset") {
        bail!("taskset is needed, for example: apt-get install util-linux");
    }
    Ok(())
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

/// ExecuTorch's side.
fn worker() -> Result<PathBuf> {
    let worker = folder()?.join("executorch-worker");
    run(&mut executorch_program("benches/executorch/worker.cpp", &worker)?)?;
    Ok(worker)
}

/// Compiles a program against the headers and libraries of the executorch wheel.
fn executorch_program(source: &str, program: &Path) -> Result<Command> {
    if !exists("c++") {
        bail!("a C++ compiler is needed, for example: apt-get install g++");
    }
    let find = "import importlib.util as u; print(u.find_spec('executorch').submodule_search_locations[0])";
    let package = PathBuf::from(output(&mut command(venv_python(), &["-c", find]))?.trim());
    let (include, library) = (package.join("include"), package.join("lib"));
    let mut compile = command("c++", &["-std=c++17", "-O2", "-w", "-DC10_USING_CUSTOM_GENERATED_MACROS"]);
    compile.arg("-I").arg(&include).arg("-I").arg(include.join("executorch/runtime/core/portable_type/c10"));
    compile.arg(source).arg("-o").arg(program).arg("-L").arg(&library);
    // The kernels register themselves when their library is loaded; nothing else names it.
    compile.arg(format!("-Wl,-rpath,{}", library.display())).arg("-Wl,--no-as-needed");
    for name in [
        "executorch",
        "executorch_kernels_optimized",
        "executorch_kernels_quantized",
        "executorch_threadpool",
        "executorch_backend_xnnpack",
    ] {
        compile.arg(format!("-l{name}"));
    }
    compile.arg("-ldl");
    Ok(compile)
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
    let mut build = command(venv_python(), &["-m", "maturin", "build", "--locked", "--quiet"]);
    build.args(["--manifest-path", "bindings/python/Cargo.toml", "--target-dir", "target/wheel", "--out"]).arg(&wheels);
    run(&mut build)?;
    let wheel = std::fs::read_dir(&wheels)?.next().context("maturin built no wheel")??.path();
    let mut install = command(venv_python(), &["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(install.args(["--no-deps", "--target"]).arg(&package).arg(wheel))?;
    Ok(package)
}

fn versions() -> Result<String> {
    versions_of(venv_python(), "executorch torch")
}

fn peers_versions() -> Result<String> {
    versions_of(peers_python(), "onnxruntime openvino nncf ai-edge-litert ai-edge-quantizer")
}

/// Packages of an environment with their versions.
fn versions_of(python: PathBuf, packages: &str) -> Result<String> {
    let print = "import sys; from importlib.metadata import version as v; \
                 print(', '.join(f'{name} {v(name)}' for name in sys.argv[1].split()))";
    Ok(output(&mut command(python, &["-c", print, packages]))?.trim().to_owned())
}
